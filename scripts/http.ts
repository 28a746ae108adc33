import assert from 'node:assert/strict'

export type Answer<Body> = {
  readonly status: number
  readonly headers: Headers
  readonly text: string
  readonly body: Body
}

/** Calls the API. `body` goes out as JSON, the answer's JSON is taken to be what the caller says it is. */
export type Call = <Body = unknown>(method: string, path: string, body?: unknown) => Promise<Answer<Body>>

const timeoutMs = 30_000

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
      signal: AbortSignal.timeout(timeoutMs),
    })
    const text = await response.text()
    return {
      status: response.status,
      headers: response.headers,
      text,
      body: (text === '' ? undefined : JSON.parse(text)) as Body,
    }
  }
}

/** The body of an answer that must have this status; the failure shows what came instead. */
export function expectStatus<Body>({ status, text, body }: Omit<Answer<Body>, 'headers'>, expected: number): Body {
  assert.equal(status, expected, `status ${status} instead of ${expected}: ${text.slice(0, 400)}`)
  return body
}
