import { beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { afterwardsDone } from '../../src/features/accounts/auth/capabilities.ts'
import { createAccount, factsSince, password, plant, sessionOf, type TestAccount } from '../support/accounts.ts'
import { type Answer, type Api, startApi } from '../support/api.ts'
import { administrator } from '../support/prepare.ts'
import { upload } from '../support/upload.ts'

/** A password that is set through the generic routes means what one set by `/auth` means. */

const next = 'another password'
let api: Api
/** A second web process on the same database. */
let other: Api
let admin: string
beforeAll(async () => {
  api = await startApi()
  other = await startApi({}, api.database)
  admin = (await api.anonymous('POST', '/auth/login', administrator)).body.token
  const fields = {
    sitter_Id: { type: 'UUID' },
    sitter: { relType: 'BelongsTo', target: 'svc_User', foreignKey: 'sitter_Id' },
  }
  const made = await api.admin('POST', '/schemas', { collectionName: 'desk', schema: { fields } })
  expect(made.status, made.text).toBe(201)
})
beforeEach(() => afterwardsDone(api.runtime))

const isLive = async (token: string, by = api) => (await by.as(token)('GET', '/auth/check')).status === 200
const jobs = () => api.sql(`select 1 from pgboss.job where state in ('created', 'retry', 'active')`)
const challengesOf = (id: string) => api.sql('select 1 from "svc_Challenge" where "user_Id" = $1', [id])
const complete = ({ email }: TestAccount) => ({ firstName: 'Ada', lastName: 'Lovelace', email, password: next })

const ways: [string, (account: TestAccount) => Promise<Answer>, string[]?][] = [
  ['PATCH', ({ id }) => api.admin('PATCH', `/items/svc_User/${id}`, { password: next })],
  [
    'PATCH that asks for the row',
    ({ id }) => api.admin('PATCH', `/items/svc_User/${id}?fields=id`, { password: next }),
  ],
  ['bulk PATCH', ({ id }) => api.admin('PATCH', '/items/svc_User/bulk', [{ id, password: next }])],
  ['PUT', (account) => api.admin('PUT', '/items/svc_User?key=email', complete(account))],
  ['PUT of many', (account) => api.admin('PUT', '/items/svc_User?key=email', [complete(account)])],
  ['a nested write', ({ id }) => api.admin('POST', '/items/desk', { sitter: { id, password: next } }), ['desk create']],
  [
    'an import with a nested write',
    ({ id }) => {
      const content = JSON.stringify([{ sitter: { id, password: next } }])
      const part = { name: 'jsonFile', filename: 'desks.json', content }
      return upload(api, admin, '/items/desk/import-json', [part])
    },
    ['desk create'],
  ],
]

describe.each([false, true])('a password that an administrator sets (with hooks: %s)', (isHooked) => {
  beforeAll(() => {
    if (!isHooked) return
    api.runtime.hooks.register('test', 'svc_User', 'items.update', () => undefined)
    api.runtime.hooks.register('test', 'svc_User', 'items.update.after', () => undefined)
  })

  it.each(ways)('by %s ends the sessions and all that was outstanding', async (_way, change, more = []) => {
    const account = await createAccount(api)
    const token = await sessionOf(api, account)
    expect(await isLive(token, other)).toBe(true)
    const secrets = [await plant(api, 'password-reset', account.email), await plant(api, 'magic-link', account.email)]
    await api.sql(
      `insert into "svc_Challenge" (identifier, "user_Id", data, "expiresAt") values ($1, $2, '{}', now() + interval '1 minute')`,
      [`two-factor:${account.id}`, account.id],
    )
    const [before, jobsBefore] = [await api.position(), await jobs()]
    const answer = await change(account)
    expect(answer.status, answer.text).toBeLessThan(300)
    expect([await isLive(token, other), await isLive(token)]).toEqual([false, false])
    expect(await factsSince(api, before)).toEqual(['svc_User update', ...more, 'svc_User password_change'])
    const event = (await api.log(before)).at(-1)
    expect(event).toMatchObject({ type: 'auth', entityId: account.id })
    expect(event?.userId).not.toBe(account.id)
    expect(await jobs()).toEqual(jobsBefore)
    expect(await challengesOf(account.id)).toEqual([])
    for (const secret of secrets)
      expect((await api.anonymous('POST', `/auth/password/reset/${secret}`, { password: next })).status).toBe(400)
    const login = (given: string) => api.anonymous('POST', '/auth/login', { email: account.email, password: given })
    expect([(await login(next)).status, (await login(password)).status]).toEqual([200, 400])
  })
})

it('taking the password away ends the sessions, too', async () => {
  const account = await createAccount(api)
  const token = await sessionOf(api, account)
  expect((await api.admin('PATCH', `/items/svc_User/${account.id}`, { password: null })).status).toBe(200)
  expect(await isLive(token)).toBe(false)
})

it.each([
  ['other fields', { firstName: 'Augusta' }, ['svc_User update']],
  ['what is refused', { password: 'short' }, []],
])('%s end nothing', async (_what, payload, facts) => {
  const account = await createAccount(api)
  const token = await sessionOf(api, account)
  const before = await api.position()
  await api.admin('PATCH', `/items/svc_User/${account.id}`, payload)
  expect(await factsSince(api, before)).toEqual(facts)
  expect(await isLive(token)).toBe(true)
})

it('a new user with a password, by PUT too, has no other one', async () => {
  const before = await api.position()
  const made = await api.admin('PUT', '/items/svc_User?key=email', complete({ id: '', email: 'new@example.com' }))
  expect(made.status, made.text).toBe(201)
  expect(await factsSince(api, before)).toEqual(['svc_User create'])
})

// Last: it ends the administrator's session of all tests.
it('the session in which a user changes their own password stays', async () => {
  const elsewhere = (await api.anonymous('POST', '/auth/login', administrator)).body.token
  const { id } = (await api.as(admin)('GET', '/auth/me')).body.user
  const { status, text } = await api.as(admin)('PATCH', `/items/svc_User/${id}`, { password: administrator.password })
  expect(status, text).toBe(200)
  expect([await isLive(admin), await isLive(elsewhere)]).toEqual([true, false])
})
