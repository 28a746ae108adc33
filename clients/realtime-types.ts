import type { Socket } from 'socket.io-client'

export type RealtimeOptions = {
  /** Where the server is, e.g. `https://api.example`; `https://example.com/api` where a proxy has it under a path. */
  readonly url: string
  /**
   * Of a session, or an API key. A function is asked at each connection, so it can refresh a token that has ended; it gives
   * undefined while there is none.
   */
  readonly token: string | (() => string | undefined | Promise<string | undefined>)
  /**
   * Asked where the server refuses the token: whether another attempt is worth it. Unless given, it is where `token` is a
   * function.
   */
  readonly mayRetry?: (refusal: string) => Promise<boolean>
  /** SOCKET_PATH of the server, which goes after the path of `url`; default `/realtime`. */
  readonly path?: string
  /** The session is a cookie of the browser; then the token is not asked for. */
  readonly withCookies?: boolean
  /** Default `['websocket']`, which needs no sticky sessions. */
  readonly transports?: ('websocket' | 'polling')[]
  /** Default from half a second to 30 seconds. */
  readonly backoff?: { readonly firstMs: number; readonly longestMs: number }
}

export type Realtime = {
  /** Follows a collection until `unsubscribe`, over any number of connections. Throws when it is followed already. */
  subscribe<Row extends object = Record<string, unknown>>(
    collection: string,
    options: SubscribeOptions<Row>,
  ): SubscriptionHandle
  /** The connection itself, for what else the channel offers: live reports, rooms, the progress of tasks. */
  readonly socket: Socket
  /** Ends all subscriptions and the connection; they are told the error, where there is one. */
  close(error?: RealtimeError): void
}

export type SubscriptionHandle = {
  /** Where to go on after the last change that was handled; undefined until the subscription has begun. */
  readonly cursor: string | undefined
  /**
   * Asks the server for all that there is to tell until now: `onBegun` is called when it has come. Without a cursor or a
   * connection nothing has to be asked: `onBegun` is called as soon as there is one.
   */
  catchUp(): void
  unsubscribe(): void
}

/** One change of one row, the form of docs/realtime.md. */
export type Change<Row, Action extends string = 'create' | 'update'> = {
  readonly action: Action
  readonly collection: string
  readonly data: Row
  /** When it was written, ISO 8601. */
  readonly timestamp: string
  readonly cursor: string
  /** Unique and, among the changes of one row, ascending; digits. */
  readonly position: string
}

/** `delete` has the row as it was, `remove` only its primary key: it exists but is not to be seen here any more. */
export type Removal<Row> = Change<Row, 'delete'> | Change<Partial<Row>, 'remove'>

/** Keeps the cursor over the end of the client, e.g. in localStorage. Changes after it may then come again once. */
export type CursorStore = {
  load(): string | undefined | Promise<string | undefined>
  save(cursor: string): void | Promise<void>
}

/**
 * Handlers are called one at a time in the order of the messages, each change once. One that throws ends the
 * subscription with the cursor before that change.
 */
export type SubscribeOptions<Row> = Following<Row> & (WithSnapshot<Row> | WithoutSnapshot)

type Following<Row> = {
  /** A cursor: what happened since then comes first. */
  readonly since?: string
  /** Asked for the cursor where `since` is not given. */
  readonly store?: CursorStore
  /** In the query language of `/items`. */
  readonly filter?: object
  readonly fields?: readonly string[]
  /** The row has been made, has changed, or matches from now on. */
  readonly onChange: (change: Change<Row>) => void
  readonly onRemove: (removal: Removal<Row>) => void
  /** Once for each failure, not for each attempt. `final`: the subscription has ended; otherwise it goes on by itself. */
  readonly onError: (error: RealtimeError) => void
  /** The server has answered: what comes is true from now on. Also after each break. */
  readonly onBegun?: () => void
}

/** What the server tells of the rows of a snapshot beside them; `key` undefined: a server that does not tell. */
export type RowFacts = {
  /** The name of the primary key. */
  readonly key?: string | undefined
  /** The fields whose values are numbers, also where they are written as text. */
  readonly numbers?: readonly string[] | undefined
  /** Fields that are compared neither as numbers nor as text by code points; `none`: not by a client. */
  readonly orders?: Readonly<Record<string, 'caseless' | 'date' | 'time' | 'none'>> | undefined
}

type WithSnapshot<Row> = {
  readonly snapshot: true
  /** All rows, at the beginning and whenever more has changed than can be told: what was held before is void. */
  readonly onSnapshot: (rows: Row[], facts: RowFacts) => void
  readonly onResync?: never
}

type WithoutSnapshot = {
  readonly snapshot?: false
  readonly onSnapshot?: never
  /** More has changed than can be told: read the rows now. Changes since a moment before this call will be told. */
  readonly onResync: () => void
}

export class RealtimeError extends Error {
  override readonly name = 'RealtimeError'
  readonly final: boolean
  constructor(message: string, { final, cause }: { final: boolean; cause?: unknown }) {
    super(message, { cause })
    this.final = final
  }
}
