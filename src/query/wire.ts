/**
 * The spellings in which a value can arrive (`spec/items.md` §2): JSON text, comma text, repeated keys and brackets
 * (`k[]=a`, `k[0]=a`, `k[f][op]=v`) all become the same plain value.
 */
import { errors } from '../errors.ts'
import { guardScalar, isObject, MAX_DEPTH, MAX_LIST, MAX_TEXT, quoted } from './guards.ts'

/** Operators whose operand is a list: their bracketed text may be a comma list. */
const LIST_OPERATORS = new Set(['in', 'notIn', 'nin', 'between', 'notBetween', 'nbetween'])

/**
 * The named parameters of a raw query, bracketed keys folded into trees. Names outside `known` are left out, or
 * answer 400 when `strict`.
 */
export function collectParameters(
  raw: Readonly<Record<string, unknown>>,
  known: ReadonlySet<string>,
  strict: boolean,
): ReadonlyMap<string, unknown> {
  const parameters = new Map<string, unknown>()
  const bracketed = new Map<string, [string[], unknown][]>()
  for (const [key, value] of Object.entries(raw)) {
    const [name, path] = splitBrackets(key)
    if (!known.has(name)) {
      if (strict) throw errors.badQuery(`unknown member ${quoted(key)}`)
    } else if (path.length === 0) {
      if (value !== undefined) parameters.set(name, value)
    } else {
      bracketed.set(name, [...(bracketed.get(name) ?? []), [path, value]])
    }
  }
  for (const [name, leaves] of bracketed) {
    if (parameters.has(name)) throw errors.badQuery(`${name} is given in two forms`)
    parameters.set(name, foldLeaves(name, leaves))
  }
  return parameters
}

/** `filter[a][eq]` → `['filter', ['a', 'eq']]`. A key that is not well-formed is a name of its own. */
function splitBrackets(key: string): [string, string[]] {
  const open = key.indexOf('[')
  if (open <= 0 || !/^(?:\[[^[\]]*\])+$/.test(key.slice(open))) return [key, []]
  return [key.slice(0, open), key.slice(open + 1, -1).split('][')]
}

type Tree = { [key: string]: unknown }

function foldLeaves(name: string, leaves: readonly [string[], unknown][]): unknown {
  if (leaves.length > MAX_LIST) throw errors.badQuery(`${name}: too large or too deep`)
  const root: Tree = Object.create(null)
  for (const [path, value] of leaves) plant(name, root, path, value)
  return toArrays(root)
}

function plant(name: string, root: Tree, path: readonly string[], value: unknown): void {
  if (path.length > 2 * MAX_DEPTH) throw errors.badQuery(`${name}: too large or too deep`)
  let node = root
  for (const segment of path.slice(0, -1)) {
    node[segment] ??= Object.create(null)
    const next = node[segment]
    if (!isObject(next)) throw errors.badQuery(`${name}: ${quoted(segment)} is given in two forms`)
    node = next as Tree
  }
  const leaf = path.at(-1)!
  if (leaf in node) throw errors.badQuery(`${name}: ${quoted(leaf)} is given twice`)
  node[leaf] =
    LIST_OPERATORS.has(leaf) && typeof value === 'string' && !value.startsWith('$') ? splitList(value) : value
}

/** Objects whose keys are `''` or 0, 1, 2, … are lists. */
function toArrays(value: unknown): unknown {
  if (!isObject(value)) return value
  const keys = Object.keys(value)
  const isList = keys.every((key, i) => key === String(i)) || (keys.length === 1 && keys[0] === '')
  if (isList) return keys.flatMap((key) => (key === '' ? toArrays(value[key]) : [toArrays(value[key])]))
  const copy: Tree = Object.create(null)
  for (const key of keys) copy[key] = toArrays(value[key])
  return copy
}

/** JSON text becomes its value where it looks like an object or array; anything else is left alone. 400 if malformed. */
export function readStructure(name: string, value: unknown): unknown {
  if (typeof value !== 'string') return value
  const text = value.trim()
  if (text === '' || text === 'null') return undefined
  if (!text.startsWith('{') && !text.startsWith('[')) return value
  if (text.length > MAX_TEXT) throw errors.badQuery(`${name}: too large or too deep`)
  try {
    return JSON.parse(text)
  } catch (error) {
    throw error instanceof SyntaxError ? errors.badQuery(`${name}: malformed JSON`) : error
  }
}

/** A list of strings in any spelling; undefined when absent or empty text. */
export function readStrings(name: string, value: unknown): readonly string[] | undefined {
  if (value === undefined || value === null) return undefined
  const list = typeof value === 'string' ? readText(name, value) : value
  if (list === undefined) return undefined
  if (!Array.isArray(list)) throw errors.badQuery(`${name}: expected a list of strings`)
  if (list.length > MAX_LIST) throw errors.badQuery(`${name}: too large or too deep`)
  return list.flatMap((entry) => readEntry(name, entry))
}

function readText(name: string, text: string): unknown {
  const value = readStructure(name, text)
  return typeof value === 'string' ? splitList(value) : value
}

/** One member of a repeated key; it may itself be a comma list (`fields=a,b&fields=c`). */
function readEntry(name: string, entry: unknown): string[] {
  if (typeof entry !== 'string') throw errors.badQuery(`${name}: expected a list of strings`)
  guardScalar(name, entry)
  return splitList(entry)
}

const splitList = (text: string): string[] =>
  text
    .split(',')
    .map((part) => part.trim())
    .filter((part) => part !== '')

/** A whole number of at least `least`, as number or digits; 400 for anything else. */
export function readInteger(name: string, value: unknown, least: number): number | undefined {
  if (value === undefined || value === null || value === '') return undefined
  const number = typeof value === 'string' && /^-?\d{1,15}$/.test(value) ? Number(value) : value
  if (typeof number === 'number' && Number.isSafeInteger(number) && number >= least) return number
  throw errors.badQuery(`${name}: expected a whole number of at least ${least}`)
}

export function readBoolean(name: string, value: unknown): boolean | undefined {
  if (value === undefined || value === null || value === '') return undefined
  if (value === true || value === 'true') return true
  if (value === false || value === 'false') return false
  throw errors.badQuery(`${name}: expected true or false`)
}

export function readString(name: string, value: unknown): string | undefined {
  if (value === undefined || value === null) return undefined
  if (typeof value !== 'string') throw errors.badQuery(`${name}: expected a string`)
  guardScalar(name, value)
  return value
}
