import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { readHeads, verifySealsOf } from '../../src/events/seals/seals.ts'
import { type Cluster, startCluster } from '../support/cluster.ts'
import { openLedger, seededRandom } from '../support/ledger.ts'
import { createDatabase, startPrivateServer } from '../support/postgres.ts'
import { testConfig, testEnv } from '../support/prepare.ts'
import { startProcess, type TestProcess } from '../support/processes.ts'
import { type Received, type Receiver, startReceiver, verified } from '../support/receiver.ts'
import { waitFor } from '../support/wait.ts'
import { type Blow, blowsToServer } from './blows.ts'
import type { Result } from './scenario.ts'
import { settled } from './settled.ts'

/** PostgreSQL `crashes` only on a server of the run's own. */
export type Size = {
  readonly writes: number
  readonly kills: number
  readonly freezes: number
  readonly crashes: number
}

const writers = 8
const patience = { timeout: 900_000 }

/** An installation whose log is followed by a consumer of the tests, a webhook and the seals, two processes each. */
type Stage = {
  readonly url: string
  readonly cluster: Cluster
  readonly followers: readonly Victim[]
  readonly receiver: Receiver
  /** Ids that came without a right signature. */
  readonly unsigned: readonly string[]
  readonly heads: string
  close(): Promise<void>
}

type Victim = {
  readonly pid: number
  kill(signal: NodeJS.Signals): Promise<unknown>
  restart(): Promise<void>
}

/**
 * F-44: web processes and everything that follows the log are killed, followers frozen beyond their leases, and PostgreSQL
 * crashed, while eight writers change rows. What was acknowledged is in the log; each event is handled once in the database, delivered under
 * one id, and sealed; nothing else is verified.
 */
export async function runF44(seed: number, { writes, kills, freezes, crashes }: Size): Promise<Result> {
  const random = seededRandom('F-44', seed)
  // A crash of the server loses nothing that the operating system has.
  const server = crashes > 0 ? await startPrivateServer({ fsync: 'off', synchronous_commit: 'on' }) : undefined
  const stage = await openStage({ web: 2, fields: ['id', 'n'], database: server })
  const { cluster } = stage
  const known: Readonly<Record<string, Blow>> = {
    kill: () => killAndRestart(oneOf([...cluster.web, ...cluster.workers, ...stage.followers], random)),
    freeze: () => freeze(oneOf([...cluster.workers, ...stage.followers], random)),
    ...(server && { crash: blowsToServer(server)['crash PostgreSQL']! }),
  }
  const ledger = openLedger()
  const started = performance.now()
  const writing = Promise.all(
    Array.from({ length: writers }, (_, writer) =>
      changeRows(cluster, ledger, { writer, writes: Math.ceil(writes / writers), random }),
    ),
  )
  const blows = shuffled({ kill: kills, freeze: freezes, crash: crashes }, random)
  for (const [i, blow] of blows.entries()) {
    await waitFor(() => ledger.begun() >= ((i + random()) / blows.length) * writes * 0.9, patience)
    await known[blow]!(random)
    if (i % 5 === 0) await killVerification(stage, random)
  }
  await writing
  await settled(stage.url)
  try {
    const events = await eventsOf(cluster)
    await everythingFollowed(stage, events.length)
    const seconds = (performance.now() - started) / 1000
    const marks = events.map(({ mark }) => mark)
    const faults = [...ledger.faults({ event: marks }), ...(await stageFaults(stage, events))]
    return {
      faults,
      figures: {
        writes: ledger.begun(),
        acknowledged: ledger.count('acknowledged'),
        unknown: ledger.count('unknown'),
        ...{ kills, freezes, crashes },
        events: events.length,
        received: stage.receiver.received.length,
        seconds: Math.round(seconds),
      },
    }
  } finally {
    await stage.close()
    await server?.stop()
  }
}

/** Each name as often as it says, in an order of chance. */
function shuffled(counts: Readonly<Record<string, number>>, random: () => number): string[] {
  const names = Object.entries(counts).flatMap(([name, count]) => Array.from({ length: count }, () => name))
  return names
    .map((name) => ({ name, place: random() }))
    .sort((a, b) => a.place - b.place)
    .map(({ name }) => name)
}

const oneOf = (victims: readonly Victim[], random: () => number): Victim =>
  victims[Math.floor(random() * victims.length)]!

async function killAndRestart(victim: Victim): Promise<void> {
  await victim.kill('SIGKILL')
  await victim.restart()
}

/** Until others have taken over what it holds; it finds that out when it goes on. */
async function freeze({ pid }: Victim): Promise<void> {
  process.kill(pid, 'SIGSTOP')
  await delay(leaseMs + 1500)
  process.kill(pid, 'SIGCONT')
}

export type RowsSize = { readonly rows: number }

/** A webhook of all of them would be a test of the receiver. */
const deliveredShare = 100

/**
 * F-17: one transaction changes half a million rows while single ones are changed beside it. What follows the log takes it in
 * pages: no process holds it whole, the small changes are not lost, and each event is handled once.
 */
export async function runF17(_seed: number, { rows }: RowsSize): Promise<Result> {
  const stage = await openStage({ web: 1, filter: { n: { eq: 0 } } })
  const { cluster } = stage
  const processes = { ...named('worker', cluster.workers), ...named('follower', stage.followers) }
  const largest = watchMemory(processes)
  try {
    const big = await cluster.connect()
    const started = performance.now()
    await big.query('begin')
    await big.query(
      `insert into thing (id, n, mark) select i, i % ${deliveredShare}, 'big ' || i from generate_series(1, $1::int) i`,
      [rows],
    )
    for (let i = 1; i <= smallWrites / 2; i += 1) await insertSmall(cluster, rows + i)
    await big.query('commit')
    for (let i = smallWrites / 2 + 1; i <= smallWrites; i += 1) await insertSmall(cluster, rows + i)
    const events = await eventsOf(cluster)
    await everythingFollowed(stage, events.length, Math.floor(rows / deliveredShare) + smallWrites)
    const seconds = (performance.now() - started) / 1000
    const faults = await stageFaults(stage, events, (id) => id > rows || id % deliveredShare === 0)
    if (events.length !== rows + smallWrites) faults.push(`${events.length} events of ${rows + smallWrites}`)
    const memory = await largest()
    for (const [name, mb] of Object.entries(memory)) if (mb > mostMb) faults.push(`${name} held ${mb} MB`)
    return { faults, figures: { events: events.length, seconds: Math.round(seconds), ...memory } }
  } finally {
    await largest()
    await stage.close()
  }
}

const smallWrites = 1000
const mostMb = 512

const insertSmall = ({ sql }: Cluster, id: number) =>
  sql('insert into thing (id, n, mark) values ($1::int, 0, $2)', [id, `small ${id}`])

const leaseMs = 6000

type StageOptions = {
  readonly web: number
  readonly fields?: readonly string[]
  readonly filter?: object
  readonly database?: { readonly url: string } | undefined
}

async function openStage({ web, fields, filter, database }: StageOptions): Promise<Stage> {
  const { url } = database ?? (await createDatabase())
  const dir = await mkdtemp(join(tmpdir(), 'daybook-followers-'))
  const heads = join(dir, 'heads.ndjson')
  const env = {
    ...{ SSRF_ALLOW_PRIVATE_URL_FETCH: 'true', LOG_SEAL_FILE: heads },
    ...{ DATABASE_MAX_RETRY: '1000', DATABASE_RETRY_INTERVAL: '50', DATABASE_POOL_MAX: '6' },
  }
  const workers = ['webhooks', 'webhooks', 'log-cleanup', 'log-cleanup']
  const cluster = await startCluster({ database: { url }, web, workers, env })
  const [first] = cluster.web
  const columns = { id: { type: 'Integer', primaryKey: true }, n: { type: 'Integer' }, mark: { type: 'String' } }
  const made = await first!.call('POST', '/schemas', { collectionName: 'thing', schema: { fields: columns } })
  if (made.status !== 201) throw new Error(made.text)
  await cluster.sql('create table seen (position bigint not null)')
  const followers = await Promise.all([1, 2].map(() => startFollower({ ...testEnv(url), ...env })))
  const receiver = await startReceiver()
  const hook = {
    name: 'w',
    url: receiver.url,
    collections: ['thing'],
    ...(fields && { fields }),
    ...(filter && { filter }),
  }
  const { status, body, text } = await first!.call('POST', '/webhooks', hook)
  if (status !== 201) throw new Error(text)
  const unsigned: string[] = []
  receiver.answer = (one, response) => {
    const isSigned = hasSignature(one, body.data.secret)
    if (!isSigned) unsigned.push(one.id)
    response.writeHead(isSigned ? 204 : 401).end()
  }
  return {
    ...{ url, cluster, followers, receiver, unsigned, heads },
    close: async () => {
      await Promise.all([...cluster.web, ...cluster.workers, ...followers].map((member) => member.kill('SIGTERM')))
      await receiver.close()
      await rm(dir, { recursive: true })
    },
  }
}

async function startFollower(env: Readonly<Record<string, string>>): Promise<Victim> {
  let life: TestProcess
  const restart = async () => {
    life = startProcess('test/faults/follower-main.ts', [], env)
    await life.waitForLine(({ msg }) => msg === 'ready')
  }
  await restart()
  return {
    get pid() {
      return life.pid
    },
    kill: (signal) => life.kill(signal),
    restart,
  }
}

type Writing = { readonly writer: number; readonly writes: number; readonly random: () => number }
type WriteLedger = ReturnType<typeof openLedger>

/** Each write under a mark of its own. A row is changed only by its writer, and only when it is known to be there. */
async function changeRows({ web }: Cluster, ledger: WriteLedger, { writer, writes, random }: Writing): Promise<void> {
  const own: number[] = []
  let at = writer
  for (let i = 0; i < writes; i += 1) {
    const mark = `${writer} ${i}`
    const id = own.length > 0 && random() < 0.6 ? own[Math.floor(random() * own.length)] : undefined
    const fresh = writer * 1_000_000 + i
    const outcome = await ledger.write(mark, () =>
      id === undefined
        ? web[at % web.length]!.call('POST', '/items/thing', { id: fresh, n: 0, mark })
        : web[at % web.length]!.call('PATCH', `/items/thing/${id}`, { n: i, mark }),
    )
    if (outcome === 'acknowledged' && id === undefined) own.push(fresh)
    if (outcome === 'acknowledged') continue
    at += 1
    await delay(50)
  }
}

/** It only reads: whatever became of it, the seals are what they were. */
async function killVerification({ url }: Stage, random: () => number): Promise<void> {
  const verify = startProcess('scripts/log-verify.ts', ['--seals'], testEnv(url))
  await delay(random() * 3000)
  await verify.kill('SIGKILL')
}

type Event = { readonly position: string; readonly id: number; readonly mark: string }

const eventsOf = ({ sql }: Cluster): Promise<Event[]> =>
  sql(
    `select position::text, "entityId"::int as id, changes->'after'->>'mark' as mark
     from "svc_AuditLog" where entity = 'thing' and type = 'data' order by "svc_AuditLog".position`,
  )

async function everythingFollowed({ cluster, receiver }: Stage, events: number, delivered = events): Promise<void> {
  const [{ last }] = await cluster.sql('select max(position)::text as last from "svc_AuditLog"')
  await waitFor(async () => (await cluster.sql('select count(*)::int as n from seen'))[0].n >= events, {
    ...{ ...patience, what: 'the consumer' },
  })
  await waitFor(() => new Set(receiver.accepted.map(({ id }) => id)).size >= delivered, {
    ...{ ...patience, what: 'the webhook' },
  })
  // A delivery whose answer came while its worker died is done again.
  const pending = `select count(*)::int as n from "svc_WebhookDelivery" where status = 'pending'`
  await waitFor(async () => (await cluster.sql(pending))[0].n === 0, { ...patience, what: 'the last deliveries' })
  const sealed = 'select position >= $1::bigint and sweep is null as done from svc_log.seal_state'
  await waitFor(async () => (await cluster.sql(sealed, [last]))[0]?.done === true, { ...patience, what: 'the seals' })
}

async function stageFaults(
  { url, cluster, receiver, unsigned, heads }: Stage,
  events: readonly Event[],
  isDelivered: (id: number) => boolean = () => true,
): Promise<string[]> {
  const seen = (await cluster.sql('select position::text from seen order by seen.position')).map((row) => row.position)
  const aside = await cluster.sql('select consumer, position::text, reason from svc_log.set_aside')
  const other = await cluster.sql(`select id, status, error from "svc_WebhookDelivery" where status <> 'delivered'`)
  const { problems, unsealed } = await verifySealsOf(testConfig(url), {
    ...{ keys: [], heads: readHeads(await readFile(heads, 'utf8')).heads },
  })
  const told = events.filter(({ id }) => isDelivered(id))
  return [
    ...differences(
      'handled',
      events.map(({ position }) => position),
      seen,
    ),
    ...differences(
      'delivered',
      told.map(({ position }) => position),
      positionsOfIds(receiver.accepted),
    ),
    ...orderFaults(receiver.accepted),
    ...unsigned.map((id) => `${id} is not signed`),
    ...aside.map(({ consumer, position, reason }) => `${consumer} set ${position} aside: ${reason}`),
    ...other.map(({ id, status, error }) => `the delivery ${id} is ${status}: ${error}`),
    ...problems.map((problem) => `seals: ${JSON.stringify(problem)}`),
    ...(unsealed > slackOfSeals ? [`${unsealed} events are not sealed`] : []),
  ]
}

/** The workers themselves write now and then. */
const slackOfSeals = 50

/** What is missing of the wanted, what is there beside them, and what is there twice. */
function differences(what: string, wanted: readonly string[], found: readonly string[]): string[] {
  const there = new Set(found)
  const known = new Set(wanted)
  return [
    ...wanted.flatMap((position) => (there.has(position) ? [] : [`never ${what}: ${position}`])),
    ...[...there].flatMap((position) => (known.has(position) ? [] : [`${what}, and not in the log: ${position}`])),
    ...(found.length === there.size ? [] : [`${found.length - there.size} are ${what} twice`]),
  ]
}

/** One for each id, so that a change with two ids is there twice. */
const positionsOfIds = (accepted: readonly Received[]): string[] => [
  ...new Map(accepted.map(({ id, body }) => [id, body.position as string])).values(),
]

/** Of what was accepted first under each id, the changes of a record come in the order of the log. */
function orderFaults(accepted: readonly Received[]): string[] {
  const first = new Map<string, Received>()
  for (const one of accepted) if (!first.has(one.id)) first.set(one.id, one)
  return [...Map.groupBy(first.values(), ({ body }) => body.id)].flatMap(([id, ofRow]) =>
    ofRow.every(({ body }, i) => i === 0 || BigInt(body.position) > BigInt(ofRow[i - 1]!.body.position))
      ? []
      : [`out of order: ${id}`],
  )
}

/** Asked when it comes: a signature is good for minutes. */
function hasSignature(one: Received, secret: string): boolean {
  try {
    verified(one, secret)
    return true
  } catch {
    return false
  }
}

type Named = Readonly<Record<string, { readonly pid: number }>>

const named = (what: string, members: readonly { readonly pid: number }[]): Named =>
  Object.fromEntries(members.map((member, i) => [`${what} ${i + 1} MB`, member]))

/** The largest resident memory of each, in MB, until it is asked for. */
function watchMemory(processes: Named): () => Promise<Readonly<Record<string, number>>> {
  const largest = Object.fromEntries(Object.keys(processes).map((name) => [name, 0]))
  const over = new AbortController()
  const watching = (async () => {
    while (!over.signal.aborted) {
      for (const [name, { pid }] of Object.entries(processes)) {
        const status = await readFile(`/proc/${pid}/status`, 'utf8').catch(() => '')
        const kilobytes = /^VmRSS:\s+(\d+) kB$/m.exec(status)?.[1]
        largest[name] = Math.max(largest[name]!, Math.round(Number(kilobytes ?? 0) / 1024))
      }
      await delay(200, undefined, { signal: over.signal }).catch(() => undefined)
    }
  })()
  return async () => {
    over.abort()
    await watching
    return largest
  }
}
