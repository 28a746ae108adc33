import type pg from 'pg'
import { waitFor } from './wait.ts'

/**
 * Until whatever transaction runs now, in any database of the server, has ended: it holds back what cursors and
 * snapshots can be told to have seen.
 */
export async function settled(db: pg.Pool | pg.Client): Promise<void> {
  const now = (await db.query('select pg_snapshot_xmax(pg_current_snapshot()) as xid')).rows[0]
  const ended = 'select pg_snapshot_xmin(pg_current_snapshot()) >= $1::xid8 as "isOver"'
  await waitFor(async () => (await db.query(ended, [now.xid])).rows[0].isOver)
}
