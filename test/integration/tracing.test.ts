import pino from 'pino'
import { beforeAll, describe, expect, it } from 'vitest'
import { openMailer } from '../../src/adapters/mailer.ts'
import { openTracing } from '../../src/adapters/tracing.ts'
import { runQueue } from '../../src/workers/loop.ts'
import { type Api, startApi } from '../support/api.ts'
import { sendMail } from '../support/mails.ts'
import { type Receiver, type SentSpan, startReceiver } from '../support/otlp.ts'
import { testConfig } from '../support/prepare.ts'
import { type SmtpDouble, startSmtp } from '../support/smtp.ts'
import { waitFor } from '../support/wait.ts'

const caller = '00f067aa0ba902b7'
let receiver: Receiver
let smtp: SmtpDouble
let api: Api
let lastTrace = 0

beforeAll(async () => {
  receiver = await startReceiver()
  smtp = await startSmtp()
  api = await startApi({
    ...smtp.env,
    AUTH_APP_URL: 'https://app.example',
    OTEL_EXPORTER_OTLP_ENDPOINT: receiver.url,
    OTEL_BSP_SCHEDULE_DELAY: '20',
    OTEL_EXPORTER_OTLP_HEADERS: 'x-key=a%20b',
    OTEL_RESOURCE_ATTRIBUTES: 'deployment.environment.name=staging',
    OTEL_SERVICE_NAME: 'shop',
  })
  await api.admin('POST', '/schemas', { collectionName: 'note', schema: { fields: { text: { type: 'String' } } } })
})

/** The id of a trace of the caller's, and the header that says it. */
function newTrace() {
  lastTrace += 1
  const id = `4bf92f3577b34da6a3ce929d${String(lastTrace).padStart(8, '0')}`
  return { id, headers: { traceparent: `00-${id}-${caller}-01` } }
}

const spansOf = (traceId: string) => receiver.spans.filter((span) => span.traceId === traceId)
const arrived = (traceId: string, name: string): Promise<SentSpan> =>
  waitFor(() => spansOf(traceId).find((span) => span.name === name), { what: `${name} of ${traceId}` })
const parentOf = (span: SentSpan) => receiver.spans.find(({ spanId }) => spanId === span.parentSpanId)

describe('a request', () => {
  it('continues the trace of its caller, and its statements are parts of it', async () => {
    const { id, headers } = newTrace()
    const { headers: answer } = await api.admin('GET', '/items/note?search=canary', undefined, headers)
    const request = await arrived(id, 'GET /items/:collection')
    expect(request).toMatchObject({
      parentSpanId: caller,
      kind: 2,
      attributes: {
        'http.request.method': 'GET',
        'http.route': '/items/:collection',
        'http.response.status_code': 200,
        'daybook.request_id': answer['x-request-id'],
      },
      resource: {
        'service.name': 'shop',
        'deployment.environment.name': 'staging',
        'daybook.process': 'web',
        'telemetry.sdk.language': 'nodejs',
      },
    })
    const select = await arrived(id, 'SELECT')
    expect(select).toMatchObject({ parentSpanId: request.spanId, kind: 3 })
    expect(select.attributes).toMatchObject({ 'db.system.name': 'postgresql' })
    expect(receiver.headers[0]).toMatchObject({ 'x-key': 'a b' })
  })

  it('is still the same after its body has arrived', async () => {
    const { id, headers } = newTrace()
    expect((await api.admin('POST', '/items/note', { text: 'canary' }, headers)).status).toBe(201)
    const request = await arrived(id, 'POST /items/:collection')
    await waitFor(() =>
      spansOf(id).some(({ name, parentSpanId }) => name === 'INSERT' && parentSpanId === request.spanId),
    )
  })

  it.each([
    'garbage',
    `00-${'0'.repeat(32)}-${caller}-01`,
    `ff-${'a'.repeat(32)}-${caller}-01`,
    `00-${'a'.repeat(32)}-${caller}-01-x`,
  ])('with the traceparent %s begins a trace of its own', async (traceparent) => {
    const { headers } = await api.admin('GET', '/health', undefined, { traceparent })
    const span = await waitFor(() =>
      receiver.spans.find(({ attributes }) => attributes['daybook.request_id'] === headers['x-request-id']),
    )
    expect(span).toMatchObject({ name: 'GET /health', traceId: expect.stringMatching(/^[0-9a-f]{32}$/) })
    expect(span.traceId).not.toMatch(/^(0|a){32}$/)
    expect(span.parentSpanId).toBeUndefined()
  })

  it('that the router refuses is answered all the same', async () => {
    expect((await api.admin('GET', '/%ff')).status).toBe(400)
    expect((await api.admin('GET', '/nowhere')).status).toBe(404)
  })

  it('whose caller does not record is not sent', async () => {
    const { id, headers } = newTrace()
    await api.admin('GET', '/health', undefined, { traceparent: headers.traceparent.replace(/01$/, '00') })
    const later = newTrace()
    await api.admin('GET', '/health', undefined, later.headers)
    await arrived(later.id, 'GET /health')
    expect(spansOf(id)).toEqual([])
  })
})

describe('a job', () => {
  it('continues the trace of the request that it came from, to the mail', async () => {
    const { id, headers } = newTrace()
    const user = await api.user()
    const asked = await api.anonymous(
      'POST',
      '/auth/magiclink',
      { email: user.email, link: 'https://app.example' },
      headers,
    )
    expect(asked).toMatchObject({ status: 200 })
    const [job] = await waitFor(async () => {
      const jobs = await api.jobs('mail')
      return jobs.length > 0 && jobs
    })
    expect(job!.data).toEqual({
      emailLogId: expect.any(String),
      traceparent: expect.stringMatching(new RegExp(`^00-${id}-[0-9a-f]{16}-01$`)),
    })

    const mailer = openMailer()
    const run = runQueue(api.runtime, {
      queue: 'mail',
      concurrency: 1,
      pollMs: 30,
      handler: (_deps, { emailLogId }, attempt) => sendMail(api.runtime, mailer, emailLogId, attempt),
    })
    const sent = await arrived(id, 'send mail').finally(() => run.stop(10_000))
    // Each is sent when it has ended.
    for (const name of ['job mail', 'commit', 'POST /auth/magiclink']) await arrived(id, name)
    const chain = [sent]
    for (let next = parentOf(sent); next !== undefined; next = parentOf(next)) chain.push(next)
    expect(chain.map(({ name }) => name)).toEqual([
      'send mail',
      'job mail',
      'enqueue jobs',
      'commit',
      'POST /auth/magiclink',
    ])
    expect(job!.data.traceparent).toContain(chain[2]!.spanId)
    expect(chain[1]).toMatchObject({
      kind: 5,
      attributes: { 'messaging.destination.name': 'mail', 'daybook.retry': expect.anything() },
    })
  })

  it('leaves nothing of what callers sent in the traces', () => {
    expect(receiver.bodies.length).toBeGreaterThan(0)
    expect(receiver.bodies.join('\n')).not.toMatch(/canary|mail\.example|correct horse/)
  })
})

describe('traces that cannot be sent', () => {
  it('costs one warning until it can, and does not hold the end up', async () => {
    const warnings: string[] = []
    const stream = { write: (line: string) => void warnings.push(JSON.parse(line).msg) }
    const config = testConfig(api.database.url, { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:9' })
    const tracing = await openTracing(config, 'test', pino({ level: 'warn' }, stream))
    for (let i = 0; i < 1100; i += 1) tracing.begin('lost', { parent: undefined }).end()
    await tracing.close()
    expect(warnings).toEqual(['traces could not be sent'])
  })

  it.each<Record<string, string>>([
    {},
    { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:9', OTEL_SDK_DISABLED: 'true' },
  ])('is not made at all with %j', async (env) => {
    const config = testConfig(api.database.url, env)
    expect((await openTracing(config, 'test', pino({ level: 'silent' }))).isOn).toBe(false)
  })
})
