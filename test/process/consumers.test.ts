import type pg from 'pg'
import pino from 'pino'
import { expect, it } from 'vitest'
import { openLogWatch } from '../../src/cache/log-watch.ts'
import { rawQuery } from '../../src/db/sql.ts'
import { openRuntime } from '../../src/process/runtime.ts'
import { openConsumers } from '../../src/workers/consumers.ts'
import { startPrivateServer } from '../support/postgres.ts'
import { testConfig } from '../support/prepare.ts'
import { withClient } from '../support/server.ts'
import { waitFor } from '../support/wait.ts'

it('a place outlives a crash of the server that gives transaction numbers out again', async () => {
  const server = await startPrivateServer()
  const query = (text: string, values: unknown[] = []) =>
    withClient(server.url, async (client: pg.Client) => (await client.query(text, values)).rows)
  await query('create table seen (position bigint)')
  const log = pino({ level: 'silent' })
  const runtime = await openRuntime({ config: testConfig(server.url), log, name: 'consumers', worker: true })
  const consumers = await openConsumers(
    runtime,
    [
      {
        name: 'crashed',
        wants: () => ({ collections: ['marker'] }),
        onFailure: 'halt',
        handle: async (tx, { events }) => {
          await tx.any(
            rawQuery('insert into seen select * from unnest($1::bigint[])', [events.map(({ position }) => position)]),
          )
          return undefined
        },
      },
    ],
    { leaseMs: 2000, lookMs: 20 },
  )
  const watch = openLogWatch({ db: runtime.db, reachBackSeconds: 0 })
  const write = (text = `insert into "svc_AuditLog" (entity, action) values ('marker', 'create')`) => query(text)
  const written = async () =>
    (await query(`select position from "svc_AuditLog" where entity = 'marker' order by position`)).map(
      (row) => row.position,
    )
  const seen = async () => (await query('select position from seen order by position')).map((row) => row.position)
  try {
    for (let round = 1; round <= 2; round += 1) {
      await withClient(server.url, async (client) => {
        for (let i = 0; i < 50; i += 1) await client.query('begin; select pg_current_xact_id(); rollback')
      })
      await write()
      await waitFor(async () => (await seen()).length === (await written()).length)
      await withClient(server.url, async (client) => {
        for (let i = 0; i < 50; i += 1) await client.query('begin; select pg_current_xact_id(); rollback')
      })
      const before = await watch.look(0)
      expect((await watch.look(0)).number).toBe(before.number + 1)
      expect(watch.isUnchanged(['marker'], before.number)).toBe(true)
      await server.stop('immediate')
      await server.start()
      for (let i = 0; i < 60; i += 1) await write()
      await waitFor(async () => (await seen()).length >= (await written()).length)
      expect(await seen()).toEqual(await written())
      // The cache looks again only now, when snapshots can't tell that there was a crash.
      await watch.look(0)
      expect(watch.isUnchanged(['marker', 'unheard of'], before.number)).toBe(false)
    }
    // A crash that the server survives: a session is killed.
    const before = await watch.look(0)
    await withClient(server.url, async (client) => {
      const ended = new Promise((resolve) => client.once('end', resolve))
      client.on('error', () => undefined)
      const [{ pid }] = (await client.query('select pg_backend_pid() as pid')).rows
      process.kill(pid, 'SIGKILL')
      await ended
    }).catch(() => undefined)
    const looked = () =>
      watch.look(0).then(
        () => true,
        () => false,
      )
    // The killed session's socket is closed a moment before the server knows: a look may still find it as it was.
    await waitFor(async () => (await looked()) && !watch.isUnchanged(['unheard of'], before.number))
    expect((await query(`select state from svc_log.consumer where name = 'crashed'`))[0].state).toBe('running')
  } finally {
    await consumers.stop(5000)
    await runtime.close()
  }
})
