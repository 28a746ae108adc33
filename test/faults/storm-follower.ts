import { type Change, createRealtime, type Removal } from '../../clients/realtime.ts'
import type { Cluster } from '../support/cluster.ts'
import { type Change as Committed, streamFaults } from '../support/ledger.ts'
import type { Frame } from '../support/socket.ts'
import { waitFor } from '../support/wait.ts'
import { openLine } from './line.ts'

export type Row = { id: string; mark: string; lane: number }
type Told = Change<Row> | Removal<Row>

/** A client with its copy of the rows that it may read, over a line that breaks. */
export type Follower = {
  readonly name: string
  /** What became of the promise: breaks of its connection, and how often the rows had to be read again. */
  readonly counts: { told: number; breaks: number; readAgain: number }
  cutLine(): void
  /** What is wrong, once there was time for everything to arrive: compared with what it may read of log and table. */
  faults(committed: readonly Committed[], rows: readonly Row[]): Promise<string[]>
  close(): void
}

/** Follows the rows of the storm by the client that we hand out. */
export async function follow(name: string, { address }: Cluster['web'][number], token: string): Promise<Follower> {
  const line = await openLine(address)
  const realtime = createRealtime({ url: line.address, token, backoff: { firstMs: 50, longestMs: 500 } })
  const held = new Map<string, string>()
  const told: Told[] = []
  const ends: string[] = []
  const counts = { breaks: 0, snapshots: 0 }
  const handle = realtime.subscribe<Row>('storm', {
    snapshot: true,
    onSnapshot: (rows) => {
      counts.snapshots += 1
      held.clear()
      for (const { id, mark } of rows) held.set(id, mark)
    },
    onChange: (change) => {
      told.push(change)
      held.set(change.data.id, change.data.mark)
    },
    onRemove: (change) => {
      told.push(change)
      held.delete(change.data.id!)
    },
    onError: ({ final, message }) => {
      if (final) ends.push(`the subscription has ended: ${message}`)
      else if (message.includes('lost')) counts.breaks += 1
    },
  })
  await waitFor(() => handle.cursor, { what: `${name} to subscribe` })
  return {
    name,
    get counts() {
      return { told: told.length, breaks: counts.breaks, readAgain: counts.snapshots - 1 }
    },
    cutLine: line.cut,
    faults: async (committed, rows) => {
      const awaited = copyFaults.bind(null, held, rows)
      await waitFor(() => awaited().length === 0).catch(() => undefined)
      // Where rows were read again, the changes until then are told by them.
      const stream = streamFaults(told as unknown as Frame[], committed)
      const promised = counts.snapshots === 1 ? stream : stream.filter((fault) => !fault.startsWith('missing'))
      return [...ends, ...awaited(), ...promised].map((fault) => `${name}: ${fault}`)
    },
    close: () => {
      realtime.close()
      line.close()
    },
  }
}

function copyFaults(held: ReadonlyMap<string, string>, rows: readonly Row[]): string[] {
  const stale = rows.filter(({ id, mark }) => held.get(id) !== mark)
  const ids = new Set(rows.map(({ id }) => id))
  return [
    ...stale.map(({ id, mark }) => `held of ${id}: ${held.get(id)} instead of ${mark}`),
    ...[...held.keys()].filter((id) => !ids.has(id)).map((id) => `held, but gone: ${id}`),
  ]
}
