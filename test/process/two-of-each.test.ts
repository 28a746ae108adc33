import { beforeAll, describe, expect, it } from 'vitest'
import { deadLetterQueues, queues } from '../../src/events/jobs.ts'
import { workerNames } from '../../src/workers/names.ts'
import { type Cluster, startCluster } from '../support/cluster.ts'
import { changesOf, logFaults, streamFaults } from '../support/ledger.ts'
import { createEmptyDatabase } from '../support/postgres.ts'
import { administrator, testEnv } from '../support/prepare.ts'
import { startProcess, waitFor } from '../support/processes.ts'
import { withClient } from '../support/server.ts'
import { type SmtpDouble, startSmtp } from '../support/smtp.ts'
import { connect } from '../support/socket.ts'
import { untilAdmitted } from '../support/wait.ts'

describe('two web processes and two of each worker', () => {
  let cluster: Cluster
  let smtp: SmtpDouble

  beforeAll(async () => {
    smtp = await startSmtp()
    const env = { ...smtp.env, REQUIRE_EMAIL_VERIFICATION: 'true', AUTH_APP_URL: 'https://app.example' }
    cluster = await startCluster({ env, web: 2, workers: [...workerNames, ...workerNames] })
    await cluster.web[0]!.call('POST', '/schemas', {
      collectionName: 'note',
      schema: { fields: { text: { type: 'String' } } },
    })
  })

  it('send each mail once, both at work', async () => {
    const { promise: released, resolve: release } = Promise.withResolvers<void>()
    // More than both may have in hand, so that neither is left without.
    const addresses = Array.from({ length: 42 }, (_, i) => `new${i}@mail.example`)
    smtp.answer(...addresses.map(() => ({ hold: released })))
    const registrations = addresses.map((email, i) =>
      untilAdmitted(() =>
        webOf(i).call(
          'POST',
          '/auth/register',
          { email, password: 'long enough', firstName: 'N', lastName: 'N' },
          null,
        ),
      ),
    )
    expect((await Promise.all(registrations)).map(({ status }) => status)).toEqual(addresses.map(() => 200))
    await waitFor(() => smtp.received.length === 2 * connectionsAtOnce)
    release()
    await waitFor(async () => {
      const [left] = await cluster.sql(
        `select count(*)::int as n from pgboss.job where name = 'mail' and state < 'completed'`,
      )
      return left.n === 0 && (await mailStates()).every((status) => status === 'sent')
    })
    expect(smtp.received.flatMap(({ recipients }) => recipients).sort()).toEqual(addresses.toSorted())
    expect(await mailStates()).toHaveLength(addresses.length)
  })

  it('deliver every change once to every subscriber, whichever process made it', async () => {
    const subscribers = await Promise.all([0, 0, 1, 1].map((i) => connect(webOf(i).address, cluster.token)))
    for (const subscriber of subscribers)
      expect(await subscriber.subscribe('note')).toMatchObject({ status: 'success' })
    const before = (await changesOf(cluster, 'note')).length
    await Promise.all(Array.from({ length: 8 }, (_, writer) => write(writer)))
    await webOf(0).call('POST', '/items/note', { text: 'the end' })
    for (const subscriber of subscribers) await subscriber.frame(({ data }) => data.text === 'the end')
    const committed = (await changesOf(cluster, 'note')).slice(before)
    expect(committed).toHaveLength(8 * 6 + 1)
    for (const { frames } of subscribers) expect(streamFaults(frames, committed)).toEqual([])
  })

  it('log and deliver changes made by hand', async () => {
    const subscribers = await Promise.all(cluster.web.map(({ address }) => connect(address, cluster.token)))
    for (const subscriber of subscribers) await subscriber.subscribe('note')
    const client = await cluster.connect()
    await client.query('begin')
    const { rows } = await client.query(`insert into note (text) values ('by hand') returning id`)
    await client.query(`update note set text = 'by hand again'`)
    await client.query(`delete from note where id = '${rows[0].id}'`)
    await client.query('commit')
    for (const subscriber of subscribers) {
      await subscriber.frame(({ action }) => action === 'delete')
      const ofRow = subscriber.frames.filter(({ data }) => data.id === rows[0].id)
      expect(ofRow.map(({ action, data }) => [action, data.text])).toEqual([
        ['create', 'by hand'],
        ['update', 'by hand again'],
        ['delete', 'by hand again'],
      ])
    }
    const logged = await cluster.sql(
      `select action, "userId" from "svc_AuditLog" where "entityId" = $1 order by position`,
      [rows[0].id],
    )
    expect(logged).toEqual(['create', 'update', 'delete'].map((action) => ({ action, userId: null })))
  })

  it('end a session everywhere when it ends at one of them, at that one at once', async () => {
    const { body } = await webOf(0).call('POST', '/auth/login', administrator, null)
    const check = async (i: number) => (await webOf(i).call('GET', '/auth/check', undefined, body.token)).status
    expect([await check(0), await check(1)]).toEqual([200, 200])
    const socket = await connect(webOf(1).address, body.token)
    await webOf(0).call('POST', '/auth/logout', undefined, body.token)
    expect(await check(0)).toBe(401)
    expect(await check(1)).toBe(401)
    await waitFor(() => !socket.socket.connected)
  })

  it('leave a log that tells how every row came to be', async () => {
    expect(await logFaults(await cluster.connect())).toEqual([])
  })

  const connectionsAtOnce = 5
  const webOf = (i: number) => cluster.web[i % 2]!

  async function mailStates(): Promise<string[]> {
    return (await cluster.sql('select status from "svc_EmailLog"')).map(({ status }) => status)
  }

  /** Six changes of a row, at both processes in turn; its deletion is one of them for every other writer. */
  async function write(writer: number): Promise<void> {
    const created = await webOf(writer).call('POST', '/items/note', { text: `${writer}` })
    const path = `/items/note/${created.body.data.id}`
    for (let i = 1; i < 5; i += 1) await webOf(writer + i).call('PATCH', path, { text: `${writer}/${i}` })
    if (writer % 2 === 0) await webOf(writer).call('DELETE', path)
    else await webOf(writer).call('PATCH', path, { text: `${writer}/last` })
  }
})

describe('setup in several processes at once', () => {
  let url: string

  it('on an empty database succeeds in all of them and leaves one of everything', async () => {
    ;({ url } = await createEmptyDatabase())
    expect(await setUp(3)).toEqual([{ email: administrator.email, password: null }])
    await withClient(url, async (client) => {
      const column = async (text: string) => (await client.query({ text, rowMode: 'array' })).rows.flat()
      expect(await column('select email from "svc_User"')).toEqual([administrator.email])
      expect(await column('select name from "svc_Role" order by 1')).toEqual(['administrator', 'public', 'user'])
      expect(await column('select count(*)::int from "svc_UserRole"')).toEqual([1])
      expect(await column('select count(*)::int from "svc_Settings"')).toEqual([1])
      expect(await column('select version from "svc_Migration" group by 1 having count(*) > 1')).toEqual([])
      expect(await column(`select pubname from pg_publication where pubname like 'svc%'`)).toEqual(['svc_realtime'])
      expect(await column('select name from pgboss.queue')).toEqual(
        expect.arrayContaining([...Object.keys(queues), ...deadLetterQueues]),
      )
      expect(await logFaults(client)).toEqual([])
    })
  })

  it('on that database again changes nothing', async () => {
    const position = async () =>
      (await withClient(url, (client) => client.query('select max(position) from "svc_AuditLog"'))).rows
    const before = await position()
    expect(await setUp(2)).toEqual([])
    expect(await position()).toEqual(before)
  })

  /** The administrators that were created. */
  async function setUp(times: number): Promise<unknown[]> {
    const setups = Array.from({ length: times }, () => startProcess('src/setup/main.ts', [], testEnv(url)))
    for (const { exited } of setups) expect(await exited).toEqual({ code: 0, signal: null })
    return setups.flatMap(({ lines }) => lines.flatMap(({ admin }) => admin ?? []))
  }
})
