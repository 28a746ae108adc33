import { beforeAll, describe, expect, it } from 'vitest'
import { type Api, startApi } from '../support/api.ts'
import { administrator } from '../support/prepare.ts'
import { connect } from '../support/socket.ts'
import { waitFor } from '../support/wait.ts'

let api: Api
let address: string
let token: string
let user: Awaited<ReturnType<Api['user']>>

const allActions = ['insert', 'update', 'delete']

beforeAll(async () => {
  api = await startApi({ SOCKET_ENABLED: 'true' })
  address = await api.app.listen({ host: '127.0.0.1', port: 0 })
  token = (await api.anonymous('POST', '/auth/login', administrator)).body.token
  await api.admin('POST', '/schemas', { collectionName: 'note', schema: { fields: { text: { type: 'String' } } } })
  await api.admin('POST', '/schemas', {
    collectionName: 'silent',
    schema: { realtime: false, fields: { text: { type: 'String' } } },
  })
  user = await api.user([{ collection: 'note', action: 'read', fields: '*' }])
})

const call = (method: string, path: string, body?: unknown) => api.admin(method, `/realtime${path}`, body)

describe('permission to ask', () => {
  it.each([
    ['GET', '/status'],
    ['GET', '/config'],
    ['GET', '/collections'],
    ['GET', '/collections/note'],
    ['POST', '/collections/note/enable'],
    ['POST', '/collections/note/disable'],
    ['PATCH', '/collections/note'],
    ['POST', '/reload'],
    ['POST', '/initialize'],
  ])('%s /realtime%s is for administrators', async (method, path) => {
    const body = method === 'GET' ? undefined : {}
    expect((await api.anonymous(method, `/realtime${path}`, body)).status).toBe(401)
    const refused = await user.call(method, `/realtime${path}`, body)
    expect(refused.status).toBe(403)
    expect(refused.body.error.message).toBe('Access denied. Administrators only.')
  })
})

describe('GET /realtime/status', () => {
  it('tells how this process follows the log', async () => {
    await waitFor(async () => (await call('GET', '/status')).body.data.connected)
    const { status, body } = await call('GET', '/status')
    expect(status).toBe(200)
    expect(body.data).toEqual({
      initialized: true,
      connected: true,
      walAvailable: true,
      isWalLeader: true,
      enabledCollections: expect.arrayContaining([
        { collection: 'note', config: { enabled: true, actions: allActions } },
        { collection: 'svc_Notification', config: { enabled: true, actions: allActions } },
      ]),
      publicationName: 'svc_realtime',
      slotName: expect.stringMatching(/^svc_realtime_/),
      replicationConfig: {
        walLevel: 'logical',
        maxReplicationSlots: expect.any(Number),
        maxWalSenders: expect.any(Number),
        isConfigured: true,
        issues: [],
      },
    })
    const slots = await api.sql('select temporary from pg_replication_slots where slot_name = $1', [body.data.slotName])
    expect(slots).toEqual([{ temporary: true }])
    expect((await call('GET', '/config')).body.data).toEqual(body.data.replicationConfig)
    expect((await call('GET', '/collections')).body.data).toEqual(body.data.enabledCollections)
  })

  it('says that the channel is off where it is, and what is wrong with the server', async () => {
    const off = await startApi({ SOCKET_ENABLED: 'false' }, api.database)
    await api.sql('drop publication svc_realtime')
    const { body } = await off.admin('GET', '/realtime/status')
    await api.sql(
      'create publication svc_realtime for table "svc_AuditLog" with (publish_via_partition_root, publish = insert)',
    )
    expect(body.data).toMatchObject({ initialized: false, connected: false, isWalLeader: false, slotName: null })
    expect(body.data.replicationConfig).toMatchObject({
      isConfigured: false,
      issues: ['the publication svc_realtime does not exist'],
    })
    const refused = await off.admin('POST', '/realtime/initialize')
    expect([refused.status, refused.body]).toEqual([
      400,
      { error: 'The realtime channel is off: set SOCKET_ENABLED=true', code: 'BAD_REQUEST' },
    ])
  })

  it('reload and initialize answer it', async () => {
    const status = { initialized: true, publicationName: 'svc_realtime' }
    expect((await call('POST', '/reload')).body.data).toMatchObject({ message: expect.any(String), status })
    expect((await call('POST', '/initialize')).body.data).toMatchObject({ message: expect.any(String), status })
  })
})

describe('the setting of a collection', () => {
  it('is switched on and off through its definition, with an event, and subscriptions follow', async () => {
    expect((await call('GET', '/collections/silent')).body.data).toEqual({
      collection: 'silent',
      enabled: false,
      config: null,
    })
    const before = await api.position()
    const enabled = await call('POST', '/collections/silent/enable', { actions: ['delete', 'insert'] })
    expect([enabled.status, enabled.body.data]).toEqual([
      200,
      {
        message: 'Realtime enabled for collection: silent',
        collection: 'silent',
        config: { enabled: true, actions: ['insert', 'delete'] },
        replicaIdentityFull: false,
        walAvailable: expect.any(Boolean),
      },
    ])
    const events = (await api.log(before)).map(({ type, action, entityId }) => [
      type,
      action,
      type === 'data' ? '' : entityId,
    ])
    expect(events).toEqual([
      ['data', 'update', ''],
      ['schema', 'changed', 'silent'],
    ])
    const client = await connect(address, token)
    expect(await client.subscribe('silent')).toMatchObject({ status: 'success' })
    const id = (await api.admin('POST', '/items/silent', { text: 'a' })).body.data.id
    await api.admin('PATCH', `/items/silent/${id}`, { text: 'b' })
    await api.admin('DELETE', `/items/silent/${id}`)
    await client.frame(({ action }) => action === 'delete')
    expect(client.frames.map(({ action }) => action)).toEqual(['create', 'delete'])
    expect((await call('POST', '/collections/silent/disable')).body.data).toEqual({
      message: 'Realtime disabled for collection: silent',
      collection: 'silent',
    })
    await waitFor(() =>
      client.notices.some(({ name, body }) => name === 'unsubscribed' && body.collection === 'silent'),
    )
    expect(await client.subscribe('silent')).toMatchObject({ status: 'error' })
  })

  it('keeps replicaIdentityFull, and lets its actions be changed', async () => {
    await call('POST', '/collections/silent/enable', { replicaIdentityFull: true })
    const changed = await call('PATCH', '/collections/silent', { actions: ['update'] })
    expect(changed.body.data).toEqual({
      message: 'Realtime configuration updated for collection: silent',
      collection: 'silent',
      config: { enabled: true, actions: ['update'], replicaIdentityFull: true },
    })
    expect((await call('GET', '/collections/silent')).body.data).toMatchObject({
      enabled: true,
      config: changed.body.data.config,
    })
    const { schema } = (await api.admin('GET', '/schemas/silent')).body.data
    expect(schema.realtime).toEqual(changed.body.data.config)
    await call('POST', '/collections/silent/disable')
  })

  it.each([
    [
      'POST',
      '/collections/note/enable',
      { actions: ['insert', 'truncate'] },
      'Invalid action: truncate. Valid actions are: insert, update, delete',
    ],
    ['POST', '/collections/note/enable', { actions: 'insert' }, 'actions is required and must be an array'],
    ['PATCH', '/collections/note', {}, 'actions is required and must be an array'],
    ['PATCH', '/collections/note', { actions: ['*'] }, 'Invalid action: *. Valid actions are: insert, update, delete'],
    ['PATCH', '/collections/silent', { actions: ['insert'] }, 'Realtime is not enabled for collection: silent'],
    ['POST', '/collections/note/enable', { replicaIdentityFull: 'yes' }, 'replicaIdentityFull must be a boolean'],
  ])('%s /realtime%s with %j answers 400', async (method, path, body, error) => {
    const before = await api.position()
    const answer = await call(method, path, body)
    expect([answer.status, answer.body]).toEqual([400, { error, code: 'BAD_REQUEST' }])
    expect(await api.position()).toBe(before)
  })

  it.each(['nowhere', '__proto__', 'pgboss.job', 'job'])('of %s answers 404', async (name) => {
    for (const [method, path] of [
      ['GET', ''],
      ['POST', '/enable'],
      ['POST', '/disable'],
      ['PATCH', ''],
    ] as const) {
      const answer = await call(method, `/collections/${name}${path}`, method === 'GET' ? undefined : { actions: [] })
      expect(answer.status).toBe(404)
      expect(answer.body.error.message).toBe(`Collection ${name} not found`)
    }
  })

  it.each(['svc_Sessions', 'svc_Verification', 'svc_TwoFactor', 'svc_Passkey', 'svc_ApiKey', 'svc_AuditLog'])(
    'of %s is never on',
    async (name) => {
      expect((await call('POST', `/collections/${name}/enable`)).status).toBe(403)
      const { schema } = (await api.admin('GET', `/schemas/${name}`)).body.data
      expect((await api.admin('PATCH', `/schemas/${name}`, { schema: { ...schema, realtime: true } })).status).toBe(403)
      await api.sql(
        `update "svc_SchemaDefinition" set schema = schema || '{"realtime": true}' where "collectionName" = $1`,
        [name],
      )
      await call('POST', '/reload')
      const client = await connect(address, token)
      expect(await client.subscribe(name)).toMatchObject({ status: 'error' })
      expect((await call('GET', `/collections/${name}`)).body.data.enabled).toBe(false)
    },
  )

  it('is refused for a table that has lost its primary key', async () => {
    await api.sql('alter table silent drop constraint silent_pkey')
    const answer = await call('POST', '/collections/silent/enable')
    expect([answer.status, answer.body]).toEqual([
      400,
      { error: 'Collection silent has no primary key', code: 'BAD_REQUEST' },
    ])
  })
})
