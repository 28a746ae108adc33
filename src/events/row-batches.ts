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
  const lineOf = oncePer(
    (_kind: RowKind): BatchLine => ({ rows: 0, waiting: [], apartUntil: 0, aloneMs: 0, togetherMs: 0 }),
  )
  return {
    write: async <Answer>(row: BatchedRow, request: WritingRequest, alone: () => Promise<Answer[]>) => {
      const line = lineOf(row.kind)
      if (performance.now() < line.apartUntil) return alone()
      if (line.rows < rowsAtOnce) return inPlace(takePlace(line, 1), () => timed(line, alone))
      const turn = Promise.withResolvers<Turn>()
      line.waiting.push({ row, request, turn })
      const { lead, answer } = await turn.promise
      if (lead === undefined) return (answer as Answer[] | undefined) ?? timed(line, alone)
      const { members, leave } = lead
      return inPlace(
        leave,
        async () => ((await writeFor(hot, line, members)) as Answer[] | undefined) ?? timed(line, alone),
      )
    },
  }
})

/** Those of one kind. */
type BatchLine = {
  /** Those of the statements under way that began within the last moment. */
  rows: number
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
  readonly turn: PromiseWithResolvers<Turn>
}

/**
 * A row's request, when it has waited, writes all of a batch in a place that was taken for it, or gives its answer, or, without
 * one, writes its row alone.
 *
 * Each does so itself, after an `await`, and so in its own context, which `AsyncLocalStorage.snapshot()` would keep from young
 * collections, with all that the request has made (ADR 80).
 */
type Turn =
  | { readonly lead: { readonly members: readonly BatchMember[]; readonly leave: () => void }; readonly answer?: never }
  | { readonly lead?: never; readonly answer: readonly AnsweredRow[] | undefined }

/**
 * So many rows under way make the others wait: a statement begins beside one that writes a single row, which keeps two clients
 * from waiting for each other, and beside no other. What came meanwhile is then one batch instead of two, and costs a quarter less.
 */
const rowsAtOnce = 2
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

/** The place is given back by the function, and by itself after {@link placeMs}. */
function takePlace(line: BatchLine, rows: number): () => void {
  let isHeld = true
  const leave = () => {
    if (!isHeld) return
    isHeld = false
    clearTimeout(timer)
    line.rows -= rows
    next(line)
  }
  line.rows += rows
  const timer = setTimeout(leave, placeMs)
  return leave
}

async function inPlace<T>(leave: () => void, work: () => Promise<T>): Promise<T> {
  try {
    return await work()
  } finally {
    leave()
  }
}

function next(line: BatchLine): void {
  while (line.rows < rowsAtOnce && line.waiting.length > 0) {
    const [members, left] = takeBatch(line.waiting)
    line.waiting = left
    members[0]!.turn.resolve({ lead: { members, leave: takePlace(line, members.length) } })
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

/** Writes the rows and tells the others; gives the first one's answer, as {@link writeTogether} does. */
async function writeFor(
  hot: Database,
  line: BatchLine,
  members: readonly BatchMember[],
): Promise<readonly AnsweredRow[] | undefined> {
  const others = members.slice(1)
  try {
    const [own, ...answers] = await writeTogether(hot, line, members)
    for (const [nth, { turn }] of others.entries()) turn.resolve({ answer: answers[nth] })
    return own
  } catch (error) {
    for (const { turn } of others) turn.reject(error)
    throw error
  }
}

/**
 * The answer for each of them; undefined for one that has to write its row alone.
 *
 * @throws {@link AnswerLost}
 */
async function writeTogether(
  hot: Database,
  line: BatchLine,
  members: readonly BatchMember[],
): Promise<readonly (readonly AnsweredRow[] | undefined)[]> {
  const isLeft = members.some(({ request }) => request.gone?.aborted)
  if (members.length === 1 || isLeft || performance.now() < line.apartUntil) return []
  const began = performance.now()
  let rows: readonly AnsweredRow[]
  try {
    const { text, values } = members[0]!.row.kind.statement(members.map(({ row }) => row.values))
    rows = await hot.run<AnsweredRow>(text, [actorsJson(members), ...values], 'prepared')
  } catch (error) {
    if (error instanceof AnswerLost) throw error
    line.apartUntil = performance.now() + (isNotAllowed(sqlState(error)) ? notAllowedMs : apartMs)
    return []
  }
  judge(line, performance.now() - began, members.length)
  // A row that is missing is not there, or not the caller's: it is refused in the words of a statement of its own.
  const answers = new Array<readonly AnsweredRow[] | undefined>(members.length)
  for (const [nth, { place = nth, ...answer }] of rows.entries()) answers[place] = [answer]
  return answers
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
