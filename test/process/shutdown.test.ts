import { once } from 'node:events'
import { Agent, get, type IncomingMessage, request } from 'node:http'
import { connect as openSocket } from 'node:net'
import { text } from 'node:stream/consumers'
import { setTimeout as delay } from 'node:timers/promises'
import type pg from 'pg'
import { beforeAll, describe, expect, it } from 'vitest'
import { type Cluster, type Member, startCluster, type Web } from '../support/cluster.ts'
import { chain, node } from '../support/flows.ts'
import { changesOf, follow, type Ledger, logFaults, openLedger, report, streamFaults } from '../support/ledger.ts'
import { waitFor } from '../support/processes.ts'
import { startReceiver } from '../support/receiver.ts'
import { type SmtpDouble, startSmtp } from '../support/smtp.ts'
import { connect } from '../support/socket.ts'

const keepAlive = new Agent({ keepAlive: true })
const ended = { code: 0, signal: null }

describe('a web process that is asked to stop', () => {
  let cluster: Cluster
  let web: Web

  beforeAll(async () => {
    cluster = await startCluster({ web: 2, env: { SHUTDOWN_GRACE: '1000' } })
    web = cluster.web[0]!
    await web.call('POST', '/schemas', {
      collectionName: 'note',
      schema: { fields: { text: { type: 'Text' } } },
    })
  })

  it('takes no new connection, answers what it has accepted, ends its sockets and then itself', async () => {
    const socket = await connect(web.address, cluster.token)
    const { answer, release } = await requestThatWaits()
    const exit = web.kill('SIGTERM')
    await refusesConnections(web)
    await waitFor(() => !socket.socket.connected)
    await release()
    expect((await answer).status).toBe(201)
    expect(await exit).toEqual(ended)
    await web.restart()
  })

  it.each([
    ['in one piece', 'limit=1000'],
    ['as a stream', 'limit=-1'],
  ])('sends a long answer %s to its end, however slowly its client reads', async (_how, query) => {
    await cluster.sql(`truncate note; insert into note (text) select repeat('x', 20000) from generate_series(1, 1000)`)
    const headers = { authorization: `Bearer ${cluster.token}` }
    const [response] = await once(get(`${web.address}/items/note?${query}`, { headers, agent: keepAlive }), 'response')
    const exit = web.kill('SIGTERM')
    await refusesConnections(web)
    const body = JSON.parse(await text(response))
    expect([body.data.length, body.totalCount]).toEqual([1000, 1000])
    expect(await exit).toEqual(ended)
    await cluster.sql('truncate note')
    await web.restart()
  })

  it('ends at once on a second signal', async () => {
    const { answer, release } = await requestThatWaits()
    const exit = web.kill('SIGTERM')
    await refusesConnections(web)
    void web.kill('SIGTERM')
    expect(await exit).toEqual({ code: 1, signal: null })
    await expect(answer).rejects.toThrow()
    await release()
    await web.restart()
  })

  it('drops nothing it has accepted when all are restarted in turn under load', async () => {
    const ledger = openLedger()
    const followers = await Promise.all(cluster.web.map((one) => follow(one, cluster.token, 'note')))
    const seen = (await changesOf(cluster, 'note')).length
    await restartInTurn(cluster.web, { begun: ledger.begun, each: 40 }, (pace) =>
      Promise.all(Array.from({ length: 6 }, (_, writer) => write(ledger, writer, pace))),
    )
    report('rolling restart', { notes: ledger })
    const rows = (await cluster.sql(`select text from note where text <> 'waits'`)).map((row) => row.text)
    expect(ledger.faults({ row: rows })).toEqual([])
    expect(ledger.keys('unknown').filter((key) => rows.includes(key))).toEqual([])
    expect(await logFaults(await cluster.connect())).toEqual([])
    const committed = (await changesOf(cluster, 'note')).slice(seen)
    for (const follower of followers) {
      await follower.caughtUp(committed)
      expect(streamFaults(follower.frames, committed)).toEqual([])
      expect(follower.interruptions.resyncs).toBe(0)
    }
  })

  it('fails no request of clients that keep their connections when all are restarted in turn, twice', async () => {
    await cluster.sql('truncate note')
    const clients = Array.from({ length: 16 }, (_, at) => openKeeper(at))
    const failures: string[] = []
    let begun = 0
    let written = 0
    const ask = async (client: (typeof clients)[number], { isOver, leisure }: Pace) => {
      while (!isOver()) {
        begun += 1
        const writes = begun % 5 === 0
        const status = await client.send(writes).catch((error: Error) => String(error))
        if (status === 201) written += 1
        else if (status !== 200) failures.push(String(status))
        await leisure()
      }
    }
    const twice = [...cluster.web, ...cluster.web]
    await restartInTurn(twice, { begun: () => begun, each: 700 }, (pace) =>
      Promise.all(clients.map((client) => ask(client, pace))),
    )
    for (const client of clients) client.close()
    expect(failures).toEqual([])
    expect(begun).toBeGreaterThanOrEqual(3500)
    expect(await cluster.sql(`select count(*)::int as n from note where text = 'kept'`)).toEqual([{ n: written }])
  })

  it('answers what an idle client sends after the signal, and says that it is the last answer', async () => {
    const client = openKeeper(0)
    expect(await client.send(false)).toBe(200)
    const exit = web.kill('SIGTERM')
    await refusesConnections(web)
    const late = await client.sendHere('GET', '/ready')
    expect([late.statusCode, late.headers.connection]).toEqual([503, 'close'])
    expect(JSON.parse(await text(late))).toEqual({ status: 'draining' })
    expect(await exit).toEqual(ended)
    client.close()
    await web.restart()
  })

  /** A client with one connection, which goes to the other process when a connection is refused. */
  function openKeeper(at: number) {
    const agent = new Agent({ keepAlive: true, maxSockets: 1 })
    let place = at
    const sendHere = async (method: string, path: string, body?: string): Promise<IncomingMessage> => {
      const headers = { authorization: `Bearer ${cluster.token}`, 'content-type': 'application/json' }
      const sent = request(`${cluster.web[place % 2]!.address}${path}`, { method, headers, agent }).end(body)
      const [response] = await once(sent, 'response')
      return response
    }
    const send = async (writes: boolean): Promise<number> => {
      for (;;) {
        try {
          const response = writes
            ? await sendHere('POST', '/items/note', '{"text":"kept"}')
            : await sendHere('GET', '/health')
          await text(response)
          return response.statusCode!
        } catch (error) {
          if ((error as NodeJS.ErrnoException).code !== 'ECONNREFUSED') throw error
          place += 1
        }
      }
    }
    return { send, sendHere, close: () => agent.destroy() }
  }

  /** A write that has been accepted and waits for a lock of ours. */
  async function requestThatWaits(): Promise<{ answer: Promise<{ status: number }>; release: () => Promise<unknown> }> {
    const blocker: pg.Client = await cluster.connect()
    await blocker.query('begin; lock table note in share mode')
    const answer = web.call('POST', '/items/note', { text: 'waits' })
    answer.catch(() => undefined)
    const waiting = `select from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()`
    await waitFor(async () => (await cluster.sql(waiting)).length === 1, { what: 'the write to wait' })
    return { answer, release: () => blocker.query('commit') }
  }

  /** Goes to the other process when one has gone, as behind a load balancer. */
  async function write(ledger: Ledger, writer: number, { isOver, leisure }: Pace): Promise<void> {
    let at = writer
    for (let i = 0; !isOver(); i += 1) {
      const key = `${writer}-${i}`
      const one = cluster.web[at % 2]!
      const outcome = await ledger.write(key, () => one.call('POST', '/items/note', { text: key }))
      if (outcome === 'unknown') at += 1
      await leisure()
    }
  }
})

type Pace = { readonly isOver: () => boolean; readonly leisure: () => Promise<void> }

/**
 * Restarts processes in turn, each after that many more requests, and has as many made afterwards, while `work` makes them
 * without a pause. It takes its time only while one starts, which is not what is tried and would take three times as long.
 */
async function restartInTurn(
  members: readonly Member[],
  requests: { readonly begun: () => number; readonly each: number },
  work: (pace: Pace) => Promise<unknown>,
): Promise<void> {
  let [isOver, isStarting] = [false, false]
  const more = () => {
    const limit = requests.begun() + requests.each
    return waitFor(() => requests.begun() >= limit)
  }
  const working = work({ isOver: () => isOver, leisure: async () => (isStarting ? delay(20) : undefined) })
  for (const one of members) {
    await more()
    expect(await one.kill('SIGTERM')).toEqual(ended)
    isStarting = true
    await one.restart()
    isStarting = false
  }
  await more()
  isOver = true
  await working
}

describe('workers that are asked to stop', () => {
  it('hand back what does not end in time, and the next one sends the same message', async () => {
    const smtp: SmtpDouble = await startSmtp()
    const env = {
      REQUIRE_EMAIL_VERIFICATION: 'true',
      AUTH_APP_URL: 'https://app.example',
      TASK_SHUTDOWN_WAIT_TIME: '1',
    }
    const cluster = await startCluster({
      env: { ...smtp.env, ...env },
      workers: ['mail', 'log-cleanup', 'cache-invalidation'],
    })
    const [worker, ...idle] = cluster.workers as [Member, ...Member[]]
    await cluster.sql(`update pgboss.queue set retry_delay = 0, retry_backoff = false where name = 'mail'`)
    smtp.answer('hang')
    const person = { email: 'late@mail.example', password: 'long enough', firstName: 'L', lastName: 'L' }
    expect((await cluster.web[0]!.call('POST', '/auth/register', person, null)).status).toBe(200)
    await waitFor(() => smtp.received.length === 1)
    const exits = await Promise.all([worker, ...idle].map((one) => one.kill('SIGTERM')))
    expect(exits).toEqual([ended, ended, ended])
    const [job] = await cluster.sql(`select state from pgboss.job where name = 'mail'`)
    expect(job.state).toBe('retry')
    await worker.restart()
    await waitFor(() => smtp.accepted.length === 1)
    expect(smtp.received.map(({ messageId }) => messageId)).toEqual(Array(2).fill(smtp.accepted[0]!.messageId))
  })

  it('wait no longer for receivers that are silent, and give back what they were to get', async () => {
    const receiver = await startReceiver()
    receiver.answer = () => undefined
    const env = { SSRF_ALLOW_PRIVATE_URL_FETCH: 'true', TASK_SHUTDOWN_WAIT_TIME: '1' }
    const cluster = await startCluster({ env, workers: ['webhooks', 'workflows'] })
    const [web] = cluster.web
    const [webhooks, workflows] = cluster.workers as [Member, Member]
    const hook = await web!.call('POST', '/webhooks', { name: 'w', url: receiver.url, collections: ['svc_Template'] })
    const call = node('call', 'http', { url: receiver.url, method: 'POST', timeout: 120_000 })
    const flow = { id: 'flow', name: 'Flow', status: 'active', flow_data: chain(call) }
    expect((await web!.call('POST', '/workflows', flow)).status).toBe(201)
    expect((await web!.call('POST', '/workflows/flow/execute', {})).status).toBe(200)
    expect((await web!.call('POST', `/webhooks/${hook.body.data.id}/test`)).status).toBe(202)
    await waitFor(() => receiver.received.length === 2)
    expect(await Promise.all([webhooks, workflows].map((one) => one.kill('SIGTERM')))).toEqual([ended, ended])
    const delivery = `select status, attempts, "claimToken" as claim from "svc_WebhookDelivery"`
    expect(await cluster.sql(delivery)).toEqual([{ status: 'pending', attempts: 0, claim: null }])
    receiver.answer = (_request, response) => response.writeHead(204).end()
    await webhooks.restart()
    await waitFor(() => receiver.accepted.length === 1)
    const ids = receiver.received.flatMap(({ id }) => (id === '' ? [] : [id]))
    expect(ids).toEqual(Array(2).fill(receiver.accepted[0]!.id))
    await receiver.close()
  })
})

async function refusesConnections({ address }: Web): Promise<void> {
  const { hostname, port } = new URL(address)
  await waitFor(
    async () => {
      const socket = openSocket(Number(port), hostname)
      const refused = await once(socket, 'connect').then(
        () => false,
        () => true,
      )
      socket.destroy()
      return refused
    },
    { what: 'connections to be refused' },
  )
}
