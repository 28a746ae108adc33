import { randomBytes } from 'node:crypto'
import type { Config } from '../config/config.ts'
import type { Line, LineFacts } from '../db/line.ts'
import { lostSettings, readArrived } from '../db/poolers.ts'
import type { Database } from '../db/pools.ts'
import { type Reader, rawQuery, sql } from '../db/sql.ts'
import { type Finding, ok, problem, warning } from './finding.ts'

const longestWaitMs = 3000

/**
 * Whether NOTIFY of one session reaches LISTEN of another. Behind a transaction pooler it does not: then caches, jobs and
 * sessions of other processes are found by polling only, and locks of setup and cleanup hold nothing.
 */
export async function checkNotifications(pooled: Database, direct: Database, config: Config): Promise<Finding> {
  const channel = `svc_doctor_${randomBytes(6).toString('hex')}`
  const listener = await direct.pool.connect()
  try {
    const heard = new Promise<boolean>((resolve) => {
      listener.on('notification', () => resolve(true))
      setTimeout(resolve, longestWaitMs, false).unref()
    })
    await listener.query(`listen ${channel}`)
    await pooled.any(rawQuery(`select pg_notify('${channel}', '')`))
    if (await heard) return ok('notifications', 'NOTIFY reaches LISTEN')
  } finally {
    listener.release(true)
  }
  return config.database.directUrl === undefined
    ? problem(
        'notifications',
        'NOTIFY does not reach LISTEN: there is a transaction pooler in between',
        'set DATABASE_DIRECT_URL to the address of the server itself',
      )
    : problem(
        'notifications',
        'NOTIFY over DATABASE_URL does not reach LISTEN over DATABASE_DIRECT_URL',
        'name the same database in both, and the server itself, no pooler, in DATABASE_DIRECT_URL',
      )
}

/** LISTEN would hear nothing, and the locks of setup and cleanup hold nothing: the processes do not start. */
export function sharedSessions({ database }: Config): Finding {
  return problem(
    'notifications',
    `${database.directUrl === undefined ? 'DATABASE_URL' : 'DATABASE_DIRECT_URL'} leads through a pooler in transaction mode: nothing starts`,
    'set DATABASE_DIRECT_URL to the address of the server itself',
  )
}

/** What lies on the way to the server, and how statements are sent for it. */
export function judgePooler(line: Line): Finding {
  const { isPooled, keepsSessions, keepsNames } = line.facts()
  const names = line.isNamed() ? 'statements are sent by name' : 'statements are sent without names'
  if (!isPooled) return ok('pooler', `none; ${names}`)
  const mode = keepsSessions ? 'session' : 'transaction'
  const says = `one in ${mode} mode; settings go with each transaction, ${names}`
  if (keepsNames) return ok('pooler', says)
  return warning(
    'pooler',
    `${says}, as it does not keep them`,
    'PgBouncer 1.21 or newer with max_prepared_statements = 200 makes reads by key about twice as fast',
  )
}

/** Whether the settings that statements rely on arrive: time zone, time limits, read-only connections. */
export async function checkSessionSettings(db: Database, config: Config, { isPooled }: LineFacts): Promise<Finding> {
  const lost = lostSettings(config, await readArrived(db), true)
  if (lost.length === 0)
    return ok(
      'session settings',
      `time zone, time limits and read-only connections arrive${isPooled ? ', with each transaction' : ''}`,
    )
  return problem('session settings', lost.join(', '), 'name the server itself, or another pooler: docs/poolers.md')
}

const samples = 3

/** How much further the database's clock is than ours, in milliseconds, as exact as the quickest of three answers. */
export async function readSkew(db: Reader, now: () => number): Promise<number> {
  let best = { roundTrip: Number.POSITIVE_INFINITY, skew: 0 }
  for (let i = 0; i < samples; i += 1) {
    const asked = now()
    const { at } = await db.one<{ at: number }>(
      sql.unsafe`select (extract(epoch from clock_timestamp()) * 1000)::float8 as at`,
    )
    const answered = now()
    const roundTrip = answered - asked
    if (roundTrip < best.roundTrip) best = { roundTrip, skew: at - (asked + answered) / 2 }
  }
  return best.skew
}

const noticeableMs = 1000
const harmfulMs = 30_000

/** Sessions and codes expire by the database's clock, tokens and authenticator apps by ours. */
export function judgeSkew(skewMs: number): Finding {
  const off = Math.abs(skewMs)
  if (off < noticeableMs) return ok('clock', `within ${Math.ceil(off)} ms of the database's`)
  const judged = off < harmfulMs ? warning : problem
  const direction = skewMs > 0 ? 'behind' : 'ahead of'
  return judged(
    'clock',
    `${(off / 1000).toFixed(1)} s ${direction} the database's`,
    'synchronise both machines by NTP, e.g. chrony or systemd-timesyncd',
  )
}
