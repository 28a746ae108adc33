import type { Logs } from '../../../adapters/logger.ts'
import type { Configuration } from '../../../config/config.ts'
import { requireSetUp } from '../../../db/needs.ts'
import { type PgClient, readerOn } from '../../../db/pools.ts'
import { onSoleConnection } from '../../../db/sole-connection.ts'
import type { Reader } from '../../../db/sql.ts'
import { holdContentSql, releaseContentSql } from '../../../db/unlogged/holds.ts'
import { AppError } from '../../../errors.ts'
import type { StorageServices } from '../../files/storage/storage.ts'

/** The database at one moment: `client` reads what is locked against changes of its form, `files` lasts longer. */
export type BackupMoment = {
  readonly client: PgClient
  readonly db: Reader
  readonly files: PgClient
  endOfRows(): Promise<void>
}

/** Reads everything as of one moment, which begins when no table can change its form any more. */
export async function inOneMoment<T>(
  { config }: Configuration,
  work: (moment: BackupMoment) => Promise<T>,
): Promise<T> {
  return onSoleConnection(config, 'backup', (client) =>
    onSoleConnection(config, 'backup of files', async (files) => {
      await beginLocked(client)
      const { rows } = await client.query<{ snapshot: string }>('select pg_export_snapshot() as snapshot')
      await files.query(
        `begin isolation level repeatable read read only; set transaction snapshot '${rows[0]!.snapshot}'`,
      )
      const db = readerOn(client)
      return work({ client, db, files, endOfRows: async () => void (await client.query('commit')) })
    }),
  )
}

const tablesSql = `select c.oid::text, format('%I.%I', n.nspname, c.relname) as ident
  from pg_class c join pg_namespace n on n.oid = c.relnamespace
  where c.relkind in ('r', 'p') and n.nspname !~ '^pg_' and n.nspname <> 'information_schema'
    and has_table_privilege(c.oid, 'select') order by c.oid`

const attempts = 10

/**
 * A transaction whose snapshot is taken after every table is locked against changes of its form: to an older snapshot a table
 * that was rewritten in between would look empty.
 */
async function beginLocked(client: PgClient): Promise<void> {
  for (let attempt = 1; ; attempt += 1) {
    const { rows } = await client.query<{ oid: string; ident: string }>(tablesSql)
    await client.query('begin isolation level repeatable read read only')
    await client.query(`set local lock_timeout = '60s'`)
    try {
      if (rows.length > 0)
        await client.query(`lock table ${rows.map(({ ident }) => ident).join(', ')} in access share mode`)
    } catch (error) {
      await client.query('rollback')
      // Dropped in between.
      if ((error as { code?: string }).code !== '42P01' || attempt === attempts) throw error
      continue
    }
    for (const [name, value] of Object.entries(readSettings))
      await client.query('select set_config($1, $2, true)', [name, value])
    const seen = await client.query<{ oid: string }>(tablesSql)
    const locked = new Set(rows.map(({ oid }) => oid))
    if (seen.rows.every(({ oid }) => locked.has(oid))) return
    await client.query('rollback')
    if (attempt === attempts) throw new AppError(409, 'Tables are being made all the time: try the backup again later')
  }
}

/** Every name is full, every value is written out whole and in one form, and nothing is left out without a word. */
const readSettings = {
  search_path: '',
  datestyle: 'ISO',
  intervalstyle: 'postgres',
  extra_float_digits: '1',
  bytea_output: 'hex',
  row_security: 'off',
  jit: 'off',
}

/** A backup whose process was killed holds nothing back for longer. Seconds. */
const holdSeconds = 900
const renewMs = 120_000

/** Nothing removes content meanwhile that a row has named: the hold is there before the moment of the backup. */
export async function withContentHeld<T>(host: BackupHost, id: string, work: () => Promise<T>): Promise<T> {
  return onSoleConnection(
    host.config,
    'backup hold',
    async (client) => {
      await requireSetUp(readerOn(client))
      // A database that is about to be upgraded may have none yet.
      const { rows } = await client.query<{ there: boolean }>(`select to_regclass('"svc_Hold"') is not null as there`)
      return rows[0]!.there ? held(host, client, id, work) : work()
    },
    { writes: true },
  )
}

async function held<T>({ log }: BackupHost, client: PgClient, id: string, work: () => Promise<T>): Promise<T> {
  const hold = () => client.query(holdContentSql, [id, holdSeconds])
  await hold()
  let lost: unknown
  const timer = setInterval(() => {
    hold().catch((error: unknown) => {
      lost = error
      log.warn({ err: error }, 'the removal of content could not be held back any longer')
    })
  }, renewMs)
  try {
    const result = await work()
    if (lost !== undefined) throw lost
    return result
  } finally {
    clearInterval(timer)
    await client
      .query(releaseContentSql, [id])
      .catch((error: unknown) => log.warn({ err: error }, 'a hold could not be released; it ends by itself'))
  }
}

/**
 * The capabilities for a backup or a restore: they open connections of their own, so the database need not be set up.
 */
export type BackupHost = Configuration & Logs & StorageServices
