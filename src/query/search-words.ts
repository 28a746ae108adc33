/** The words of a full-text search, and how a text is looked through for each of them. */
import { errors } from '../errors.ts'
import { MAX_SEARCH_WORDS } from './guards.ts'
import type { SearchWord } from './plan.ts'

/**
 * The words that a row must have. Stop words are in nearly every text, and their stems in none: they count only where there
 * are no others. Empty for a search of punctuation, which is in no row.
 */
export function searchWords(search: string): readonly SearchWord[] {
  const words = search.split(/\s+/u).filter((word) => /[\p{L}\p{N}]/u.test(word))
  if (words.length > MAX_SEARCH_WORDS) throw errors.badQuery(`search: at most ${MAX_SEARCH_WORDS} words`)
  const telling = words.filter((word) => !isStopWord(word))
  if (telling.length === 0) return words.map((word) => ({ pattern: patternOf(word), query: undefined }))
  return telling.map((word) => ({ pattern: patternOf(word), query: queryOf(word) }))
}

/** Whether one of the words is a UUID or at least as much of one as stands before its first hyphen. */
export const mayNameUuid = (search: string): boolean =>
  search.split(/\s+/u).some((word) => /^[\da-f]{8,32}$/i.test(partsOf(word).join('')))

/** A word without its punctuation: the runs of PostgreSQL's `[:alnum:]` and of the accents that it leaves out. */
const partsOf = (word: string): readonly string[] => word.match(/[\p{Alphabetic}\p{N}\p{M}]+/gu) ?? []

/** PostgreSQL takes `don't` and `AT&T` for two words each, and drops all four. */
const isStopWord = (word: string): boolean => partsOf(word).every((part) => STOP_WORDS.has(part.toLowerCase()))

/**
 * The word at the beginning of a word, with any punctuation or space where it has punctuation. Of the caller's text only
 * letters, digits and accents are in it, which mean themselves.
 */
const patternOf = (word: string): string => `(^|${APART})${partsOf(word).join(`${APART}+`)}`

const APART = '[^[:alnum:]]'

/**
 * The word as a quoted prefix, `'foo':*`. Quotes and backslashes are the only characters with a meaning inside the quotes;
 * without them nothing a caller types is an operator.
 */
const queryOf = (word: string): string => `'${word.replace(/['\\]/g, ' ')}':*`

/** PostgreSQL's `english.stop`. */
const STOP_WORDS: ReadonlySet<string> = new Set(
  [
    'i me my myself we our ours ourselves you your yours yourself yourselves he him his himself she her hers herself it',
    'its itself they them their theirs themselves what which who whom this that these those am is are was were be been',
    'being have has had having do does did doing a an the and but if or because as until while of at by for with about',
    'against between into through during before after above below to from up down in out on off over under again further',
    'then once here there when where why how all any both each few more most other some such no nor not only own same so',
    'than too very s t can will just don should now',
  ].flatMap((line) => line.split(' ')),
)
