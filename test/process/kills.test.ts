import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout } from 'node:timers/promises'
import pino from 'pino'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { openRuntime, type Runtime } from '../../src/process/runtime.ts'
import { type Cluster, startCluster, type Web } from '../support/cluster.ts'
import {
  changesOf,
  follow,
  type Ledger,
  logFaults,
  openLedger,
  report,
  seededRandom,
  streamFaults,
} from '../support/ledger.ts'
import { ageMailClaims, lookForLapsedJobs } from '../support/mail-worker.ts'
import { createDatabase, type PrivateServer, startPrivateServer } from '../support/postgres.ts'
import { testConfig } from '../support/prepare.ts'
import { waitFor } from '../support/processes.ts'
import { register, registrationTraces, verification } from '../support/registrations.ts'
import { type SmtpDouble, startSmtp } from '../support/smtp.ts'

const random = seededRandom('kills')

const createNote = (web: Web, text: string) => web.call('POST', '/items/note', { text })

async function createNotes({ web }: Cluster): Promise<void> {
  const { status } = await web[0]!.call('POST', '/schemas', {
    collectionName: 'note',
    schema: { fields: { text: { type: 'String' }, change: { type: 'String' } } },
  })
  expect(status).toBe(201)
}

/** What each write leaves: a note its row and event, a registration more. */
async function traces(cluster: Cluster) {
  const keys = async (text: string) => (await cluster.sql(text)).map(({ key }) => key as string)
  const events = `select changes->'after'->>'text' as key from "svc_AuditLog" where entity = 'note' and action = 'create'`
  return {
    notes: { row: await keys('select text as key from note'), event: await keys(events) },
    registrations: await registrationTraces(cluster),
  }
}

async function readsWal(web: Web): Promise<void> {
  const source = async () => (await web.call('GET', '/ready')).body.realtime?.source
  await waitFor(async () => (await source()) === 'wal', { what: 'the WAL to be read' })
}

/** A killed process's statements may still be running at the server. */
async function settled({ sql }: Cluster): Promise<void> {
  const busy = `select from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()
    and backend_type = 'client backend' and (state like 'idle in transaction%' or state = 'active')`
  await waitFor(async () => (await sql(busy)).length === 0, { what: 'statements to end' })
}

describe('kill -9 of a web process', () => {
  let cluster: Cluster

  beforeAll(async () => {
    cluster = await startCluster({ env: verification, web: 2 })
    await createNotes(cluster)
  })

  /** The process stands still while its statement waits for the table and then ends without it. */
  async function killInside(
    table: string,
    write: () => Promise<unknown>,
    until: () => Promise<boolean>,
  ): Promise<void> {
    const web = cluster.web[0]!
    const blocker = await cluster.connect()
    await blocker.query(`begin; lock table "${table}" in share mode`)
    const answered = write()
    // For this table: others wait for locks of their own, for a moment.
    const here = `select from pg_locks where not granted and relation = '"${table}"'::regclass`
    await waitFor(async () => (await cluster.sql(here)).length === 1, { what: 'the write to wait' })
    web.freeze()
    await blocker.query('commit')
    await waitFor(until)
    await web.kill('SIGKILL')
    await answered
    await settled(cluster)
    await web.restart()
  }

  const waiting = `select from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()`

  it('between commit and answer: the row and its event are there, once', async () => {
    const ledger = openLedger()
    const isThere = async () => (await cluster.sql(`select from note where text = 'frozen'`)).length === 1
    await killInside('note', () => ledger.write('frozen', () => createNote(cluster.web[0]!, 'frozen')), isThere)
    expect(ledger.count('unknown')).toBe(1)
    const { notes } = await traces(cluster)
    expect(notes).toEqual({ row: ['frozen'], event: ['frozen'] })
  })

  it('inside a transaction: nothing of it is there, and it can be repeated', async () => {
    const email = 'frozen@mail.example'
    const isDone = async () => (await cluster.sql(waiting)).length === 0
    await killInside('svc_EmailLog', () => register(cluster.web[0]!, email).catch(() => undefined), isDone)
    expect(Object.values((await traces(cluster)).registrations).flat()).toEqual([])
    expect((await register(cluster.web[0]!, email)).status).toBe(200)
    const each = Object.values((await traces(cluster)).registrations)
    expect(each).toEqual(each.map(() => [email]))
  })

  it('inside an undo that has written a part: nothing of it is there, and it can be repeated', async () => {
    const web = cluster.web[0]!
    const schema = { fields: { text: { type: 'String' } } }
    expect((await web.call('POST', '/schemas', { collectionName: 'remark', schema })).status).toBe(201)
    await cluster.sql(`with a as (insert into note (text) select 'undone ' || n from generate_series(1, 500) n)
      insert into remark (text) select 'undone ' || n from generate_series(1, 500) n`)
    const [{ position }] = await cluster.sql(`select max(position)::text as position from "svc_AuditLog"`)
    const left = async () =>
      (
        await cluster.sql(`select (select count(*) from note where text like 'undone%')::int as notes, (select count(*) from remark)::int as remarks,
        (select count(*) from "svc_AuditLog" where action in ('delete', 'undone') and position > ${position})::int as events`)
      )[0]
    const undo = () => cluster.web[0]!.call('POST', '/log/undo', { position }).catch(() => undefined)
    const isDone = async () => (await cluster.sql(waiting)).length === 0
    await killInside('remark', undo, isDone)
    expect(await left()).toEqual({ notes: 500, remarks: 500, events: 0 })
    expect(await undo()).toMatchObject({ status: 200 })
    expect(await left()).toEqual({ notes: 0, remarks: 0, events: 1001 })
  })

  it('at random under load: nothing acknowledged is lost, nothing is half there, subscribers miss nothing', async () => {
    const [notes, registrations, changes] = [openLedger(), openLedger(), openLedger()]
    const before = await traces(cluster)
    const seen = (await changesOf(cluster, 'note')).length
    const followers = await Promise.all(cluster.web.map((web) => follow(web, cluster.token, 'note')))
    const load = { isOver: false, isSlow: false }
    const ledgers = { notes, registrations, changes }
    const writing = Promise.all(Array.from({ length: 6 }, (_, writer) => write(writer, ledgers, load)))
    for (const _kill of [1, 2, 3]) {
      const limit = notes.begun() + Math.floor(10 + random() * 30)
      await waitFor(() => notes.begun() >= limit)
      const victim = cluster.web[Math.floor(random() * 2)]!
      await victim.kill('SIGKILL')
      // Under the full load a start takes three times as long, and shows nothing more.
      load.isSlow = true
      await victim.restart()
      load.isSlow = false
    }
    load.isOver = true
    await writing
    await settled(cluster)
    report('kill -9', ledgers)
    const after = await traces(cluster)
    expect(notes.faults(without(after.notes, before.notes))).toEqual([])
    expect(registrations.faults(without(after.registrations, before.registrations))).toEqual([])
    const updates = `select changes->'after'->>'change' as key from "svc_AuditLog" where entity = 'note' and action = 'update'`
    expect(changes.faults({ event: (await cluster.sql(updates)).map(({ key }) => key) })).toEqual([])
    expect(await logFaults(await cluster.connect())).toEqual([])
    const committed = (await changesOf(cluster, 'note')).slice(seen)
    for (const follower of followers) {
      await follower.caughtUp(committed)
      expect(streamFaults(follower.frames, committed)).toEqual([])
      expect(follower.interruptions.resyncs).toBe(0)
    }
  })

  /** Goes to the other process when one does not answer, as behind a load balancer. */
  async function write(
    writer: number,
    ledgers: Record<'notes' | 'registrations' | 'changes', Ledger>,
    load: { readonly isOver: boolean; readonly isSlow: boolean },
  ): Promise<void> {
    let at = writer
    const web = () => cluster.web[at % 2]!
    for (let i = 0; !load.isOver; i += 1) {
      const key = `${writer}-${i}`
      let id: string | undefined
      const outcome = await ledgers.notes.write(key, async () => {
        const answer = await createNote(web(), key)
        id = answer.body?.data?.id
        return answer
      })
      if (outcome === 'unknown') at += 1
      if (id !== undefined && i % 2 === 0)
        await ledgers.changes.write(`${key} again`, () =>
          web().call('PATCH', `/items/note/${id}`, { change: `${key} again` }),
        )
      if (i % 4 === 0)
        await ledgers.registrations.write(`r${key}@mail.example`, () => register(web(), `r${key}@mail.example`))
      if (load.isSlow) await setTimeout(20)
    }
  }
})

describe('the feed without its replication connection', () => {
  it('loses, repeats and turns round nothing, and gets it back', async () => {
    const cluster = await startCluster()
    const [web] = cluster.web as [Web]
    await createNotes(cluster)
    await readsWal(web)
    const follower = await follow(web, cluster.token, 'note')
    const writing = Promise.all(Array.from({ length: 4 }, (_, writer) => changeOften(web, writer)))
    let ended = 0
    const terminate = `select pg_terminate_backend(pid) from pg_stat_activity where backend_type = 'walsender' and datname = current_database()`
    await waitFor(async () => {
      ended += (await cluster.sql(terminate)).length
      return ended >= 3
    })
    await writing
    const committed = await changesOf(cluster, 'note')
    await follower.caughtUp(committed)
    expect(streamFaults(follower.frames, committed)).toEqual([])
    expect(follower.interruptions).toEqual({ lines: 0, resyncs: 0 })
    await readsWal(web)
  })

  async function changeOften(web: Web, writer: number): Promise<void> {
    const { body } = await createNote(web, `${writer}`)
    for (let i = 0; i < 50; i += 1) await web.call('PATCH', `/items/note/${body.data.id}`, { change: `${i}` })
  }
})

describe('kill -9 of the mail worker', () => {
  let cluster: Cluster
  let smtp: SmtpDouble
  let runtime: Runtime

  beforeAll(async () => {
    smtp = await startSmtp()
    const database = await createDatabase()
    cluster = await startCluster({ database, env: { ...smtp.env, ...verification }, workers: ['mail'] })
    runtime = await openImpatient(database.url)
  })

  afterAll(() => runtime.close())

  it('while it sends: every mail arrives, repeated at most once and with the same Message-ID', async () => {
    const [worker] = cluster.workers
    const { promise: released, resolve: release } = Promise.withResolvers<void>()
    smtp.answer('hang', { hold: released }, 'hang', { hold: released }, 'hang')
    const addresses = Array.from({ length: 8 }, (_, i) => `killed${i}@mail.example`)
    await Promise.all(addresses.map((email) => register(cluster.web[0]!, email)))
    await waitFor(() => smtp.received.length === 5)
    await worker!.kill('SIGKILL')
    release()
    await waitFor(() => smtp.accepted.length === 2)
    await worker!.restart()
    await ageMailClaims(cluster.sql)
    const unfinished = `select from pgboss.job where name = 'mail' and state <> 'completed'`
    await waitFor(async () => {
      await lookForLapsedJobs(cluster.sql, runtime)
      return (await cluster.sql(unfinished)).length === 0
    })
    expect(await sent()).toBe(8)
    const byRecipient = Map.groupBy(smtp.accepted, ({ recipients }) => recipients.join())
    expect([...byRecipient.keys()].sort()).toEqual(addresses)
    expect([...byRecipient.values()].map(({ length }) => length).sort()).toEqual([1, 1, 1, 1, 1, 1, 2, 2])
    for (const copies of Map.groupBy(smtp.received, ({ recipients }) => recipients.join()).values())
      expect(new Set(copies.map(({ messageId, text }) => `${messageId} ${text}`)).size).toBe(1)
  })

  const sent = async () => (await cluster.sql(`select from "svc_EmailLog" where status = 'sent'`)).length
})

describe('PostgreSQL that goes away', () => {
  let runtime: Runtime
  let server: PrivateServer
  let smtp: SmtpDouble
  let cluster: Cluster

  beforeAll(async () => {
    ;[server, smtp] = await Promise.all([startPrivateServer(), startSmtp()])
    runtime = await openImpatient(server.url)
    const patient = { DATABASE_MAX_RETRY: '1000', DATABASE_RETRY_INTERVAL: '50' }
    // The server ends before the processes: a job that tries to reach it again must not keep its worker.
    const env = { ...smtp.env, ...verification, ...patient, TASK_SHUTDOWN_WAIT_TIME: '5' }
    cluster = await startCluster({ database: server, env, workers: ['mail'] })
    await createNotes(cluster)
  })

  afterAll(() => runtime.close())

  it('under load and comes back: all processes go on by themselves, and nothing acknowledged is lost', async () => {
    const [notes, registrations] = [openLedger(), openLedger()]
    const pids = () => [...cluster.web, ...cluster.workers].map(({ pid }) => pid)
    const started = pids()
    const follower = await follow(cluster.web[0]!, cluster.token, 'note')
    let over = false
    const isOver = () => over
    const writing = Promise.all(
      Array.from({ length: 4 }, (_, writer) => write(writer, { notes, registrations }, isOver)),
    )
    await readsWal(cluster.web[0]!)
    for (const mode of ['fast', 'immediate'] as const) {
      await succeeds(notes, Math.floor(10 + random() * 30))
      await server.stop(mode)
      await server.start()
    }
    await succeeds(notes, 10)
    over = true
    await writing
    // A fast stop that our replication connection holds up becomes an immediate one.
    const told = await readFile(join(server.dataDir, 'postgres.log'), 'utf8')
    expect(told.match(/received \w+ shutdown request/g)).toEqual(
      ['fast', 'immediate'].map((mode) => `received ${mode} shutdown request`),
    )
    report('stopped server', { notes, registrations })
    expect(pids()).toEqual(started)
    const found = await traces(cluster)
    expect(notes.faults(found.notes)).toEqual([])
    expect(registrations.faults(found.registrations)).toEqual([])
    expect(await logFaults(await cluster.connect())).toEqual([])
    const committed = await changesOf(cluster, 'note')
    await follower.caughtUp(committed)
    expect(streamFaults(follower.frames, committed)).toEqual([])
    const unsent = `select from "svc_EmailLog" where status <> 'sent'`
    await waitFor(async () => {
      await ageMailClaims(cluster.sql)
      await lookForLapsedJobs(cluster.sql, runtime)
      return (await cluster.sql(unsent)).length === 0
    })
    expect(new Set(smtp.accepted.flatMap(({ recipients }) => recipients))).toEqual(new Set(found.registrations.mail))
    expect(new Set(smtp.accepted.map(({ messageId }) => messageId)).size).toBe(found.registrations.mail.length)
    expect((await cluster.web[0]!.call('GET', '/ready')).status).toBe(200)
  })

  it('before a process is started: the process waits for it', async () => {
    const [web] = cluster.web as [Web]
    await web.kill('SIGTERM')
    await server.stop('fast')
    const restarted = web.restart()
    await web.waitForLine(({ msg }) => msg === 'the database cannot be reached yet')
    await server.start()
    await restarted
    expect((await web.call('GET', '/ready')).status).toBe(200)
  })

  async function succeeds(ledger: Ledger, times: number): Promise<void> {
    const goal = ledger.count('acknowledged') + times
    await waitFor(() => ledger.count('acknowledged') >= goal, { what: `${times} writes to succeed` })
  }

  async function write(
    writer: number,
    ledgers: Record<'notes' | 'registrations', Ledger>,
    isOver: () => boolean,
  ): Promise<void> {
    const [web] = cluster.web as [Web]
    for (let i = 0; !isOver(); i += 1) {
      const key = `${writer}-${i}`
      const outcome = await ledgers.notes.write(key, () => createNote(web, key))
      if (i % 8 === 0)
        await ledgers.registrations.write(`p${key}@mail.example`, () => register(web, `p${key}@mail.example`))
      // As a client would that is told to come back later.
      if (outcome === 'unknown') await setTimeout(50)
    }
  }
})

/** A runtime that supervises the queues, for tests that cannot wait for minutes. It retries mails at once. */
async function openImpatient(url: string): Promise<Runtime> {
  const log = pino({ level: 'silent' })
  const runtime = await openRuntime({ config: testConfig(url), log, name: 'test', worker: false })
  await (await runtime.boss()).updateQueue('mail', { retryDelay: 0, retryBackoff: false })
  return runtime
}

function without(traces: Record<string, string[]>, earlier: Record<string, string[]>): Record<string, string[]> {
  return Object.fromEntries(
    Object.entries(traces).map(([kind, keys]) => [kind, keys.filter((key) => !earlier[kind]!.includes(key))]),
  )
}
