import { hkdfSync } from 'node:crypto'
import packageJson from '../../../../package.json' with { type: 'json' }
import type { Config } from '../../../config/config.ts'
import { type Reader, rawQuery } from '../../../db/sql.ts'
import type { Objects } from './objects.ts'

/** The description of a backup before its first part. */
export type BackupHeader = {
  readonly id: string
  /** When its moment was, ISO 8601 in UTC. */
  readonly createdAt: string
  /** The version of the program that made it, the newest migration of the platform in it, and the server's version. */
  readonly program: string
  readonly migration: string | undefined
  readonly server: string
  readonly database: string
  /** {@link fingerprintOf} the key that sealed what is sealed in it; null where whoever made it did not have it. */
  readonly key: string | null
  readonly sealed: readonly SealedValues[]
  /** Whether the keys are in it, under a passphrase. */
  readonly hasKeys: boolean
  readonly storages: readonly { readonly name: string; readonly files: number; readonly bytes: number }[]
}

/** The values that only SECRET_KEY decrypts, in words, and their number. */
type SealedValues = { readonly what: string; readonly count: number }

/** Tells keys apart, and says nothing else of them. */
export function fingerprintOf(secret: string): string {
  return Buffer.from(hkdfSync('sha256', secret, 'daybook', 'fingerprint of backups', 8)).toString('hex')
}

const sealedColumns = [
  ['svc_Settings', 'smtp_pass', 'SMTP passwords'],
  ['svc_TwoFactor', 'secret', 'second factors'],
  ['svc_Webhook', 'secret', 'secrets of webhooks'],
  ['svc_Secret', 'value', 'secrets of workflows'],
  ['svc_Account', 'accessToken', 'tokens of sign-in providers'],
  ['svc_Account', 'refreshToken', 'tokens of sign-in providers'],
] as const

const factsSql = `select to_char(now() at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as "createdAt",
    current_setting('server_version') as server, current_database() as database`

export async function headerOf(
  { config }: { readonly config: Config },
  db: Reader,
  { relations, columns }: Objects,
  { id, hasKeys }: Pick<BackupHeader, 'id' | 'hasKeys'>,
): Promise<BackupHeader> {
  const facts = await db.one<{ createdAt: string; server: string; database: string }>(rawQuery(factsSql))
  const { secretKey } = config.auth
  const tables = new Map(relations.flatMap(({ schema, name, oid }) => (schema === 'public' ? [[name, oid]] : [])))
  const has = (table: string, column: string) =>
    columns.some(({ relation, plainName }) => relation === tables.get(table) && plainName === column)
  const counts = new Map<string, number>()
  for (const [table, column, what] of sealedColumns) {
    if (!has(table, column)) continue
    const { count } = await db.one<{ count: number }>(
      rawQuery(`select count("${column}")::float8 as count from public."${table}"`),
    )
    if (count > 0) counts.set(what, (counts.get(what) ?? 0) + count)
  }
  const storages = has('svc_File', 'size') ? await db.any<BackupHeader['storages'][number]>(rawQuery(storagesSql)) : []
  return {
    id,
    ...facts,
    program: packageJson.version,
    migration: tables.has('svc_Migration') ? await newestMigration(db) : undefined,
    key: secretKey === '' ? null : fingerprintOf(secretKey),
    hasKeys,
    sealed: [...counts].map(([what, count]) => ({ what, count })),
    storages,
  }
}

const storagesSql = `select storage as name, count(*)::float8 as files, coalesce(sum(size), 0)::float8 as bytes
  from public."svc_File" group by storage order by storage`

/** The newest migration of the platform that a database has. */
async function newestMigration(db: Reader): Promise<string | undefined> {
  const row = await db.maybeOne<{ version: string }>(
    rawQuery(`select version from public."svc_Migration" where version ~ '^0\\.\\d+\\.\\d+$' and status = 'completed'
      order by string_to_array(version, '.')::int[] desc limit 1`),
  )
  return row?.version
}
