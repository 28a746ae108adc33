import type { Socket } from 'socket.io'
import type { Caller } from '../../access/principal.ts'
import type { IdSource } from '../../adapters/ids.ts'
import type { Logs } from '../../adapters/logger.ts'
import type { Clock } from '../../db/clock.ts'
import { clientError } from '../../db/errors.ts'
import { AppError } from '../../errors.ts'
import type { Feed, Subscription } from '../../events/feed.ts'
import type { LogEvent } from '../../events/log-reader.ts'
import { listTag } from '../../features/data/items/items.ts'
import { type Evaluation, openEvaluator, parseReport } from '../../features/data/reports/reports.ts'
import type { ListQuery } from '../../query/parse.ts'
import type { RealtimeReads } from '../capabilities.ts'
import { beginning, type LiveReportInput, type ReportState, step } from './live-report.ts'
import { readMessage } from './messages.ts'
import { oneMessageOf } from './views.ts'

/**
 * Live reports: a socket asks for a report and gets it again, whole, whenever a commit has changed it. After a commit
 * that touched a collection it reads, a report is evaluated anew with what its reader may read by then, at most four
 * times a second; a result like the one before is not sent (docs/live-reports.md).
 */
export type LiveReports = {
  /** The id of the report and its first result. */
  subscribe(socket: Socket, request: unknown): Promise<object>
  unsubscribe(socket: Socket, request: unknown): Promise<object>
  /** The socket is gone. */
  forget(socket: Socket): void
  /** The rights of the socket's user have changed. */
  renew(socket: Socket): void
  /** Reports of all sockets. */
  total(): number
  close(): void
}

type OpenReport = {
  readonly id: string
  readonly socket: Socket
  readonly collection: string
  readonly query: ListQuery
  state: ReportState
  timer: NodeJS.Timeout | undefined
}

type Shell = {
  readonly deps: Clock & IdSource & Logs
  readonly feed: Feed
  readonly callerOf: (socket: Socket) => Promise<Caller | undefined>
  readonly evaluator: ReturnType<typeof openEvaluator>
  readonly bySocket: Map<Socket, Map<string, OpenReport>>
  live: Subscription | undefined
  closed: boolean
}

const reportsAtMost = 20

/** `callerOf` looks the socket's session up; undefined when it has ended. */
export function openLiveReports(deps: RealtimeReads, feed: Feed, callerOf: Shell['callerOf']): LiveReports {
  const bySocket: Shell['bySocket'] = new Map()
  const shell: Shell = {
    deps,
    feed,
    callerOf,
    evaluator: openEvaluator(deps),
    bySocket,
    live: undefined,
    closed: false,
  }
  deps.catalog.onChange(() => touchAll(shell))
  return {
    subscribe: async (socket, request) => {
      try {
        return await subscribe(shell, socket, request)
      } catch (error) {
        const known = clientError(error)
        throw known === undefined ? error : inWords(known)
      }
    },
    unsubscribe: async (socket, request) => {
      const { id } = readMessage('report:unsubscribe', request)
      const report = bySocket.get(socket)?.get(String(id))
      if (report !== undefined) remove(shell, report)
      return {}
    },
    forget: (socket) => {
      for (const report of bySocket.get(socket)?.values() ?? []) remove(shell, report)
    },
    renew: (socket) => {
      for (const report of bySocket.get(socket)?.values() ?? []) touch(shell, report)
    },
    total: () => all(shell).length,
    close: () => {
      shell.closed = true
      for (const report of all(shell)) remove(shell, report)
    },
  }
}

const all = ({ bySocket }: Shell): OpenReport[] => [...bySocket.values()].flatMap((reports) => [...reports.values()])

/** `{collection, …}`: beside the collection the keys of a report's body. */
async function subscribe(shell: Shell, socket: Socket, request: unknown): Promise<object> {
  const { deps, bySocket } = shell
  const { collection, ...body } = readMessage('report:subscribe', request)
  const query = parseReport(body)
  const reports = bySocket.get(socket) ?? new Map<string, OpenReport>()
  if (reports.size >= reportsAtMost) throw new AppError(400, 'Too many live reports on one connection')
  const report: OpenReport = { id: deps.newId(), socket, collection, query, state: beginning, timer: undefined }
  bySocket.set(socket, reports.set(report.id, report))
  try {
    await follow(shell)
    const first = await evaluate(shell, report)
    take(shell, report, { is: 'evaluated', tag: listTag(first.body), reads: first.reads, at: performance.now() })
    return { id: report.id, ...JSON.parse(first.body) }
  } catch (error) {
    remove(shell, report)
    throw error
  }
}

async function evaluate(
  { callerOf, evaluator }: Shell,
  { socket, collection, query }: OpenReport,
): Promise<Evaluation> {
  const caller = await callerOf(socket)
  if (caller === undefined) throw new AppError(401, 'Invalid or expired token')
  return evaluator.evaluate(caller.access, collection, query)
}

/** Resolves when every later commit will be noticed. */
async function follow(shell: Shell): Promise<void> {
  if (shell.live === undefined && !shell.closed)
    shell.live = shell.feed.subscribe(
      'now',
      (batch) => notice(shell, batch),
      () => {
        shell.live = undefined
        refollow(shell)
      },
    )
  await shell.live?.started
}

function refollow(shell: Shell): void {
  if (shell.bySocket.size === 0) return
  follow(shell)
    .then(() => touchAll(shell))
    .catch((error: unknown) => {
      for (const report of all(shell)) end(shell, report, error)
    })
}

function notice(shell: Shell, batch: readonly LogEvent[]): void {
  const collections = new Set(batch.filter(({ type }) => type === 'data').map(({ entity }) => entity))
  const input = { is: 'changed', collections, at: performance.now() } as const
  for (const report of all(shell)) take(shell, report, input)
}

function touchAll(shell: Shell): void {
  for (const report of all(shell)) touch(shell, report)
}

const touch = (shell: Shell, report: OpenReport): void => take(shell, report, { is: 'touched', at: performance.now() })

/** `evaluation`: what the input is about, where it is an evaluation. */
function take(shell: Shell, report: OpenReport, input: LiveReportInput, evaluation?: Evaluation): void {
  if (!isOpen(shell, report)) return
  const [state, effects] = step(report.state, input)
  report.state = state
  for (const effect of effects) {
    if (effect.do === 'evaluate') void refresh(shell, report)
    else if (effect.do === 'send') send(shell, report, evaluation!)
    else report.timer = setTimeout(() => wake(shell, report), effect.inMs)
  }
}

const isOpen = ({ bySocket }: Shell, { socket, id }: OpenReport): boolean => bySocket.get(socket)?.has(id) === true

function wake(shell: Shell, report: OpenReport): void {
  const isFree = report.socket.conn.transport.writable
  take(shell, report, { is: 'due', isFree, at: performance.now() })
}

async function refresh(shell: Shell, report: OpenReport): Promise<void> {
  try {
    const evaluation = await evaluate(shell, report)
    const { body, reads } = evaluation
    take(shell, report, { is: 'evaluated', tag: listTag(body), reads, at: performance.now() }, evaluation)
  } catch (error) {
    end(shell, report, error)
  }
}

function send({ deps }: Shell, { id, socket }: OpenReport, { body }: Evaluation): void {
  socket.emit(`report:${id}`, { id, ...JSON.parse(body), timestamp: deps.clock().toISOString() })
}

function end(shell: Shell, report: OpenReport, error: unknown): void {
  if (!isOpen(shell, report)) return
  remove(shell, report)
  const known = clientError(error)
  if (known === undefined) shell.deps.log.error({ err: error }, 'a live report failed')
  else if (known.status >= 500) shell.deps.log.warn({ err: error }, 'a live report ended')
  report.socket.emit('report:ended', {
    id: report.id,
    message: (known && inWords(known).message) ?? 'Internal server error',
  })
}

/** A refused query with what is wrong in it, as `POST /reports` tells it. */
const inWords = (known: AppError): AppError => (known.status === 400 ? oneMessageOf(known, known.code) : known)

function remove(shell: Shell, { socket, id, timer }: OpenReport): void {
  const { bySocket } = shell
  clearTimeout(timer)
  const reports = bySocket.get(socket)
  reports?.delete(id)
  if (reports?.size === 0) bySocket.delete(socket)
  if (bySocket.size > 0) return
  shell.live?.close()
  shell.live = undefined
}
