import { beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { afterwardsDone } from '../../src/features/accounts/auth/capabilities.ts'
import { createAccount, factsSince, password, plant, sessionOf } from '../support/accounts.ts'
import { type Api, startApi } from '../support/api.ts'
import { waitFor } from '../support/wait.ts'

const next = 'another password'
let api: Api
/** A second web process on the same database. */
let other: Api
beforeAll(async () => {
  api = await startApi()
  other = await startApi({}, api.database)
})
beforeEach(() => afterwardsDone(api.runtime))

const login = async (email: string, given: string) =>
  (await api.anonymous('POST', '/auth/login', { email, password: given })).status
const isLive = async (token: string, by = api) => (await by.as(token)('GET', '/auth/check')).status === 200
const unfit = { status: 400, body: { message: 'Password must be 8 to 128 characters long' } }

describe('POST /auth/password/change', () => {
  const change = (token: string, body: unknown) => api.as(token)('POST', '/auth/password/change', body)

  it('ends the other sessions and what was mailed, not its own', async () => {
    const account = await createAccount(api)
    const [own, elsewhere] = [await sessionOf(api, account), await sessionOf(api, account)]
    const mailed = await plant(api, 'password-reset', account.email)
    const before = await api.position()
    expect(await change(own, { currentPassword: password, newPassword: next })).toMatchObject({
      status: 200,
      body: { message: 'Password changed successfully' },
    })
    expect(await factsSince(api, before)).toEqual(['svc_User update', 'svc_User password_change'])
    expect((await api.log(before))[1]).toMatchObject({ type: 'auth', entityId: account.id, userId: account.id })
    expect(await isLive(own)).toBe(true)
    expect(await isLive(elsewhere)).toBe(false)
    await waitFor(async () => !(await isLive(elsewhere, other)))
    expect((await api.anonymous('POST', `/auth/password/reset/${mailed}`, { password: next })).status).toBe(400)
    expect(await login(account.email, next)).toBe(200)
  })

  it('takes one of two at the same time', async () => {
    const account = await createAccount(api)
    const own = await sessionOf(api, account)
    const answers = await Promise.all(
      ['first new one', 'second new one'].map((newPassword) => change(own, { currentPassword: password, newPassword })),
    )
    expect(answers.map(({ status }) => status).sort()).toEqual([200, 400])
  })

  it.each([
    ['no current password', { newPassword: next }, 'Current and new password are required'],
    ['no new password', { currentPassword: password }, 'Current and new password are required'],
    ['a short new password', { currentPassword: password, newPassword: 'short' }, unfit.body.message],
  ])('refuses %s', async (_what, body, message) => {
    const own = await sessionOf(api, await createAccount(api))
    const before = await api.position()
    expect(await change(own, body)).toMatchObject({ status: 400, body: { message } })
    expect(await factsSince(api, before)).toEqual([])
  })

  it('refuses a wrong current password, and the log says so', async () => {
    const account = await createAccount(api)
    const own = await sessionOf(api, account)
    const before = await api.position()
    expect(await change(own, { currentPassword: 'not the one', newPassword: next })).toMatchObject({
      status: 400,
      body: { message: 'Current password is incorrect' },
    })
    expect(await factsSince(api, before)).toEqual(['svc_User password_change_failed'])
    expect(await login(account.email, password)).toBe(200)
  })

  it('needs a session', async () => {
    expect(await api.anonymous('POST', '/auth/password/change', {})).toMatchObject({
      status: 401,
      body: { message: 'Unauthorized' },
    })
  })
})

describe.each([
  ['/auth/admin/password/change', 'newPassword'],
  ['/auth/admin/password/change', 'password'],
  ['/auth/admin/change-password', 'newPassword'],
  ['/auth/admin/change-password', 'password'],
])('POST %s with %s', (path, member) => {
  it('changes the password of anybody and ends their sessions', async () => {
    const account = await createAccount(api)
    const token = await sessionOf(api, account)
    const before = await api.position()
    expect(await api.admin('POST', path, { userId: account.id, [member]: next })).toMatchObject({
      status: 200,
      body: { message: 'Password changed successfully' },
    })
    expect(await factsSince(api, before)).toEqual(['svc_User update', 'svc_User password_change'])
    const [, event] = await api.log(before)
    expect(event).toMatchObject({ entityId: account.id })
    expect(event?.userId).not.toBe(account.id)
    expect(await isLive(token)).toBe(false)
    expect(await login(account.email, next)).toBe(200)
  })
})

it.each([
  ['/auth/admin/password/change', 'newPassword'],
  ['/auth/admin/change-password', 'password'],
])('POST %s refuses everybody else, and what makes no sense', async (path, member) => {
  const account = await createAccount(api)
  const token = await sessionOf(api, account)
  const body = { userId: account.id, [member]: next }
  const before = await api.position()
  expect(await api.anonymous('POST', path, body)).toMatchObject({ status: 401, body: { message: 'Unauthorized' } })
  expect(await api.as(token)('POST', path, body)).toMatchObject({
    status: 403,
    body: { message: "Only administrators can change other users' passwords" },
  })
  for (const incomplete of [undefined, { userId: account.id }, { [member]: next }])
    expect(await api.admin('POST', path, incomplete)).toMatchObject({
      status: 400,
      body: { message: 'User ID and new password are required' },
    })
  expect(await api.admin('POST', path, { ...body, [member]: 'short' })).toMatchObject(unfit)
  for (const userId of ['nobody', '00000000-0000-0000-0000-000000000000'])
    expect(await api.admin('POST', path, { ...body, userId })).toMatchObject({
      status: 404,
      body: { message: 'User not found' },
    })
  expect(await factsSince(api, before)).toEqual([])
  expect(await login(account.email, password)).toBe(200)
})
