import { once } from 'node:events'
import { get } from 'node:http'
import type { AddressInfo } from 'node:net'
import { beforeAll, describe, expect, it } from 'vitest'
import { logKeys } from '../../src/adapters/log-key.ts'
import { commit } from '../../src/events/commit.ts'
import { logDoors } from '../../src/events/log.ts'
import { sealPage, verifySealsOf } from '../../src/events/seals/seals.ts'
import { systemActor } from '../../src/events/types.ts'
import { type Answer, type Api, startApi } from '../support/api.ts'
import { waitFor } from '../support/wait.ts'

let api: Api
let reader: Awaited<ReturnType<Api['user']>>

beforeAll(async () => {
  api = await startApi()
  for (const name of ['paper', 'stone'])
    await api.admin('POST', '/schemas', {
      collectionName: name,
      schema: {
        fields: { title: { type: 'String' }, secret: { type: 'String', hidden: true }, later: { type: 'String' } },
      },
    })
  reader = await api.user([
    {
      collection: 'svc_AuditLog',
      action: 'read',
      fields: ['id', 'entity', 'entityId', 'action', 'createdAt'],
      conditions: { entity: { eq: 'paper' } },
    },
  ])
})

type Line = { cursor: string; position: string; entity: string; entityId: string; action: string; [more: string]: any }
const linesOf = ({ text }: Answer): Line[] =>
  text
    .split('\n')
    .filter(Boolean)
    .map((line) => JSON.parse(line))
const ask = (query: Record<string, string> = {}) => api.admin('GET', `/log/export?${new URLSearchParams(query)}`)
const create = async (name: string, title: string) =>
  (await api.admin('POST', `/items/${name}`, { title, secret: 's', later: 'canary' })).body.data.id as string
const stored = () => api.sql(`select position::text from "svc_AuditLog" e order by e.position`)

describe('GET /log/export', () => {
  it('is the whole log, and goes on from any line and from its end', async () => {
    for (let i = 0; i < 8; i += 1) await create('paper', `p${i}`)
    const answer = await ask()
    expect(answer).toMatchObject({ status: 200, headers: { 'content-type': 'application/x-ndjson; charset=utf-8' } })
    const all = linesOf(answer)
    expect(all.map(({ position }) => ({ position }))).toEqual(await stored())
    const rest = linesOf(await ask({ since: all.at(-4)!.cursor }))
    expect(rest.map(({ position }) => position)).toEqual(all.slice(-3).map(({ position }) => position))
    const end = String(answer.headers['x-log-cursor'])
    expect(linesOf(await ask({ since: end }))).toEqual([])
    const id = await create('stone', 'new')
    for (const since of [end, all.at(-1)!.cursor]) {
      const [line, ...none] = linesOf(await ask({ since }))
      expect(line).toMatchObject({
        entity: 'stone',
        entityId: id,
        action: 'create',
        changes: { after: { title: 'new', secret: null } },
      })
      expect(none).toEqual([])
    }
  })

  it('filters by collection, action, actor, tenant and time', async () => {
    const before = new Date().toISOString()
    const id = await create('stone', 'filtered')
    await api.admin('PATCH', `/items/stone/${id}`, { title: 'other' })
    const [{ userId }] = linesOf(await ask({ collection: 'stone', from: before })) as [Line]
    const actions = async (query: Record<string, string>) =>
      linesOf(await ask({ from: before, ...query })).map(({ entity, action }) => `${action} ${entity}`)
    expect(await actions({ collection: 'stone,paper' })).toEqual(['create stone', 'update stone'])
    expect(await actions({ collection: 'stone', action: 'update' })).toEqual(['update stone'])
    expect(await actions({ actor: userId, action: 'create' })).toEqual(['create stone'])
    expect(await actions({ actor: reader.id })).toEqual([])
    expect(await actions({ tenant: reader.id })).toEqual([])
    expect(await actions({ to: before })).toEqual([])
  })

  it('has what is hidden today as null, also in the past', async () => {
    const id = await create('paper', 'p')
    const { schema } = (await api.admin('GET', '/schemas/paper')).body.data
    const fields = { ...schema.fields, later: { type: 'String', hidden: true } }
    await api.admin('PATCH', '/schemas/paper', { schema: { ...schema, fields } })
    const line = linesOf(await ask({ collection: 'paper' })).find(({ entityId }) => entityId === id)!
    expect(line.changes.after).toMatchObject({ title: 'p', secret: null, later: null })
  })

  it('gives others what they were granted of the log, and nothing without a grant', async () => {
    const { call } = reader
    const answer = await call('GET', '/log/export')
    expect(answer).toMatchObject({ status: 200 })
    const seen = linesOf(answer)
    expect(seen.length).toBeGreaterThan(5)
    expect(new Set(seen.map(({ entity }) => entity))).toEqual(new Set(['paper']))
    expect(new Set(seen.flatMap(Object.keys))).toEqual(
      new Set(['cursor', 'position', 'id', 'entity', 'entityId', 'action', 'createdAt']),
    )
    const other = await api.user()
    expect((await other.call('GET', '/log/export')).status).toBe(403)
    expect((await api.anonymous('GET', '/log/export')).status).toBe(401)
    expect((await other.call('GET', '/log/head')).status).toBe(403)
  })

  it.each([
    ['actor', 'userId', '0198c0de-7a11-7cc1-9f3a-5d1f0c2b7e44'],
    ['tenant', 'tenant_Id', '0198c0de-7a11-7cc1-9f3a-5d1f0c2b7e44'],
    ['collection', 'entity', 'paper'],
    ['action', 'action', 'create'],
    ['from', 'createdAt', '2026-03-14T09:26:53Z'],
    ['to', 'createdAt', '2026-03-14T09:26:53Z'],
  ])('refuses %s to those who may not read %s', async (filter, field, value) => {
    const readerOfFields = async (...fields: string[]) =>
      (await api.user([{ collection: 'svc_AuditLog', action: 'read', fields }])).call
    const refused = await (await readerOfFields('id', 'type'))('GET', `/log/export?${filter}=${value}`)
    expect(refused).toMatchObject({
      status: 403,
      body: { error: { message: `You don't have permission to read field: ${field}` } },
    })
    const call = await readerOfFields('id', field)
    expect((await call('GET', `/log/export?${filter}=${value}`)).status).toBe(200)
  })

  it.each([
    ['since=nonsense', 'INVALID_CURSOR'],
    ['from=yesterday', 'BAD_QUERY'],
    ['actor=me', 'BAD_QUERY'],
    ['tenant=1', 'BAD_QUERY'],
  ])('refuses %s', async (query, code) => {
    const { status, body } = await api.admin('GET', `/log/export?${query}`)
    expect([status, body.error.code]).toEqual([400, code])
  })

  it('answers 410 where retention has removed what the cursor has not seen', async () => {
    const since = linesOf(await ask())[3]!.cursor
    const end = String((await ask()).headers['x-log-cursor'])
    await api.sql(`${logDoors.retention} update svc_log.floor set removed = pg_current_xact_id()`)
    expect((await ask({ since: end })).status).toBe(410)
    // From the beginning of what is kept: it was never told that there was more.
    expect((await ask({ since })).status).toBe(200)
  })

  it('is read as its client reads, and ends with it', async () => {
    await api.sql(`insert into "svc_AuditLog" (entity, action, changes)
      select 'bulk', 'create', jsonb_build_object('after', jsonb_build_object('text', repeat('x', 4000))) from generate_series(1, 4000)`)
    await api.app.listen({ port: 0, host: '127.0.0.1' })
    const { port } = api.app.server.address() as AddressInfo
    const { token } = (
      await api.anonymous('POST', '/auth/login', {
        email: 'admin@example.com',
        password: 'correct horse battery staple',
      })
    ).body
    const heavy = () => api.runtime.admission.stats().running.heavy
    const request = get({ port, path: '/log/export', headers: { authorization: `Bearer ${token}` } })
    const [response] = await once(request, 'response')
    await once(response, 'readable')
    response.read(1000)
    expect(heavy()).toBe(1)
    // Nothing is open in the database while the client does not read.
    await waitFor(async () => {
      const [row] = await api.sql(
        `select count(*)::int from pg_stat_activity where state <> 'idle' and query like '%with looked%' and pid <> pg_backend_pid()`,
      )
      return row.count === 0
    })
    request.destroy()
    await waitFor(async () => heavy() === 0)
    expect(linesOf(await ask({ collection: 'bulk' }))).toHaveLength(4000)
  })
})

describe('the seals of an installation', () => {
  it('stay provable when an item is erased through the API', async () => {
    const { keys } = logKeys(api.runtime.config)
    expect((await api.admin('GET', '/log/head')).status).toBe(404)
    const id = await create('stone', 'personal')
    const positions = await api.sql(
      `select position::text as position, to_char("createdAt" at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as "createdAt",
         pg_current_snapshot()::text as now from "svc_AuditLog" e order by e.position desc limit 200`,
    )
    const events = positions.reverse()
    const round = { from: events[0].now, upTo: events[0].now }
    await commit(api.runtime, systemActor, async (tx) => {
      await sealPage(tx, keys!, { events, round, isRetry: false })
      return { result: null }
    })
    const head = (await api.admin('GET', '/log/head')).body.data
    const { keys: named, ...present } = (await api.anonymous('GET', '/.well-known/daybook-log-key')).body.data
    expect(present).toEqual({ algorithm: 'Ed25519', key: head.key, publicKey: head.publicKey })
    expect(named).toMatchObject([{ id: head.key, ours: true }])
    expect((await api.admin('DELETE', `/items/stone/${id}/history`)).body).toEqual({ data: { events: 1 } })
    const { userId } = linesOf(await ask({ collection: 'stone' })).at(-1)!
    await api.admin('DELETE', `/items/svc_User/${userId}/history`)
    const result = await verifySealsOf(api.runtime.config, { keys: [], heads: [head] })
    expect(result).toMatchObject({ found: 0, verified: 200, heads: { compared: 1 } })
    expect(result.erased).toBeGreaterThan(1)
  })
})
