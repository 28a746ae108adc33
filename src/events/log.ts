export const publicationName = 'svc_realtime'

/** The marker that replaces the images of an erased event in `changes`; erasing writes it, `verifyLog` counts it. */
export const erasedMarker = { erased: true } as const

/**
 * The doors through the log's guard: replacing the images of an erased item, deleting or truncating events, and taking
 * over those of another server. A statement that goes through one begins with its words; the guard looks for them at the
 * beginning of the text that the client has sent. No SQL that runs within another statement (of a default, of a function)
 * can change that text, as it could a setting.
 */
export const logDoors = {
  erase: '/* svc.erase */',
  retention: '/* svc.retention */',
  adopt: '/* svc.adopt */',
} as const

/**
 * Sets the actor of the transaction. The only value is JSON text with any of the keys `user`, `role`, `tenant`, `id` (UUIDs),
 * `ip`, `agent`, `request` (text), `by` and `cause` (JSON, see `Agent` and `Cause`); absent or null means unknown.
 */
export const setActorSql = `select set_config('svc.actor', $1, true)`

/**
 * `with ctx as materialized (…)`: sets the actor in the statement that writes, so that a one-row write stays one round
 * trip. `parameter` is the number of the parameter with the actor's JSON.
 *
 * **The statement must read from `ctx`** (`insert … select … from ctx`, `update … from ctx`, `delete … using ctx`):
 * PostgreSQL does not evaluate a CTE that nothing selects from, and the write would have no actor.
 */
export function actorCte(parameter: number): string {
  return `with ctx as materialized (select set_config('svc.actor', $${parameter}, true))`
}

/**
 * {@link actorCte} for a statement that writes rows of several requests (`row-batches.ts`), which must not wait for what one of
 * them waits for: it fails when a lock is not to be had at once. In both the setting ends with the statement's transaction.
 */
export function actorsCte(parameter: number): string {
  return `with ctx as materialized (select set_config('svc.actor', $${parameter}, true), set_config('lock_timeout', '20ms', true))`
}

/**
 * {@link actorCte} as a condition, which costs less: evaluated before the row is written, of an `update` or `delete` for
 * each that is found, of an `insert … select … where` without FROM once.
 */
export function actorCondition(parameter: number): string {
  return `set_config('svc.actor', $${parameter}, true) is not null`
}

/** The position that an event's id was made of; undefined when the id is not one of ours. */
export function positionOfEventId(id: string): string | undefined {
  const match = /^([0-9a-f]{8})-([0-9a-f]{4})-8000-8000-0{12}$/i.exec(id)
  return match === null ? undefined : BigInt(`0x${match[1]}${match[2]}`).toString()
}

/** SQL expression of the id of the event at a position, a bigint expression; ids are in the order of the positions. */
export function eventIdSql(position: string): string {
  return `(encode(int8send((${position}) << 16 | 32768), 'hex') || '8000000000000000')::uuid`
}

/** SQL of a timestamptz as a text of ISO 8601 in UTC with microseconds. */
export const timeSql = (time: string): string => `to_char(${time} at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')`

/** Positions, 8 bytes each. */
export function bytesOfPositions(positions: readonly string[]): Buffer {
  const bytes = Buffer.allocUnsafe(positions.length * 8)
  for (const [i, position] of positions.entries()) bytes.writeBigInt64BE(BigInt(position), i * 8)
  return bytes
}

/** As many positions from the first on as {@link bytesOfPositions} gives them. */
export function bytesFrom(first: bigint, count: number): Buffer {
  const bytes = Buffer.allocUnsafe(count * 8)
  const high = Number(first >> 32n)
  const low = Number(first & 0xffff_ffffn)
  for (let i = 0; i < count; i += 1) {
    bytes.writeInt32BE(high + Math.floor((low + i) / 2 ** 32), i * 8)
    bytes.writeUInt32BE((low + i) % 2 ** 32, i * 8 + 4)
  }
  return bytes
}

/** The positions from which {@link bytesOfPositions} was made. */
export function positionsIn(bytes: Buffer): string[] {
  return Array.from({ length: bytes.length / 8 }, (_, i) => {
    const high = bytes.readInt32BE(i * 8)
    // Beyond 53 bits a number would be another one.
    return high >= 0 && high < 2 ** 21
      ? `${high * 2 ** 32 + bytes.readUInt32BE(i * 8 + 4)}`
      : `${bytes.readBigInt64BE(i * 8)}`
  })
}
