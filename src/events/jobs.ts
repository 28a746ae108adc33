import type { PgBoss, Queue } from 'pg-boss'
import type { Logger } from 'pino'
import type { Static, TSchema } from 'typebox'
import { openFailures } from '../adapters/failures.ts'
import { fits, problemsOf, Type } from '../adapters/typebox.ts'
import { ConfigError } from '../config/config.ts'
import { isPassing } from '../db/errors.ts'
import { type Reader, rawQuery, sql, type Tx } from '../db/sql.ts'
import { onFirstUse, openByUse } from '../language/once.ts'
import { type Actor, type Cause, causedActor, causedBy, systemActor } from './actor.ts'

const pgBoss = onFirstUse<typeof import('pg-boss')>('pg-boss')
const pgBossPackage = onFirstUse<{ readonly pgboss: { readonly schema: number } }>('pg-boss/package.json')

/** The job queue. Where jobs are only inserted, pg-boss is loaded and started by the first. */
export type Jobs = { readonly boss: () => Promise<PgBoss> }

const NoData = Type.Object({})

/** Every queue and what its jobs carry: ids only, never a secret, so a job can be shown and replayed. */
const jobShapes = {
  /** Sends one mail that was accepted. */
  mail: Type.Object({ emailLogId: Type.String({ format: 'uuid' }) }, { refusal: 'the job names no mail' }),
  /** Sends mails whose job got lost, or that a worker has left behind. */
  'mail-sweep': NoData,
  /** Makes the next partitions of the log. */
  'log-partitions': NoData,
  /** Deletes sessions that have ended. */
  'session-cleanup': NoData,
  /** Deletes events that are older than the log is kept. */
  'audit-log-cleanup': NoData,
  /** Deletes records of mails that are older than these are kept. */
  'email-log-cleanup': NoData,
  /** Deletes what has expired: codes, challenges, answers to repeated requests. */
  'expired-cleanup': NoData,
  /** Takes tasks back from processes that no longer say that they are alive. */
  'task-recovery': NoData,
  /** Makes a backup. */
  backup: NoData,
  /** Tells administrators that the last backup is old. */
  'backup-watch': NoData,
  /** Removes content that no row of svc_File names any more. */
  'file-removal': NoData,
  /** Removes kept answers about a table; `xid` is the first of the transactions that changed it. */
  'cache-invalidation': Type.Object({ table: Type.String(), xid: Type.String({ pattern: '^\\d+$' }) }),
} as const satisfies Record<string, TSchema>

export type QueueName = keyof typeof jobShapes
export type JobData = { [Name in QueueName]: Static<(typeof jobShapes)[Name]> }

/**
 * Why a job's data are none of its queue; undefined where they are. Nobody of ours enqueues such a job, and no retry
 * would help it. Jobs without data, such as those of schedules, count as empty ones.
 */
export function misfitOf(queue: QueueName, data: unknown): string | undefined {
  const shape: TSchema & { readonly refusal?: string } = jobShapes[queue]
  const given = data ?? {}
  if (fits(shape, given)) return undefined
  const [problem] = problemsOf(shape, given)
  return shape.refusal ?? `the job's data are none of the queue ${queue}: ${problem?.instancePath} ${problem?.message}`
}
export type Job = {
  [Name in QueueName]: {
    readonly queue: Name
    readonly data: JobData[Name]
    readonly startAfterSeconds?: number
    /** Jobs of one group cannot take all places of a worker that shares them among groups. */
    readonly group?: string
  }
}[QueueName]

const StoredCause = Type.Object({
  request: Type.String({ format: 'uuid' }),
  depth: Type.Integer({ minimum: 1 }),
  by: Type.Union(causedBy.map((by) => Type.Literal(by))),
})

/**
 * The actor of a job: the platform, for the request that led to the job. To the log, the changes of a job are a request
 * of their own, with that one as their cause. Jobs of schedules have none.
 */
export function actorOfJob(data: unknown): Actor {
  const { cause } = (data ?? {}) as { cause?: unknown }
  return causedActor(systemActor, fits(StoredCause, cause) ? (cause as Cause) : undefined)
}

/** The group of jobs that belong to no tenant; a tenant's have its id. */
export const installationGroup = 'installation'

/** The group of mails of a tenant, and of one sender where they name it: the mails of a group have one server. */
export const mailGroup = (tenantId = installationGroup, from?: string): string =>
  from === undefined ? tenantId : `${tenantId} ${from}`

/** The tenant, and the sender that is named, of a group of mails. */
export function readMailGroup(group: string): {
  readonly tenantId: string | undefined
  readonly from: string | undefined
} {
  const [, tenantId = group, from] = /^(\S+) (.+)$/.exec(group) ?? []
  return { tenantId: tenantId === installationGroup ? undefined : tenantId, from }
}

const day = 86_400

// Goes on where it has stopped, so an attempt may be cut short: by a busy month of the log, or with its worker, which is
// noticed after a minute.
const cleanup: Omit<Queue, 'name'> = {
  retryLimit: 10,
  retryDelay: 60,
  retryBackoff: true,
  retryDelayMax: 3600,
  expireInSeconds: 3600,
  heartbeatSeconds: 60,
  retentionSeconds: 7 * day,
}

/**
 * Settings of every queue. pg-boss retries twice at once and forgets waiting jobs after two weeks unless told
 * otherwise; ours back off for hours and keep waiting jobs for a quarter.
 */
export const queues: Readonly<Record<QueueName, Omit<Queue, 'name'>>> = {
  // From 5 s to half an hour between attempts, about a day in all: a mail server may be away that long.
  mail: {
    retryLimit: 52,
    retryDelay: 5,
    retryBackoff: true,
    retryDelayMax: 1800,
    expireInSeconds: 300,
    heartbeatSeconds: 30,
    retentionSeconds: 90 * day,
    deleteAfterSeconds: 7 * day,
    deadLetter: 'mail-dead',
  },
  'mail-sweep': {
    retryLimit: 3,
    retryDelay: 30,
    retryBackoff: true,
    expireInSeconds: 300,
    retentionSeconds: 7 * day,
  },
  'log-partitions': {
    retryLimit: 5,
    retryDelay: 30,
    retryBackoff: true,
    expireInSeconds: 600,
    retentionSeconds: 7 * day,
  },
  'session-cleanup': {
    retryLimit: 3,
    retryDelay: 30,
    retryBackoff: true,
    expireInSeconds: 600,
    heartbeatSeconds: 60,
    retentionSeconds: day,
  },
  'audit-log-cleanup': cleanup,
  'email-log-cleanup': cleanup,
  'expired-cleanup': cleanup,
  // The next one comes within a minute.
  'task-recovery': { retryLimit: 0, expireInSeconds: 60, retentionSeconds: day, deleteAfterSeconds: day },
  // As long as pg-boss lets a job last; noticed after a minute where its worker is gone.
  backup: {
    retryLimit: 2,
    retryDelay: 600,
    expireInSeconds: day - 60,
    heartbeatSeconds: 60,
    retentionSeconds: 2 * day,
  },
  'backup-watch': { retryLimit: 1, retryDelay: 60, expireInSeconds: 300, retentionSeconds: day },
  // The next one comes within a minute, and what is due stays due.
  'file-removal': {
    retryLimit: 3,
    retryDelay: 5,
    expireInSeconds: 600,
    heartbeatSeconds: 60,
    retentionSeconds: day,
    deleteAfterSeconds: 3600,
  },
  // A stale answer that is not deleted in time ends by its own time limit.
  'cache-invalidation': {
    retryLimit: 5,
    retryDelay: 2,
    retryBackoff: true,
    expireInSeconds: 60,
    retentionSeconds: day,
    deleteAfterSeconds: 3600,
  },
}

/** Queues that hold jobs whose retries ran out, until an operator looks at them. */
export const deadLetterQueues = [
  ...new Set(Object.values(queues).flatMap((queue) => (queue.deadLetter === undefined ? [] : [queue.deadLetter]))),
]

export const bossSchema = 'pgboss'

/** The connection on which pg-boss runs its statements. */
type Executor = { executeSql(text: string, values?: unknown[]): Promise<{ rows: unknown[] }> }

type BossOptions = {
  /** Our pool: pg-boss opens no connection of its own. */
  db: Executor
  log: Logger
  /** Maintenance and schedules: true in workers, false where jobs are only inserted. */
  supervise: boolean
  /** Creates or upgrades pg-boss's tables: only in setup. */
  install?: boolean
}

/** pg-boss on our pool, once it is asked for; again after a start that failed. */
export function openJobs(options: BossOptions): Jobs & { close(): Promise<void> } {
  const { opened, close } = openByUse(
    () => startBoss(options),
    (boss) => boss.stop({ graceful: false, close: false }),
    'the job queue has been shut down',
  )
  return { boss: opened, close }
}

/** Starts pg-boss on our pool. `install` is for setup only; elsewhere missing tables are an error. */
export async function startBoss({ db, log, supervise, install = false }: BossOptions): Promise<PgBoss> {
  const boss = new (pgBoss().PgBoss)({
    db: withoutCatalogHorizon(db) as never,
    schema: bossSchema,
    supervise,
    schedule: supervise,
    migrate: install,
    createSchema: install,
    monitorIntervalSeconds: 60,
  })
  const failures = openFailures({ log }, 'the job queue could not be looked after yet')
  // What it does by itself it does again, so while the database is away its errors are no faults.
  boss.on('error', (given) => {
    const error = errorFrom(given)
    if (isPassing(error)) failures.failed(error)
    else log.error({ err: error }, 'job queue error')
  })
  boss.on('warning', (warning) => log.warn({ warning }, 'job queue warning'))
  try {
    return await boss.start()
  } catch (error) {
    // A start that fails half-way leaves timers behind, which would keep the process alive.
    await boss.stop({ graceful: false, close: false })
    throw error
  }
}

/** Of its own queues pg-boss gives errors as objects that have what an error has, and are none. */
function errorFrom(given: Error): Error {
  return given instanceof Error ? given : Object.assign(new Error(), given as object)
}

/**
 * pg-boss asks what keeps vacuum from its tables, and warns of the oldest of what it finds. A logical replication slot, as the
 * temporary one of realtime, always holds `catalog_xmin`, which vacuum heeds in system catalogs alone, not in these tables. Its
 * warning would be false, and would be the only one: so this holder is taken out of the answer, and the true ones stay.
 */
function withoutCatalogHorizon({ executeSql }: Executor): Executor {
  return {
    executeSql: async (text, values) => {
      const result = await executeSql(text, values)
      if (!text.includes(`as "${catalogHorizon}"`)) return result
      return { ...result, rows: result.rows.map((row) => ({ ...(row as object), [catalogHorizon]: null })) }
    },
  }
}

const catalogHorizon = 'slotsCatalog'

/** Throws what to do where the tables of the queue are not those that this pg-boss knows, as its start would. */
export async function checkJobTables(db: Reader): Promise<void> {
  const { version } = await db.one<{ version: number }>(
    sql`select version from ${sql.identifier([bossSchema, 'version'])}`,
  )
  const needed = pgBossPackage().pgboss.schema
  if (version === needed) return
  const problem = `the tables of the job queue have version ${version}, and this program needs ${needed}`
  throw new ConfigError(`DATABASE_URL: ${problem}: run npx daybook setup`)
}

/** Creates missing queues and brings the settings of existing ones up to date. */
export async function createQueues(boss: PgBoss): Promise<void> {
  for (const name of deadLetterQueues) await ensureQueue(boss, name, { retentionSeconds: 365 * day })
  for (const [name, options] of Object.entries(queues)) await ensureQueue(boss, name, options)
}

async function ensureQueue(boss: PgBoss, name: string, options: Omit<Queue, 'name'>): Promise<void> {
  if ((await boss.getQueue(name)) === null) await boss.createQueue(name, options)
  else await boss.updateQueue(name, options)
}

/**
 * Inserts jobs in the caller's transaction and wakes the workers once per queue: no job exists for a rolled-back
 * transaction. Each job keeps its origin, so that its worker continues the trace and names the cause. Throws when a
 * queue is missing (pg-boss itself would return null for some refusals).
 */
export async function enqueue({ boss }: Jobs, tx: Tx, jobs: readonly CausedJob[], traceparent?: string): Promise<void> {
  const byQueue = Map.groupBy(jobs, (job) => job.queue)
  for (const [queue, list] of byQueue) {
    const ids = await (await boss()).insert(
      queue,
      list.map((job) => toInsert(job, traceparent)),
      { db: executorOf(tx) as never, returnId: true },
    )
    if (ids?.length !== list.length) throw new Error(`queue ${queue} took ${ids?.length ?? 0} of ${list.length} jobs`)
    await tx.any(sql`select pg_notify('svc_jobs', ${queue})`)
  }
}

/** Has a waiting job done at once, in the caller's transaction. */
export async function hurryJob({ boss }: Jobs, tx: Tx, queue: QueueName, id: string): Promise<void> {
  await (await boss()).update(queue, undefined, { id, startAfter: 0, db: executorOf(tx) as never })
  await tx.any(sql`select pg_notify('svc_jobs', ${queue})`)
}

/** Ends a job that is not finished; what it is doing just now is not undone. */
export async function cancelJob({ boss }: Jobs, tx: Tx, queue: QueueName, id: string): Promise<void> {
  await (await boss()).cancel(queue, id, { db: executorOf(tx) as never })
}

/**
 * Puts fetched jobs back as they were: the attempt that they were fetched for has not been made. One that another
 * worker has been given meanwhile stays with it. pg-boss does the same where it limits its own groups, and does not export it.
 */
export async function putBackJobs({ boss }: Jobs, queue: QueueName, jobs: readonly FetchedAttempt[]): Promise<void> {
  await (await boss()).getDb().executeSql(
    `update ${bossSchema}.job j set state = 'created', started_on = null, heartbeat_on = null
     from unnest($2::uuid[], $3::int[]) as fetched (id, attempt)
     where j.name = $1 and j.id = fetched.id and j.retry_count = fetched.attempt and j.state = 'active'`,
    [queue, jobs.map(({ id }) => id), jobs.map(({ retryCount }) => retryCount)],
  )
}

type FetchedAttempt = { readonly id: string; readonly retryCount: number }

/** Takes a job out of its queue or dead letters. */
export async function removeJob({ boss }: Jobs, tx: Tx, storedIn: string, id: string): Promise<void> {
  await (await boss()).deleteJob(storedIn, id, { db: executorOf(tx) as never })
}

/** pg-boss's statements on a transaction of ours. */
function executorOf(reader: Reader): Executor {
  return { executeSql: async (text, values = []) => ({ rows: [...(await reader.any(rawQuery(text, values)))] }) }
}

/** A job and what led to it. One that is done again keeps what led to it first. */
export type CausedJob = Job & { readonly cause?: Cause | undefined }

function toInsert({ data: own, startAfterSeconds, group, cause }: CausedJob, traceparent: string | undefined) {
  return {
    data: { ...(cause !== undefined && { cause }), ...own, ...(traceparent !== undefined && { traceparent }) },
    ...(startAfterSeconds !== undefined && { startAfter: startAfterSeconds }),
    ...(group !== undefined && { group: { id: group } }),
  }
}
