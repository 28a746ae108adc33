import { beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { createAccount, factsSince, plant } from '../support/accounts.ts'
import { type Api, startApi } from '../support/api.ts'
import { untilAdmitted } from '../support/wait.ts'

/** Guessing at codes: every try is paid for in the database. */

let api: Api
/** A second web process on the same database. */
let other: Api
beforeAll(async () => {
  api = await startApi()
  other = await startApi({}, api.database)
})
beforeEach(() => Promise.all([api.sql('delete from "svc_CodeTry"'), api.sql('delete from "svc_Verification"')]))

type Try = { code: string; email?: string; ip?: string; headers?: Record<string, string>; by?: Api }
type Answer = { status: number; message: string; retryAfter: unknown }

async function inject(
  by: Api,
  url: string,
  { ip = '192.0.2.1', headers = {} }: Try,
  payload?: object,
): Promise<Answer> {
  const method = payload === undefined ? 'GET' : 'POST'
  const request = { method, url, remoteAddress: ip, headers, ...(payload && { payload }) } as const
  const response = await untilAdmitted(() => by.app.inject(request))
  return { status: response.statusCode, message: response.json().message, retryAfter: response.headers['retry-after'] }
}

function openLink(guess: Try): Promise<Answer> {
  const query = guess.email === undefined ? '' : `?email=${encodeURIComponent(guess.email)}`
  return inject(guess.by ?? api, `/auth/magiclink/${guess.code}${query}`, guess)
}

function reset(guess: Try): Promise<Answer> {
  const body = { password: 'a new password', ...(guess.email !== undefined && { email: guess.email }) }
  return inject(guess.by ?? api, `/auth/password/reset/${guess.code}`, guess, body)
}

const doors = [
  { purpose: 'magic-link', attempt: openLink, failed: 'magic_link_failed', wrong: 'Invalid or expired magic link' },
  {
    purpose: 'password-reset',
    attempt: reset,
    failed: 'password_reset_failed',
    wrong: 'Invalid or expired reset token',
  },
]
const tooMany = { status: 429, message: 'Too many attempts. Please try again later.' }
/** No code: the alphabet has no 0. */
const wrongCode = (n: number) => `0000${String(n).padStart(4, '0')}`
let address = 0
const newAddress = () => `198.51.${++address >> 8}.${address & 255}`
const times = <T>(n: number, make: (i: number) => Promise<T>) =>
  Promise.all(Array.from({ length: n }, (_, i) => make(i)))
const ageTries = () => api.sql(`update "svc_CodeTry" set "endsAt" = "endsAt" - interval '15 minutes'`)

describe.each(doors)('$purpose', ({ purpose, attempt, failed, wrong }) => {
  const refused = { status: 400, message: wrong }
  const prepared = async () => {
    const { email, id } = await createAccount(api)
    return { email, id, code: await plant(api, purpose, email, { form: 'code' }) }
  }

  it('takes the right code at the fifth try, in any letters', async () => {
    const { email, code } = await prepared()
    for (let n = 0; n < 4; n += 1) expect(await attempt({ code: wrongCode(n), email })).toMatchObject(refused)
    expect(await attempt({ code: `${code.slice(0, 4)}-${code.slice(4)}`.toLowerCase(), email })).toMatchObject({
      status: 200,
    })
  })

  it('refuses the right code of an account after 5 wrong ones, from anywhere, with and without email', async () => {
    const { email, id, code } = await prepared()
    const before = await api.position()
    const answers = await times(8, (n) =>
      attempt({ code: wrongCode(n), email: email.toUpperCase(), ip: newAddress(), by: n % 2 === 0 ? api : other }),
    )
    for (const answer of answers) expect(answer).toMatchObject(refused)
    expect(await factsSince(api, before)).toEqual(Array.from({ length: 8 }, () => `svc_User ${failed}`))
    expect((await api.log(before))[0]).toMatchObject({ type: 'auth', entityId: id, changes: null })
    expect(await attempt({ code, email, ip: newAddress() })).toMatchObject(refused)
    expect(await attempt({ code, ip: newAddress() })).toMatchObject(refused)
    const newer = await plant(api, purpose, email, { form: 'code' })
    expect(await attempt({ code: newer, email, ip: newAddress() })).toMatchObject(refused)
    await ageTries()
    expect(await attempt({ code: newer, email, ip: newAddress() })).toMatchObject({ status: 200 })
  })

  it('still takes the link of such an account', async () => {
    const { email } = await prepared()
    await times(6, (n) => attempt({ code: wrongCode(n), email, ip: newAddress() }))
    const token = await plant(api, purpose, email)
    expect(await attempt({ code: token })).toMatchObject({ status: 200 })
  })

  it('stops an address after 10 wrong ones, whatever email and headers it adds', async () => {
    const { email, code } = await prepared()
    const guesses = await times(14, (n) =>
      attempt({
        code: wrongCode(n),
        email: `victim${n}@example.com`,
        headers: { 'x-forwarded-for': newAddress(), forwarded: `for=${newAddress()}` },
      }),
    )
    expect(guesses.filter(({ status }) => status === 400)).toHaveLength(10)
    expect(guesses.filter(({ status }) => status === 429)).toHaveLength(4)
    const blocked = await attempt({ code, email })
    expect(blocked).toMatchObject(tooMany)
    expect(Number(blocked.retryAfter)).toBeGreaterThan(800)
    expect(Number(blocked.retryAfter)).toBeLessThanOrEqual(900)
    expect(await attempt({ code, by: other })).toMatchObject(tooMany)
    expect(await attempt({ code, ip: '::ffff:192.0.2.1' })).toMatchObject(tooMany)
    expect(await attempt({ code, ip: newAddress() })).toMatchObject({ status: 200 })
  })

  it('counts a blocked address against no account', async () => {
    const { email, code } = await prepared()
    await times(10, (n) => attempt({ code: wrongCode(n) }))
    await times(10, (n) => attempt({ code: wrongCode(n), email }))
    expect(await attempt({ code, email, ip: newAddress() })).toMatchObject({ status: 200 })
  })

  it('counts an IPv6 network as one client', async () => {
    const answers = await times(12, (n) => attempt({ code: wrongCode(n), ip: `2001:db8:1:2::${n + 1}` }))
    expect(answers.filter(({ status }) => status === 429)).toHaveLength(2)
    expect(await attempt({ code: wrongCode(0), ip: '2001:db8:1:3::1' })).toMatchObject(refused)
  })

  it('wants an email after 1,000 wrong ones without', async () => {
    const [first, second] = [await prepared(), await prepared()]
    await attempt({ code: wrongCode(0), ip: newAddress() })
    await api.sql(`update "svc_CodeTry" set "left" = 5 where key = 'without account'`)
    const answers = await times(20, (n) =>
      attempt({ code: wrongCode(n), ip: newAddress(), by: n % 2 === 0 ? api : other }),
    )
    expect(answers.filter(({ message }) => message === wrong)).toHaveLength(5)
    const needsEmail = { status: 400, message: 'Email is required' }
    expect(answers.filter(({ message }) => message === needsEmail.message)).toHaveLength(15)
    expect(await attempt({ code: first.code, ip: newAddress() })).toMatchObject(needsEmail)
    expect(await attempt({ ...first, ip: newAddress() })).toMatchObject({ status: 200 })
    await ageTries()
    expect(await attempt({ code: second.code, ip: newAddress() })).toMatchObject({ status: 200 })
  })

  it('has 1,000 tries without email, and 10 for an address', async () => {
    await attempt({ code: wrongCode(0) })
    expect(await api.sql('select key, "left" from "svc_CodeTry" order by key')).toEqual([
      { key: 'client 192.0.2.1', left: 9 },
      { key: 'without account', left: 999 },
    ])
  })

  it('charges nothing for right codes', async () => {
    for (let n = 0; n < 12; n += 1) {
      const { code, email } = await prepared()
      expect(await attempt({ code, ...(n % 2 === 0 && { email }) })).toMatchObject({ status: 200 })
    }
    const left = await api.sql('select key, "left" from "svc_CodeTry" order by key')
    expect(left).toEqual([
      { key: 'client 192.0.2.1', left: 10 },
      { key: 'without account', left: 1000 },
    ])
  })
})
