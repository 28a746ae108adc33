import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Readable } from 'node:stream'
import type * as Injection from 'light-my-request'
import { writeJson } from '../language/exact-json.ts'
import { onFirstUse } from '../language/once.ts'

const injection = onFirstUse<typeof Injection>('light-my-request')

/** A request that the process makes to its own server, without a socket. */
type LocalRequest = {
  readonly method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE'
  /** Path and query. */
  readonly url: string
  readonly headers: Readonly<Record<string, string>>
  /** Sent as JSON; none where it is undefined. */
  readonly body?: unknown
  /** The address that it is done for. */
  readonly remoteAddress: string
}

export type LocalAnswer = {
  readonly status: number
  readonly headers: Readonly<Record<string, unknown>>
  /** Undefined where there was more of it than was wanted. */
  readonly text: string | undefined
}

/** The handler of requests: a server's handler also works while the server closes. */
type Dispatch = (request: IncomingMessage, response: ServerResponse) => void

/**
 * The answer to a request of our own. The work ends when `gone` aborts, as it does when a client goes, and so does an
 * answer beyond `mostBytes`.
 */
export async function answerLocally(
  dispatch: Dispatch,
  { method, url, headers, body, remoteAddress }: LocalRequest,
  { gone, mostBytes }: { readonly gone: AbortSignal | undefined; readonly mostBytes: number },
): Promise<LocalAnswer> {
  gone?.throwIfAborted()
  let cut = () => {}
  const handle: Injection.DispatchFunc = (request, response) => {
    cut = () => void (response as ServerResponse).destroy()
    dispatch(request as IncomingMessage, response as ServerResponse)
  }
  const onGone = () => cut()
  gone?.addEventListener('abort', onGone, { once: true })
  try {
    const options = {
      method,
      url,
      headers: { ...headers, ...(body !== undefined && { 'content-type': 'application/json' }) },
      ...(body !== undefined && { payload: writeJson(body) }),
      remoteAddress,
      payloadAsStream: true,
      validate: false,
    } satisfies Injection.InjectOptions
    const answer = await injection().inject(handle, options)
    const text = await textOf(answer.stream(), mostBytes)
    if (text === undefined) cut()
    return { status: answer.statusCode, headers: answer.headers, text }
  } finally {
    gone?.removeEventListener('abort', onGone)
  }
}

async function textOf(stream: Readable, mostBytes: number): Promise<string | undefined> {
  const chunks: Buffer[] = []
  let bytes = 0
  for await (const chunk of stream as AsyncIterable<Buffer>) {
    bytes += chunk.length
    if (bytes > mostBytes) return undefined
    chunks.push(chunk)
  }
  return Buffer.concat(chunks).toString('utf8')
}
