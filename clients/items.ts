import { DaybookError, type Http, segmentOf } from './http.ts'
import type {
  Aggregates,
  Filter,
  Key,
  Name,
  ReportRow,
  ReportSort,
  Row,
  SchemaType,
  Selected,
  Sort,
  ValidGroups,
  ValidPaths,
} from './schema.ts'

/** The query of a list. */
export type ListQuery<S extends SchemaType, C extends Name<S>, F extends readonly string[]> = {
  /** The fields and relations of a row: `['title', 'project.name']`. All own fields unless given. */
  readonly fields?: F & ValidPaths<S, C, F>
  readonly filter?: Filter<S, C>
  readonly sort?: readonly Sort<S, C>[]
  /** -1 for all. */
  readonly limit?: number
  readonly page?: number
  readonly offset?: number
  /** Empty for the first page, then the `nextCursor` of the page before. */
  readonly cursor?: string
  readonly search?: string
  readonly searchFields?: readonly string[]
  /** The best matches first; not with a cursor. */
  readonly sortByRelevance?: boolean
  readonly relConditions?: Readonly<Record<string, object>>
  /** Rows as they were: a time, or a cursor. */
  readonly asOf?: string
  /** False includes soft-deleted rows. */
  readonly paranoid?: boolean
  readonly count?: boolean
  readonly signal?: AbortSignal
}

export type Page<R> = {
  readonly data: readonly R[]
  /** Undefined where it was not counted. */
  readonly totalCount?: number
  readonly nextCursor?: string | null
}

export type ReadQuery<S extends SchemaType, C extends Name<S>, F extends readonly string[]> = Pick<
  ListQuery<S, C, F>,
  'fields' | 'relConditions' | 'asOf' | 'paranoid' | 'signal'
>

export type WriteOptions = {
  /** Names the intended write, e.g. of a form that is sent again; one is made otherwise. */
  readonly idempotencyKey?: string
  /** The version that is meant, from `read().etag`: 412 where there is a newer one. */
  readonly ifMatch?: string
  readonly signal?: AbortSignal
}

/** A version is of one row. */
export type BulkOptions = Omit<WriteOptions, 'ifMatch'>

export type RowChange<S extends SchemaType, C extends Name<S>> = {
  readonly id: Key<S, C>
  readonly data: S[C]['update']
}

/** The body of a report. */
export type ReportQuery<
  S extends SchemaType,
  C extends Name<S>,
  A extends Aggregates<S, C>,
  G extends readonly string[],
  F extends readonly string[] = [],
> = Pick<
  ListQuery<S, C, F>,
  | 'filter'
  | 'limit'
  | 'page'
  | 'offset'
  | 'search'
  | 'searchFields'
  | 'sortByRelevance'
  | 'relConditions'
  | 'asOf'
  | 'paranoid'
  | 'count'
  | 'signal'
> & {
  readonly aggregate: A
  readonly groupBy?: G & ValidGroups<S, C, G>
  /** With `groupBy`: what the first row of a group shows beside it, if one of them is a path: `['customer.name']`. */
  readonly fields?: F & ValidPaths<S, C, F>
  readonly having?: object
  /** Names of aggregates and groups, `-` before one for descending; or name to direction. */
  readonly sort?: readonly ReportSort<S, C, NoInfer<A>, NoInfer<G>>[] | Readonly<Record<string, 'asc' | 'desc'>>
  readonly timezone?: string
}

export type HistoryEvent = {
  readonly id: string
  readonly action: string
  readonly createdAt: string
  readonly userId: string | null
  /** For `client.undo`; null for a change of no request. */
  readonly requestId: string | null
  readonly changes: Readonly<Record<string, { readonly before: unknown; readonly after: unknown }>> | null
} & Readonly<Record<string, unknown>>

/** The rows of one collection. */
export type Items<S extends SchemaType, C extends Name<S>> = {
  /** `changesCursor` asks for the cursor from which `client.changes` goes on: exactly the snapshot of these rows. */
  list<const F extends readonly string[] = ['*'], const M extends boolean = false>(
    query?: ListQuery<S, C, F> & { readonly changesCursor?: M },
  ): Promise<Page<Selected<S, C, F[number]>> & (M extends true ? { readonly changesCursor: string } : unknown)>
  /** All rows of a list, page by page, each once. */
  each<const F extends readonly string[] = ['*']>(
    query?: Omit<ListQuery<S, C, F>, 'page' | 'offset' | 'cursor' | 'sortByRelevance'>,
  ): AsyncIterableIterator<Selected<S, C, F[number]>>
  read<const F extends readonly string[] = ['*']>(
    id: Key<S, C>,
    query?: ReadQuery<S, C, F>,
  ): Promise<Selected<S, C, F[number]>>
  /** As `read`, with the version to hand to `ifMatch`. */
  readVersion<const F extends readonly string[] = ['*']>(
    id: Key<S, C>,
    query?: ReadQuery<S, C, F>,
  ): Promise<{ readonly row: Selected<S, C, F[number]>; readonly etag: string | undefined }>
  /** The key of the new row. */
  create(row: S[C]['create'], options?: WriteOptions): Promise<Key<S, C>>
  /** The keys of the new rows, in their order; all are made or none. */
  createMany(rows: readonly S[C]['create'][], options?: BulkOptions): Promise<readonly Key<S, C>[]>
  update(id: Key<S, C>, change: S[C]['update'], options?: WriteOptions): Promise<void>
  /** Each row by its key; all are changed or none. */
  updateMany(changes: readonly RowChange<S, C>[], options?: BulkOptions): Promise<void>
  /** Creates the row, or changes the one with the same values in `by` (by default its key). */
  upsert(row: S[C]['create'], options?: BulkOptions & { readonly by?: readonly string[] }): Promise<Key<S, C>>
  delete(id: Key<S, C>, options?: WriteOptions): Promise<void>
  /** All are deleted or none. */
  deleteMany(ids: readonly Key<S, C>[], options?: BulkOptions): Promise<void>
  report<
    const A extends Aggregates<S, C>,
    const G extends readonly string[] = [],
    const F extends readonly string[] = [],
  >(query: ReportQuery<S, C, A, G, F>): Promise<Omit<Page<ReportRow<S, C, A, G, F>>, 'nextCursor'>>
  /** The changes of a row, the newest first. */
  history(id: Key<S, C>, query?: { readonly limit?: number; readonly cursor?: string }): Promise<Page<HistoryEvent>>
  /**
   * Brings a row back to a version: that after an event, that before one, or that of a time. A deleted row comes back with
   * `before` its deletion, which is the `event` in the trash.
   */
  restore(id: Key<S, C>, version: Version): Promise<void>
  /** The trash. */
  deleted(query?: { readonly limit?: number; readonly cursor?: string }): Promise<Page<DeletedItem<S, C>>>
}

export type Version = { readonly event: string } | { readonly before: string } | { readonly asOf: string }

export type DeletedItem<S extends SchemaType, C extends Name<S>> = {
  readonly id: Key<S, C>
  readonly event: string
  readonly deletedAt: string
  readonly deletedBy: string | null
  /** For `client.undo`, which brings back all that was deleted with it; null for a deletion of no request. */
  readonly requestId: string | null
  readonly item: Partial<Row<S, C>>
}

/** Longer queries are refused by servers on the way. */
const longestQuery = 4000

const pageSize = 500

export function openItems<S extends SchemaType, C extends Name<S>>(http: Http, collection: C): Items<S, C> {
  const base = `/items/${encodeURIComponent(collection)}`
  const path = (id: Key<S, C>) => `${base}/${segmentOf(id)}`
  const list: Items<S, C>['list'] = (query = {}) => askList<S, C>(http, collection, query as AnyList<S, C>)
  const readVersion: Items<S, C>['readVersion'] = async (id, { signal, ...query } = {}) => {
    const { body, headers } = await http.send<{ data: never }>(path(id), { query: textual(query), signal })
    return { row: body.data, etag: headers.get('etag') ?? undefined }
  }
  const keyOf = ({ data }: { data: { id: Key<S, C> } }) => data.id
  return {
    list,
    async *each(query = {}) {
      for (let cursor: string | null | undefined = ''; typeof cursor === 'string'; ) {
        const page: Page<never> = await askList<S, C>(http, collection, {
          ...{ limit: pageSize, count: false },
          ...(query as ListQuery<S, C, never>),
          cursor,
        })
        yield* page.data
        cursor = page.nextCursor
      }
    },
    read: async (id, query) => (await readVersion(id, query)).row,
    readVersion,
    create: async (row, options) => keyOf(await http.ask(base, writing('POST', row, options))),
    async createMany(rows, options) {
      return (await http.ask<{ data: Key<S, C>[] }>(`${base}/bulk`, writing('POST', rows, options))).data
    },
    async update(id, change, options) {
      await http.ask(path(id), writing('PATCH', change, options))
    },
    async updateMany(changes, options) {
      await http.ask(`${base}/bulk`, writing('PATCH', changes, options))
    },
    async upsert(row, { by, ...options } = {}) {
      return keyOf(await http.ask(base, { ...writing('PUT', row, options), query: { key: by?.join(',') } }))
    },
    async delete(id, options) {
      await http.ask(path(id), writing('DELETE', undefined, options))
    },
    async deleteMany(ids, options) {
      await http.ask(`${base}/bulk`, writing('DELETE', ids, options))
    },
    report: ({ signal, ...query }) =>
      http.ask(`/reports/${encodeURIComponent(collection)}`, { method: 'POST', body: query, signal }),
    history: async (id, query) => http.ask(`${path(id)}/history`, { query: { ...query } }),
    async restore(id, version) {
      await http.ask(`${path(id)}/restore`, { method: 'POST', body: version })
    },
    deleted: (query) => http.ask(`${base}/deleted`, { query: { ...query } }),
  }
}

function writing(method: 'POST' | 'PUT' | 'PATCH' | 'DELETE', body: unknown, options: WriteOptions = {}) {
  const { idempotencyKey, ifMatch, signal } = options
  return { method, body, idempotencyKey, signal, ...(ifMatch !== undefined && { headers: { 'if-match': ifMatch } }) }
}

/** Lists of names go by commas, which is what a person would type. */
function textual(query: object): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(query).map(([name, value]) => [name, Array.isArray(value) ? value.join(',') : value]),
  )
}

type AnyList<S extends SchemaType, C extends Name<S>> = ListQuery<S, C, never> & { readonly changesCursor?: boolean }

/** How many rows a page has where its number is given and no limit. */
const defaultPageSize = 10

/**
 * A long query goes as the body of a report, which is the list where nothing is aggregated; only a limit that is not given
 * means all rows there.
 */
function askList<S extends SchemaType, C extends Name<S>>(
  http: Http,
  collection: C,
  { signal, ...query }: AnyList<S, C>,
): Promise<Page<never> & { readonly changesCursor: never }> {
  const asked = textual(query)
  const isLong = JSON.stringify(asked).length > longestQuery && query.cursor === undefined && !query.changesCursor
  if (!isLong)
    return http
      .ask<Page<never> & { readonly changesCursor: never }>(`/items/${encodeURIComponent(collection)}`, {
        query: asked,
        signal,
      })
      .catch(tooLong)
  const body = { ...(query.page !== undefined && { limit: defaultPageSize }), ...query }
  return http.ask(`/reports/${encodeURIComponent(collection)}`, { method: 'POST', body, signal })
}

/** Reports have no cursors, so that a page by cursor, or with one of changes, has to fit an address. */
function tooLong(error: unknown): never {
  if (!(error instanceof DaybookError) || ![414, 431].includes(error.status)) throw error
  const { status, requestId, body } = error
  const message = 'The query is too long to be read with a cursor: list it by page, or divide its filter'
  throw new DaybookError(message, { status, code: 'QUERY_TOO_LONG', requestId, body }, error)
}
