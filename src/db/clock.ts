import type { Logger } from 'pino'
import type { Database } from './pools.ts'
import { sql } from './sql.ts'

/** The time of the database, as this process knows it. */
type DatabaseClock = {
  now(): Date
  close(): Promise<void>
}

/** The time of the database, whatever the clock of this machine says. */
export type Clock = { readonly clock: () => Date }

/** Monotonic clocks drift apart by less than a hundredth of a second in that time. */
const askAgainMs = 60_000
/** An answer that took longer says too little; the first answer is better than none. */
const promptMs = 500

/**
 * Asks the database for the time, now and every minute, and counts on by the monotonic clock: a wall clock that is wrong or
 * leaps changes nothing. While the database does not answer it counts on from the last time.
 */
export async function openDatabaseClock(db: Database, log: Logger): Promise<DatabaseClock> {
  let known = await measure(db)
  const again = async () => {
    try {
      const next = await measure(db)
      if (next.tookMs <= promptMs) known = next
    } catch (error) {
      log.debug({ err: error }, 'the database could not be asked for the time')
    }
  }
  const timer = setInterval(() => void again(), askAgainMs).unref()
  return {
    now: () => new Date(known.aheadMs + performance.now()),
    close: async () => clearInterval(timer),
  }
}

/** How far the database's clock is ahead of this process's monotonic one. */
async function measure(db: Database): Promise<{ readonly aheadMs: number; readonly tookMs: number }> {
  const askedAt = performance.now()
  const { now } = await db.one<{ now: number }>(
    sql`select (extract(epoch from clock_timestamp()) * 1000)::float8 as now`,
  )
  const tookMs = performance.now() - askedAt
  return { aheadMs: now - askedAt - tookMs / 2, tookMs }
}
