import { ownRowSql } from '../../../access/principal.ts'
import type { Role } from '../../../access/store.ts'
import type { Catalog } from '../../../catalog/catalog.ts'
import type { Database } from '../../../db/pools.ts'
import { type Reader, rawQuery, sql, type Tx } from '../../../db/sql.ts'
import { projectionList, projectionSql } from '../../../query/compile-rows.ts'
import {
  type MailType,
  type SecretPurpose,
  secretIdentifier,
  wantedEmailKey,
  wantedEmailSeconds,
} from '../../messaging/mail/mail.ts'
import { insertMembership } from '../membership/membership.ts'

/** The user that an answer of `/auth` is about. */
export type Person = {
  readonly id: string
  /** Null where a social provider gave none. */
  readonly email: string | null
  readonly firstName: string
  readonly lastName: string | null
}

export type Account = Person & {
  readonly status: string
  readonly emailVerified: boolean
  /** The stored hash; null for accounts that sign in elsewhere. */
  readonly password: string | null
}

/** A role of a user, at a tenant in multi-tenant mode. Rows are in wire form. */
export type Membership = {
  /** Of the row of svc_UserRole. */
  readonly userRoleId: string
  readonly tenantId: string | null
  readonly role: Role
  readonly tenant: Readonly<Record<string, unknown>> | null
}

const accountSql = sql`
  select id, email, "firstName", "lastName", status, "emailVerified", password from "svc_User"`

/** The account of an address in canonical form. */
export function findAccount(db: Reader, email: string): Promise<Account | undefined> {
  return db.maybeOne<Account>(sql`${accountSql} where email = ${email}`)
}

export function accountOf(db: Reader, userId: string): Promise<Account | undefined> {
  return db.maybeOne<Account>(sql`${accountSql} where id = ${userId}`)
}

/** The account as it is now; no other transaction changes it before this one ends. */
export function lockAccount(tx: Tx, userId: string): Promise<Account | undefined> {
  return tx.maybeOne<Account>(sql`${accountSql} where id = ${userId} for no key update`)
}

/**
 * The account whose address a secret was sent to, locked like above: asked before the secret is used up, so that
 * everything that changes an account begins with its row and none waits for another in a circle.
 */
export function lockHolder(tx: Tx, purpose: SecretPurpose, hash: string): Promise<Account | undefined> {
  const prefix = secretIdentifier(purpose, '')
  return tx.maybeOne<Account>(sql`
    ${accountSql}
    where email = (
      select substr(identifier, char_length(${prefix}) + 1) from "svc_Verification"
      where value = ${hash} and starts_with(identifier, ${prefix}) order by "createdAt" desc limit 1)
    for no key update`)
}

/** Which account is to have which address, by the hash of the link that was mailed there; used or not. */
export async function wantedEmailOf(
  tx: Tx,
  hash: string,
): Promise<{ readonly userId: string; readonly email: string } | undefined> {
  const prefix = secretIdentifier('email-change', '')
  const found = await tx.maybeOne<{ owner: string }>(sql`
    select substr(identifier, char_length(${prefix}) + 1) as owner from "svc_Verification"
    where value = ${hash} and starts_with(identifier, ${prefix}) limit 1`)
  if (found === undefined) return undefined
  const [userId, email] = found.owner.split(' ') as [string, string]
  return { userId, email }
}

/** Gives an account an address that its owner has confirmed. */
export async function setVerifiedEmail(tx: Tx, userId: string, email: string): Promise<void> {
  await tx.any(sql`
    update "svc_User" set email = ${email}, "emailVerified" = true, "updatedAt" = now() where id = ${userId}`)
}

export async function setPassword(tx: Tx, userId: string, passwordHash: string): Promise<void> {
  await tx.any(sql`
    update "svc_User" set password = ${passwordHash}, "updatedAt" = now() where id = ${userId}`)
}

/** Puts another hash of the same password in the place of the one that it was verified by; false where that is no longer there. */
export async function replaceHash(
  tx: Tx,
  { id, password }: Pick<Account, 'id' | 'password'>,
  passwordHash: string,
): Promise<boolean> {
  const replaced = await tx.any(sql`
    update "svc_User" set password = ${passwordHash}, "updatedAt" = now()
    where id = ${id} and password = ${password} returning 1`)
  return replaced.length > 0
}

/** Marks an account's address as verified and takes its password away. */
export async function verifyWithoutPassword(tx: Tx, userId: string): Promise<void> {
  await tx.any(sql`
    update "svc_User" set "emailVerified" = true, password = null, "updatedAt" = now() where id = ${userId}`)
}

/** Takes away what opens an account or guards it besides its password: social providers, passkeys, keys, second factor. */
export async function dropCredentials(tx: Tx, userId: string): Promise<void> {
  await tx.any(sql`delete from "svc_Account" where "user_Id" = ${userId}`)
  await tx.any(sql`delete from "svc_Passkey" where "user_Id" = ${userId}`)
  await tx.any(sql`delete from "svc_ApiKey" where "user_Id" = ${userId}`)
  await tx.any(sql`delete from "svc_TwoFactor" where "user_Id" = ${userId}`)
}

/** Every role of a user, the oldest first. */
export function membershipsOf(db: Reader, catalog: Catalog, userId: string): Promise<readonly Membership[]> {
  const row = (name: string, alias: string) => ownRowSql(catalog.collections.get(name)!, alias)
  const text = `
    select ur.id as "userRoleId", ur."tenant_Id" as "tenantId", ${row('svc_Role', 'r')} as role,
      case when t.id is not null then ${row('svc_Tenant', 't')} end as tenant
    from "svc_UserRole" ur
    join "svc_Role" r on r.id = ur."role_Id"
    left join "svc_Tenant" t on t.id = ur."tenant_Id"
    where ur."user_Id" = $1
    order by ur."createdAt", ur.id`
  return db.any<Membership>(rawQuery(text, [userId]))
}

type OwnRow = {
  readonly user: Readonly<Record<string, unknown>>
  /** Not noted as present for five minutes. */
  readonly idle: boolean
}

/** A user's own row in wire form, without hidden fields. */
export async function readOwnRow(db: Database, catalog: Catalog, userId: string): Promise<OwnRow | undefined> {
  const text = `
    select ${ownRowSql(catalog.collections.get('svc_User')!, 'u')} as "user",
      u."lastAccess" is null or u."lastAccess" < now() - interval '5 minutes' as idle
    from "svc_User" u where u.id = $1`
  const [row] = await db.runQuick<OwnRow>(text, [userId])
  return row
}

export type NewUser = Omit<Person, 'email' | 'lastName'> & {
  readonly email: string
  readonly lastName: string
  readonly phone: string | null
  readonly passwordHash: string
  readonly emailVerified: boolean
  readonly roleId: string
  /** Null outside multi-tenant mode. */
  readonly tenantId: string | null
}

/** Creates an account with its role; otherwise says what is another account's already: the address, or else the phone number. */
export async function insertUser(tx: Tx, user: NewUser): Promise<'created' | 'address taken' | 'phone taken'> {
  const inserted = await tx.maybeOne<{ id: string }>(sql`
    insert into "svc_User" (id, "firstName", "lastName", email, phone, password, "emailVerified")
    values (${user.id}, ${user.firstName}, ${user.lastName}, ${user.email}, ${user.phone}, ${user.passwordHash},
            ${user.emailVerified})
    on conflict do nothing returning id`)
  if (inserted === undefined)
    return user.phone === null || (await findAccount(tx, user.email)) !== undefined ? 'address taken' : 'phone taken'
  await insertMembership(tx, { userId: user.id, ...user })
  return 'created'
}

export async function userExists(db: Reader, id: string): Promise<boolean> {
  return (await db.maybeOne(sql`select id from "svc_User" where id = ${id}`)) !== undefined
}

/** A session as its user may see it, in wire form. */
type ListedSession = {
  readonly id: string
  readonly type: string
  readonly ipAddress: string | null
  readonly userAgent: string | null
  readonly tenant_Id: string | null
  readonly createdAt: string
  readonly lastUsedAt: string
  readonly expiresAt: string
  /** The program that it was opened for; null where the user has signed in. */
  readonly client: { readonly id: string; readonly name: string; readonly scopes: readonly string[] } | null
}

/** The newest first. */
export function liveSessionsOf(db: Reader, catalog: Catalog, userId: string): Promise<readonly ListedSession[]> {
  const { fields } = catalog.collections.get('svc_Sessions')!
  const shown = ['id', 'type', 'ipAddress', 'userAgent', 'tenant_Id', 'createdAt', 'expiresAt']
  const columns = projectionList(
    shown.map((name) => fields.get(name)!),
    's',
  )
  const lastUsed = projectionSql(fields.get('createdAt')!, 'used')
  const text = `
    select ${columns}, ${lastUsed} as "lastUsedAt",
      case when g.id is not null then json_build_object('id', g."clientId", 'name', g."clientName", 'scopes', g.scopes) end as client
    from "svc_Sessions" s left join "svc_OAuthGrant" g on g."session_Id" = s.id, lateral (select coalesce(s."lastUsedAt", s."createdAt") as "createdAt") used
    where s."user_Id" = $1 and s."expiresAt" > now() order by s."createdAt" desc, s.id`
  return db.any<ListedSession>(rawQuery(text, [userId]))
}

/** No other transaction counts the user's sessions before this one ends; gives the limits of the user's own. */
export async function lockSessionsOf(tx: Tx, userId: string): Promise<unknown> {
  await tx.any(sql`select pg_advisory_xact_lock(hashtextextended(${`sessions of ${userId}`}, 0))`)
  const user = await tx.maybeOne<{ limits: unknown }>(
    sql`select session_limits as limits from "svc_User" where id = ${userId}`,
  )
  return user?.limits
}

/** The live ones of a type, at all tenants. */
export async function countSessionsOf(tx: Tx, userId: string, type: string): Promise<number> {
  const { count } = await tx.one<{ count: number }>(sql`
    select count(*)::int as count from "svc_Sessions"
    where "user_Id" = ${userId} and type = ${type} and "expiresAt" > now()`)
  return count
}

/** The state that decides whether a verification mail is sent. */
export type VerificationState = Pick<Account, 'id' | 'emailVerified' | 'status'> & { readonly email: string }

/** By address in canonical form, or by user. */
export function verificationStateOf(
  db: Reader,
  who: { email: string } | { userId: string },
): Promise<VerificationState | undefined> {
  const condition = 'email' in who ? sql`email = ${who.email}` : sql`id = ${who.userId}`
  return db.maybeOne<VerificationState>(sql`
    select id, email, "emailVerified", status from "svc_User" where email is not null and ${condition}`)
}

/** Whether such a mail to the address was accepted within the last `seconds`, by the database's clock. */
export async function wasMailedRecently(
  db: Reader,
  email: string,
  seconds: number,
  type: MailType = 'verification',
): Promise<boolean> {
  const { recent } = await db.one<{ recent: boolean }>(sql`
    select exists(
      select from "svc_EmailLog"
      where email = ${email} and "templateName" = ${type}
        and "createdAt" > clock_timestamp() - make_interval(secs => ${seconds})) as recent`)
  return recent
}

/** Whether the account's last request for another address, unless it has ended, is younger than so many seconds. */
export async function hasAskedRecently(db: Reader, userId: string, seconds: number): Promise<boolean> {
  const { recent } = await db.one<{ recent: boolean }>(sql`
    select exists(
      select from "svc_Challenge"
      where identifier = ${wantedEmailKey(userId)}
        and "expiresAt" > clock_timestamp() + make_interval(secs => ${wantedEmailSeconds - seconds})) as recent`)
  return recent
}

/** No other transaction sends to the address before this one ends; false when another one is at it now. */
export async function lockVerificationOf(tx: Tx, email: string): Promise<boolean> {
  const { locked } = await tx.one<{ locked: boolean }>(sql`
    select pg_try_advisory_xact_lock(hashtextextended(${`email-verification:${email}`}, 0)) as locked`)
  return locked
}

export async function markVerified(tx: Tx, userId: string): Promise<void> {
  await tx.any(sql`update "svc_User" set "emailVerified" = true, "updatedAt" = now() where id = ${userId}`)
}
