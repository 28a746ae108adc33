import { DaybookError, type Http } from './http.ts'
import { openItems } from './items.ts'
import {
  awaitsWord,
  type LiveInput,
  type LiveRow,
  type LiveState,
  noRows,
  orderOf,
  type Pending,
  sortedBy,
  stepLive,
  viewOf,
} from './live-step.ts'
import { type Realtime, RealtimeError, type RowFacts, type SubscriptionHandle } from './realtime-types.ts'
import type { Filter, Key, Name, Nested, Row, SchemaType } from './schema.ts'
import type { WriteQueue } from './write-queue.ts'

/** Names of own fields, or `*` for all. */
export type LiveFields<S extends SchemaType, C extends Name<S>> = readonly ('*' | (keyof Row<S, C> & string))[]

export type LiveQuery<S extends SchemaType, C extends Name<S>, F extends LiveFields<S, C> = LiveFields<S, C>> = {
  readonly collection: C
  /** Own fields of the collection; all unless given. The key comes always. */
  readonly fields?: F
  readonly filter?: Filter<S, C>
  readonly sort?: readonly ((keyof Row<S, C> & string) | `-${keyof Row<S, C> & string}`)[]
  /** How many are shown, after sorting; all that match are kept. */
  readonly limit?: number
  /** The primary key. The server tells it; a row that is created before that shows at once only where it is given. */
  readonly key?: keyof Row<S, C> & string
}

/**
 * `loading`: nothing is known yet. `kept`: the rows are those of the last time, and the server has not answered yet. `live`: they
 * are the server's. `broken`: they were, and the connection is being made again. `ended`: they will not change any more.
 */
export type LiveStatus = 'loading' | 'kept' | 'live' | 'broken' | 'ended'

/** The present view: another object whenever it changes. */
export type LiveView<R> = {
  readonly rows: readonly R[]
  readonly status: LiveStatus
  readonly error: RealtimeError | DaybookError | undefined
}

export type Live<S extends SchemaType, C extends Name<S>, F extends LiveFields<S, C> = ['*']> = {
  readonly view: LiveView<Nested<S, C, F[number]>>
  /** Called after each change of the view. Gives what ends it. */
  subscribe(listener: () => void): () => void
  /** Shown at once, and taken back where the server refuses. */
  create(row: S[C]['create']): Promise<Key<S, C>>
  update(id: Key<S, C>, change: S[C]['update']): Promise<void>
  delete(id: Key<S, C>): Promise<void>
  /** Nobody looks any more: the rows are kept for the next time. */
  close(): void
}

/** What was read for a session goes with it: nothing of it is shown and kept any more. */
export type OfSession = {
  /** For good, with what the session has against it. */
  end(error: RealtimeError): void
  /** For another user, or at another tenant: on another connection, with nothing of what it had. */
  beginAnew(): void
}

/** The stored part of a live query between two visits. */
export type KeptRows = { readonly rows: readonly LiveRow[]; readonly cursor: string } & RowFacts

export type RowStore = {
  load(name: string): Promise<KeptRows | undefined>
  save(name: string, kept: KeptRows): Promise<void>
  remove(name: string): Promise<void>
}

export type LiveOptions = {
  readonly http: Http
  /** A connection on which the collection is not followed yet. */
  readonly connect: (collection: string) => Realtime
  /** Undefined where nothing is kept. */
  readonly store: RowStore | undefined
  /** The owner of the rows, so that nobody sees another's; undefined: none are kept. */
  readonly owner: () => Promise<string | undefined>
  /** That of the collection now. */
  readonly queue: () => WriteQueue
  readonly onClose: () => void
}

const saveAfterMs = 200

/** The server tells of a write within this time, or is asked whether it has more to tell. */
const askAfterMs = 1000

/** Rows that stay true: from what was kept at once, then from the server, change by change, each once over all breaks. */
export function openLive<S extends SchemaType, C extends Name<S>, F extends LiveFields<S, C> = ['*']>(
  query: LiveQuery<S, C, F>,
  options: LiveOptions,
): Live<S, C, F> & OfSession {
  const listeners = new Set<() => void>()
  const begin = () => new LiveRows(query as unknown as LiveQuery<SchemaType, string>, options, listeners)
  let live = begin()
  const items = openItems<S, C>(options.http, query.collection)
  return {
    get view() {
      return live.view as LiveView<Nested<S, C, F[number]>>
    },
    subscribe(listener) {
      listeners.add(listener)
      return () => void listeners.delete(listener)
    },
    create: (row) => live.create(row as LiveRow, (full) => items.create(full as S[C]['create'])),
    update: (id, change) =>
      live.write({ key: id, row: change as LiveRow, isNew: false }, (key) => items.update(key as Key<S, C>, change)),
    delete: (id) => live.write({ key: id, row: undefined, isNew: false }, (key) => items.delete(key as Key<S, C>)),
    close: () => live.close(),
    end: (error) => live.end(error),
    beginAnew() {
      live.stop()
      live = begin()
      for (const listener of [...listeners]) listener()
    },
  }
}

class LiveRows {
  readonly #query: LiveQuery<SchemaType, string>
  readonly #options: LiveOptions
  readonly #listeners: Set<() => void>
  #state: LiveState = noRows
  #view: LiveView<LiveRow> = { rows: [], status: 'loading', error: undefined }
  #handle: SubscriptionHandle | undefined
  #name: string | undefined
  #saving: ReturnType<typeof setTimeout> | undefined
  #asking: ReturnType<typeof setTimeout> | undefined
  #facts: RowFacts = {}
  #lastWrite = 0
  #isClosed = false
  /** Until the server refuses one: its keys are numbers, which it makes itself. */
  #takesMadeKeys = true

  readonly #asked: readonly string[] | undefined
  /** What is asked for only to sort by it. */
  readonly #hidden: ReadonlySet<string>
  readonly #shown = new WeakMap<LiveRow, LiveRow>()

  constructor(query: LiveQuery<SchemaType, string>, options: LiveOptions, listeners: Set<() => void>) {
    this.#query = query
    this.#listeners = listeners
    const { sort = [] } = query
    const fields: readonly string[] | undefined = query.fields
    this.#asked = sort.length === 0 ? fields : [...new Set([...(fields ?? ['*']), ...sortedBy(sort)])]
    const isOpen = fields === undefined || fields.some((name) => name === '*' || name.startsWith('-'))
    this.#hidden = new Set(isOpen ? [] : sortedBy(sort).filter((name) => !fields.includes(name)))
    this.#options = options
    void this.#begin()
  }

  get view(): LiveView<LiveRow> {
    return this.#view
  }

  /** With a key made here, under which the server tells of the row; it is not sent where keys are of another kind. */
  create<Made>(row: LiveRow, send: (row: LiveRow) => Promise<Made>): Promise<Made> {
    const field = this.#facts.key ?? this.#query.key
    if (field === undefined) return send(row)
    if (row[field] !== undefined) return this.write({ key: row[field], row, isNew: true }, () => send(row))
    const full = { ...row, [field]: crypto.randomUUID() }
    const attempt = async () => {
      if (this.#takesMadeKeys)
        try {
          return await send(full)
        } catch (error) {
          if (!refusesKind(error, field)) throw error
          this.#takesMadeKeys = false
        }
      return send(row)
    }
    const written = (made: Made) => ({ ...row, [field]: made })
    return this.write({ key: full[field], row: full, isNew: true }, attempt, written)
  }

  async write<Result>(
    { key, row, isNew }: Pick<Pending, 'row' | 'isNew'> & { readonly key: unknown },
    send: (key: unknown) => Promise<Result>,
    written?: (result: Result) => LiveRow,
  ): Promise<Result> {
    const queue = this.#options.queue()
    this.#lastWrite += 1
    const write = this.#lastWrite
    this.#apply({ kind: 'wrote', write, key: String(queue.keyOf(key)), row, isNew })
    try {
      const result = await queue.inTurn({ key, isNew }, send)
      this.#apply({ kind: 'done', write, row: written?.(result) })
      this.#askSoon()
      return result
    } catch (error) {
      this.#apply({ kind: 'failed', write })
      throw error
    }
  }

  close(): void {
    if (this.#isClosed) return
    this.#save()
    this.stop()
    this.#options.onClose()
    this.#listeners.clear()
  }

  end(error: RealtimeError): void {
    if (this.#isClosed) return
    this.#name = undefined
    this.stop()
    this.#options.onClose()
    this.#state = noRows
    this.#show({ status: 'ended', error })
  }

  stop(): void {
    this.#isClosed = true
    clearTimeout(this.#asking)
    clearTimeout(this.#saving)
    this.#handle?.unsubscribe()
  }

  async #begin(): Promise<void> {
    const { collection, filter } = this.#query
    const kept = await this.#load()
    if (this.#isClosed) return
    if (kept !== undefined) {
      this.#facts = { key: kept.key, numbers: kept.numbers, orders: kept.orders }
      this.#state = stepLive(this.#state, { kind: 'snapshot', rows: kept.rows }, this.#keyOf)
      this.#show({ status: 'kept' })
    }
    const removed = (row: LiveRow) => this.#apply({ kind: 'removed', key: this.#keyOf(row) }, 'live')
    this.#handle = this.#options.connect(collection).subscribe<LiveRow>(collection, {
      snapshot: true,
      ...(kept && { since: kept.cursor }),
      ...(filter && { filter }),
      ...(this.#asked && { fields: this.#asked }),
      onSnapshot: (rows, facts) => {
        refuseSort(this.#query, facts)
        this.#facts = facts
        this.#apply({ kind: 'snapshot', rows }, 'live')
      },
      onChange: ({ data }) => this.#apply({ kind: 'changed', row: data }, 'live'),
      onRemove: ({ data }) => removed(data),
      onError: (error) => this.#failed(error),
      onBegun: () => {
        this.#apply({ kind: 'caught up' }, 'live')
        this.#askSoon()
      },
    })
  }

  #failed(error: RealtimeError): void {
    if (!error.final) {
      this.#show({ status: 'broken', error })
      return
    }
    // Nobody says any more whether it may be read, or whether it is true.
    const name = this.#name
    this.end(error)
    if (name !== undefined) void this.#options.store?.remove(name).catch(() => undefined)
  }

  /**
   * The server has no word about a write that leads out of the query, or changes nothing. What it tells after it was asked
   * is all that there is, so that such a write is not shown for ever.
   */
  #askSoon(): void {
    if (this.#isClosed || !awaitsWord(this.#state)) return
    this.#asking ??= setTimeout(() => {
      this.#asking = undefined
      // Without a cursor the rows themselves are on their way, and after them this is called again.
      if (this.#handle?.cursor === undefined || !awaitsWord(this.#state)) return
      this.#apply({ kind: 'asked' })
      this.#handle.catchUp()
    }, askAfterMs)
  }

  /** One row has one form, so that what draws it can tell that it is the same. */
  #visible = (row: LiveRow): LiveRow => {
    const key = this.#facts.key ?? this.#query.key ?? 'id'
    const isVisible = ([name]: [string, unknown]) => name === key || !this.#hidden.has(name)
    const shown = this.#shown.get(row) ?? Object.fromEntries(Object.entries(row).filter(isVisible))
    this.#shown.set(row, shown)
    return shown
  }

  #keyOf = (row: LiveRow): string => {
    const { collection, key: given = 'id' } = this.#query
    const key = this.#facts.key ?? given
    if (row[key] !== undefined) return String(row[key])
    throw new RealtimeError(`The rows of ${collection} have no ${key}: give the name of their primary key as key`, {
      final: true,
    })
  }

  #apply(input: LiveInput, status: LiveStatus = this.#view.status): void {
    if (this.#isClosed) return
    this.#state = stepLive(this.#state, input, this.#keyOf)
    this.#show({ status, ...(status === 'live' && { error: undefined }) })
    if (input.kind === 'snapshot' || input.kind === 'changed' || input.kind === 'removed') this.#saveSoon()
  }

  #show(change: Partial<LiveView<LiveRow>>): void {
    const { sort = [], limit, key: given = 'id' } = this.#query
    const { key = given, numbers, orders } = this.#facts
    const rows = viewOf(this.#state, orderOf(sort, numbers, { key, orders }), limit)
    this.#view = { ...this.#view, ...change, rows: this.#hidden.size === 0 ? rows : rows.map(this.#visible) }
    for (const listener of [...this.#listeners]) listener()
  }

  async #load(): Promise<KeptRows | undefined> {
    const { store, owner } = this.#options
    if (store === undefined) return undefined
    const { collection, filter } = this.#query
    // Without an owner nothing is kept. What is wrong with the session, the connection finds out as well.
    const whose = await owner().catch(() => undefined)
    if (whose === undefined) return undefined
    this.#name = JSON.stringify([whose, collection, filter ?? null, this.#asked ?? null])
    // Rows that cannot be read from the store, or not be told apart, are fetched.
    const kept = await store.load(this.#name).catch(() => undefined)
    return kept?.key === undefined || hasNoOrder(this.#query, kept) !== undefined ? undefined : kept
  }

  #saveSoon(): void {
    this.#saving ??= setTimeout(() => this.#save(), saveAfterMs)
  }

  /** Rows and cursor of one moment: together they are true, apart they are not. */
  #save(): void {
    clearTimeout(this.#saving)
    this.#saving = undefined
    const cursor = this.#handle?.cursor
    const { store } = this.#options
    const name = this.#name
    if (store === undefined || name === undefined || cursor === undefined) return
    // A browser that has no room keeps nothing, and the next time begins with a snapshot.
    store
      .save(name, { rows: [...this.#state.rows.values()], cursor, ...this.#facts })
      .catch(() => store.remove(name))
      .catch(() => undefined)
  }
}

const hasNoOrder = ({ sort = [] }: LiveQuery<SchemaType, string>, { orders }: RowFacts): string | undefined =>
  sortedBy(sort).find((name) => orders?.[name] === 'none')

function refuseSort(query: LiveQuery<SchemaType, string>, facts: RowFacts): void {
  const name = hasNoOrder(query, facts)
  if (name !== undefined) throw new RealtimeError(`sort: live rows cannot be sorted by ${name}`, { final: true })
}

/** Whether the server has refused the value of a field because it is of another type. */
function refusesKind(error: unknown, field: string): boolean {
  if (!(error instanceof DaybookError)) return false
  const { errors } = Object(error.details) as {
    errors?: readonly { readonly field?: string; readonly rule?: string }[]
  }
  return Array.isArray(errors) && errors.some((one) => one.field === field && one.rule === 'type')
}
