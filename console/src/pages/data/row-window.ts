import type { Row } from './query.ts'

export const pageSize = 100

type RowPage = { readonly rows: readonly Row[]; readonly nextCursor: string | null | undefined }

/** Reads rows: after a cursor, or from an offset. */
type ReadPage = (
  from: { readonly cursor: string } | { readonly offset: number },
  signal: AbortSignal,
) => Promise<RowPage>

type RowCount = { readonly count: number; readonly isEstimate: boolean }

type WindowOptions = {
  readonly read: ReadPage
  /** How many rows there are, or about how many where that is told sooner. */
  readonly count: (signal: AbortSignal) => Promise<RowCount>
  /** However long it takes. */
  readonly countExactly: (signal: AbortSignal) => Promise<number>
  readonly keyOf: (row: Row) => string
  /** How many rows there were when the list was left; it is so long until it is counted. */
  readonly countBefore?: number
}

type WindowState = {
  /** How many rows there are, or seem to be as long as they were not counted. */
  readonly count: number
  readonly isCounted: boolean
  /** It was not counted, but estimated. */
  readonly isEstimate: boolean
  readonly error: unknown
  /** Rows that others have made since. */
  readonly added: number
  /** Why changes by others do not arrive; undefined while they do. */
  readonly notLive: string | undefined
  /** Changes with everything that is shown. */
  readonly version: number
}

/**
 * The part of a long list that is looked at. What is scrolled to is read by cursor, at the cost of the first page however far
 * it is; what is jumped to is read by offset. Pages far away are forgotten.
 */
export class RowWindow {
  #pages = new Map<number, RowPage>()
  #reading = new Map<number, AbortController>()
  #counting = new AbortController()
  #removed = new Set<string>()
  #changed = new Map<string, number>()
  #listeners = new Set<() => void>()
  #shown = { first: 0, last: 0 }
  #options: WindowOptions
  state: WindowState = {
    count: 0,
    isCounted: false,
    isEstimate: false,
    error: undefined,
    added: 0,
    notLive: undefined,
    version: 0,
  }

  constructor(options: WindowOptions) {
    this.#options = options
    this.state = { ...this.state, count: options.countBefore ?? 0 }
  }

  subscribe = (listener: () => void): (() => void) => {
    this.#listeners.add(listener)
    return () => void this.#listeners.delete(listener)
  }

  rowAt(index: number): Row | undefined {
    return this.#pages.get(Math.floor(index / pageSize))?.rows[index % pageSize]
  }

  /** The loaded ones of the first `most` rows. */
  loaded(most: number): readonly Row[] {
    const pages = [...this.#pages].filter(([page]) => page * pageSize < most).sort(([a], [b]) => a - b)
    return pages.flatMap(([, { rows }]) => rows).slice(0, most)
  }

  /** The row of a key, if it is loaded. */
  rowOf(key: string): Row | undefined {
    for (const { rows } of this.#pages.values()) {
      const found = rows.find((row) => this.#options.keyOf(row) === key)
      if (found !== undefined) return found
    }
    return undefined
  }

  isRemoved = (key: string): boolean => this.#removed.has(key)

  /** When somebody has changed a row while it was shown. */
  changedAt = (key: string): number | undefined => this.#changed.get(key)

  /** Has the rows read from `first` to `last`, and forgets what is far from them. */
  show(first: number, last: number): void {
    // A list without rows shows up to one before its first.
    this.#shown = { first, last: Math.max(first, last) }
    const wanted = new Set<number>()
    for (let page = Math.floor(first / pageSize); page <= Math.floor(this.#shown.last / pageSize); page += 1)
      wanted.add(page)
    for (const [page, reading] of this.#reading)
      if (!wanted.has(page)) {
        reading.abort()
        this.#reading.delete(page)
      }
    for (const page of wanted) if (!this.#pages.has(page) && !this.#reading.has(page)) void this.#read(page)
    for (const page of this.#pages.keys())
      if (page > 0 && Math.abs(page - Math.floor(first / pageSize)) > 20) this.#pages.delete(page)
  }

  /** Reads everything anew, and keeps what is shown until it comes. */
  reload(): void {
    this.#stop()
    this.#removed.clear()
    this.#changed.clear()
    const { first, last } = this.#shown
    const begin = Math.floor(first / pageSize)
    for (let page = begin; page <= Math.floor(last / pageSize); page += 1) void this.#read(page, page === begin)
    void this.#count()
  }

  /** Counts. Before it has ended the list is as long as what was read, and a page more. */
  begin(): void {
    void this.#count()
  }

  /** Counts what was estimated. */
  async countExactly(): Promise<void> {
    const { signal } = this.#counting
    try {
      const count = await this.#options.countExactly(signal)
      if (!signal.aborted) this.#tell({ count, isCounted: true, isEstimate: false })
    } catch (error) {
      if (!signal.aborted) this.#tell({ error })
    }
  }

  /** A row as it is now, by its key. True where it is shown. */
  patch(row: Row, at: number): boolean {
    const key = this.#options.keyOf(row)
    for (const [number, page] of this.#pages) {
      const place = page.rows.findIndex((one) => this.#options.keyOf(one) === key)
      if (place < 0) continue
      this.#pages.set(number, { ...page, rows: page.rows.with(place, { ...page.rows[place]!, ...row }) })
      this.#removed.delete(key)
      this.#changed.set(key, at)
      this.#tell({})
      return true
    }
    return false
  }

  /** It is gone, and stays where it is shown, as gone: nothing moves under somebody's hand. */
  remove(key: string): void {
    this.#removed.add(key)
    this.#tell({})
  }

  add(rows: number): void {
    if (rows > 0) this.#tell({ added: this.state.added + rows })
  }

  /** Changes by others arrive, or do not for a reason. */
  setLive(notLive?: string): void {
    if (notLive !== this.state.notLive) this.#tell({ notLive })
  }

  fail(error: unknown): void {
    this.#tell({ error })
  }

  close(): void {
    this.#stop()
  }

  #stop(): void {
    for (const reading of this.#reading.values()) reading.abort()
    this.#reading.clear()
    this.#counting.abort()
  }

  async #read(page: number, forgetsOthers = false): Promise<void> {
    const reading = new AbortController()
    this.#reading.set(page, reading)
    const before = this.#pages.get(page - 1)?.nextCursor
    const from =
      page === 0
        ? { cursor: '' }
        : typeof before === 'string' && !forgetsOthers
          ? { cursor: before }
          : { offset: page * pageSize }
    try {
      const read = await this.#options.read(from, reading.signal)
      if (reading.signal.aborted) return
      if (forgetsOthers) this.#pages.clear()
      this.#pages.set(page, read)
      this.#tell({ error: undefined, ...(!this.state.isCounted && { count: this.#seemingCount() }) })
      if (this.state.isEstimate) this.#correct(page, read.rows.length)
    } catch (error) {
      if (!reading.signal.aborted) this.#tell({ error })
    } finally {
      if (this.#reading.get(page) === reading) this.#reading.delete(page)
    }
  }

  /** The rows that were read correct a wrong estimate. */
  #correct(page: number, rows: number): void {
    const end = page * pageSize + rows
    if (rows === 0 && page > 0) void this.countExactly()
    else if (rows < pageSize) this.#tell({ count: end, isEstimate: false })
    else if (end >= this.state.count) this.#tell({ count: end + pageSize })
  }

  #seemingCount(): number {
    return Math.max(
      0,
      ...[...this.#pages].map(
        ([page, { rows }]) => page * pageSize + rows.length + (rows.length === pageSize ? pageSize : 0),
      ),
    )
  }

  async #count(): Promise<void> {
    this.#counting = new AbortController()
    const { signal } = this.#counting
    try {
      const counted = await this.#options.count(signal)
      if (!signal.aborted) this.#tell({ ...counted, isCounted: true, added: 0 })
    } catch (error) {
      // Without a total the list grows as it is scrolled.
      if (!signal.aborted) this.#tell({ isCounted: false, isEstimate: false, count: this.#seemingCount(), added: 0 })
      if (!isTimeout(error) && !signal.aborted) this.#tell({ error })
    }
  }

  #tell(change: Partial<WindowState>): void {
    this.state = { ...this.state, ...change, version: this.state.version + 1 }
    for (const listener of this.#listeners) listener()
  }
}

/** Of the bound that counting has. */
const isTimeout = (error: unknown): boolean => error instanceof DOMException && error.name === 'TimeoutError'
