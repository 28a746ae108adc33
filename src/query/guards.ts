/**
 * Limits on what a request may make us walk, checked before anything recurses. All of them answer 400.
 */
import { guardScalar, isObject } from '../catalog/values.ts'
import { errors } from '../errors.ts'
import { nearName } from '../language/text.ts'

export { isObject, member } from '../catalog/values.ts'

/** Characters of a parameter that is JSON text; ten thousand UUIDs are 390 000. */
export const MAX_TEXT = 1_000_000
export const MAX_DEPTH = 20
export const MAX_NODES = 1_000
/** Members of one array, such as the operand of `in`. */
const MAX_ARRAY = 10_000
/** Array members of one parameter in all. */
const MAX_VALUES = 20_000
/** Relations from the collection to the furthest row. */
export const MAX_RELATION_DEPTH = 7
export const MAX_LIST = 1_000
export const MAX_SORT_KEYS = 20
export const MAX_GROUP_KEYS = 10
export const MAX_AGGREGATES = 25
/** Relations that wildcards and names together may select. */
export const MAX_NESTED = 250
export const MAX_SEARCH_LENGTH = 500
export const MAX_SEARCH_WORDS = 32
export const MAX_PATTERN = 200
export const MAX_JSONPATH = 1_000
/** Rows of a page that is asked for by a cursor. */
export const MAX_CURSOR_ROWS = 1_000
/** Characters of a cursor; what fits a request line beside a filter. */
export const MAX_CURSOR_TEXT = 6_000

/** A value still to be looked at, and how many objects and arrays it is inside. */
type NestedValue = { readonly value: unknown; readonly objects: number; readonly arrays: number }

/**
 * Throws 400 when a parsed JSON value nests deeper than 20 objects or 20 arrays, has more than 1 000 members, an array
 * of more than 10 000 values, a number that is not finite, or a NUL character or half of a surrogate pair (which
 * PostgreSQL text cannot hold). An array of scalars is one node. Iterative, so that no input can exhaust the stack.
 */
export function guard(parameter: string, root: unknown): void {
  const pending: NestedValue[] = [{ value: root, objects: 0, arrays: 0 }]
  let nodes = 0
  let values = 0
  for (let visit = pending.pop(); visit !== undefined; visit = pending.pop()) {
    const { value } = visit
    if (Array.isArray(value)) {
      values += value.length
      nodes += value.length > MAX_ARRAY ? 0 : value.filter(isObject).length
    } else if (isObject(value)) {
      nodes += Object.keys(value).length
    } else {
      guardScalar(parameter, value)
      continue
    }
    const isTooDeep = visit.objects > MAX_DEPTH || visit.arrays > MAX_DEPTH
    const isTooLarge = nodes > MAX_NODES || values > MAX_VALUES || (Array.isArray(value) && value.length > MAX_ARRAY)
    if (isTooDeep || isTooLarge) throw errors.badQuery(`${parameter}: too large or too deep`)
    pending.push(...membersOf(parameter, visit))
  }
}

function membersOf(parameter: string, { value, objects, arrays }: NestedValue): NestedValue[] {
  if (Array.isArray(value)) return value.map((entry) => ({ value: entry, objects, arrays: arrays + 1 }))
  return Object.entries(value as object).map(([key, entry]) => {
    guardScalar(parameter, key)
    return { value: entry, objects: objects + 1, arrays }
  })
}

/** `: did you mean NAME?`, empty where no known name is near. */
export function meantName(name: string, known: Iterable<string>): string {
  const meant = name.length > longestName ? undefined : nearName(name, known)
  return meant === undefined ? '' : `: did you mean ${meant}?`
}

/**
 * 400 for the first member of an object of the request that means nothing there, with the known name that it was meant to
 * be. `synonyms` are words that are right elsewhere.
 */
export function refuseUnknown(
  place: string,
  object: Readonly<Record<string, unknown>>,
  known: readonly string[],
  synonyms: ReadonlyMap<string, string> = noSynonyms,
): void {
  for (const key of Object.keys(object)) {
    if (known.includes(key) || object[key] === undefined) continue
    const synonym = synonyms.get(key)
    const hint = synonym === undefined ? meantName(key, known) : `: did you mean ${synonym}?`
    throw errors.badQuery(`${place}: unknown member ${quoted(key)}${hint}`)
  }
}

const noSynonyms: ReadonlyMap<string, string> = new Map()

/** A longer word is near no name. */
const longestName = 66

/** The request's own word in an error, cut short. */
export const quoted = (text: string): string => JSON.stringify(text.length > 64 ? `${text.slice(0, 64)}…` : text)
