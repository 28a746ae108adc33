import { type Reader, sql, type Tx } from '../../db/sql.ts'

/** One first sign-in of an identity after the other; until the transaction ends. */
export async function lockIdentity(tx: Tx, providerId: string, accountId: string): Promise<void> {
  const key = JSON.stringify(['social', providerId, accountId])
  await tx.any(sql.unsafe`select pg_advisory_xact_lock(hashtextextended(${key}, 0))`)
}

/** Whose identity it is. */
export async function findLinkedUser(db: Reader, providerId: string, accountId: string): Promise<string | undefined> {
  const row = await db.maybeOne<{ userId: string }>(sql.unsafe`
    select "user_Id" as "userId" from "svc_Account" where "providerId" = ${providerId} and "accountId" = ${accountId}`)
  return row?.userId
}

export type Link = {
  readonly userId: string
  readonly providerId: string
  readonly accountId: string
  readonly scope: string | null
  /** Sealed. */
  readonly accessToken: string | null
  readonly refreshToken: string | null
  readonly idToken: string | null
  /** Seconds from now. */
  readonly expiresIn: number | null
}

/** Links an identity to a user, or notes its new tokens; true when it was not linked before. */
export async function saveLink(tx: Tx, link: Link): Promise<boolean> {
  const { inserted } = await tx.one<{ inserted: boolean }>(sql.unsafe`
    insert into "svc_Account" as a
      ("user_Id", "providerId", "accountId", scope, "accessToken", "refreshToken", "idToken", "accessTokenExpiresAt")
    values (${link.userId}, ${link.providerId}, ${link.accountId}, ${link.scope}, ${link.accessToken},
      ${link.refreshToken}, ${link.idToken}, now() + make_interval(secs => ${link.expiresIn}))
    on conflict ("providerId", "accountId") do update
      set scope = excluded.scope, "accessToken" = excluded."accessToken",
          "refreshToken" = coalesce(excluded."refreshToken", a."refreshToken"), "idToken" = excluded."idToken",
          "accessTokenExpiresAt" = excluded."accessTokenExpiresAt", "updatedAt" = now()
    returning xmax = 0 as inserted`)
  return inserted
}

export type SocialUser = {
  readonly id: string
  readonly email: string | null
  readonly emailVerified: boolean
  readonly firstName: string
  readonly lastName: string | null
  readonly roleId: string
}

/** Creates an account without a password; false when its address got one meanwhile. */
export async function insertSocialUser(tx: Tx, user: SocialUser): Promise<boolean> {
  const inserted = await tx.maybeOne<{ id: string }>(sql.unsafe`
    insert into "svc_User" (id, "firstName", "lastName", email, "emailVerified")
    values (${user.id}, ${user.firstName}, ${user.lastName}, ${user.email}, ${user.emailVerified})
    on conflict do nothing returning id`)
  if (inserted === undefined) return false
  await tx.any(sql.unsafe`insert into "svc_UserRole" ("user_Id", "role_Id") values (${user.id}, ${user.roleId})`)
  return true
}
