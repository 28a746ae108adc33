import { AsyncLocalStorage } from 'node:async_hooks'

export type Attributes = Readonly<Record<string, string | number | boolean | undefined>>

export type SpanOptions = {
  readonly kind?: 'internal' | 'server' | 'client' | 'producer' | 'consumer'
  readonly attributes?: Attributes
  /** A `traceparent` from outside, which the span continues. Any other value, undefined too, begins a trace. */
  readonly parent?: unknown
}

/** A span that is under way. */
export type Span = RunningSpan & {
  /** `work`, and everything that follows from it, happens within the span. */
  within<T>(work: () => T): T
  set(attributes: Attributes): void
  /** To be called once; with a reason it has failed. Reasons are ours, never the words of a database or a client. */
  end(failed?: string): void
}

/** Where the time of requests and jobs goes. Names and attributes hold no values of clients, no addresses, no secrets. */
export type Tracing = {
  readonly isOn: boolean
  begin(name: string, options?: SpanOptions): Span
  /** Does the work in a span; only does it where nothing is traced. */
  span<T>(name: string, options: SpanOptions, work: () => Promise<T>): Promise<T>
  /** As `span`, but only within another one: by itself it would not be looked for. */
  part<T>(name: string, options: SpanOptions, work: () => Promise<T>): Promise<T>
  /** To be handed on to the process that continues the work; undefined outside of a span. */
  traceparent(): string | undefined
  /** Sends what has ended, for at most five seconds. Never rejects. */
  close(): Promise<void>
}

/** The span in which something happens, as far as others need to know it. */
type RunningSpan = {
  /** The header of W3C Trace Context: ids and whether it is recorded, nothing else. */
  readonly traceparent: string
  readonly logged: { readonly trace_id: string; readonly span_id: string }
}

/** Empty for ever where nothing is traced. */
export const runningSpan = new AsyncLocalStorage<RunningSpan>()

/** The ids that log lines carry, so that a trace leads to its lines and back. */
export function traceIds(): object {
  return runningSpan.getStore()?.logged ?? {}
}
