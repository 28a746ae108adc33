import { type Context, type Span as OtelSpan, ROOT_CONTEXT, SpanKind, SpanStatusCode, trace } from '@opentelemetry/api'
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-http'
import { defaultResource, resourceFromAttributes } from '@opentelemetry/resources'
import {
  AlwaysOffSampler,
  AlwaysOnSampler,
  BatchSpanProcessor,
  ParentBasedSampler,
  type Sampler,
  type SpanExporter,
  TraceIdRatioBasedSampler,
  TracerProvider,
} from '@opentelemetry/sdk-trace'
import type { Logger } from 'pino'
import type { Config } from '../config/config.ts'
import { type Attributes, runningSpan, type Span, type SpanOptions, type Tracing } from './running-span.ts'

/** One try of the exporter, and what a shutdown waits for it. */
const timeoutMs = 5000

/** Loaded only where traces are wanted (tracing.ts). Nothing is registered globally: two runtimes keep theirs apart. */
export function openOtlpTracing(
  config: Config,
  { url, process, log }: { url: string; process: string; log: Logger },
): Tracing {
  const { otlpHeaders, otelServiceName, otelResourceAttributes, otelDelayMs } = config.observability
  const exporter = complainingOnce(new OTLPTraceExporter({ url, headers: otlpHeaders, timeoutMillis: timeoutMs }), log)
  const provider = new TracerProvider({
    resource: defaultResource().merge(
      resourceFromAttributes({
        'daybook.process': process,
        'service.name': otelServiceName,
        ...otelResourceAttributes,
        ...(otelServiceName !== 'daybook' && { 'service.name': otelServiceName }),
      }),
    ),
    sampler: samplerOf(config),
    spanProcessors: [new BatchSpanProcessor({ exporter, scheduledDelayMillis: otelDelayMs })],
  })
  const tracer = provider.getTracer('daybook')
  const begin = (name: string, options: SpanOptions = {}): Span => {
    const { kind = 'internal', attributes = {} } = options
    const isFromOutside = 'parent' in options
    const context = contextOf(isFromOutside ? options.parent : runningSpan.getStore()?.traceparent, isFromOutside)
    return spanOf(tracer.startSpan(name, { kind: kinds[kind], attributes: known(attributes) }, context))
  }
  const span: Tracing['span'] = async (name, options, work) => {
    const begun = begin(name, options)
    try {
      const result = await begun.within(work)
      begun.end()
      return result
    } catch (error) {
      begun.end(error instanceof Error ? error.name : 'Error')
      throw error
    }
  }
  return {
    isOn: true,
    begin,
    span,
    part: (name, options, work) => (runningSpan.getStore() === undefined ? work() : span(name, options, work)),
    traceparent: () => runningSpan.getStore()?.traceparent,
    close: () => bounded(provider.shutdown()),
  }
}

const kinds = {
  internal: SpanKind.INTERNAL,
  server: SpanKind.SERVER,
  client: SpanKind.CLIENT,
  producer: SpanKind.PRODUCER,
  consumer: SpanKind.CONSUMER,
}

function spanOf(span: OtelSpan): Span {
  const { traceId, spanId, traceFlags } = span.spanContext()
  const running = {
    traceparent: `00-${traceId}-${spanId}-${(traceFlags & 1) === 1 ? '01' : '00'}`,
    logged: { trace_id: traceId, span_id: spanId },
  }
  return {
    ...running,
    within: (work) => runningSpan.run(running, work),
    set: (attributes) => void span.setAttributes(known(attributes)),
    end: (failed) => {
      if (failed !== undefined) span.setStatus({ code: SpanStatusCode.ERROR, message: failed })
      span.end()
    },
  }
}

function known(attributes: Attributes): Record<string, string | number | boolean> {
  return Object.fromEntries(
    Object.entries(attributes).flatMap(([key, value]) => (value === undefined ? [] : [[key, value]])),
  )
}

/** Version 00 in full, later ones as far as they are known; ids of zeros only are none (W3C Trace Context). */
const traceparent = /^(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$/

function contextOf(parent: unknown, isRemote: boolean): Context {
  const [, version, traceId, spanId, flags = '00', more] =
    (typeof parent === 'string' && traceparent.exec(parent)) || []
  if (traceId === undefined || spanId === undefined || (version === '00' && more !== undefined)) return ROOT_CONTEXT
  return trace.setSpanContext(ROOT_CONTEXT, { traceId, spanId, traceFlags: Number.parseInt(flags, 16) & 1, isRemote })
}

function samplerOf({ observability: { otelSampler, otelSamplerArg } }: Config): Sampler {
  const [root, isParentBased] = otelSampler.startsWith('parentbased_')
    ? [otelSampler.slice('parentbased_'.length), true]
    : [otelSampler, false]
  const own = root === 'always_on' ? new AlwaysOnSampler() : root === 'always_off' ? new AlwaysOffSampler() : undefined
  const sampler = own ?? new TraceIdRatioBasedSampler(otelSamplerArg)
  return isParentBased ? new ParentBasedSampler({ root: sampler }) : sampler
}

/** A receiver that is away costs traces, and one warning until it is back. */
function complainingOnce(exporter: SpanExporter, log: Logger): SpanExporter {
  let hasComplained = false
  return {
    export: (spans, done) =>
      exporter.export(spans, (result) => {
        if (result.error !== undefined && !hasComplained) log.warn({ err: result.error }, 'traces could not be sent')
        if (result.error === undefined && hasComplained) log.info('traces are sent again')
        hasComplained = result.error !== undefined
        done(result)
      }),
    forceFlush: async () => exporter.forceFlush?.(),
    shutdown: () => exporter.shutdown(),
  }
}

/** Waits no longer than that: the complaint about spans that could not be sent has been made. */
function bounded(work: Promise<void>): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>()
  const timer = setTimeout(resolve, timeoutMs)
  const done = () => {
    clearTimeout(timer)
    resolve()
  }
  work.then(done, done)
  return promise
}
