import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { onFirstUse } from '../language/once.ts'

const csvParse = onFirstUse<typeof import('csv-parse')>('csv-parse')
const csvStringify = onFirstUse<typeof import('csv-stringify/sync')>('csv-stringify/sync')

/** A cell of CSV text: null where nothing stands between the delimiters, the empty text where an empty pair of quotes does. */
export type CsvCell = string | null

/** A record, and the line of the text in which it begins, counted from 1. */
type CsvRecord = { readonly cells: readonly CsvCell[]; readonly line: number }

type CsvLimits = {
  /** Bytes. */
  readonly largestRecord: number
  /** Stands between cells; default a comma. */
  readonly delimiter?: string
}

/**
 * The records of CSV text (RFC 4180; bytes are UTF-8), as they are read: blank lines are left out, cells without quotes
 * trimmed. Throws a SyntaxError for text that is no CSV, records of different length among it.
 */
export async function* readCsv(
  text: AsyncIterable<string | Uint8Array>,
  { largestRecord, delimiter = ',' }: CsvLimits,
): AsyncGenerator<CsvRecord> {
  const parser = csvParse().parse({
    delimiter,
    trim: true,
    skip_empty_lines: true,
    info: true,
    max_record_size: largestRecord,
    cast: (cell, { quoting }) => (cell === '' && !quoting ? null : cell),
  })
  // Its error is the parser's too, which throws it below.
  pipeline(Readable.from(text), parser).catch(() => {})
  try {
    // The parser takes CRLF within quotes for two lines.
    let counted = 0
    for await (const { record, info } of parser as AsyncIterable<ParsedRecord>) {
      const text = record.join(' ')
      yield { cells: record, line: info.lines - counted - countOf(text, /[\r\n]/g) }
      counted += countOf(text, /\r\n/g)
    }
  } catch (error) {
    throw error instanceof csvParse().CsvError ? new SyntaxError(error.message, { cause: error }) : error
  }
}

/** The parser knows the line in which a record ends. */
type ParsedRecord = { readonly record: readonly CsvCell[]; readonly info: { readonly lines: number } }

const countOf = (text: string, pattern: RegExp): number => text.match(pattern)?.length ?? 0

/**
 * Records as CSV text. Cells that a reader would trim, line breaks and empty text are in quotes; null is an empty cell.
 */
export function writeCsv(records: readonly (readonly CsvCell[])[]): string {
  return csvStringify().stringify(records as CsvCell[][], {
    record_delimiter: '\r\n',
    quoted_match: /^$|^\s|\s$|[\r\n]/,
  })
}
