import pg from 'pg'
import { beforeAll, expect, it } from 'vitest'
import { openAccessStore, readRules } from '../../src/access/store.ts'
import { openCatalog } from '../../src/catalog/store.ts'
import type { Reader } from '../../src/db/sql.ts'
import { type Api, startApi } from '../support/api.ts'
import { connect } from '../support/socket.ts'
import { waitFor } from '../support/wait.ts'

/** What a process keeps of roles, permissions, collections and callers is never older than its last notice of a change. */

let api: Api

beforeAll(async () => {
  api = await startApi({ SOCKET_ENABLED: 'true' })
})

/** A connection on which the next statement that reads `table` is answered, but the answer not handed out before `release`. */
function holding(db: Reader, table: string) {
  const held = Promise.withResolvers<void>()
  const released = Promise.withResolvers<void>()
  let isNext = false
  const any: Reader['any'] = async (query) => {
    const isHeld = isNext && query.text.includes(`"${table}"`)
    if (isHeld) isNext = false
    const rows = await db.any<never>(query)
    if (!isHeld) return rows
    held.resolve()
    await released.promise
    return rows
  }
  const reader: Reader = { any, one: (query) => db.one(query), maybeOne: (query) => db.maybeOne(query) }
  const holdNext = () => {
    isNext = true
  }
  return { reader, holdNext, held: held.promise, release: () => released.resolve() }
}

it('a permission that is taken away does not come back by a reading that began before', async () => {
  const { reserved, catalog, listener, log } = api.runtime
  const { roleId } = await api.user()
  const rule = { role_Id: roleId, collection: 'svc_Tasks', action: 'read', fields: '*' }
  const { id } = (await api.admin('POST', '/permissions', rule)).body
  const { reader, holdNext, held, release } = holding(reserved, 'svc_Permission')
  const access = await openAccessStore(reader, catalog, listener, log, 3600)
  const permissions = () => access.current().permissions.get(roleId) ?? []
  expect(permissions()).toHaveLength(1)
  holdNext()
  const before = access.reloadIfStale()
  await held
  expect((await api.admin('DELETE', `/permissions/${id}`)).status).toBe(204)
  const after = access.reload()
  // A second reader would have all by now.
  await Promise.race([after, readRules(reserved, catalog.current(), 0)])
  release()
  await Promise.all([before, after])
  expect(permissions()).toEqual([])
})

it('new rules that nobody waits for are told to nobody where they are as before', async () => {
  const { reserved, catalog, listener, log } = api.runtime
  const access = await openAccessStore(reserved, catalog, listener, log, 3600)
  let changes = 0
  access.onChange(() => {
    changes += 1
  })
  const { version } = access.current()
  await access.reloadIfStale()
  expect([changes, access.current().version]).toEqual([0, version])
  await access.reload()
  expect([changes, access.current().version > version]).toEqual([1, true])
})

it('a change of a collection is seen that began before another one and was committed after it', async () => {
  for (const collectionName of ['early', 'late']) {
    const schema = { fields: { name: { type: 'String' } } }
    expect((await api.admin('POST', '/schemas', { collectionName, schema })).status).toBe(201)
  }
  const catalog = await openCatalog(api.runtime.reserved, undefined, api.runtime.log)
  const isSeen = (name: string) => catalog.current().collections.get(name)!.fields.has('note')
  const addNote = `update "svc_SchemaDefinition"
    set schema = jsonb_set(schema::jsonb, '{fields,note}', '{"type": "String"}') where "collectionName" = $1`
  const client = new pg.Client({ connectionString: api.database.url })
  await client.connect()
  try {
    await client.query('begin')
    await client.query(addNote, ['early'])
    await api.sql(addNote, ['late'])
    await catalog.reloadIfStale()
    expect([isSeen('early'), isSeen('late')]).toEqual([false, true])
    await client.query('commit')
    await catalog.reloadIfStale()
    expect([isSeen('early'), isSeen('late')]).toEqual([true, true])
  } finally {
    await client.end()
  }
})

it('a socket has the rights of its last check, though one that began before ends after it', async () => {
  const schema = { fields: { name: { type: 'String' } } }
  expect((await api.admin('POST', '/schemas', { collectionName: 'watched', schema })).status).toBe(201)
  const user = await api.user([{ collection: 'watched', action: 'read' }])
  const other = await api.user()
  const client = await connect(await api.app.listen({ host: '127.0.0.1', port: 0 }), user.token)
  expect(await client.subscribe('watched')).toMatchObject({ status: 'success' })
  const { sessions } = api.runtime
  const { find } = sessions
  const held = Promise.withResolvers<void>()
  const released = Promise.withResolvers<void>()
  Object.assign(sessions, {
    find: async (sessionToken: string) => {
      Object.assign(sessions, { find })
      const session = await find(sessionToken)
      held.resolve()
      await released.promise
      return session
    },
  })
  await sessions.ended([`user:${user.id}`])
  await held.promise
  await api.sql('update "svc_UserRole" set "role_Id" = $2 where "user_Id" = $1', [user.id, other.roleId])
  await sessions.ended([`user:${user.id}`])
  // A second check would have its answer by now.
  await find(user.token)
  released.resolve()
  await waitFor(() => client.notices.some(({ name }) => name === 'unsubscribed'))
  expect(await client.subscribe('watched')).toMatchObject({ status: 'error', code: 'FORBIDDEN' })
})
