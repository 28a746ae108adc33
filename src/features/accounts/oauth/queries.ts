import type { IdTokenAlgorithm } from '../../../adapters/id-tokens.ts'
import { type Reader, sql, type Tx } from '../../../db/sql.ts'

/* Programs. */

/** The stored metadata of a program that has registered itself. */
export type StoredMetadata = {
  readonly client_name: string
  readonly client_uri?: string
  readonly redirect_uris: readonly string[]
  readonly grant_types: readonly string[]
  /** Where it is not the default. */
  readonly id_token_signed_response_alg?: string
}

/** The metadata of a registered program; undefined for an unknown or expired one. */
export async function readClient(db: Reader, id: string): Promise<StoredMetadata | undefined> {
  const row = await db.maybeOne<{ metadata: StoredMetadata }>(
    sql`select metadata from "svc_OAuthClient" where id = ${id} and "expiresAt" > now()`,
  )
  return row?.metadata
}

/** No other request registers one before the transaction ends. */
export async function lockRegistrations(tx: Tx): Promise<void> {
  await tx.any(sql`select pg_advisory_xact_lock(hashtextextended('registrations of programs', 0))`)
}

export function countClients(tx: Tx, id: string, network: string) {
  return tx.one<{ ofNetwork: number; all: number; isKnown: boolean }>(sql`
    select count(*) filter (where "registeredBy" = ${network})::int as "ofNetwork", count(*)::int as "all",
      coalesce(bool_or(id = ${id}), false) as "isKnown"
    from "svc_OAuthClient" where "expiresAt" > now()`)
}

type NewClient = {
  readonly id: string
  readonly metadata: StoredMetadata
  readonly network: string
  readonly seconds: number
}

/** Makes a program, or keeps it for longer. */
export function upsertClient(tx: Tx, { id, metadata, network, seconds }: NewClient): Promise<{ createdAt: string }> {
  return tx.one<{ createdAt: string }>(sql`
    insert into "svc_OAuthClient" as c (id, metadata, "registeredBy", "expiresAt")
    values (${id}, ${sql.jsonb(metadata)}, ${network}, now() + make_interval(secs => ${seconds}))
    on conflict (id) do update set "expiresAt" = greatest(c."expiresAt", excluded."expiresAt")
    returning to_json("createdAt") #>> '{}' as "createdAt"`)
}

/** Keeps a program that a user signs in to; those with a document of their own are not kept. */
export async function keepClient(tx: Tx, id: string, seconds: number): Promise<void> {
  await tx.any(sql`
    update "svc_OAuthClient" set "expiresAt" = greatest("expiresAt", now() + make_interval(secs => ${seconds}))
    where id = ${id}`)
}

/* Codes. */

/** A user's consent, as its code stores it. */
export type Consent = {
  readonly clientId: string
  readonly clientName: string
  readonly redirectUri: string
  readonly challenge: string
  readonly scopes: readonly string[]
  readonly resources: readonly string[]
  readonly nonce: string | undefined
  readonly refreshes: boolean
  /** None in codes of a version that had no choice. */
  readonly idTokenAlgorithm?: IdTokenAlgorithm
  readonly roleId: string
  readonly tenantId: string | null
  /** The session in which it was allowed, and when that began: the code dies with it. */
  readonly sessionId: string
  readonly beganAt?: number
}

export async function insertCode(
  tx: Tx,
  hash: string,
  userId: string,
  consent: Consent,
  seconds: number,
): Promise<void> {
  await tx.any(sql`
    insert into "svc_OAuthCode" (hash, "user_Id", consent, "expiresAt")
    values (${hash}, ${userId}, ${sql.jsonb(consent)}, now() + make_interval(secs => ${seconds}))`)
}

/** A code as it is stored. */
export type StoredCode = {
  readonly userId: string
  readonly consent: Consent
  readonly isUsed: boolean
  readonly isExpired: boolean
  /** The session that its first use has opened, while it lives. */
  readonly sessionId: string | null
}

/** Of simultaneous uses one after the other sees it. */
export function lockCode(tx: Tx, hash: string): Promise<StoredCode | undefined> {
  return tx.maybeOne<StoredCode>(sql`
    select "user_Id" as "userId", consent, "usedAt" is not null as "isUsed", "expiresAt" <= now() as "isExpired",
      "session_Id" as "sessionId"
    from "svc_OAuthCode" where hash = ${hash} for update`)
}

export async function useCode(tx: Tx, hash: string, sessionId: string | null): Promise<void> {
  await tx.any(sql`update "svc_OAuthCode" set "usedAt" = now(), "session_Id" = ${sessionId}::uuid where hash = ${hash}`)
}

/* The consents of users. */

type NewGrant = {
  readonly id: string
  readonly sessionId: string
  readonly clientId: string
  readonly clientName: string
  readonly scopes: readonly string[]
  readonly resources: readonly string[]
}

export async function insertGrant(tx: Tx, grant: NewGrant): Promise<void> {
  await tx.any(sql`
    insert into "svc_OAuthGrant" (id, "session_Id", "clientId", "clientName", scopes, resources)
    values (${grant.id}, ${grant.sessionId}, ${grant.clientId}, ${grant.clientName},
            ${sql.array(grant.scopes, 'text')}, ${sql.array(grant.resources, 'text')})`)
}

/** A grant whose session lives, and the user its tokens stand for. */
export type StoredGrant = NewGrant & {
  readonly generation: number
  readonly userId: string
  readonly roleId: string
  readonly tenantId: string | null
  readonly userRoleId: string
}

/** Undefined when its session has ended. Of simultaneous uses one after the other sees it. */
export function lockGrant(tx: Tx, id: string): Promise<StoredGrant | undefined> {
  return tx.maybeOne<StoredGrant>(sql`
    select g.id, g."session_Id" as "sessionId", g."clientId", g."clientName", g.scopes, g.resources, g.generation,
      s."user_Id" as "userId", ur."role_Id" as "roleId", ur.id as "userRoleId", s."tenant_Id" as "tenantId"
    from "svc_OAuthGrant" g
    join "svc_Sessions" s on s.id = g."session_Id" and s."expiresAt" > now()
    join "svc_User" u on u.id = s."user_Id" and u.status = 'active'
    join "svc_UserRole" ur on ur."user_Id" = s."user_Id" and ur."tenant_Id" is not distinct from s."tenant_Id"
    where g.id = ${id} for update of g`)
}

/** The grant of a live session. */
export async function grantOfSession(tx: Tx, sessionToken: string): Promise<{ id: string } | undefined> {
  return tx.maybeOne<{ id: string }>(sql`
    select g.id from "svc_OAuthGrant" g join "svc_Sessions" s on s.id = g."session_Id" where s.token = ${sessionToken}`)
}

/** Whether a user lets a program act now. */
export async function hasGrant(db: Reader, userId: string, clientId: string): Promise<boolean> {
  const found = await db.maybeOne(sql`
    select 1 as one from "svc_OAuthGrant" g
    join "svc_Sessions" s on s.id = g."session_Id" and s."user_Id" = ${userId} and s."expiresAt" > now()
    where g."clientId" = ${clientId} limit 1`)
  return found !== undefined
}

export async function nextGeneration(tx: Tx, id: string): Promise<void> {
  await tx.any(sql`update "svc_OAuthGrant" set generation = generation + 1 where id = ${id}`)
}
