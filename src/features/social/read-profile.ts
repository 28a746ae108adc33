import { fetchUrl, UrlFetchError } from '../../adapters/fetch-url.ts'
import { OAuthRefusal, OAuthUnavailable, type Tokens } from '../../adapters/oauth.ts'
import { providerLimits } from '../../adapters/oauth-fetch.ts'
import type { Runtime } from '../../runtime.ts'
import type { Client } from './client.ts'
import { type Profile, profileOf } from './profile.ts'
import type { ProfileRequest } from './providers.ts'

/**
 * Who the tokens belong to: by the claims of the ID token, else by asking the provider.
 *
 * @throws {OAuthRefusal}
 * @throws {OAuthUnavailable}
 */
export async function readProfile(rt: Runtime, client: Client, tokens: Tokens): Promise<Profile> {
  const { provider } = client
  const raw =
    provider.profile === undefined ? (tokens.claims ?? {}) : await askProfile(rt, client, provider.profile, tokens)
  const profile = profileOf(provider.map(raw))
  if (profile === undefined) throw new OAuthRefusal('the provider did not say whose account it is')
  return profile
}

async function askProfile(rt: Runtime, client: Client, wanted: ProfileRequest, tokens: Tokens) {
  const answer = objectOf(await ask(rt, client, wanted, tokens))
  if (wanted.emails === undefined) return answer
  return { ...answer, emails: await ask(rt, client, { url: wanted.emails }, tokens) }
}

async function ask(rt: Runtime, { oauth }: Client, wanted: ProfileRequest, tokens: Tokens): Promise<unknown> {
  const { url, headers, json, form, query } = wanted
  const address = new URL(url)
  for (const name of query ?? []) address.searchParams.set(name, String(tokens.raw[name]))
  const bearer = query === undefined && form === undefined && { authorization: `Bearer ${tokens.accessToken}` }
  const sent =
    form === undefined ? jsonBody(json) : formBody({ access_token: tokens.accessToken, client_id: oauth.clientId })
  const answer = await reached(() =>
    fetchUrl(address, {
      ...(sent !== undefined && { method: 'POST', body: sent.body }),
      headers: { accept: 'application/json', ...bearer, ...headers, ...sent?.headers },
      allowPrivate: rt.config.files.allowPrivateUrlFetch,
      ...providerLimits,
    }),
  )
  if (answer.status !== 200) throw new OAuthRefusal(`the provider answered ${answer.status} when asked for the profile`)
  return parsed(answer.body.toString())
}

function jsonBody(json: object | null | undefined) {
  return json === undefined
    ? undefined
    : { body: JSON.stringify(json), headers: { 'content-type': 'application/json' } }
}

function formBody(fields: Record<string, string>) {
  const headers = { 'content-type': 'application/x-www-form-urlencoded' }
  return { body: new URLSearchParams(fields).toString(), headers }
}

async function reached<T>(fetched: () => Promise<T>): Promise<T> {
  try {
    return await fetched()
  } catch (error) {
    if (error instanceof UrlFetchError) throw new OAuthUnavailable(error.message, { cause: error })
    throw error
  }
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch (error) {
    throw new OAuthRefusal('the provider did not answer with JSON', { cause: error })
  }
}

function objectOf(value: unknown): Readonly<Record<string, unknown>> {
  return value !== null && typeof value === 'object' ? (value as Record<string, unknown>) : {}
}
