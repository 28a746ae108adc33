import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { freePort } from '../../src/db/embedded/free-port.ts'
import { type Cluster, startCluster } from '../support/cluster.ts'
import { startReceiver, verified } from '../support/receiver.ts'
import { waitFor } from '../support/wait.ts'

let cluster: Cluster
const dir = mkdtempSync(join(tmpdir(), 'daybook-receivers-'))
const children: ChildProcess[] = []

beforeAll(async () => {
  const env = { SSRF_ALLOW_PRIVATE_URL_FETCH: 'true' }
  cluster = await startCluster({ workers: ['webhooks', 'webhooks'], env })
  const fields = { id: { type: 'Integer', primaryKey: true }, n: { type: 'Integer' } }
  const { status } = await cluster.web[0]!.call('POST', '/schemas', { collectionName: 'thing', schema: { fields } })
  expect(status).toBe(201)
}, 120_000)

afterAll(() => {
  for (const child of children) child.kill()
  rmSync(dir, { recursive: true })
})

const make = async (url: string): Promise<{ id: string; secret: string }> => {
  const { status, body } = await cluster.web[0]!.call('POST', '/webhooks', { name: 'w', url, collections: ['thing'] })
  expect(status).toBe(201)
  return body.data
}

it('each change arrives once per id, though the workers are killed and frozen meanwhile', async () => {
  const receiver = await startReceiver()
  const { secret, id } = await make(receiver.url)
  let written = 0
  let areOver = false
  const write = async () => {
    while (!areOver || written < 300) {
      written += 1
      const i = written
      // A backlog would only take time.
      await waitFor(() => receiver.accepted.length > written - 150, { timeout: 60_000 })
      await cluster.sql('insert into thing (id, n) values ($1, 0)', [i])
      if (i % 3 === 0) await cluster.sql('update thing set n = n + 1 where id = $1', [i])
    }
  }
  const blows = async () => {
    for (const worker of [0, 1, 0]) {
      const before = receiver.accepted.length
      await waitFor(() => receiver.accepted.length > before + 20, { timeout: 60_000 })
      await cluster.workers[worker]!.kill('SIGKILL')
      await cluster.workers[worker]!.restart()
    }
    areOver = true
  }
  await Promise.all([write(), blows()])
  // A worker that hangs for longer than its lease is succeeded, and changes nothing when it goes on.
  const holder = async () =>
    Number((await cluster.sql(`select holder from svc_log.consumer where token is not null`))[0]?.holder)
  const frozen = await waitFor(async () => {
    const pid = await holder()
    return cluster.workers.find((worker) => worker.pid === pid)
  })
  frozen.freeze()
  await cluster.sql('update thing set n = n + 1 where id <= 50 and id % 3 <> 0')
  await waitFor(async () => ![frozen.pid, Number.NaN].includes(await holder()), { timeout: 30_000 })
  frozen.thaw()
  const [{ n }] = await cluster.sql(`select count(*)::int as n from "svc_AuditLog" where entity = 'thing'`)
  const ids = () => new Set(receiver.accepted.map((one) => one.id))
  await waitFor(() => ids().size >= n, { timeout: 60_000 })
  expect(ids().size).toBe(n)
  expect(new Set(receiver.accepted.map(({ body }) => body.position)).size).toBe(n)
  for (const one of receiver.accepted) verified(one, secret)
  // Per record in order: of what was accepted first under each id, a create comes before its update.
  const first = [...new Map([...receiver.accepted].reverse().map((one) => [one.id, one])).values()].reverse()
  for (let i = 3; i <= written; i += 3)
    expect(first.filter(({ body }) => body.id === i).map(({ body }) => body.action)).toEqual(['create', 'update'])
  expect(await cluster.sql('select * from svc_log.set_aside')).toEqual([])
  await cluster.web[0]!.call('DELETE', `/webhooks/${id}`)
  await receiver.close()
}, 180_000)

describe('the receiver of the documentation', () => {
  const hasPython = (() => {
    try {
      execFileSync('python3', ['--version'])
      return true
    } catch {
      return false
    }
  })()

  it.each([
    ['node', process.execPath, 'receiver.mjs', true],
    ['python', 'python3', 'receiver.py', hasPython],
  ])(
    'in %s accepts what is signed, and nothing else',
    async (name, command, file, isThere) => {
      if (!isThere) return
      const [, code] = new RegExp(`<!-- receiver: ${name} -->\\n\`\`\`\\w+\\n(.*?)\`\`\``, 's').exec(
        readFileSync('docs/webhooks.md', 'utf8'),
      )!
      writeFileSync(join(dir, file), code!)
      const port = await freePort()
      const { id, secret } = await make(`http://127.0.0.1:${port}/`)
      const child = spawn(command, [join(dir, file)], {
        env: { PATH: process.env.PATH, PORT: String(port), WEBHOOK_SECRET: secret },
        stdio: ['ignore', 'pipe', 'inherit'],
      })
      children.push(child)
      let printed = ''
      child.stdout.on('data', (chunk) => {
        printed += chunk
      })
      await waitFor(
        async () =>
          (await fetch(`http://127.0.0.1:${port}/`, { method: 'POST', body: '{}', headers: unsigned })).status === 401,
      )
      await cluster.sql('delete from thing')
      await cluster.sql('insert into thing (id, n) values (1, 7)')
      await waitFor(() => printed.includes('"action":"create","id":1'))
      await cluster.web[0]!.call('DELETE', `/webhooks/${id}`)
      await cluster.sql('delete from thing')
    },
    60_000,
  )

  const unsigned = { 'webhook-id': 'x', 'webhook-timestamp': '1', 'webhook-signature': 'v1,no' }
})
