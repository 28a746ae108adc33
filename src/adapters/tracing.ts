import type { Logger } from 'pino'
import type { Config } from '../config/config.ts'
import type { Span, Tracing } from './running-span.ts'

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
