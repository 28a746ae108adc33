import { expect, test } from 'vitest'
import { openHttp } from '../../clients/http.ts'
import { openSession } from '../../clients/session.ts'

/** As a server signs it, at the end of its life; the client reads its times only. */
const tokenOf = (name: string, lived: number) => {
  const iat = Date.now() / 1000 - lived
  return `h.${btoa(JSON.stringify({ name, iat, exp: iat + 1000 }))}.s`
}

/** Clients of one store, and a server that renews a token once; `hold` delays the answer of the first renewal. */
function twoClients(hold: Promise<void>) {
  const [old, fresh] = [tokenOf('old', 900), tokenOf('fresh', 0)]
  const kept = new Map([['daybook:http://server', old]])
  const store = {
    getItem: (name: string) => kept.get(name) ?? null,
    setItem: (name: string, value: string) => void kept.set(name, value),
    removeItem: (name: string) => void kept.delete(name),
  }
  let valid = old
  const answer = async (input: unknown, init?: RequestInit) => {
    const isValid = new Headers(init?.headers).get('authorization') === `Bearer ${valid}`
    if (!isValid) return Response.json({ message: 'Invalid or expired token' }, { status: 401 })
    if (!String(input).endsWith('/auth/refresh')) return Response.json({ done: true })
    valid = fresh
    await hold
    return Response.json({ token: fresh })
  }
  const open = () => {
    const session = openSession('http://server', { store }, () => http)
    const http = openHttp({
      url: 'http://server',
      fetch: answer as typeof fetch,
      authorize: () => session.headers(),
      onUnauthorized: (asked) => session.onUnauthorized(asked),
      withCookies: false,
      attempts: 1,
    })
    return { session, http }
  }
  return { one: open(), other: open(), kept, fresh }
}

test('a client whose renewal comes second takes the token of the first, and signs nobody out', async () => {
  const { promise, resolve } = Promise.withResolvers<void>()
  const { one, other, kept, fresh } = twoClients(promise)
  const told: string[] = []
  for (const { session } of [one, other]) session.onChange((state) => told.push(state))
  const first = one.http.ask('/items/note')
  const second = other.http.ask('/items/note')
  setTimeout(resolve)
  expect(await Promise.all([first, second])).toEqual([{ done: true }, { done: true }])
  expect([...kept.values()]).toEqual([fresh])
  expect(told).toEqual([])
})
