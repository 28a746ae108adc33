import { randomUUID } from 'node:crypto'
import { beforeAll, describe, expect, it } from 'vitest'
import { hashSecret } from '../../src/adapters/tokens.ts'
import { identityCollections } from '../../src/catalog/system-collections.ts'
import { contextFor, type ItemsServiceClass } from '../../src/extensions/context.ts'
import type { Accountability } from '../../src/features/data/items/hooking.ts'
import { createAccount, factsSince, sessionOf } from '../support/accounts.ts'
import { type Api, type Call, startApi } from '../support/api.ts'
import { storeKey } from '../support/api-keys.ts'
import { administrator } from '../support/prepare.ts'
import { connect } from '../support/socket.ts'
import { storeGrants } from '../support/stored-grants.ts'
import { createRole, grant } from '../support/tenants.ts'
import { upload } from '../support/upload.ts'
import { waitFor } from '../support/wait.ts'

/** Signing in, registering and inviting write what lets a user in; nothing else does. */

let api: Api
/** A second web process on the same database, with sockets. */
let other: Api
let address: string
let wide: { call: Call; token: string; id: string }
let victim: { id: string; email: string }

const actions = ['create', 'read', 'update', 'delete']
const names = [...identityCollections]

beforeAll(async () => {
  api = await startApi()
  other = await startApi({ SOCKET_ENABLED: 'true' }, api.database)
  address = await other.app.listen({ host: '127.0.0.1', port: 0 })
  const note = await api.admin('POST', '/schemas', {
    collectionName: 'note',
    schema: { fields: { text: { type: 'Text' } } },
  })
  expect(note.status, note.text).toBe(201)
  const user = await api.user()
  const everything = names.flatMap((collection) =>
    actions.map((action) => ({
      collection,
      action,
      fields: ['*', 'user_Id', 'role_Id', 'tenant_Id', 'token', 'hash'],
    })),
  )
  everything.push({ collection: 'note', action: 'read', fields: ['*'] })
  await storeGrants(api, user.roleId, everything)
  wide = user
  victim = await createAccount(api)
  const fields = Object.fromEntries(
    names.flatMap((target) => {
      const name = target.slice(4).toLowerCase()
      return [
        [`${name}_Id`, { type: 'UUID' }],
        [name, { relType: 'BelongsTo', target, foreignKey: `${name}_Id` }],
      ]
    }),
  )
  const made = await api.admin('POST', '/schemas', { collectionName: 'drawer', schema: { fields } })
  expect(made.status, made.text).toBe(201)
})

/** A row of each, about the victim. */
async function rowOf(collection: string): Promise<string> {
  const insert: Record<string, [string, unknown[]]> = {
    svc_Account: ['"user_Id", "accountId", "providerId"', [victim.id, randomUUID(), 'github']],
    svc_Sessions: ['"user_Id", token, "expiresAt"', [victim.id, randomUUID(), '2999-01-01']],
    svc_Verification: ['identifier, value, "expiresAt"', [`magic-link:${victim.email}`, randomUUID(), '2999-01-01']],
    svc_TwoFactor: ['"user_Id", secret, "backupCodes"', [(await createAccount(api)).id, 'x', '[]']],
    svc_Passkey: ['"user_Id", name, "credentialID", "publicKey"', [victim.id, 'x', randomUUID(), 'x']],
    svc_ApiKey: ['"user_Id", name, hash, hint', [victim.id, 'x', randomUUID(), 'x']],
    svc_Invite: [
      'email, "role_Id", token, "expiresAt", "invitedBy_Id"',
      ['i@example.com', await createRole(api), randomUUID(), '2999-01-01', victim.id],
    ],
  }
  const [columns, values] = insert[collection]!
  const places = values.map((_, index) => `$${index + 1}`)
  const [{ id }] = await api.sql(`insert into "${collection}" (${columns}) values (${places}) returning id`, values)
  return id
}

const stored = async (collection: string) =>
  (await api.sql(`select md5(coalesce(string_agg(t::text, '' order by id), '')) as sum from "${collection}" t`))[0].sum

describe.each(names)('%s', (collection) => {
  const relation = collection.slice(4).toLowerCase()
  const row = {
    user_Id: '',
    accountId: 'mine',
    providerId: 'github',
    identifier: 'magic-link:x',
    name: 'x',
    hint: 'x',
    secret: 'x',
    email: 'me@example.com',
    token: hashSecret('mine'),
    value: hashSecret('mine'),
    hash: hashSecret('mine'),
    expiresAt: '2999-01-01T00:00:00Z',
  }

  it('is not written, by anybody and by no way', async () => {
    const id = await rowOf(collection)
    const fresh = { ...row, user_Id: wide.id }
    const admin = (await api.anonymous('POST', '/auth/login', administrator)).body.token
    const [position, before] = [await api.position(), await stored(collection)]
    for (const [who, token] of [
      ['granted', wide.token],
      ['administrator', admin],
    ] as const) {
      const call = api.as(token)
      const json = { name: 'jsonFile', filename: 'x.json', content: JSON.stringify([fresh]) }
      const csv = { name: 'csvFile', filename: 'x.csv', content: 'user_Id,accountId\nx,y' }
      const statuses = [
        (await call('POST', `/items/${collection}`, fresh)).status,
        (await call('POST', `/items/${collection}/bulk`, [fresh])).status,
        (await call('PUT', `/items/${collection}?key=id`, { id, ...fresh })).status,
        (await call('PATCH', `/items/${collection}/${id}`, fresh)).status,
        (await call('PATCH', `/items/${collection}/bulk`, [{ id, ...fresh }])).status,
        (await upload(api, token, `/items/${collection}/import-json`, [json])).status,
        (await upload(api, token, `/items/${collection}/import-csv`, [csv])).status,
        ...(who === 'administrator'
          ? [
              (await call('POST', '/items/drawer', { [relation]: fresh })).status,
              (await call('POST', '/items/drawer', { [relation]: { id, ...fresh } })).status,
            ]
          : []),
        ...(collection === 'svc_Invite' || (collection === 'svc_Sessions' && who === 'administrator')
          ? []
          : [
              (await call('DELETE', `/items/${collection}/${id}`)).status,
              (await call('DELETE', `/items/${collection}/bulk`, [id])).status,
            ]),
      ]
      expect([who, statuses]).toEqual([who, statuses.map(() => 403)])
    }
    expect(await stored(collection)).toBe(before)
    expect((await api.log(position)).filter(({ entity }) => entity === collection)).toEqual([])
  })

  it('is not written by extensions, for a user or as the platform', async () => {
    const id = await rowOf(collection)
    const before = await stored(collection)
    const { ItemsService } = contextFor(api.runtime, 'test')
    const refused = async (service: InstanceType<ItemsServiceClass>) => {
      const attempts = [
        () => service.createOne({ ...row, user_Id: wide.id }),
        () => service.updateOne(id, { ...row, user_Id: wide.id }),
      ]
      for (const attempt of attempts) await expect(attempt()).rejects.toMatchObject({ status: 403 })
    }
    await refused(new ItemsService(collection))
    let asked = 0
    const ask = async ({ accountability }: { accountability?: unknown }) => {
      await refused(new ItemsService(collection, { accountability: accountability as Accountability }))
      asked += 1
    }
    api.runtime.hooks.register('test', 'note', 'items.read', ask)
    for (const call of [wide.call, api.admin]) expect((await call('GET', '/items/note')).status).toBe(200)
    expect(asked).toBeGreaterThanOrEqual(2)
    expect(await stored(collection)).toBe(before)
  })
})

describe('a permission without effect', () => {
  it.each([
    ['svc_Account', 'create', 'nobody'],
    ['svc_Sessions', 'delete', 'only an administrator'],
    ['svc_Sessions', 'update', 'nobody'],
    ['svc_Invite', 'create', 'nobody'],
    ['svc_AuditLog', 'delete', 'nobody'],
    ['svc_Role', 'update', 'only an administrator'],
    ['svc_Permission', 'create', 'only an administrator'],
    ['svc_Settings', 'update', 'only an administrator'],
  ])('for %s, %s, is refused', async (collection, action, who) => {
    const role_Id = await createRole(api)
    for (const path of ['/permissions', '/items/svc_Permission']) {
      const answer = await api.admin('POST', path, { role_Id, collection, action, fields: ['*'] })
      expect([answer.status, answer.body.error.message]).toEqual([
        400,
        `Validation failed: action: has no effect: ${who} may ${action} items in '${collection}'`,
      ])
    }
  })

  it.each([
    ['svc_UserRole', 'update'],
    ['svc_Invite', 'update'],
    ['svc_Role', 'read'],
    ['svc_Sessions', 'read'],
  ])('is none for %s, %s', async (collection, action) => {
    const role_Id = await createRole(api)
    const answer = await api.admin('POST', '/permissions', { role_Id, collection, action, fields: ['*'] })
    expect(answer.status, answer.text).toBe(201)
  })
})

describe('an invitation', () => {
  it('can be revoked and changed in no other way, by anybody', async () => {
    const role = await createRole(api)
    await grant(api, role, {
      collection: 'svc_Invite',
      action: 'update',
      fields: ['*', 'role_Id', 'tenant_Id', 'token'],
    })
    const account = await createAccount(api)
    await api.sql('update "svc_UserRole" set "role_Id" = $2 where "user_Id" = $1', [account.id, role])
    const by = api.as(await sessionOf(api, account))
    const id = await rowOf('svc_Invite')
    const [{ id: highest }] = await api.sql(`select id from "svc_Role" where name = 'administrator'`)
    const before = await api.position()
    for (const call of [by, api.admin])
      for (const change of [
        { role_Id: highest },
        { email: 'me@example.com' },
        { token: hashSecret('mine') },
        { expiresAt: '2999-01-01T00:00:00Z' },
        { status: 'accepted' },
        { status: 'revoked', email: 'me@example.com' },
      ]) {
        const answer = await call('PATCH', `/items/svc_Invite/${id}`, change)
        expect([change, answer.status, answer.body.error.code]).toEqual([change, 403, 'INVITATION_FIXED'])
      }
    expect(await factsSince(api, before)).toEqual([])
    expect((await by('PATCH', `/items/svc_Invite/${id}`, { status: 'revoked' })).status).toBe(200)
    expect((await by('PATCH', `/items/svc_Invite/${id}`, { status: 'pending' })).status).toBe(403)
  })
})

describe('DELETE /items/svc_Sessions/{id}', () => {
  it.each(['one', 'bulk'])('by an administrator ends the session everywhere, sockets too (%s)', async (form) => {
    const account = await createAccount(api)
    const token = await sessionOf(api, account)
    const live = async (on: Api) => (await on.as(token)('GET', '/auth/check')).status
    expect([await live(api), await live(other)]).toEqual([200, 200])
    const socket = await connect(address, token)
    const [{ id }] = await api.sql('select id from "svc_Sessions" where "user_Id" = $1', [account.id])
    const before = await api.position()
    const answer =
      form === 'one'
        ? await api.admin('DELETE', `/items/svc_Sessions/${id}`)
        : await api.admin('DELETE', '/items/svc_Sessions/bulk', [id])
    expect(answer.status, answer.text).toBe(form === 'one' ? 200 : 204)
    expect([await live(other), await live(api)]).toEqual([401, 401])
    await waitFor(() => !socket.socket.connected, { what: 'the end of the connection' })
    expect(await factsSince(api, before)).toEqual(['svc_User session_ended'])
    expect((await api.log(before))[0]).toMatchObject({ entityId: account.id })
  })

  it('is refused by others, by a key, and for a row that is no session', async () => {
    const account = await createAccount(api)
    const token = await sessionOf(api, account)
    const [{ id }] = await api.sql('select id from "svc_Sessions" where "user_Id" = $1', [account.id])
    const adminId = (await api.admin('GET', '/auth/check')).body.user.id
    const byKey = await api.as(await storeKey(api, adminId))('DELETE', `/items/svc_Sessions/${id}`)
    expect([byKey.status, byKey.body.error.code]).toEqual([403, 'API_KEY_NOT_ACCEPTED'])
    expect((await api.as(token)('DELETE', `/items/svc_Sessions/${id}`)).status).toBe(403)
    expect((await api.admin('DELETE', `/items/svc_Sessions/${randomUUID()}`)).status).toBe(403)
    expect((await api.as(token)('GET', '/auth/check')).status).toBe(200)
  })

  it('of the own session is a logout', async () => {
    const account = await createAccount(api)
    const [{ id: role }] = await api.sql(`select id from "svc_Role" where name = 'administrator'`)
    await api.sql('update "svc_UserRole" set "role_Id" = $2 where "user_Id" = $1', [account.id, role])
    const token = await sessionOf(api, account)
    const [{ id }] = await api.sql('select id from "svc_Sessions" where "user_Id" = $1', [account.id])
    const before = await api.position()
    expect((await api.as(token)('DELETE', `/items/svc_Sessions/${id}`)).status).toBe(200)
    expect(await factsSince(api, before)).toEqual(['svc_User logout'])
    expect((await api.as(token)('GET', '/auth/check')).status).toBe(401)
  })
})
