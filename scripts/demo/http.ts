import assert from 'node:assert/strict'

export type Answer<Body> = { readonly status: number; readonly body: Body }

export type List<Row> = { readonly data: readonly Row[]; readonly totalCount: number }
export type Refusal = { readonly error: { readonly message: string } }

/** Calls the API. `body` goes out as JSON, the answer's JSON is taken to be what the caller says it is. */
export type Call = <Body = unknown>(method: string, path: string, body?: unknown) => Promise<Answer<Body>>

const patienceMs = 30_000

/** A caller with that token, or without one. */
export function callerOf(url: string, token?: string): Call {
  return async <Body>(method: string, path: string, body?: unknown) => {
    const response = await fetch(`${url}${path}`, {
      method,
      headers: {
        ...(token !== undefined && { authorization: `Bearer ${token}` }),
        ...(body !== undefined && { 'content-type': 'application/json' }),
      },
      body: body === undefined ? null : JSON.stringify(body),
      signal: AbortSignal.timeout(patienceMs),
    })
    const text = await response.text()
    return { status: response.status, body: (text === '' ? undefined : JSON.parse(text)) as Body }
  }
}

/** The body of an answer that must have this status; the failure shows what came instead. */
export function expectStatus<Body>({ status, body }: Answer<Body>, expected: number): Body {
  assert.equal(status, expected, `status ${status} instead of ${expected}: ${JSON.stringify(body)}`)
  return body
}

/** `/items/country?fields=…&filter=…`, objects and lists as JSON. */
export function list(collection: string, query: Readonly<Record<string, unknown>>): string {
  const parameters = Object.entries(query).map(([name, value]): [string, string] => [
    name,
    typeof value === 'object' ? JSON.stringify(value) : String(value),
  ])
  return `/items/${collection}?${new URLSearchParams(parameters)}`
}
