import { editDistance } from '../language/near-names.ts'
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
