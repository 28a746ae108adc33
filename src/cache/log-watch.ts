import { logSchema, logTable } from '../catalog/log-triggers.ts'
import type { Database } from '../db/pools.ts'
import { type WalPosition, walEndSql } from '../db/replicas/write-positions.ts'
import { inRounds } from '../db/rounds.ts'
import { includesSnapshot, parseSnapshot, type Snapshot } from '../events/cursor.ts'
import { unseenSql, unseenValues } from '../events/log-reader.ts'

/**
 * Knows which collections have changed, by asking the log (ADR 19). A *look* reads what became visible between two
 * snapshots, as the feed does, but only names. Looks are numbered; nothing has to announce a write, so nothing can forget
 * to: cascades, triggers, other processes and psql are all in the log.
 */
export type LogWatch = {
  /**
   * The number of the newest look; it began at most `maxAgeMs` ago and after the last `written()`. With 0 it began after
   * this call, so everything committed before the call is known. Rejects when the database can't tell.
   */
  look(maxAgeMs: number): Promise<Look>
  /** This process has committed something: the next look is a new one. */
  written(): void
  /** Whether nothing in the tables has changed since the look with this number. */
  isUnchanged(tables: Iterable<string>, since: number): boolean
  /** Whether a reader with this `snapshot` has seen every change of the tables that is known here. */
  hasSeenAll(tables: Iterable<string>, snapshot: Snapshot): boolean
  /** Whether nothing at all has changed since. */
  isQuiet(since: number): boolean
  /**
   * The newest look of which a standby that has replayed this much shows everything; undefined when there is none, or it is
   * too long ago. Only where the watch was opened with `noteWal`.
   */
  lookReplayedBy(position: WalPosition): number | undefined
  /** The duration of a look in milliseconds, as a moving mean. */
  costMs(): number
  /** Which database this is: the same for every process, another one after a restore elsewhere. */
  identity(): string
}

export type Look = { readonly number: number; readonly snapshot: string }

type LogWatchOptions = {
  /** The primary: a standby's snapshots do not list what runs. */
  db: Database
  /** How far back the first look reads, so that answers are worth something that others made before. */
  reachBackSeconds: number
  /** Whether standbys are read from, so that looks must be found by their place in the write-ahead log. */
  noteWal?: boolean
}

/** Opens a watch that has not looked yet. */
export function openLogWatch({ db, reachBackSeconds, noteWal = false }: LogWatchOptions): LogWatch {
  const timeline = openTimeline()
  const places = openWalPlaces()
  const reader = openLookReader({ db, reachBackSeconds, noteWal }, timeline, places)
  let costMs = 1
  let newest: TimedLook | undefined
  let writes = 0

  const newLook = inRounds<never, TimedLook>(async () => {
    const start = { startedAt: performance.now(), writes }
    try {
      const known = newest !== undefined && start.startedAt - newest.startedAt < longestGapMs ? newest : undefined
      newest = { ...((known && (await reader.follow(known.snapshot))) ?? (await reader.beginAnew())), ...start }
      costMs = meanWith(costMs, performance.now() - start.startedAt)
      if (newest.wal !== null) places.note(newest.number, BigInt(newest.wal))
      return newest
    } catch (error) {
      // The server that answers next may be another one, or the same restored.
      newest = undefined
      throw error
    }
  })

  return {
    look: async (maxAgeMs) => {
      const known = newest?.writes === writes && performance.now() - newest.startedAt < maxAgeMs ? newest : undefined
      const { number, text } = known ?? (await newLook())
      return { number, snapshot: text }
    },
    written: () => {
      writes += 1
    },
    isUnchanged: timeline.isUnchanged,
    hasSeenAll: (tables, snapshot) =>
      newest !== undefined && snapshot.xmax <= newest.snapshot.xmax && timeline.hasSeenAll(tables, snapshot),
    isQuiet: timeline.isQuiet,
    lookReplayedBy: places.newestUpTo,
    costMs: () => costMs,
    identity: reader.identity,
  }
}

/** Reads what the looks see, and tells the timeline. */
function openLookReader(
  { db, reachBackSeconds, noteWal }: Required<LogWatchOptions>,
  timeline: ReturnType<typeof openTimeline>,
  places: ReturnType<typeof openWalPlaces>,
) {
  const statements = {
    base: baseSql(noteWal),
    follow: { near: followSql(noteWal, mostNear), far: followSql(noteWal, mostEvents) },
  }
  let identity = ''
  let run = ''

  /** Undefined where the log cannot tell what has happened since. */
  const follow = async (from: Snapshot): Promise<LookResult | undefined> => {
    const seen = await readSince(db, statements.follow, from)
    if (seen.run !== run || seen.redefined || !seen.isComplete) return undefined
    return { ...seen, number: timeline.advance(seen.changes) }
  }

  const beginAnew = async (): Promise<LookResult> => {
    const [row] = await db.run<BaseRow>(statements.base, [reachBackSeconds], 'prepared')
    const { snapshot: text, earlier, wal } = row!
    identity = row!.identity
    run = row!.run
    places.clear()
    const snapshot = parseSnapshot(text)!
    const first = { number: timeline.restart(snapshot), text, snapshot, wal }
    if (earlier === null) return first
    const from = { xmin: BigInt(earlier), xmax: BigInt(earlier), running: [] }
    // `from` is of the log itself, whichever run of the server wrote that; the keys of shared answers name the collections.
    const seen = await readSince(db, statements.follow, from)
    run = seen.run
    if (!seen.isComplete) return first
    const later = { ...seen, number: timeline.advance(seen.changes) }
    timeline.assume({ number: later.number, upTo: from })
    return later
  }

  return { follow, beginAnew, identity: () => identity }
}

/** A look that had much to read, or waited, says little of the next one. */
function meanWith(mean: number, ms: number): number {
  return ms < mean ? (mean + ms) / 2 : mean + (Math.min(ms, 4 * mean) - mean) / 8
}

type LookResult = {
  readonly number: number
  readonly snapshot: Snapshot
  readonly text: string
  /** The end of the write-ahead log, after the snapshot was taken. */
  readonly wal: string | null
}

type TimedLook = LookResult & {
  readonly startedAt: number
  /** How many calls of `written()` there had been when it began. */
  readonly writes: number
}

/** When a table has changed last, as far as is known: every snapshot that includes `upTo` shows the change. */
type NotedChange = { readonly number: number; readonly upTo: Snapshot }

/**
 * Which look saw the last change of which table. It knows no database: a watch passes on what its looks have read. A table
 * that it has not heard of counts as changed by the look that it was restarted with.
 */
export function openTimeline() {
  const changes = new Map<string, NotedChange>()
  let base: NotedChange | undefined
  let number = 0
  let lastChange = 0
  const changeOf = (table: string) => changes.get(table) ?? base
  return {
    /** Forgets everything: all tables count as changed now. Returns the number of this look. */
    restart: (upTo: Snapshot): number => {
      number += 1
      changes.clear()
      lastChange = number
      base = { number, upTo }
      return number
    },
    /** Counts for tables that are in no change since the restart. */
    assume: (change: NotedChange): void => {
      base = change
    },
    /** A look that has found these newest transactions, by table. Returns its number. */
    advance: (found: Iterable<readonly [table: string, xid: bigint]>): number => {
      number += 1
      for (const [table, xid] of found) {
        const known = changes.get(table)?.upTo
        // A slow transaction may have a smaller number than one known before: the greatest counts.
        const upTo = known !== undefined && known.xmax > xid + 1n ? known : after(xid)
        changes.set(table, { number, upTo })
        lastChange = number
      }
      return number
    },
    isUnchanged: (tables: Iterable<string>, since: number): boolean => {
      for (const table of tables) if ((changeOf(table)?.number ?? Number.POSITIVE_INFINITY) > since) return false
      return true
    },
    hasSeenAll: (tables: Iterable<string>, snapshot: Snapshot): boolean => {
      for (const table of tables) {
        const change = changeOf(table)
        if (change === undefined || !includesSnapshot(snapshot, change.upTo)) return false
      }
      return true
    },
    isQuiet: (since: number): boolean => since >= lastChange,
  }
}

/** The looks of the last seconds by where the write-ahead log ended, ten of a second at most. */
export function openWalPlaces() {
  const places: { readonly number: number; readonly position: WalPosition; readonly at: number }[] = []
  return {
    note: (number: number, position: WalPosition): void => {
      const at = performance.now()
      const last = places.at(-1)
      if (last !== undefined && at - last.at < placeEveryMs) return
      places.push({ number, position, at })
      if (places.length > mostPlaces) places.shift()
    },
    newestUpTo: (position: WalPosition): number | undefined =>
      places.findLast((place) => place.position <= position)?.number,
    clear: (): void => void places.splice(0),
  }
}

const placeEveryMs = 100
const mostPlaces = 100

/** Changes that became visible after a snapshot; not `isComplete` where the log cannot tell. */
async function readSince(db: Database, { near, far }: { readonly near: string; readonly far: string }, from: Snapshot) {
  const unseen = [...unseenValues(from), String(from.xmin)]
  let [row] = await db.run<FollowRow>(near, unseen, 'prepared')
  if (row!.seen >= mostNear) [row] = await db.run<FollowRow>(far, unseen, 'prepared')
  const { entities, seen, reaches, redefined, snapshot: text, wal, run } = row!
  const snapshot = parseSnapshot(text)!
  const isComplete = seen < mostEvents && reaches && snapshot.xmax >= from.xmax
  const changes = Object.entries(entities).map(([table, xid]) => [table, BigInt(xid)] as const)
  return { snapshot, text, changes, wal, run, redefined, isComplete }
}

/**
 * The most rows of a usual look. With so small a limit no plan but the index on xid is considered; with a larger one
 * than the planner expects to find it reads all of a table whose statistics are young, and sorts.
 */
const mostNear = 500
/** More events than this in one look count as a change of everything. */
const mostEvents = 50_000
/** The log must still hold what happened since; its retention is days. */
const longestGapMs = 3_600_000

/** Sees every transaction up to this one. */
const after = (xid: bigint): Snapshot => ({ xmin: xid + 1n, xmax: xid + 1n, running: [] })

type MomentRow = { snapshot: string; run: string; wal: string | null }
type BaseRow = MomentRow & { identity: string; earlier: string | null }
/** `entities`: the newest transaction that changed each; `redefined`: whether a collection became another one. */
type FollowRow = MomentRow & { entities: Record<string, string>; seen: number; reaches: boolean; redefined: boolean }

/**
 * `run` is equal for looks of one run of one server, whose snapshots alone can be compared: after a crash the server gives
 * out numbers of transactions again that nothing durable had used, and a promoted standby may lack what a look has seen. A
 * crash that the server survives in part begins its statistics anew, so these tell.
 *
 * The statement's snapshot is taken before the end of the write-ahead log is asked for.
 */
const momentSql = (noteWal: boolean) => `pg_current_snapshot()::text as snapshot,
    concat_ws(' ', ${logSchema}."$lineage"(), extract(epoch from pg_postmaster_start_time()),
      extract(epoch from pg_stat_get_bgwriter_stat_reset_time())) as run,
    ${noteWal ? `${walEndSql}::text` : 'null::text'} as wal`

/**
 * Events that are not visible in the snapshot (`unseenSql`), in parts that are each a range of the index on xid: the
 * planner's estimates for the newest transactions are poor (log-reader.ts). DDL changes rows without events of them, so
 * a changed collection counts as a change of everything.
 */
const followSql = (noteWal: boolean, most: number) => `
  with unseen as materialized (
    (select e.entity, e.type, e.xid from "${logTable}" e where ${unseenSql.later('e.xid', '$1')} order by e.xid limit ${most})
    union all
    (select e.* from unnest($2::xid8[]) as running(xid) cross join lateral (
      select e.entity, e.type, e.xid from "${logTable}" e where e.xid = running.xid limit ${most}) e)),
  changed as (
    select entity, type, max(xid::text::bigint)::text as xid from unseen
    where type in ('data', 'schema') group by entity, type),
  found as (
    select coalesce(json_object_agg(entity, xid) filter (where type = 'data'), '{}') as entities,
      coalesce(bool_or(type = 'schema'), false) as redefined from changed)
  select ${momentSql(noteWal)}, (select count(*)::int from unseen) as seen, found.entities, found.redefined,
    (select removed < $3::xid8 from ${logSchema}.floor) as reaches from found`

/** An event's horizon is a snapshot of its time, or of shortly before. */
const baseSql = (noteWal: boolean) => `
  select ${momentSql(noteWal)}, system_identifier || '.' || d.oid || '.' || ${logSchema}."$lineage"() as identity,
    case when $1::int > 0 then coalesce(
      (select e.horizon::text from "${logTable}" e where e."createdAt" < now() - make_interval(secs => $1)
        order by e."createdAt" desc limit 1),
      (select e.horizon::text from "${logTable}" e order by e."createdAt" limit 1)) end as earlier
  from pg_control_system(), pg_database d where d.datname = current_database()`
