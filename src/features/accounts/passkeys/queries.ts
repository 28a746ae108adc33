import type { KnownCredential, NewCredential } from '../../../adapters/webauthn.ts'
import { type Reader, sql, type Tx } from '../../../db/sql.ts'

/** A passkey as its owner sees it; times in wire form. */
type Passkey = {
  readonly id: string
  readonly name: string
  readonly deviceType: string | null
  readonly backedUp: boolean
  readonly createdAt: string
  readonly lastUsedAt: string | null
}

/** A user's passkeys, the oldest first. */
export function passkeysOf(db: Reader, userId: string): Promise<readonly Passkey[]> {
  return db.any<Passkey>(sql.unsafe`
    select id, name, "deviceType", "backedUp", ${wire('createdAt')}, ${wire('lastUsedAt')}
    from "svc_Passkey" where "user_Id" = ${userId} order by "createdAt", id`)
}

export async function credentialIdsOf(db: Reader, userId: string): Promise<readonly string[]> {
  const rows = await db.any<{ credentialID: string }>(sql.unsafe`
    select "credentialID" from "svc_Passkey" where "user_Id" = ${userId}`)
  return rows.map((row) => row.credentialID)
}

/** The new row; undefined when the credential is known already, whosever it is. */
export function insertPasskey(
  tx: Tx,
  userId: string,
  name: string,
  credential: NewCredential,
): Promise<Pick<Passkey, 'id' | 'name'> | undefined> {
  const { credentialId, publicKey, counter, deviceType, backedUp, transports, aaguid } = credential
  return tx.maybeOne<Pick<Passkey, 'id' | 'name'>>(sql.unsafe`
    insert into "svc_Passkey" ("user_Id", name, "credentialID", "publicKey", counter, "deviceType", "backedUp", transports, aaguid)
    values (${userId}, ${name}, ${credentialId}, ${publicKey}, ${counter}, ${deviceType}, ${backedUp},
            ${sql.jsonb(transports as never)}, ${aaguid})
    on conflict ("credentialID") do nothing
    returning id, name`)
}

export type StoredCredential = KnownCredential & { readonly id: string; readonly userId: string }

export function findCredential(db: Reader, credentialId: string): Promise<StoredCredential | undefined> {
  return db.maybeOne<StoredCredential>(sql.unsafe`
    select id, "user_Id" as "userId", "credentialID" as "credentialId", "publicKey", counter::float8 as counter
    from "svc_Passkey" where "credentialID" = ${credentialId}`)
}

/**
 * Notes a use; false when the passkey is gone, or another use with this counter was noted meanwhile. Authenticators
 * without a counter always say 0.
 */
export async function noteUse(tx: Tx, id: string, counter: number, backedUp: boolean): Promise<boolean> {
  const rows = await tx.any(sql.unsafe`
    update "svc_Passkey"
    set counter = ${counter}::bigint, "lastUsedAt" = now(), "backedUp" = ${backedUp}
    where id = ${id} and (counter < ${counter}::bigint or (counter = 0 and ${counter}::bigint = 0))
    returning id`)
  return rows.length === 1
}

/** False when the user has no such passkey. */
export async function deletePasskey(tx: Tx, userId: string, id: string): Promise<boolean> {
  const rows = await tx.any(sql.unsafe`
    delete from "svc_Passkey" where id::text = ${id.toLowerCase()} and "user_Id" = ${userId} returning id`)
  return rows.length === 1
}

const wire = (column: string) =>
  sql.fragment`to_char(${sql.identifier([column])} at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as ${sql.identifier([column])}`
