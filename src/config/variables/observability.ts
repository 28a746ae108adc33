import { boolean, count, integer, milliseconds, oneOf, pairs, share, text, url } from '../parsers.ts'
import { group, optional, optionalSecret, secret, variable } from '../variable.ts'

/* Logs, metrics and traces. */

export const log = group('Logs and their retention', {
  level: variable('LOG_LEVEL', oneOf('trace', 'debug', 'info', 'warn', 'error'), 'info', 'Least level that is logged'),
  warnStack: variable('LOG_WARN_STACK', boolean, 'false', 'Stack traces on warnings'),
  auditCleanupEnabled: variable('AUDIT_LOG_CLEANUP_ENABLED', boolean, 'false', 'Delete old rows of the change log'),
  auditRetentionDays: variable(
    'AUDIT_LOG_RETENTION_DAYS',
    integer({ min: 1, max: 36_500, unit: 'days' }),
    '90',
    'Age at which they are deleted',
  ),
  consumerKeepDays: variable(
    'LOG_CONSUMER_KEEP_DAYS',
    integer({ min: 0, max: 36_500, unit: 'days' }),
    '7',
    'How much longer the change log is kept for consumers that have yet to read it; beyond that they are stopped',
  ),
  consumerKeepGb: variable(
    'LOG_CONSUMER_KEEP_GB',
    integer({ min: 0, max: 1_000_000, unit: 'GB' }),
    '10',
    'How much of the change log is kept for them at most',
  ),
  seals: variable('LOG_SEALS', boolean, 'true', 'Seal the change log, so that tampering shows (docs/audit-log.md)'),
  sealKey: optionalSecret(
    'LOG_SEAL_KEY',
    text,
    'Secret that the key of the seals is derived from; without it SECRET_KEY is',
  ),
  sealFile: optional(
    'LOG_SEAL_FILE',
    text,
    'File that the workers append the heads of the sealed log to; without one none',
  ),
  emailCleanupEnabled: variable('EMAIL_LOG_CLEANUP_ENABLED', boolean, 'false', 'Delete old rows of the mail log'),
  emailRetentionDays: variable(
    'EMAIL_LOG_RETENTION_DAYS',
    integer({ min: 1, max: 36_500, unit: 'days' }),
    '30',
    'Age at which they are deleted',
  ),
})

export const observability = group('Metrics and traces', {
  metricsToken: optionalSecret(
    'METRICS_TOKEN',
    text,
    'Bearer token that may read the metrics, as administrators may (docs/observability.md)',
  ),
  metricsPort: optional(
    'METRICS_PORT',
    count(0, 65_000),
    'First port at which the worker processes show their metrics, one port each; without it they show none. Needs METRICS_TOKEN',
  ),
  otlpEndpoint: optional(
    'OTEL_EXPORTER_OTLP_ENDPOINT',
    url('http', 'https'),
    'Receiver of traces by OTLP over HTTP, asked at /v1/traces below it; without one nothing is traced',
  ),
  otlpTracesEndpoint: optional('OTEL_EXPORTER_OTLP_TRACES_ENDPOINT', url('http', 'https'), 'The whole address instead'),
  otlpHeaders: secret(
    variable('OTEL_EXPORTER_OTLP_HEADERS', pairs, '', 'Headers that go with the traces, such as an API key'),
  ),
  otelServiceName: variable('OTEL_SERVICE_NAME', text, 'daybook', 'Name of the service in traces'),
  otelResourceAttributes: variable(
    'OTEL_RESOURCE_ATTRIBUTES',
    pairs,
    '',
    'Further attributes of the source of traces, such as deployment.environment.name=production',
  ),
  otelSampler: variable(
    'OTEL_TRACES_SAMPLER',
    oneOf(
      ...['always_on', 'always_off', 'traceidratio', 'parentbased_always_on', 'parentbased_always_off'],
      'parentbased_traceidratio',
    ),
    'parentbased_always_on',
    'Which requests are traced; parentbased ones follow a caller who sends traceparent',
  ),
  otelSamplerArg: variable(
    'OTEL_TRACES_SAMPLER_ARG',
    share,
    '1',
    'The share of traces that the samplers with traceidratio keep',
  ),
  otelDelayMs: variable(
    'OTEL_BSP_SCHEDULE_DELAY',
    milliseconds(1),
    '5000',
    'How long ended spans are collected before they are sent',
  ),
  otelDisabled: variable('OTEL_SDK_DISABLED', boolean, 'false', 'Trace nothing, whatever else is set'),
})
