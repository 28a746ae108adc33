import { expect, it } from 'vitest'
import { startReceiver } from '../support/otlp.ts'
import { createDatabase } from '../support/postgres.ts'
import { testEnv } from '../support/prepare.ts'
import { startProcess } from '../support/processes.ts'

it('log lines name the trace they belong to, and what has not been sent yet is sent at the end', async () => {
  const { url } = await createDatabase()
  const receiver = await startReceiver()
  const web = startProcess('src/api/main.ts', [], {
    ...testEnv(url),
    PORT: '0',
    LOG_LEVEL: 'debug',
    OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: `${receiver.url}/v1/traces`,
    OTEL_BSP_SCHEDULE_DELAY: '600000',
  })
  const { address } = await web.waitForLine(({ msg }) => msg === 'ready')
  const { port } = (address as { port: number }[])[0]!
  const trace = 'a'.repeat(32)
  const answer = await fetch(`http://127.0.0.1:${port}/health?canary`, {
    headers: { traceparent: `00-${trace}-${'b'.repeat(16)}-01` },
  })
  expect(answer.status).toBe(200)
  const line = await web.waitForLine(({ msg, path }) => msg === 'request' && path === '/health')
  expect(line).toMatchObject({ trace_id: trace, span_id: expect.stringMatching(/^[0-9a-f]{16}$/) })
  expect(web.lines.find(({ msg }) => msg === 'ready')).not.toHaveProperty('trace_id')

  expect(receiver.spans).toEqual([])
  expect(await web.kill()).toEqual({ code: 0, signal: null })
  expect(receiver.spans.filter(({ traceId }) => traceId === trace)).toMatchObject([
    { name: 'GET /health', spanId: line.span_id, parentSpanId: 'b'.repeat(16) },
  ])
  expect(receiver.bodies.join()).not.toContain('canary')
})
