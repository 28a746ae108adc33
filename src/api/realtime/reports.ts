import type { Socket } from 'socket.io'
import { AppError } from '../../errors.ts'
import type { Feed, Subscription } from '../../events/feed.ts'
import type { LogEvent } from '../../events/log-reader.ts'
import { listTag } from '../../features/items/versions.ts'
import type { Caller } from '../../features/permissions/permissions.ts'
import { type Evaluation, openEvaluator } from '../../features/reports/live.ts'
import { parseReport } from '../../features/reports/reports.ts'
import { isObject } from '../../query/guards.ts'
import type { ListQuery } from '../../query/parse.ts'
import type { Runtime } from '../../runtime.ts'

/**
 * Live reports: a socket asks for a report and gets it again, whole, whenever a commit has changed it. After a commit
 * that touched a collection it reads, a report is evaluated anew with what its reader may read by then, at most four
 * times a second; a result like the one before is not sent (docs/live-reports.md).
 */
export type LiveReports = {
  /** The id of the report and its first result. */
  subscribe(socket: Socket, request: unknown): Promise<object>
  unsubscribe(socket: Socket, request: unknown): void
  /** The socket is gone. */
  forget(socket: Socket): void
  /** What the socket's user may do has changed. */
  renew(socket: Socket): void
  /** Reports of all sockets. */
  total(): number
  close(): void
}

type Report = {
  readonly id: string
  readonly socket: Socket
  readonly collection: string
  readonly query: ListQuery
  /** Undefined until it has been evaluated: then everything concerns it. */
  reads: ReadonlySet<string> | undefined
  /** Of the result that was sent last. */
  tag: string | undefined
  /** Something has happened since the last evaluation began. */
  stale: boolean
  evaluating: boolean
  /** Of `performance.now()`: not to be evaluated before. */
  restsUntil: number
  timer: NodeJS.Timeout | undefined
}

const reportsAtMost = 20
const leastPauseMs = 250

/** `callerOf` looks the socket's session up; undefined when it has ended. */
export function openLiveReports(
  rt: Runtime,
  feed: Feed,
  callerOf: (socket: Socket) => Promise<Caller | undefined>,
): LiveReports {
  const evaluator = openEvaluator(rt)
  const bySocket = new Map<Socket, Map<string, Report>>()
  let live: Subscription | undefined
  let closed = false

  const all = () => [...bySocket.values()].flatMap((reports) => [...reports.values()])
  const isOpen = ({ socket, id }: Report) => bySocket.get(socket)?.has(id) === true

  const evaluate = async (report: Report): Promise<Evaluation> => {
    const caller = await callerOf(report.socket)
    if (caller === undefined) throw new AppError(401, 'Invalid or expired token')
    const evaluation = await evaluator.evaluate(caller.access, report.collection, report.query)
    report.reads = evaluation.reads
    return evaluation
  }

  const refresh = async (report: Report) => {
    report.timer = undefined
    report.evaluating = true
    report.stale = false
    try {
      send(report, await evaluate(report))
    } catch (error) {
      end(report, error)
    }
    report.evaluating = false
    report.restsUntil = performance.now() + leastPauseMs
    if (report.stale) refreshSoon(report)
  }

  const refreshSoon = (report: Report) => {
    report.stale = true
    if (report.evaluating || report.timer !== undefined || !isOpen(report)) return
    report.timer = setTimeout(
      () => {
        // Results for a reader who does not take them would only pile up.
        if (report.socket.conn.transport.writable) void refresh(report)
        else postpone(report)
      },
      Math.max(0, report.restsUntil - performance.now()),
    )
  }

  const postpone = (report: Report) => {
    report.timer = undefined
    report.restsUntil = performance.now() + leastPauseMs
    refreshSoon(report)
  }

  const send = (report: Report, { body }: Evaluation) => {
    const tag = listTag(body)
    if (tag === report.tag || !isOpen(report)) return
    report.tag = tag
    report.socket.emit(`report:${report.id}`, {
      id: report.id,
      ...JSON.parse(body),
      timestamp: rt.clock().toISOString(),
    })
  }

  const end = (report: Report, error: unknown) => {
    if (!isOpen(report)) return
    remove(report)
    if (!(error instanceof AppError)) rt.log.error({ err: error }, 'a live report failed')
    const message = error instanceof AppError ? error.message : 'Internal server error'
    report.socket.emit('report:ended', { id: report.id, message })
  }

  const remove = ({ socket, id, timer }: Report) => {
    clearTimeout(timer)
    const reports = bySocket.get(socket)
    reports?.delete(id)
    if (reports?.size === 0) bySocket.delete(socket)
    if (bySocket.size > 0) return
    live?.close()
    live = undefined
  }

  const hear = (batch: readonly LogEvent[]) => {
    const changed = new Set(batch.filter(({ type }) => type === 'data').map(({ entity }) => entity))
    for (const report of all())
      if (report.reads === undefined || [...report.reads].some((name) => changed.has(name))) refreshSoon(report)
  }

  /** Resolves when every later commit will be heard of. */
  const follow = async () => {
    if (live === undefined && !closed)
      live = feed.subscribe('now', hear, () => {
        live = undefined
        refollow()
      })
    await live?.started
  }

  const refollow = () => {
    if (bySocket.size === 0) return
    follow()
      .then(() => all().forEach(refreshSoon))
      .catch((error: unknown) => {
        for (const report of all()) end(report, error)
      })
  }

  rt.catalog.onChange(() => all().forEach(refreshSoon))

  return {
    subscribe: async (socket, request) => {
      const { collection, query } = readRequest(request)
      const reports = bySocket.get(socket) ?? new Map<string, Report>()
      if (reports.size >= reportsAtMost) throw new AppError(400, 'Too many live reports on one connection')
      const report = newReport(rt.newId(), socket, collection, query)
      bySocket.set(socket, reports.set(report.id, report))
      try {
        await follow()
        const first = await evaluate(report)
        report.tag = listTag(first.body)
        return { id: report.id, ...JSON.parse(first.body) }
      } catch (error) {
        remove(report)
        throw error
      } finally {
        report.evaluating = false
        report.restsUntil = performance.now() + leastPauseMs
        if (report.stale) refreshSoon(report)
      }
    },
    unsubscribe: (socket, request) => {
      const { id } = isObject(request) ? request : {}
      const report = bySocket.get(socket)?.get(String(id))
      if (report !== undefined) remove(report)
    },
    forget: (socket) => [...(bySocket.get(socket)?.values() ?? [])].forEach(remove),
    renew: (socket) => bySocket.get(socket)?.forEach(refreshSoon),
    total: () => all().length,
    close: () => {
      closed = true
      all().forEach(remove)
    },
  }
}

/** Until its first result is there it counts as being evaluated. */
const newReport = (id: string, socket: Socket, collection: string, query: ListQuery): Report => ({
  id,
  socket,
  collection,
  query,
  reads: undefined,
  tag: undefined,
  stale: false,
  evaluating: true,
  restsUntil: 0,
  timer: undefined,
})

/** `{collection, …}`: beside the collection the keys of a report's body. */
function readRequest(request: unknown): { collection: string; query: ListQuery } {
  const { collection, ...body } = isObject(request) ? request : {}
  if (typeof collection !== 'string') throw new AppError(400, 'collection is required')
  return { collection, query: parseReport(body) }
}
