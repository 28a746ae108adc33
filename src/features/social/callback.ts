import type { FastifyRequest } from 'fastify'
import { exchangeCode, OAuthRefusal, OAuthUnavailable, type Tokens } from '../../adapters/oauth.ts'
import { AppError } from '../../errors.ts'
import { isObject } from '../../query/guards.ts'
import type { Runtime } from '../../runtime.ts'
import type { Answer } from '../auth/sign-in.ts'
import { type Client, hasIdTokens } from './client.ts'
import { enter } from './enter.ts'
import { readProfile } from './read-profile.ts'
import { namedProvider, outOfReach, reachableClient } from './start.ts'
import { endJourney, type Journey, secretsOf } from './state.ts'

/** What became of a callback: an answer or a refusal, and the journey that says how to deliver it. */
export type Ended =
  | { readonly journey: Journey; readonly answer: Answer }
  | { readonly journey: Journey; readonly refusal: AppError }

/**
 * Ends a journey: trades the code, finds or makes the account, signs in. What is refused once the journey is known is a
 * value, since it decides how the refusal is delivered.
 *
 * @throws {AppError} 400 where there is no journey to end
 */
export async function endSocialSignIn(
  rt: Runtime,
  request: FastifyRequest,
  provider: string,
  parameters: Readonly<Record<string, unknown>>,
): Promise<Ended> {
  const { id } = namedProvider(rt, provider)
  const state = textIn(parameters.state)
  const failure = textIn(parameters.error)
  if (state === undefined || (textIn(parameters.code) === undefined && failure === undefined))
    throw new AppError(400, 'Missing code or state parameter')
  const journey = await endJourney(rt, request, id, state)
  try {
    if (failure !== undefined) throw new AppError(400, saidBy(textIn(parameters.error_description) ?? failure))
    return { journey, answer: await arrive(rt, request, journey, state, parameters) }
  } catch (error) {
    if (!(error instanceof AppError)) throw error
    return { journey, refusal: error }
  }
}

async function arrive(
  rt: Runtime,
  request: FastifyRequest,
  journey: Journey,
  state: string,
  parameters: Readonly<Record<string, unknown>>,
): Promise<Answer> {
  const client = await reachableClient(rt, namedProvider(rt, journey.provider))
  try {
    const tokens = await trade(rt, client, journey, state, parameters)
    const profile = await readProfile(rt, client, withName(tokens, parameters))
    return await enter(rt, request, { provider: client.id, profile, grant: tokens }, journey)
  } catch (error) {
    if (error instanceof OAuthUnavailable) throw outOfReach(error)
    if (!(error instanceof OAuthRefusal)) throw error
    request.log.info({ err: error, provider: client.id }, 'a social sign-in was refused')
    throw new AppError(400, saidBy(error.message))
  }
}

/** The parameters of the callback that the code is checked with, by RFC 6749, RFC 9207 and VK ID. */
function trade(
  rt: Runtime,
  { id, oauth, provider }: Client,
  { redirectUri }: Journey,
  state: string,
  parameters: Readonly<Record<string, unknown>>,
): Promise<Tokens> {
  const callback = new URL(redirectUri)
  // Whose issuer is not known has nothing to compare it with.
  for (const name of ['code', 'state', ...(hasIdTokens(provider) ? ['iss'] : [])]) {
    const value = textIn(parameters[name])
    if (value !== undefined) callback.searchParams.set(name, value)
  }
  const { verifier, nonce } = secretsOf(rt.config, state)
  const deviceId = id === 'vk' ? textIn(parameters.device_id) : undefined
  return exchangeCode(oauth, callback, {
    state,
    verifier: provider.pkce ? verifier : undefined,
    nonce: hasIdTokens(provider) ? nonce : undefined,
    ...(deviceId !== undefined && { parameters: { device_id: deviceId, state } }),
  })
}

/** Apple tells the name beside its ID token, once, as JSON in the form. Only a name is taken from there. */
function withName(tokens: Tokens, { user }: Readonly<Record<string, unknown>>): Tokens {
  if (tokens.claims === undefined || typeof user !== 'string') return tokens
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

/** A parameter that says something. */
const textIn = (value: unknown): string | undefined => (typeof value === 'string' && value !== '' ? value : undefined)

/** Words of others, short and of visible characters. */
function saidBy(words: string): string {
  return (
    words
      .replaceAll(/[^\x20-\x7e]+/g, ' ')
      .trim()
      .slice(0, 200) || 'The provider refused'
  )
}
