/**
 * The messages between a frame of an extension and the console. The frame sends {@link Hello} to the window around it,
 * which answers {@link Welcome} with a port, or {@link Unwelcome}; everything after that is JSON text over the port.
 */

/** Of what is said; another one is refused. */
export const protocolVersion = 1

export type Hello = { readonly type: 'daybook.hello'; readonly version: number }
export type Welcome = { readonly type: 'daybook.welcome'; readonly version: number; readonly context: Context }
export type Unwelcome = { readonly type: 'daybook.unwelcome'; readonly version: number }

/** The console's look: values of CSS by the name of the custom property, without `--`. */
export type Theme = { readonly scheme: 'light' | 'dark'; readonly tokens: Readonly<Record<string, string>> }

type Json = Readonly<Record<string, unknown>>

/** Where a frame is shown, and for whom. */
export type Context = {
  readonly extension: string
  readonly locale: string
  readonly theme: Theme
  readonly user: { readonly id: string; readonly name: string }
} & (PageContext | EditorContext)

export type PageContext = {
  readonly kind: 'page'
  /** The rest of the address after `/console/extensions/{extension}`: `/`, `/2026?open=7`. */
  readonly path: string
}

export type EditorContext = {
  readonly kind: 'editor'
  readonly collection: string
  readonly field: {
    readonly name: string
    readonly type: string
    readonly isRequired: boolean
    readonly description: string | null
  }
  readonly value: unknown
  /** The row as it is stored, where the extension may read the collection; null of a new one. */
  readonly record: Json | null
}

/** The messages that the console sends to a frame unasked. */
export type Told =
  | { readonly told: 'theme'; readonly theme: Theme }
  | { readonly told: 'path'; readonly path: string }
  | { readonly told: 'value'; readonly value: unknown }
  | { readonly told: 'ping' }

/** The query of a list; the words are those of `GET /items`. */
export type ListQuery = {
  readonly fields?: readonly string[]
  readonly filter?: Json
  readonly sort?: readonly string[]
  readonly search?: string
  /** 100 unless given, 1,000 at the most. */
  readonly limit?: number
  readonly offset?: number
  readonly count?: boolean
}

/** The query of a report; the words are those of `POST /reports`. */
export type ReportQuery = {
  readonly aggregate: Json
  readonly groupBy?: readonly string[]
  readonly filter?: Json
  readonly having?: Json
  readonly sort?: readonly string[]
  readonly limit?: number
  readonly timezone?: string
}

/** Everything that a frame may ask for: what it says, and what it is answered. */
export type Calls = {
  'items.list': {
    args: { readonly collection: string; readonly query: ListQuery }
    result: { readonly data: readonly Json[]; readonly totalCount?: number }
  }
  'items.get': {
    args: { readonly collection: string; readonly id: string | number; readonly fields?: readonly string[] }
    result: Json
  }
  'items.create': { args: { readonly collection: string; readonly item: Json }; result: string | number }
  'items.update': {
    args: { readonly collection: string; readonly id: string | number; readonly change: Json }
    result: null
  }
  'items.delete': { args: { readonly collection: string; readonly id: string | number }; result: null }
  'reports.run': {
    args: { readonly collection: string; readonly query: ReportQuery }
    result: { readonly data: readonly Json[]; readonly totalCount?: number }
  }
  'value.set': { args: { readonly value: unknown }; result: null }
  resize: { args: { readonly height: number }; result: null }
  navigate: { args: { readonly to: string }; result: null }
  palette: { args: Readonly<Record<string, never>>; result: null }
  toast: { args: { readonly title: string; readonly text?: string }; result: null }
}

export type CallName = keyof Calls

/** A call of any name, with what belongs to it. */
export type Call = { [Name in CallName]: { readonly call: Name; readonly args: Calls[Name]['args'] } }[CallName]

/** A message of the frame: a call with a number of its own, or the answer to `ping`. */
export type Asked = (Call & { readonly id: number }) | { readonly pong: true }

export type Refusal = {
  /** For programs: `BAD_MESSAGE`, `BUSY`, `TIMEOUT`, `WRONG_PLACE`, or the code of the server. */
  readonly code: string
  readonly message: string
  /** Of the server's answer; 0 where it was not asked. */
  readonly status: number
  readonly details?: unknown
}

export type Answer =
  | { readonly id: number; readonly ok: true; readonly result: unknown }
  | { readonly id: number | null; readonly ok: false; readonly error: Refusal }
