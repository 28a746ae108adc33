/*
 * The view of a live query, computed from its inputs: the server's rows, and above them the writes of this client that
 * the server has not confirmed yet.
 */

export type LiveRow = Readonly<Record<string, unknown>>

/** A write that is shown before it is known to have happened. */
export type Pending = {
  readonly write: number
  readonly key: string
  /** Undefined: the row is deleted. */
  readonly row: LiveRow | undefined
  /** The server has done it; its own message about it is still to come. */
  readonly isDone: boolean
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
  | { readonly kind: 'wrote'; readonly write: number; readonly key: string; readonly row: LiveRow | undefined }
  /** `row`: as it was written, where the server has made its key. */
  | { readonly kind: 'done'; readonly write: number; readonly row?: LiveRow | undefined }
  | { readonly kind: 'failed'; readonly write: number }

export const noRows: LiveState = { rows: new Map(), pending: [] }

/** Rows are told by their primary key. */
export type KeyOf = (row: LiveRow) => string

export function stepLive(state: LiveState, input: LiveInput, keyOf: KeyOf): LiveState {
  switch (input.kind) {
    case 'snapshot':
      return {
        rows: new Map(input.rows.map((row) => [keyOf(row), row])),
        pending: state.pending.filter(({ isDone }) => !isDone),
      }
    case 'changed': {
      const key = keyOf(input.row)
      return { rows: new Map(state.rows).set(key, input.row), pending: withoutDone(state.pending, key) }
    }
    case 'removed': {
      const rows = new Map(state.rows)
      rows.delete(input.key)
      return { rows, pending: withoutDone(state.pending, input.key) }
    }
    case 'wrote': {
      const { write, key, row } = input
      return { ...state, pending: [...state.pending, { write, key, row, isDone: false }] }
    }
    case 'done': {
      const { write, row } = input
      const told = row && { key: keyOf(row), row }
      // The server was faster to tell of the row than to answer.
      if (told && state.rows.has(told.key)) return stepLive(state, { kind: 'failed', write }, keyOf)
      const pending = state.pending.map((one) => (one.write === write ? { ...one, ...told, isDone: true } : one))
      return { ...state, pending }
    }
    case 'failed':
      return { ...state, pending: state.pending.filter(({ write }) => write !== input.write) }
  }
}

/** The server has told of the row what these writes had shown before. */
const withoutDone = (pending: readonly Pending[], key: string): readonly Pending[] =>
  pending.filter((one) => one.key !== key || !one.isDone)

export type Order = readonly { readonly field: string; readonly descending: boolean }[]

/** The rows to show, in order. */
export function viewOf({ rows, pending }: LiveState, order: Order, limit: number | undefined): readonly LiveRow[] {
  const shown = new Map(rows)
  for (const { key, row } of pending)
    if (row === undefined) shown.delete(key)
    else shown.set(key, { ...shown.get(key), ...row })
  const sorted = order.length === 0 ? [...shown.values()] : [...shown.values()].sort((a, b) => compareRows(a, b, order))
  return limit === undefined || limit < 0 ? sorted : sorted.slice(0, limit)
}

function compareRows(a: LiveRow, b: LiveRow, order: Order): number {
  for (const { field, descending } of order) {
    const compared = compare(a[field], b[field])
    if (compared !== 0) return descending ? -compared : compared
  }
  return 0
}

/** Nulls come last, as the server has them; text is compared as people read it. */
function compare(a: unknown, b: unknown): number {
  const [isNoA, isNoB] = [a === null || a === undefined, b === null || b === undefined]
  if (isNoA || isNoB) return Number(isNoA) - Number(isNoB)
  if (typeof a === 'string' && typeof b === 'string') return a.localeCompare(b)
  return a === b ? 0 : (a as number) < (b as number) ? -1 : 1
}

/** `name`, `-name`. */
export const orderOf = (sort: readonly string[]): Order =>
  sort.map((one) =>
    one.startsWith('-') ? { field: one.slice(1), descending: true } : { field: one, descending: false },
  )
