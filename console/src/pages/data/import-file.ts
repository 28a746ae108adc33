import type { Row } from './query.ts'

/** The beginning of a file of rows: enough to see what it holds. */
export type Draft = {
  /** The whole file, with its text in UTF-8. */
  readonly file: File
  readonly format: 'csv' | 'json'
  readonly columns: readonly string[]
  readonly rows: readonly Row[]
  /** Stands between the columns of a CSV file. */
  readonly delimiter: string
  /** Bytes of the first line of a CSV file. */
  readonly headBytes: number
  /** How its lines end; one that ends otherwise would be no end. */
  readonly newline: string
}

const startBytes = 1_000_000
const startRows = 200

/** Encodings of files, as they are chosen from. */
export const encodings = [
  { value: 'utf-8', label: 'UTF-8' },
  { value: 'windows-1252', label: 'Windows-1252, western Europe' },
  { value: 'windows-1250', label: 'Windows-1250, central Europe' },
  { value: 'windows-1251', label: 'Windows-1251, Cyrillic' },
  { value: 'windows-1253', label: 'Windows-1253, Greek' },
  { value: 'windows-1254', label: 'Windows-1254, Turkish' },
  { value: 'shift_jis', label: 'Shift JIS, Japanese' },
  { value: 'gb18030', label: 'GB 18030, Chinese' },
  { value: 'big5', label: 'Big5, Chinese' },
  { value: 'euc-kr', label: 'EUC-KR, Korean' },
  { value: 'utf-16le', label: 'UTF-16' },
  { value: 'utf-16be', label: 'UTF-16, big endian' },
]

/** What the beginning of a file looks like; what is not UTF-8 is most often what spreadsheets save in western Europe. */
export async function encodingOf(file: File): Promise<string> {
  const bytes = new Uint8Array(await file.slice(0, startBytes).arrayBuffer())
  const [first, second] = bytes
  if (first === 0xff && second === 0xfe) return 'utf-16le'
  if (first === 0xfe && second === 0xff) return 'utf-16be'
  try {
    new TextDecoder('utf-8', { fatal: true }).decode(bytes, { stream: true })
    return 'utf-8'
  } catch {
    return 'windows-1252'
  }
}

/** Reads the beginning. @throws {Error} where it is neither CSV nor a JSON list of objects, or is no text in the encoding */
export async function readStart(chosen: File, encoding: string): Promise<Draft> {
  const file = await inUtf8(chosen, encoding)
  if (/\.json$/i.test(file.name) || file.type === 'application/json') return { file, ...readJson(await file.text()) }
  // Reading as text leaves out the mark that some programs put in front.
  const first = new Uint8Array(await file.slice(0, 3).arrayBuffer())
  const markBytes = first[0] === 0xef && first[1] === 0xbb && first[2] === 0xbf ? 3 : 0
  return { file, ...readCsv(await file.slice(0, startBytes).text(), markBytes) }
}

async function inUtf8(file: File, encoding: string): Promise<File> {
  if (encoding === 'utf-8') return file
  const text = file.stream().pipeThrough(new TextDecoderStream(encoding, { fatal: true }))
  try {
    const content = await new Response(text.pipeThrough(new TextEncoderStream())).blob()
    return new File([content], file.name, { type: file.type })
  } catch (cause) {
    throw new Error('The file cannot be read in this encoding: choose another one.', { cause })
  }
}

/**
 * The file with its columns named as the fields; those that are left out get a name that no field has.
 *
 * @throws {Error} where the file is not as it was chosen
 */
export async function renamed(
  { file, format, columns, delimiter, headBytes, newline }: Draft,
  fields: Readonly<Record<string, string>>,
): Promise<Blob> {
  await expectUnchanged(file)
  if (columns.every((column) => fields[column] === column)) return file
  if (format === 'csv') {
    const head = columns.map((column, place) => fields[column] || `-${place}`).join(delimiter)
    return new Blob([head + newline, file.slice(headBytes)], { type: 'text/csv' })
  }
  const rows = JSON.parse(await file.text(), asWritten as (key: string, value: unknown) => unknown) as readonly Row[]
  const named = rows.map((row) =>
    Object.fromEntries(
      Object.entries(row).flatMap(([column, value]) => (fields[column] ? [[fields[column], value]] : [])),
    ),
  )
  return new Blob([JSON.stringify(named)], { type: 'application/json' })
}

/** Numbers with more digits than those of JavaScript keep them, in browsers that can write them: what is not renamed is sent as it stands. */
function asWritten(_key: string, value: unknown, { source }: { readonly source?: string } = {}): unknown {
  const { rawJSON } = JSON as { rawJSON?: (text: string) => unknown }
  const isAnother = typeof value === 'number' && source !== undefined && String(value) !== source
  return isAnother && rawJSON !== undefined ? rawJSON(source) : value
}

/** A browser that finds out while it sends the file tells of it as of a server that does not answer. */
async function expectUnchanged(file: File): Promise<void> {
  try {
    await file.slice(0, 1).arrayBuffer()
  } catch (cause) {
    throw new Error('The file has changed: choose it again.', { cause })
  }
}

function readJson(text: string): Omit<Draft, 'file'> {
  const rows: unknown = JSON.parse(text)
  if (!Array.isArray(rows) || rows.some((row) => typeof row !== 'object' || row === null))
    throw new Error('The file must hold a list of objects.')
  // Of all rows: a column that is found nowhere here could not be given to a field, and would be left out.
  const columns = new Set<string>()
  for (const row of rows as Row[]) for (const column of Object.keys(row)) columns.add(column)
  return {
    format: 'json',
    columns: [...columns],
    rows: rows.slice(0, startRows) as Row[],
    delimiter: ',',
    headBytes: 0,
    newline: '',
  }
}

function readCsv(text: string, markBytes: number): Omit<Draft, 'file'> {
  const delimiter = delimiterOf(text)
  const { records, firstEnd } = recordsOf(text, startRows + 1, delimiter)
  const [columns, ...rest] = records
  if (columns === undefined) throw new Error('The file is empty.')
  return {
    format: 'csv',
    columns,
    rows: rest.map((record) => Object.fromEntries(columns.map((column, place) => [column, record[place] ?? '']))),
    delimiter,
    headBytes: markBytes + new TextEncoder().encode(text.slice(0, firstEnd)).length,
    newline: /\r?\n$/.exec(text.slice(0, firstEnd))?.[0] ?? '\n',
  }
}

/** As the server reads the header: spreadsheets write semicolons in some languages, and tabs are what is copied out of them. */
function delimiterOf(text: string): string {
  const names = /\S.*/.exec(text)?.[0].replaceAll(/"[^"]*"/g, '') ?? ''
  return [',', ';', '\t'].find((one) => names.includes(one)) ?? ','
}

/** Records of RFC 4180, up to a number of them. */
export function recordsOf(
  text: string,
  limit: number,
  delimiter = ',',
): { readonly records: readonly (readonly string[])[]; readonly firstEnd: number } {
  const records: string[][] = []
  let record: string[] = []
  let cell = ''
  let isQuoted = false
  let firstEnd = text.length
  const endRecord = (next: number) => {
    record.push(cell)
    cell = ''
    if (record.length > 1 || record[0] !== '') records.push(record)
    if (records.length === 1 && record === records[0]) firstEnd = next
    record = []
  }
  for (let place = 0; place < text.length && records.length < limit; place += 1) {
    const character = text[place]!
    if (isQuoted) {
      if (character !== '"') cell += character
      else if (text[place + 1] === '"') {
        cell += '"'
        place += 1
      } else isQuoted = false
    } else if (character === '"') isQuoted = true
    else if (character === delimiter) {
      record.push(cell)
      cell = ''
    } else if (character === '\n') endRecord(place + 1)
    else if (character !== '\r') cell += character
  }
  if (records.length < limit && (cell !== '' || record.length > 0)) endRecord(text.length)
  return { records, firstEnd }
}
