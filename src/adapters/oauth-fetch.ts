import { fetchUrl } from './fetch-url.ts'

/** Limits of a request to a provider. */
export const providerLimits = { timeoutMs: 10_000, maxBytes: 1_000_000 }

/** Differences of a token endpoint from the standard. */
export type TokenEndpointAdapter = {
  /** The form is sent in the query of a GET. */
  readonly byGet?: boolean
  /** ID tokens are dropped: nothing tells by which keys and issuer. */
  readonly withoutIdToken?: boolean
}

export type FetchInit = {
  readonly method: string
  readonly headers: Headers | Readonly<Record<string, string>>
  readonly body?: unknown
}

/** How the client of a token endpoint fetches. */
export function tokenEndpointFetch(
  endpoint: string | undefined,
  adapter: TokenEndpointAdapter,
  allowPrivate: boolean,
): (url: string, init: FetchInit) => Promise<Response> {
  return async (url, init) => {
    if (url !== endpoint) return fetchResponse(url, init, allowPrivate)
    const sent =
      adapter.byGet === true ? { url: `${url}?${init.body}`, init: { method: 'GET', headers: {} } } : { url, init }
    return standardised(await fetchResponse(sent.url, sent.init, allowPrivate), adapter)
  }
}

/** `fetch` for the OAuth libraries, by {@link fetchUrl}: no redirects, no private addresses, within limits. */
export async function fetchResponse(
  url: string,
  { method, headers, body }: FetchInit,
  allowPrivate: boolean,
): Promise<Response> {
  const sent = body === undefined || body === null ? undefined : String(body)
  const answer = await fetchUrl(url, {
    method,
    headers: headers instanceof Headers ? Object.fromEntries(headers) : headers,
    ...(sent !== undefined && { body: sent }),
    allowPrivate,
    ...providerLimits,
  })
  const type = answer.headers['content-type']
  const hasBody = ![204, 205, 304].includes(answer.status)
  return new Response(hasBody ? new Uint8Array(answer.body) : null, {
    status: answer.status,
    headers: type === undefined ? {} : { 'content-type': type },
  })
}

/**
 * The answer of a token endpoint in the form of RFC 6749: errors have status 400, the type is `bearer`, scopes are one
 * text. Several providers answer everything with 200, name another type or none, or list their scopes.
 */
async function standardised(response: Response, { withoutIdToken }: TokenEndpointAdapter): Promise<Response> {
  const body = jsonObjectOf(await response.text())
  if (body === undefined) return new Response(null, { status: response.ok ? 502 : response.status })
  const error = body.error ?? body.errcode
  if (error !== undefined && error !== 0 && body.access_token === undefined) {
    const described = body.error_description ?? body.errmsg
    return json(response.ok ? 400 : response.status, { error: textOf(error), error_description: textOf(described) })
  }
  const { scope, id_token, ...rest } = body
  return json(response.status, {
    ...rest,
    token_type: 'bearer',
    ...(Array.isArray(scope) ? { scope: scope.join(' ') } : typeof scope === 'string' && { scope }),
    ...(id_token !== undefined && withoutIdToken !== true && { id_token }),
  })
}

function json(status: number, body: object): Response {
  return new Response(JSON.stringify(body), { status, headers: { 'content-type': 'application/json' } })
}

function jsonObjectOf(text: string): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(text)
    return value !== null && typeof value === 'object' ? (value as Record<string, unknown>) : undefined
  } catch {
    // No JSON is no answer of a token endpoint.
    return undefined
  }
}

function textOf(value: unknown): string | undefined {
  return value === undefined || value === null ? undefined : typeof value === 'string' ? value : JSON.stringify(value)
}
