/**
 * The client of a Daybook server, for browsers and Node: `createClient<Schema>({ url, auth })`. `npx daybook types` writes
 * `Schema`. Guide: docs/client.md.
 */
import { type Auth, openAuth } from './auth.ts'
import { type Files, openFiles } from './files.ts'
import { type Answer, DaybookError, openHttp, type RequestOptions } from './http.ts'
import { type Items, openItems } from './items.ts'
import {
  type KeptRows,
  type Live,
  type LiveFields,
  type LiveQuery,
  type OfSession,
  openLive,
  type RowStore,
} from './live.ts'
import { type LiveReport, type LiveReportQuery, openLiveReport } from './live-report.ts'
import { createRealtime, noToken, type RetriedRealtime } from './realtime.ts'
import { type Realtime, RealtimeError } from './realtime-types.ts'
import type { Aggregates, AnySchema, ChangedRow, ChangeField, Name, ReportRow, SchemaType } from './schema.ts'
import { type AuthOptions, openSession, type Session } from './session.ts'
import { openWriteQueue, type WriteQueue } from './write-queue.ts'

export type { Auth, Credentials, Registration } from './auth.ts'
export type { FileRow, Files, Transform, UploadOptions } from './files.ts'
export { type Answer, DaybookError, type RequestOptions } from './http.ts'
export type { Items, ListQuery, Page, ReportQuery, WriteOptions } from './items.ts'
export type { Live, LiveFields, LiveQuery, LiveStatus, LiveView } from './live.ts'
export type { LiveReport, LiveReportQuery } from './live-report.ts'
export { type Change, createRealtime, type Realtime, RealtimeError, type Removal } from './realtime.ts'
export type { AnySchema, Filter, Key, Name, Nested, Row, SchemaType, Selected } from './schema.ts'
export type { AuthOptions, KeyValueStore, OwnIds, SessionState, SignedIn, SignInResult } from './session.ts'

export type ClientOptions = {
  /** Where the server is; that of the page unless given. */
  readonly url?: string
  readonly auth?: AuthOptions
  readonly fetch?: typeof fetch
  /** How often a request that is safe to repeat is sent at the most; default 4. */
  readonly attempts?: number
  /** SOCKET_PATH of the server; default `/realtime`. */
  readonly socketPath?: string
  /** False keeps no rows between visits, and with cookies not who is signed in; true where the browser has IndexedDB. */
  readonly keepsRows?: boolean
}

/** One type per action: TypeScript leaves out only what a single comparison excludes. */
type Written<A extends string, D> = A extends string ? { readonly action: A; readonly data: D } : never
type Gone<A extends string> = A extends string ? { readonly action: A; readonly data?: never } : never

/** One change of one item, as `/changes` tells it: `collection` and `action` say which data it has. */
export type ChangeEvent<S extends SchemaType, C extends Name<S> = Name<S>, P extends string = never> =
  C extends Name<S>
    ? {
        readonly collection: C
        readonly id: S[C]['key']
        readonly timestamp: string
        readonly position: string
      } & (Written<'create' | 'update', ChangedRow<S, C, P>> | Gone<'delete' | 'remove'>)
    : never

export type ChangesPage<S extends SchemaType, C extends Name<S> = Name<S>, P extends string = never> = {
  readonly data: readonly ChangeEvent<S, C, P>[]
  readonly cursor: string
  readonly hasMore: boolean
  /** Collections whose rows have to be read again. */
  readonly resync?: readonly C[]
}

/** The query of `changes`. */
export type ChangesQuery<S extends SchemaType, C extends Name<S>, F extends readonly string[]> = {
  readonly since?: string
  readonly collections?: readonly C[]
  /** `collection.field`, `collection.*`, `-collection.field`; a collection that none of them names has all of its fields. */
  readonly fields?: F & readonly ChangeField<S, NoInfer<C>>[]
  readonly limit?: number
  readonly signal?: AbortSignal
}

/** The changes to undo, and the options: see docs/undo.md. */
export type UndoRequest = {
  readonly requestId?: string
  readonly position?: string | number
  readonly actor?: string
  readonly from?: string
  readonly to?: string
  readonly collections?: readonly string[]
  readonly include?: 'caused'
  readonly dryRun?: boolean
  readonly plan?: string
  readonly force?: readonly { readonly collection: string; readonly id: string }[]
  readonly limit?: number
}

export type Client<S extends SchemaType = AnySchema> = {
  readonly url: string
  readonly auth: Auth
  items<C extends Name<S>>(collection: C): Items<S, C>
  readonly files: Files
  /** Rows that stay true. */
  live<C extends Name<S>, const F extends LiveFields<S, C> = ['*']>(query: LiveQuery<S, C, F>): Live<S, C, F>
  /** A report whose rows are those of now. */
  liveReport<
    C extends Name<S>,
    const A extends Aggregates<S, C>,
    const G extends readonly string[] = [],
    const F extends readonly string[] = [],
  >(query: LiveReportQuery<S, C, A, G, F>): LiveReport<ReportRow<S, C, A, G, F>>
  /** Changes since a cursor; without one, the cursor of now. */
  changes<const C extends Name<S> = Name<S>, const F extends readonly string[] = []>(
    query?: ChangesQuery<S, C, F>,
  ): Promise<ChangesPage<S, C, number extends F['length'] ? never : F[number]>>
  undo(request: UndoRequest): Promise<Readonly<Record<string, unknown>>>
  /** The connection of the realtime channel, made at the first use: subscriptions, live reports, rooms, tasks. */
  readonly realtime: Realtime
  /** Any other route. @throws {DaybookError} */
  request<Body>(path: string, options?: RequestOptions): Promise<Body>
  /** The same with what the headers say: the version (`etag`), the request's id (`x-request-id`). @throws {DaybookError} */
  send<Body>(path: string, options?: RequestOptions): Promise<Answer<Body>>
  /** Ends connections and live rows. */
  close(): void
}

/** Makes a client. Nothing is sent before it is used. */
export function createClient<S extends SchemaType = AnySchema>(options: ClientOptions = {}): Client<S> {
  const url = addressOf(options.url ?? pageUrl())
  const auth = options.auth ?? {}
  const session = openSession(url, auth, () => http, options.keepsRows !== false)
  const http = openHttp({
    url,
    fetch: options.fetch ?? globalThis.fetch.bind(globalThis),
    authorize: () => session.headers(),
    onUnauthorized: (asked) => session.onUnauthorized(asked),
    withCookies: session.authMode === 'cookie',
    attempts: options.attempts ?? 4,
  })
  const connections = openConnections(url, session, options.socketPath, (refusal) => leave(refusal))
  const store = options.keepsRows === false ? undefined : openRowStore(`daybook:${url}`)
  const open = new Set<OfSession & { close(): void }>()
  const queues = new Map<string, WriteQueue>()
  const queueOf = (collection: string) => {
    const queue = queues.get(collection) ?? openWriteQueue()
    queues.set(collection, queue)
    return queue
  }
  /** What was read for a session, and what waits to be sent, goes with it. */
  const forget = (error: RealtimeError) => {
    void store?.clear()
    for (const queue of queues.values()) queue.end(error)
    queues.clear()
  }
  const leave = (reason = 'Nobody is signed in any more') => {
    const error = new RealtimeError(reason, { final: true })
    forget(error)
    for (const one of [...open]) one.end(error)
    connections.close(error)
  }
  const beginAnew = () => {
    const error = new RealtimeError('Another user has signed in, or the user at another tenant', { final: true })
    forget(error)
    const closeFormer = connections.replace()
    // What is closed by a listener of another one stays closed.
    for (const one of [...open]) if (open.has(one)) one.beginAnew()
    closeFormer(error)
  }
  let { state } = session
  const stopListening = session.onChange((next) => {
    const before = state
    state = next
    if (next === 'signed out') leave()
    else if (before === 'signed in') beginAnew()
    else connections.retryNow()
  })
  return {
    url,
    auth: openAuth(http, session),
    items: (collection) => openItems(http, collection),
    files: openFiles(http),
    live<C extends Name<S>, F extends LiveFields<S, C>>(query: LiveQuery<S, C, F>) {
      const live = openLive<S, C, F>(query, {
        http,
        store,
        connect: connections.without,
        owner: () => session.owner(),
        queue: () => queueOf(query.collection),
        onClose: () => void open.delete(live),
      })
      open.add(live)
      return live
    },
    liveReport(query) {
      const close = () => void open.delete(report)
      const report = openLiveReport<never>(query, () => connections.first().socket, close)
      open.add(report)
      return report
    },
    changes: ({ collections, fields, signal, ...query } = {}) => {
      const names = { collections: collections?.join(','), fields: fields?.join(',') }
      return http.ask('/changes', { query: { ...query, ...names }, signal })
    },
    undo: async (request) =>
      (await http.ask<{ data: Record<string, unknown> }>('/log/undo', { method: 'POST', body: request })).data,
    get realtime() {
      return connections.first()
    },
    request: (path, wanted) => http.ask(path, wanted),
    send: (path, wanted) => http.send(path, wanted),
    close() {
      stopListening()
      for (const live of [...open]) live.close()
      connections.close()
      session.close()
    },
  }
}

/** A connection without a subscription is closed after this, unless it is used again. Milliseconds. */
const lingerMs = 5000

type Connection = {
  readonly realtime: Realtime
  readonly retryNow: () => void
  readonly followed: Set<string>
  /** Handed out for more than subscriptions that are counted here. */
  isHeld: boolean
  lingering?: ReturnType<typeof setTimeout> | undefined
}

/** Connections of the realtime channel: a collection is followed once on each. */
function openConnections(url: string, session: Session, path: string | undefined, onOver: (refusal?: string) => void) {
  const all = new Set<Connection>()
  const connect = () => {
    const opened = openConnection(url, session, path, onOver)
    const connection: Connection = {
      retryNow: opened.retryNow,
      realtime: counted(opened, {
        onFollow: (collection) => {
          clearTimeout(connection.lingering)
          connection.followed.add(collection)
        },
        onLeave: (collection) => {
          connection.followed.delete(collection)
          if (connection.followed.size > 0 || connection.isHeld) return
          clearTimeout(connection.lingering)
          connection.lingering = setTimeout(() => leave(connection), lingerMs)
        },
      }),
      followed: new Set(),
      isHeld: false,
    }
    all.add(connection)
    return connection
  }
  const leave = (connection: Connection, error?: RealtimeError) => {
    clearTimeout(connection.lingering)
    all.delete(connection)
    connection.realtime.close(error)
  }
  return {
    first: () => {
      const connection = [...all].find(({ isHeld }) => isHeld) ?? [...all][0] ?? connect()
      clearTimeout(connection.lingering)
      connection.isHeld = true
      return connection.realtime
    },
    without: (collection: string) => ([...all].find(({ followed }) => !followed.has(collection)) ?? connect()).realtime,
    /** Others are made from now on. Gives what closes those of until now. */
    replace() {
      const former = [...all]
      all.clear()
      return (error: RealtimeError) => {
        for (const connection of former) leave(connection, error)
      }
    },
    retryNow() {
      for (const connection of all) connection.retryNow()
    },
    close(error?: RealtimeError) {
      for (const connection of [...all]) leave(connection, error)
    },
  }
}

function openConnection(
  url: string,
  session: Session,
  path: string | undefined,
  onOver: (refusal?: string) => void,
): RetriedRealtime {
  let asked: Readonly<Record<string, string>> = {}
  let wasOpen = false
  const realtime = createRealtime({
    url,
    token: async () => {
      const token = await session.token()
      asked = token === undefined ? {} : { authorization: `Bearer ${token}` }
      return token
    },
    async mayRetry(refusal) {
      // What is opened before somebody signs in begins with the sign-in.
      if (refusal === noToken && !wasOpen && asked.authorization === undefined) return true
      const mayRetry = await session.onUnauthorized(asked)
      if (!mayRetry) onOver(session.state === 'signed out' ? undefined : refusal)
      return mayRetry
    },
    withCookies: session.authMode === 'cookie',
    ...(path !== undefined && { path }),
  })
  realtime.socket.on('connect', () => {
    wasOpen = true
  })
  realtime.socket.on('connected', ({ userId, tenant }: { userId: string; tenant: string | null }) =>
    session.connected(userId, tenant),
  )
  return realtime
}

/** Tells which collections are followed on a connection. */
function counted(
  realtime: Realtime,
  { onFollow, onLeave }: { onFollow(collection: string): void; onLeave(collection: string): void },
): Realtime {
  return {
    socket: realtime.socket,
    subscribe: (collection, options) => {
      const handle = realtime.subscribe(collection, options)
      onFollow(collection)
      let isOver = false
      return {
        get cursor() {
          return handle.cursor
        },
        catchUp: () => handle.catchUp(),
        unsubscribe() {
          if (!isOver) onLeave(collection)
          isOver = true
          handle.unsubscribe()
        },
      }
    },
    close: (error) => realtime.close(error),
  }
}

/** Absolute and without a slash at its end. A slip of a setting is told here, and not as a server that does not answer. */
function addressOf(url: string): string {
  const base = typeof location === 'undefined' ? undefined : location.origin
  const address = URL.canParse(url, base) ? new URL(url, base) : undefined
  if (address !== undefined && /^https?:$/.test(address.protocol)) return address.href.replace(/\/+$/, '')
  const message = `${JSON.stringify(url)} is no address of a server: https://api.example`
  throw new DaybookError(message, { status: 0, code: 'NO_URL' })
}

function pageUrl(): string {
  if (typeof location === 'undefined') throw new DaybookError('createClient needs url', { status: 0, code: 'NO_URL' })
  return location.origin
}

const table = 'live'

/**
 * Rows in IndexedDB; where they cannot be cleared, the whole database goes. Undefined where there is none: in Node, or where the browser
 * keeps nothing.
 */
function openRowStore(name: string): (RowStore & { clear(): Promise<void> }) | undefined {
  if (typeof indexedDB === 'undefined') return undefined
  let opened: Promise<IDBDatabase> | undefined
  const database = () => {
    opened ??= open(name)
    return opened
  }
  const act = async <Result>(mode: IDBTransactionMode, work: (rows: IDBObjectStore) => IDBRequest<Result>) =>
    resultOf(work((await database()).transaction(table, mode).objectStore(table)))
  return {
    load: (key) => act<KeptRows | undefined>('readonly', (rows) => rows.get(key)),
    save: async (key, kept) => void (await act('readwrite', (rows) => rows.put(kept, key))),
    remove: async (key) => void (await act('readwrite', (rows) => rows.delete(key))),
    clear: async () => {
      try {
        await act('readwrite', (rows) => rows.clear())
      } catch {
        void opened?.then((db) => db.close()).catch(() => undefined)
        opened = undefined
        indexedDB.deleteDatabase(name)
      }
    },
  }
}

function open(name: string): Promise<IDBDatabase> {
  const request = indexedDB.open(name, 1)
  request.onupgradeneeded = () => request.result.createObjectStore(table)
  return resultOf(request)
}

function resultOf<Result>(request: IDBRequest<Result>): Promise<Result> {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result)
    request.onerror = () => reject(request.error)
  })
}
