import { isSet, type Reading } from './read.ts'

/**
 * Warnings for variables that look like a misspelling of one of ours: unknown, at most two edits away, sharing
 * a word with it, and the right one unset. Short names are left alone: too many would match by accident.
 */
export function nearMisses(reading: Reading): string[] {
  const known = [...reading.asked].filter((name) => name.length >= shortest && !isSet(reading, name))
  return Object.keys(reading.env)
    .filter((name) => name.length >= shortest && !reading.asked.has(name) && isSet(reading, name))
    .flatMap((name) => {
      const meant = known.find((candidate) => sharesWord(name, candidate) && editDistance(name, candidate) <= 2)
      return meant === undefined ? [] : [`${name} is not a variable of Daybook; did you mean ${meant}?`]
    })
}

const shortest = 8

function sharesWord(left: string, right: string): boolean {
  const words = left.split('_')
  return right.split('_').some((word) => words.includes(word))
}

/** Levenshtein distance, one row at a time. */
function editDistance(left: string, right: string): number {
  if (Math.abs(left.length - right.length) > 2) return Number.POSITIVE_INFINITY
  let row = Array.from({ length: right.length + 1 }, (_, column) => column)
  for (const [index, char] of [...left].entries()) row = nextRow(row, index + 1, char, right)
  return row[right.length] ?? 0
}

function nextRow(above: readonly number[], first: number, char: string, right: string): number[] {
  const row = [first]
  for (const [column, other] of [...right].entries()) {
    const replaced = (above[column] ?? 0) + (char === other ? 0 : 1)
    row.push(Math.min(replaced, (above[column + 1] ?? 0) + 1, (row[column] ?? 0) + 1))
  }
  return row
}
