import { AsyncLocalStorage } from 'node:async_hooks'
import { oneByOneState } from '../catalog/log-triggers.ts'
import { AnswerLost, sqlState } from '../db/errors.ts'
import type { Database } from '../db/pools.ts'
import { oncePer } from '../language/once.ts'
import { type Actor, actorJson } from './actor.ts'

/**
 * One-row writes of several requests by one statement (ADR 74): the transaction, the trigger and the round trip are most of
 * what a row costs, and eight rows share them. A row is never kept waiting for others: only while statements of its kind
 * are under way, which is when others come. Each stays its request's own: its actor in the log, its answer, its error.
 */

/** A row that may be written by one statement with others of its kind. */
export type BatchedRow = {
  readonly kind: RowKind
  /** As `kind.statement` takes them. */
  readonly values: readonly unknown[]
  /** The row's key as text, where it is known before it is written. */
  readonly key?: string | undefined
}

/** The properties that rows of one statement share; compared by identity. */
export type RowKind = {
  /**
   * The statement for rows with these values. Its first parameter, the actors, is not among the values. It answers a row for
   * each that was written: with its `place` among these where rows have keys, else in their order, all of them.
   */
  readonly statement: (rows: readonly (readonly unknown[])[]) => { readonly text: string; readonly values: unknown[] }
}

type AnsweredRow = { readonly place?: number }

/** `gone` aborts when the client no longer waits: a row that has not begun then is not written. */
type WritingRequest = { readonly actor: Actor; readonly gone: AbortSignal | undefined }

type Writer = {
  /**
   * Writes the row, with others that wait or by `alone`, which is also how it is written when that was refused for any of
   * them: then its error is its own.
   *
   * @throws what `alone` throws; {@link AnswerLost} where a statement that wrote it as well may have been carried out
   */
  readonly write: <Answer>(
    row: BatchedRow,
    request: WritingRequest,
    alone: () => Promise<Answer[]>,
  ) => Promise<Answer[]>
}

/** Of a pool. */
export const rowBatchesOf = oncePer((hot: Database): Writer => {
  const lines = new WeakMap<RowKind, BatchLine>()
  return {
    write: async (row, request, alone) => {
      let line = lines.get(row.kind)
      if (line === undefined) {
        line = { running: 0, waiting: [], apartUntil: 0, aloneMs: 0, togetherMs: 0 }
        lines.set(row.kind, line)
      }
      if (performance.now() < line.apartUntil) return alone()
      if (line.running < statementsAtOnce) return inLine(hot, line, () => timed(line, alone))
      const answer = Promise.withResolvers<never[]>()
      const within = AsyncLocalStorage.snapshot()
      line.waiting.push({ row, request, alone: alone as BatchMember['alone'], answer, within })
      return answer.promise
    },
  }
})

/** Those of one kind. */
type BatchLine = {
  /** Statements that began within the last moment. */
  running: number
  waiting: BatchMember[]
  /** Until then each is written alone. */
  apartUntil: number
  /** The duration of one alone, as a moving mean; 0 if unknown. */
  aloneMs: number
  /** The same per row of a batch. */
  togetherMs: number
}

type BatchMember = {
  readonly row: BatchedRow
  readonly request: WritingRequest
  readonly alone: () => Promise<never[]>
  readonly answer: PromiseWithResolvers<never[]>
  /** Does something for the request. */
  readonly within: <T>(work: () => T) => T
}

/** One is answered while the other is under way. */
const statementsAtOnce = 2
const rowsAtMost = 32
/** So few save little anyway. */
const fewRows = 4
/**
 * For so long others wait for a statement: it may itself wait for a lock. The statement of a batch gives up waiting for one
 * after as long (`actorsCte` in log.ts).
 */
const placeMs = 20
/** After a batch that failed, or when batches save too little. */
const apartMs = 250
/** After a batch that is not allowed. */
const notAllowedMs = 60_000

async function inLine<T>(hot: Database, line: BatchLine, work: () => Promise<T>): Promise<T> {
  let holdsPlace = true
  const leave = () => {
    if (!holdsPlace) return
    holdsPlace = false
    line.running -= 1
    next(hot, line)
  }
  line.running += 1
  const timer = setTimeout(leave, placeMs)
  try {
    return await work()
  } finally {
    clearTimeout(timer)
    leave()
  }
}

function next(hot: Database, line: BatchLine): void {
  while (line.running < statementsAtOnce && line.waiting.length > 0) {
    const [members, left] = takeBatch(line.waiting)
    line.waiting = left
    void inLine(hot, line, () => writeAll(hot, line, members))
  }
}

/** The first ones, of each key one: a statement changes a row once. Pure. */
export function takeBatch<Waiting extends { readonly row: Pick<BatchedRow, 'key'> }>(
  waiting: readonly Waiting[],
): [taken: Waiting[], left: Waiting[]] {
  const keys = new Set<string>()
  const taken: Waiting[] = []
  const left: Waiting[] = []
  for (const member of waiting) {
    const { key } = member.row
    const isFree = key === undefined || !keys.has(key)
    if (isFree && taken.length < rowsAtMost) {
      taken.push(member)
      if (key !== undefined) keys.add(key)
    } else left.push(member)
  }
  return [taken, left]
}

/** Never rejects: each member is told. */
async function writeAll(hot: Database, line: BatchLine, members: readonly BatchMember[]): Promise<void> {
  const [only] = members
  const isLeft = members.some(({ request }) => request.gone?.aborted)
  if (members.length === 1 || isLeft || performance.now() < line.apartUntil) {
    await Promise.allSettled(members.map((member) => tellAlone(line, member)))
    return
  }
  const began = performance.now()
  let rows: readonly AnsweredRow[]
  try {
    const { text, values } = only!.row.kind.statement(members.map(({ row }) => row.values))
    rows = await only!.within(() => hot.run<AnsweredRow>(text, [actorsJson(members), ...values], 'prepared'))
  } catch (error) {
    if (error instanceof AnswerLost) {
      for (const { answer } of members) answer.reject(error)
      return
    }
    line.apartUntil = performance.now() + (isNotAllowed(sqlState(error)) ? notAllowedMs : apartMs)
    await Promise.allSettled(members.map((member) => tellAlone(line, member)))
    return
  }
  judge(line, performance.now() - began, members.length)
  await answerAll(line, members, rows)
}

/** By the table, or by PostgreSQL (class 42), which does not take every condition that it takes for one row for many. */
const isNotAllowed = (state: string | undefined): boolean => state === oneByOneState || state?.startsWith('42') === true

/** Where rows cost so much themselves that together they save nothing, several connections write them sooner. */
function judge(line: BatchLine, tookMs: number, rows: number): void {
  if (rows < fewRows) return
  line.togetherMs = meanWith(line.togetherMs, tookMs / rows)
  if (line.aloneMs === 0 || line.togetherMs < line.aloneMs / 2) return
  line.apartUntil = performance.now() + apartMs
  line.togetherMs = 0
}

const meanWith = (mean: number, ms: number): number => (mean === 0 ? ms : mean + (ms - mean) / 16)

async function answerAll(
  line: BatchLine,
  members: readonly BatchMember[],
  rows: readonly AnsweredRow[],
): Promise<void> {
  const missing = new Set(members.keys())
  for (const [nth, row] of rows.entries()) {
    const { place = nth, ...answer } = row
    missing.delete(place)
    members[place]!.answer.resolve([answer] as never[])
  }
  // Not there, or not the caller's: it is refused in the words of a statement of its own.
  await Promise.allSettled([...missing].map((place) => tellAlone(line, members[place]!)))
}

async function tellAlone(line: BatchLine, { within, alone, answer }: BatchMember): Promise<void> {
  await within(() => timed(line, alone)).then(answer.resolve, answer.reject)
}

async function timed<T>(line: BatchLine, work: () => Promise<T>): Promise<T> {
  const began = performance.now()
  const answer = await work()
  line.aloneMs = meanWith(line.aloneMs, performance.now() - began)
  return answer
}

/** As the triggers read them: by the keys of the rows, or in their order. */
function actorsJson(members: readonly BatchMember[]): string {
  const isKeyed = members[0]!.row.key !== undefined
  const actors = members.map(({ row, request: { actor } }) =>
    isKeyed ? `${JSON.stringify(row.key)}:${actorJson(actor)}` : actorJson(actor),
  )
  return isKeyed ? `{"each":{${actors}}}` : `{"each":[${actors}]}`
}
