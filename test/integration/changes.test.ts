import { beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { logDoors } from '../../src/events/log.ts'
import { type Api, type Call, startApi } from '../support/api.ts'
import { type Change, pull, pullAll } from '../support/changes.ts'
import { createRole, createTenant, createUser, grant } from '../support/tenants.ts'

let api: Api

beforeAll(async () => {
  api = await startApi()
  await api.admin('POST', '/schemas', {
    collectionName: 'team',
    schema: { fields: { name: { type: 'String' } } },
  })
  await api.admin('POST', '/schemas', {
    collectionName: 'doc',
    schema: {
      fields: {
        text: { type: 'String' },
        kind: { type: 'String' },
        price: { type: 'Decimal' },
        big: { type: 'BigInt' },
        secret: { type: 'String', hidden: true },
        owner: { type: 'String' },
        team: { relType: 'BelongsTo', target: 'team', foreignKey: 'team_Id' },
      },
    },
  })
  await api.admin('POST', '/schemas', {
    collectionName: 'soft',
    schema: { paranoid: true, fields: { text: { type: 'String' } } },
  })
})

const now = async (call: Call = api.admin): Promise<string> => (await pull(call, {})).body.cursor
const create = async (collection: string, row: object): Promise<string> =>
  (await api.admin('POST', `/items/${collection}`, row)).body.data.id
const told = ({ data }: { data: Change[] }) => data.map(({ action, id }) => [action, id])

describe('GET /changes', () => {
  it('answers where now is, then everything after it, as a read shows it', async () => {
    const start = await pull(api.admin, {})
    expect(start.body).toEqual({ data: [], cursor: expect.any(String), hasMore: false, resync: [] })
    const id = await create('doc', { text: 'a', price: '1.10', big: '9007199254740993', secret: 'canary' })
    await api.admin('PATCH', `/items/doc/${id}`, { text: 'b' })
    await api.sql('update doc set text = $1 where id = $2', ['by hand', id])
    const stored = (await api.admin('GET', `/items/doc/${id}`)).body.data
    await api.admin('DELETE', `/items/doc/${id}`)
    const first = await pull(api.admin, { since: start.body.cursor })
    expect(first.body.data).toEqual([
      {
        collection: 'doc',
        action: 'create',
        id,
        data: expect.objectContaining({ text: 'a', price: '1.10', big: '9007199254740993' }),
        timestamp: expect.stringMatching(/Z$/),
        position: expect.stringMatching(/^\d+$/),
      },
      expect.objectContaining({ action: 'update', id, data: expect.objectContaining({ text: 'b' }) }),
      expect.objectContaining({ action: 'update', id, data: stored }),
      { collection: 'doc', action: 'delete', id, timestamp: expect.any(String), position: expect.any(String) },
    ])
    expect(first.text).not.toContain('canary')
    expect((await pull(api.admin, { since: first.body.cursor })).body.data).toEqual([])
  })

  it('follows the named collections, with the named fields', async () => {
    const since = await now()
    const team = await create('team', { name: 't' })
    const id = await create('doc', { text: 'x', kind: 'k' })
    const both = await pull(api.admin, { since, collections: 'doc,team', fields: 'doc.text,doc.kind,-doc.kind' })
    expect(both.body.data.map((change: Change) => [change.collection, change.id])).toEqual([
      ['team', team],
      ['doc', id],
    ])
    expect(both.body.data[1].data).toEqual({ text: 'x' })
    expect((await pull(api.admin, { since, collections: 'doc' })).body.data).toHaveLength(1)
  })

  it.each([
    [{ since: 'garbage' }, 400, 'Invalid cursor'],
    [{ since: Buffer.from('s/9:1:/x/0').toString('base64url') }, 400, 'Invalid cursor'],
    [{ collections: 'nowhere' }, 404, 'Model nowhere not found'],
    [{ collections: '__proto__' }, 404, 'Model __proto__ not found'],
    [{ collections: 'svc_AuditLog' }, 400, 'Invalid query parameters'],
    [{ collections: 'doc', fields: 'team.name' }, 400, 'Invalid query parameters'],
    [{ fields: 'text' }, 400, 'Invalid query parameters'],
    [{ fields: 'doc.nothing' }, 400, 'Invalid query parameters'],
    [{ fields: 'doc.team.name' }, 400, 'Invalid query parameters'],
    [{ fields: 'doc.secret' }, 403, "You don't have permission to read field: secret"],
    [{ limit: '0' }, 400, 'Invalid query parameters'],
    [{ limit: '1001' }, 400, 'Invalid query parameters'],
  ])('refuses %j', async (parameters, status, message) => {
    const answer = await pull(api.admin, parameters as unknown as Record<string, string>)
    expect([answer.status, answer.body.error.message]).toEqual([status, message])
  })

  it('pages through a round without taking in what is written meanwhile', async () => {
    const since = await now()
    const ids: string[] = []
    for (const text of ['1', '2', '3', '4', '5']) ids.push(await create('doc', { text }))
    const first = (await pull(api.admin, { since, collections: 'doc', limit: '2' })).body
    expect(first.hasMore).toBe(true)
    const later = await create('doc', { text: 'later' })
    const rest = await pullAll(api.admin, first.cursor, { collections: 'doc', limit: '2' })
    expect([...first.data, ...rest.data].map(({ id }: Change) => id)).toEqual(ids)
    expect(rest.pages).toBe(2)
    expect(told(await pullAll(api.admin, rest.cursor, { collections: 'doc' }))).toEqual([['create', later]])
  })

  it('goes on exactly after a list that was asked for its cursor', async () => {
    await create('doc', { text: 'before' })
    for (const query of ['', '&limit=2', '&limit=1&cursor=', '&count=true']) {
      const list = (await api.admin('GET', `/items/doc?changesCursor=true${query}`)).body
      const id = await create('doc', { text: 'after' })
      expect(told(await pullAll(api.admin, list.changesCursor, { collections: 'doc' }))).toEqual([['create', id]])
    }
    expect((await api.admin('GET', '/items/doc')).body).not.toHaveProperty('changesCursor')
    expect((await api.admin('GET', '/items/doc?changesCursor=perhaps')).status).toBe(400)
  })

  it('tells TRUNCATE as the deletion of every row', async () => {
    const kept = await create('soft', { text: 'kept' })
    const since = await now()
    await api.sql('truncate soft')
    expect(told(await pullAll(api.admin, since))).toEqual([['delete', kept]])
  })

  it('shows the past with the columns of today, and asks to read the collection again', async () => {
    await api.admin('POST', '/schemas', { collectionName: 'shape', schema: { fields: { old: { type: 'String' } } } })
    const since = await now()
    await create('shape', { old: 'o' })
    await api.admin('PATCH', '/schemas/shape?drop=true', {
      collectionName: 'shape',
      schema: { fields: { fresh: { type: 'Integer', defaultValue: 7 } } },
    })
    const { data, resync } = await pullAll(api.admin, since, { collections: 'shape,doc' })
    expect(Object.keys(data[0]!.data)).toContain('fresh')
    expect(data[0]!.data).not.toHaveProperty('old')
    expect(resync).toEqual(['shape'])
  })

  it('asks to read again where an event was erased', async () => {
    const since = await now()
    const id = await create('team', { name: 'forgotten canary' })
    await api.sql(`${logDoors.erase}
      update "svc_AuditLog" set changes = '{"erased": true}' where "entityId" = '${id}'`)
    const answer = await pull(api.admin, { since, collections: 'team,doc' })
    expect([answer.body.data, answer.body.resync]).toEqual([[], ['team']])
  })

  it('says how far back the history reaches when a cursor is older', async () => {
    const since = await now()
    const id = await create('doc', { text: 'gone' })
    // Transactions in other databases of the server hold the next cursors back, below a floor as high as this one.
    onTestFinished(async () => void (await api.sql(`update svc_log.floor set removed = '0'`)))
    await api.sql(`${logDoors.retention} begin;
      update svc_log.floor set removed = (select max(xid) from "svc_AuditLog" where "entityId" = '${id}');
      delete from "svc_AuditLog" where "entityId" = '${id}'; commit`)
    const answer = await pull(api.admin, { since })
    expect([answer.status, answer.body.error]).toEqual([
      410,
      {
        message: expect.stringMatching(/^The history begins at \d{4}-.*Z$/),
        code: 'HISTORY_GONE',
        details: { oldest: expect.stringMatching(/^\d{4}-.*Z$/) },
        statusCode: 410,
      },
    ])
  })
})

describe('changes that a caller may not see', () => {
  it('shows rows entering and leaving its part, and nothing of the others', async () => {
    const user = await api.user([
      { collection: 'doc', action: 'read', fields: 'text,kind', conditions: { kind: 'mine' } },
    ])
    const since = await now(user.call)
    const mine = await create('doc', { text: '1', kind: 'mine', owner: 'canary' })
    const other = await create('doc', { text: 'canary', kind: 'other' })
    await api.admin('PATCH', `/items/doc/${other}`, { text: 'canary 2' })
    await api.admin('PATCH', `/items/doc/${mine}`, { kind: 'other', text: 'canary 3' })
    await api.admin('PATCH', `/items/doc/${other}`, { kind: 'mine', text: 'now mine' })
    await api.admin('DELETE', `/items/doc/${mine}`)
    await api.admin('DELETE', `/items/doc/${other}`)
    const answer = await pull(user.call, { since })
    expect(answer.body.data.map(({ action, id, data }: Change) => [action, id, data])).toEqual([
      ['create', mine, { id: mine, text: '1', kind: 'mine' }],
      ['remove', mine, undefined],
      ['create', other, { id: other, text: 'now mine', kind: 'mine' }],
      ['delete', other, undefined],
    ])
    expect(answer.text).not.toContain('canary')
    expect((await pull(user.call, { since, collections: 'team' })).status).toBe(403)
    expect((await pull(user.call, { since, fields: 'doc.owner' })).status).toBe(403)
  })

  it('is nothing at all without a permission', async () => {
    const since = await now()
    await create('doc', { text: 'canary' })
    expect((await pull(api.anonymous, { since })).body).toMatchObject({ data: [], hasMore: false, resync: [] })
    expect((await pull(api.anonymous, { since, collections: 'doc' })).status).toBe(403)
  })

  it('hides soft deletion behind remove, and restoring behind create', async () => {
    const id = await create('soft', { text: 's' })
    const since = await now()
    await api.admin('DELETE', `/items/soft/${id}`)
    await api.sql('update soft set "deletedAt" = null where id = $1', [id])
    expect(told(await pullAll(api.admin, since, { collections: 'soft' }))).toEqual([
      ['remove', id],
      ['create', id],
    ])
  })
})

describe('resync', () => {
  it.each([
    [
      'a permission of its role',
      async (user: User) =>
        api.sql('update "svc_Permission" set fields = \'["text"]\' where "role_Id" = $1', [user.roleId]),
    ],
    [
      'its role',
      async (user: User) =>
        api.sql('update "svc_UserRole" set "role_Id" = "role_Id", "updatedAt" = now() where "user_Id" = $1', [user.id]),
    ],
  ])('tells that %s has changed', async (_what, change) => {
    const user = await api.user([{ collection: 'doc', action: 'read' }])
    const other = await api.user([{ collection: 'doc', action: 'read' }])
    const since = await now(user.call)
    await change(user)
    expect((await pull(user.call, { since })).body.resync).toEqual(['doc'])
    expect((await pull(other.call, { since })).body.resync).toEqual([])
    expect((await pull(user.call, { since: await now(user.call) })).body.resync).toEqual([])
  })

  it('names a collection that may no longer be read', async () => {
    const user = await api.user([{ collection: 'doc', action: 'read' }])
    const since = await now(user.call)
    const [permission] = await api.sql('select id from "svc_Permission" where "role_Id" = $1', [user.roleId])
    await api.admin('DELETE', `/permissions/${permission.id}`)
    await create('doc', { text: 'canary' })
    expect((await pull(user.call, { since })).body).toMatchObject({ data: [], resync: ['doc'] })
  })

  it('names what a user could read in another role', async () => {
    const user = await api.user([{ collection: 'doc', action: 'read' }])
    const since = await now(user.call)
    const role = (await api.admin('POST', '/items/svc_Role', { name: 'reader of teams' })).body.data.id
    await grant(api, role, { collection: 'team', action: 'read' })
    await api.sql('update "svc_UserRole" set "role_Id" = $1 where "user_Id" = $2', [role, user.id])
    await api.runtime.access.reload()
    const { body } = await pull(user.call, { since })
    expect(body.resync).toEqual(expect.arrayContaining(['doc', 'team']))
  })

  it('tells that a rule over a relation may decide otherwise now', async () => {
    const user = await api.user([
      { collection: 'doc', action: 'read', conditions: { 'team.name': 'open' } },
      { collection: 'soft', action: 'read' },
    ])
    const team = await create('team', { name: 'open' })
    const since = await now(user.call)
    const id = await create('doc', { text: 'seen', team_Id: team })
    const before = await pullAll(user.call, since)
    expect([told(before), before.resync]).toEqual([[['create', id]], []])
    await api.admin('PATCH', `/items/team/${team}`, { name: 'closed' })
    await create('soft', { text: 'beside' })
    const after = await pullAll(user.call, before.cursor)
    expect([after.data.map(({ collection }) => collection), after.resync]).toEqual([['soft'], ['doc']])
  })

  it('tells that a row which a variable reads has changed, and only that', async () => {
    const user = await api.user([
      { collection: 'doc', action: 'read', conditions: { owner: '$CURRENT_USER.firstName' } },
      { collection: 'soft', action: 'read', conditions: { text: '$CURRENT_USER' } },
    ])
    const since = await now(user.call)
    await api.sql('update "svc_User" set "firstName" = $1 where id <> $2', ['somebody else', user.id])
    const quiet = await pullAll(user.call, since)
    expect(quiet.resync).toEqual([])
    await api.sql('update "svc_User" set "firstName" = $1 where id = $2', ['renamed', user.id])
    expect((await pullAll(user.call, quiet.cursor)).resync).toEqual(['doc'])
  })

  it('tells that a named rule has changed', async () => {
    const acl = (await api.admin('POST', '/acls', { name: 'open ones', conditions: { kind: 'open' } })).body.id
    const user = await api.user([{ collection: 'doc', action: 'read', acl_Ids: [acl] }])
    const since = await now(user.call)
    const changed = await api.admin('PATCH', `/acls/${acl}`, { conditions: { kind: 'closed' } })
    expect(changed.status).toBe(200)
    expect((await pull(user.call, { since })).body.resync).toEqual(['doc'])
  })
})

type User = { id: string; roleId: string }

describe('tenants', () => {
  it('never meet', async () => {
    const tenants = await startApi({ MULTI_TENANT: 'true' }, api.database)
    await tenants.admin('POST', '/schemas', {
      collectionName: 'owned',
      schema: { fields: { text: { type: 'String' }, tenant_Id: { type: 'UUID' } } },
    })
    const role = await createRole(tenants, { isTenantSpecific: true })
    await grant(tenants, role, { collection: 'owned', action: 'read' })
    const [t1, t2] = [await createTenant(tenants, 'one'), await createTenant(tenants, 'two')]
    const first = await createUser(tenants, role, t1)
    const since = await now(first.call)
    const insert = 'insert into owned (text, "tenant_Id") values ($1, $2) returning id'
    const [own] = await tenants.sql(insert, ['own', t1])
    await tenants.sql(insert, ['canary', t2])
    await tenants.sql('update owned set "tenant_Id" = $1, text = $2 where id = $3', [t2, 'canary', own.id])
    const answer = await pull(first.call, { since })
    expect(told(answer.body)).toEqual([
      ['create', own.id],
      ['remove', own.id],
    ])
    expect(answer.text).not.toContain('canary')
  })
})

describe('under load', () => {
  it('snapshot and changes give the table: twelve write, one reads, nothing is missed and nothing comes twice', async () => {
    await api.admin('POST', '/schemas', { collectionName: 'busy', schema: { fields: { n: { type: 'Integer' } } } })
    const user = await api.user([{ collection: 'busy', action: 'read', conditions: { n: { gte: 0 } } }])
    const ids = (
      await api.admin(
        'POST',
        '/items/busy/bulk',
        Array.from({ length: 20 }, (_, n) => ({ n })),
      )
    ).body.data
    const write = async (writer: number) => {
      for (let i = 0; i < 15; i += 1) {
        const id = ids[(writer * 7 + i * 3) % ids.length]
        // Several statements in a transaction, so that many overlap; some rows leave the reader's part and come back.
        await api.sql(`begin; update busy set n = ${i % 4 === 0 ? -i - 1 : i} where id = '${id}';
          insert into busy (n) values (${writer}); delete from busy where n = ${writer} and random() < 0.3
          and id not in ('${ids.join("','")}') and id = any(array(select id from busy where n = ${writer} for update skip locked));
          select pg_sleep(random() / 100); commit`)
      }
    }
    let writing = true
    const writers = Promise.all(Array.from({ length: 12 }, (_, writer) => write(writer))).finally(() => {
      writing = false
    })
    const list = (await user.call('GET', '/items/busy?limit=-1&changesCursor=true')).body
    const copy = new Map<string, any>(list.data.map((row: any) => [row.id, row]))
    const positions: string[] = []
    for (let cursor = list.changesCursor; ; ) {
      const last = !writing
      const round = await pullAll(user.call, cursor, { limit: '7' })
      for (const { action, id, data, position } of round.data) {
        positions.push(position)
        if (data === undefined) copy.delete(id)
        else copy.set(id, data)
        expect(['create', 'update', 'remove', 'delete']).toContain(action)
      }
      expect(round.resync).toEqual([])
      cursor = round.cursor
      if (last) break
    }
    await writers
    const table = (await user.call('GET', '/items/busy?limit=-1&sort=id')).body.data
    expect([...copy.values()].sort((a, b) => (a.id < b.id ? -1 : 1))).toEqual(table)
    expect(positions.length).toBeGreaterThan(100)
    expect(new Set(positions).size).toBe(positions.length)
  })
})
