import { type Change, createRealtime, type Removal } from '../../clients/realtime.ts'
import { type Cluster, startCluster, type Web } from '../support/cluster.ts'
import { type Change as Committed, seededRandom, streamFaults } from '../support/ledger.ts'
import { createDatabase } from '../support/postgres.ts'
import type { Frame } from '../support/socket.ts'
import { waitFor } from '../support/wait.ts'
import { makeReader } from './reader.ts'
import type { Result } from './scenario.ts'
import { settled } from './settled.ts'

export type Size = { readonly sockets: number; readonly writes: number }

type Row = { id: string; mark: string; lane: number }
type Told = Change<Row> | Removal<Row>
type Member = {
  readonly name: string
  readonly lane: number | undefined
  readonly told: Told[]
  readonly ends: string[]
}

const env = {
  REALTIME_ROW_LEVEL_SCOPING: 'true',
  SOCKET_LIMIT_PER_USER: '100000',
  SOCKET_LIMIT_PER_ADDRESS: '100000',
  SOCKET_CONNECT_LIMIT: '1000000',
}
const patience = { timeout: 600_000 }

/**
 * F-20: a crowd of sockets, half of them readers of half of the rows, most of them on one web process. That one is killed,
 * then both are restarted in turn, while rows are written. Every client is told what was committed and it may read, each
 * change once, those of a row in their order, and no client is told to read again.
 */
export async function runF20(seed: number, { sockets, writes }: Size): Promise<Result> {
  const random = seededRandom('F-20', seed)
  const database = await createDatabase()
  const cluster = await startCluster({ database, web: 2, env })
  const [first, second] = cluster.web as [Web, Web]
  const { members, close } = await gather(cluster, sockets)
  const ids = await makeRows(cluster)
  const slowest: number[] = []
  for (const [web, signal] of [
    [first, 'SIGKILL'],
    [first, 'SIGTERM'],
    [second, 'SIGTERM'],
  ] as const) {
    const writing = writeRows(cluster, ids, { writes, random })
    await web.kill(signal)
    await web.restart()
    const restarted = performance.now()
    await writing
    await settled(database.url)
    await caughtUp(members, await committedIn(cluster))
    slowest.push((performance.now() - restarted) / 1000)
  }
  const committed = await committedIn(cluster)
  const faults = members.flatMap((member) => memberFaults(member, committed))
  close()
  await Promise.all(cluster.web.map((web) => web.kill()))
  const received = members.reduce((sum, { told }) => sum + told.length, 0)
  return {
    faults,
    figures: {
      sockets: members.length,
      changes: committed.length,
      received,
      's until all had it': Math.max(...slowest),
    },
  }
}

type Lane = Committed & { readonly lane: number }

async function gather(cluster: Cluster, sockets: number): Promise<{ members: Member[]; close(): void }> {
  const [first, second] = cluster.web as [Web, Web]
  const fields = { mark: { type: 'String' }, lane: { type: 'Integer' } }
  const made = await first.call('POST', '/schemas', { collectionName: 'crowd', schema: { fields } })
  if (made.status !== 201) throw new Error(made.text)
  const reader = await makeReader(first, {
    collection: 'crowd',
    action: 'read',
    fields: ['*'],
    conditions: { lane: 0 },
  })
  const members: Member[] = []
  const closers: (() => void)[] = []
  const join = async (i: number) => {
    const isReader = i % 2 === 0
    const web = i % 10 === 9 ? second : first
    const member: Member = { name: `${i}`, lane: isReader ? 0 : undefined, told: [], ends: [] }
    const backoff = { firstMs: 200, longestMs: 5000 }
    const realtime = createRealtime({ url: web.address, token: isReader ? reader : cluster.token, backoff })
    closers.push(realtime.close)
    const onTold = (change: Told) => void member.told.push(change)
    const handle = realtime.subscribe<Row>('crowd', {
      onChange: onTold,
      onRemove: onTold,
      onResync: () => void member.ends.push('told to read again'),
      onError: ({ final, message }) => final && member.ends.push(message),
    })
    await waitFor(() => handle.cursor, { ...patience, what: `${i} to subscribe` })
    members.push(member)
  }
  for (let i = 0; i < sockets; i += atOnce)
    await Promise.all(Array.from({ length: Math.min(atOnce, sockets - i) }, (_, n) => join(i + n)))
  return { members, close: () => closers.forEach((end) => void end()) }
}

const atOnce = 50

async function makeRows({ web }: Cluster): Promise<string[]> {
  const rows = Array.from({ length: 6 }, (_, lane) => ({ mark: 'new', lane: lane % 2 }))
  return (await web[0]!.call('POST', '/items/crowd/bulk', rows)).body.data
}

type Writing = { readonly writes: number; readonly random: () => number }

/** By the process that answers; a write without an answer is in the log or not. */
async function writeRows({ web }: Cluster, ids: readonly string[], { writes, random }: Writing): Promise<void> {
  for (let i = 0; i < writes; i += 1) {
    const path = `/items/crowd/${ids[Math.floor(random() * ids.length)]}`
    const write = (one: Web) => one.call('PATCH', path, { mark: `${i}` })
    await write(web[i % 2]!).catch(() => write(web[(i + 1) % 2]!))
  }
}

function committedIn({ sql }: Cluster): Promise<Lane[]> {
  return sql(
    `select position::text, "entityId", (changes->'after'->>'lane')::int as lane
     from "svc_AuditLog" where entity = 'crowd' and type = 'data' order by "svc_AuditLog".position`,
  )
}

const visibleTo = ({ lane }: Member, committed: readonly Lane[]) =>
  committed.filter((change) => lane === undefined || change.lane === lane)

/** A look at the received changes afterwards shows the missing ones. */
async function caughtUp(members: readonly Member[], committed: readonly Lane[]): Promise<void> {
  const isBehind = (member: Member) => member.told.length < visibleTo(member, committed).length
  await waitFor(() => !members.some(isBehind), patience).catch(() => undefined)
}

function memberFaults(member: Member, committed: readonly Lane[]): string[] {
  const faults = streamFaults(member.told as unknown as Frame[], visibleTo(member, committed))
  return [...member.ends, ...faults].map((fault) => `${member.name}: ${fault}`)
}
