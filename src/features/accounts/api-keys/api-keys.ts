import { type Principal, type PrincipalRow, principalOf, principalSql } from '../../../access/principal.ts'
import type { CurrentAccess } from '../../../access/store.ts'
import type { Logs } from '../../../adapters/logger.ts'
import { hashSecret, newSecret } from '../../../adapters/tokens.ts'
import type { Catalog } from '../../../catalog/catalog.ts'
import { type CurrentCatalog, withFreshPlan } from '../../../catalog/store.ts'
import type { Configuration } from '../../../config/config.ts'
import type { ReservedReads } from '../../../db/pools.ts'
import { errors } from '../../../errors.ts'
import { oncePer } from '../../../language/once.ts'

/** A live key, and the principal it stands for now: its user, with the role that the user has at the key's tenant. */
type KeyPrincipal = Principal & {
  readonly keyId: string
  /** Not noted as used for five minutes. */
  readonly idle: boolean
  /** Milliseconds it still lives; infinite without an end. */
  readonly endsInMs: number
}

/**
 * The live key that a text is; undefined when it is none, mistyped, revoked or at its end, its user is not active, or
 * the user no longer has the role it was narrowed to. Always asks the database, so that whatever ends a key does so at
 * once; except for a typo, which the checksum tells. 503 when the database can't tell.
 */
export async function findApiKey(deps: ApiKeyReads, text: string): Promise<KeyPrincipal | undefined> {
  if (!isApiKey(text)) return undefined
  try {
    return await readKey(deps, hashSecret(text))
  } catch (error) {
    deps.log.warn({ err: error }, 'an API key could not be checked')
    throw Object.assign(errors.unavailable(), { cause: error })
  }
}

type FoundRow = PrincipalRow & { keyId: string; idle: boolean; endsInMs: number | null }

async function readKey(deps: ApiKeyReads, hash: string): Promise<KeyPrincipal | undefined> {
  const row = await readRow(deps, hash)
  if (row === undefined) return undefined
  const { keyId, idle, endsInMs, ...found } = row
  const principal = await principalOf(
    deps.reserved,
    deps.access.current(),
    deps.config.tenancy.enabled,
    found,
    deps.log,
  )
  return { ...principal, keyId, idle, endsInMs: endsInMs ?? Number.POSITIVE_INFINITY }
}

async function readRow(deps: ReservedReads & CurrentCatalog, hash: string): Promise<FoundRow | undefined> {
  return withFreshPlan(deps.catalog, async () => {
    const text = keySql(deps.catalog.current())
    const [row] = await deps.reserved.runQuick<FoundRow>(text, [hash])
    return row
  })
}

const keySql = oncePer(
  (catalog: Catalog) => `
    select k.id as "keyId", k."user_Id" as "userId", k."tenant_Id" as "tenantId", ${principalSql(catalog)},
      k."lastUsedAt" is null or k."lastUsedAt" < now() - interval '5 minutes' as idle,
      (extract(epoch from k."expiresAt" - now()) * 1000)::float8 as "endsInMs"
    from "svc_ApiKey" k
    join "svc_User" u on u.id = k."user_Id" and u.status = 'active'
    join "svc_UserRole" ur on ur."user_Id" = k."user_Id" and ur."tenant_Id" is not distinct from k."tenant_Id"
    join "svc_Role" r on r.id = ur."role_Id" and (k."role_Id" is null or k."role_Id" = r.id)
    left join "svc_Tenant" t on t.id = k."tenant_Id"
    where k.hash = $1 and (k."expiresAt" is null or k."expiresAt" > now())`,
)

/**
 * `dbk_`, 64 hex digits of chance, 8 of checksum: scanners for leaked secrets recognise it, one double click selects
 * it, and a typo is refused without a question to the database.
 */
export function newApiKey(): string {
  const body = prefix + newSecret()
  return body + checksumOf(body)
}

/** Whether a credential claims to be an API key; access tokens never do. */
export function readsLikeApiKey(text: string): boolean {
  return text.startsWith(prefix)
}

/** Whether it is one that this platform may have made. */
export function isApiKey(text: string): boolean {
  return shape.test(text) && text.endsWith(checksumOf(text.slice(0, -checksumLength)))
}

/** The beginning of a key, which tells its owner which one it is. */
export function hintOf(key: string): string {
  return key.slice(0, prefix.length + 6)
}

const prefix = 'dbk_'
const checksumLength = 8
const shape = /^dbk_[0-9a-f]{72}$/

function checksumOf(body: string): string {
  return hashSecret(body).slice(0, checksumLength)
}

/** The capabilities that reads of this folder need. */
type ApiKeyReads = ReservedReads & Configuration & CurrentAccess & CurrentCatalog & Logs
