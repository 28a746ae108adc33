import type { FastifyRequest } from 'fastify'
import type { Static } from 'typebox'
import { OAuthRefusal, OAuthUnavailable, verifyIdToken } from '../../adapters/oauth.ts'
import { AppError } from '../../errors.ts'
import type { Runtime } from '../../runtime.ts'
import type { AuthMode } from '../auth/input.ts'
import type { Answer } from '../auth/sign-in.ts'
import { type Client, hasIdTokens } from './client.ts'
import { enter } from './enter.ts'
import { profileOf } from './profile.ts'
import type { SocialBody } from './schema.ts'
import { namedProvider, outOfReach, reachableClient } from './start.ts'

/**
 * Signs in with an ID token that an app got from the provider itself (OAUTH_ALLOW_DIRECT_IDTOKEN). It must be made for
 * our client and hold the nonce that is given with it.
 *
 * @throws {AppError} 400 where that is switched off or the provider has no ID tokens; 401 for any token that does not hold
 */
export async function signInByIdToken(
  rt: Runtime,
  request: FastifyRequest,
  { provider, idToken = {}, authType: type = 'default', tenant_Id }: Static<typeof SocialBody>,
  authMode: AuthMode,
): Promise<Answer> {
  const configured = namedProvider(rt, provider)
  if (!rt.config.oauth.allowDirectIdToken)
    throw new AppError(400, 'Direct ID-token sign-in is disabled. Use the OAuth redirect flow.')
  const client = await reachableClient(rt, configured)
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
  const wanted = { authMode, type, tenantId: tenant_Id ?? null }
  return enter(rt, request, { provider: client.id, profile, grant }, wanted)
}

async function verified(request: FastifyRequest, client: Client, token: string, nonce: string) {
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
