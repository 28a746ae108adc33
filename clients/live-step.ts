/*
 * The view of a live query, computed from its inputs: the server's rows, and above them the writes of this client that
 * the server has not confirmed yet.
 */

import type { RowFacts } from './realtime-types.ts'

export type LiveRow = Readonly<Record<string, unknown>>

/** A write that is shown before it is known to have happened. */
export type Pending = {
  readonly write: number
  readonly key: string
  /** Undefined: the row is deleted. */
  readonly row: LiveRow | undefined
  /** It makes the row; without this it changes a row that is there, and is not seen where there is none. */
  readonly isNew: boolean
  /**
   * `sent`: nothing is known of it. `told`: the server has told of its row, and not answered yet. `done`: it has answered, and not
   * told of the row yet. `asked`: since then it was asked for all that there is to tell.
   */
  readonly phase: 'sent' | 'told' | 'done' | 'asked'
}

export type LiveState = {
  /** By key, as the server has told them. */
  readonly rows: ReadonlyMap<string, LiveRow>
  readonly pending: readonly Pending[]
}

export type LiveInput =
  | { readonly kind: 'snapshot'; readonly rows: readonly LiveRow[] }
  | { readonly kind: 'changed'; readonly row: LiveRow }
  | { readonly kind: 'removed'; readonly key: string }
  | ({ readonly kind: 'wrote' } & Pick<Pending, 'write' | 'key' | 'row' | 'isNew'>)
  /** `row`: as it was written, where the server has made its key. */
  | { readonly kind: 'done'; readonly write: number; readonly row?: LiveRow | undefined }
  | { readonly kind: 'failed'; readonly write: number }
  /** The server is asked for everything until now. */
  | { readonly kind: 'asked' }
  /** It has told everything until then. */
  | { readonly kind: 'caught up' }

export const noRows: LiveState = { rows: new Map(), pending: [] }

/** Rows are told by their primary key. */
export type KeyOf = (row: LiveRow) => string

export function stepLive(state: LiveState, input: LiveInput, keyOf: KeyOf): LiveState {
  switch (input.kind) {
    case 'snapshot':
      return {
        rows: new Map(input.rows.map((row) => [keyOf(row), row])),
        pending: state.pending.filter(({ phase }) => !isAnswered(phase)),
      }
    case 'changed': {
      const key = keyOf(input.row)
      return { rows: new Map(state.rows).set(key, input.row), pending: afterWord(state.pending, key) }
    }
    case 'removed': {
      const rows = new Map(state.rows)
      rows.delete(input.key)
      return { rows, pending: afterWord(state.pending, input.key) }
    }
    case 'wrote': {
      const { write, key, row, isNew } = input
      return { ...state, pending: [...state.pending, { write, key, row, isNew, phase: 'sent' }] }
    }
    case 'done':
      return { ...state, pending: afterAnswer(state, input, keyOf) }
    case 'failed':
      return { ...state, pending: state.pending.filter(({ write }) => write !== input.write) }
    case 'asked': {
      const asked = (one: Pending): Pending => (one.phase === 'done' ? { ...one, phase: 'asked' } : one)
      return { ...state, pending: state.pending.map(asked) }
    }
    case 'caught up':
      // A row outside the query, or a write that changed nothing: the server has no word about it.
      return { ...state, pending: state.pending.filter(({ phase }) => phase !== 'asked') }
  }
}

/** Whether a write is shown that the server has done and not told of. */
export const awaitsWord = ({ pending }: LiveState): boolean => pending.some(({ phase }) => phase === 'done')

const isAnswered = (phase: Pending['phase']): boolean => phase === 'done' || phase === 'asked'

/**
 * The server has told of a row: each of its messages is taken for that about the oldest write it has not told of. It may be
 * about another's change; then the write is shown a moment too short, but nothing stays above the server's rows.
 */
function afterWord(pending: readonly Pending[], key: string): readonly Pending[] {
  const meant = pending.find((one) => one.key === key && one.phase !== 'told')
  if (meant === undefined) return pending
  if (isAnswered(meant.phase)) return pending.filter((one) => one !== meant)
  return pending.map((one) => (one === meant ? { ...one, phase: 'told' } : one))
}

/** Socket and answer race: a write that the server was faster to tell of is over with its answer. */
function afterAnswer(
  { rows, pending }: LiveState,
  { write, row }: Extract<LiveInput, { kind: 'done' }>,
  keyOf: KeyOf,
): readonly Pending[] {
  const made = row && { key: keyOf(row), row }
  const shownAs = pending.find((one) => one.write === write)?.key
  const isTold = ({ phase }: Pending) => phase === 'told' || (made !== undefined && rows.has(made.key))
  return pending.flatMap((one): readonly Pending[] => {
    // Writes that wait for this one are about the same row.
    if (one.write !== write) return [made !== undefined && one.key === shownAs ? { ...one, key: made.key } : one]
    return isTold(one) ? [] : [{ ...one, ...made, phase: 'done' }]
  })
}

/** How the values of a field are compared; where nothing is said, texts by code points, and others by `<`. */
type Comparison = 'number' | 'caseless' | 'date' | 'time' | undefined

export type Order = readonly {
  readonly field: string
  readonly descending: boolean
  readonly as: Comparison
}[]

/** The rows to show, in order. */
export function viewOf({ rows, pending }: LiveState, order: Order, limit: number | undefined): readonly LiveRow[] {
  const shown = new Map(rows)
  for (const { key, row, isNew } of pending)
    if (row === undefined) shown.delete(key)
    else if (isNew || shown.has(key)) shown.set(key, { ...shown.get(key), ...row })
  const sorted = order.length === 0 ? [...shown.values()] : [...shown.values()].sort((a, b) => compareRows(a, b, order))
  return limit === undefined || limit < 0 ? sorted : sorted.slice(0, limit)
}

function compareRows(a: LiveRow, b: LiveRow, order: Order): number {
  for (const { field, descending, as } of order) {
    const compared = compare(a[field], b[field], as)
    if (compared !== 0) return descending ? -compared : compared
  }
  return 0
}

/** As the server compares: nulls come last. */
function compare(a: unknown, b: unknown, as: Comparison): number {
  const [isNoA, isNoB] = [a === null || a === undefined, b === null || b === undefined]
  if (isNoA || isNoB) return Number(isNoA) - Number(isNoB)
  if (as === 'number') return compareNumbers(String(a), String(b))
  if (typeof a !== 'string' || typeof b !== 'string') return before(a as number, b as number)
  if (as === 'caseless') return compareText(smallOf(a), smallOf(b))
  if (as === 'date') return before(yearOf(a), yearOf(b)) || compareText(a, b)
  return as === 'time' ? compareTimes(a, b) : compareText(a, b)
}

/** The server gives each code point one small letter; for these two JavaScript looks at their neighbours, or makes two of one. */
const smallOf = (text: string): string => text.replaceAll('Σ', 'σ').replaceAll('İ', 'i').toLowerCase()

/** It has four digits or more, ` BC` after its date, and none in `infinity` and `-infinity`. */
function yearOf(text: string): number {
  const year = Number.parseInt(text, 10)
  if (Number.isNaN(year)) return text.startsWith('-') ? -Infinity : Infinity
  return text.endsWith('BC') ? -year : year
}

const before = <T>(a: T, b: T): number => (a === b ? 0 : a < b ? -1 : 1)

/** By code points. The halves of those beyond 65,535 are less than some that are not so great. */
export function compareText(a: string, b: string): number {
  const length = Math.min(a.length, b.length)
  let at = 0
  while (at < length && a.charCodeAt(at) === b.charCodeAt(at)) at += 1
  return at === length ? a.length - b.length : rank(a.charCodeAt(at)) - rank(b.charCodeAt(at))
}

const rank = (unit: number): number => (unit >= 0xd800 && unit < 0xe000 ? unit + 0x10000 : unit)

/** Times with a zone: by the moment, and of one moment the one from further east first. */
function compareTimes(a: string, b: string): number {
  const [one, other] = [momentOf(a), momentOf(b)]
  return before(one.at, other.at) || before(other.east, one.east)
}

function momentOf(text: string): { readonly at: number; readonly east: number } {
  const [, hours = 0, minutes = 0, seconds = 0, sign, ...zone] =
    /^(\d+):(\d+)(?::([\d.]+))?(?:([+-])(\d+)(?::(\d+))?(?::(\d+))?)?/.exec(text) ?? []
  const [h, m, s] = zone.map((part) => Number(part ?? 0)) as [number, number, number]
  const east = sign === undefined ? 0 : (sign === '-' ? -1 : 1) * ((h * 60 + m) * 60 + s)
  const local = (Number(hours) * 60 + Number(minutes)) * 60 + Number(seconds)
  return { at: Math.round((local - east) * 1e6), east }
}

/** Exact for decimals of any length; NaN is the greatest, as the server has it. */
function compareNumbers(a: string, b: string): number {
  const [one, other] = [a, b].map((text) => /^(-?\d+)(?:\.(\d*))?$/.exec(text))
  if (one && other) {
    const places = Math.max(one[2]?.length ?? 0, other[2]?.length ?? 0)
    const scaled = ([, whole, fraction = '']: RegExpExecArray) => BigInt(`${whole}${fraction.padEnd(places, '0')}`)
    return before(scaled(one), scaled(other))
  }
  const [x, y] = [Number(a), Number(b)]
  return Number.isNaN(x) || Number.isNaN(y) ? Number(Number.isNaN(x)) - Number(Number.isNaN(y)) : before(x, y)
}

/** The names in a sort, in their order. */
export const sortedBy = (sort: readonly string[]): readonly string[] => sort.map((one) => one.replace(/^-/, ''))

/**
 * `name`, `-name`. `numbers`: the fields whose texts are numbers; `orders`: how others are compared. `key` decides between
 * rows that are equal otherwise, in the direction of the last one.
 */
export function orderOf(
  sort: readonly string[],
  numbers: readonly string[] = [],
  { orders, key }: Pick<RowFacts, 'orders' | 'key'> = {},
): Order {
  const all = key === undefined ? sort : [...sort, `${sort.at(-1)?.startsWith('-') ? '-' : ''}${key}`]
  const names = sortedBy(all)
  return names.map((field, at) => {
    const said = orders?.[field]
    const as = numbers.includes(field) ? 'number' : said === 'none' ? undefined : said
    return { field, descending: all[at]!.startsWith('-'), as }
  })
}
