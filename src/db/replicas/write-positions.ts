import type { Logger } from 'pino'
import type { Database } from '../pools.ts'
import { inRounds } from '../rounds.ts'

/** A caller that reads its own writes: the id of a user, or {@link anybody} for all who have none. */
export type CallerKey = string

/** Callers without a user can't be told apart over processes and addresses, so each of them waits for all of them. */
export const anybody: CallerKey = 'anybody'

/** Concerns every caller: what is not in the table was written before this. */
export const floor: CallerKey = 'floor'

/** Read-your-writes: how far replicas must be before they may answer a caller (ADR 22). */
export type WritePositions = {
  /**
   * Notes where the log ends, for callers whose writes have just been committed; to be awaited before they are answered.
   * Never rejects: what could not be stored keeps these callers on the primary, in this process, until it has been.
   */
  note(...callers: readonly CallerKey[]): Promise<void>
  /**
   * The position that a replica must have replayed to answer this caller, as the primary knows it now; undefined where nothing is known,
   * as after a crash of the server.
   */
  positionFor(caller: CallerKey): Promise<WalPosition | undefined>
  /** Stores what could not be stored before. */
  retry(): Promise<void>
}

type WritePositionsOptions = {
  /** Stores the end of the log for these callers; later ones win. */
  readonly store: (callers: readonly CallerKey[]) => Promise<void>
  /** The stored positions; callers without one are left out. */
  readonly load: (callers: readonly CallerKey[]) => Promise<ReadonlyMap<CallerKey, WalPosition>>
  readonly log: Logger
}

export function openWritePositions({ store, load, log }: WritePositionsOptions): WritePositions {
  /** The callers whose last write is not stored yet, and which write that is. */
  const unstored = new Map<CallerKey, symbol>()
  const storeTogether = inRounds(store)
  const loadTogether = inRounds(load)

  const note = async (...callers: readonly CallerKey[]) => {
    const write = Symbol('write')
    for (const caller of callers) unstored.set(caller, write)
    try {
      await storeTogether(...callers)
    } catch (error) {
      log.warn({ err: error }, 'a write could not be noted for the replicas')
      return
    }
    for (const caller of callers) if (unstored.get(caller) === write) unstored.delete(caller)
  }

  return {
    note,
    positionFor: async (caller) => {
      const positions = await loadTogether(caller, floor)
      const lowest = positions.get(floor)
      if (lowest === undefined) await note(floor)
      if (lowest === undefined || unstored.has(caller)) return undefined
      const own = positions.get(caller) ?? lowest
      return own > lowest ? own : lowest
    },
    retry: async () => {
      if (unstored.size > 0) await note(...unstored.keys())
    },
  }
}

const text = `select caller, position::text as position from "svc_WriteMark" where caller = any($1::text[])`

/** The stored positions of these callers, from the primary. */
export async function loadWritePositions(
  db: Database,
  callers: readonly CallerKey[],
): Promise<ReadonlyMap<CallerKey, WalPosition>> {
  const rows = await db.run<{ caller: string; position: string }>(text, [callers], 'prepared')
  return new Map(rows.map(({ caller, position }) => [caller, BigInt(position)]))
}

/**
 * Places in the write-ahead log, as the number of bytes before them. A transaction that has committed before
 * {@link walEndSql} was asked for is below its answer, and a standby that has replayed up to there shows it.
 */
export type WalPosition = bigint

/**
 * SQL: where the primary's log ends. When the last record fills its page, PostgreSQL names the place after the header of
 * the next one, which a standby reaches only with the next record; hence the two cases.
 */
export const walEndSql = `(
  select case
      when offset_ % pg_size_bytes(current_setting('wal_segment_size')) = 40 then offset_ - 40
      when offset_ % current_setting('wal_block_size')::bigint = 24 then offset_ - 24
      else offset_ end
  from (select (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint as offset_) wal)`

/** SQL: how far a standby has replayed the log; null where there is nothing to replay. */
export const walReplayedSql = `(pg_last_wal_replay_lsn() - '0/0'::pg_lsn)::bigint`

/**
 * SQL: tells a database from every other one, its copies on standbys excepted. Copies of a cluster that were made by
 * other means share the identifier, hence the database's number.
 */
export const databaseIdentitySql = `(
  select c.system_identifier || '/' || d.oid from pg_control_system() c, pg_database d where d.datname = current_database())`
