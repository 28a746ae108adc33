import { createHmac, timingSafeEqual } from 'node:crypto'
import type { FastifyRequest } from 'fastify'
import { deriveKey, hashSecret, newSecret } from '../../../adapters/tokens.ts'
import type { Config } from '../../../config/config.ts'
import { insertChallenge, takeChallenge } from '../../../db/unlogged/secrets.ts'
import { AppError } from '../../../errors.ts'
import { commit, type Writes } from '../../../events/commit.ts'
import { actorOf } from '../../../http/http.ts'
import type { AuthMode, SessionType } from '../auth/auth.ts'

/** The state of a sign-in that has left for its provider. It contains no secret. */
export type Journey = {
  readonly provider: string
  /** Where the provider sends the browser: our callback, or the frontend's own page that calls it. */
  readonly redirectUri: string
  /** Where our callback sends the browser; it answers JSON where there is none. */
  readonly returnTo: string | null
  /** As above for what goes wrong. */
  readonly errorTo: string | null
  readonly authMode: AuthMode
  readonly type: SessionType
  readonly tenantId: string | null
  /** Only the browser that it began in may end it. */
  readonly bound: boolean
}

/** How long somebody may stay at the provider. By the database's clock. */
const journeySeconds = 600

/** Remembers a journey under a new state, and gives the state. The database knows its hash only. */
export async function beginJourney(deps: Writes, request: FastifyRequest, journey: Journey): Promise<string> {
  const state = newSecret()
  await commit(deps, actorOf(request), async (tx) => {
    const challenge = { identifier: identifierOf(state), userId: null, data: journey }
    await insertChallenge(tx, challenge, journeySeconds)
    return { result: undefined }
  })
  return state
}

/**
 * Uses a state up and gives its journey, of any number of simultaneous calls to one. 400 when it is unknown, used or
 * expired, of another provider, or of another browser.
 */
export async function endJourney(
  deps: Writes,
  request: FastifyRequest,
  provider: string,
  state: string,
): Promise<Journey> {
  const taken = await commit(deps, actorOf(request), async (tx) => ({
    result: await takeChallenge(tx, identifierOf(state)),
  }))
  const journey = taken as Journey | undefined
  if (journey?.provider !== provider) throw new AppError(400, 'Invalid or expired state')
  // A browser with a session cookie gets the next session as its cookie, so this must be the one that began, too.
  const bound = journey.bound || request.sessionCookie === 'live'
  if (bound && !isBoundTo(request.headers.cookie, state))
    throw new AppError(400, 'State does not match the initiating session')
  return journey
}

/**
 * The code verifier and the nonce of a journey. Both follow from its state by a key of ours, so they need not be stored,
 * and neither tells anything of the state.
 */
export function secretsOf(config: Config, state: string): { readonly verifier: string; readonly nonce: string } {
  const key = deriveKey(config, 'social-sign-in')
  const derived = (what: string) => createHmac('sha256', key).update(`${what} ${state}`).digest('base64url')
  return { verifier: derived('verifier'), nonce: derived('nonce') }
}

/** The cookie that ties a journey to its browser; `state` undefined makes the browser drop it. */
export function journeyCookie({ cookie }: Config, provider: string, state: string | undefined): string {
  // Apple posts its callback from its own site; a frontend of another site calls ours from there.
  const crossSite = provider === 'apple' || cookie.sameSite === 'none'
  const attributes = [
    `${cookieName}=${state === undefined ? '' : markOf(state)}`,
    'Path=/',
    `Max-Age=${state === undefined ? 0 : journeySeconds}`,
    'HttpOnly',
    ...(cookie.secure || crossSite ? ['Secure'] : []),
    `SameSite=${crossSite ? 'None' : 'Lax'}`,
  ]
  return attributes.join('; ')
}

const cookieName = 'oauth_state'

function identifierOf(state: string): string {
  return `social:${hashSecret(state)}`
}

/** Neither the state nor what the database knows of it. */
function markOf(state: string): string {
  return hashSecret(`browser ${state}`)
}

function isBoundTo(cookies: string | undefined, state: string): boolean {
  const expected = Buffer.from(`${cookieName}=${markOf(state)}`)
  return (cookies ?? '').split(';').some((pair) => {
    const given = Buffer.from(pair.trim())
    return given.length === expected.length && timingSafeEqual(given, expected)
  })
}
