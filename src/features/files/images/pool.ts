import type { Logger } from 'pino'
import { AppError, errors } from '../../../errors.ts'
import { ChildDeathError, type ChildLine, openChildPool } from '../../../language/child-pool.ts'
import { moduleFile } from '../../../language/module-file.ts'
import {
  type Fault,
  type FromChild,
  type ImageLimits,
  memoryFlag,
  type Result,
  type Task,
  type ToChild,
} from './protocol.ts'

/** The work of a process, made when its turn has come. */
type Prepared = {
  readonly task: Task
  /** The bytes from `start` up to, but without, `end`, of a file of sound or film. */
  readonly read?: (start: number, end: number) => Promise<Uint8Array>
}

type PoolJob<T> = {
  /** The caller who takes turns with others. */
  readonly turn: string
  /** Goes first and is never refused. */
  readonly isQuick: boolean
  /** How long its process may compute. */
  readonly timeLimitMs: number
  /** Aborts when nobody waits for it any more. */
  readonly signal?: AbortSignal | undefined
  /** Called again if its process died. A `ready` result needs no process. */
  readonly prepare: () => Promise<Prepared | { readonly ready: T }>
}

/** Why a job could not be done. `deadly`: it took too much time or memory, or processes died of it. */
export class JobFault extends Error {
  override readonly name = 'JobFault'
  readonly fault: Fault | 'deadly'
  constructor(fault: Fault | 'deadly', message: string) {
    super(message)
    this.fault = fault
  }
}

export type ImagePool = {
  /** @throws {JobFault} and 503 where too many wait, or no process can be started */
  run<T = never>(job: PoolJob<T>): Promise<Result | T>
  /** Jobs that wait, and processes. */
  load(): { readonly waiting: number; readonly processes: number }
  close(): Promise<void>
}

type PoolOptions = {
  readonly log: Logger
  readonly limits: ImageLimits
  /** Megabytes that one process may take. */
  readonly memoryMb: number
  /** Where the library puts what does not fit into memory. */
  readonly tempDir: string
}

/** A client hears of it before its connection is given up. */
const longestWaitMs = 45_000
/** A process that yields to all others may not get its time within so many times as long, but for short times. */
const patience = 4
const leastPatienceMs = 20_000
/** A child that is asked for a file may read so much of it: what containers say stands at their ends. */
const mostRead = 32 * 1_048_576
const mostReadAtOnce = 4 * 1_048_576

/** Two processes at most, for what the files of strangers make of a decoder (ADR 0044). */
export function openPool({ log, limits, memoryMb, tempDir }: PoolOptions): ImagePool {
  const pool = openChildPool<ToChild, FromChild>({
    log,
    name: 'images',
    script: moduleFile(import.meta.dirname, 'image-process'),
    args: [`${memoryFlag}${memoryMb}`],
    // No secret of the environment can be in its memory.
    env: { MALLOC_ARENA_MAX: '2', TMPDIR: tempDir },
    serialization: 'advanced',
    atOnce: 2,
    mostWaiting: 100,
    mostDeaths: 2,
    unusedMs: 30_000,
    longestWaitMs,
    refusal: tooMany,
  })
  return {
    run: ({ turn, isQuick, timeLimitMs, signal, prepare }) =>
      pool
        .run({
          ...{ turn, isQuick, signal },
          run: async (line) => {
            const prepared = await prepare()
            if ('ready' in prepared) return prepared.ready
            line.limit({
              computeMs: timeLimitMs,
              passedMs: Math.max(leastPatienceMs, patience * timeLimitMs),
              lookMs: timeLimitMs / 10,
              refusal: (overrun) => (overrun === 'passed' ? starved() : new JobFault('deadly', 'it takes too long')),
            })
            return answerOf(line, prepared, limits)
          },
        })
        .catch((error: unknown) => {
          throw error instanceof ChildDeathError ? new JobFault('deadly', error.message) : error
        }),
    load: () => pool.load(),
    close: () => pool.close(),
  }
}

function answerOf(line: ChildLine<ToChild, FromChild>, { task, read }: Prepared, limits: ImageLimits): Promise<Result> {
  const { promise, resolve, reject } = Promise.withResolvers<Result>()
  const onRead = readingFor(line, read)
  line.listen((message) => {
    if (message.kind === 'read') void onRead(message)
    else if (message.kind === 'done') resolve(message.result)
    else if (message.kind === 'failed') reject(new JobFault(message.fault, message.message))
  })
  line.send({ kind: 'task', task, limits })
  return promise
}

/** Answers what a process wants to read of its file, one piece after the other. */
function readingFor(line: ChildLine<ToChild, FromChild>, read: Prepared['read']) {
  let total = 0
  return async ({ start, end }: Extract<FromChild, { kind: 'read' }>): Promise<void> => {
    total += end - start
    if (read === undefined || end - start > mostReadAtOnce || total > mostRead)
      return line.send({ kind: 'no bytes', message: 'too much of the file is asked for' })
    try {
      line.send({ kind: 'bytes', bytes: await read(start, end) })
    } catch (error) {
      line.send({ kind: 'no bytes', message: (error as Error).message })
    }
  }
}

const starved = () => errors.unavailable('This machine has no time for images now. Please try again later.')

const tooMany = () =>
  new AppError(503, 'Too many images are being processed. Please try again later.', {
    code: 'OVERLOADED',
    headers: { 'retry-after': '5' },
  })
