import pino from 'pino'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { getXminHorizon } from '../../node_modules/pg-boss/dist/plans.js'
import { commit } from '../../src/events/commit.ts'
import { enqueue, queues } from '../../src/events/jobs.ts'
import { systemActor } from '../../src/events/types.ts'
import { openRuntime, type Runtime } from '../../src/process/runtime.ts'
import { type Handler, PermanentError, type QueueOptions, type QueueRun, runQueue } from '../../src/workers/loop.ts'
import { asSuperuser } from '../support/log.ts'
import { createDatabase } from '../support/postgres.ts'
import { testConfig } from '../support/prepare.ts'
import { withClient } from '../support/server.ts'
import { waitFor } from '../support/wait.ts'

const hour = 3_600_000
const [silent, meanwhile, unannounced, poison] = [1, 2, 3, 4].map((n) => `0198c0de-7a11-7cc1-9f3a-00000000000${n}`) as [
  string,
  string,
  string,
  string,
]

let runtime: Runtime
let url: string
const logged: { msg: string; level: number }[] = []
const runs: QueueRun[] = []

beforeAll(async () => {
  ;({ url } = await createDatabase())
  const log = pino({ level: 'warn' }, { write: (line: string) => logged.push(JSON.parse(line)) })
  runtime = await openRuntime({ config: testConfig(url), log, name: 'loop test', worker: false })
  await (await runtime.boss()).updateQueue('mail', { retryDelay: 0, retryBackoff: false })
})

afterEach(async () => {
  await Promise.all(runs.splice(0).map((run) => run.stop(5000)))
  await withClient(url, (client) => client.query('delete from pgboss.job'))
  logged.length = 0
})

afterAll(() => runtime.close())

it('has the queue not take the slot of realtime for what keeps vacuum from its tables', async () => {
  const { text, values } = getXminHorizon(new Date())
  const { rows } = await withClient(asSuperuser(url), async (client) => {
    await client.query(`select pg_create_logical_replication_slot('horizon_test', 'pgoutput', true)`)
    const [direct] = (await client.query(text, values)).rows
    expect(direct.slotsCatalog).not.toBeNull()
    await client.query(`begin isolation level repeatable read; select pg_current_xact_id()`)
    return (await runtime.boss()).getDb().executeSql(text, values)
  })
  expect(rows).toEqual([expect.objectContaining({ slotsCatalog: null, backends: expect.anything() })])
})

describe('runQueue', () => {
  it('drains a backlog without waiting for a poll, and never runs more at once than it may', async () => {
    await insert(40)
    const done = new Set<string>()
    let now = 0
    let most = 0
    serve({
      concurrency: 4,
      pollMs: hour,
      handler: async (_deps, { emailLogId }) => {
        now += 1
        most = Math.max(most, now)
        await new Promise(setImmediate)
        now -= 1
        done.add(emailLogId)
      },
    })
    await waitFor(() => done.size === 40)
    expect(most).toBe(4)
    await waitFor(async () => (await states()).every((state) => state === 'completed'))
  })

  it('says of a running job that it runs, and of no other one', async () => {
    await insert(2)
    await withClient(url, (client) => client.query(`update pgboss.job set heartbeat_on = now()`))
    const { promise: released, resolve: release } = Promise.withResolvers<void>()
    const beats = () =>
      withClient(url, async (client) => {
        const { rows } = await client.query('select state, heartbeat_on as at from pgboss.job order by state desc')
        return rows as { state: string; at: Date }[]
      })
    serve({ concurrency: 1, pollMs: hour, heartbeatMs: 20, handler: () => released })
    const [first] = await waitFor(async () => {
      const rows = await beats()
      return rows[0]?.state === 'active' && rows
    })
    const [active, waiting] = await waitFor(async () => {
      const rows = await beats()
      return rows[0]!.at > first!.at && rows
    })
    expect([active!.state, waiting!.state]).toEqual(['active', 'created'])
    expect(active!.at.getTime()).toBeGreaterThan(waiting!.at.getTime())
    release()
  })

  it('is woken by the transaction that enqueues', async () => {
    const done: string[] = []
    serve({ pollMs: hour, handler: async (_deps, { emailLogId }) => void done.push(emailLogId) })
    for (const n of [1, 2, 3]) {
      await insert(1)
      await waitFor(() => done.length === n)
    }
  })

  it('finds by polling what nothing announced', async () => {
    const done: string[] = []
    serve({ pollMs: 20, handler: async (_deps, { emailLogId }) => void done.push(emailLogId) })
    await (await runtime.boss()).insert('mail', [{ data: { emailLogId: silent } }])
    await waitFor(() => done.includes(silent))
  })

  it('goes on by polling while nothing can be announced, and by wakeups when they are back', async () => {
    const done: string[] = []
    const warned = () => logged.some(({ msg }) => msg === 'the notification connection was lost')
    serve({ pollMs: 20, handler: async (_deps, { emailLogId }) => void done.push(emailLogId) })
    await withClient(url, (client) =>
      client.query(`select pg_terminate_backend(pid) from pg_stat_activity
        where application_name = 'daybook listen' and datname = current_database()`),
    )
    await waitFor(warned)
    expect(runtime.listener.isLive()).toBe(false)
    await (await runtime.boss()).insert('mail', [{ data: { emailLogId: meanwhile } }])
    await waitFor(() => done.includes(meanwhile))
    await waitFor(() => runtime.listener.isLive())
  })

  it('looks at once when wakeups were gone for a while', async () => {
    const done: string[] = []
    serve({ pollMs: hour, handler: async (_deps, { emailLogId }) => void done.push(emailLogId) })
    await insert(1)
    await waitFor(() => done.length === 1)
    // Nobody announces it: only the reconnection can be what finds it.
    await (await runtime.boss()).insert('mail', [{ data: { emailLogId: unannounced } }])
    await withClient(url, (client) =>
      client.query(`select pg_terminate_backend(pid) from pg_stat_activity
        where application_name = 'daybook listen' and datname = current_database()`),
    )
    await waitFor(() => done.includes(unannounced))
  })

  it('tells the handler which attempt it is, and retries what was thrown', async () => {
    const attempts: number[] = []
    serve({
      handler: async (_deps, _data, { retryCount, retryLimit }) => {
        attempts.push(retryCount)
        expect(retryLimit).toBe(queues.mail.retryLimit)
        if (retryCount < 2) throw new Error('not yet')
      },
    })
    await insert(1)
    await waitFor(async () => (await states()).includes('completed'))
    expect(attempts).toEqual([0, 1, 2])
  })

  it('keeps the reason of the last failure and moves the job to the dead letters', async () => {
    await (await runtime.boss()).insert('mail', [{ data: { emailLogId: poison }, retryLimit: 1 }])
    serve({ handler: async () => Promise.reject(new Error('broken for ever')) })
    const dead = await waitFor(
      async () => (await (await runtime.boss()).fetch('mail-dead', { includeMetadata: true }))[0],
    )
    expect(dead).toMatchObject({ data: { emailLogId: poison }, sourceName: 'mail', sourceRetryCount: 1 })
    expect(dead?.sourceOutput).toMatchObject({ message: 'broken for ever' })
  })

  it('gives up a job whose data do not fit its queue, without a handler or a place', async () => {
    const handled: unknown[] = []
    const entered: string[] = []
    for (const data of [{}, { emailLogId: 7 }, { emailLogId: "x'" }, null])
      await (await runtime.boss()).insert('mail', [{ data: data as never, retryLimit: 5 }])
    serve({
      handler: async (_deps, data) => void handled.push(data),
      admission: { full: () => [], room: () => 5, enter: (id) => entered.push(id) > 0 },
    })
    await waitFor(async () => (await states()).every((state) => state !== 'created' && state !== 'active'))
    expect((await jobs()).map(({ output, retryCount }) => ({ output, retryCount }))).toEqual(
      Array(4).fill({ output: expect.objectContaining({ message: 'the job names no mail' }), retryCount: 0 }),
    )
    expect([handled, entered]).toEqual([[], []])
  })

  it('ends a job at once on a PermanentError', async () => {
    let attempts = 0
    serve({
      handler: async () => {
        attempts += 1
        throw new PermanentError('no use')
      },
    })
    await insert(1)
    const job = await waitFor(async () => (await jobs()).find(({ state }) => state === 'completed'))
    expect(job?.output).toEqual({ message: 'no use', permanent: true })
    expect(attempts).toBe(1)
  })

  const outcomes: Record<string, () => void> = {
    success: () => undefined,
    failure: () => {
      throw new Error('too late')
    },
    'failure for good': () => {
      throw new PermanentError('too late')
    },
  }

  it.each(Object.keys(outcomes))(
    'does not end an attempt that belongs to somebody else by now: %s',
    async (outcome) => {
      const { promise: released, resolve: release } = Promise.withResolvers<void>()
      const { promise: taken, resolve: take } = Promise.withResolvers<string>()
      const run = serve({
        concurrency: 1,
        handler: async (_deps, _data, { id }) => {
          take(id)
          await released
          outcomes[outcome]!()
        },
      })
      await insert(1)
      const id = await taken
      await (await runtime.boss()).fail('mail', id, { message: 'its worker is gone' })
      const second = await waitFor(async () => (await (await runtime.boss()).fetch('mail'))[0])
      expect(second).toMatchObject({ id, retryCount: 1 })
      release()
      await run.stop(5000)
      expect(await states()).toEqual(['active'])
    },
  )

  it('takes no sign of life from an attempt that is over', async () => {
    await insert(1)
    const { id } = (await (await runtime.boss()).fetch('mail'))[0]!
    await (await runtime.boss()).fail('mail', id, { message: 'its worker is gone' })
    const second = await waitFor(async () => (await (await runtime.boss()).fetch('mail'))[0])
    expect(second).toMatchObject({ id, retryCount: 1 })
    const longAgo = new Date('2000-01-01T00:00:00Z')
    await withClient(url, (client) => client.query('update pgboss.job set heartbeat_on = $1', [longAgo]))
    const heartbeat = async () => (await withClient(url, (c) => c.query('select heartbeat_on from pgboss.job'))).rows[0]
    await (await runtime.boss()).touch('mail', [{ id, retryCount: 0 }])
    expect(await heartbeat()).toEqual({ heartbeat_on: longAgo })
    await (await runtime.boss()).touch('mail', [{ id, retryCount: 1 }])
    expect(await heartbeat()).not.toEqual({ heartbeat_on: longAgo })
  })

  it('aborts an attempt whose time is over', async () => {
    await (await runtime.boss()).insert('mail', [{ data: { emailLogId: runtime.newId() }, expireInSeconds: 1 }])
    const reasons: string[] = []
    serve({ handler: async (_deps, _data, { signal }) => void reasons.push(await aborted(signal)) })
    await waitFor(() => reasons.length > 0)
    expect(reasons).toEqual(['the job took longer than 1 s'])
  })

  it('goes on after the database failed it', async () => {
    const done: string[] = []
    await withClient(url, (client) => client.query('alter table pgboss.job_common rename to gone'))
    serve({ pollMs: 20, handler: async (_deps, { emailLogId }) => void done.push(emailLogId) })
    await waitFor(() => logged.some(({ msg }) => msg === 'jobs could not be fetched'))
    await withClient(url, (client) => client.query('alter table pgboss.gone rename to job_common'))
    await insert(1)
    await waitFor(() => done.length === 1)
  })

  it('writes an outcome when the database takes it again', async () => {
    const { promise: released, resolve: release } = Promise.withResolvers<void>()
    const started: string[] = []
    serve({
      handler: (_deps, { emailLogId }) => {
        started.push(emailLogId)
        return released
      },
    })
    await insert(1)
    await waitFor(() => started.length === 1)
    await withClient(url, (client) => client.query('alter table pgboss.job_common rename to gone'))
    release()
    await waitFor(() => logged.some(({ msg }) => msg === 'outcomes of jobs could not be written yet'))
    await withClient(url, (client) => client.query('alter table pgboss.gone rename to job_common'))
    await waitFor(async () => (await states()).includes('completed'))
    expect(started).toHaveLength(1)
  })
})

describe('stop', () => {
  it('waits for the running job and takes no other', async () => {
    const { promise: released, resolve: release } = Promise.withResolvers<void>()
    const started: string[] = []
    const run = serve({
      concurrency: 1,
      handler: (_deps, { emailLogId }) => {
        started.push(emailLogId)
        return released
      },
    })
    await insert(2)
    await waitFor(() => started.length === 1)
    const stopped = run.stop(hour)
    release()
    await stopped
    expect(started).toHaveLength(1)
    expect((await states()).toSorted()).toEqual(['completed', 'created'])
  })

  it('leaves jobs of groups without a place in the queue, and puts back what it has fetched of them', async () => {
    await insert(3, 'full')
    await insert(3, 'free')
    const full = new Set(['unknown yet'])
    const asked: string[] = []
    const done: string[] = []
    serve({
      pollMs: 20,
      handler: async (_deps, _data, { group, retryCount }) => void done.push(`${group} ${retryCount}`),
      admission: {
        full: () => [...full],
        room: () => 2,
        enter: (_id, group) => {
          asked.push(group!)
          if (full.has('nothing') || group === 'free') return true
          full.add(group!)
          return false
        },
      },
    })
    await waitFor(() => done.length === 3)
    expect(done).toEqual(['free 0', 'free 0', 'free 0'])
    // Those that were fetched before their group was known to be full; it was not asked for again.
    expect(asked.filter((group) => group === 'full').length).toBeLessThanOrEqual(2)
    const waiting = (await jobs()).filter(({ groupId }) => groupId === 'full')
    expect(waiting.map(({ state, retryCount, startedOn }) => ({ state, retryCount, startedOn }))).toEqual(
      Array.from({ length: 3 }, () => ({ state: 'created', retryCount: 0, startedOn: null })),
    )
    full.clear()
    full.add('nothing')
    await waitFor(() => done.length === 6)
    expect(done.slice(3)).toEqual(['full 0', 'full 0', 'full 0'])
  })

  it('aborts what does not end in time and hands it back', async () => {
    const running = Promise.withResolvers<void>()
    const run = serve({
      handler: async (_deps, _data, { signal }) => {
        running.resolve()
        throw new Error(await aborted(signal))
      },
    })
    await insert(1)
    await running.promise
    await run.stop(0)
    // A fetch that was under way may have brought it once more; then it went back as it was fetched.
    expect((await jobs()).map(({ state, output }) => ({ state, output }))).toEqual([
      { state: expect.stringMatching(/^(retry|created)$/), output: { message: 'the worker is stopping' } },
    ])
  })
})

function serve(options: Partial<QueueOptions<'mail'>> & { handler: Handler<'mail'> }): QueueRun {
  const run = runQueue(runtime, { queue: 'mail', concurrency: 5, pollMs: 50, ...options })
  runs.push(run)
  return run
}

function insert(count: number, group?: string): Promise<unknown> {
  const list = Array.from({ length: count }, () => ({
    queue: 'mail' as const,
    data: { emailLogId: runtime.newId() },
    ...(group !== undefined && { group }),
  }))
  return commit(runtime, systemActor, async (tx) => ({ result: await enqueue(runtime, tx, list) }))
}

async function jobs() {
  return (await runtime.boss()).findJobs('mail')
}

async function states(): Promise<string[]> {
  return (await jobs()).map(({ state }) => state)
}

function aborted(signal: AbortSignal): Promise<string> {
  return new Promise((resolve) => signal.addEventListener('abort', () => resolve((signal.reason as Error).message)))
}
