import assert from 'node:assert/strict'
import { callerOf } from '../scripts/http.ts'
import type { Case, Kind } from './cases.ts'
import type { Account, Role } from './daybook.ts'
import type { Contest } from './rounds.ts'

/** Before anything is timed: both sides must answer the first requests of a case alike, or the comparison is worth nothing. */
export async function assertSameAnswers({ servers, accounts, sql }: Contest, what: Case, role: Role): Promise<void> {
  const as = accounts[role]
  for (const kind of ['ceiling', 'daybook'] as const) await what.prepare?.(sql, { as, role, kind }, 10)
  for (let n = -1; n >= -5; n -= 1) {
    const expected = await answer(servers.ceiling!.url, what, role, accounts[role], 'ceiling', n)
    for (const server of [servers.daybook, servers.cached])
      if (server !== undefined)
        assert.deepEqual(
          await answer(server.url, what, role, accounts[role], 'daybook', n),
          expected,
          `${what.id} ${what.title} as ${role}: the sides answer differently`,
        )
  }
}

async function answer(url: string, what: Case, role: Role, as: Account, kind: Kind, n: number): Promise<unknown> {
  const { method, path, body, headers } = what.request({ n: Math.abs(n), as, role, kind })
  const {
    status,
    text,
    body: answered,
  } = await (headers === undefined
    ? callerOf(url, as.token)(method, path, body === undefined ? undefined : JSON.parse(body))
    : sent(`${url}${path}`, { method, body, headers: { ...headers, authorization: `Bearer ${as.token}` } }))
  const where = `${what.id} ${what.title} as ${role}, ${kind}: ${method} ${path}`
  assert.equal(status, what.status, `${where}: ${text.slice(0, 400)}`)
  assert.ok(what.accepts(text), `${where}: this cannot be an answer: ${text.slice(0, 400)}`)
  return what.comparable(answered as never)
}

/** A body that is no JSON. */
async function sent(url: string, request: RequestInit) {
  const response = await fetch(url, request)
  const text = await response.text()
  return { status: response.status, text, body: JSON.parse(text) as unknown }
}
