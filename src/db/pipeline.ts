import type pg from 'pg'
import { clientGone } from '../admission/asker.ts'
import { type Cancellation, cancelQuery, openCancellation } from './cancel.ts'
import { setPipelining, streamOf } from './connection.ts'
import { isConnectionLoss, isNameError, isOutdated, sqlState } from './errors.ts'

/** A statement that only reads. */
type PipelinedRead = {
  readonly text: string
  readonly values: unknown[]
  /** Aborts when no one waits for the answer any more. */
  readonly signal: AbortSignal | undefined
  /** Runs the statement on a connection of its own: it failed here, or waits for another one that is slow. */
  readonly alone: () => Promise<pg.QueryResult>
}

/**
 * Quick reads that share connections: the statements of one turn of the event loop go to the server together, in one system
 * call, and the server answers them in turn. Each is a transaction of its own, and an error concerns only the statement that
 * caused it.
 */
export type Pipeline = {
  /** Fails as the statement fails alone; 503 where no connection becomes free in time, 499 soon after the asker is gone. */
  run(read: PipelinedRead): Promise<pg.QueryResult>
  /** Whether statements of this text have been quick lately; `presumed` for a text that is new. */
  isQuick(text: string, presumed: boolean): boolean
  /** Notes the time of a statement that ran alone. */
  learn(text: string, ms: number): void
}

type PipelineOptions = {
  /** Gives a connection on which the last statement has ended. */
  readonly acquire: () => Promise<pg.PoolClient>
  /** Most connections at a time. */
  readonly connections: number
  /** The name that a text is prepared under on this connection; undefined where it is sent without one. */
  readonly nameOn: (client: pg.PoolClient, text: string) => string | undefined
  /** The name is no longer of use on this connection. */
  readonly forgetName: (client: pg.PoolClient, text: string) => void
}

export function openPipeline(options: PipelineOptions): Pipeline {
  const state: State = {
    options,
    costs: new Map(),
    waiting: [],
    underWay: [],
    isDue: false,
    timer: undefined,
    lookedAt: 0,
  }
  return {
    run: (read) => join(state, read),
    isQuick: (text, presumed) => isQuickCost(state.costs.get(text), presumed),
    learn: (text, ms) => learn(state.costs, text, ms),
  }
}

/** Statements that go together at most. With eight, the slowest of a hundred waited half as long again, and none was faster. */
const mostTogether = 4

type Waiting = PipelinedRead & {
  readonly resolve: (result: pg.QueryResult | Promise<pg.QueryResult>) => void
  readonly reject: (error: unknown) => void
}

type Batch = {
  reads: Waiting[]
  /** Undefined until it has a connection. Until then, statements may join it. */
  client: pg.PoolClient | undefined
  /** How many reads are answered; the server works on the one after them. */
  answered: number
  /** When the last answer came, or the statements were sent. */
  movedAt: number
  /** The read that was so slow that those after it run alone instead. */
  slow: Waiting | undefined
  lost: Error | undefined
  /** Of the slow read, when its asker leaves. It must not hit the next borrower of the connection. */
  cancellation: Cancellation | undefined
}

type State = {
  readonly options: PipelineOptions
  readonly costs: Map<string, Cost>
  /** Batches without a connection. */
  readonly waiting: Batch[]
  /** Few. A `Set` would keep those that have left from young collections (ADR 80). */
  readonly underWay: Batch[]
  /** Whether the batches that wait are looked at in this turn of the event loop. */
  isDue: boolean
  timer: NodeJS.Timeout | undefined
  lookedAt: number
}

function join(state: State, read: PipelinedRead): Promise<pg.QueryResult> {
  return new Promise((resolve, reject) => {
    let batch = state.waiting.at(-1)
    if (batch === undefined || batch.reads.length >= mostTogether) {
      batch = {
        reads: [],
        client: undefined,
        answered: 0,
        movedAt: 0,
        slow: undefined,
        lost: undefined,
        cancellation: undefined,
      }
      state.waiting.push(batch)
    }
    batch.reads.push({ ...read, resolve, reject })
    if (state.isDue) return
    state.isDue = true
    // When all requests that have arrived by now have been read.
    setImmediate(() => {
      state.isDue = false
      sendNext(state)
    })
  })
}

/** Gets connections for the batches that wait, as far as there are any for them. */
function sendNext(state: State): void {
  const { options, waiting, underWay } = state
  let free = options.connections - moving(underWay)
  for (const batch of waiting) {
    if (underWay.includes(batch)) continue
    if (free <= 0) return
    free -= 1
    underWay.push(batch)
    watch(state)
    options.acquire().then(
      (client) => send(state, batch, client),
      (error: unknown) => {
        waiting.splice(waiting.indexOf(batch), 1)
        for (const { reject } of batch.reads) reject(error)
        leave(state, batch)
      },
    )
  }
}

function moving(batches: Iterable<Batch>): number {
  let count = 0
  for (const { slow } of batches) if (slow === undefined) count += 1
  return count
}

function send(state: State, batch: Batch, client: pg.PoolClient): void {
  const { options, waiting } = state
  waiting.splice(waiting.indexOf(batch), 1)
  dismissGone(batch)
  batch.client = client
  setPipelining(client, true)
  const stream = streamOf(client)
  // pg writes one statement at a time; what is written between the two goes out in one system call.
  stream.cork()
  for (const read of batch.reads) {
    const { text, values } = read
    const statement = { text, values, name: options.nameOn(client, text) }
    client.query(statement, (error: Error | undefined, result: pg.QueryResult) =>
      answer(state, batch, read, error ?? result),
    )
  }
  // Before it is sent: afterwards this process may wait for a core, and a slow statement would seem quick.
  batch.movedAt = performance.now()
  stream.uncork()
  if (batch.reads.length === 0) end(state, batch)
}

/** Takes out those whose askers no longer wait. */
function dismissGone(batch: Batch): void {
  if (!batch.reads.some(({ signal }) => signal?.aborted)) return
  for (const { signal, reject } of batch.reads) if (signal?.aborted) reject(clientGone())
  batch.reads = batch.reads.filter(({ signal }) => !signal?.aborted)
}

function answer(state: State, batch: Batch, read: Waiting, answered: Error | pg.QueryResult): void {
  const now = performance.now()
  // The slow one was counted when it stalled.
  if (read !== batch.slow) learn(state.costs, read.text, now - batch.movedAt)
  batch.movedAt = now
  batch.answered += 1
  const runsAlone = batch.slow !== undefined && read !== batch.slow
  if (answered instanceof Error) fail(state, batch, read, answered, runsAlone)
  else if (!runsAlone) read.resolve(answered)
  if (batch.answered === batch.reads.length) end(state, batch)
}

function fail({ options }: State, batch: Batch, read: Waiting, error: Error, runsAlone: boolean): void {
  if (isConnectionLoss(error)) batch.lost = error
  else if (isNameError(error) || isOutdated(error)) options.forgetName(batch.client!, read.text)
  if (runsAlone) return
  // It had its time, or was ended because no one waits for it.
  if (sqlState(error) === '57014') read.reject(read.signal?.aborted ? clientGone(error) : error)
  else read.resolve(read.alone())
}

function end(state: State, batch: Batch): void {
  const { client, lost, cancellation } = batch
  const release = (error: Error | undefined) => {
    setPipelining(client!, false)
    client!.release(error)
    leave(state, batch)
  }
  // Not before pg is done with the last answer.
  void Promise.resolve(cancellation?.close()).then(() => release(lost), release)
}

function leave(state: State, batch: Batch): void {
  state.underWay.splice(state.underWay.indexOf(batch), 1)
  if (state.waiting.length > 0) sendNext(state)
}

/** After so long without an answer, the server is at a statement that is not quick, for example because it waits for a lock. */
const stallMs = 50
const lookMs = 25

/** The timer outlives the batches, most of which end before it is due. */
function watch(state: State): void {
  if (state.timer !== undefined) return
  state.lookedAt = performance.now()
  state.timer = setInterval(() => look(state), lookMs).unref()
}

function look(state: State): void {
  const now = performance.now()
  // This process was busy, and answers may have come that it has not read yet.
  const wasBusy = now - state.lookedAt > 2 * lookMs
  state.lookedAt = now
  if (state.underWay.length === 0) {
    clearInterval(state.timer)
    state.timer = undefined
    return
  }
  letGoneLeave(state)
  if (wasBusy) return
  for (const batch of state.underWay)
    if (batch.client !== undefined && batch.slow === undefined && now - batch.movedAt > stallMs)
      stall(state, batch, now)
}

/** Of those that wait for a connection: to look is cheaper than to listen to the signal of every read, of which few wait. */
function letGoneLeave({ waiting, underWay }: State): void {
  for (const batch of [...waiting]) {
    dismissGone(batch)
    if (batch.reads.length === 0 && !underWay.includes(batch)) waiting.splice(waiting.indexOf(batch), 1)
  }
}

/** Has the reads after the slow one run alone; the connection is waited for no longer, and is given back when all are answered. */
function stall(state: State, batch: Batch, now: number): void {
  const { client, reads, answered } = batch
  const [slow, ...others] = reads.slice(answered)
  batch.slow = slow!
  learn(state.costs, slow!.text, now - batch.movedAt)
  for (const { alone, resolve } of others) resolve(alone())
  batch.cancellation = openCancellation(slow!.signal, () => cancelQuery(client!))
  if (state.waiting.length > 0) sendNext(state)
}

/** How long the statements of a text took, in this window of runs and in the one before. */
type Cost = { runs: number; leastMs: number; slowRuns: number; leastMsBefore: number; slowRunsBefore: number }

/** Runs of a window. */
const windowRuns = 32
/**
 * The quickest run tells what a statement costs: other load makes statements slower, and nothing makes them faster. Some runs
 * may still be slow by their values, and more than a few are too many.
 */
const quickMs = 2
const slowMs = 20
const mostSlowRuns = 3
const rememberedTexts = 2000

function isQuickCost(cost: Cost | undefined, presumed: boolean): boolean {
  if (cost === undefined) return presumed
  return Math.min(cost.leastMs, cost.leastMsBefore) <= quickMs && cost.slowRuns + cost.slowRunsBefore <= mostSlowRuns
}

function learn(costs: Map<string, Cost>, text: string, ms: number): void {
  let cost = costs.get(text)
  if (cost === undefined) {
    cost = { runs: 0, leastMs: ms, slowRuns: 0, leastMsBefore: ms, slowRunsBefore: 0 }
    if (costs.size >= rememberedTexts) costs.delete(costs.keys().next().value!)
    costs.set(text, cost)
  }
  if (cost.runs === windowRuns) {
    cost.leastMsBefore = cost.leastMs
    cost.slowRunsBefore = cost.slowRuns
    cost.runs = 0
    cost.slowRuns = 0
    cost.leastMs = ms
  }
  cost.runs += 1
  cost.leastMs = Math.min(cost.leastMs, ms)
  if (ms > slowMs) cost.slowRuns += 1
}
