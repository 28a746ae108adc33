import { type Cluster, startCluster } from '../support/cluster.ts'
import { type Change, logFaults, openLedger, seededRandom } from '../support/ledger.ts'
import { createDatabase, startPrivateServer } from '../support/postgres.ts'
import { withClient } from '../support/server.ts'
import { waitFor } from '../support/wait.ts'
import { type Blow, blowsToProcesses, blowsToServer, drawBlows, type Target } from './blows.ts'
import { makeReader } from './reader.ts'
import type { Result } from './scenario.ts'
import { settled } from './settled.ts'
import { type Follower, follow, type Row } from './storm-follower.ts'
import { writeRows } from './storm-writer.ts'

export type Size = { readonly writes: number; readonly blows: number }

const writers = 8
const patience = { DATABASE_MAX_RETRY: '1000', DATABASE_RETRY_INTERVAL: '50' }

/** F-10: web processes, feed, LISTEN connections and clients are struck. The log reaches back, so no client has to read again. */
export async function runF10(seed: number, size: Size): Promise<Result> {
  const { url } = await createDatabase()
  const { faults, figures } = await storm('F-10', { seed, size, url, blowsTo: blowsToProcesses })
  const readAgain = figures['read again']! > 0 ? [`clients had to read again: ${figures['read again']}`] : []
  return { faults: [...faults, ...readAgain], figures }
}

/** F-31: PostgreSQL itself too. Clients may be told to read again, and then hold what is there. */
export async function runF31(seed: number, size: Size): Promise<Result> {
  // A crash of the server loses nothing that the operating system has.
  const server = await startPrivateServer({ fsync: 'off', synchronous_commit: 'on', full_page_writes: 'off' })
  const blowsTo = (target: Target) => ({ ...blowsToProcesses(target), ...blowsToServer(server) })
  const result = await storm('F-31', { seed, size, url: server.url, blowsTo })
  await server.stop()
  return result
}

type Storm = { seed: number; size: Size; url: string; blowsTo(target: Target): Readonly<Record<string, Blow>> }

/**
 * Eight writers, two web processes, two administrators and a reader of half of the rows who follow them, while what they
 * stand on is struck at random. What was acknowledged is there, what was received is what was committed and may be read,
 * each once and per row in order, and the clients' copies are the rows.
 */
async function storm(id: string, { seed, size, url, blowsTo }: Storm): Promise<Result> {
  const { writes, blows } = size
  const random = seededRandom(id, seed)
  const cluster = await startCluster({
    database: { url },
    web: 2,
    env: { ...patience, REALTIME_ROW_LEVEL_SCOPING: 'true' },
  })
  const followers = await startFollowers(cluster)
  const ledger = openLedger()
  const started = performance.now()
  const each = Math.ceil(writes / writers)
  let over = false
  const writing = Promise.all(
    Array.from({ length: writers }, (_, writer) => writeRows({ cluster, ledger, writer, writes: each, random })),
  ).finally(() => {
    over = true
  })
  const cutLine = (chance: () => number) => followers[Math.floor(chance() * followers.length)]!.cutLine()
  const known = blowsTo({ cluster, url, cutLine })
  const drawn = drawBlows(Object.keys(known), blows, random)
  for (const [i, name] of drawn.entries()) {
    const due = ((i + random()) / blows) * writes
    await waitFor(() => over || ledger.begun() >= due, { timeout: 600_000, what: 'the next blow' })
    await known[name]!(random)
  }
  await writing
  const seconds = (performance.now() - started) / 1000
  await settled(url)
  const faults = [
    ...ledger.faults({ event: await marksOfLog(url) }),
    ...(await withClient(url, logFaults)),
    ...(await followerFaults(url, followers)),
  ]
  for (const follower of followers) follower.close()
  await Promise.all(cluster.web.map((web) => web.kill()))
  return { faults, figures: figuresOf() }

  function figuresOf(): Record<string, number> {
    const sum = (count: (follower: Follower) => number) => followers.reduce((total, one) => total + count(one), 0)
    return {
      writes: ledger.begun(),
      acknowledged: ledger.count('acknowledged'),
      refused: ledger.count('refused'),
      unknown: ledger.count('unknown'),
      blows: drawn.length,
      received: sum(({ counts }) => counts.told),
      breaks: sum(({ counts }) => counts.breaks),
      'read again': sum(({ counts }) => counts.readAgain),
      seconds: Math.round(seconds),
    }
  }
}

async function startFollowers(cluster: Cluster): Promise<Follower[]> {
  const [first, second] = cluster.web
  const fields = { mark: { type: 'String' }, lane: { type: 'Integer' } }
  const made = await first!.call('POST', '/schemas', { collectionName: 'storm', schema: { fields } })
  if (made.status !== 201) throw new Error(made.text)
  const reader = await makeReader(first!, {
    collection: 'storm',
    action: 'read',
    fields: ['*'],
    conditions: { lane: 0 },
  })
  return Promise.all([
    follow('administrator', first!, cluster.token),
    follow('administrator elsewhere', second!, cluster.token),
    follow('reader', second!, reader),
  ])
}

async function marksOfLog(url: string): Promise<string[]> {
  const marks = `select case action when 'delete' then 'gone ' || "entityId" else changes->'after'->>'mark' end as key
    from "svc_AuditLog" where entity = 'storm' and type = 'data'`
  return withClient(url, async (client) => (await client.query(marks)).rows.map(({ key }) => key))
}

async function followerFaults(url: string, followers: readonly Follower[]): Promise<string[]> {
  const [changes, rows] = await withClient(url, async (client) => [
    (
      await client.query<Change & { lane: number }>(
        `select position::text, "entityId", coalesce(changes->'after'->>'lane', changes->'before'->>'lane')::int as lane
         from "svc_AuditLog" where entity = 'storm' and type = 'data' order by "svc_AuditLog".position`,
      )
    ).rows,
    (await client.query<Row>('select id::text, mark, lane from storm')).rows,
  ])
  const readable = (follower: Follower) => (one: { lane: number }) => follower.name !== 'reader' || one.lane === 0
  const faults = followers.map((one) =>
    one.faults(changes!.filter(readable(one)), rows!.filter(readable(one)) as Row[]),
  )
  return (await Promise.all(faults)).flat()
}
