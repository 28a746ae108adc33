import pino from 'pino'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { openRuntime, type Runtime } from '../../src/runtime.ts'
import { type Cluster, startCluster, type Web } from '../support/cluster.ts'
import { changesOf, follow, type Ledger, logFaults, openLedger, seededRandom, streamFaults } from '../support/ledger.ts'
import { createDatabase, type PrivateServer, startPrivateServer } from '../support/postgres.ts'
import { testConfig } from '../support/prepare.ts'
import { waitFor } from '../support/processes.ts'
import { type SmtpDouble, startSmtp } from '../support/smtp.ts'

const verification = { REQUIRE_EMAIL_VERIFICATION: 'true', AUTH_APP_URL: 'https://app.example' }
const password = 'long enough'
const random = seededRandom('kills')

const createNote = (web: Web, text: string) => web.call('POST', '/items/note', { text })
const register = (web: Web, email: string) =>
  web.call('POST', '/auth/register', { email, password, firstName: 'K', lastName: 'K' }, null)

async function createNotes({ web }: Cluster): Promise<void> {
  const { status } = await web[0]!.call('POST', '/schemas', {
    collectionName: 'note',
    schema: { fields: { text: { type: 'String' }, change: { type: 'String' } } },
  })
  expect(status).toBe(201)
}

/** What each write leaves: a note its row and event, a registration its user, both events, its mail and its job. */
async function traces({ sql }: Cluster) {
  const keys = async (text: string) => (await sql(text)).map(({ key }) => key as string)
  const events = (entity: string, field: string) =>
    `select changes->'after'->>'${field}' as key from "svc_AuditLog" where entity = '${entity}' and action = 'create'
     and changes->'after'->>'${field}' <> 'admin@example.com'`
  const mails = `select email as key from "svc_EmailLog"`
  return {
    notes: { row: await keys('select text as key from note'), event: await keys(events('note', 'text')) },
    registrations: {
      user: await keys(`select email as key from "svc_User" where email <> 'admin@example.com'`),
      event: await keys(events('svc_User', 'email')),
      registered: await keys(
        `select email as key from "svc_AuditLog" l join "svc_User" u on u.id::text = l."entityId"
         where l.type = 'auth' and l.action = 'register'`,
      ),
      mail: await keys(mails),
      job: await keys(`${mails} m join pgboss.job j on j.name = 'mail' and j.data->>'emailLogId' = m.id::text`),
    },
  }
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
    await waitFor(async () => (await cluster.sql(waiting)).length === 1, { what: 'the write to wait' })
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

  it('at random under load: nothing acknowledged is lost, nothing is half there, subscribers miss nothing', async () => {
    const [notes, registrations, changes] = [openLedger(), openLedger(), openLedger()]
    const before = await traces(cluster)
    const seen = (await changesOf(cluster, 'note')).length
    const followers = await Promise.all(cluster.web.map((web) => follow(web, cluster.token, 'note')))
    let over = false
    const ledgers = { notes, registrations, changes }
    const writing = Promise.all(Array.from({ length: 6 }, (_, writer) => write(writer, ledgers, () => over)))
    for (const _kill of [1, 2, 3]) {
      const limit = notes.begun() + Math.floor(10 + random() * 30)
      await waitFor(() => notes.begun() >= limit)
      const victim = cluster.web[Math.floor(random() * 2)]!
      await victim.kill('SIGKILL')
      await victim.restart()
    }
    over = true
    await writing
    await settled(cluster)
    report(ledgers)
    const after = await traces(cluster)
    expect(notes.faults(without(after.notes, before.notes))).toEqual([])
    expect(registrations.faults(without(after.registrations, before.registrations))).toEqual([])
    const updates = `select changes->'after'->>'change' as key from "svc_AuditLog" where entity = 'note' and action = 'update'`
    expect(changes.faults({ event: (await cluster.sql(updates)).map(({ key }) => key) })).toEqual([])
    expect(await logFaults(await cluster.connect())).toEqual([])
    const committed = (await changesOf(cluster, 'note')).slice(seen)
    for (const follower of followers) {
      await follower.caughtUp(committed)
      expect(streamFaults(follower.frames, committed, { resumed: true })).toEqual([])
      expect(follower.interruptions.resyncs).toBe(0)
    }
  })

  /** Goes to the other process when one does not answer, as behind a load balancer. */
  async function write(
    writer: number,
    ledgers: Record<'notes' | 'registrations' | 'changes', Ledger>,
    isOver: () => boolean,
  ): Promise<void> {
    let at = writer
    const web = () => cluster.web[at % 2]!
    for (let i = 0; !isOver(); i += 1) {
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
    }
  }
})

describe('the feed without its replication connection', () => {
  it('loses, repeats and turns round nothing, and gets it back', async () => {
    const cluster = await startCluster()
    const [web] = cluster.web as [Web]
    await createNotes(cluster)
    const source = async () => (await web.call('GET', '/ready')).body.realtime.source
    await waitFor(async () => (await source()) === 'wal', { what: 'the WAL to be read' })
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
    await waitFor(async () => (await source()) === 'wal', { what: 'the WAL to be read again' })
  })

  async function changeOften(web: Web, writer: number): Promise<void> {
    const { body } = await createNote(web, `${writer}`)
    for (let i = 0; i < 50; i += 1) await web.call('PATCH', `/items/note/${body.data.id}`, { change: `${i}` })
  }
})

describe('kill -9 of the mail worker', () => {
  let cluster: Cluster
  let smtp: SmtpDouble
  let rt: Runtime

  beforeAll(async () => {
    smtp = await startSmtp()
    const database = await createDatabase()
    cluster = await startCluster({ database, env: { ...smtp.env, ...verification }, workers: ['mail'] })
    rt = await openRuntime({
      config: testConfig(database.url),
      log: pino({ level: 'silent' }),
      name: 'test',
      worker: false,
    })
    await rt.boss.updateQueue('mail', { retryDelay: 0, retryBackoff: false })
  })

  afterAll(() => rt.close())

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
    await waitFor(async () => (await sent()) === 3)
    await lapse()
    await waitFor(async () => {
      await lookForLapsedJobs()
      return (await sent()) === 8
    })
    const byRecipient = Map.groupBy(smtp.accepted, ({ recipients }) => recipients.join())
    expect([...byRecipient.keys()].sort()).toEqual(addresses)
    expect([...byRecipient.values()].map(({ length }) => length).sort()).toEqual([1, 1, 1, 1, 1, 1, 2, 2])
    for (const copies of Map.groupBy(smtp.received, ({ recipients }) => recipients.join()).values())
      expect(new Set(copies.map(({ messageId, text }) => `${messageId} ${text}`)).size).toBe(1)
    const [left] = await cluster.sql(
      `select count(*)::int as n from pgboss.job where name = 'mail' and state <> 'completed'`,
    )
    expect(left.n).toBe(0)
  })

  const sent = async () => (await cluster.sql(`select from "svc_EmailLog" where status = 'sent'`)).length

  /** Claims and jobs of the dead worker become as old as they would have to. */
  async function lapse(): Promise<void> {
    await cluster.sql(`update "svc_EmailLog" set "claimedAt" = now() - interval '1 hour' where status = 'sending'`)
    await cluster.sql(
      `update pgboss.job set started_on = now() - interval '1 hour' where name = 'mail' and state = 'active'`,
    )
  }

  /** What workers do once a minute. */
  async function lookForLapsedJobs(): Promise<void> {
    await cluster.sql('update pgboss.queue set monitor_claim_on = null, monitor_on = null')
    await rt.boss.supervise('mail')
  }
})

describe('PostgreSQL stopped at once under load', () => {
  let server: PrivateServer
  let smtp: SmtpDouble
  let cluster: Cluster

  beforeAll(async () => {
    ;[server, smtp] = await Promise.all([startPrivateServer(), startSmtp()])
    cluster = await startCluster({ database: server, env: { ...smtp.env, ...verification }, workers: ['mail'] })
    await createNotes(cluster)
  })

  it('and started again: all processes go on by themselves, and nothing acknowledged is lost', async () => {
    const [notes, registrations] = [openLedger(), openLedger()]
    const pids = [...cluster.web, ...cluster.workers].map(({ pid }) => pid)
    const follower = await follow(cluster.web[0]!, cluster.token, 'note')
    const limit = Math.floor(40 + random() * 40)
    const writing = Promise.all(Array.from({ length: 6 }, (_, writer) => write(writer, { notes, registrations })))
    await waitFor(() => notes.begun() >= limit)
    await server.stop('immediate')
    await server.start()
    await writing
    report({ notes, registrations })
    await waitFor(async () => (await cluster.web[0]!.call('GET', '/ready')).status === 200)
    expect([...cluster.web, ...cluster.workers].map(({ pid }) => pid)).toEqual(pids)
    const found = await traces(cluster)
    expect(notes.faults(found.notes)).toEqual([])
    expect(registrations.faults(found.registrations)).toEqual([])
    expect(await logFaults(await cluster.connect())).toEqual([])
    const committed = await changesOf(cluster, 'note')
    await follower.caughtUp(committed)
    expect(streamFaults(follower.frames, committed, { resumed: true })).toEqual([])
    await waitFor(async () => (await cluster.sql(`select from "svc_EmailLog" where status <> 'sent'`)).length === 0, {
      timeout: 30_000,
    })
    expect(new Set(smtp.accepted.flatMap(({ recipients }) => recipients))).toEqual(new Set(found.registrations.mail))
    expect(new Set(smtp.accepted.map(({ messageId }) => messageId)).size).toBe(found.registrations.mail.length)
  })

  /** Until writes succeed again, and then some. */
  async function write(writer: number, ledgers: Record<'notes' | 'registrations', Ledger>): Promise<void> {
    const [web] = cluster.web as [Web]
    let after = 0
    for (let i = 0; after < 5; i += 1) {
      const key = `${writer}-${i}`
      const outcome = await ledgers.notes.write(key, () => createNote(web, key))
      const failed = ledgers.notes.count('unknown') > 0
      if (outcome === 'acknowledged' && failed) after += 1
      if (i % 8 === 0)
        await ledgers.registrations.write(`p${key}@mail.example`, () => register(web, `p${key}@mail.example`))
    }
  }
})

function without(traces: Record<string, string[]>, earlier: Record<string, string[]>): Record<string, string[]> {
  return Object.fromEntries(
    Object.entries(traces).map(([kind, keys]) => [kind, keys.filter((key) => !earlier[kind]!.includes(key))]),
  )
}

function report(ledgers: Readonly<Record<string, Ledger>>): void {
  for (const [name, ledger] of Object.entries(ledgers)) {
    const counts = (['acknowledged', 'refused', 'unknown'] as const).map(
      (outcome) => `${ledger.count(outcome)} ${outcome}`,
    )
    process.stderr.write(`kills: ${name}: ${counts.join(', ')}\n`)
  }
}
