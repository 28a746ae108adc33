import type pg from 'pg'
import { compileCatalog } from '../../src/catalog/compile.ts'
import { readDefinitions } from '../../src/catalog/store.ts'
import { readerOf } from '../../src/db/pools.ts'
import { verifyLog } from '../../src/events/verify.ts'
import type { Cluster, Web } from './cluster.ts'
import { connect, type Frame } from './socket.ts'
import { waitFor } from './wait.ts'

/**
 * What a client knows of its write. `acknowledged`: a 2xx, so it must be there. `refused`: a 4xx, or a 503 that
 * tells to try again, so nothing of it may be. `unknown`: the line broke or the server was in trouble (`OUTCOME_UNKNOWN`);
 * it happened wholly or not at all.
 */
export type Outcome = 'acknowledged' | 'refused' | 'unknown'

type Attempted = { readonly status: number; readonly headers?: Headers }

/** What the clients of a fault run did, each write under a key of its own that can be found again in the database. */
export type Ledger = {
  /** Makes a write and notes what came of it. Rejects never. */
  write(key: string, attempt: () => Promise<Attempted>): Promise<Outcome>
  /** How many writes have been begun. */
  begun(): number
  count(outcome: Outcome): number
  /** The keys of the writes that came out so. */
  keys(outcome: Outcome): string[]
  /**
   * What is wrong with the traces that the writes left, one list of keys for each kind of trace (row, event, job, …):
   * lost writes, repeated ones, halves, and ghosts that no client wrote. Empty when all is well.
   */
  faults(traces: Readonly<Record<string, readonly string[]>>): string[]
}

export function openLedger(): Ledger {
  const entries = new Map<string, Outcome | 'open'>()
  const keys = (outcome: Outcome) => [...entries].filter(([, entry]) => entry === outcome).map(([key]) => key)
  return {
    write: async (key, attempt) => {
      if (entries.has(key)) throw new Error(`the key ${key} is used twice`)
      entries.set(key, 'open')
      const outcome = await attempt().then(outcomeOf, () => 'unknown' as const)
      entries.set(key, outcome)
      return outcome
    },
    begun: () => entries.size,
    count: (outcome) => keys(outcome).length,
    keys,
    faults: (traces) => {
      const found = Object.entries(traces).map(([kind, keys]) => ({ kind, counts: countsOf(keys) }))
      const ghosts = found.flatMap(({ kind, counts }) =>
        [...counts.keys()].filter((key) => !entries.has(key)).map((key) => `ghost: ${kind} of ${key}`),
      )
      return [
        ...ghosts,
        ...[...entries].flatMap(([key, outcome]) => {
          const copies = found.map(({ counts }) => counts.get(key) ?? 0)
          return isSound(outcome, copies)
            ? []
            : `${outcome} ${key}: ${found.map(({ kind }, i) => `${copies[i]} ${kind}`)}`
        }),
      ]
    },
  }
}

/** Prints what became of the writes of a run. */
export function report(run: string, ledgers: Readonly<Record<string, Ledger>>): void {
  for (const [name, ledger] of Object.entries(ledgers)) {
    const counts = (['acknowledged', 'refused', 'unknown'] as const).map(
      (outcome) => `${ledger.count(outcome)} ${outcome}`,
    )
    process.stderr.write(`${run}: ${name}: ${counts.join(', ')}\n`)
  }
}

/** A change in the log, as far as subscribers are promised it. */
export type Change = { readonly position: string; readonly entityId: string }

/** The changes of a collection that have been committed, in the order of the log. */
export async function changesOf(cluster: Cluster, collection: string): Promise<Change[]> {
  return cluster.sql(
    `select l.position::text, l."entityId" from "svc_AuditLog" l where entity = $1 and type = 'data' order by l.position`,
    [collection],
  )
}

/**
 * What is wrong with what a subscriber received, compared with the committed changes: missing ones, ones that were never
 * committed, a wrong order of one record's changes, and repetitions. Empty when all is well.
 */
export function streamFaults(frames: readonly Frame[], committed: readonly Change[]): string[] {
  const received = new Map(frames.map((frame) => [frame.position, frame]))
  const positions = new Set(committed.map(({ position }) => position))
  const missing = committed.filter(({ position }) => !received.has(position))
  const strangers = [...received.keys()].filter((position) => !positions.has(position))
  const repeats = frames.length - received.size
  const inverted = [...Map.groupBy(received.values(), ({ data }) => String(data.id))].filter(
    ([, ofRecord]) =>
      !ofRecord.every((frame, i) => i === 0 || BigInt(frame.position) > BigInt(ofRecord[i - 1]!.position)),
  )
  return [
    ...missing.map(({ position, entityId }) => `missing: ${position} of ${entityId}`),
    ...strangers.map((position) => `never committed: ${position}`),
    ...(repeats > 0 ? [`${repeats} repeated`] : []),
    ...inverted.map(([id]) => `out of order: ${id}`),
  ]
}

export type Follower = {
  /** Everything received, over all its connections. */
  readonly frames: readonly Frame[]
  /** How often its line broke, and how often it was told to start over. */
  readonly interruptions: { lines: number; resyncs: number }
  /** Waits until it has received all of these; who looks at its frames then sees what is missing. */
  caughtUp(committed: readonly Change[]): Promise<void>
}

/** A subscriber that does what ours shall do: when its line breaks it comes back and resumes from its last cursor. */
export async function follow({ address }: Web, token: string, collection: string): Promise<Follower> {
  const client = await connect(address, token, { reconnection: true, reconnectionDelay: 20, reconnectionDelayMax: 100 })
  const { socket, frames } = client
  const { cursor: start } = await client.subscribe(collection)
  const interruptions = { lines: 0, resyncs: 0 }
  const subscribe = async () =>
    !socket.connected || (await client.subscribe(collection, frames.at(-1)?.cursor ?? start)).status === 'success'
  const resume = () => void waitFor(subscribe, { what: 'a subscriber to resume' })
  socket.on('connected', resume)
  socket.on('resync', () => {
    interruptions.resyncs += 1
    resume()
  })
  socket.on('disconnect', (reason) => {
    interruptions.lines += 1
    if (reason === 'io server disconnect') socket.connect()
  })
  // A refusal, other than a dead line, ends the library's own attempts.
  socket.on('connect_error', () => socket.active || setTimeout(() => socket.connect(), 50))
  return {
    frames,
    interruptions,
    caughtUp: async (committed) => {
      const isComplete = () => {
        const received = new Set(frames.map(({ position }) => position))
        return committed.every(({ position }) => received.has(position))
      }
      await waitFor(isComplete).catch(() => undefined)
    },
  }
}

/** What log and tables disagree about; empty when the log tells how every row came to be what it is. */
export async function logFaults(client: pg.Client): Promise<string[]> {
  const catalog = compileCatalog(await readDefinitions(readerOf((text, values) => client.query(text, [...values]))))
  const results = await verifyLog(client, catalog)
  if (results.every(({ verified }) => verified === 0)) return ['nothing was compared']
  return results
    .filter(({ different, unverifiable }) => different + unverifiable > 0)
    .map((result) => JSON.stringify(result))
}

/** A generator of numbers in [0, 1) whose seed is printed; TEST_SEED repeats a run. */
export function seededRandom(name: string, given?: number): () => number {
  const seed = given ?? Number(process.env.TEST_SEED ?? Math.floor(Math.random() * 2 ** 32))
  process.stderr.write(`${name}: TEST_SEED=${seed}\n`)
  let state = seed
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }
}

function outcomeOf({ status, headers }: Attempted): Outcome {
  if (status < 300) return 'acknowledged'
  const mayBeRepeated = status === 503 && headers?.has('retry-after') === true
  return status < 500 || mayBeRepeated ? 'refused' : 'unknown'
}

function countsOf(keys: readonly string[]): ReadonlyMap<string, number> {
  const counts = new Map<string, number>()
  for (const key of keys) counts.set(key, (counts.get(key) ?? 0) + 1)
  return counts
}

function isSound(outcome: Outcome | 'open', copies: readonly number[]): boolean {
  const all = (wanted: number) => copies.every((count) => count === wanted)
  if (outcome === 'acknowledged') return all(1)
  if (outcome === 'refused') return all(0)
  return outcome === 'unknown' && (all(0) || all(1))
}
