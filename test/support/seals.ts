import type pg from 'pg'
import { type LogKeys, logKeys } from '../../src/adapters/log-key.ts'
import { readerOf } from '../../src/db/pools.ts'
import type { Tx } from '../../src/db/sql.ts'
import { type Cursor, cursorAt, parseCursor } from '../../src/events/cursor.ts'
import { pullRound } from '../../src/events/log-reader.ts'
import {
  newestHead,
  type SealTrust,
  sealPage,
  sealSummary,
  sealTablesSql,
  sweepOn,
  verifySeals,
} from '../../src/events/seals/seals.ts'
import { connect, createLogDatabase, run } from './log.ts'
import { testConfig } from './prepare.ts'

/** Keys as an installation with these variables has them. */
export function keysOf(variables: Record<string, string> = {}): LogKeys {
  return logKeys(testConfig('postgres://nobody@localhost/nothing', variables)).keys!
}

/** A database with the log and the tables of its seals, and nothing else. */
export async function createSealedLog(): Promise<string> {
  const url = await createLogDatabase()
  const db = await connect(url)
  await run(db, sealTablesSql())
  await db.end()
  return url
}

export const readerFor = (db: pg.Client) => readerOf((text, values) => db.query(text, values as unknown[]))

export async function inTransaction<T>(db: pg.Client, work: (tx: Tx) => Promise<T>): Promise<T> {
  await db.query('begin')
  try {
    const result = await work({ ...readerFor(db), isTransaction: true })
    await db.query('commit')
    return result
  } catch (error) {
    await db.query('rollback')
    throw error
  }
}

/** What follows the log and seals it, page by page. */
export function openSealer(db: pg.Client, keys: LogKeys = keysOf(), pageSize = 500) {
  let cursor: Cursor | undefined
  let sealed = '0'
  return {
    /** Seals everything that is visible now, or so many pages of it; `between` happens after a page is read. */
    async seal(pages = Number.POSITIVE_INFINITY, between?: () => Promise<unknown>): Promise<void> {
      cursor ??= cursorAt((await db.query('select pg_current_snapshot()::text as now')).rows[0].now)
      for (let [more, left] = [true, pages]; more && left > 0; left -= 1) {
        const asked = sealSummary(sealed)
        const page = await pullRound(db, cursor, { limit: pageSize, brief: asked.summary })
        if (page.resync) throw new Error('the log does not reach back')
        const round = { from: cursor.snapshot, upTo: page.cursor.upTo ?? page.cursor.snapshot }
        const { events, summarized } = page
        await between?.()
        const leaves = summarized && { ...asked, ...summarized }
        if (events.length > 0)
          await inTransaction(db, (tx) => sealPage(tx, keys, { events, round, isRetry: false, leaves }))
        sealed = events.at(-1)?.position ?? sealed
        cursor = page.cursor
        more = page.more
      }
      await this.sweep()
    },
    async sweep(): Promise<void> {
      for (let sweep = { after: '0', done: false }; !sweep.done; )
        sweep = await inTransaction(db, (tx) => sweepOn(tx, keys, sweep))
    },
    /** Goes on elsewhere, as after a reset. */
    goOnAt(encoded: string | undefined): void {
      cursor = encoded === undefined ? undefined : { ...parseCursor(encoded), lineage: undefined }
    },
  }
}

export const headNow = (db: pg.Client) => newestHead(readerFor(db)).then((head) => head!)

export function verify(db: pg.Client, trust: Partial<SealTrust> = {}) {
  return verifySeals(db, { keys: keysOf(), heads: [], ...trust })
}
