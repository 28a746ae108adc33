import { beforeAll, describe, expect, it } from 'vitest'
import { hashSecret, newSecret } from '../../src/adapters/tokens.ts'
import { deleteEndedCounters } from '../../src/db/unlogged/requests.ts'
import type { App } from '../../src/http/http.ts'
import { createAccount, password, plant, sessionOf } from '../support/accounts.ts'
import { type Api, startApi } from '../support/api.ts'
import { configured } from '../support/configured.ts'
import { administrator } from '../support/prepare.ts'
import { createRole, createTenant, createUser, type TenantUser } from '../support/tenants.ts'
import { untilAdmitted, waitFor } from '../support/wait.ts'

const limited = { AUTH_RATE_LIMIT_DISABLED: 'false', AUTH_APP_URL: 'https://app.example' }
const tooMany = { message: 'Too many attempts. Please try again later.', code: 'TOO_MANY_REQUESTS' }

type From = { ip?: string; headers?: Record<string, string> }

function loginOnce(app: App, email: string, password: string, { ip = '192.0.2.1', headers = {} }: From = {}) {
  return app.inject({ method: 'POST', url: '/auth/login', payload: { email, password }, remoteAddress: ip, headers })
}

function login(app: App, email: string, password: string, from?: From) {
  return untilAdmitted(() => loginOnce(app, email, password, from))
}

/** A guess at a mailed token: cheap, and counted by address alone. */
function guess(app: App, { ip = '192.0.2.1', headers = {} }: From = {}, path = '/auth/email/verify/guess') {
  return app.inject({ url: path, remoteAddress: ip, headers })
}

function resend(app: App, email: unknown, { ip = '192.0.2.1', headers = {} }: From = {}) {
  const payload = { email, link: 'https://app.example' }
  return app.inject({ method: 'POST', url: '/auth/email/verify/resend', payload, remoteAddress: ip, headers })
}

const person = { firstName: 'N', lastName: 'N', password: 'long enough' }

function register(app: App, email: string, ip: string) {
  const payload = { ...person, email }
  return untilAdmitted(() => app.inject({ method: 'POST', url: '/auth/register', payload, remoteAddress: ip }))
}

async function statuses(answers: readonly Promise<{ statusCode: number }>[]): Promise<Record<number, number>> {
  const counts: Record<number, number> = {}
  for (const { statusCode } of await Promise.all(answers)) counts[statusCode] = (counts[statusCode] ?? 0) + 1
  return counts
}

const times = <T>(n: number, make: (i: number) => T): T[] => Array.from({ length: n }, (_, i) => make(i))

describe('attempts', () => {
  let api: Api
  beforeAll(async () => {
    api = await startApi(limited)
  })

  it('20 at once over two processes: 10 are evaluated, and a process that starts later knows', async () => {
    const other = await configured(api.database, limited)
    const before = await api.position()
    const guesses = times(20, (i) => login(i % 2 ? api.app : other, administrator.email, 'wrong'))
    expect(await statuses(guesses)).toEqual({ 400: 10, 429: 10 })
    const restarted = await configured(api.database, limited)
    // The right password does not help, and the spelling of the address is no way around.
    const answer = await login(restarted, administrator.email.toUpperCase(), administrator.password)
    expect(answer.statusCode).toBe(429)
    expect(answer.json()).toEqual(tooMany)
    expect(answer.headers).toMatchObject({ 'ratelimit-limit': '10', 'ratelimit-remaining': '0' })
    expect(answer.headers['retry-after']).toBe(answer.headers['ratelimit-reset'])
    expect(Number(answer.headers['retry-after'])).toBeGreaterThan(800)
    expect(Number(answer.headers['retry-after'])).toBeLessThanOrEqual(900)
    // Each evaluated attempt leaves its event, beside the answer.
    const failed = async () => (await api.log(before)).filter(({ action }) => action === 'login_failed').length
    await waitFor(async () => (await failed()) === 10)
    await other.close()
    expect(await failed()).toBe(10)
    expect((await login(api.app, administrator.email, administrator.password, { ip: '192.0.2.2' })).statusCode).toBe(
      200,
    )
    expect((await resend(api.app, 'somebody.else@example.com')).statusCode).toBe(200)
  })

  it('successful ones count, each answer says what is left', async () => {
    const app = await configured(api.database, { ...limited, AUTH_RATE_LIMIT: '3' })
    const answers = []
    for (let i = 0; i < 4; i += 1)
      answers.push(await login(app, administrator.email, administrator.password, { ip: '192.0.2.3' }))
    expect(answers.map(({ statusCode }) => statusCode)).toEqual([200, 200, 200, 429])
    expect(answers.map(({ headers }) => headers['ratelimit-remaining'])).toEqual(['2', '1', '0', '0'])
  })

  it('success takes nothing of what an address may fail', async () => {
    const other = await configured(api.database, limited)
    const ip = '192.0.2.40'
    // Sprayed guesses beside them, by the same address.
    const spray = async (from: number, to: number) => {
      for (let at = from; at < to; at += 10) {
        const count = Math.min(10, to - at)
        const guess = (i: number) => login(i % 2 ? api.app : other, `spray${at + i}@example.com`, 'wrong', { ip })
        expect(await statuses(times(count, guess))).toEqual({ 400: count })
      }
    }
    await spray(0, 60)
    const people = await Promise.all(times(60, () => createAccount(api)))
    for (let i = 0; i < 60; i += 10) {
      const some = people.slice(i, i + 10)
      expect(
        await statuses(some.map(({ email }, j) => login(j % 2 ? api.app : other, email, password, { ip }))),
      ).toEqual({
        200: 10,
      })
    }
    await spray(60, 99)
    expect(await statuses(times(3, (i) => login(other, `more${i}@example.com`, 'wrong', { ip })))).toEqual({
      400: 1,
      429: 2,
    })
    expect((await login(api.app, people[0]!.email, password, { ip })).statusCode).toBe(429)
    expect((await login(api.app, people[0]!.email, password, { ip: '192.0.2.41' })).statusCode).toBe(200)
  })

  it('login, resend and the like share the budget of a pair; routes without an e-mail have their own', async () => {
    const ip = '192.0.2.4'
    for (let i = 0; i < 10; i += 1) expect((await resend(api.app, 'Pair@example.com', { ip })).statusCode).toBe(200)
    expect((await login(api.app, 'pair@example.com', 'wrong', { ip })).statusCode).toBe(429)
    const guesses = times(12, (i) => guess(api.app, { ip }, `/auth/email/verify/guess${i}?email=e${i}@example.com`))
    expect(await statuses(guesses)).toEqual({ 400: 10, 429: 2 })
  })

  it('one client is an IPv4 address however it is written, or a /64; forwarded headers are ignored', async () => {
    const spellings = [
      (i: number) => ({ ip: i % 2 ? '192.0.2.5' : '::ffff:192.0.2.5' }),
      (i: number) => ({ ip: `2001:db8:0:5:${i + 1}::${i}` }),
      (i: number) => ({
        ip: '192.0.2.6',
        headers: { 'x-forwarded-for': `198.51.100.${i}`, 'x-real-ip': `10.0.0.${i}` },
      }),
    ]
    for (const spelling of spellings)
      expect(await statuses(times(12, (i) => guess(api.app, spelling(i))))).toEqual({ 400: 10, 429: 2 })
    expect((await guess(api.app, { ip: '2001:db8:0:6::1' })).statusCode).toBe(400)
  })

  it('of a trusted proxy the address that it has seen counts, and nothing left of it', async () => {
    const app = await configured(api.database, { ...limited, TRUST_PROXY: '10.0.0.0/8' })
    const through = (seen: string, i: number) =>
      guess(app, { ip: '10.0.0.1', headers: { 'x-forwarded-for': `198.51.100.${i}, ${seen}` } })
    expect(await statuses(times(12, (i) => through('192.0.2.7', i)))).toEqual({ 400: 10, 429: 2 })
    expect((await through('192.0.2.8', 0)).statusCode).toBe(400)
    const around = times(12, (i) => guess(app, { ip: '192.0.2.9', headers: { 'x-forwarded-for': `192.0.2.1${i}` } }))
    expect(await statuses(around)).toEqual({ 400: 10, 429: 2 })
  })

  it('one password on many accounts, and registrations, are bounded by address', async () => {
    const app = await configured(api.database, { ...limited, AUTH_RATE_LIMIT: '2' })
    const ip = '192.0.2.20'
    const sprayed = times(25, (i) => resend(app, `account${i}@example.com`, { ip }))
    expect(await statuses(sprayed)).toEqual({ 200: 20, 429: 5 })
    // Registrations that fail tell which addresses have an account.
    const known = times(25, () => register(app, administrator.email, ip))
    expect(await statuses(known)).toEqual({ 400: 20, 429: 5 })
    expect((await register(app, 'new@example.com', ip)).statusCode).toBe(429)
    expect((await register(app, 'new@example.com', '192.0.2.30')).statusCode).toBe(200)
  })

  it('registrations that succeed are bounded, too, but far beyond what people do', async () => {
    const app = await configured(api.database, { ...limited, AUTH_RATE_LIMIT: '1' })
    const count = async () => (await api.sql('select count(*)::int as n from "svc_User"'))[0].n
    const before = await count()
    const codes: Record<number, number> = {}
    for (let i = 0; i < 104; i += 8)
      for (const [code, n] of Object.entries(
        await statuses(times(8, (j) => register(app, `many${i + j}@example.com`, '192.0.2.31'))),
      ))
        codes[Number(code)] = (codes[Number(code)] ?? 0) + n
    expect(codes).toEqual({ 200: 100, 429: 4 })
    expect((await count()) - before).toBe(100)
  })

  it("a signed-in caller's resends count by caller, whatever e-mail the body names", async () => {
    const ip = '192.0.2.21'
    const { body } = await api.anonymous('POST', '/auth/login', administrator)
    const headers = { authorization: `Bearer ${body.token}` }
    const answers = times(12, (i) => resend(api.app, `anybody${i}@example.com`, { ip, headers }))
    expect(await statuses(answers)).toEqual({ 200: 10, 429: 2 })
  })

  it('changes of the address that succeed are bounded by user, from wherever, and by client', async () => {
    const app = await configured(api.database, { ...limited, AUTH_RATE_LIMIT: '1' })
    const tokens = await Promise.all(times(11, async () => sessionOf(api, await createAccount(api))))
    const ask = (token: string, email: string, ip: string) =>
      app.inject({
        ...{ method: 'POST', url: '/auth/email/change', remoteAddress: ip },
        ...{ headers: { authorization: `Bearer ${token}` }, payload: { email, currentPassword: password } },
      })
    const codes = []
    for (const [i, token] of tokens.entries())
      codes.push((await ask(token, `wanted${i}@example.com`, '192.0.2.24')).statusCode)
    expect(codes).toEqual([...times(10, () => 200), 429])
    expect((await ask(tokens[0]!, 'another@example.com', '192.0.2.25')).statusCode).toBe(429)
    expect((await ask(tokens[10]!, 'another@example.com', '192.0.2.25')).statusCode).toBe(200)
  })

  it('a window that is over counts no more: the next attempt begins anew, and the counter goes', async () => {
    const app = await configured(api.database, { ...limited, AUTH_RATE_LIMIT: '1' })
    const ip = '192.0.2.22'
    expect(await statuses(times(3, () => guess(app, { ip })))).toEqual({ 400: 1, 429: 2 })
    const ended = `update "svc_RateLimit" set "endsAt" = now() where key = $1 returning key`
    const keys = await api.sql(`select key from "svc_RateLimit" where "endsAt" > now() and key !~ '\\.'`)
    expect(keys.length).toBeGreaterThan(0)
    for (const { key } of keys) await api.sql(ended, [key])
    const restarted = await configured(api.database, { ...limited, AUTH_RATE_LIMIT: '1' })
    expect(await statuses(times(3, () => guess(restarted, { ip })))).toEqual({ 400: 1, 429: 2 })
    await deleteEndedCounters(api.runtime, 1000)
    expect(await api.sql(`select key from "svc_RateLimit" where "endsAt" <= now()`)).toEqual([])
    // The attempts, and those of them that were given back.
    expect(await api.sql(`select key from "svc_RateLimit" where "endsAt" > now()`)).toHaveLength(2)
  })

  it('no e-mail address and no token is kept', async () => {
    const ip = '192.0.2.23'
    await resend(api.app, 'canary@example.com', { ip })
    const kept = JSON.stringify(await api.sql(`select * from "svc_RateLimit"`))
    expect(kept).not.toContain('canary')
  })

  it('only test mode is without it, and AUTH_RATE_LIMIT_DISABLED', async () => {
    const app = await configured(api.database, {})
    expect(await statuses(times(15, () => guess(app)))).toEqual({ 400: 15 })
  })
})

/** The requests of people in an office or behind a frontend's server, and those of a guesser. */
describe('many people behind one address', () => {
  const env = { ...limited, MULTI_TENANT: 'true', AUTH_RATE_LIMIT: '2' }
  let api: Api
  let other: App
  let role: string
  beforeAll(async () => {
    api = await startApi(env)
    other = (await startApi(env, api.database)).app
    const [{ id }] = await api.sql(`select id from "svc_Role" where name = 'user'`)
    role = id
  })
  const of = (i: number) => (i % 2 ? api.app : other)
  const token = () => newSecret()
  const ask = (i: number, method: 'GET' | 'POST', url: string, ip: string, payload?: object) =>
    of(i).inject({ method, url, remoteAddress: ip, ...(payload && { payload }) })
  const at = ([path, payload]: [string, object?], ip: string) => [path, ip, payload] as const
  const invite = async (email: string) => {
    const secret = newSecret()
    const [{ id }] = await api.sql(`insert into "svc_Tenant" (name) values ($1) returning id`, [`of ${email}`])
    await api.sql(
      `insert into "svc_Invite" (email, "role_Id", "tenant_Id", token, "expiresAt", "invitedBy_Id")
       select $1, $2, $3, $4, now() + interval '1 day', id from "svc_User" where email = $5`,
      [email, role, id, hashSecret(secret), administrator.email],
    )
    return secret
  }

  /** What one of them does, and the same by a guesser: a path and a body. */
  const purposes: readonly [
    string,
    {
      right: (email: string) => Promise<[string, object?]>
      wrong: () => [string, object?]
      method: 'GET' | 'POST'
      atMost: number
      left?: number
    },
  ][] = [
    [
      'sign in by magic link',
      {
        method: 'GET',
        right: async (email) => [`/auth/magiclink/${await plant(api, 'magic-link', email)}`],
        wrong: () => [`/auth/magiclink/${token()}`],
        atMost: 20,
      },
    ],
    [
      'sign in by mailed code',
      {
        method: 'GET',
        right: async (email) => [`/auth/magiclink/${await plant(api, 'magic-link', email, { form: 'code' })}`],
        wrong: () => ['/auth/magiclink/ABCDEFGH'],
        // Fewer than the route's own budget: wrong codes have their tries besides.
        atMost: 10,
        left: 20,
      },
    ],
    [
      'set a new password by mail',
      {
        method: 'POST',
        right: async (email) => [`/auth/password/reset/${await plant(api, 'password-reset', email)}`, { password }],
        wrong: () => [`/auth/password/reset/${token()}`, { password }],
        atMost: 20,
      },
    ],
    [
      'verify their addresses',
      {
        method: 'GET',
        right: async (email) => [`/auth/email/verify/${await plant(api, 'email-verification', email)}`],
        wrong: () => [`/auth/email/verify/${token()}`],
        atMost: 20,
      },
    ],
    [
      'look at their invitations',
      {
        method: 'GET',
        right: async (email) => [`/auth/verify-invite/${await invite(email)}`],
        wrong: () => [`/auth/verify-invite/${token()}`],
        atMost: 20,
      },
    ],
  ]

  it.each(purposes)(
    '%s; wrong ones are bounded, and by no other purpose',
    async (what, { method, right, wrong, atMost, left = atMost }) => {
      const ip = `198.51.100.${purposes.findIndex(([name]) => name === what) + 1}`
      for (let i = 0; i < 30; i += 1) {
        const [path, payload] = await right((await createAccount(api)).email)
        const answer = await ask(i, method, path, ip, payload)
        expect([answer.statusCode, answer.headers['ratelimit-remaining']]).toEqual([200, String(left)])
      }
      const codes: number[] = []
      for (let i = 0; i < atMost + 10; i += 10) {
        const some = times(10, (j) => ask(j, method, ...at(wrong(), ip)))
        codes.push(...(await Promise.all(some)).map(({ statusCode }) => statusCode))
      }
      expect(codes.filter((code) => code === 400)).toHaveLength(atMost)
      expect(codes.filter((code) => code === 429)).toHaveLength(codes.length - atMost)
      // Neither what the address does besides, nor the same elsewhere.
      for (const [other, purpose] of purposes) {
        const [path, payload] = await purpose.right((await createAccount(api)).email)
        // Links and codes to sign in with are one purpose.
        const isSame = other === what || [other, what].every((one) => one.startsWith('sign in'))
        const from = isSame ? '198.51.100.99' : ip
        expect((await ask(0, purpose.method, path, from, payload)).statusCode, other).toBe(200)
      }
    },
  )

  it('ask for their magic links and new passwords, one after the other and all at once', async () => {
    const app = await configured(api.database, { ...env, AUTH_RATE_LIMIT: '10' })
    const ip = '198.51.100.50'
    const send = (path: string, email: string) =>
      app.inject({ method: 'POST', url: path, payload: { email, link: 'https://app.example' }, remoteAddress: ip })
    const people = await Promise.all(times(60, () => createAccount(api)))
    for (const { email } of people.slice(0, 30)) expect((await send('/auth/magiclink', email)).statusCode).toBe(200)
    const resets = people.slice(30).map(({ email }) => send('/auth/password/reset', email))
    expect(await statuses(resets)).toEqual({ 200: 30 })
    await waitFor(async () => (await api.jobs('mail')).length === 60)
    // Unknown addresses are told, so they are few.
    const unknown = times(105, (i) => send('/auth/magiclink', `unknown${i}@example.com`))
    expect(await statuses(unknown)).toEqual({ 404: 100, 429: 5 })
  })

  it('invite a team; the same address is mailed a few times, whoever invites', async () => {
    const app = await configured(api.database, { ...env, AUTH_RATE_LIMIT: '2' })
    const roleId = await createRole(api, { canInviteRoleIds: [role] })
    const owners = []
    for (const name of ['One', 'Two', 'Three'])
      owners.push(await createUser(api, roleId, await createTenant(api, name)))
    const invited = async (by: TenantUser, email: string, ip = '198.51.100.60') => {
      const headers = { authorization: `Bearer ${by.token}` }
      const payload = { email, role_Id: role }
      const answer = await app.inject({ method: 'POST', url: '/auth/invite', payload, headers, remoteAddress: ip })
      if (answer.statusCode === 200)
        await api.admin('PATCH', `/items/svc_Invite/${answer.json().invite.id}`, { status: 'revoked' })
      return answer.statusCode
    }
    const [one, two, three] = owners as [TenantUser, TenantUser, TenantUser]
    expect([await invited(one, 'victim@example.com'), await invited(one, 'Victim@example.com')]).toEqual([200, 200])
    expect(await invited(one, 'victim@example.com')).toBe(429)
    expect(await invited(two, ' victim@example.com', '198.51.100.61')).toBe(429)
    const team = []
    for (let i = 0; i < 19; i += 1) team.push(await invited(one, `team${i}@example.com`))
    expect(team).toEqual([...times(18, () => 200), 429])
    // By user from elsewhere, and by client.
    expect(await invited(one, 'more@example.com', '198.51.100.62')).toBe(429)
    expect(await invited(three, 'more@example.com')).toBe(429)
    expect(await invited(three, 'more@example.com', '198.51.100.62')).toBe(200)
  })

  it('do it at the same time: what is under way does not stay counted', async () => {
    const ip = '198.51.100.51'
    const paths = await Promise.all(
      times(18, async () => `/auth/magiclink/${await plant(api, 'magic-link', (await createAccount(api)).email)}`),
    )
    expect(await statuses(paths.map((path, i) => ask(i, 'GET', path, ip)))).toEqual({ 200: 18 })
    const codes = await Promise.all(
      times(18, async () => plant(api, 'magic-link', (await createAccount(api)).email, { form: 'code' })),
    )
    expect(await statuses(codes.map((code, i) => ask(i, 'GET', `/auth/magiclink/${code}`, ip)))).toEqual({ 200: 18 })
    const guesses = times(30, (i) => ask(i, 'GET', `/auth/magiclink/${token()}`, ip))
    expect(await statuses(guesses)).toEqual({ 400: 20, 429: 10 })
  })

  it('where no answer may tell of accounts, what is left of the limit does not either', async () => {
    const generic = await configured(api.database, { ...env, AUTH_RATE_LIMIT: '10', AUTH_GENERIC_RESPONSES: 'true' })
    const known = (await createAccount(api)).email
    const left = []
    for (const email of [known, 'nobody.at.all@example.com', known]) {
      const payload = { email, link: 'https://app.example' }
      const url = '/auth/magiclink'
      const answer = await generic.inject({ method: 'POST', url, payload, remoteAddress: '198.51.100.52' })
      left.push([answer.statusCode, answer.headers['ratelimit-remaining']])
    }
    expect(left).toEqual([
      [200, '9'],
      [200, '9'],
      [200, '8'],
    ])
  })

  it('a caller who is refused takes nothing of what the others have left', async () => {
    const app = await configured(api.database, { ...env, AUTH_RATE_LIMIT: '1' })
    const ip = '198.51.100.53'
    const wrong = (email: string) => login(app, email, 'wrong', { ip })
    // The pair is used up by the first, the address by ten that were made.
    expect(await statuses(times(20, () => wrong('pair@example.com')))).toEqual({ 400: 1, 429: 19 })
    expect(await statuses(times(12, (i) => wrong(`other${i}@example.com`)))).toEqual({ 400: 9, 429: 3 })
  })
})

describe('a flood of logins', () => {
  it('waits in a bounded queue; the rest is told to come back, and other routes answer meanwhile', async () => {
    const api = await startApi({ PASSWORD_HASH_COST: '10' })
    let answered = 0
    const flood = times(240, (i) =>
      loginOnce(api.app, `nobody${i}@example.com`, 'wrong').finally(() => (answered += 1)),
    )
    expect((await api.anonymous('GET', '/')).status).toBe(200)
    expect((await api.anonymous('GET', '/schemas')).status).toBe(200)
    expect(answered).toBeLessThan(240)
    const answers = await Promise.all(flood)
    const refused = answers.filter(({ statusCode }) => statusCode === 503)
    expect(refused.length).toBeGreaterThanOrEqual(60)
    for (const { headers } of refused) expect(headers['retry-after']).toBe('1')
    expect(answers.filter(({ statusCode }) => statusCode === 400)).toHaveLength(240 - refused.length)
  })

  it('takes no attempt from those who are told to come back', async () => {
    const api = await startApi({ ...limited, PASSWORD_HASH_COST: '10' })
    const flood = times(240, (i) =>
      loginOnce(api.app, `nobody${i}@example.com`, 'wrong', { ip: `198.51.100.${i % 200}` }),
    )
    const pair = (app = api.app) => loginOnce(app, 'pair@example.com', 'wrong')
    const first = await statuses(times(10, () => pair()))
    await Promise.all(flood)
    const left = first[503] ?? 0
    expect(left).toBeGreaterThan(0)
    expect(first).toEqual({ 503: left, ...(left < 10 && { 400: 10 - left }) })
    // Another process learns it from the shared counters.
    const other = await configured(api.database, { ...limited, PASSWORD_HASH_COST: '4' })
    for (let i = 0; i < left; i += 1) expect((await pair(i % 2 ? api.app : other)).statusCode).toBe(400)
    for (const app of [api.app, other]) expect((await pair(app)).statusCode).toBe(429)
  })
})
