import type { Logger } from 'pino'
import type { Config } from '../config.ts'
import type { RunningSpan } from './running-span.ts'

export type Attributes = Readonly<Record<string, string | number | boolean | undefined>>

export type SpanOptions = {
  readonly kind?: 'internal' | 'server' | 'client' | 'producer' | 'consumer'
  readonly attributes?: Attributes
  /** A `traceparent` from outside, which the span continues. Whatever else is given, undefined too, begins a trace. */
  readonly parent?: unknown
}

/** A span that is under way. */
export type Span = RunningSpan & {
  /** What is done in `work`, and what follows from that, happens within the span. */
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
  /** As `span`, but only within another one: by itself nobody would look for it. */
  part<T>(name: string, options: SpanOptions, work: () => Promise<T>): Promise<T>
  /** To be handed on to whoever continues the work; undefined outside of a span. */
  traceparent(): string | undefined
  /** Sends what has ended, for at most five seconds. Never rejects. */
  close(): Promise<void>
}

/** Where the time of a process goes; off unless a receiver is configured. */
export type Traces = { readonly tracing: Tracing }

/** Traces to the OTLP receiver of the configuration. Without one nothing of OpenTelemetry is loaded. */
export async function openTracing(config: Config, process: string, log: Logger): Promise<Tracing> {
  const { otlpEndpoint, otlpTracesEndpoint, otelDisabled, otelSampler } = config.observability
  const url = otlpTracesEndpoint ?? (otlpEndpoint === undefined ? undefined : `${otlpEndpoint}/v1/traces`)
  if (url === undefined || otelDisabled || otelSampler === 'always_off') return noTracing
  const { openOtlpTracing } = await import('./tracing-otlp.ts')
  return openOtlpTracing(config, { url, process, log })
}

const nothing: Span = {
  traceparent: '',
  logged: { trace_id: '', span_id: '' },
  within: (work) => work(),
  set: () => undefined,
  end: () => undefined,
}

const noTracing: Tracing = {
  isOn: false,
  begin: () => nothing,
  span: (_name, _options, work) => work(),
  part: (_name, _options, work) => work(),
  traceparent: () => undefined,
  close: async () => undefined,
}
