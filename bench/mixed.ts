import type autocannon from 'autocannon'
import { callerOf, expectStatus } from '../scripts/http.ts'
import type { Kind, Request } from './cases.ts'
import type { Account } from './daybook.ts'
import { type Round, shoot } from './load.ts'
import type { Server } from './processes.ts'
import { scattered, windows } from './reads.ts'

/**
 * The result of a mixed run; `stale` answers showed less than a write that was acknowledged before they were asked for.
 */
export type Mixed = Round & { readonly reads: number; readonly writes: number; readonly stale: number }

const sets = 20
const writeEvery = 20
const connections = 16

type Row = { readonly id: string; readonly stock: number }
type Sent = { readonly expected?: ReadonlyMap<string, number>; readonly written?: string; readonly value?: number }

/**
 * 20 lists that are asked for again and again, and 5 % writes to the rows in them. Every write of a row is greater than
 * the one before, and a row has one writer at a time: so each list tells of each of its rows whether it is older than
 * the last acknowledged write, of this caller or of any other.
 */
export async function runMixed(server: Server, as: Account, kind: Kind, amount: number): Promise<Mixed> {
  const lists = await readLists(server, as, kind)
  const ids = [...new Set(lists.flatMap((list) => list.ids))]
  const acknowledged = new Map<string, number>()
  const underWay = new Set<string>()
  const tally = { reads: 0, writes: 0, stale: 0 }
  let n = base
  base += amount + connections
  const read = (): Sent & { request: Request } => {
    const list = lists[scattered(n, sets)]!
    // The values of now: writes that end while the answer is under way may or may not be in it.
    return { request: list.request, expected: new Map(list.ids.map((id) => [id, acknowledged.get(id) ?? -1])) }
  }
  const write = (id: string): Sent & { request: Request } => {
    underWay.add(id)
    return { request: patch(kind, id, n), written: id, value: n }
  }
  const ask = (): Sent & { request: Request } => {
    n += 1
    const id = ids[scattered(n + 1e6, ids.length)]!
    return n % writeEvery === 0 && !underWay.has(id) ? write(id) : read()
  }
  const hear = (status: number, body: string, { expected, written, value }: Sent): void => {
    if (written !== undefined) {
      underWay.delete(written)
      if (status === 200) acknowledged.set(written, value!)
      tally.writes += 1
    } else if (status === 200) {
      tally.reads += 1
      const { data } = JSON.parse(body) as { data: readonly Row[] }
      if (data.some(({ id, stock }) => stock < (expected!.get(id) ?? -1))) tally.stale += 1
    }
  }
  const requests = [
    {
      setupRequest: (request: autocannon.Request, context: object) => {
        const { request: next, ...sent } = ask()
        Object.assign(context, sent)
        // autocannon writes the length of the body into the headers that it is given, and keeps those.
        return { ...request, headers: { ...request.headers }, ...next }
      },
      onResponse: (status: number, body: string, context: object) => hear(status, body, context),
    },
  ]
  const round = await shoot(server, as, { amount, connections, status: 200, requests, verifyBody: () => true })
  return { ...round, ...tally }
}

/** The lists, and the rows that are in each of them. Writes change nothing that a row is found or sorted by. */
async function readLists(server: Server, as: Account, kind: Kind) {
  const { request } = windows('product', sets)
  const call = callerOf(server.url, as.token)
  return Promise.all(
    Array.from({ length: sets }, async (_, n) => {
      const asked = request({ n, as, role: 'admin', kind })
      const { data } = expectStatus(await call<{ data: readonly Row[] }>('GET', asked.path), 200)
      return { request: asked, ids: data.map(({ id }) => id) }
    }),
  )
}

/** Values beyond those of the seed and of earlier runs. */
let base = 10_000

const patch = (kind: Kind, id: string, value: number): Request => ({
  method: 'PATCH',
  path: `${kind === 'daybook' ? '/items' : ''}/product/${id}`,
  body: JSON.stringify({ name: `Written ${value}`, stock: value }),
})
