import { AsyncLocalStorage } from 'node:async_hooks'
import { setTimeout as delay } from 'node:timers/promises'
import type { Logger } from 'pino'
import type { Logs } from '../adapters/logger.ts'
import type { Traces } from '../adapters/tracing.ts'
import { goneSignal } from '../admission/asker.ts'
import { logTable } from '../catalog/log-triggers.ts'
import type { Configuration } from '../config/config.ts'
import type { ChangeNotice } from '../db/connection.ts'
import { AnswerLost, isConnectionLoss, isPassing, sqlState } from '../db/errors.ts'
import type { Database, ReservedReads, StatementSending } from '../db/pools.ts'
import { type AnyReader, type ReplicaReads, readFromNowOn } from '../db/replicas/replicas.ts'
import { rawQuery, sql, type Tx, type UnloggedWrites } from '../db/sql.ts'
import { type RepeatableRequest, rememberCommit, reserveCommit } from '../db/unlogged/requests.ts'
import { type TransactionConnection, txOf, writePoolOf } from '../db/write-pool.ts'
import { errors } from '../errors.ts'
import { type CausedJob, enqueue, type Jobs } from './jobs.ts'
import { reactionTo } from './reactions.ts'
import { type BatchedRow, rowBatchesOf } from './row-batches.ts'
import { type Actor, actorJson, causeOf, type DomainEvent } from './types.ts'

/**
 * The capabilities of `commit`: the pool that writes, and the parts that must hear of a change before its writer gets
 * an answer. This floor declares only what it asks of them; the process opens them.
 */
export type Writes = UnloggedWrites &
  ReservedReads &
  ReplicaReads &
  Configuration &
  Logs &
  Traces &
  Jobs &
  CommitListeners

type CommitListeners = {
  readonly catalog: ReloadingStore
  readonly access: ReloadingStore
  readonly settings: ReloadingStore
  readonly sessions: { readonly ended: (notices: readonly string[]) => Promise<void> }
  readonly dataCache: {
    readonly isShared: boolean
    readonly invalidate: (tx: Tx) => Promise<void>
    readonly written: () => void
  }
}

type ReloadingStore = { readonly reload: () => Promise<unknown> }

/** The result of `work`: its answer, and the facts that shall be appended with it. */
export type WorkResult<Result> = {
  readonly result: Result
  readonly events?: readonly Fact[]
  /** The actor of these facts, where only `work` could find out (the owner of a one-time code). Default: the given actor. */
  readonly actor?: Actor
}

/** A fact, and its own actor where that is another one than the transaction's: a hook of the request. */
export type Fact = DomainEvent & { readonly actor?: Actor }

/**
 * The one door for changes: opens a transaction, names the actor, runs `work`, appends the events it
 * returns, enqueues the jobs that follow from them, and commits. Either all of it is durable or nothing is. Where it changes
 * collections, rights or settings, this process knows them when it resolves, whoever wrote the rows: `work`, a trigger, a
 * cascade. Where it ends or changes sessions, no process takes them for what they were (ADR 25).
 *
 * `work` does SQL only, no mail, HTTP, file or cache write: it is run again after a serialization conflict.
 * When the asker (asker.ts) is gone before COMMIT is sent, the statement that runs is cancelled, and everything rolled back.
 * Errors of `work` roll back and pass through. For a repeated request whose commit is done already `work` is not run: the
 * result is the one of then, so it must be JSON. 409 when the request's key stands for another one.
 */
export async function commit<Result>(
  deps: Writes,
  actor: Actor,
  work: (tx: Tx) => Promise<WorkResult<Result>>,
): Promise<Result> {
  const { repeatable } = actor
  const now = (by: Actor) => deps.tracing.part('commit', {}, () => commitNow(deps, by, work))
  if (repeatable === undefined) return now(actor)
  // A commit within the work of another one needs no place of its own: it is done if and only if that one is.
  if (committing.getStore() === repeatable) return now({ ...actor, repeatable: undefined })
  return inTurn(repeatable, () => committing.run(repeatable, () => now(actor)))
}

/** The request whose commit is under way. */
const committing = new AsyncLocalStorage<RepeatableRequest>()

/**
 * A commit of a repeatable request is known by how many came before it, so those that are begun at the same time go one after
 * the other: otherwise one would find the result of another in its place, and do nothing.
 */
function inTurn<Result>(request: RepeatableRequest, work: () => Promise<Result>): Promise<Result> {
  const before = lastCommits.get(request)
  const own = before === undefined ? work() : before.then(work, work)
  lastCommits.set(request, own)
  return own
}

const lastCommits = new WeakMap<RepeatableRequest, Promise<unknown>>()

/** The end of a transaction of which only the COMMIT was left. */
type LastStep<Result> = {
  readonly id: TransactionId
  readonly result: Result
  readonly writers: readonly AnyReader[]
  /** The same request had done it when it came earlier. */
  readonly isReplay: boolean
}

async function commitNow<Result>(
  deps: Writes,
  actor: Actor,
  work: (tx: Tx) => Promise<WorkResult<Result>>,
): Promise<Result> {
  const deadline = performance.now() + deps.config.database.transactionTimeoutMs
  noteWrite(actor)
  const gone = goneSignal()
  let done: LastStep<Result> | undefined
  let notices: ChangeNotice[] = []
  const transact = async (connection: TransactionConnection) => {
    done = undefined
    notices = []
    let backend: number | undefined
    const cancel = () => cancelBackend(deps, backend)
    const tx = txOf(connection, { changeNotices: notices, tracing: deps.tracing, gone, cancel })
    const id = await tx.one<TransactionId & { readonly pid: number }>(rawQuery(beginSql, [actorJson(actor)]))
    backend = id.pid
    await actor.guard?.(tx)
    const before = await earlierResult<Result>(tx, actor)
    if (before !== undefined) {
      done = { id, result: before.result, writers: [actor], isReplay: true }
      return
    }
    const outcome = await work(tx)
    await appendAll(deps, tx, actor, outcome)
    if (deps.dataCache.isShared) await deps.dataCache.invalidate(tx)
    if (actor.repeatable !== undefined) await rememberCommit(tx, actor.repeatable, outcome.result)
    if (performance.now() > deadline) throw errors.unavailable('The transaction took too long')
    done = {
      id,
      result: outcome.result,
      writers: [actor, outcome.actor ?? actor, ...(outcome.events ?? []).flatMap(subjectsOf)],
      isReplay: false,
    }
  }
  try {
    await writePoolOf(deps).transaction(transact, gone)
  } catch (error) {
    await requireCommitted(deps, error, done?.id)
  }
  const { result, writers, isReplay } = done!
  await readFromNowOn(deps, ...writers)
  deps.dataCache.written()
  if (actor.repeatable !== undefined) {
    actor.repeatable.commits += 1
    if (isReplay) actor.repeatable.replays += 1
  }
  await applyHere(deps, notices)
  return result
}

/** Appends the events of what was done, and enqueues the jobs that follow from them. */
async function appendAll(
  deps: Writes,
  tx: Tx,
  actor: Actor,
  { events = [], actor: own = actor }: Pick<WorkResult<unknown>, 'events' | 'actor'>,
): Promise<void> {
  const jobs: CausedJob[] = []
  for (const event of events) {
    const by = event.actor ?? own
    await appendEvent(tx, by, event)
    for (const job of reactionTo(event).jobs ?? []) jobs.push({ ...job, cause: causeOf(by, 'job') })
  }
  if (jobs.length > 0)
    await deps.tracing.part('enqueue jobs', { kind: 'producer', attributes: { 'daybook.jobs': jobs.length } }, () =>
      enqueue(deps, tx, jobs, deps.tracing.traceparent()),
    )
}

/**
 * Returns when a transaction has committed although `error` came instead of the answer to its COMMIT; throws what is to
 * be answered otherwise. `id` is undefined where COMMIT was never sent.
 */
async function requireCommitted(deps: Writes, error: unknown, id: TransactionId | undefined): Promise<void> {
  if (id === undefined || !isConnectionLoss(error)) throw error
  const ending = await endOfTransaction(deps.reserved, deps.log, id)
  deps.log.warn({ err: error, xid: id.xid, ending }, 'the connection was lost while a transaction was committed')
  if (ending === 'aborted') throw errors.unavailable(undefined, error)
  if (ending === 'unknown') throw errors.outcomeUnknown(error)
}

/**
 * The writing process does not wait for its own NOTIFY: what it answers next already follows the change. A passing failure
 * when all is written must not be answered as if nothing were.
 */
async function applyHere(deps: Writes, notices: readonly ChangeNotice[]): Promise<void> {
  if (notices.length === 0) return
  const changed = new Set(notices.map(({ channel }) => channel))
  try {
    if (changed.has('svc_catalog')) await deps.catalog.reload()
    if (changed.has('svc_access')) await deps.access.reload()
    if (changed.has('svc_settings')) await deps.settings.reload()
    await deps.sessions.ended(notices.flatMap(({ channel, payload }) => (channel === 'svc_sessions' ? [payload] : [])))
  } catch (error) {
    throw isPassing(error) ? errors.outcomeUnknown(error, true) : error
  }
}

type RowStatement = {
  readonly text: string
  readonly values: readonly unknown[]
  readonly sending?: StatementSending
  /** Where rows of other requests may be written with it; its triggers say nothing of what processes keep then. */
  readonly batched?: BatchedRow | undefined
}

/**
 * A single statement that changes one row and returns it, without BEGIN and COMMIT around it: one round trip. The
 * statement's first parameter is the actor, read by a CTE it must select from (`actorCte` in log.ts). Only for changes
 * without domain events and jobs; the rows' own events are appended by the triggers all the same.
 *
 * When the connection is lost before the answer, nothing is known of the transaction, not even its number: it is looked
 * for in the log, and `fromLog` makes of its events what the statement would have returned.
 */
export async function commitRow<Row>(
  deps: Writes,
  actor: Actor,
  statement: RowStatement,
  fromLog?: (events: readonly RowEvent[]) => Row | undefined,
): Promise<Row[]> {
  const values = [actorJson(actor), ...statement.values]
  if (actor.repeatable !== undefined || actor.guard !== undefined || deps.dataCache.isShared)
    return commit(deps, actor, async (tx) => ({ result: [...(await tx.any<Row>(rawQuery(statement.text, values)))] }))
  noteWrite(actor)
  let rows: readonly Row[]
  let notices: readonly ChangeNotice[] = []
  try {
    const { text, sending, batched } = statement
    const { hot } = writePoolOf(deps)
    const gone = goneSignal()
    const alone = async () => {
      const answer = await hot.runWithNotices(text, values, sending, gone)
      notices = answer.notices
      return answer.rows as Row[]
    }
    rows = batched === undefined ? await alone() : await rowBatchesOf(hot).write(batched, { actor, gone }, alone)
  } catch (error) {
    rows = [await rowFromLog(deps, actor, error, fromLog)]
  }
  await readFromNowOn(deps, actor)
  deps.dataCache.written()
  await applyHere(deps, notices)
  return rows as Row[]
}

async function rowFromLog<Row>(
  deps: Writes,
  actor: Actor,
  error: unknown,
  fromLog: ((events: readonly RowEvent[]) => Row | undefined) | undefined,
): Promise<Row> {
  if (!(error instanceof AnswerLost)) throw error
  const { logRequestId, request } = actor
  const isOnly = () => request !== undefined && writesOf.get(request) === 1
  const events = logRequestId !== undefined && isOnly() ? await eventsOfLost(deps, error, logRequestId) : []
  const row = isOnly() && events.length > 0 ? fromLog?.(events) : undefined
  deps.log.warn(
    { err: error, requestId: actor.requestId, events: events.length },
    'the connection was lost while a row was written',
  )
  if (row === undefined) throw errors.outcomeUnknown(error, events.length > 0)
  return row
}

/** A written row as the log has it. */
export type RowEvent = { readonly entity: string; readonly entityId: string | null; readonly action: string }

/**
 * The events of a statement whose answer was lost, found by its request; to be asked of a request that wrote by nothing
 * else. They are there when it has committed. None says nothing: what is not logged may have been written all the same,
 * and the statement may still be running where its process cannot be found, behind a pooler.
 */
async function eventsOfLost(deps: Writes, lost: AnswerLost, logRequestId: string): Promise<readonly RowEvent[]> {
  const { transactionTimeoutMs } = deps.config.database
  let looks = 0
  const found = await untilKnown(deps.log, async () => {
    const { running } = await deps.reserved.one<{ running: boolean }>(rawQuery(runningSql, [lost.processId]))
    // After it has ended: what it wrote is seen by now.
    const events = await deps.reserved.any<RowEvent & { xid: string }>(
      rawQuery(eventsSql, [logRequestId, transactionTimeoutMs + marginMs]),
    )
    looks += 1
    return events.length > 0 || (!running && looks >= leastLooks) ? events : undefined
  })
  // Two transactions: which event is whose cannot be known.
  return new Set(found?.map(({ xid }) => xid)).size === 1 ? found! : []
}

/** Where its process cannot be found, a statement gets a moment to end. */
const leastLooks = 4
/** Of clocks, and of what came before the statement. */
const marginMs = 30_000

const runningSql = `
  select exists(select from pg_stat_activity where pid = $1 and state not like 'idle%') as running`

/** By the time of the events, since requests have no index. */
const eventsSql = `
  select entity, "entityId", action, xid::text from "${logTable}"
  where "createdAt" > clock_timestamp() - make_interval(secs => $2::float8 / 1000) and "logRequestId" = $1
  order by position limit 1000`

/**
 * How many writes were begun for a request. The log knows the request of an event and not the write within it, so
 * only for the first can be said that what it finds is it.
 */
const writesOf = new WeakMap<object, number>()

function noteWrite({ request }: Actor): void {
  if (request !== undefined) writesOf.set(request, (writesOf.get(request) ?? 0) + 1)
}

/** The transaction's first statement is over before anybody knows where it runs. */
async function cancelBackend({ reserved }: Writes, pid: number | undefined): Promise<void> {
  if (pid !== undefined) await reserved.any(sql`select pg_cancel_backend(${pid})`)
}

/** A user who signs in has no session yet when the user's rows are written. */
const subjectsOf = ({ data }: DomainEvent): readonly AnyReader[] =>
  'userId' in data && data.userId !== null ? [{ userId: data.userId }] : []

const eventKinds: Readonly<Record<string, { type: string; entity: string }>> = {
  auth: { type: 'auth', entity: 'svc_User' },
  oauth: { type: 'oauth', entity: 'svc_User' },
  mail: { type: 'mail', entity: 'svc_EmailLog' },
  job: { type: 'job', entity: 'job' },
  task: { type: 'task', entity: 'svc_Tasks' },
  schema: { type: 'schema', entity: 'svc_SchemaDefinition' },
  history: { type: 'history', entity: 'svc_AuditLog' },
  migration: { type: 'migration', entity: 'svc_Migration' },
  system: { type: 'system', entity: 'svc_Settings' },
}

/**
 * `auth.login` becomes type `auth`, action `login`, about the user. Outside of this file only for
 * migrations, which have a transaction of their own and whose events have no jobs.
 */
export async function appendEvent(tx: Tx, actor: Actor, event: DomainEvent): Promise<void> {
  const [group = '', action = ''] = event.type.split('.')
  const { type, entity } = eventKinds[group]!
  await tx.any(sql`
    insert into "svc_AuditLog" (type, entity, "entityId", action, changes, ipaddress, "userId", "roleId", "tenant_Id", "requestId", "userAgent", "logRequestId", agent, cause)
    values (${type}, ${entity}, ${entityIdOf(event)}, ${action}, ${sql.jsonb(detailsOf(event))}, ${actor.ip ?? null},
            ${actor.userId ?? null}, ${actor.roleId ?? null}, ${actor.tenantId ?? null}, ${actor.requestId ?? null}, ${actor.userAgent ?? null},
            ${actor.logRequestId ?? null}, ${jsonOf(actor.agent)}, ${jsonOf(actor.cause)})`)
}

const jsonOf = (value: object | undefined) => (value === undefined ? null : sql.jsonb(value))

function entityIdOf({ type, data }: DomainEvent): string | null {
  if (type === 'migration.run' || type === 'migration.rolled_back' || type === 'migration.marked_completed')
    return data.version
  if (type === 'history.undone') return data.undone
  if (type === 'history.restored') return data.restored
  if ('userId' in data) return data.userId
  if ('emailLogId' in data) return data.emailLogId
  if ('jobId' in data) return data.jobId
  if ('taskId' in data) return String(data.taskId)
  return 'collection' in data ? data.collection : null
}

/** The result of the same commit of the same request; undefined when it is to be done now. */
async function earlierResult<Result>(tx: Tx, { repeatable }: Actor): Promise<{ result: Result } | undefined> {
  const earlier = repeatable && (await reserveCommit(tx, repeatable))
  if (earlier === undefined) return undefined
  if (earlier.fingerprint !== repeatable!.fingerprint) throw errors.keyReused()
  return { result: earlier.result as Result }
}

/** Everything an event says beyond its subject. */
function detailsOf({ data }: DomainEvent): object | null {
  const { userId: _user, emailLogId: _mail, jobId: _job, taskId: _task, ...rest } = data as Record<string, unknown>
  return Object.keys(rest).length === 0 ? null : rest
}

/*
 * How a write ended whose connection was lost: between COMMIT and its answer this end does not know. The server does,
 * and is asked over another connection.
 */

/** Names a transaction for good, also to a server that has crashed meanwhile. */
type TransactionId = {
  readonly xid: string
  /** The life of the server in which the number was given out: after a crash the same numbers are given out again. */
  readonly life: string
}

/**
 * SQL: a server begins a new life when it recovers from a crash, which starts its statistics anew, or is promoted, which
 * starts a new timeline. An orderly restart keeps both, and gives out no number twice.
 */
const lifeSql = `pg_stat_get_bgwriter_stat_reset_time()::text || ' ' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8)`

/** SQL, a select list: the running transaction's {@link TransactionId}. It gets a number by that if it has none. */
export const transactionIdSql = `pg_current_xact_id()::text as xid, ${lifeSql} as life`

const beginSql = `select set_config('svc.actor', $1, true), pg_backend_pid() as pid, ${transactionIdSql}`

type TransactionEnding = 'committed' | 'aborted' | 'unknown'

/** The server's knowledge of a transaction; `status` null where it has forgotten it, `future` where it has yet to begin. */
export type TransactionStatus = {
  readonly status: 'committed' | 'aborted' | 'in progress' | 'future' | null
  readonly isSameLife: boolean
}

/**
 * How a transaction ended, as far as it can be told; undefined while it runs.
 *
 * In another life of the server its number may be another transaction's. A commit that had been confirmed, or would have been,
 * survives a crash, so its number is not given out again: `committed` may be the other's, everything else says that ours
 * did not survive.
 */
export function endingOf({ status, isSameLife }: TransactionStatus): TransactionEnding | undefined {
  if (status === null) return 'unknown'
  if (isSameLife) return status === 'in progress' ? undefined : status === 'future' ? 'unknown' : status
  return status === 'committed' ? 'unknown' : 'aborted'
}

/** How long it is waited for a transaction that has not ended, and for a server that does not answer. */
const outcomeWithinMs = 10_000

/**
 * Asks how a transaction ended, and waits for its end and for the server. Never rejects. One that waits for a client that
 * is gone is ended.
 */
export async function endOfTransaction(db: Database, log: Logger, id: TransactionId): Promise<TransactionEnding> {
  return untilKnown(log, async () => {
    const ending = endingOf(await statusOf(db, id))
    if (ending === undefined) await db.any(endAbandoned(id))
    return ending
  }).then((ending) => ending ?? 'unknown')
}

/** Repeats a question until it has an answer, or gives up: undefined. */
async function untilKnown<T>(log: Logger, ask: () => Promise<T | undefined>): Promise<T | undefined> {
  const deadline = performance.now() + outcomeWithinMs
  for (let pauseMs = 20; ; pauseMs = Math.min(pauseMs * 2, 500)) {
    const answer = await Promise.race([
      ask().catch(unanswered(log)),
      delay(deadline - performance.now(), undefined, unreferenced),
    ])
    if (answer !== undefined || performance.now() + pauseMs > deadline) return answer
    await delay(pauseMs)
  }
}

const unreferenced = { ref: false }

const unanswered = (log: Logger) => (error: unknown) => {
  log.debug({ err: error }, 'the database could not be asked how a write ended')
  return undefined
}

type StatusAnswer = { readonly status: TransactionStatus['status']; readonly life: string }

const statusSql = `select pg_xact_status($1::xid8) as status, ${lifeSql} as life`

async function statusOf(db: Database, { xid, life }: TransactionId): Promise<TransactionStatus> {
  try {
    const { status, life: now } = await db.one<StatusAnswer>(rawQuery(statusSql, [xid]))
    return { status, isSameLife: now === life }
  } catch (error) {
    if (sqlState(error) !== notYetBegun) throw error
    const { life: now } = await db.one<StatusAnswer>(rawQuery(`select ${lifeSql} as life`))
    return { status: 'future', isSameLife: now === life }
  }
}

/** The error of `pg_xact_status` for a number that has not been given out. */
const notYetBegun = '22023'

/**
 * A server does not notice that a client is gone that it waits for, and would keep the transaction open until it times
 * out. Not one that is committing: that has an end.
 */
const endAbandoned = ({ xid }: TransactionId) => sql`
  select pg_terminate_backend(pid) from pg_stat_activity
  where backend_xid = ${xid}::xid8::xid and state like 'idle in transaction%'`
