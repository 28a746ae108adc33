import { sql, type Tx, type UnloggedWrites } from '../sql.ts'
import { run } from './run.ts'

/* Sessions. Those that open and end one ride in the transaction of the event that says so; hence they take a Tx. */

/** The kind of client that signed in; sessions of type `default` have no limit. */
export type SessionType = 'default' | 'web' | 'mobile'

export type SessionOrigin = {
  readonly tokenHash: string
  readonly seconds: number
  readonly ip: string
  readonly userAgent: string | null
}

export type SessionRequest = {
  readonly userId: string
  readonly roleId: string
  readonly tenantId: string | null
  readonly type: SessionType
  /** The hash that the caller's password was checked against; undefined when it was something else that was checked. */
  readonly passwordHash: string | null | undefined
}

export type NewSession = SessionOrigin & SessionRequest

/**
 * Opens a session; undefined when the account was suspended or its password changed since it was checked. The lock keeps
 * both from happening before the session can be seen, so a password reset that changes the user's row first and then
 * deletes the sessions misses none.
 */
export async function insertSession(tx: Tx, session: NewSession): Promise<OpenedSession | undefined> {
  const samePassword =
    session.passwordHash === undefined ? sql`true` : sql`u.password is not distinct from ${session.passwordHash}`
  return tx.maybeOne<OpenedSession>(sql`
    insert into "svc_Sessions" as s (token, "user_Id", "role_Id", "tenant_Id", "expiresAt", "ipAddress", "userAgent", type)
    select ${session.tokenHash}, u.id, ${session.roleId}::uuid, ${session.tenantId}::uuid,
           now() + make_interval(secs => ${session.seconds}), ${session.ip}, ${session.userAgent}, ${session.type}
    from "svc_User" u
    where u.id = ${session.userId} and u.status = 'active' and ${samePassword}
    for share
    returning s.id, ${userRoleId}`)
}

/** The role assignment that a session is for; null where its user has none there. */
type OpenedSession = { readonly id: string; readonly userRoleId: string | null }

const userRoleId = sql`(
  select ur.id from "svc_UserRole" ur
  where ur."user_Id" = s."user_Id" and ur."tenant_Id" is not distinct from s."tenant_Id") as "userRoleId"`

/**
 * Ends a live session and opens its successor, in one statement: of any number at the same time exactly one gets
 * through. Undefined when the session has ended already. Locks the user like `insertSession`. The successor counts as unused as
 * long as it was last used when it began.
 */
export async function replaceSession(
  tx: Tx,
  sessionId: string,
  roleId: string,
  next: SessionOrigin,
): Promise<OpenedSession | undefined> {
  return tx.maybeOne<OpenedSession>(sql`
    with owner as materialized (
      select u.id from "svc_User" u join "svc_Sessions" s on s."user_Id" = u.id
      where s.id = ${sessionId} and u.status = 'active' for share of u),
    ended as (
      delete from "svc_Sessions" s using owner
      where s.id = ${sessionId} and s."user_Id" = owner.id and s."expiresAt" > now() returning s.*)
    insert into "svc_Sessions" as s (token, "user_Id", "role_Id", "tenant_Id", "createdAt", "lastUsedAt", "expiresAt", "ipAddress", "userAgent", type)
    select ${next.tokenHash}, "user_Id", ${roleId}::uuid, "tenant_Id", now(), now(), now() + make_interval(secs => ${next.seconds}),
           ${next.ip}, ${next.userAgent}, type
    from ended
    returning s.id, ${userRoleId}`)
}

/** Ends the sessions of a user but for one, all without. Change the user's row first (see `insertSession`). */
export async function deleteOtherSessions(tx: Tx, userId: string, kept: string | undefined): Promise<void> {
  await tx.any(sql`
    delete from "svc_Sessions" where "user_Id" = ${userId} and id is distinct from ${kept ?? null}::uuid`)
}

/** When a live session began, and whose it is; undefined when it has ended. It cannot end before the transaction does. */
export function lockSession(tx: Tx, sessionId: string): Promise<{ userId: string; beganAt: number } | undefined> {
  return tx.maybeOne<{ userId: string; beganAt: number }>(sql`
    select "user_Id" as "userId", floor(extract(epoch from "createdAt"))::int as "beganAt" from "svc_Sessions"
    where id = ${sessionId} and "expiresAt" > now() for share`)
}

/** Ends a live session and tells its type; undefined when it had ended before. */
export async function takeSession(tx: Tx, sessionId: string): Promise<{ type: SessionType } | undefined> {
  return tx.maybeOne<{ type: SessionType }>(sql`
    delete from "svc_Sessions" where id = ${sessionId} and "expiresAt" > now() returning type`)
}

/** False when it had ended before. */
export async function deleteSession(tx: Tx, sessionId: string): Promise<boolean> {
  const rows = await tx.any(sql`delete from "svc_Sessions" where id = ${sessionId} returning id`)
  return rows.length === 1
}

/** Ends live sessions of a user, all or the one with this id; the ids of those that had not ended before. */
export async function deleteSessionsOf(tx: Tx, userId: string, sessionId?: string): Promise<readonly string[]> {
  const which = sessionId === undefined ? sql`` : sql`and id = ${sessionId}`
  const rows = await tx.any<{ id: string }>(sql`
    delete from "svc_Sessions" where "user_Id" = ${userId} and "expiresAt" > now() ${which} returning id`)
  return rows.map(({ id }) => id)
}

/** Moves the end of a session that a program renews, whose token is derived by another key after a rotation of SECRET_KEY. */
export async function renewSession(tx: Tx, sessionId: string, tokenHash: string, seconds: number): Promise<void> {
  await tx.any(sql`
    update "svc_Sessions" set token = ${tokenHash}, "expiresAt" = now() + make_interval(secs => ${seconds}), "updatedAt" = now()
    where id = ${sessionId}`)
}

/** For the cleanup worker; gives how many expired ones were deleted. */
export async function deleteExpiredSessions(deps: UnloggedWrites, atMost: number): Promise<number> {
  const rows = await run(
    deps,
    `delete from "svc_Sessions" where id in (
       select id from "svc_Sessions" where "expiresAt" <= now() order by "expiresAt" limit $1 for update skip locked)
     returning id`,
    [atMost],
  )
  return rows.length
}

/** The user or role whose view a session shows. */
export type PreviewOf = {
  readonly userId: string | null
  readonly roleId: string | null
  readonly tenantId: string | null
}

/** Has a session show another's view. It counts as a change of the session, so that every process hears of it. */
export async function upsertPreview(tx: Tx, sessionId: string, { userId, roleId, tenantId }: PreviewOf): Promise<void> {
  await tx.any(sql`
    insert into "svc_Preview" ("session_Id", "user_Id", "role_Id", "tenant_Id")
    values (${sessionId}, ${userId}::uuid, ${roleId}::uuid, ${tenantId}::uuid)
    on conflict ("session_Id") do update
      set "user_Id" = excluded."user_Id", "role_Id" = excluded."role_Id", "tenant_Id" = excluded."tenant_Id", "startedAt" = now()`)
  await markChanged(tx, sessionId)
}

/** Has a session show its owner's view again; false where it did. */
export async function deletePreview(tx: Tx, sessionId: string): Promise<boolean> {
  const rows = await tx.any(sql`delete from "svc_Preview" where "session_Id" = ${sessionId} returning true`)
  if (rows.length > 0) await markChanged(tx, sessionId)
  return rows.length > 0
}

async function markChanged(tx: Tx, sessionId: string): Promise<void> {
  await tx.any(sql`update "svc_Sessions" set "lastUsedAt" = now() where id = ${sessionId}`)
}

/** Moves the end of a live session to `seconds` from now, at most once a day. */
export async function extendSession(deps: UnloggedWrites, sessionId: string, seconds: number): Promise<void> {
  await run(
    deps,
    `update "svc_Sessions" set "expiresAt" = now() + make_interval(secs => $2), "updatedAt" = now()
     where id = $1 and "expiresAt" > now() and "updatedAt" < now() - interval '1 day'`,
    [sessionId, seconds],
  )
}

/** Notes that a session which has replaced another one was used for the first time. */
export async function beginUse(deps: UnloggedWrites, sessionId: string): Promise<void> {
  await run(
    deps,
    `update "svc_Sessions" set "lastUsedAt" = greatest(now(), "createdAt" + interval '1 millisecond')
     where id = $1 and "lastUsedAt" = "createdAt"`,
    [sessionId],
  )
}

/** Notes that a session was used and, unless it is one of a program, that its user was here; at most every five minutes. */
export async function touchSession(
  deps: UnloggedWrites,
  { id: sessionId, userId, client }: { readonly id: string; readonly userId: string; readonly client: string | null },
): Promise<void> {
  await run(
    deps,
    `update "svc_Sessions" set "lastUsedAt" = now()
     where id = $1 and coalesce("lastUsedAt", "createdAt") < now() - interval '5 minutes'`,
    [sessionId],
  )
  if (client === null) await touchLastAccess(deps, userId)
}

/** Notes that a user was here, at most every five minutes. */
export async function touchLastAccess(deps: UnloggedWrites, userId: string): Promise<void> {
  await run(
    deps,
    `update "svc_User" set "lastAccess" = now()
     where id = $1 and ("lastAccess" is null or "lastAccess" < now() - interval '5 minutes')`,
    [userId],
  )
}

/** Notes that an API key was used, at most every five minutes. */
export async function touchApiKey(deps: UnloggedWrites, keyId: string): Promise<void> {
  await run(
    deps,
    `update "svc_ApiKey" set "lastUsedAt" = now()
     where id = $1 and ("lastUsedAt" is null or "lastUsedAt" < now() - interval '5 minutes')`,
    [keyId],
  )
}
