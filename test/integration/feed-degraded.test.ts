import { randomBytes } from 'node:crypto'
import pg from 'pg'
import { afterEach, describe, expect, it } from 'vitest'
import { type Feed, openFeed } from '../../src/events/feed.ts'
import { logTableSql, publicationSql } from '../../src/events/log-table.ts'
import { asSuperuser, connect, createLogDatabase, run, silent } from '../support/log.ts'
import { type PrivateServer, startPrivateServer } from '../support/postgres.ts'
import { waitFor } from '../support/wait.ts'

const cleanups: (() => unknown)[] = []

afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup()
})

const append = (db: pg.Client, id: number) =>
  db.query(`insert into "svc_AuditLog" (entity, "entityId", action) values ('items', $1, 'create')`, [id])

async function session(url: string, options: pg.ClientConfig = {}): Promise<pg.Client> {
  const client = await connect(url, options)
  client.on('error', () => undefined)
  cleanups.push(() => client.end())
  return client
}

function open(url: string, directUrl = url): { feed: Feed; heard: string[]; started: Promise<string> } {
  const pool = new pg.Pool({ connectionString: url, max: 3 })
  pool.on('error', () => undefined)
  const feed = openFeed({ db: pool, directUrl, log: silent, walEnabled: true })
  cleanups.push(
    () => pool.end(),
    () => feed.close(),
  )
  const heard: string[] = []
  const onEvents = (batch: readonly { entityId: string | null }[]) => {
    heard.push(...batch.map(({ entityId }) => entityId!))
  }
  const { started } = feed.subscribe('now', onEvents, (reason) => heard.push(reason))
  return { feed, heard, started }
}

async function privateLog(settings: Record<string, string>): Promise<PrivateServer> {
  const server = await startPrivateServer(settings)
  const db = await session(server.url)
  await run(db, [...logTableSql(), ...publicationSql()])
  return server
}

async function expectPolling(url: string, reason: RegExp, directUrl = url): Promise<Feed> {
  const { feed, heard, started } = open(url, directUrl)
  await waitFor(() => feed.status().source === 'poll', { what: 'the feed to give up the WAL for now' })
  expect(feed.status()).toMatchObject({ walAvailable: false, reason: expect.stringMatching(reason) })
  await started
  const db = await session(url)
  await append(db, 1)
  await waitFor(() => heard.length === 1)
  return feed
}

describe('the feed polls, and says why, when', () => {
  it('wal_level is not logical', async () => {
    const server = await privateLog({ wal_level: 'replica' })
    await expectPolling(server.url, /wal_level/)
  })

  it('all replication slots are in use, until one is free', async () => {
    const server = await privateLog({ max_replication_slots: '1' })
    const db = await session(server.url)
    await db.query(`select pg_create_logical_replication_slot('taken', 'pgoutput')`)
    const feed = await expectPolling(server.url, /replication slots are in use/)
    await db.query(`select pg_drop_replication_slot('taken')`)
    await waitFor(() => feed.status().source === 'wal')
  })

  it('there is no WAL sender', async () => {
    const server = await privateLog({ max_wal_senders: '0' })
    await expectPolling(server.url, /max_wal_senders/)
  })

  it('the role may not replicate', async () => {
    const url = await createLogDatabase()
    const admin = await session(asSuperuser(url))
    const role = `feed_reader_${randomBytes(4).toString('hex')}`
    await admin.query(`create role ${role} login password 'x'`)
    const address = new URL(url)
    address.username = role
    address.password = 'x'
    try {
      await expectPolling(url, /WAL ?sender/i, address.href)
    } finally {
      await admin.query(`drop role ${role}`)
    }
  })
})

describe('a commit that is in the WAL before it is visible', () => {
  it('is delivered once it is, not before', async () => {
    const server = await privateLog({ synchronous_standby_names: 'absent', synchronous_commit: 'local' })
    const { feed, heard, started } = open(server.url)
    await waitFor(() => feed.status().source === 'wal')
    await started
    const [db, writer] = [await session(server.url), await session(server.url)]
    await writer.query('set synchronous_commit = on')
    const { rows } = await writer.query('select pg_backend_pid() as pid')
    const writing = append(writer, 1)
    await waitFor(
      async () =>
        (await db.query(`select from pg_stat_activity where pid = $1 and wait_event = 'SyncRep'`, [rows[0].pid]))
          .rowCount,
    )
    await append(db, 2)
    await waitFor(() => heard.length === 1)
    expect(heard).toEqual(['2'])
    await db.query('select pg_cancel_backend($1)', [rows[0].pid])
    await writing
    await waitFor(() => heard.length === 2)
    expect(heard).toEqual(['2', '1'])
  })
})

describe('a server that crashes', () => {
  it('loses the feed no event and no subscriber', async () => {
    const server = await privateLog({})
    const { feed, heard, started } = open(server.url)
    await waitFor(() => feed.status().source === 'wal')
    await started
    for (let crash = 0; crash < 2; crash += 1) {
      const before = await connect(server.url)
      before.on('error', () => undefined)
      await append(before, crash * 2)
      await server.stop('immediate')
      await waitFor(() => feed.status().source !== 'wal')
      await server.start()
      const after = await connect(server.url)
      await append(after, crash * 2 + 1)
      await after.end()
      await waitFor(() => heard.length === crash * 2 + 2)
    }
    await waitFor(() => feed.status().source === 'wal')
    expect(heard).toEqual(['0', '1', '2', '3'])
  })
})
