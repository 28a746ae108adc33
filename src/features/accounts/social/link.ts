import type { CurrentAccess } from '../../../access/store.ts'
import type { IdSource } from '../../../adapters/ids.ts'
import { seal } from '../../../adapters/sealing.ts'
import type { Configuration } from '../../../config/config.ts'
import { type Reader, sql, type Tx } from '../../../db/sql.ts'
import { AppError, errors } from '../../../errors.ts'
import type { DomainEvent } from '../../../events/types.ts'
import {
  type Account,
  findAccount,
  lockAccount,
  type ProvenAccount,
  proveOwnership,
  registeredRole,
} from '../auth/auth.ts'
import type { Profile } from './providers.ts'

/** The tokens that the provider issued beside the profile. */
type ProviderGrant = {
  readonly accessToken: string | undefined
  readonly refreshToken: string | undefined
  readonly idToken: string | undefined
  readonly scope: string | undefined
  readonly expiresIn: number | undefined
}

export type Identity = { readonly provider: string; readonly profile: Profile; readonly grant: ProviderGrant }

/**
 * The account that an identity opens: the one it is linked to; else the one of its address, if the
 * provider has verified that or OAUTH_ALLOW_UNVERIFIED_LINK is set; else a new one. Where the provider has verified the
 * address of an account that nobody had, its credentials end: somebody else may have set it up (docs/decisions/0008).
 *
 * @throws {AppError} 403 when the address is another account's, or there is no account and registration is closed
 */
export async function linkedAccount(
  deps: Configuration & CurrentAccess & IdSource,
  tx: Tx,
  identity: Identity,
): Promise<ProvenAccount> {
  const { provider } = identity
  await lockIdentity(tx, provider, identity.profile.accountId)
  const proven = await openedAccount(deps, tx, identity)
  const isNew = await saveLink(tx, { ...sealed(deps, identity), userId: proven.account.id })
  const linked: DomainEvent[] = isNew
    ? [{ type: 'auth.social_linked', data: { userId: proven.account.id, provider } }]
    : []
  return { ...proven, events: [...proven.events, ...linked] }
}

async function openedAccount(
  deps: Configuration & CurrentAccess & IdSource,
  tx: Tx,
  identity: Identity,
): Promise<ProvenAccount> {
  const { profile } = identity
  const rules = rulesOf(deps)
  const linked = await accountOfIdentity(tx, identity)
  const ofAddress =
    linked !== undefined || profile.email === undefined ? undefined : await findAccount(tx, profile.email)
  const decision = decideLink({ linked, ofAddress }, profile, rules)
  const account = decision.account && (linked ?? (await lockOfAddress(tx, decision.account, profile)))
  if (account !== undefined) return decision.isProof ? proveOwnership(tx, account) : { account, events: [] }
  // The account has lost the address meanwhile.
  if (decision.account !== undefined) decideLink({ linked: undefined, ofAddress: undefined }, profile, rules)
  return createAccount(deps, tx, profile)
}

type LinkRules = { readonly allowUnverifiedLink: boolean; readonly registers: boolean }

/** In multi-tenant mode an account needs a tenant, which is not named here: it registers, or is invited, first. */
const rulesOf = ({ config }: Configuration): LinkRules => ({
  allowUnverifiedLink: config.oauth.allowUnverifiedLink,
  registers: config.auth.publicRegistration && !config.tenancy.enabled,
})

type KnownAccounts = { readonly linked: Account | undefined; readonly ofAddress: Account | undefined }
type LinkDecision = {
  /** None: one is to be created. */
  readonly account: Account | undefined
  /** The sign-in proves that the account's address is the owner's: only where it is the account's own. */
  readonly isProof: boolean
}

/**
 * The account that an identity opens.
 *
 * @throws {AppError} 403 for an unverified address of an account, and for a new account where registration is closed
 */
export function decideLink(
  { linked, ofAddress }: KnownAccounts,
  { email, emailVerified }: Pick<Profile, 'email' | 'emailVerified'>,
  { allowUnverifiedLink, registers }: LinkRules,
): LinkDecision {
  const account = linked ?? ofAddress
  if (account === undefined && !registers)
    throw new AppError(403, 'Public registration is disabled', { code: 'REGISTRATION_DISABLED' })
  if (linked === undefined && account !== undefined && !emailVerified && !allowUnverifiedLink)
    throw new AppError(403, 'An account with this email address exists. Please sign in to it another way.', {
      code: 'ACCOUNT_NOT_LINKED',
    })
  return { account, isProof: account !== undefined && emailVerified && account.email === email }
}

async function accountOfIdentity(tx: Tx, { provider, profile }: Identity): Promise<Account | undefined> {
  const userId = await findLinkedUser(tx, provider, profile.accountId)
  return userId === undefined ? undefined : lockAccount(tx, userId)
}

/** Undefined where the account has another address by now. */
async function lockOfAddress(tx: Tx, { id }: Account, { email }: Profile): Promise<Account | undefined> {
  const locked = await lockAccount(tx, id)
  return locked?.email === email ? locked : undefined
}

async function createAccount(
  deps: Configuration & CurrentAccess & IdSource,
  tx: Tx,
  profile: Profile,
): Promise<ProvenAccount> {
  const { email = null, emailVerified, firstName, lastName } = profile
  const user = { id: deps.newId(), email, emailVerified, firstName, lastName, roleId: registeredRole(deps).id }
  if (!(await insertSocialUser(tx, user)))
    throw errors.conflict('The account was created at the same time. Please try again.')
  const account = await lockAccount(tx, user.id)
  return { account: account!, events: [{ type: 'auth.register', data: { userId: user.id } }] }
}

/** Ten years; what a provider says is bounded by nothing. */
const longestSeconds = 315_360_000

function sealed(deps: Configuration, { provider, profile, grant }: Identity) {
  const { accountId } = profile
  const sealedFor = { purpose: 'social-tokens', owner: JSON.stringify([provider, accountId]) }
  const hide = (token: string | undefined) => (token === undefined ? null : seal(deps.config, sealedFor, token))
  return {
    providerId: provider,
    accountId,
    scope: grant.scope?.slice(0, 255) ?? null,
    accessToken: hide(grant.accessToken),
    refreshToken: hide(grant.refreshToken),
    idToken: hide(grant.idToken),
    expiresIn: grant.expiresIn === undefined ? null : Math.min(Math.max(grant.expiresIn, 0), longestSeconds),
  }
}

/** One first sign-in of an identity after the other; until the transaction ends. */
async function lockIdentity(tx: Tx, providerId: string, accountId: string): Promise<void> {
  const key = JSON.stringify(['social', providerId, accountId])
  await tx.any(sql.unsafe`select pg_advisory_xact_lock(hashtextextended(${key}, 0))`)
}

/** The account that an identity belongs to. */
async function findLinkedUser(db: Reader, providerId: string, accountId: string): Promise<string | undefined> {
  const row = await db.maybeOne<{ userId: string }>(sql.unsafe`
    select "user_Id" as "userId" from "svc_Account" where "providerId" = ${providerId} and "accountId" = ${accountId}`)
  return row?.userId
}

type AccountLink = {
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
async function saveLink(tx: Tx, link: AccountLink): Promise<boolean> {
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

type SocialUser = {
  readonly id: string
  readonly email: string | null
  readonly emailVerified: boolean
  readonly firstName: string
  readonly lastName: string | null
  readonly roleId: string
}

/** Creates an account without a password; false when its address got one meanwhile. */
async function insertSocialUser(tx: Tx, user: SocialUser): Promise<boolean> {
  const inserted = await tx.maybeOne<{ id: string }>(sql.unsafe`
    insert into "svc_User" (id, "firstName", "lastName", email, "emailVerified")
    values (${user.id}, ${user.firstName}, ${user.lastName}, ${user.email}, ${user.emailVerified})
    on conflict do nothing returning id`)
  if (inserted === undefined) return false
  await tx.any(sql.unsafe`insert into "svc_UserRole" ("user_Id", "role_Id") values (${user.id}, ${user.roleId})`)
  return true
}
