import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { freePort } from '../../src/db/embedded/embedded.ts'
import { type Cluster, startCluster } from '../support/cluster.ts'
import { waitFor } from '../support/wait.ts'

let cluster: Cluster
const dir = mkdtempSync(join(tmpdir(), 'daybook-receivers-'))
const children: ChildProcess[] = []

beforeAll(async () => {
  const env = { SSRF_ALLOW_PRIVATE_URL_FETCH: 'true' }
  cluster = await startCluster({ workers: ['webhooks'], env })
  const fields = { id: { type: 'Integer', primaryKey: true }, n: { type: 'Integer' } }
  const { status } = await cluster.web[0]!.call('POST', '/schemas', { collectionName: 'thing', schema: { fields } })
  expect(status).toBe(201)
})

afterAll(() => {
  for (const child of children) child.kill()
  rmSync(dir, { recursive: true })
})

const make = async (url: string): Promise<{ id: string; secret: string }> => {
  const { status, body } = await cluster.web[0]!.call('POST', '/webhooks', { name: 'w', url, collections: ['thing'] })
  expect(status).toBe(201)
  return body.data
}

it('a webhook to ourselves comes to an end', async () => {
  const [web] = cluster.web
  // What a delivery calls id is no field of it.
  const serial = { type: 'Integer', primaryKey: true, defaultValue: { type: 'AUTOINCREMENT' } }
  const fields = { number: serial, note: { type: 'String', allowNull: true } }
  expect((await web!.call('POST', '/schemas', { collectionName: 'looped', schema: { fields } })).status).toBe(201)
  const [{ id: role_Id }] = await cluster.sql(`select id from "svc_Role" where name = 'public'`)
  const grant = { role_Id, collection: 'looped', action: 'create', fields: ['*'] }
  expect((await web!.call('POST', '/permissions', grant)).status).toBe(201)
  const hook = { name: 'loop', url: `${web!.address}/items/looped`, collections: ['looped'] }
  const { id } = (await web!.call('POST', '/webhooks', hook)).body.data
  await web!.call('POST', '/items/looped', {})
  const refused = await waitFor(async () => {
    const { data } = (await web!.call('GET', `/webhooks/${id}/deliveries`)).body
    return data.find((delivery: any) => delivery.responseStatus === 409)
  })
  expect(refused.response).toContain('WEBHOOK_LOOP')
  const depths = await cluster.sql(
    `select coalesce((cause->>'depth')::int, 0) as depth from "svc_AuditLog" where entity = 'looped' and type = 'data' order by position`,
  )
  expect(depths.map(({ depth }) => depth)).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8])
  await web!.call('DELETE', `/webhooks/${id}`)
})

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
