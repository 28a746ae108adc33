import { beforeAll, describe, expect, it } from 'vitest'
import { deleteEndedCounters } from '../../src/db/unlogged/counters.ts'
import type { App } from '../../src/http.ts'
import { type Api, startApi } from '../support/api.ts'
import { configured } from '../support/configured.ts'
import { administrator } from '../support/prepare.ts'
import { waitFor } from '../support/wait.ts'

const limited = { AUTH_RATE_LIMIT_DISABLED: 'false', AUTH_APP_URL: 'https://app.example' }
const tooMany = { message: 'Too many attempts. Please try again later.', code: 'TOO_MANY_REQUESTS' }

type From = { ip?: string; headers?: Record<string, string> }

function login(app: App, email: string, password: string, { ip = '192.0.2.1', headers = {} }: From = {}) {
  return app.inject({ method: 'POST', url: '/auth/login', payload: { email, password }, remoteAddress: ip, headers })
}

/** A guess at a mailed token: cheap, and counted by address alone. */
function guess(app: App, { ip = '192.0.2.1', headers = {} }: From = {}, path = '/auth/email/verify/guess') {
  return app.inject({ url: path, remoteAddress: ip, headers })
}

function resend(app: App, email: unknown, { ip = '192.0.2.1', headers = {} }: From = {}) {
  const payload = { email, link: 'https://app.example' }
  return app.inject({ method: 'POST', url: '/auth/email/verify/resend', payload, remoteAddress: ip, headers })
}

async function statuses(answers: readonly Promise<{ statusCode: number }>[]): Promise<Record<number, number>> {
  const counts: Record<number, number> = {}
  for (const { statusCode } of await Promise.all(answers)) counts[statusCode] = (counts[statusCode] ?? 0) + 1
  return counts
}

const times = <T>(n: number, make: (i: number) => T): T[] => Array.from({ length: n }, (_, i) => make(i))

describe('attempts (A-39)', () => {
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

  it('login, resend and the like share the budget of a pair; routes without an e-mail have their own (A-20)', async () => {
    const ip = '192.0.2.4'
    for (let i = 0; i < 10; i += 1) expect((await resend(api.app, 'Pair@example.com', { ip })).statusCode).toBe(200)
    expect((await login(api.app, 'pair@example.com', 'wrong', { ip })).statusCode).toBe(429)
    const guesses = times(12, (i) => guess(api.app, { ip }, `/auth/email/verify/guess${i}?email=e${i}@example.com`))
    expect(await statuses(guesses)).toEqual({ 400: 10, 429: 2 })
  })

  it('one client is an IPv4 address however it is written, or a /64; forwarded headers are ignored (A-21)', async () => {
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

  it('of a trusted proxy the address that it has seen counts, and nothing left of it (A-21)', async () => {
    const app = await configured(api.database, { ...limited, TRUST_PROXY: '10.0.0.0/8' })
    const through = (seen: string, i: number) =>
      guess(app, { ip: '10.0.0.1', headers: { 'x-forwarded-for': `198.51.100.${i}, ${seen}` } })
    expect(await statuses(times(12, (i) => through('192.0.2.7', i)))).toEqual({ 400: 10, 429: 2 })
    expect((await through('192.0.2.8', 0)).statusCode).toBe(400)
    const around = times(12, (i) => guess(app, { ip: '192.0.2.9', headers: { 'x-forwarded-for': `192.0.2.1${i}` } }))
    expect(await statuses(around)).toEqual({ 400: 10, 429: 2 })
  })

  it('one password on many accounts, and registrations, are bounded by address (D-10)', async () => {
    const app = await configured(api.database, { ...limited, AUTH_RATE_LIMIT: '2' })
    const ip = '192.0.2.20'
    const sprayed = times(25, (i) => resend(app, `account${i}@example.com`, { ip }))
    expect(await statuses(sprayed)).toEqual({ 200: 20, 429: 5 })
    const before = await api.sql('select count(*)::int as n from "svc_User"')
    const person = { firstName: 'N', lastName: 'N', password: 'long enough' }
    const registrations = times(4, (i) =>
      app.inject({
        method: 'POST',
        url: '/auth/register',
        payload: { ...person, email: `new${i}@example.com` },
        remoteAddress: ip,
      }),
    )
    expect(await statuses(registrations)).toEqual({ 200: 2, 429: 2 })
    const after = await api.sql('select count(*)::int as n from "svc_User"')
    expect(after[0].n - before[0].n).toBe(2)
  })

  it("a signed-in caller's resends count by caller, whatever e-mail the body names", async () => {
    const ip = '192.0.2.21'
    const { body } = await api.anonymous('POST', '/auth/login', administrator)
    const headers = { authorization: `Bearer ${body.token}` }
    const answers = times(12, (i) => resend(api.app, `anybody${i}@example.com`, { ip, headers }))
    expect(await statuses(answers)).toEqual({ 200: 10, 429: 2 })
  })

  it('a window that is over is nobody’s any more: the next attempt begins anew, and the counter goes', async () => {
    const app = await configured(api.database, { ...limited, AUTH_RATE_LIMIT: '1' })
    const ip = '192.0.2.22'
    expect(await statuses(times(3, () => guess(app, { ip })))).toEqual({ 400: 1, 429: 2 })
    const ended = `update "svc_RateLimit" set "endsAt" = now() where key = $1 returning key`
    const keys = await api.sql(`select key from "svc_RateLimit" where "endsAt" > now() and key !~ '\\.'`)
    expect(keys.length).toBeGreaterThan(0)
    for (const { key } of keys) await api.sql(ended, [key])
    const restarted = await configured(api.database, { ...limited, AUTH_RATE_LIMIT: '1' })
    expect(await statuses(times(3, () => guess(restarted, { ip })))).toEqual({ 400: 1, 429: 2 })
    await deleteEndedCounters(api.rt, 1000)
    expect(await api.sql(`select key from "svc_RateLimit" where "endsAt" <= now()`)).toEqual([])
    expect(await api.sql(`select key from "svc_RateLimit" where "endsAt" > now()`)).toHaveLength(1)
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

describe('a flood of logins (D-09)', () => {
  it('waits in a bounded queue; the rest is told to come back, and other routes answer meanwhile', async () => {
    const api = await startApi({ PASSWORD_HASH_COST: '10' })
    let answered = 0
    const flood = times(80, (i) => login(api.app, `nobody${i}@example.com`, 'wrong').finally(() => (answered += 1)))
    expect((await api.anonymous('GET', '/')).status).toBe(200)
    expect((await api.anonymous('GET', '/schemas')).status).toBe(200)
    expect(answered).toBeLessThan(80)
    const answers = await Promise.all(flood)
    const refused = answers.filter(({ statusCode }) => statusCode === 503)
    expect(refused.length).toBeGreaterThanOrEqual(20)
    for (const { headers } of refused) expect(headers['retry-after']).toBe('1')
    expect(answers.filter(({ statusCode }) => statusCode === 400)).toHaveLength(80 - refused.length)
  })
})
