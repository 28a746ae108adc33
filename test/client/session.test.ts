import { describe, expect, onTestFinished, test, vi } from 'vitest'
import { openHttp } from '../../clients/http.ts'
import { openSession } from '../../clients/session.ts'

/** As a server signs it, at the end of its life: each of another session of the same user. */
const tokenOf = (sessionToken: string, lived: number, userId = 'the user') => {
  const iat = Date.now() / 1000 - lived
  return `h.${btoa(JSON.stringify({ userId, sessionToken, iat, exp: iat + 1000 }))}.s`
}

/**
 * Clients of one store, and a server that renews a token once; `hold` delays the answer of the first renewal. `lived`: seconds of
 * the thousand of the present token.
 */
function twoClients(hold: Promise<void>, lived = 900) {
  const [old, fresh] = [tokenOf('old', lived), tokenOf('fresh', lived - 900)]
  const kept = new Map([['daybook:http://server', old]])
  const store = {
    getItem: (name: string) => kept.get(name) ?? null,
    setItem: (name: string, value: string) => void kept.set(name, value),
    removeItem: (name: string) => void kept.delete(name),
  }
  let valid = old
  let renewedAt = 0
  const isRepeatable = () => Date.now() - renewedAt < 60_000
  const asked: string[] = []
  let isCut = false
  let isHole = false
  let losesAnswers = false
  let isUsed = false
  const answer = async (input: unknown, init?: RequestInit) => {
    asked.push(new URL(String(input)).pathname)
    if (isCut) throw new TypeError('fetch failed')
    if (isHole && String(input).endsWith('/auth/refresh')) return new Promise<Response>(() => undefined)
    const authorization = new Headers(init?.headers).get('authorization')
    const isRenewal = String(input).endsWith('/auth/refresh')
    const isRepeated = isRenewal && authorization === `Bearer ${old}` && valid === fresh && !isUsed && isRepeatable()
    if (isRepeated && !losesAnswers) return Response.json({ token: fresh })
    const isValid = authorization === `Bearer ${valid}`
    isUsed ||= isValid && valid === fresh
    if (!isValid && !isRepeated) return Response.json({ message: 'Invalid or expired token' }, { status: 401 })
    if (!isRenewal) return Response.json({ done: true })
    if (valid === old) renewedAt = Date.now()
    valid = fresh
    if (losesAnswers) throw new TypeError('terminated')
    await hold
    return Response.json({ token: fresh })
  }
  const open = () => {
    const session = openSession('http://server', { store }, () => http, true)
    const http = openHttp({
      url: 'http://server',
      fetch: answer as typeof fetch,
      authorize: () => session.headers(),
      onUnauthorized: (asked) => session.onUnauthorized(asked),
      withCookies: false,
      attempts: 1,
    })
    onTestFinished(() => session.close())
    return { session, http }
  }
  const cut = (now: boolean) => {
    isCut = now
  }
  /** Renewals are taken, and never answered. */
  const swallow = (now: boolean) => {
    isHole = now
  }
  /** Renewals are done, and their answers lost. */
  const lose = (now: boolean) => {
    losesAnswers = now
  }
  return { one: open(), other: open(), kept, fresh, asked, cut, swallow, lose }
}

/** Without what the client keeps beside it. */
const tokensIn = (kept: ReadonlyMap<string, string>) => [kept.get('daybook:http://server')].filter((token) => token)

test('a client whose renewal comes second takes the token of the first, and signs nobody out', async () => {
  const { promise, resolve } = Promise.withResolvers<void>()
  const { one, other, kept, fresh } = twoClients(promise)
  const told: string[] = []
  for (const { session } of [one, other]) session.onChange((state) => told.push(state))
  const first = one.http.ask('/items/note')
  const second = other.http.ask('/items/note')
  setTimeout(resolve)
  expect(await Promise.all([first, second])).toEqual([{ done: true }, { done: true }])
  expect(tokensIn(kept)).toEqual([fresh])
  expect(told).toEqual([])
})

const atOnce = Promise.resolve()
const useFakeTime = () => {
  vi.useFakeTimers({ toFake: ['Date', 'setTimeout', 'clearTimeout'] })
  onTestFinished(() => void vi.useRealTimers())
}
const seconds = (n: number) => vi.advanceTimersByTimeAsync(n * 1000)

test('a token is renewed before it ends although nobody asks for it, once for all clients of the store', async () => {
  useFakeTime()
  const { one, kept, fresh, asked } = twoClients(atOnce, 0)
  await seconds(749)
  expect(asked).toEqual([])
  await seconds(200)
  expect(tokensIn(kept)).toEqual([fresh])
  expect(one.session.state).toBe('signed in')
  expect(asked.filter((path) => path === '/auth/refresh').length).toBeLessThanOrEqual(2)
})

test('a token is renewed as soon as the server can be reached, also after a sleep of the machine', async () => {
  useFakeTime()
  const { one, kept, fresh, asked, cut } = twoClients(atOnce, 0)
  cut(true)
  // No timer runs while it sleeps.
  vi.setSystemTime(Date.now() + 800_000)
  await seconds(120)
  expect(asked.length).toBeGreaterThan(0)
  expect(one.session.state).toBe('signed in')
  cut(false)
  await seconds(75)
  expect(tokensIn(kept)).toEqual([fresh])
})

test('a token that has ended meanwhile signs its user out, though nobody asks for it', async () => {
  useFakeTime()
  const { one, other, kept, cut } = twoClients(atOnce, 0)
  const told: string[] = []
  one.session.onChange((state) => told.push(state))
  other.session.close()
  cut(true)
  await seconds(1200)
  expect(one.session.state).toBe('signed in')
  // The server takes neither of them any more.
  kept.set('daybook:http://server', tokenOf('another', 1001))
  cut(false)
  await seconds(180)
  expect(told).toEqual(['signed out'])
})

test('a session that is closed renews nothing', async () => {
  useFakeTime()
  const { one, other, asked } = twoClients(atOnce, 0)
  one.session.close()
  other.session.close()
  await seconds(990)
  expect(asked).toEqual([])
})

test('a token of another user is told of as a sign-in, as soon as a client of the store sees it; a renewed one is not', async () => {
  const { one, other, kept } = twoClients(atOnce, 0)
  const told: string[] = []
  one.session.onChange((state) => told.push(state))
  other.session.take({ token: tokenOf('renewed', 0) })
  await one.session.token()
  expect(told).toEqual([])
  const theirs = tokenOf('theirs', 0, 'another user')
  other.session.take({ token: theirs })
  expect(await one.session.token()).toBe(theirs)
  expect(told).toEqual(['signed in'])
  kept.clear()
  await one.session.token()
  expect(told).toEqual(['signed in', 'signed out'])
})

test('a request whose session turns out to be over is refused, and not sent without it; the next one is anonymous', async () => {
  useFakeTime()
  const { one, kept, asked } = twoClients(atOnce, 0)
  kept.set('daybook:http://server', tokenOf('ended', 1001))
  const refused = expect(one.http.ask('/items/note')).rejects.toMatchObject({ status: 401, code: 'SESSION_ENDED' })
  await seconds(10)
  await refused
  expect(one.session.state).toBe('signed out')
  expect(asked).toEqual(['/auth/refresh'])
  expect(await one.session.headers()).toEqual({})
})

test('a renewal whose answer was lost is asked for again in time, although nobody asks for the token', async () => {
  useFakeTime()
  const { one, other, kept, fresh, asked, lose } = twoClients(atOnce, 0)
  other.session.close()
  lose(true)
  for (let n = 0; n < 1000 && !asked.includes('/auth/refresh'); n += 1) await seconds(1)
  lose(false)
  await seconds(59)
  expect(tokensIn(kept)).toEqual([fresh])
  expect(one.session.state).toBe('signed in')
})

describe('while renewals get no answer', () => {
  const settled = async (work: Promise<unknown>): Promise<() => unknown> => {
    let how: unknown = 'pending'
    work.then(
      (result) => {
        how = result
      },
      (error: unknown) => {
        how = (error as Error).name
      },
    )
    return () => how
  }
  const renewals = (asked: readonly string[]) => asked.filter((path) => path === '/auth/refresh').length

  test('requests are sent with the token of now, as long as it is good', async () => {
    useFakeTime()
    const { one, other, kept, fresh, asked, swallow } = twoClients(atOnce, 800)
    other.session.close()
    swallow(true)
    const first = await settled(one.http.ask('/items/note'))
    await seconds(1)
    expect(first()).toBe('pending')
    await seconds(2)
    expect(first()).toEqual({ done: true })
    for (let n = 0; n < 5; n += 1) {
      const next = await settled(one.http.ask('/items/note'))
      await seconds(0)
      expect(next()).toEqual({ done: true })
    }
    expect(renewals(asked)).toBe(1)
    await seconds(15)
    // An attempt has an end, and those after it are not one for each request.
    for (let n = 0; n < 5; n += 1) void one.http.ask('/items/note')
    await seconds(0)
    expect(renewals(asked)).toBe(1)
    swallow(false)
    await seconds(80)
    await one.http.ask('/items/note')
    expect(tokensIn(kept)).toEqual([fresh])
  })

  test('a signal ends the wait, and a request waits no longer than an attempt lasts', async () => {
    useFakeTime()
    // Of a token that is over for this device.
    const { one, other, swallow, asked } = twoClients(atOnce, 1100)
    other.session.close()
    swallow(true)
    const stop = new AbortController()
    const ended = await settled(one.http.ask('/items/note', { signal: stop.signal }))
    const patient = await settled(one.http.ask('/items/note'))
    await seconds(1)
    stop.abort()
    await seconds(0)
    expect([ended(), patient()]).toEqual(['AbortError', 'pending'])
    expect(asked).toEqual(['/auth/refresh'])
    await seconds(15)
    expect(patient()).toEqual({ done: true })
    expect(one.session.state).toBe('signed in')
  })

  test('nothing that comes late replaces who has signed in meanwhile', async () => {
    useFakeTime()
    const { promise, resolve } = Promise.withResolvers<void>()
    const { one, other, kept } = twoClients(promise, 800)
    other.session.close()
    void one.http.ask('/items/note').catch(() => undefined)
    await seconds(3)
    const theirs = tokenOf('theirs', 0, 'another user')
    one.session.take({ token: theirs })
    resolve()
    await seconds(1)
    expect(tokensIn(kept)).toEqual([theirs])
  })
})

describe('on a device whose clock differs from the server', () => {
  const hour = 3_600_000
  /** Signs in at a server of the true time, and gives what was asked for. */
  const signedIn = (skew: number) => {
    useFakeTime()
    const { one, other, kept, fresh, asked } = twoClients(atOnce, 0)
    const token = kept.get('daybook:http://server')!
    kept.clear()
    vi.setSystemTime(Date.now() + skew)
    one.session.take({ token })
    return { one, other, kept, fresh, asked }
  }
  const skews = [-30 * 24 * hour, -hour, hour, 30 * 24 * hour]

  test.each(skews)('by %i ms a token is renewed once, when three quarters of its life are over', async (skew) => {
    const { one, other, kept, fresh, asked } = signedIn(skew)
    for (let n = 0; n < 5; n += 1) await one.http.ask('/items/note')
    await other.http.ask('/items/note')
    await seconds(740)
    await other.http.ask('/items/note')
    expect(asked).not.toContain('/auth/refresh')
    await seconds(150)
    for (let n = 0; n < 5; n += 1) await one.http.ask('/items/note')
    await other.http.ask('/items/note')
    expect(tokensIn(kept)).toEqual([fresh])
    expect(asked.filter((path) => path === '/auth/refresh')).toHaveLength(1)
  })

  test.each(skews)('by %i ms a token that came in another way is renewed at most once', async (skew) => {
    const { one, kept, asked } = signedIn(skew)
    kept.delete('daybook:http://server:received')
    await seconds(100)
    for (let n = 0; n < 5; n += 1) await one.http.ask('/items/note')
    await seconds(500)
    for (let n = 0; n < 5; n += 1) await one.http.ask('/items/note')
    expect(asked.filter((path) => path === '/auth/refresh').length).toBe(skew > 0 ? 1 : 0)
    expect(one.session.state).toBe('signed in')
  })
})
