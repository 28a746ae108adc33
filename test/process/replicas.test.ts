import { beforeAll, describe, expect, it } from 'vitest'
import { readAnywhere } from '../../src/db/replicas/replicas.ts'
import { walEndSql } from '../../src/db/replicas/write-positions.ts'
import { forgetWritePositions } from '../../src/db/unlogged/processes.ts'
import { commit } from '../../src/events/commit.ts'
import { systemActor } from '../../src/events/types.ts'
import { type Api, startApi } from '../support/api.ts'
import { type Cluster, startCluster, type Web } from '../support/cluster.ts'
import { samplesOf } from '../support/exposition.ts'
import { type PrivateServer, startPrivateServer } from '../support/postgres.ts'
import { connect } from '../support/socket.ts'
import { freeze, primarySettings, type Standby, startStandby } from '../support/standby.ts'
import { waitFor } from '../support/wait.ts'

/**
 * Real streaming standbys, paused, stopped and frozen. `patient` web processes read from however old a state,
 * so that what they must not read from a paused standby shows; `api` has the usual limit.
 */

let primary: PrivateServer
let standbys: [Standby, Standby]
let cluster: Cluster
let patient: [Web, Web]
let api: Api
let reader: Awaited<ReturnType<Api['user']>>
let writer: Awaited<ReturnType<Api['user']>>

const password = 'password of a user'

beforeAll(async () => {
  primary = await startPrivateServer(primarySettings)
  standbys = [await startStandby(primary), await startStandby(primary)]
  const replicas = {
    DATABASE_READ_REPLICA_ENABLED: 'true',
    DATABASE_READ_REPLICA_URLS: standbys.map(({ url }) => url).join(),
    DATABASE_READ_REPLICA_POOL_MAX: '5',
  }
  const database = { url: primary.url, name: 'daybook', drop: async () => undefined }
  const patience = { DATABASE_READ_REPLICA_MAX_LAG: '3600000' }
  cluster = await startCluster({ database: primary, web: 2, env: { ...replicas, ...patience } })
  api = await startApi({ ...replicas, DATABASE_POOL_MAX: '10' }, database)
  patient = cluster.web as [Web, Web]
  const schema = { fields: { text: { type: 'String' }, more: { type: 'String' } } }
  await api.admin('POST', '/schemas', { collectionName: 'note', schema })
  const all = ['create', 'read', 'update', 'delete'].map((action) => ({ collection: 'note', action, fields: ['*'] }))
  ;[reader, writer] = [await api.user(all), await api.user(all)]
  await api.admin('POST', '/permissions', {
    role_Id: await publicRole(),
    collection: 'note',
    action: 'create',
    fields: '*',
  })
  await api.admin('POST', '/permissions', {
    role_Id: await publicRole(),
    collection: 'note',
    action: 'read',
    fields: '*',
  })
  await settled()
})

const publicRole = async () => (await cluster.sql(`select id from "svc_Role" where name = 'public'`))[0].id
const servingAt = async (web: Web) => (await web.call('GET', '/ready', undefined, null)).body.replicas.serving
const texts = (list: any): string[] => list.body.data.map(({ text }: any) => text).sort()
const notes = async (web: Web, token: string | null) => texts(await web.call('GET', '/items/note', undefined, token))
const stats = () => api.runtime.replicas!.stats()
const reads = () => stats().replicas.map((one) => one.reads)
const metrics = async () => samplesOf((await api.admin('GET', '/metrics')).text)
const serving = () => stats().replicas.map((one) => one.serving)

/** Until both standbys show everything, to every process and every caller. */
async function settled(): Promise<void> {
  for (const standby of standbys) await standby.resume()
  for (const standby of standbys) await standby.catchUp()
  await waitFor(() => serving().every(Boolean))
  for (const web of patient) await waitFor(async () => (await servingAt(web)) === 2)
}

/** Work while no standby replays anything. */
async function whilePaused<T>(work: () => Promise<T>): Promise<T> {
  await settled()
  for (const standby of standbys) await standby.pause()
  try {
    return await work()
  } finally {
    await settled()
  }
}

describe('while the standbys stand still', () => {
  it('others read what they have', async () => {
    await whilePaused(async () => {
      const before = await notes(patient[0], reader.token)
      await cluster.sql(`insert into note (text) values ('unseen')`)
      for (const web of patient) await waitFor(async () => !(await notes(web, reader.token)).includes('unseen'))
      expect(await notes(patient[0], reader.token)).toEqual(before)
      const { body } = await patient[1].call(
        'POST',
        '/reports/note',
        { aggregate: { n: { function: 'count' } } },
        reader.token,
      )
      expect(Number(body.data[0].n)).toBe(before.length)
      const csv = await patient[0].call('GET', '/items/note/export?fields=text', undefined, reader.token)
      expect(csv.text).not.toContain('unseen')
    })
    await waitFor(async () => (await notes(patient[0], reader.token)).includes('unseen'))
  })

  it.each<[string, (token: string) => Promise<string | null>]>([
    ['with the same session', async (token) => token],
    [
      'with another session of the same user',
      async () => {
        const { body } = await patient[0].call('POST', '/auth/login', { email: writer.email, password }, null)
        return body.token
      },
    ],
    [
      'with an API key',
      async (token) => (await patient[0].call('POST', '/auth/keys', { name: 'reads' }, token)).body.key,
    ],
  ])('who writes at one process reads it at the other, %s', async (_how, credential) => {
    await whilePaused(async () => {
      const created = await patient[0].call('POST', '/items/note', { text: 'mine' }, writer.token)
      const { id } = created.body.data
      const token = await credential(writer.token)
      const one = async (web: Web) => (await web.call('GET', `/items/note/${id}`, undefined, token)).body.data?.text
      expect([await one(patient[1]), await one(patient[0])]).toEqual(['mine', 'mine'])
      await patient[1].call('PATCH', `/items/note/${id}`, { text: 'mine again' }, token)
      expect([await one(patient[0]), await one(patient[1])]).toEqual(['mine again', 'mine again'])
      const history = await patient[0].call('GET', `/items/note/${id}/history`, undefined, token)
      expect(history.body.data.map(({ action }: any) => action)).toEqual(['update', 'create'])
      const others = await patient[0].call('GET', `/items/note/${id}`, undefined, reader.token)
      expect(others.status).toBe(403)
    })
  })

  it('so does who has no account', async () => {
    await whilePaused(async () => {
      const { body } = await patient[0].call('POST', '/items/note', { text: 'anonymous' }, null)
      const read = await patient[1].call('GET', `/items/note/${body.data.id}`, undefined, null)
      expect(read.body.data?.text).toBe('anonymous')
    })
  })

  it('so does who has written in a transaction of several events, and who has just registered', async () => {
    await whilePaused(async () => {
      const account = { email: 'fresh@example.com', password, firstName: 'F', lastName: 'F' }
      const registered = await patient[0].call('POST', '/auth/register', account, null)
      expect((await patient[1].call('GET', '/auth/check', undefined, registered.body.token)).status).toBe(200)
      const bulk = await patient[0].call('POST', '/items/note/bulk', [{ text: 'a' }, { text: 'b' }], writer.token)
      expect(bulk.body.data).toHaveLength(2)
      expect(await notes(patient[1], writer.token)).toEqual(expect.arrayContaining(['a', 'b']))
    })
  })

  it('sign-in, sign-out and permissions are those of the primary', async () => {
    const role = { role_Id: reader.roleId, collection: 'note', action: 'read' }
    const [permission] = await cluster.sql(
      `select id from "svc_Permission" where "role_Id" = $1 and collection = 'note' and action = 'read'`,
      [reader.roleId],
    )
    const late: number[] = []
    await whilePaused(async () => {
      const { body } = await patient[0].call('POST', '/auth/login', { email: reader.email, password }, null)
      const status = async (web: Web) => (await web.call('GET', '/items/note', undefined, body.token)).status
      expect([await status(patient[0]), await status(patient[1])]).toEqual([200, 200])
      const revokedAt = performance.now()
      await patient[0].call('DELETE', `/permissions/${permission.id}`)
      for (const web of patient) await waitFor(async () => (await status(web)) === 403)
      late.push(Math.round(performance.now() - revokedAt))
      await patient[0].call('POST', '/permissions', { ...role, fields: '*' })
      for (const web of patient) await waitFor(async () => (await status(web)) === 200)
      await patient[0].call('POST', '/auth/logout', undefined, body.token)
      const check = (web: Web) => web.call('GET', '/auth/check', undefined, body.token)
      expect((await check(patient[1])).status).toBe(401)
    })
    process.stdout.write(`a permission's revocation reached both processes within ${late[0]} ms, standbys paused\n`)
  })

  it('a new field is read from where it is', async () => {
    await whilePaused(async () => {
      await patient[0].call('PATCH', '/schemas/note', {
        schema: {
          fields: {
            text: { type: 'String' },
            more: { type: 'String' },
            added: { type: 'String', defaultValue: 'here' },
          },
        },
      })
      for (const web of patient) {
        const read = () => web.call('GET', '/items/note?fields=added&limit=1', undefined, reader.token)
        await waitFor(async () => (await read()).status === 200)
        expect((await read()).body.data[0]).toEqual({ added: 'here' })
        await waitFor(async () => (await servingAt(web)) === 0)
      }
    })
  })

  it('a read of the past is exact, whether they have that moment or not', async () => {
    const before = (await patient[0].call('GET', '/history/now')).body.data.cursor
    await cluster.sql(`insert into note (text) values ('between')`)
    await whilePaused(async () => {
      await cluster.sql(`insert into note (text) values ('after')`)
      const now = (await patient[0].call('GET', '/history/now')).body.data.cursor
      const asOf = async (cursor: string) =>
        texts(await patient[1].call('GET', `/items/note?asOf=${cursor}`, undefined, reader.token))
      expect(await asOf(before)).not.toContain('between')
      expect(await asOf(now)).toEqual(expect.arrayContaining(['between', 'after']))
    })
  })

  it.each<[string, () => Promise<unknown>]>([
    ['subscribed', async () => (await connect(patient[0].address, reader.token)).subscribe('note')],
    ['been given a cursor', () => patient[0].call('GET', '/changes?collections=note', undefined, reader.token)],
  ])('who has %s reads what came before, at any process', async (_what, begin) => {
    await whilePaused(async () => {
      await cluster.sql(`insert into note (text) values ('just before')`)
      await waitFor(async () => !(await notes(patient[1], reader.token)).includes('just before'))
      await begin()
      expect(await notes(patient[1], reader.token)).toContain('just before')
      await cluster.sql(`delete from note where text = 'just before'`)
    })
  })

  it('cursors of the log are the primary’s', async () => {
    await whilePaused(async () => {
      const list = await patient[0].call('GET', '/items/note?changesCursor=true&limit=1', undefined, reader.token)
      await cluster.sql(`insert into note (text) values ('pulled')`)
      const since = `/changes?collections=note&since=${list.body.changesCursor}`
      const { body } = await patient[1].call('GET', since, undefined, reader.token)
      expect(body.data.map(({ data }: any) => data.text)).toEqual(['pulled'])
    })
  })
})

describe('a standby', () => {
  it('answers its part of the reads', async () => {
    await settled()
    const before = reads()
    // One that is repeated would come from memory.
    for (let i = 1; i <= 10; i += 1) expect((await reader.call('GET', `/items/note?limit=${i}`)).status).toBe(200)
    const answered = reads().map((now, i) => now - before[i]!)
    expect(answered.reduce((sum, one) => sum + one)).toBe(10)
    for (const one of answered) expect(one).toBeGreaterThan(0)
    expect(stats().replicas.map(({ faults }) => faults)).toEqual([0, 0])
    const samples = await metrics()
    for (const replica of [1, 2]) {
      expect(samples.get(`daybook_replica_serving{replica="${replica}"}`)).toBe(1)
      expect(samples.get(`daybook_replica_lag_seconds{replica="${replica}"}`)).toBeGreaterThanOrEqual(0)
      expect(samples.get(`daybook_replica_reads_total{replica="${replica}"}`)).toBe(reads()[replica - 1])
      expect(samples.get(`daybook_replica_faults_total{replica="${replica}"}`)).toBe(0)
    }
  })

  it('that stays behind is left out, and comes back', async () => {
    await settled()
    await standbys[0].pause()
    await cluster.sql(`insert into note (text) values ('ahead')`)
    await waitFor(() => serving().join() === 'false,true')
    expect(stats().replicas[0]).toMatchObject({ reason: 'behind', behindBytes: expect.any(Number) })
    const one = await metrics()
    expect([1, 2].map((replica) => one.get(`daybook_replica_serving{replica="${replica}"}`))).toEqual([0, 1])
    expect(one.get('daybook_replica_lag_bytes{replica="1"}')).toBeGreaterThan(0)
    expect(one.get('daybook_replica_lag_seconds{replica="1"}')).toBeGreaterThan(0)
    await standbys[1].pause()
    await cluster.sql(`insert into note (text) values ('further ahead')`)
    await waitFor(() => !serving().some(Boolean))
    expect(texts(await reader.call('GET', '/items/note'))).toContain('further ahead')
    const ready = await api.anonymous('GET', '/ready')
    expect([ready.status, ready.body.replicas.ok, ready.body.replicas.serving]).toEqual([200, true, 0])
    const missed = (await metrics()).get('daybook_replica_missed_reads_total{reason="none serving"}')
    expect(missed).toBe(stats().primary.noneServing)
    expect(missed).toBeGreaterThan(0)
    await settled()
  })

  it('is not behind when the last record of the log fills its page', async () => {
    await settled()
    expect(await fillPage()).toBe(true)
    for (const standby of standbys) await standby.catchUp()
    const since = performance.now()
    await waitFor(() => stats().replicas.every(({ behindMs }) => behindMs! < performance.now() - since))
    // Another session may have written meanwhile, but none writes as little as the header of a page.
    for (const { behindBytes } of stats().replicas) expect(behindBytes).not.toBe(pageHeader)
  })

  it('that fails a read is asked no more for it: the primary is', async () => {
    await settled()
    const failing = (state: string) =>
      readAnywhere(api.runtime, { userId: reader.id }, async (db) => {
        const [row] = await db.run<{ standby: boolean }>('select pg_is_in_recovery() as standby', [])
        if (row!.standby) await db.run(raising, [state])
        return row!.standby
      })
    await withFunction()
    for (const state of ['40001', '40P01', '42P01', '42703', '55P03', '53300', '57P01', 'SV416'])
      expect([state, await failing(state)]).toEqual([state, false])
    for (const state of ['22P02', '57014', 'SV410']) await expect(failing(state)).rejects.toMatchObject({ code: state })
  })

  it('that is gone costs no read, and comes back', async () => {
    await settled()
    let over = false
    const answers: number[] = []
    const reading = Promise.all(
      Array.from({ length: 4 }, async () => {
        while (!over) answers.push((await reader.call('GET', '/items/note')).status)
      }),
    )
    await standbys[0].stop('immediate')
    await waitFor(() => serving().join() === 'false,true')
    expect((await metrics()).has('daybook_replica_lag_bytes{replica="1"}')).toBe(false)
    await standbys[1].stop('fast')
    await waitFor(() => !serving().some(Boolean))
    const sofar = answers.length
    await waitFor(() => answers.length > sofar + 10)
    await Promise.all(standbys.map((standby) => standby.start()))
    await waitFor(() => serving().every(Boolean))
    over = true
    await reading
    expect(answers.filter((status) => status !== 200)).toEqual([])
  })

  it('that hangs holds a read up for no longer than it takes to notice', async () => {
    await settled()
    const thaws = await Promise.all(standbys.map(freeze))
    const startedAt = performance.now()
    try {
      const answers = await Promise.all(Array.from({ length: 4 }, () => reader.call('GET', '/items/note')))
      expect(answers.map(({ status }) => status)).toEqual([200, 200, 200, 200])
      process.stdout.write(`four reads at hanging standbys took ${Math.round(performance.now() - startedAt)} ms\n`)
      await waitFor(() => stats().replicas.every(({ reason }) => reason !== undefined))
    } finally {
      for (const thaw of thaws) thaw()
    }
    await waitFor(() => serving().every(Boolean))
  })
})

describe('read-your-writes', () => {
  it('are lost with a crash of the primary: then no read uses a replica that may lack a write', async () => {
    await settled()
    for (const standby of standbys) await standby.pause()
    await patient[0].call('POST', '/items/note', { text: 'before the crash' }, writer.token)
    await primary.stop('immediate')
    await primary.start()
    for (const web of patient) {
      const read = () => web.call('GET', '/items/note', undefined, writer.token)
      await waitFor(async () => (await read()).status === 200)
      expect(texts(await read())).toContain('before the crash')
    }
    await settled()
  })

  it('are forgotten when no standby can be behind them any more', async () => {
    const positions = async () => (await api.sql('select caller from "svc_WriteMark"')).map(({ caller }) => caller)
    await commit(api.runtime, { ...systemActor, userId: writer.id }, async () => ({ result: undefined }))
    expect(await positions()).toContain(writer.id)
    await api.sql(`update "svc_WriteMark" set "notedAt" = "notedAt" - interval '2 minutes'`)
    await forgetWritePositions(api.runtime)
    expect(await positions()).toEqual(['floor'])
  })
})

const raising = 'select fail($1)'
const withFunction = async () => {
  await api.sql(`create or replace function fail(state text) returns void language plpgsql as $$
    begin raise exception using errcode = state, message = 'as if'; end $$`)
  await settled()
}

/** Bytes. */
const pageHeader = 24

/** Writes records until one ends where its page does, which the server calls a header further; false if it never did. */
async function fillPage(): Promise<boolean> {
  const [page, smallest] = [8192, 512]
  const emit = (bytes: number) =>
    cluster.sql(`select pg_logical_emit_message(false, '', repeat('x', ${bytes}), true) - '0/0' as behind`)
  const end = async () =>
    (
      await cluster.sql(
        `select ((pg_current_wal_insert_lsn() - '0/0') % ${page})::int as at, ${walEndSql} % ${page} as ours`,
      )
    )[0]
  for (let attempt = 0; attempt < 50; attempt += 1) {
    const before = (await end()).at
    await emit(smallest)
    const after = await end()
    const overhead = after.at - before - smallest
    const room = page - after.at
    if (overhead < 0 || overhead > 200 || room - overhead < smallest) continue
    await emit(room - overhead)
    const { at, ours } = await end()
    if (at === pageHeader) return Number(ours) === 0
  }
  return false
}
