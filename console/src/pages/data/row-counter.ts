export type ExportFormat = 'csv' | 'json'

const [quote, backslash, newline, openBrace, closeBrace] = ['"', '\\', '\n', '{', '}'].map((one) => one.charCodeAt(0))

/** Counts the rows of a file whose chunks it is given: records after the header, or objects of the list. */
export function rowCounter(format: ExportFormat): (chunk: Uint8Array) => number {
  let [rows, depth] = [format === 'csv' ? -1 : 0, 0]
  let [isQuoted, isEscaped] = [false, false]
  const ofCsv = (byte: number) => {
    if (byte === quote) isQuoted = !isQuoted
    else if (byte === newline && !isQuoted) rows += 1
  }
  const ofJson = (byte: number) => {
    if (isEscaped) isEscaped = false
    else if (isQuoted && byte === backslash) isEscaped = true
    else if (byte === quote) isQuoted = !isQuoted
    else if (isQuoted) return
    else if (byte === openBrace) depth += 1
    else if (byte === closeBrace) {
      depth -= 1
      if (depth === 0) rows += 1
    }
  }
  const look = format === 'csv' ? ofCsv : ofJson
  return (chunk) => {
    for (const byte of chunk) look(byte)
    return Math.max(0, rows)
  }
}
