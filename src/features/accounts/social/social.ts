import type { FastifyRequest } from 'fastify'
import type { Static } from 'typebox'
import type { CurrentAccess } from '../../../access/store.ts'
import type { IdSource } from '../../../adapters/ids.ts'
import {
  authorizationUrl,
  codeChallenge,
  exchangeCode,
  OAuthRefusal,
  OAuthUnavailable,
  type Tokens,
  verifyIdToken,
} from '../../../adapters/oauth.ts'
import { seal } from '../../../adapters/sealing.ts'
import type { CurrentCatalog } from '../../../catalog/store.ts'
import type { Configuration } from '../../../config/config.ts'
import type { SocialProvider } from '../../../config/families.ts'
import type { Clock } from '../../../db/clock.ts'
import type { Reads } from '../../../db/pools.ts'
import { type Reader, sql, type Tx } from '../../../db/sql.ts'
import { AppError, errors } from '../../../errors.ts'
import { commit, type Writes } from '../../../events/commit.ts'
import type { DomainEvent } from '../../../events/types.ts'
import { actorOf } from '../../../http/http.ts'
import { isObject } from '../../../query/guards.ts'
import type { CurrentSettings } from '../../settings/settings.ts'
import {
  type Account,
  type AuthMode,
  checkMaySignIn,
  defaultLink,
  deliveryTo,
  findAccount,
  invitationOf,
  lockAccount,
  type ProvenAccount,
  placeOf,
  proveOwnership,
  queueVerification,
  registeredRole,
  type SignInAnswer,
  signIn,
  signInRefusal,
  trustedReturn,
} from '../auth/auth.ts'
import { clientOf, hasIdTokens, type ProviderClient, readProfile } from './client.ts'
import {
  beginJourney,
  type Callback,
  endJourney,
  type Journey,
  journeyCookie,
  type SocialBody,
  type SocialLinkQuery,
  secretsOf,
} from './journey.ts'
import { type Profile, type Provider, profileOf } from './providers.ts'

/** Where to send the browser, and the cookie to give it, if any. */
export type Start = { readonly url: string; readonly cookie: string | undefined }

/**
 * Begins a sign-in for a frontend that sends the browser itself. `callbackURL` replaces
 * our callback as the provider's return address; `errorCallbackURL` is where our callback sends the browser when
 * something goes wrong.
 *
 * @throws {AppError} 400 for an unknown provider or an address that is not trusted; 502 when the provider is out of reach
 */
export async function startByRequest(
  deps: Reads & Writes & CurrentSettings,
  request: FastifyRequest,
  body: Static<typeof SocialBody>,
): Promise<Start> {
  const configured = namedProvider(deps, body.provider)
  const { callbackURL, errorCallbackURL: errorUrl } = body
  const own = callbackOf(deps, configured.id)
  const redirectUri = !callbackURL || callbackURL === own ? own : trustedCallback(deps, callbackURL)
  const errorTo = !errorUrl ? null : trustedReturn(deps, errorUrl, 'Invalid errorCallbackURL')
  return start(
    deps,
    request,
    configured,
    { ...(await wantedOf(deps, request, body)), redirectUri, returnTo: null, errorTo },
    body.scopes,
  )
}

/**
 * Begins a sign-in by a link, which ends at `redirect_url`. Throws as above.
 */
export async function startByLink(
  deps: Reads & Writes & CurrentSettings,
  request: FastifyRequest,
  provider: string,
  query: Static<typeof SocialLinkQuery>,
): Promise<Start> {
  const configured = namedProvider(deps, provider)
  const returnTo = trustedReturn(deps, query.redirect_url, 'Invalid or missing redirect_url')
  const redirectUri = callbackOf(deps, configured.id)
  return start(
    deps,
    request,
    configured,
    { ...(await wantedOf(deps, request, query)), redirectUri, returnTo, errorTo: returnTo },
    query.scopes,
  )
}

/** Begins a sign-in for a page of this server, which gets the session as its cookie. Throws as above. */
export function startForPage(
  deps: Writes,
  request: FastifyRequest,
  provider: string,
  returnTo: string,
): Promise<Start> {
  const configured = namedProvider(deps, provider)
  const wanted = {
    authMode: 'cookie',
    type: 'default',
    tenantId: null,
    inviteId: undefined,
    returnTo,
    errorTo: returnTo,
  } as const
  return start(deps, request, configured, { ...wanted, redirectUri: callbackOf(deps, configured.id) }, undefined)
}

/** The active provider of this id; 400 where there is none. */
function namedProvider({ config }: Configuration, typed: string): SocialProvider {
  const id = typed.trim().toLowerCase()
  const { providers } = config.oauth
  const provider = Object.hasOwn(providers, id) ? providers[id] : undefined
  if (provider === undefined) throw new AppError(400, `Provider '${id.slice(0, 40)}' not found`)
  return provider
}

/** The client of a provider, 502 when it can't be asked for its endpoints. */
async function reachableClient(deps: Configuration, configured: SocialProvider): Promise<ProviderClient> {
  try {
    return await clientOf(deps, configured)
  } catch (error) {
    if (error instanceof OAuthUnavailable) throw outOfReach(error)
    throw error
  }
}

/** The answer for a provider that does not answer; the reason goes to the log. */
function outOfReach(cause: unknown): AppError {
  return new AppError(502, 'The sign-in provider cannot be reached. Please try again later.', { cause })
}

/** The parameters of the authorization request. */
export async function authorizationParameters(
  provider: Provider,
  { redirectUri, scopes, state, verifier, nonce }: ProviderRequest,
): Promise<Record<string, string>> {
  return {
    ...provider.parameters,
    redirect_uri: redirectUri,
    state,
    ...(scopes.length > 0 && { scope: scopes.join(provider.separator ?? ' ') }),
    ...(provider.pkce && { code_challenge: await codeChallenge(verifier), code_challenge_method: 'S256' }),
    ...(hasIdTokens(provider) && { nonce }),
  }
}

type ProviderRequest = {
  readonly redirectUri: string
  readonly scopes: readonly string[]
  readonly state: string
  readonly verifier: string
  readonly nonce: string
}

/** How the address differs for those that call the client's id by another name. */
export function addressed(id: string, url: URL, clientId: string): URL {
  const name = ({ tiktok: 'client_key', wechat: 'appid' } as Record<string, string>)[id]
  if (name === undefined) return url
  url.searchParams.delete('client_id')
  url.searchParams.set(name, clientId)
  if (id === 'wechat') url.hash = 'wechat_redirect'
  return url
}

type JourneyRequest = Omit<Journey, 'provider' | 'bound'>

async function start(
  deps: Writes,
  request: FastifyRequest,
  configured: SocialProvider,
  wanted: JourneyRequest,
  furtherScopes: Scopes | undefined,
): Promise<Start> {
  const { id } = configured
  const { oauth, provider } = await reachableClient(deps, configured)
  const scopes = [...new Set([...provider.scopes, ...scopesOf(furtherScopes)])]
  // A session that comes as a cookie is as good as forced upon a browser that did not begin it.
  const bound = deps.config.oauth.stateCookieBinding || wanted.authMode === 'cookie'
  const state = await beginJourney(deps, request, { ...wanted, provider: id, bound })
  const secrets = secretsOf(deps.config, state)
  const parameters = await authorizationParameters(provider, {
    redirectUri: wanted.redirectUri,
    scopes,
    state,
    ...secrets,
  })
  const url = authorizationUrl(oauth, parameters)
  const address = configured.issuer === undefined ? addressed(id, url, oauth.clientId) : url
  return { url: address.href, cookie: bound ? journeyCookie(deps.config, id, state) : undefined }
}

async function wantedOf(
  deps: Reads & Writes,
  request: FastifyRequest,
  { authMode = 'jwt', authType: type = 'default', tenant_Id, inviteToken }: Static<typeof SocialLinkQuery>,
) {
  const inviteId = await invitationOf(deps, inviteToken)
  return { authMode: deliveryTo(request, authMode), type, tenantId: tenant_Id ?? null, inviteId }
}

/** Of configured values only: no header of a request has a say in it. */
function callbackOf({ config }: Configuration, id: string): string {
  return new URL(`${config.server.baseUrl}/auth/callback/${id}`).href
}

/** Written as the token request will write it again; a query would not come back. */
function trustedCallback(deps: Configuration & CurrentSettings, callbackURL: string): string {
  const refusal = 'Invalid callbackURL'
  const { href, search } = new URL(trustedReturn(deps, callbackURL, refusal))
  if (search !== '') throw new AppError(400, refusal)
  return href
}

type Scopes = NonNullable<Static<typeof SocialBody>['scopes']>

/** A list, or a text with commas; 400 for what is no scope by RFC 6749. */
function scopesOf(value: Scopes = []): readonly string[] {
  const scopes = typeof value === 'string' ? value.split(/[\s,]+/).filter((scope) => scope !== '') : value
  if (scopes.length <= 50 && scopes.every(isScope)) return scopes
  throw new AppError(400, 'Invalid scopes')
}

function isScope(value: string): boolean {
  return /^[\x21\x23-\x5b\x5d-\x7e]{1,200}$/.test(value)
}

/** The outcome of a callback: an answer or a refusal, and the journey that decides how to deliver it. */
export type JourneyEnd =
  | { readonly journey: Journey; readonly answer: SignInAnswer }
  | { readonly journey: Journey; readonly refusal: AppError }

/**
 * Ends a journey: trades the code, finds or makes the account, signs in. A refusal after the journey is known is a
 * value, because the journey decides how to deliver it.
 *
 * @throws {AppError} 400 where there is no journey to end
 */
export async function endSocialSignIn(
  deps: SocialWrites,
  request: FastifyRequest,
  provider: string,
  parameters: Callback,
): Promise<JourneyEnd> {
  const { id } = namedProvider(deps, provider)
  const { state, code, error: failure } = parameters
  if (state === undefined || (code === undefined && failure === undefined))
    throw new AppError(400, 'Missing code or state parameter')
  const journey = await endJourney(deps, request, id, state)
  try {
    if (failure !== undefined) throw new AppError(400, saidBy(parameters.error_description ?? failure))
    return { journey, answer: await arrive(deps, request, journey, state, parameters) }
  } catch (error) {
    if (!(error instanceof AppError)) throw error
    return { journey, refusal: error }
  }
}

async function arrive(
  deps: SocialWrites,
  request: FastifyRequest,
  journey: Journey,
  state: string,
  parameters: Callback,
): Promise<SignInAnswer> {
  const client = await reachableClient(deps, namedProvider(deps, journey.provider))
  try {
    const tokens = await trade(deps, client, journey, state, parameters)
    const profile = await readProfile(deps, client, withName(tokens, parameters))
    return await enter(deps, request, { provider: client.id, profile, grant: tokens }, journey)
  } catch (error) {
    if (error instanceof OAuthUnavailable) throw outOfReach(error)
    if (!(error instanceof OAuthRefusal)) throw error
    request.log.info({ err: error, provider: client.id }, 'a social sign-in was refused')
    throw new AppError(400, saidBy(error.message))
  }
}

/** The parameters of the callback that the code is checked with, by RFC 6749, RFC 9207 and VK ID. */
function trade(
  { config }: Configuration,
  { id, oauth, provider }: ProviderClient,
  { redirectUri }: Journey,
  state: string,
  parameters: Callback,
): Promise<Tokens> {
  const callback = new URL(redirectUri)
  // A provider whose issuer is not known has nothing to compare it with.
  for (const name of ['code', 'state', ...(hasIdTokens(provider) ? (['iss'] as const) : [])] as const) {
    const value = parameters[name]
    if (value !== undefined) callback.searchParams.set(name, value)
  }
  const { verifier, nonce } = secretsOf(config, state)
  const deviceId = id === 'vk' ? parameters.device_id : undefined
  return exchangeCode(oauth, callback, {
    state,
    verifier: provider.pkce ? verifier : undefined,
    nonce: hasIdTokens(provider) ? nonce : undefined,
    ...(deviceId !== undefined && { parameters: { device_id: deviceId, state } }),
  })
}

/** Apple tells the name beside its ID token, once, as JSON in the form. Only a name is taken from there. */
function withName(tokens: Tokens, { user }: Callback): Tokens {
  if (tokens.claims === undefined || user === undefined) return tokens
  const told = jsonOf(user)
  const { firstName, lastName } = isObject(told) && isObject(told.name) ? told.name : {}
  return { ...tokens, claims: { given_name: firstName, family_name: lastName, ...tokens.claims } }
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    // It is the user's own browser that hands the name over; without one the account has a plain name.
    return undefined
  }
}

/** Words of others, short and of visible characters. */
function saidBy(words: string): string {
  return (
    words
      .replaceAll(/[^\x20-\x7e]+/g, ' ')
      .trim()
      .slice(0, 200) || 'The provider refused'
  )
}

/**
 * Signs in with an ID token that an app got from the provider itself (OAUTH_ALLOW_DIRECT_IDTOKEN). It must be made for
 * our client and hold the nonce that is given with it.
 *
 * @throws {AppError} 400 where that is switched off or the provider has no ID tokens; 401 for any token that does not hold
 */
export async function signInByIdToken(
  deps: SocialWrites,
  request: FastifyRequest,
  { provider, idToken = {}, authType: type = 'default', tenant_Id, inviteToken }: Static<typeof SocialBody>,
  authMode: AuthMode,
): Promise<SignInAnswer> {
  const configured = namedProvider(deps, provider)
  if (!deps.config.oauth.allowDirectIdToken)
    throw new AppError(400, 'Direct ID-token sign-in is disabled. Use the OAuth redirect flow.')
  const client = await reachableClient(deps, configured)
  const { token, nonce, accessToken, refreshToken } = idToken
  if (!token || !nonce || !hasIdTokens(client.provider)) throw invalidIdToken()
  const profile = profileOf(client.provider.map(await verified(request, client, token, nonce)))
  if (profile === undefined) throw invalidIdToken()
  const grant = {
    accessToken: accessToken || undefined,
    refreshToken: refreshToken || undefined,
    idToken: token,
    scope: undefined,
    expiresIn: undefined,
  }
  const inviteId = await invitationOf(deps, inviteToken)
  const wanted = { authMode, type, tenantId: tenant_Id ?? null, inviteId }
  return enter(deps, request, { provider: client.id, profile, grant }, wanted)
}

async function verified(request: FastifyRequest, client: ProviderClient, token: string, nonce: string) {
  try {
    return await verifyIdToken(client.oauth, token, nonce)
  } catch (error) {
    if (error instanceof OAuthUnavailable) throw outOfReach(error)
    if (!(error instanceof OAuthRefusal)) throw error
    request.log.info({ err: error, provider: client.id }, 'an ID token was refused')
    throw invalidIdToken()
  }
}

const invalidIdToken = () => new AppError(401, 'Invalid ID token')

/** The session that is wanted. */
type WantedSession = Pick<Journey, 'authMode' | 'type' | 'tenantId' | 'inviteId'>

/**
 * Signs an identity in: finds or makes its account and ends like every first factor. One transaction. 403 where it may not.
 * An account of the identity's own stays while its address waits to be verified, or nothing could ever verify it.
 */
async function enter(
  deps: SocialWrites,
  request: FastifyRequest,
  identity: Identity,
  wanted: WantedSession,
): Promise<SignInAnswer> {
  const { answer, refusal } = await commit<Entry>(deps, actorOf(request), async (tx) => {
    const { account, isOwn, events } = await linkedAccount(deps, tx, identity)
    const waits = isOwn && account.status === 'active' && signInRefusal(account, deps.config.auth) !== undefined
    if (waits) {
      const mailed = await mailVerification(deps, tx, account)
      return { result: { refusal: notVerified(mailed.length > 0) }, events: [...events, ...mailed] }
    }
    checkMaySignIn(deps, account)
    const membership = await placeOf(deps, tx, account, wanted)
    const { authMode, type } = wanted
    const entered = await signIn(deps, tx, request, { account, membership, type, authMode })
    return { ...entered, result: { answer: entered.result }, events: [...events, ...(entered.events ?? [])] }
  })
  if (answer === undefined) throw refusal ?? new AppError(403, 'The account can not be signed in to')
  return answer
}

type Entry = { readonly answer?: SignInAnswer | undefined; readonly refusal?: AppError }

/** Within the limits of resending. 403 for an account without an address: nothing of the attempt may stay. */
async function mailVerification(
  deps: Configuration & CurrentSettings,
  tx: Tx,
  { id, email }: Account,
): Promise<readonly DomainEvent[]> {
  if (email !== null) return queueVerification(deps, tx, { id, email }, defaultLink(deps))
  throw new AppError(403, 'The sign-in provider has given no email address, and this server needs one to verify.', {
    code: 'EMAIL_MISSING',
  })
}

function notVerified(isMailed: boolean): AppError {
  const mail = isMailed ? 'A mail to verify it has been sent' : 'A mail to verify it was sent recently'
  return new AppError(403, `Email not verified. ${mail}; then sign in again.`, {
    code: 'EMAIL_NOT_VERIFIED',
    members: { requiresEmailVerification: true },
  })
}

/** The capabilities that changes of this folder need. */
export type SocialWrites = Reads & Writes & Clock & CurrentAccess & CurrentCatalog & CurrentSettings & IdSource

/** The tokens that the provider issued beside the profile. */
type ProviderGrant = {
  readonly accessToken: string | undefined
  readonly refreshToken: string | undefined
  readonly idToken: string | undefined
  readonly scope: string | undefined
  readonly expiresIn: number | undefined
}

type Identity = { readonly provider: string; readonly profile: Profile; readonly grant: ProviderGrant }

/**
 * The account that an identity opens: the one it is linked to; else the one of its address, if the
 * provider has verified that or OAUTH_ALLOW_UNVERIFIED_LINK is set; else a new one. Where the provider has verified the
 * address of an account that nobody had proven, its credentials end: another person may have set it up (docs/decisions/0008).
 *
 * @throws {AppError} 403 when the address is another account's, or there is no account and registration is closed
 */
async function linkedAccount(
  deps: Configuration & CurrentAccess & IdSource,
  tx: Tx,
  identity: Identity,
): Promise<OpenedAccount> {
  const { provider } = identity
  await lockIdentity(tx, provider, identity.profile.accountId)
  const proven = await openedAccount(deps, tx, identity)
  const isNew = await saveLink(tx, { ...sealed(deps, identity), userId: proven.account.id })
  const linked: DomainEvent[] = isNew
    ? [{ type: 'auth.social_linked', data: { userId: proven.account.id, provider } }]
    : []
  return { ...proven, events: [...proven.events, ...linked] }
}

type OpenedAccount = ProvenAccount & {
  /** Made for the identity, or linked to it before: not merely one of the same address. */
  readonly isOwn: boolean
}

async function openedAccount(
  deps: Configuration & CurrentAccess & IdSource,
  tx: Tx,
  identity: Identity,
): Promise<OpenedAccount> {
  const { profile } = identity
  const rules = rulesOf(deps)
  const linked = await accountOfIdentity(tx, identity)
  const ofAddress =
    linked !== undefined || profile.email === undefined ? undefined : await findAccount(tx, profile.email)
  const decision = decideLink({ linked, ofAddress }, profile, rules)
  const account = decision.account && (linked ?? (await lockOfAddress(tx, decision.account, profile)))
  if (account !== undefined) {
    const proven = decision.isProof ? await proveOwnership(tx, account) : { account, events: [] }
    return { ...proven, isOwn: linked !== undefined }
  }
  // The account has lost the address meanwhile.
  if (decision.account !== undefined) decideLink({ linked: undefined, ofAddress: undefined }, profile, rules)
  return { ...(await createAccount(deps, tx, profile)), isOwn: true }
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

/** Asked again once the account is locked: its owner may have taken it over meanwhile, which ends the link. */
async function accountOfIdentity(tx: Tx, { provider, profile }: Identity): Promise<Account | undefined> {
  const userId = await findLinkedUser(tx, provider, profile.accountId)
  const account = userId && (await lockAccount(tx, userId))
  return account && (await findLinkedUser(tx, provider, profile.accountId)) === account.id ? account : undefined
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

/** The owner: provider and account, as a list in JSON. */
export const sealedForTokens = (owner: string) => ({ purpose: 'social-tokens', owner })

function sealed(deps: Configuration, { provider, profile, grant }: Identity) {
  const { accountId } = profile
  const sealedFor = sealedForTokens(JSON.stringify([provider, accountId]))
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
  await tx.any(sql`select pg_advisory_xact_lock(hashtextextended(${key}, 0))`)
}

/** The account that an identity belongs to. */
async function findLinkedUser(db: Reader, providerId: string, accountId: string): Promise<string | undefined> {
  const row = await db.maybeOne<{ userId: string }>(sql`
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
  const { inserted } = await tx.one<{ inserted: boolean }>(sql`
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
  const inserted = await tx.maybeOne<{ id: string }>(sql`
    insert into "svc_User" (id, "firstName", "lastName", email, "emailVerified")
    values (${user.id}, ${user.firstName}, ${user.lastName}, ${user.email}, ${user.emailVerified})
    on conflict do nothing returning id`)
  if (inserted === undefined) return false
  await tx.any(sql`insert into "svc_UserRole" ("user_Id", "role_Id") values (${user.id}, ${user.roleId})`)
  return true
}
