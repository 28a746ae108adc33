/**
 * Places in the write-ahead log, as the number of bytes before them. A transaction that has committed before
 * {@link walEndSql} was asked for is below its answer, and a standby that has replayed up to there shows it.
 */
export type WalPosition = bigint

/**
 * SQL: where the primary's log ends. When the last record fills its page, PostgreSQL names the place behind the header of
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
