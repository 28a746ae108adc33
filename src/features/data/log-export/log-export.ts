import { Readable } from 'node:stream'
import { logKeys } from '../../../adapters/log-key.ts'
import { forSameAsker } from '../../../admission/asker.ts'
import type { Configuration } from '../../../config/config.ts'
import type { Reads } from '../../../db/pools.ts'
import { AppError, errors } from '../../../errors.ts'
import { type Cursor, cursorAt, encodeCursor, parseCursor, parseSnapshot } from '../../../events/cursor.ts'
import { oldestMoment } from '../../../events/log-reader.ts'
import { type Head, keysOfChain, newestHead } from '../../../events/seals/seals.ts'
import { type Access, systemAccess } from '../../../query/access.ts'
import type { LogReads } from './capabilities.ts'
import { boundsOf, type ExportFilter, newestEvents, openPages, presentLog, type Stage } from './queries.ts'

/** The choice of an export; without members the whole kept log. */
export type ExportRequest = ExportFilter & {
  /** A cursor of a line, or of the answer's header. */
  readonly since?: string | undefined
}

type LogExport = {
  /** NDJSON: an event a line, each with a cursor from which an export goes on after it. */
  readonly lines: Readable
  /** Of the moment that the export reaches to: from which the next one goes on. */
  readonly cursor: string
}

/**
 * The events of the log that the caller may read, in rounds and by position within each: nothing is missed and nothing comes
 * twice for who goes on from a cursor, however many write meanwhile. Read page by page as the lines are taken, so neither
 * memory nor a snapshot of the database grows with the log; holds a place for heavy work until the lines have ended.
 *
 * 403 without a read grant on svc_AuditLog, 400 for what makes no sense, 410 where the log no longer reaches back to `since`.
 */
export async function exportLog(deps: LogReads, access: Access, request: ExportRequest): Promise<LogExport> {
  const since = request.since === undefined ? undefined : parseCursor(request.since)
  const readPage = openPages(deps, access, request)
  const place = await deps.admission.enter({ shape: 'log export', presumed: 'heavy' })
  try {
    const { stages, end } = await stagesOf(deps, since)
    const pages = textOf(deps, stages, readPage)
    // An error of the first page is an ordinary answer.
    const first = await pages.next()
    const resumed = forSameAsker()
    const lines = Readable.from(
      chunksOf(first, () => resumed(() => pages.next())),
      { objectMode: false },
    )
    lines.once('close', () => place.leave())
    return { lines, cursor: encodeCursor(end) }
  } catch (error) {
    place.leave()
    throw error
  }
}

/** As {@link exportLog}, as the platform itself sees the log: all of it. */
export const exportWholeLog = (deps: LogReads, request: ExportRequest): Promise<LogExport> =>
  exportLog(deps, systemAccess, request)

/** The newest events as JSON texts, and the cursor from which an export goes on after them. */
export async function tailLog(
  deps: LogReads,
  { count, ...filter }: ExportFilter & { readonly count: number },
): Promise<{ events: readonly string[]; cursor: string }> {
  const { snapshot: upTo, lineage } = await presentLog(deps.db)
  return {
    events: await newestEvents(deps, systemAccess, { ...filter, count, upTo }),
    cursor: encodeCursor({ ...cursorAt(upTo), lineage }),
  }
}

/** The newest head of the seals, to be kept elsewhere. 404 where nothing was ever sealed. */
export async function readHead({ db }: Reads): Promise<Head> {
  const head = await newestHead(db)
  if (head === undefined) throw new AppError(404, 'Nothing of the log is sealed yet')
  return head
}

/** The public keys that heads are signed with: the present one, and those that the chain names besides. */
export async function readLogKeys({ config, db }: Reads & Configuration) {
  const [present, ...previous] = logKeys(config).keys ?? []
  const named = await keysOfChain(db)
  const own = [present, ...previous].flatMap((key) => (key === undefined ? [] : [key.id]))
  const keys = named.map((key) => ({ ...key, ours: own.includes(key.id) }))
  return { algorithm: 'Ed25519' as const, key: present?.id ?? null, publicKey: present?.publicKey ?? null, keys }
}

type Result = IteratorResult<string, void>

async function* chunksOf(first: Result, next: () => Promise<Result>): AsyncGenerator<string> {
  for (let page = first; page.done !== true; page = await next()) yield page.value
}

async function* textOf(
  { db }: LogReads,
  stages: readonly Stage[],
  readPage: ReturnType<typeof openPages>,
): AsyncGenerator<string, void> {
  for (const stage of stages) {
    const bounds = await boundsOf(db, stage)
    for (let at = bounds; at !== undefined; ) {
      const { text, next } = await readPage(stage, at)
      if (text !== '') yield text
      at = next
    }
  }
}

/** The rest of the cursor's round, then the round until now. */
async function stagesOf({ db }: LogReads, since: Cursor | undefined) {
  const { snapshot: now, removed, lineage } = await presentLog(db)
  const wanted: Cursor = since ?? cursorAt(beginning)
  const { snapshot: from, upTo, position, lineage: known } = wanted
  const start = parseSnapshot(from)!
  const isWhole = from === beginning
  const hasHappened = [from, ...(upTo === undefined ? [] : [upTo])].every(
    (text) => parseSnapshot(text)!.xmax <= parseSnapshot(now)!.xmax,
  )
  const isOther = known !== undefined && known !== lineage
  if (isOther || !hasHappened || (!isWhole && BigInt(removed) >= start.xmin))
    throw errors.historyGone(await oldestMoment(db))
  const stages: Stage[] =
    upTo === undefined
      ? [{ from, upTo: now, after: '0', isWhole, lineage }]
      : [
          { from, upTo, after: position, isWhole, lineage },
          { from: upTo, upTo: now, after: '0', isWhole: false, lineage },
        ]
  return { stages, end: { ...cursorAt(now), lineage } }
}

/** In which nothing is visible: before the first transaction of every server. */
const beginning = '1:1:'
