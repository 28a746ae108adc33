import { createHash, createHmac, timingSafeEqual } from 'node:crypto'
import type { FastifyRequest } from 'fastify'
import { idTokenAlgorithms, signIdToken } from '../../../adapters/id-tokens.ts'
import type { IdSource } from '../../../adapters/ids.ts'
import { deriveKeys, hashSecret, newSecret, signToken, verifyToken } from '../../../adapters/tokens.ts'
import type { Config } from '../../../config/config.ts'
import { issuerOf } from '../../../config/issuer.ts'
import type { Clock } from '../../../db/clock.ts'
import { type Reads, type ReservedReads, withoutWaiting } from '../../../db/pools.ts'
import type { Tx } from '../../../db/sql.ts'
import { deleteSession, insertSession, lockSession, renewSession } from '../../../db/unlogged/sessions.ts'
import { AppError } from '../../../errors.ts'
import { commit, type WorkResult, type Writes } from '../../../events/commit.ts'
import type { Actor, DomainEvent } from '../../../events/types.ts'
import { actorOf } from '../../../http/http.ts'
import { accountOf } from '../auth/auth.ts'
import { type Client, usedForSeconds } from './clients.ts'
import {
  type Consent,
  grantOfSession,
  insertCode,
  insertGrant,
  keepClient,
  lockCode,
  lockGrant,
  nextGeneration,
  type StoredCode,
  type StoredGrant,
  useCode,
} from './queries.ts'

/** A program has this long to fetch its tokens. By the database's clock. */
const codeSeconds = 60

/** Records that the caller allows a client what it asks for, in the caller's transaction; gives the code. */
export async function allow(tx: Tx, client: Client, userId: string, consent: Consent): Promise<WorkResult<string>> {
  const session = await lockSession(tx, consent.sessionId)
  if (session?.userId !== userId) throw new AppError(401, 'The session has ended')
  const code = newSecret()
  await insertCode(tx, hashSecret(code), userId, { ...consent, beganAt: session.beganAt }, codeSeconds)
  await keepClient(tx, client.id, usedForSeconds)
  const { scopes } = consent
  return { result: code, events: [{ type: 'oauth.authorized', data: { userId, clientId: client.id, scopes } }] }
}

/** Refuses with a word of RFC 6749 §5.2. */
export const oauthError = (code: string, description: string) => new AppError(400, description, { code })
const invalidGrant = (description: string) => oauthError('INVALID_GRANT', description)

/** The members that a client presents with a code. */
type PresentedCode = {
  readonly code: string
  readonly clientId: string
  readonly redirectUri: string | undefined
  readonly verifier: string
  /** Undefined: as it was allowed. */
  readonly resources: readonly string[] | undefined
}

type Decision =
  | { readonly consent: Consent; readonly refusal?: undefined }
  /** `ends`: what the code has opened must end, too. `uses`: it is worth nothing any more. */
  | { readonly refusal: AppError; readonly ends?: true; readonly uses?: true }

/**
 * Decides about a presented code. A wrong attempt uses it up, and a second use ends the access that the first has
 * opened.
 */
function decideCode(stored: StoredCode | undefined, presented: PresentedCode): Decision {
  if (stored === undefined) return { refusal: invalidGrant('The code is not known') }
  const { consent, isUsed, isExpired } = stored
  if (isUsed) return { refusal: invalidGrant('The code has been used'), ends: true }
  if (isExpired) return { refusal: invalidGrant('The code has expired') }
  const wrong = (description: string): Decision => ({ refusal: invalidGrant(description), uses: true })
  if (consent.clientId !== presented.clientId) return wrong('The code was made for another program')
  if (consent.redirectUri !== presented.redirectUri) return wrong('The redirect_uri is not that of the authorization')
  if (!fitsChallenge(consent.challenge, presented.verifier)) return wrong('The code_verifier does not fit')
  const isWithin = presented.resources?.every((resource) => consent.resources.includes(resource)) ?? true
  return isWithin
    ? { consent: { ...consent, resources: presented.resources ?? consent.resources } }
    : { refusal: oauthError('INVALID_TARGET', 'The resource was not part of the authorization'), uses: true }
}

/** S256 of RFC 7636. */
function fitsChallenge(challenge: string, verifier: string): boolean {
  return (
    /^[\w.~-]{43,128}$/.test(verifier) && isSame(createHash('sha256').update(verifier).digest('base64url'), challenge)
  )
}

function isSame(one: string, other: string): boolean {
  const [a, b] = [Buffer.from(one), Buffer.from(other)]
  return a.length === b.length && timingSafeEqual(a, b)
}

/** The answer of the token endpoint (RFC 6749 §5.1). */
type TokenAnswer = {
  readonly access_token: string
  readonly token_type: 'Bearer'
  readonly expires_in: number
  readonly scope: string
  readonly refresh_token?: string
  readonly id_token?: string
}

type Issued = { readonly grant: StoredGrant; readonly consent?: Consent }
/** A refusal is a result, because what it makes end must be committed. */
type TokenRedemption = { readonly refusal: AppError } | Issued

/** Trades a code for the tokens of a new session. 400 in the words of RFC 6749 for a code that is worth nothing. */
export async function redeemCode(
  deps: GrantWrites,
  request: FastifyRequest,
  presented: PresentedCode,
): Promise<TokenAnswer> {
  const hash = hashSecret(presented.code)
  const attempt = await commit<TokenRedemption>(deps, actorOf(request), async (tx) => {
    const stored = await lockCode(tx, hash)
    const decided = decideCode(stored, presented)
    if (decided.refusal === undefined) return openGrant(deps, tx, request, hash, stored!.userId, decided.consent)
    if (decided.uses) await useCode(tx, hash, null)
    const ended = decided.ends && stored?.sessionId != null && (await deleteSession(tx, stored.sessionId))
    return { result: { refusal: decided.refusal }, ...(ended && reuse(request, stored, stored.consent, 'code')) }
  })
  return answerOf(deps, attempt)
}

/** The session that tokens of the client open; ended with the user's other ones, and listed among them. */
async function openGrant(
  { newId, config }: GrantWrites,
  tx: Tx,
  request: FastifyRequest,
  hash: string,
  userId: string,
  consent: Consent,
): Promise<WorkResult<TokenRedemption>> {
  const refusal = invalidGrant('The user has signed out, or may not sign in any more')
  const isThere = (await lockSession(tx, consent.sessionId)) !== undefined
  const id = newId()
  const { roleId, tenantId, clientId, clientName, scopes, resources } = consent
  const opened = isThere
    ? await insertSession(tx, {
        ...{ userId, roleId, tenantId, type: 'default', passwordHash: undefined, ip: request.ip },
        tokenHash: hashSecret(sessionTokenOf(config, id)),
        seconds: lifeOf(config, consent),
        userAgent: request.headers['user-agent']?.slice(0, 512) ?? null,
      })
    : undefined
  if (opened === undefined || opened.userRoleId === null) {
    if (opened !== undefined) await deleteSession(tx, opened.id)
    await useCode(tx, hash, null)
    return { result: { refusal } }
  }
  const { id: sessionId, userRoleId } = opened
  await insertGrant(tx, { id, sessionId, clientId, clientName, scopes, resources })
  await useCode(tx, hash, sessionId)
  const grant = {
    id,
    sessionId,
    clientId,
    clientName,
    scopes,
    resources,
    generation: 0,
    userId,
    roleId,
    tenantId,
    userRoleId,
  }
  const actor = actorOfGrant(request, grant)
  return { result: { grant, consent }, actor, events: [{ type: 'oauth.signed_in', data: { userId, clientId } }] }
}

/** Without a refresh token the session ends with its one access token. */
function lifeOf({ oauthServer }: Config, { refreshes }: Consent): number {
  return refreshes ? oauthServer.refreshTokenExpiresIn : oauthServer.accessTokenExpiresIn
}

type PresentedRefresh = {
  readonly token: string
  readonly clientId: string
  readonly scopes: readonly string[] | undefined
  readonly resources: readonly string[] | undefined
}

/**
 * Trades a refresh token for the next tokens. Each works once: one that comes again ends the session, because nobody can
 * tell which of the two who have it is the program. 400 in the words of RFC 6749.
 */
export async function refreshGrant(
  deps: GrantWrites,
  request: FastifyRequest,
  presented: PresentedRefresh,
): Promise<TokenAnswer> {
  const shown = readRefreshToken(deps.config, presented.token)
  if (shown === undefined) throw invalidGrant('The refresh token is not known')
  const attempt = await commit<TokenRedemption>(deps, actorOf(request), async (tx) => {
    const grant = await lockGrant(tx, shown.id)
    if (grant === undefined) return { result: { refusal: invalidGrant('The access has ended') } }
    const narrowed = decideRefresh(grant, shown.generation, presented)
    if ('refusal' in narrowed) {
      const ended = narrowed.ends && (await deleteSession(tx, grant.sessionId))
      return { result: { refusal: narrowed.refusal }, ...(ended && reuse(request, grant, grant, 'refresh token')) }
    }
    await nextGeneration(tx, grant.id)
    const tokenHash = hashSecret(sessionTokenOf(deps.config, grant.id))
    await renewSession(tx, grant.sessionId, tokenHash, deps.config.oauthServer.refreshTokenExpiresIn)
    const { userId, clientId } = grant
    return {
      result: { grant: { ...narrowed, generation: grant.generation + 1 } },
      actor: actorOfGrant(request, grant),
      events: [{ type: 'oauth.refreshed', data: { userId, clientId } }],
    }
  })
  return answerOf(deps, attempt)
}

/** The grant as the next access token has it: what is asked for, within what was allowed. */
function decideRefresh(
  grant: StoredGrant,
  generation: number,
  { clientId, scopes = grant.scopes, resources = grant.resources }: Omit<PresentedRefresh, 'token'>,
): StoredGrant | { readonly refusal: AppError; readonly ends?: true } {
  if (grant.clientId !== clientId) return { refusal: invalidGrant('The refresh token is of another program') }
  if (grant.generation !== generation) return { refusal: invalidGrant('The refresh token has been used'), ends: true }
  if (!scopes.every((scope) => grant.scopes.includes(scope)))
    return { refusal: oauthError('INVALID_SCOPE', 'The scope is more than was allowed') }
  if (!resources.every((resource) => grant.resources.includes(resource)))
    return { refusal: oauthError('INVALID_TARGET', 'The resource was not part of the authorization') }
  return { ...grant, scopes, resources }
}

/**
 * Ends the access that a token of the client belongs to (RFC 7009). Nothing is told of tokens that are none, or of others.
 */
export async function revoke(
  deps: GrantWrites,
  request: FastifyRequest,
  token: string,
  clientId: string,
): Promise<void> {
  const shown = readRefreshToken(deps.config, token)
  const claims = shown === undefined ? verifyToken(deps.config, token, deps.clock()) : undefined
  await commit(deps, actorOf(request), async (tx) => {
    const id = shown?.id ?? (claims && (await grantOfSession(tx, hashSecret(claims.sessionToken)))?.id)
    const grant = id === undefined ? undefined : await lockGrant(tx, id)
    if (grant?.clientId !== clientId || !(await deleteSession(tx, grant.sessionId))) return { result: undefined }
    const { userId } = grant
    const event = { type: 'oauth.revoked', data: { userId, clientId } } as const
    return { result: undefined, actor: actorOfGrant(request, grant), events: [event] }
  })
}

async function answerOf(deps: GrantReads, attempt: TokenRedemption): Promise<TokenAnswer> {
  if ('refusal' in attempt) throw attempt.refusal
  const { grant, consent } = attempt
  const { config } = deps
  const { accessTokenExpiresIn } = config.oauthServer
  const { userId, roleId, tenantId, userRoleId, clientId, scopes, resources: audience } = grant
  const delegation = { clientId, scopes, audience }
  const sessionToken = sessionTokenOf(config, grant.id)
  const claims = { userId, roleId, tenantId: tenantId ?? undefined, userRoleId, sessionToken, delegation }
  return {
    access_token: signToken(config, claims, deps.clock(), accessTokenExpiresIn),
    token_type: 'Bearer',
    expires_in: accessTokenExpiresIn,
    scope: scopes.join(' '),
    ...((consent?.refreshes ?? true) && { refresh_token: refreshTokenOf(config, grant) }),
    ...(consent !== undefined && scopes.includes('openid') && { id_token: await idTokenOf(deps, userId, consent) }),
  }
}

async function idTokenOf(
  deps: GrantReads,
  userId: string,
  { clientId, scopes, nonce, beganAt, idTokenAlgorithm = idTokenAlgorithms[0] }: Consent,
): Promise<string> {
  const iat = Math.floor(deps.clock().getTime() / 1000)
  const about = await userClaims(deps, userId, scopes)
  const { issuer } = issuerOf(deps.config)!
  const exp = iat + deps.config.oauthServer.accessTokenExpiresIn
  return signIdToken(deps.config, idTokenAlgorithm, {
    ...about,
    iss: issuer,
    aud: clientId,
    iat,
    exp,
    auth_time: beganAt,
    ...(nonce && { nonce }),
  })
}

/** The user's claims that the scopes open (OpenID Connect Core §5.4). */
export async function userClaims(deps: Reads & ReservedReads, userId: string, scopes: readonly string[]) {
  const account = await accountOf(withoutWaiting(deps), userId)
  if (account === undefined) throw new AppError(401, 'The session has ended')
  const { email, emailVerified, firstName, lastName } = account
  return {
    sub: userId,
    ...(scopes.includes('profile') && {
      name: [firstName, lastName].filter(Boolean).join(' '),
      given_name: firstName,
      ...(lastName !== null && { family_name: lastName }),
    }),
    ...(scopes.includes('email') && email !== null && { email, email_verified: emailVerified }),
  }
}

/* Neither the token of such a session nor a refresh token is kept: both follow from the grant, by keys from SECRET_KEY. */

const derived = (config: Config, text: string): readonly string[] =>
  deriveKeys(config, 'oauth grants').map((key) => createHmac('sha256', key).update(text).digest('hex'))

function sessionTokenOf(config: Config, id: string): string {
  return derived(config, `session ${id}`)[0]!
}

function refreshTokenOf(config: Config, { id, generation }: Pick<StoredGrant, 'id' | 'generation'>): string {
  return `dbr_${id}.${generation}.${derived(config, `refresh ${id} ${generation}`)[0]}`
}

/** The grant of a refresh token that this installation has made, and which one of it this is; undefined for other texts. */
function readRefreshToken(config: Config, token: string) {
  const [, id, generation, mark] = /^dbr_([\da-f-]{36})\.(\d{1,9})\.([\da-f]{64})$/.exec(token) ?? []
  if (id === undefined || mark === undefined) return undefined
  const isOurs = derived(config, `refresh ${id} ${generation}`).some((known) => isSame(known, mark))
  return isOurs ? { id, generation: Number(generation) } : undefined
}

type Whose = { readonly userId: string }

/** The facts of a token that came twice, in the name of its user. */
function reuse(
  request: FastifyRequest,
  { userId }: Whose,
  { clientId, roleId, tenantId }: Pick<Consent, 'clientId' | 'roleId' | 'tenantId'>,
  what: 'code' | 'refresh token',
): { readonly events: readonly DomainEvent[]; readonly actor: Actor } {
  const actor = actorOfGrant(request, { userId, roleId, tenantId })
  return { actor, events: [{ type: 'oauth.reuse_detected', data: { userId, clientId, what } }] }
}

function actorOfGrant(
  request: FastifyRequest,
  { userId, roleId, tenantId }: Pick<StoredGrant, 'userId' | 'roleId' | 'tenantId'>,
): Actor {
  return actorOf(request, { userId, tenantId: tenantId ?? undefined, role: { id: roleId } })
}

/** The capabilities that changes of this folder need. */
export type GrantWrites = Reads & ReservedReads & Writes & Clock & IdSource
type GrantReads = Reads & ReservedReads & Pick<Writes, 'config'> & Clock
