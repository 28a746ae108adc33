import type { Answer, Api } from './api.ts'

/** A part of a form: a file, or the value of a field. */
export type Part =
  | { readonly name: string; readonly filename: string; readonly type?: string; readonly content: string | Buffer }
  | { readonly name: string; readonly value: string }

/** A form as a browser sends it. */
export async function upload(
  api: Api,
  token: string | undefined,
  path: string,
  parts: readonly Part[],
  headers: Record<string, string> = {},
  method: 'POST' | 'PATCH' = 'POST',
): Promise<Answer> {
  const { type, payload } = await formOf(parts)
  const response = await api.app.inject({
    method,
    url: path,
    headers: { 'content-type': type, ...(token !== undefined && { authorization: `Bearer ${token}` }), ...headers },
    payload,
  })
  const { body: text } = response
  return { status: response.statusCode, body: JSON.parse(text), text, headers: response.headers }
}

/** The same as bytes, to be sent by hand. */
export async function formOf(parts: readonly Part[]): Promise<{ type: string; payload: Buffer }> {
  const form = new FormData()
  for (const part of parts) {
    if ('value' in part) form.append(part.name, part.value)
    else form.append(part.name, new Blob([part.content as string], { type: part.type ?? '' }), part.filename)
  }
  const request = new Request('http://localhost', { method: 'POST', body: form })
  return { type: request.headers.get('content-type')!, payload: Buffer.from(await request.arrayBuffer()) }
}
