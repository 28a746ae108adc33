/**
 * Templates, bare paths and conditions of nodes. Paths only: a name leads to a value's own member and nowhere else, so
 * neither prototypes nor getters nor code can be reached. Pure.
 */

import { readsAsVariable } from '../../../query/variables.ts'

/** The beginnings of paths: `trigger`, `outputs`, `variables`, `loop`, `current`, `error`, `execution`. */
export type TemplateScope = Readonly<Record<string, unknown>>

/** `a.b[0]['c d']` as names; undefined for what is no path. */
export function parsePath(text: string): readonly string[] | undefined {
  const known = paths.get(text)
  if (known !== undefined) return known
  if (text.length > longestPath) return undefined
  const names: string[] = []
  let rest = text.trim()
  while (rest !== '') {
    const match = (names.length === 0 ? first : next).exec(rest)
    if (match === null) return undefined
    const [whole, name, index, single, double] = match
    names.push(name ?? index ?? single ?? double!)
    rest = rest.slice(whole.length)
  }
  if (names.length === 0) return undefined
  if (paths.size >= pathsKept) paths.clear()
  paths.set(text, names)
  return names
}

/** The same few texts are read in every execution. */
const paths = new Map<string, readonly string[]>()
const pathsKept = 5000
const longestPath = 1000
const first = /^([\p{L}_$][\p{L}\p{N}_$-]*)/u
const next = /^(?:\.([\p{L}\p{N}_$][\p{L}\p{N}_$-]*)|\[(\d+)\]|\['([^'\]]*)'\]|\["([^"\]]*)"\])/u

/** The value at a path; undefined where there is none. Only own members are followed. */
export function valueAt(root: unknown, names: readonly string[]): unknown {
  let value = root
  for (const name of names) {
    if (value === null || typeof value !== 'object' || !Object.hasOwn(value, name)) return undefined
    value = (value as Record<string, unknown>)[name]
  }
  return value
}

/** How much one node may make of templates and compare, in characters of JSON; what it takes is subtracted. */
export type ExpansionRoom = { text: number; compared: number }

const mostText = 4_000_000
const mostCompared = 50_000_000

export const openRoom = (): ExpansionRoom => ({ text: mostText, compared: mostCompared })

/** How much of a room was taken. */
export const takenOf = ({ text, compared }: ExpansionRoom): number => mostText - text + mostCompared - compared

/** Characters of a value as JSON, more or less; stops counting beyond `most`. */
export function jsonSize(value: unknown, most: number): number {
  let size = 0
  const left: unknown[] = [value]
  while (left.length > 0 && size <= most) {
    const one = left.pop()
    if (typeof one === 'string') size += one.length + 2
    else if (one === null || typeof one !== 'object') size += 6
    else {
      size += 2
      for (const [name, inner] of Object.entries(one)) {
        if (!Array.isArray(one)) size += name.length + 4
        left.push(inner)
        if (size + left.length > most) return most + 1
      }
    }
  }
  return size
}

const whole = /^\s*\{\{([^{}]*)\}\}\s*$/
const template = /\{\{([^{}]*)\}\}/g

/**
 * Replaces the templates in a value, in objects and arrays as deep as they go. A text that is one template becomes the
 * named value, of its type; within other text a template becomes text. A template that names nothing stays as it is
 * written.
 *
 * @throws {TypeError} where the result would exceed the room: a few templates can multiply a large value
 */
export function resolve(value: unknown, scope: TemplateScope, room = openRoom()): unknown {
  if (typeof value === 'string') return resolveText(value, scope, room)
  if (Array.isArray(value)) return value.map((one) => resolve(one, scope, room))
  if (value === null || typeof value !== 'object') return value
  return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, resolve(one, scope, room)]))
}

function take(room: ExpansionRoom, what: keyof ExpansionRoom, size: number): void {
  room[what] -= size
  if (room[what] < 0)
    throw new TypeError(
      what === 'text'
        ? `Its templates make more than ${mostText} characters`
        : `It compares more than ${mostCompared} characters`,
    )
}

function resolveText(text: string, scope: TemplateScope, room: ExpansionRoom): unknown {
  if (!text.includes('{{')) return text
  const only = whole.exec(text)
  if (only !== null) {
    const value = lookUp(only[1]!, scope)
    if (value === undefined) return text
    take(room, 'text', jsonSize(value, room.text))
    return value
  }
  return fillIn(text, scope, room, textOf)
}

function fillIn(text: string, scope: TemplateScope, room: ExpansionRoom, write: (value: unknown) => string): string {
  return text.replace(template, (written, path: string) => {
    const value = lookUp(path, scope)
    if (value === undefined) return written
    take(room, 'text', jsonSize(value, room.text))
    return write(value)
  })
}

/** A text for people with every template replaced by what `write` makes of it, also where it is the whole; null is empty there. */
export function fill(
  text: string,
  scope: TemplateScope,
  write: (text: string) => string = (one) => one,
  room = openRoom(),
): string {
  return fillIn(text, scope, room, (value) => (value === null ? '' : write(textOf(value))))
}

/** Paths of the templates in a text that name nothing, which stay in it as they are written. */
export const unfilledIn = (text: string, scope: TemplateScope): readonly string[] => [
  ...new Set(pathsIn(text).filter((path) => lookUp(path, scope) === undefined)),
]

/**
 * The filter of a query with its templates replaced. A template that is the whole filter may become any; everywhere else it
 * stands for a value, so that what a caller sends becomes neither an operator nor a variable of the query.
 *
 * @throws {TypeError} where a template names nothing or stands for no value, with its place in the filter
 */
export function resolveFilter(given: unknown, scope: TemplateScope, room = openRoom()): unknown {
  if (typeof given !== 'string') return filterValues(given, ['filter'], scope, room)
  if (!given.includes('{{') || whole.test(given)) return resolveText(given, scope, room)
  return filterValues(filterOfText(given), ['filter'], scope, room)
}

/** Read before its templates are replaced: a value cannot end the text that it stands in. */
function filterOfText(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    throw new TypeError('filter is no JSON: its templates must stand in texts')
  }
}

function filterValues(value: unknown, place: readonly string[], scope: TemplateScope, room: ExpansionRoom): unknown {
  if (typeof value === 'string') return filterValue(value, place, scope, room)
  if (Array.isArray(value)) return value.map((one, i) => filterValues(one, [...place, String(i)], scope, room))
  if (value === null || typeof value !== 'object') return value
  return Object.fromEntries(
    Object.entries(value).map(([name, one]) => [name, filterValues(one, [...place, name], scope, room)]),
  )
}

function filterValue(text: string, place: readonly string[], scope: TemplateScope, room: ExpansionRoom): unknown {
  if (!text.includes('{{')) return text
  const at = place.join('.')
  const missing = pathsIn(text).find((path) => lookUp(path, scope) === undefined)
  if (missing !== undefined) throw new TypeError(`${at}: {{${missing}}} names nothing`)
  const value = resolveText(text, scope, room)
  if (value === null && place.at(-1) === 'eq') return value
  if (value === null) throw new TypeError(`${at}: ${text.trim()} is null, which only eq compares with`)
  const given = Array.isArray(value) ? value : [value]
  if (given.some((one) => one === null || typeof one === 'object'))
    throw new TypeError(`${at}: ${text.trim()} is neither a value nor a list of values`)
  const isOfAuthor = readsAsVariable(text.slice(0, text.indexOf('{{')))
  if (!isOfAuthor && given.some((one) => typeof one === 'string' && readsAsVariable(one)))
    throw new TypeError(`${at}: ${text.trim()} is a variable of the query, which no data may name`)
  return value
}

function lookUp(path: string, scope: TemplateScope): unknown {
  const names = parsePath(path.trim())
  return names === undefined ? undefined : valueAt(scope, names)
}

export const textOf = (value: unknown): string => (typeof value === 'string' ? value : JSON.stringify(value))

/** A field that is a template or a bare path. A path that names nothing is undefined; other values stay unchanged. */
export function evaluate(given: unknown, scope: TemplateScope, room = openRoom()): unknown {
  if (typeof given !== 'string') return resolve(given, scope, room)
  if (!given.includes('{{')) {
    const names = parsePath(given)
    return names === undefined ? undefined : valueAt(scope, names)
  }
  const value = resolveText(given, scope, room)
  return value === given ? undefined : value
}

/** Paths that the templates of a value name, as written. */
export function pathsIn(value: unknown): readonly string[] {
  if (typeof value === 'string') return [...value.matchAll(template)].map(([, path]) => path!.trim())
  if (value === null || typeof value !== 'object') return []
  return Object.values(value).flatMap(pathsIn)
}

/** Sets the value at a path of a new object, making what is missing on the way. Throws for names of prototypes. */
export function setAt(target: Record<string, unknown>, names: readonly string[], value: unknown): void {
  let at = target
  for (const [i, name] of names.entries()) {
    if (name === '__proto__' || name === 'constructor' || name === 'prototype')
      throw new TypeError(`${name} cannot be set`)
    if (i === names.length - 1) at[name] = value
    else {
      const inner = Object.hasOwn(at, name) ? at[name] : undefined
      if (inner === null || typeof inner !== 'object') at[name] = {}
      at = at[name] as Record<string, unknown>
    }
  }
}

/** One condition of a `condition` or `filter` node. */
export type Condition = { readonly field?: unknown; readonly operator?: unknown; readonly value?: unknown }

/** Whether all (`AND`) or one (`OR`) of the conditions hold; without conditions it is true. */
export function meets(
  conditions: readonly Condition[],
  operator: unknown,
  values: (condition: Condition) => { readonly left: unknown; readonly right: unknown },
  room = openRoom(),
): boolean {
  const holds = (condition: Condition) => {
    const { left, right } = values(condition)
    take(room, 'compared', jsonSize(left, room.compared) + jsonSize(right, room.compared))
    const name = synonyms[String(condition.operator)] ?? String(condition.operator)
    return Object.hasOwn(operators, name) && operators[name]!(left, right)
  }
  return operator === 'OR' && conditions.length > 0 ? conditions.some(holds) : conditions.every(holds)
}

const synonyms: Readonly<Record<string, string>> = Object.assign(Object.create(null), {
  '==': 'equals',
  '!=': 'not_equals',
  '>': 'greater_than',
  '<': 'less_than',
  '>=': 'greater_or_equal',
  '<=': 'less_or_equal',
})

type ConditionOperator = (left: unknown, right: unknown) => boolean

const operators: Readonly<Record<string, ConditionOperator>> = {
  equals: same,
  not_equals: (left, right) => !same(left, right),
  greater_than: (left, right) => compare(left, right) > 0,
  less_than: (left, right) => compare(left, right) < 0,
  greater_or_equal: (left, right) => compare(left, right) >= 0,
  less_or_equal: (left, right) => compare(left, right) <= 0,
  contains,
  not_contains: (left, right) => !contains(left, right),
  starts_with: (left, right) => left != null && textOf(left).startsWith(textOf(right ?? '')),
  ends_with: (left, right) => left != null && textOf(left).endsWith(textOf(right ?? '')),
  is_empty: isEmpty,
  is_not_empty: (left) => !isEmpty(left),
  in: isIn,
  not_in: (left, right) => !isIn(left, right),
}

export const isOperator = (name: unknown): boolean =>
  typeof name === 'string' && Object.hasOwn(operators, synonyms[name] ?? name)

/** Numbers and texts of numbers are the same by value, however many digits they have; so is what is missing and null. */
function same(left: unknown, right: unknown): boolean {
  if (left === right || (left == null && right == null)) return true
  if (left == null || right == null) return false
  if (typeof left === 'object' || typeof right === 'object') return JSON.stringify(left) === JSON.stringify(right)
  return digitsOf(left) === digitsOf(right)
}

/** A number without the zeros that do not count, such as those of a Decimal's scale; any other value as its text. */
function digitsOf(value: unknown): string {
  const text = String(value)
  const [, sign, whole, fraction = ''] = /^(-?)(0|[1-9]\d*)(?:\.(\d+))?$/.exec(text) ?? []
  if (whole === undefined) return text
  const decimals = fraction.replace(/0+$/, '')
  const digits = decimals === '' ? whole : `${whole}.${decimals}`
  return digits === '0' ? digits : `${sign}${digits}`
}

/** NaN where the two cannot be compared, which no comparison holds for. */
function compare(left: unknown, right: unknown): number {
  if (left == null || right == null || left === '' || right === '') return Number.NaN
  const [a, b] = [Number(left), Number(right)]
  if (!Number.isNaN(a) && !Number.isNaN(b)) return a - b
  if (typeof left !== 'string' || typeof right !== 'string') return Number.NaN
  if (left === right) return 0
  return left < right ? -1 : 1
}

function contains(left: unknown, right: unknown): boolean {
  if (Array.isArray(left)) return left.some((one) => same(one, right))
  return left != null && right != null && textOf(left).includes(textOf(right))
}

function isEmpty(value: unknown): boolean {
  if (value == null || value === '') return true
  return typeof value === 'object' && Object.keys(value).length === 0
}

function isIn(left: unknown, right: unknown): boolean {
  const list = Array.isArray(right) ? right : typeof right === 'string' ? right.split(',').map((one) => one.trim()) : []
  return list.some((one) => same(left, one))
}
