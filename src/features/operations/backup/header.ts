import { createCipheriv, createDecipheriv, hkdfSync, randomBytes, scrypt } from 'node:crypto'
import { promisify } from 'node:util'
import packageJson from '../../../../package.json' with { type: 'json' }
import type { Config } from '../../../config/config.ts'
import { type Reader, rawQuery } from '../../../db/sql.ts'
import { AppError } from '../../../errors.ts'
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

// The keys of an installation in a backup: only under a passphrase, by scrypt and AES-256-GCM.

/** By the names of their variables. */
export type Keys = Readonly<Record<string, string>>

export function keysOf({ auth, log }: Config): Keys {
  const all = { SECRET_KEY: auth.secretKey, SECRET_KEY_PREVIOUS: auth.secretKeyPrevious, LOG_SEAL_KEY: log.sealKey }
  return Object.fromEntries(Object.entries(all).filter((entry): entry is [string, string] => (entry[1] ?? '') !== ''))
}

type SealedKeys = {
  readonly N: number
  readonly r: number
  readonly p: number
  readonly salt: string
  readonly nonce: string
  readonly tag: string
  readonly text: string
}

/** Takes 32 MiB and about a third of a second. */
const cost = { N: 2 ** 15, r: 8, p: 3 }
/** The maker of a backup must not choose how much memory reading it takes. */
const mostMemory = 256 * 1024 * 1024
const derive = promisify<string, Buffer, number, { N: number; r: number; p: number; maxmem: number }, Buffer>(scrypt)

export async function sealKeys(keys: Keys, passphrase: string): Promise<string> {
  const [salt, nonce] = [randomBytes(16), randomBytes(12)]
  const cipher = createCipheriv(
    'aes-256-gcm',
    await derive(passphrase, salt, 32, { ...cost, maxmem: mostMemory }),
    nonce,
  )
  const text = Buffer.concat([cipher.update(JSON.stringify(keys), 'utf8'), cipher.final()])
  const bytes = { salt, nonce, tag: cipher.getAuthTag(), text }
  const encoded = Object.fromEntries(Object.entries(bytes).map(([name, value]) => [name, value.toString('base64')]))
  return JSON.stringify({ ...cost, ...encoded })
}

/** 409 for another passphrase. */
export async function openKeys(sealed: string, passphrase: string): Promise<Keys> {
  const { N, r, p, ...encoded } = JSON.parse(sealed) as SealedKeys
  const bytes = (name: keyof typeof encoded) => Buffer.from(encoded[name], 'base64')
  const key = await derive(passphrase, bytes('salt'), 32, { N, r, p, maxmem: mostMemory })
  const decipher = createDecipheriv('aes-256-gcm', key, bytes('nonce'), { authTagLength: 16 })
  decipher.setAuthTag(bytes('tag'))
  const text = decipher.update(bytes('text'))
  try {
    return JSON.parse(Buffer.concat([text, decipher.final()]).toString('utf8')) as Keys
  } catch (cause) {
    throw new AppError(409, 'The passphrase does not open the keys of the backup', { code: 'WRONG_PASSPHRASE', cause })
  }
}
