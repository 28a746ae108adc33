import bcrypt from 'bcrypt'
import { beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { hashPassword } from '../../src/adapters/passwords.ts'
import { afterwardsDone } from '../../src/features/accounts/auth/capabilities.ts'
import { createAccount, factsSince, plant } from '../support/accounts.ts'
import { type Answer, type Api, startApi } from '../support/api.ts'
import { administrator } from '../support/prepare.ts'
import { upload } from '../support/upload.ts'

/** Users come from another product with the hashes of their passwords. */

const old = 'password of the old product'
const own = /^b1:\$2b\$/
let api: Api
let admin: string
beforeAll(async () => {
  api = await startApi({ ALLOW_PASSWORD_WRITES: 'true' })
  admin = (await api.anonymous('POST', '/auth/login', administrator)).body.token
})
beforeEach(() => afterwardsDone(api.runtime))

let count = 0
const user = (password: string) => {
  count += 1
  return { firstName: 'Bo', lastName: 'Mover', email: `mover${count}@example.com`, emailVerified: true, password }
}
const hash = (letter: string, cost = 4) => bcrypt.hashSync(old, cost).replace('$2b$', `$2${letter}$`)
const login = (email: string, password: string) => api.anonymous('POST', '/auth/login', { email, password })
const storedOf = async (email: string): Promise<string | null | undefined> =>
  (await api.sql('select password from "svc_User" where email = $1', [email]))[0]?.password
const giveRole = (email: string) =>
  api.sql(
    `insert into "svc_UserRole" ("user_Id", "role_Id")
     select u.id, r.id from "svc_User" u, "svc_Role" r where u.email = $1 and r.name = 'user'`,
    [email],
  )

type Moved = ReturnType<typeof user>

const ways: [string, (moved: Moved) => Promise<Answer>][] = [
  ['POST', (moved) => api.admin('POST', '/items/svc_User', moved)],
  ['bulk POST', (moved) => api.admin('POST', '/items/svc_User/bulk', [moved])],
  ['PUT', (moved) => api.admin('PUT', '/items/svc_User?key=email', moved)],
  [
    'an import',
    (moved) => {
      const part = { name: 'jsonFile', filename: 'users.json', content: JSON.stringify([moved]) }
      return upload(api, admin, '/items/svc_User/import-json', [part])
    },
  ],
]

describe.each(['a', 'b', 'y'])('a hash of the kind 2%s', (letter) => {
  it.each(ways)('is taken over by %s and replaced at the next sign-in', async (_way, write) => {
    const moved = user(hash(letter))
    const before = await api.position()
    const answer = await write(moved)
    expect(answer.status, answer.text).toBeLessThan(300)
    expect(await storedOf(moved.email)).toBe(moved.password)
    expect(JSON.stringify(await api.sql('select * from "svc_AuditLog"'))).not.toContain(moved.password)
    expect(await factsSince(api, before)).toEqual(['svc_User create'])
    await giveRole(moved.email)
    const begin = await api.position()
    expect((await login(moved.email, moved.password)).status).toBe(400)
    expect((await login(moved.email, 'wrong password')).status).toBe(400)
    expect(await storedOf(moved.email)).toBe(moved.password)
    expect(await factsSince(api, begin)).toEqual(['svc_User login_failed', 'svc_User login_failed'])
    const renewal = await api.position()
    expect((await login(moved.email, old)).status).toBe(200)
    expect(await storedOf(moved.email)).toMatch(own)
    expect(await factsSince(api, renewal)).toEqual(['svc_User update', 'svc_User login'])
    expect(await api.jobs('mail')).toEqual([])
    expect((await login(moved.email, old)).status).toBe(200)
    expect((await login(moved.email, moved.password)).status).toBe(400)
  })
})

it('sign-ins at the same time succeed, all of them', async () => {
  const { email } = await createAccount(api, { password: hash('b') })
  const answers = await Promise.all(Array.from({ length: 4 }, () => login(email, old)))
  expect(answers.map(({ status }) => status)).toEqual([200, 200, 200, 200])
  expect(await storedOf(email)).toMatch(own)
})

it('a hash that SQL wrote verifies, and stays where the sign-in is refused', async () => {
  const { email } = await createAccount(api, { password: hash('y'), status: 'suspended' })
  expect((await login(email, old)).status).toBe(403)
  expect(await storedOf(email)).not.toMatch(own)
  await api.sql(`update "svc_User" set status = 'active' where email = $1`, [email])
  expect((await login(email, old)).status).toBe(200)
})

it('a hash of another Daybook is taken over as it is', async () => {
  const moved = user(await hashPassword(old, 4))
  expect((await api.admin('POST', '/items/svc_User', moved)).status).toBe(201)
  await giveRole(moved.email)
  expect((await login(moved.email, old)).status).toBe(200)
  expect(await storedOf(moved.email)).toBe(moved.password)
})

const argon = '$argon2id$v=19$m=65536,t=3,p=4$c29tZXNhbHQ$RdescudvJCsgt3ub+b27Zg'

it.each([
  ['another algorithm', argon],
  ['the form of a fault', hash('x')],
  ['a cost that is too high', `$2b$15$${hash('b').slice(7)}`],
])('refuses a hash of %s', async (_what, password) => {
  const before = await api.position()
  const answer = await api.admin('POST', '/items/svc_User', user(password))
  expect(answer).toMatchObject({
    status: 400,
    body: {
      error: { message: 'This hash of a password cannot be taken over', details: expect.stringMatching(/bcrypt/) },
    },
  })
  expect(answer.text).not.toContain(password)
  expect(await api.log(before)).toEqual([])
})

describe('nobody else sets a password that is a hash', () => {
  const words = 'Password must not be the hash of a password'

  it.each([hash('b'), argon])('at a registration: %s', async (password) => {
    const answer = await api.anonymous('POST', '/auth/register', user(password))
    expect(answer).toMatchObject({ status: 400, body: { message: words } })
  })

  it('by a change, a reset, or the change of an administrator', async () => {
    const account = await createAccount(api, { password: hash('b') })
    const token = (await login(account.email, old)).body.token
    const next = hash('a')
    const secret = await plant(api, 'password-reset', account.email)
    const before = await api.position()
    const answers = [
      await api.as(token)('POST', '/auth/password/change', { currentPassword: old, newPassword: next }),
      await api.anonymous('POST', `/auth/password/reset/${secret}`, { password: next }),
      await api.admin('POST', '/auth/admin/password/change', { userId: account.id, newPassword: next }),
    ]
    for (const answer of answers) expect(answer, answer.text).toMatchObject({ status: 400, body: { message: words } })
    expect(await api.log(before)).toEqual([])
  })

  it('by items of a role that may write passwords', async () => {
    const account = await createAccount(api, { password: hash('b') })
    const token = (await login(account.email, old)).body.token
    await api.sql(
      `insert into "svc_Permission" ("role_Id", collection, action, fields)
       select id, 'svc_User', 'update', '["*", "password"]' from "svc_Role" where name = 'user'`,
    )
    await api.admin('POST', '/permissions/reload', {})
    const answer = await api.as(token)('PATCH', `/items/svc_User/${account.id}`, { password: hash('a') })
    expect(answer, answer.text).toMatchObject({ status: 400, body: { error: { message: words } } })
  })
})
