import type { Database } from '../db/pools.ts'
import { inRounds } from '../db/rounds.ts'
import { includesSnapshot, parseSnapshot, type Snapshot } from '../events/cursor.ts'
import { logSchema, logTable } from '../events/log.ts'

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
  /** Whether somebody who read after `snapshot` has seen every change of the tables that is known here. */
  hasSeenAll(tables: Iterable<string>, snapshot: Snapshot): boolean
  /** Whether nothing at all has changed since. */
  isQuiet(since: number): boolean
  /** Which database this is: the same for every process, another one after a restore elsewhere. */
  identity(): string
}

export type Look = { readonly number: number; readonly snapshot: string }

type State = {
  readonly number: number
  readonly snapshot: Snapshot
  readonly text: string
  readonly startedAt: number
  /** How many calls of `written()` there had been when it began. */
  readonly writes: number
}

type Start = Pick<State, 'startedAt' | 'writes'>

/** When a table has changed last, as far as is known: by whom sees everything that is visible in `upTo`. */
type Change = { readonly number: number; readonly upTo: Snapshot }

export type LogWatchOptions = {
  /** The primary: a standby's snapshots do not list what runs. */
  db: Database
  /** How far back the first look reads, so that answers are worth something that others made before. */
  reachBackSeconds: number
}

/** Opens a watch that has not looked yet. */
export function openLogWatch({ db, reachBackSeconds }: LogWatchOptions): LogWatch {
  const changes = new Map<string, Change>()
  let base: Change | undefined
  let newest: State | undefined
  let number = 0
  let lastChange = 0
  let writes = 0
  let identity = ''

  const begin = async (): Promise<State> => {
    const start = { startedAt: performance.now(), writes }
    try {
      const known = newest !== undefined && start.startedAt - newest.startedAt < longestGapMs ? newest : undefined
      const state = (known && (await follow(known, start))) ?? (await beginAnew(start))
      newest = state
      return state
    } catch (error) {
      // Whichever server answers next may be another one, or the same restored.
      newest = undefined
      throw error
    }
  }

  const beginAnew = async (start: Start): Promise<State> => {
    const [row] = await db.run<BaseRow>(baseSql, [reachBackSeconds], 'prepared')
    const { snapshot: text, earlier } = row!
    const snapshot = parseSnapshot(text)!
    const state = { number: ++number, text, snapshot, ...start }
    identity = row!.identity
    changes.clear()
    lastChange = number
    base = { number, upTo: snapshot }
    if (earlier === null) return state
    const from = { xmin: BigInt(earlier), xmax: BigInt(earlier), running: [] }
    const later = await follow({ ...state, snapshot: from }, start)
    if (later !== undefined) base = { number: later.number, upTo: from }
    return later ?? state
  }

  /** Undefined where what happened since can't be told from the log. */
  const follow = async (from: State, start: Start): Promise<State | undefined> => {
    const unseen = [String(from.snapshot.xmax), from.snapshot.running.map(String), String(from.snapshot.xmin)]
    const [row] = await db.run<FollowRow>(followSql, unseen, 'prepared')
    const { entities, seen, reaches, snapshot: text } = row!
    const snapshot = parseSnapshot(text)!
    if (seen >= mostEvents || !reaches || snapshot.xmax < from.snapshot.xmax) return undefined
    const state = { number: ++number, text, snapshot, ...start }
    for (const [table, xid] of Object.entries(entities)) note(table, after(BigInt(xid)))
    return state
  }

  /** Who was slow may have a smaller number than somebody known before: the greatest counts. */
  const note = (table: string, upTo: Snapshot) => {
    const known = changes.get(table)?.upTo
    changes.set(table, { number, upTo: known !== undefined && known.xmax > upTo.xmax ? known : upTo })
    lastChange = number
  }

  const newLook = inRounds<never, State>(begin)
  const changeOf = (table: string) => changes.get(table) ?? base
  const all = (tables: Iterable<string>, holds: (change: Change | undefined) => boolean) => {
    for (const table of tables) if (!holds(changeOf(table))) return false
    return true
  }
  return {
    look: async (maxAgeMs) => {
      const known = newest?.writes === writes && performance.now() - newest.startedAt < maxAgeMs ? newest : undefined
      const { number, text } = known ?? (await newLook())
      return { number, snapshot: text }
    },
    written: () => {
      writes += 1
    },
    isUnchanged: (tables, since) => all(tables, (change) => change !== undefined && change.number <= since),
    hasSeenAll: (tables, snapshot) =>
      newest !== undefined &&
      snapshot.xmax <= newest.snapshot.xmax &&
      all(tables, (change) => change !== undefined && includesSnapshot(snapshot, change.upTo)),
    isQuiet: (since) => since >= lastChange,
    identity: () => identity,
  }
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
 * "Not visible in the snapshot" as its definition, in two parts that each have no plan but the index on xid: the
 * planner's estimates for the newest transactions are poor (log-reader.ts).
 */
const followSql = `
  with unseen as materialized (
    (select e.entity, e.type, e.xid from "${logTable}" e where e.xid >= $1::xid8 order by e.xid limit ${mostEvents})
    union all
    (select e.entity, e.type, e.xid from "${logTable}" e where e.xid = any($2::xid8[]) limit ${mostEvents}))
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
