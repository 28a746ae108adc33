import { type Reader, sql, type Tx } from '../../../db/sql.ts'

type NewApiKey = {
  readonly name: string
  readonly userId: string
  /** Null: the role that the user has at the tenant, whichever that is. */
  readonly roleId: string | null
  readonly tenantId: string | null
  readonly hash: string
  readonly hint: string
  /** ISO 8601 with a zone; null: no end. */
  readonly expiresAt: string | null
}

/** A key as its owner sees it; times in wire form. */
type ApiKey = {
  readonly id: string
  readonly name: string
  readonly hint: string
  readonly role_Id: string | null
  readonly tenant_Id: string | null
  readonly expiresAt: string | null
  readonly lastUsedAt: string | null
  readonly createdAt: string
}

/** Undefined when the key would have ended already, by the database's clock. */
export function insertApiKey(tx: Tx, key: NewApiKey): Promise<ApiKey | undefined> {
  return tx.maybeOne<ApiKey>(sql.unsafe`
    insert into "svc_ApiKey" (name, "user_Id", "role_Id", "tenant_Id", hash, hint, "expiresAt")
    select ${key.name}, ${key.userId}::uuid, ${key.roleId}::uuid, ${key.tenantId}::uuid, ${key.hash}, ${key.hint}, ends.at
    from (select ${key.expiresAt}::timestamptz as at) ends
    where ends.at is null or ends.at > now()
    returning ${shown}`)
}

/** How many keys a user has. Others who ask wait until this transaction has ended. */
export async function countApiKeys(tx: Tx, userId: string): Promise<number> {
  await tx.any(sql.unsafe`select from "svc_User" where id = ${userId} for no key update`)
  const { count } = await tx.one<{ count: number }>(sql.unsafe`
    select count(*)::int as count from "svc_ApiKey" where "user_Id" = ${userId}`)
  return count
}

/** A user's keys, the newest first, ended ones too. */
export function apiKeysOf(db: Reader, userId: string): Promise<readonly ApiKey[]> {
  return db.any<ApiKey>(sql.unsafe`
    select ${shown} from "svc_ApiKey" where "user_Id" = ${userId} order by "createdAt" desc, id`)
}

/** False when the user has no such key. */
export async function deleteApiKey(tx: Tx, userId: string, id: string): Promise<boolean> {
  const rows = await tx.any(sql.unsafe`
    delete from "svc_ApiKey" where id::text = ${id.toLowerCase()} and "user_Id" = ${userId} returning id`)
  return rows.length === 1
}

const wire = (column: string) =>
  sql.fragment`to_char(${sql.identifier([column])} at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as ${sql.identifier([column])}`

const shown = sql.fragment`id, name, hint, "role_Id", "tenant_Id", ${wire('expiresAt')}, ${wire('lastUsedAt')}, ${wire('createdAt')}`
