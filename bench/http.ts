export type Answer = { readonly status: number; readonly text: string }
export type Caller = (method: string, path: string, body?: unknown) => Promise<Answer>

/** Requests outside of the measured rounds. */
export function callerOf(url: string, token?: string): Caller {
  return async (method, path, body) => {
    const response = await fetch(`${url}${path}`, {
      method,
      headers: {
        ...(token !== undefined && { authorization: `Bearer ${token}` }),
        ...(body !== undefined && { 'content-type': 'application/json' }),
      },
      body: body === undefined ? null : JSON.stringify(body),
    })
    return { status: response.status, text: await response.text() }
  }
}

/** The body of an answer that must have this status. @throws with the answer when it has not. */
export function done<Body>({ status, text }: Answer, expected: number): Body {
  if (status !== expected) throw new Error(`status ${status} instead of ${expected}: ${text.slice(0, 400)}`)
  return (text === '' ? undefined : JSON.parse(text)) as Body
}
