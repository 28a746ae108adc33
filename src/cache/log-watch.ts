import { logSchema, logTable } from '../catalog/log-triggers.ts'
import type { Database } from '../db/pools.ts'
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
  /** Which database this is: the same for every process, another one after a restore elsewhere. */
  identity(): string
}

export type Look = { readonly number: number; readonly snapshot: string }

type LogWatchOptions = {
  /** The primary: a standby's snapshots do not list what runs. */
  db: Database
  /** How far back the first look reads, so that answers are worth something that others made before. */
  reachBackSeconds: number
}

/** Opens a watch that has not looked yet. */
export function openLogWatch({ db, reachBackSeconds }: LogWatchOptions): LogWatch {
  const timeline = openTimeline()
  let newest: TimedLook | undefined
  let writes = 0
  let identity = ''

  /** Undefined where the log cannot tell what has happened since. */
  const follow = async (from: Snapshot): Promise<LookResult | undefined> => {
    const seen = await readSince(db, from)
    return seen && { ...seen, number: timeline.advance(seen.changes) }
  }

  const beginAnew = async (): Promise<LookResult> => {
    const [row] = await db.run<BaseRow>(baseSql, [reachBackSeconds], 'prepared')
    const { snapshot: text, earlier } = row!
    identity = row!.identity
    const snapshot = parseSnapshot(text)!
    const first = { number: timeline.restart(snapshot), text, snapshot }
    if (earlier === null) return first
    const from = { xmin: BigInt(earlier), xmax: BigInt(earlier), running: [] }
    const later = await follow(from)
    if (later !== undefined) timeline.assume({ number: later.number, upTo: from })
    return later ?? first
  }

  const newLook = inRounds<never, TimedLook>(async () => {
    const start = { startedAt: performance.now(), writes }
    try {
      const known = newest !== undefined && start.startedAt - newest.startedAt < longestGapMs ? newest : undefined
      newest = { ...((known && (await follow(known.snapshot))) ?? (await beginAnew())), ...start }
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
    identity: () => identity,
  }
}

type LookResult = { readonly number: number; readonly snapshot: Snapshot; readonly text: string }

type TimedLook = LookResult & {
  readonly startedAt: number
  /** How many calls of `written()` there had been when it began. */
  readonly writes: number
}

/** When a table has changed last, as far as is known: every snapshot that includes `upTo` shows the change. */
type Change = { readonly number: number; readonly upTo: Snapshot }

/**
 * Which look saw the last change of which table. It knows no database: a watch passes on what its looks have read. A table
 * that it has not heard of counts as changed by the look that it was restarted with.
 */
export function openTimeline() {
  const changes = new Map<string, Change>()
  let base: Change | undefined
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
    /** What counts for tables that are not in any change since the restart. */
    assume: (change: Change): void => {
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

/** Changes that became visible after a snapshot; undefined where the log cannot tell. */
async function readSince(db: Database, from: Snapshot) {
  const unseen = [...unseenValues(from), String(from.xmin)]
  const [row] = await db.run<FollowRow>(followSql, unseen, 'prepared')
  const { entities, seen, reaches, snapshot: text } = row!
  const snapshot = parseSnapshot(text)!
  if (seen >= mostEvents || !reaches || snapshot.xmax < from.xmax) return undefined
  const changes = Object.entries(entities).map(([table, xid]) => [table, BigInt(xid)] as const)
  return { snapshot, text, changes }
}

/** More events than this in one look count as a change of everything. */
const mostEvents = 50_000
/** The log must still hold what happened since; its retention is days. */
const longestGapMs = 3_600_000

/** Sees every transaction up to this one. */
const after = (xid: bigint): Snapshot => ({ xmin: xid + 1n, xmax: xid + 1n, running: [] })

type BaseRow = { snapshot: string; identity: string; earlier: string | null }
/** `entities`: the newest transaction that changed each. */
type FollowRow = { snapshot: string; entities: Record<string, string>; seen: number; reaches: boolean }

/**
 * What is not visible in the snapshot, in two parts that each have no plan but the index on xid: the planner's estimates
 * for the newest transactions are poor (log-reader.ts).
 */
const followSql = `
  with unseen as materialized (
    (select e.entity, e.type, e.xid from "${logTable}" e where ${unseenSql.later('e.xid', '$1')} order by e.xid limit ${mostEvents})
    union all
    (select e.entity, e.type, e.xid from "${logTable}" e where ${unseenSql.running('e.xid', '$2')} limit ${mostEvents}))
  select pg_current_snapshot()::text as snapshot, (select count(*)::int from unseen) as seen,
    (select coalesce(json_object_agg(entity, xid), '{}') from (
      select entity, max(xid::text::bigint)::text as xid from unseen where type = 'data' group by entity) changed) as entities,
    (select removed < $3::xid8 from ${logSchema}.floor) as reaches`

/** An event's horizon is a snapshot of its time, or of shortly before. */
const baseSql = `
  select pg_current_snapshot()::text as snapshot, system_identifier || '.' || d.oid as identity,
    case when $1::int > 0 then coalesce(
      (select e.horizon::text from "${logTable}" e where e."createdAt" < now() - make_interval(secs => $1)
        order by e."createdAt" desc limit 1),
      (select e.horizon::text from "${logTable}" e order by e."createdAt" limit 1)) end as earlier
  from pg_control_system(), pg_database d where d.datname = current_database()`
