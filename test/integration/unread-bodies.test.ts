import { beforeAll, describe, expect, it } from 'vitest'
import { type Api, startApi } from '../support/api.ts'
import { migrationsDir } from '../support/migrations.ts'

/** Routes that act on everything unless the body says otherwise take no body that they cannot read for none (docs/requests.md). */

let api: Api

beforeAll(async () => {
  const dir = migrationsDir()
  dir.write('20240101_a.ts', 'throw new Error("nothing is to be loaded")')
  api = await startApi({ MIGRATIONS_DIR: dir.path })
  await api.admin('POST', '/schemas', { collectionName: 'note', schema: { fields: { title: { type: 'String' } } } })
})

const routes = [
  ['POST', '/migrations/run', 'dryRun'],
  ['POST', '/migrations/mark-all-completed', 'toVersion'],
  ['POST', '/migrations/mark-completed/20240101_a', 'metadata'],
  ['POST', '/migrations/rollback-batch', 'reason'],
  ['POST', '/migrations/rollback/20240101_a', 'reason'],
  ['POST', '/notifications/mark-seen', 'notificationIds'],
  ['DELETE', '/notifications', undefined],
  ['POST', '/notifications/cleanup', 'days'],
  ['POST', '/ops/consumers/cache-invalidation/retry', 'position'],
  ['POST', '/ops/consumers/cache-invalidation/forget', 'position'],
  ['POST', '/workflows/w/executions/0198c0de-7a11-7cc1-9f3a-5d1f0c2b7e44/retry', undefined],
  ['POST', '/realtime/collections/note/enable', 'actions'],
] as const

const json = { 'content-type': 'application/json' }

describe.each(routes)('%s %s', (method, path, member) => {
  it.each(['[]', '"x"', '5', 'true', '[{"dryRun":true}]'])('refuses %s', async (body) => {
    const before = await api.position()
    const answer = await api.admin(method, path, body, json)
    expect([answer.status, answer.text]).toEqual([400, expect.stringContaining('Request body must be an object')])
    expect(await api.log(before)).toEqual([])
  })

  it('refuses members that it does not know, other types, and members of the body in the query', async () => {
    const before = await api.position()
    const unknown = await api.admin(method, path, { dry_run: true })
    expect([unknown.status, unknown.text]).toEqual([400, expect.stringContaining('has no member')])
    const text = await api.admin(method, path, '{"dryRun":true}', { 'content-type': 'text/plain' })
    expect(text.status).toBe(415)
    if (member !== undefined) expect((await api.admin(method, `${path}?${member}=1`)).status).toBe(400)
    expect(await api.log(before)).toEqual([])
  })
})

describe('a route that needs members', () => {
  it('refuses a body that is no object for what it lacks', async () => {
    const answer = await api.anonymous('POST', '/auth/login', '[]', json)
    expect([answer.status, answer.body.message]).toEqual([400, 'Email and password are required'])
  })
})
