import { beforeAll, describe, expect, it } from 'vitest'
import { createAccount, factsSince, password, plant, sessionOf, type TestAccount } from '../support/accounts.ts'
import { type Answer, type Api, type Call, startApi } from '../support/api.ts'
import { storeKey } from '../support/api-keys.ts'
import { administrator } from '../support/prepare.ts'
import { createRole, grant } from '../support/tenants.ts'
import { upload } from '../support/upload.ts'

/** Protected accounts (docs/accounts.md#protected-accounts), by every way that leads to a row of svc_User. */

type Manager = { readonly call: Call; readonly token: string; readonly id: string }

let api: Api
let member: string
let owner: string
let manager: Manager
let adminId: string

const everything = ['create', 'read', 'update', 'delete']
const all = (collection: string, ...fields: string[]) =>
  everything.map((action) => ({ collection, action, fields: ['*', ...fields] }))

beforeAll(async () => {
  api = await startApi({ ALLOW_PASSWORD_WRITES: 'true' })
  ;[member, owner] = [await createRole(api), await createRole(api)]
  const ends = { desk_Id: { type: 'UUID' }, user_Id: { type: 'UUID' } }
  const between = await api.admin('POST', '/schemas', { collectionName: 'desk_guest', schema: { fields: ends } })
  expect(between.status, between.text).toBe(201)
  const through = { through: 'desk_guest', foreignKey: 'desk_Id', otherKey: 'user_Id' }
  const fields = {
    title: { type: 'String' },
    sitter_Id: { type: 'UUID' },
    sitter: { relType: 'BelongsTo', target: 'svc_User', foreignKey: 'sitter_Id' },
    guests: { relType: 'BelongsToMany', target: 'svc_User', ...through },
  }
  const made = await api.admin('POST', '/schemas', { collectionName: 'desk', schema: { fields } })
  expect(made.status, made.text).toBe(201)
  const role = await createRole(api, { canInviteRoleIds: [member] })
  await grant(
    api,
    role,
    ...all('svc_User', 'password', 'emailVerified'),
    ...all('desk', 'sitter.*', 'guests.*'),
    ...all('desk_guest'),
  )
  manager = await signedInAs(role)
  adminId = (await api.admin('GET', '/auth/me')).body.user.id
})

/** An account in a role; null for none. */
async function accountIn(roleId: string | null): Promise<TestAccount> {
  const account = await createAccount(api)
  await api.sql('delete from "svc_UserRole" where "user_Id" = $1', [account.id])
  if (roleId !== null)
    await api.sql('insert into "svc_UserRole" ("user_Id", "role_Id") values ($1, $2)', [account.id, roleId])
  return account
}

async function signedInAs(roleId: string): Promise<Manager & TestAccount> {
  const account = await accountIn(roleId)
  const token = await sessionOf(api, account)
  return { ...account, token, call: api.as(token) }
}

const userRow = async (id: string) =>
  (await api.sql('select email, "emailVerified", status, password from "svc_User" where id = $1', [id]))[0]
const jobs = () => api.sql(`select 1 from pgboss.job where state in ('created', 'retry', 'active')`)
const isLive = async (token: string) => (await api.as(token)('GET', '/auth/check')).status === 200

let count = 0
const newEmail = () => `taken${++count}@example.com`

type Way = (by: Manager, account: TestAccount, change: object) => Promise<Answer>

const ways: [string, Way][] = [
  ['PATCH', (by, { id }, change) => by.call('PATCH', `/items/svc_User/${id}`, change)],
  ['PATCH that asks for the row', (by, { id }, change) => by.call('PATCH', `/items/svc_User/${id}?fields=id`, change)],
  ['bulk PATCH', (by, { id }, change) => by.call('PATCH', '/items/svc_User/bulk', [{ id, ...change }])],
  ['bulk PATCH with data', (by, { id }, data) => by.call('PATCH', '/items/svc_User/bulk', [{ id, data }])],
  ['PUT', (by, { id }, change) => by.call('PUT', '/items/svc_User?key=id', { id, firstName: 'Ada', ...change })],
  [
    'PUT of many',
    (by, { id }, change) => by.call('PUT', '/items/svc_User?key=id', [{ id, firstName: 'A', ...change }]),
  ],
  [
    'PUT by the address',
    (by, { email }, { email: _other, ...change }: { email?: string }) =>
      by.call('PUT', '/items/svc_User?key=email', { email, firstName: 'Ada', ...change }),
  ],
  ['a nested write', (by, { id }, change) => by.call('POST', '/items/desk', { sitter: { id, ...change } })],
  ['a nested write into many', (by, { id }, change) => by.call('POST', '/items/desk', { guests: [{ id, ...change }] })],
  [
    'an imported nested write',
    (by, { id }, change) => {
      const content = JSON.stringify([{ title: 'x' }, { sitter: { id, ...change } }])
      return upload(api, by.token, '/items/desk/import-json', [{ name: 'jsonFile', filename: 'desks.json', content }])
    },
  ],
]

const waysToChangeEmail = ways.filter(([way]) => way !== 'PUT by the address')

describe.each([false, true])('with hooks: %s', (isHooked) => {
  beforeAll(() => {
    if (!isHooked) return
    api.runtime.hooks.register('test', 'svc_User', 'items.update', () => undefined)
    api.runtime.hooks.register('test', 'svc_User', 'items.delete', () => undefined)
  })

  describe.each(ways)('by %s', (way, write) => {
    const changes = [{ status: 'suspended' }, { password: 'another password' }, { emailVerified: false }]
    const withEmail = way === 'PUT by the address' ? changes : [{ email: 'ceo@victim.example' }, ...changes]

    it('an administrator is changed by no other', async () => {
      const before = await api.position()
      const stored = await userRow(adminId)
      for (const change of withEmail) {
        const answer = await write(manager, { id: adminId, email: administrator.email }, change)
        expect([change, answer.status]).toEqual([change, way.startsWith('an imported') ? 400 : 403])
        expect(answer.text).toContain('an administrator may, or somebody who may assign all roles concerned')
      }
      expect(await userRow(adminId)).toEqual(stored)
      expect(await factsSince(api, before)).toEqual([])
    })

    it('a user in a role that may not be assigned stays, one that may is changed', async () => {
      const [kept, changed, free] = [await accountIn(owner), await accountIn(member), await accountIn(null)]
      const status = { status: 'suspended' }
      expect((await write(manager, kept, status)).status).toBe(way.startsWith('an imported') ? 400 : 403)
      for (const account of [changed, free]) {
        const answer = await write(manager, account, status)
        expect(answer.status, answer.text).toBeLessThan(300)
      }
      expect([(await userRow(kept.id)).status, (await userRow(changed.id)).status]).toEqual(['active', 'suspended'])
      expect((await userRow(free.id)).status).toBe('suspended')
      const again = await write(manager, changed, { status: 'active' })
      expect([again.status < 300, (await userRow(changed.id)).status]).toEqual([true, 'active'])
    })
  })

  it.each(waysToChangeEmail)(
    'an address that another sets by %s is unverified, and ends what was open',
    async (_way, write) => {
      const account = await accountIn(member)
      const token = await sessionOf(api, account)
      const next = newEmail()
      const secrets = [await plant(api, 'magic-link', account.email), await plant(api, 'password-reset', account.email)]
      const stale = await plant(api, 'magic-link', next)
      await api.sql(
        `insert into "svc_Challenge" (identifier, "user_Id", data, "expiresAt") values ($1, $2, '{}', now() + interval '1 minute')`,
        [`two-factor:${account.id}`, account.id],
      )
      const [before, waiting] = [await api.position(), await jobs()]
      const answer = await write(manager, account, { email: next, emailVerified: true })
      expect(answer.status, answer.text).toBeLessThan(300)
      expect(await userRow(account.id)).toMatchObject({ email: next, emailVerified: false })
      const facts = (await factsSince(api, before)).filter((fact) => fact.startsWith('svc_User'))
      expect(facts).toEqual(['svc_User update', 'svc_User email_changed'])
      expect((await api.log(before)).at(-1)).toMatchObject({ entityId: account.id, userId: manager.id })
      expect(await jobs()).toEqual(waiting)
      expect(await isLive(token)).toBe(false)
      expect(await api.sql('select 1 from "svc_Challenge" where "user_Id" = $1', [account.id])).toEqual([])
      for (const secret of [...secrets, stale])
        expect((await api.anonymous('GET', `/auth/magiclink/${secret}`)).status).toBe(400)
      const said = await manager.call('PATCH', `/items/svc_User/${account.id}`, { emailVerified: true })
      expect([said.status, said.body.error.code]).toEqual([403, 'IDENTITY_PROTECTED'])
      // The proof of the address opens the account without its former credentials.
      const link = await plant(api, 'magic-link', next)
      expect((await api.anonymous('GET', `/auth/magiclink/${link}`)).status).toBe(200)
      expect(await userRow(account.id)).toMatchObject({ emailVerified: true, password: null })
    },
  )

  it('deleting needs the same', async () => {
    const [kept, gone] = [await accountIn(owner), await accountIn(member)]
    const before = await api.position()
    for (const id of [adminId, kept.id]) {
      expect((await manager.call('DELETE', `/items/svc_User/${id}`)).status).toBe(403)
      expect((await manager.call('DELETE', '/items/svc_User/bulk', [gone.id, id])).status).toBe(403)
    }
    expect(await factsSince(api, before)).toEqual([])
    expect((await manager.call('DELETE', `/items/svc_User/${gone.id}`)).status).toBe(200)
    expect(await factsSince(api, before)).toEqual(['svc_User delete', 'svc_UserRole delete'])
  })
})

describe('the own account', () => {
  let self: Awaited<ReturnType<typeof signedInAs>>
  beforeAll(async () => {
    const role = await createRole(api)
    const own = (action: string) => ({
      collection: 'svc_User',
      action,
      fields: ['*', 'emailVerified', ...(action === 'update' ? ['password'] : [])],
      conditions: { id: '$CURRENT_USER' },
    })
    await grant(api, role, ...['read', 'update', 'delete'].map(own))
    self = await signedInAs(role)
  })

  it('gets another password by no write of its row that came with the cookie, and by one with the token', async () => {
    const login = { email: self.email, password: 'password of a user', authMode: 'cookie' }
    const signedIn = await api.anonymous('POST', '/auth/login', login)
    expect(signedIn.status, signedIn.text).toBe(200)
    const cookie = String(signedIn.headers['set-cookie']).split(';')[0]!
    const before = await api.position()
    const write = ['PATCH', `/items/svc_User/${self.id}`, { password: 'another long one' }] as const
    const refused = await api.anonymous(...write, { cookie, 'sec-fetch-site': 'same-origin' })
    expect([refused.status, refused.body.error.code], refused.text).toEqual([403, 'FRESH_PROOF_REQUIRED'])
    expect(refused.body.error.message).toContain('POST /auth/password/change')
    expect(await factsSince(api, before)).toEqual([])
    expect((await self.call('PATCH', `/items/svc_User/${self.id}`, { password: login.password })).status).toBe(200)
  })

  it('gets another address by no write of its row, an administrator neither', async () => {
    const admin = { call: api.admin, token: '', id: adminId }
    for (const [by, email] of [
      [self, self.email],
      [admin, administrator.email],
    ] as const) {
      const before = await api.position()
      const answer = await by.call('PATCH', `/items/svc_User/${by.id}`, { email: 'ceo@victim.example' })
      expect([answer.status, answer.body.error.code]).toEqual([403, 'EMAIL_CHANGE_NEEDS_CONFIRMATION'])
      expect(answer.body.error.message).toContain('POST /auth/email/change')
      expect(await userRow(by.id)).toMatchObject({ email, emailVerified: true })
      expect(await factsSince(api, before)).toEqual([])
    }
  })

  it('takes the whole row of a form, as long as the address is the same', async () => {
    const row = { email: self.email.toUpperCase(), status: 'active', emailVerified: true, firstName: 'Augusta' }
    const answer = await self.call('PATCH', `/items/svc_User/${self.id}`, row)
    expect([answer.status, answer.text]).toEqual([200, `{"data":{"id":"${self.id}"}}`])
    expect(await userRow(self.id)).toMatchObject({ email: self.email, emailVerified: true })
  })

  it('does not say of itself that its address is verified', async () => {
    await api.sql('update "svc_User" set "emailVerified" = false where id = $1', [self.id])
    const answer = await self.call('PATCH', `/items/svc_User/${self.id}`, { emailVerified: true })
    expect([answer.status, answer.body.error.code]).toEqual([403, 'IDENTITY_PROTECTED'])
    await api.sql('update "svc_User" set "emailVerified" = true where id = $1', [self.id])
  })

  it('is not changed with one of its API keys, an administrator’s neither', async () => {
    for (const { id } of [self, { id: adminId }]) {
      const call = api.as(await storeKey(api, id))
      const before = await api.position()
      for (const change of [{ email: newEmail() }, { status: 'inactive' }, { password: 'another password' }]) {
        const answer = await call('PATCH', `/items/svc_User/${id}`, change)
        expect([change, answer.status, answer.body.error.code]).toEqual([change, 403, 'API_KEY_NOT_ACCEPTED'])
      }
      const gone = await call('DELETE', `/items/svc_User/${id}`)
      expect([gone.status, gone.body.error.code]).toEqual([403, 'API_KEY_NOT_ACCEPTED'])
      const change = { email: newEmail(), currentPassword: password }
      expect((await call('POST', '/auth/email/change', change)).status).toBe(403)
      expect((await call('PATCH', `/items/svc_User/${id}`, { lastName: 'King' })).status).toBe(200)
      expect(await factsSince(api, before)).toEqual(['svc_User update'])
    }
  })

  it('of old is restored from its history by the same rules', async () => {
    const [{ email: old }, next] = [self, newEmail()]
    await api.sql('update "svc_User" set email = $2 where id = $1', [self.id, next])
    const [event] = await api.sql(
      `select id from "svc_AuditLog" where "entityId" = $1 and entity = 'svc_User' and changes->'after'->>'email' = $2
       order by position desc limit 1`,
      [self.id, old],
    )
    const restore = (call: Call) => call('POST', `/items/svc_User/${self.id}/restore`, { event: event.id })
    const own = await restore(self.call)
    expect([own.status, own.body.error.code]).toEqual([403, 'EMAIL_CHANGE_NEEDS_CONFIRMATION'])
    const by = await restore(api.admin)
    expect(by.status, by.text).toBe(200)
    expect(await userRow(self.id)).toMatchObject({ email: old, emailVerified: false })
    await api.sql('update "svc_User" set "emailVerified" = true where id = $1', [self.id])
    self = { ...self, token: await sessionOf(api, self) }
  })

  it('can be closed by its user', async () => {
    const call = api.as(self.token)
    expect((await call('PATCH', `/items/svc_User/${self.id}`, { status: 'inactive' })).status).toBe(200)
    expect(await isLive(self.token)).toBe(false)
    await api.sql(`update "svc_User" set status = 'active' where id = $1`, [self.id])
    const again = api.as(await sessionOf(api, self))
    expect((await again('DELETE', `/items/svc_User/${self.id}`)).status).toBe(200)
  })
})

describe('an administrator', () => {
  it('sets addresses that are unverified, unless it says that they are', async () => {
    for (const [more, emailVerified] of [
      [{}, false],
      [{ emailVerified: true }, true],
    ] as const) {
      const account = await accountIn(owner)
      const email = newEmail()
      const before = await api.position()
      expect((await api.admin('PATCH', `/items/svc_User/${account.id}`, { email, ...more })).status).toBe(200)
      expect(await userRow(account.id)).toMatchObject({ email, emailVerified })
      expect(await factsSince(api, before)).toEqual(['svc_User update', 'svc_User email_changed'])
    }
  })

  it('makes no account whose address counts as proven, in any way', async () => {
    const row = () => ({
      email: newEmail(),
      firstName: 'A',
      lastName: 'B',
      password: 'a long password',
      emailVerified: true,
    })
    const before = await api.position()
    for (const [method, path, body] of [
      ['POST', '/items/svc_User', row()],
      ['POST', '/items/svc_User/bulk', [row()]],
      ['PUT', '/items/svc_User?key=email', row()],
      ['POST', '/items/desk', { sitter: row() }],
      ['POST', '/items/desk', { guests: [row()] }],
    ] as const)
      expect([path, (await manager.call(method, path, body)).body.error?.code]).toEqual([path, 'IDENTITY_PROTECTED'])
    expect(await api.log(before)).toEqual([])
    const plain = await manager.call('POST', '/items/svc_User', { ...row(), emailVerified: false })
    expect(plain.status, plain.text).toBe(201)
  })

  it('changes many at once with one look at them', async () => {
    const accounts = await Promise.all(Array.from({ length: 30 }, () => accountIn(member)))
    const changes = accounts.map(({ id }) => ({ id, status: 'suspended' }))
    const mine = await manager.call('PATCH', '/items/svc_User/bulk', [...changes, { id: adminId, status: 'suspended' }])
    expect([mine.status, mine.body.error.code]).toEqual([403, 'IDENTITY_PROTECTED'])
    expect(
      await api.sql(`select 1 from "svc_User" where id = any($1) and status <> 'active'`, [
        accounts.map(({ id }) => id),
      ]),
    ).toEqual([])
    expect((await manager.call('PATCH', '/items/svc_User/bulk', changes)).status).toBe(200)
    expect(
      await api.sql(`select 1 from "svc_User" where id = any($1) and status = 'active'`, [
        accounts.map(({ id }) => id),
      ]),
    ).toEqual([])
  })
})

describe('a suspended user', () => {
  it('has no key and no mailed link left when it is active again', async () => {
    const account = await accountIn(member)
    const keys = [await storeKey(api, account.id), await storeKey(api, account.id, { roleId: member })]
    const link = await plant(api, 'magic-link', account.email)
    for (const key of keys) expect(await isLive(key)).toBe(true)
    const before = await api.position()
    expect((await manager.call('PATCH', `/items/svc_User/${account.id}`, { status: 'suspended' })).status).toBe(200)
    expect((await factsSince(api, before)).sort()).toEqual([
      'svc_ApiKey delete',
      'svc_ApiKey delete',
      'svc_User update',
    ])
    expect((await manager.call('PATCH', `/items/svc_User/${account.id}`, { status: 'active' })).status).toBe(200)
    for (const key of keys) expect(await isLive(key)).toBe(false)
    expect((await api.anonymous('GET', `/auth/magiclink/${link}`)).status).toBe(400)
    expect(await isLive(await sessionOf(api, account))).toBe(true)
  })

  it('loses keys with the role they are bound to, and all when the role is taken', async () => {
    const account = await accountIn(member)
    const [bound, free] = [await storeKey(api, account.id, { roleId: member }), await storeKey(api, account.id)]
    const assign = (roleId: string) =>
      api.sql('update "svc_UserRole" set "role_Id" = $2 where "user_Id" = $1', [account.id, roleId])
    await assign(owner)
    await assign(member)
    expect([await isLive(bound), await isLive(free)]).toEqual([false, true])
    await api.sql('delete from "svc_UserRole" where "user_Id" = $1', [account.id])
    await api.sql('insert into "svc_UserRole" ("user_Id", "role_Id") values ($1, $2)', [account.id, member])
    expect(await isLive(free)).toBe(false)
  })
})
