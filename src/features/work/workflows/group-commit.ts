import { pauseAfter, retryTransient } from '../../../adapters/retry.ts'
import { clientError, isConnectionLoss, sqlState } from '../../../db/errors.ts'
import { type Query, rawQuery, type Tx } from '../../../db/sql.ts'
import type { Actor } from '../../../events/actor.ts'
import { afterwards, inTransaction, type Run } from '../../data/items/items.ts'
import { platform } from './authority.ts'
import type { WorkflowWrites } from './capabilities.ts'
import { ClaimLost, type Recorded, recordAll, workflowsActor } from './queries.ts'

/**
 * One transaction for what several executions do next: its round trips and its wait for the disk are theirs together. While
 * transactions run, those that come wait for the next one; so no execution waits where little is to be done, and many share where
 * much is.
 *
 * Each is kept whole or not at all, as it would be alone. Where one breaks the transaction, all of it is rolled back: that one is
 * done again by itself, and the others without it.
 */
export type GroupCommit = <Result>(part: GroupMember<Result>) => Promise<Result>

type GroupMember<Result> = {
  /** The actor of its writes in the log. */
  readonly actor: Actor
  /** Parts of one kind that break transactions are given their own for a while. */
  readonly kind: string
  /** Run again where it could not be kept. */
  readonly work: (turn: CommitTurn) => Promise<KeptResult<Result>>
}

/** The record that is written last, in the transaction of the effects. */
type KeptResult<Result> = { readonly record: Recorded; readonly result: Result }

export type CommitTurn = Pick<Run, 'tx' | 'scope'> & {
  /** More than one node is kept by it: who fails in it after a statement is done again alone, one node at a time. */
  readonly isShared: boolean
  /** Statements that were sent in this transaction so far. */
  readonly sent: () => number
  /** Whether there is time for more in this transaction. */
  readonly hasTime: () => boolean
}

type WaitingMember = GroupMember<unknown> & {
  /** It has broken a transaction that it shared. */
  isAlone: boolean
  /** How often it has met another transaction's lock. */
  times: number
  readonly resolve: (result: unknown) => void
  readonly reject: (error: unknown) => void
}

const largestGroup = 100
/** A member of a shared transaction keeps its locks for as long. */
const longestMs = 100
const aloneMs = 30_000
const kindsAtMost = 1000
/** No execution waits long for another transaction's lock, */
const limits = `select set_config('lock_timeout', '200', true)`
/** nor those who share a transaction for what takes long. */
const sharedLimits = `${limits}, set_config('statement_timeout', '2000', true)`
const lockPause = { firstMs: 50, longestMs: 2000 } as const
const repetitions = { attempts: 5, backoff: { firstMs: 50, longestMs: 1000 } } as const

/** `transactions`: how many run at the same time. All but one of them may be of those that are alone. */
export function openGroupCommit(deps: WorkflowWrites, transactions: number): GroupCommit {
  const waiting: WaitingMember[] = []
  const breaking = openBreaking()
  const running = { all: 0, alone: 0 }

  const isAlone = (member: WaitingMember) => member.isAlone || breaking.has(member.kind)
  const begin = () => {
    while (running.all < transactions) {
      const members = takeNext(waiting, isAlone, running.alone < Math.max(1, transactions - 1))
      if (members.length === 0) return
      const alone = isAlone(members[0]!) ? 1 : 0
      running.all += 1
      running.alone += alone
      void run(members, alone === 1).finally(() => {
        running.all -= 1
        running.alone -= alone
        begin()
      })
    }
  }
  const run = async (members: readonly WaitingMember[], isAlone: boolean) => {
    try {
      const done = await retryTransient(() => transact(deps, members, isAlone), { ...repetitions, mayRetry })
      for (const [member, { result, notify }] of done) notify().then(() => member.resolve(result), member.reject)
      // Those whose turn did not come are the next ones.
      waiting.unshift(...members.filter((member) => !done.has(member)))
    } catch (error) {
      settle(members, error)
    }
  }
  /** Settles the members whose transaction was rolled back. */
  const settle = (members: readonly WaitingMember[], error: unknown) => {
    if (error instanceof Broken) {
      breaking.note(error.member.kind)
      error.member.isAlone = true
      waiting.unshift(...members)
    } else if (error instanceof SomeLost) {
      for (const member of error.members) member.reject(new ClaimLost())
      waiting.unshift(...members.filter((member) => !error.members.includes(member)))
    } else if (isLocked(error)) for (const member of members) comeAgain(member)
    else for (const member of members) member.reject(error)
  }
  /** The holder of its locks lets go of them some time; the member holds no connection until then. */
  const comeAgain = (member: WaitingMember) => {
    member.times += 1
    const again = () => {
      waiting.push(member)
      begin()
    }
    setTimeout(again, pauseAfter(member.times, lockPause))
  }
  return <Result>({ actor, kind, work }: GroupMember<Result>) =>
    new Promise<Result>((resolve, reject) => {
      waiting.push({
        actor,
        kind,
        work,
        isAlone: false,
        times: 0,
        resolve: resolve as WaitingMember['resolve'],
        reject,
      })
      // Members that become ready in this turn of the loop come along.
      setImmediate(begin)
    })
}

/** Takes out what the next transaction is for: one that is alone, or as many others as share one. */
function takeNext(
  waiting: WaitingMember[],
  isAlone: (member: WaitingMember) => boolean,
  mayBeAlone: boolean,
): readonly WaitingMember[] {
  const first = waiting.find((member) => mayBeAlone || !isAlone(member))
  if (first === undefined) return []
  const members = isAlone(first) ? [first] : waiting.filter((member) => !isAlone(member)).slice(0, largestGroup)
  const taken = new Set(members)
  waiting.splice(0, waiting.length, ...waiting.filter((member) => !taken.has(member)))
  return members
}

/** Kinds that have broken transactions of late: they have their own for a while. */
function openBreaking() {
  const until = new Map<string, number>()
  return {
    has: (kind: string) => (until.get(kind) ?? 0) > performance.now(),
    note: (kind: string) => {
      const [oldest] = until.keys()
      if (oldest !== undefined && until.size >= kindsAtMost) until.delete(oldest)
      until.set(kind, performance.now() + aloneMs)
    },
  }
}

/** Somebody else has locked what it needs, or the connection was lost before anything was written. */
function mayRetry(error: unknown): boolean {
  if (error instanceof Broken || error instanceof SomeLost || isLocked(error)) return false
  const known = clientError(error)
  return known?.status === 503 && known.code !== 'OUTCOME_UNKNOWN'
}

const isLocked = (error: unknown): boolean => sqlState(error) === '55P03'

/** A member has failed where it shared the transaction. */
class Broken extends Error {
  override readonly name = 'Broken'
  readonly member: WaitingMember
  constructor(member: WaitingMember, cause: unknown) {
    super(`${member.kind} broke a transaction that it shared`, { cause })
    this.member = member
  }
}

/** Some were cancelled meanwhile, or others have them. */
class SomeLost extends Error {
  override readonly name = 'SomeLost'
  readonly members: readonly WaitingMember[]
  constructor(members: readonly WaitingMember[]) {
    super('claims were lost')
    this.members = members
  }
}

/** The result of each member, and the hooks to notify of its writes. */
type Done = ReadonlyMap<WaitingMember, { readonly result: unknown; readonly notify: () => Promise<void> }>

/** Of several: gives those whose turn came. */
function transact(deps: WorkflowWrites, members: readonly WaitingMember[], isAlone: boolean): Promise<Done> {
  const isGroup = members.length > 1
  const isShared = !isAlone
  const actor = isGroup ? workflowsActor : members[0]!.actor
  return inTransaction(deps, { actor, access: platform }, async ({ tx: own, scope }) => {
    const { tx, sent } = counted(own)
    await own.any(rawQuery(isGroup ? sharedLimits : limits))
    const startedAt = performance.now()
    const hasTime = () => isShared && performance.now() - startedAt < longestMs
    const kept = new Map<WaitingMember, KeptResult<unknown> & { readonly notify: () => Promise<void> }>()
    for (const member of members) {
      if (kept.size > 0 && !hasTime()) break
      // Its own, but for the transaction: who is named, who is notified, and when what it has begun must be over.
      const scopeOfIts: Run['scope'] = { tx, actor: member.actor, written: [], events: [], isOver: false }
      try {
        const done = await member.work({ tx, scope: scopeOfIts, isShared, sent, hasTime })
        kept.set(member, { ...done, notify: inTurn(await afterwards(deps, scopeOfIts)) })
      } catch (error) {
        throw isShared && !isConnectionLoss(error) ? new Broken(member, error) : error
      } finally {
        scopeOfIts.isOver = true
      }
      scope.events.push(...scopeOfIts.events.map((event) => ({ actor: member.actor, ...event })))
    }
    const lost = await recordIn(
      deps,
      { ...scope, tx },
      [...kept.values()].map(({ record }) => record),
    )
    if (lost.length > 0)
      throw new SomeLost([...kept].filter(([, { record }]) => lost.includes(record)).map(([member]) => member))
    return kept
  })
}

const inTurn = (notifications: readonly (() => Promise<void>)[]) => async () => {
  for (const notify of notifications) await notify()
}

/** The status of executions changes in the name of no user. */
function recordIn(
  deps: WorkflowWrites,
  scope: Run['scope'],
  recorded: readonly Recorded[],
): Promise<readonly Recorded[]> {
  return inTransaction(deps, { actor: workflowsActor, access: platform, scope }, ({ tx }) => recordAll(tx, recorded))
}

/** A transaction that counts what is sent in it. */
function counted(own: Tx): { readonly tx: Tx; readonly sent: () => number } {
  let count = 0
  const counting =
    <Answer>(send: (query: Query) => Promise<Answer>) =>
    (query: Query) => {
      count += 1
      return send(query)
    }
  const tx = { any: counting(own.any), maybeOne: counting(own.maybeOne), one: counting(own.one), isTransaction: true }
  return { tx: tx as Tx, sent: () => count }
}
