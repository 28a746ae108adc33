import { createHmac, timingSafeEqual } from 'node:crypto'
import type { FastifyRequest } from 'fastify'
import type { Static } from 'typebox'
import { deriveKey, hashSecret, newSecret } from '../../../adapters/tokens.ts'
import { Type } from '../../../adapters/typebox.ts'
import type { Config } from '../../../config/config.ts'
import { insertChallenge, takeChallenge } from '../../../db/unlogged/secrets.ts'
import { AppError } from '../../../errors.ts'
import { commit, type Writes } from '../../../events/commit.ts'
import { actorOf } from '../../../http/http.ts'
import { Filled, Text } from '../../../http/shapes.ts'
import { type AuthMode, type SessionType, SignedInShape, SignIn } from '../auth/auth.ts'

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
  /** The invitation that the sign-in accepts. */
  readonly inviteId: string | undefined
  /** Only the browser that it began in may end it. */
  readonly bound: boolean
}

/** How long a user may stay at the provider. By the database's clock. */
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

const Scopes = Type.Optional(
  Type.Union([Type.Array(Text('calendar.read')), Text('calendar.read')], {
    description: 'Scopes to ask for besides: a list, or a text with commas.',
    refusal: 'Invalid scopes',
  }),
)

const badIdToken = { status: 401, message: 'Invalid ID token' }
const Part = (example: string) => Type.Optional(Text(example))

/** Begins a sign-in, or ends one with an ID token that the app got from the provider itself. */
export const SocialBody = Type.Object(
  {
    ...SignIn,
    provider: Filled('google', { refusal: 'Provider is required' }),
    callbackURL: Type.Optional(Text('https://app.example.com/callback', { refusal: 'Invalid callbackURL' })),
    errorCallbackURL: Type.Optional(Text('https://app.example.com/sorry', { refusal: 'Invalid errorCallbackURL' })),
    scopes: Scopes,
    idToken: Type.Optional(
      Type.Object(
        {
          token: Part('eyJhbGciOiJSUzI1NiJ9'),
          nonce: Part('n-0S6'),
          accessToken: Part('ya29'),
          refreshToken: Part('1//0'),
        },
        { refusal: badIdToken },
      ),
    ),
  },
  { examples: [{ provider: 'google', callbackURL: 'https://app.example.com/callback' }] },
)

export const SocialLinkQuery = Type.Object({
  ...SignIn,
  redirect_url: Type.Optional(Text('https://app.example.com/welcome', { refusal: 'Invalid or missing redirect_url' })),
  scopes: Scopes,
})

/** A parameter that says something, or is none. */
const Said = (example: string, description?: string) =>
  Type.Optional(Type.String({ minLength: 1, examples: [example], lenient: true, ...(description && { description }) }))

/** The parameters that a provider sends the browser back with; some have more. */
export const CallbackShape = Type.Object(
  {
    state: Said('5f1d7a84db00d2fc'),
    code: Said('4/0AX4XfWh'),
    error: Said('access_denied'),
    error_description: Said('The user has refused'),
    iss: Said('https://accounts.google.com', 'The issuer, by RFC 9207.'),
    device_id: Said('dev-1', 'Of VK ID.'),
    user: Said('{"name":{"firstName":"Ada","lastName":"Lovelace"}}', 'Of Apple, once: the name.'),
  },
  { additionalProperties: true, examples: [{ state: '5f1d7a84db00d2fc', code: '4/0AX4XfWh' }] },
)

export type Callback = Static<typeof CallbackShape>

/** Where to send the browser; or, for an ID token, the answer of signing in. */
export const StartedShape = Type.Object({
  redirect: Type.Boolean(),
  url: Type.Optional(Text('https://accounts.google.com/o/oauth2/v2/auth?client_id=1')),
  ...SignedInShape.properties,
})
