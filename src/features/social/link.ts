import { seal } from '../../adapters/sealing.ts'
import type { Tx } from '../../db/sql.ts'
import { AppError, errors } from '../../errors.ts'
import type { DomainEvent } from '../../events/types.ts'
import type { Runtime } from '../../runtime.ts'
import { type ProvenAccount, proveOwnership } from '../auth/ownership.ts'
import { type Account, findAccount, lockAccount } from '../auth/queries.ts'
import { registeredRole } from '../auth/register.ts'
import type { Profile } from './profile.ts'
import { findLinkedUser, insertSocialUser, lockIdentity, saveLink } from './queries.ts'

/** What the provider handed out beside the profile. */
export type Grant = {
  readonly accessToken: string | undefined
  readonly refreshToken: string | undefined
  readonly idToken: string | undefined
  readonly scope: string | undefined
  readonly expiresIn: number | undefined
}

export type Identity = { readonly provider: string; readonly profile: Profile; readonly grant: Grant }

/**
 * The account that an identity opens (auth facts §6): the one it is linked to; else the one of its address, if the
 * provider has verified that or OAUTH_ALLOW_UNVERIFIED_LINK is set; else a new one. Where the provider has verified the
 * address of an account that nobody had, whoever set it up loses the account (ADR 8, quality A-36).
 *
 * @throws {AppError} 403 when the address is another account's, or there is no account and registration is closed
 */
export async function linkedAccount(rt: Runtime, tx: Tx, identity: Identity): Promise<ProvenAccount> {
  const { provider, profile } = identity
  await lockIdentity(tx, provider, profile.accountId)
  const found = (await accountOfIdentity(tx, identity)) ?? (await accountOfAddress(rt, tx, profile))
  const proven = found === undefined ? await createAccount(rt, tx, profile) : await prove(tx, found, profile)
  const isNew = await saveLink(tx, { ...sealed(rt, identity), userId: proven.account.id })
  const linked: DomainEvent[] = isNew
    ? [{ type: 'auth.social_linked', data: { userId: proven.account.id, provider } }]
    : []
  return { ...proven, events: [...proven.events, ...linked] }
}

async function accountOfIdentity(tx: Tx, { provider, profile }: Identity): Promise<Account | undefined> {
  const userId = await findLinkedUser(tx, provider, profile.accountId)
  return userId === undefined ? undefined : lockAccount(tx, userId)
}

async function accountOfAddress(rt: Runtime, tx: Tx, { email, emailVerified }: Profile): Promise<Account | undefined> {
  const account = email === undefined ? undefined : await findAccount(tx, email)
  if (account === undefined) return undefined
  if (!emailVerified && !rt.config.oauth.allowUnverifiedLink)
    throw new AppError(403, 'An account with this email address exists. Please sign in to it another way.', {
      code: 'ACCOUNT_NOT_LINKED',
    })
  const locked = await lockAccount(tx, account.id)
  return locked?.email === email ? locked : undefined
}

/** The address counts as proven only where it is the account's own. */
async function prove(tx: Tx, account: Account, { email, emailVerified }: Profile): Promise<ProvenAccount> {
  if (emailVerified && account.email === email) return proveOwnership(tx, account)
  return { account, events: [] }
}

async function createAccount(rt: Runtime, tx: Tx, profile: Profile): Promise<ProvenAccount> {
  checkOpen(rt)
  const { email = null, emailVerified, firstName, lastName } = profile
  const user = { id: rt.newId(), email, emailVerified, firstName, lastName, roleId: registeredRole(rt).id }
  if (!(await insertSocialUser(tx, user)))
    throw errors.conflict('The account was created at the same time. Please try again.')
  const account = await lockAccount(tx, user.id)
  return { account: account!, events: [{ type: 'auth.register', data: { userId: user.id } }] }
}

/** In multi-tenant mode an account needs a tenant, which nobody names here: it registers, or is invited, first. */
function checkOpen({ config }: Runtime): void {
  if (!config.auth.publicRegistration || config.tenancy.enabled)
    throw new AppError(403, 'Public registration is disabled', { code: 'REGISTRATION_DISABLED' })
}

/** Ten years; what a provider says is bounded by nothing. */
const longestSeconds = 315_360_000

function sealed(rt: Runtime, { provider, profile, grant }: Identity) {
  const { accountId } = profile
  const sealedFor = { purpose: 'social-tokens', owner: JSON.stringify([provider, accountId]) }
  const hide = (token: string | undefined) => (token === undefined ? null : seal(rt.config, sealedFor, token))
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
