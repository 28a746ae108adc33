/** A request that was refused or could not be sent. */
export class DaybookError extends Error {
  override readonly name = 'DaybookError'
  /** 0 where there was no answer. */
  readonly status: number
  /** Stable, e.g. `VALIDATION_ERROR`; `NO_ANSWER` where there was none. */
  readonly code: string
  readonly details: unknown
  /** Names the request in the server's log. */
  readonly requestId: string | undefined
  /** When to try again, in milliseconds. */
  readonly retryAfterMs: number | undefined
  /** The whole body of the answer. */
  readonly body: unknown

  constructor(message: string, facts: ErrorFacts, cause?: unknown) {
    super(message, { cause })
    this.status = facts.status
    this.code = facts.code
    this.details = facts.details
    this.requestId = facts.requestId
    this.retryAfterMs = facts.retryAfterMs
    this.body = facts.body
  }
}

type ErrorFacts = Pick<DaybookError, 'status' | 'code'> &
  Partial<Pick<DaybookError, 'details' | 'requestId' | 'retryAfterMs' | 'body'>>

export type Query = Readonly<Record<string, unknown>>

export type RequestOptions = {
  readonly method?: 'GET' | 'HEAD' | 'POST' | 'PUT' | 'PATCH' | 'DELETE'
  readonly query?: Query | undefined
  /** Sent as JSON, but for forms and files. */
  readonly body?: unknown
  readonly headers?: Readonly<Record<string, string>> | undefined
  readonly signal?: AbortSignal | undefined
  /** Names an intended write, so that it is done once however often it is sent. One is made where it is undefined. */
  readonly idempotencyKey?: string | undefined
  /** Without the session. */
  readonly isAnonymous?: boolean
}

export type Answer<Body> = { readonly body: Body; readonly headers: Headers; readonly status: number }

export type Http = {
  readonly url: string
  /** @throws {DaybookError} */
  send<Body>(path: string, options?: RequestOptions): Promise<Answer<Body>>
  /** The body of the answer. */
  ask<Body>(path: string, options?: RequestOptions): Promise<Body>
}

export type HttpOptions = {
  readonly url: string
  readonly fetch: typeof fetch
  /** Headers that say who asks; asked for each attempt. */
  readonly authorize: () => Promise<Readonly<Record<string, string>>>
  /** Called after a refusal 401 of who asked by these headers; true where it is worth another attempt. */
  readonly onUnauthorized: (asked: Readonly<Record<string, string>>) => boolean | Promise<boolean>
  /** Whether cookies go along. */
  readonly withCookies: boolean
  /** How often a request is sent at the most. */
  readonly attempts: number
}

const firstPauseMs = 250
const longestPauseMs = 10_000

/**
 * A key as a part of a path. The empty one leads to the list, and `.` and `..` are taken out of an address before it is sent, also
 * where they are encoded.
 */
export function segmentOf(key: unknown): string {
  const text = String(key)
  if (!['', '.', '..'].includes(text)) return encodeURIComponent(text)
  const message = `${JSON.stringify(text)} is no key that an address can have`
  throw new DaybookError(message, { status: 0, code: 'NO_KEY' })
}

/** Answers with tokens are not kept, and resumable uploads repeat themselves in their own way. */
const unrepeatable = /^\/(auth|files\/tus)(\/|$)/

/**
 * Requests that are safe to repeat are repeated where there was no answer or a passing refusal: reads, and writes with an
 * Idempotency-Key, which every write has that can.
 */
export function openHttp(options: HttpOptions): Http {
  const url = options.url.replace(/\/+$/, '')
  const send = async <Body>(path: string, wanted: RequestOptions = {}): Promise<Answer<Body>> => {
    const { method = 'GET', idempotencyKey } = wanted
    const isWrite = method !== 'GET' && method !== 'HEAD'
    const hasKey = isWrite && !unrepeatable.test(path)
    const key = hasKey ? (idempotencyKey ?? crypto.randomUUID()) : undefined
    const isSafe = (!isWrite || hasKey) && !isStream(wanted.body)
    for (let attempt = 1; ; attempt += 1) {
      let asked: Readonly<Record<string, string>> = {}
      const authorize = async () => {
        asked = await options.authorize()
        return asked
      }
      const result = await sendOnce<Body>({ ...options, authorize }, url, path, wanted, key)
      if (!(result instanceof DaybookError)) return result
      const isRefused = result.status === 401 && attempt === 1 && !wanted.isAnonymous
      if (isRefused && (await until(Promise.resolve(options.onUnauthorized(asked)), wanted.signal))) continue
      if (!isSafe || attempt >= options.attempts || !isPassing(result)) throw result
      await pause(result.retryAfterMs ?? firstPauseMs * 2 ** (attempt - 1), wanted.signal)
    }
  }
  return {
    url,
    send,
    ask: async <Body>(path: string, wanted?: RequestOptions) => (await send<Body>(path, wanted)).body,
  }
}

/** Refusals that a repetition may not get. */
const isPassing = ({ status, code }: DaybookError): boolean =>
  status === 0 ? code === 'NO_ANSWER' : [429, 502, 503, 504].includes(status)

async function sendOnce<Body>(
  { fetch, authorize, withCookies }: HttpOptions,
  url: string,
  path: string,
  { method = 'GET', query, body, headers, signal, isAnonymous }: RequestOptions,
  key: string | undefined,
): Promise<Answer<Body> | DaybookError> {
  const isJson = body !== undefined && !isForm(body) && !isStream(body)
  let response: Response
  let text: string
  try {
    response = await fetch(url + path + searchOf(query), {
      method,
      headers: {
        accept: 'application/json',
        ...(isJson && { 'content-type': 'application/json' }),
        ...(key !== undefined && { 'idempotency-key': key }),
        ...(isAnonymous ? {} : await until(authorize(), signal)),
        ...headers,
      },
      credentials: withCookies ? 'include' : 'omit',
      ...(body !== undefined && { body: isJson ? JSON.stringify(body) : (body as BodyInit) }),
      ...(signal && { signal }),
    })
    text = await response.text()
  } catch (cause) {
    signal?.throwIfAborted()
    if (cause instanceof DaybookError) throw cause
    return new DaybookError('The server did not answer', { status: 0, code: 'NO_ANSWER' }, cause)
  }
  const read = readBody(text)
  if (response.ok || response.status === 304)
    return { body: read as Body, headers: response.headers, status: response.status }
  return refusalOf(response, read)
}

/** The three forms of errors have a message and a code in common. */
function refusalOf({ status, headers }: Response, body: unknown): DaybookError {
  const { error, ...own } = Object(body) as { error?: unknown; message?: unknown; code?: unknown; details?: unknown }
  const said = typeof error === 'object' && error !== null ? (error as typeof own) : own
  const message = typeof error === 'string' ? error : said.message
  const seconds = Number(headers.get('retry-after') ?? Number.NaN)
  return new DaybookError(typeof message === 'string' ? message : `The server answered ${status}`, {
    status,
    code: typeof said.code === 'string' ? said.code : String(status),
    details: said.details ?? undefined,
    requestId: headers.get('x-request-id') ?? undefined,
    retryAfterMs: Number.isFinite(seconds) ? seconds * 1000 : undefined,
    body,
  })
}

function readBody(text: string): unknown {
  if (text === '') return undefined
  try {
    return JSON.parse(text)
  } catch {
    return text
  }
}

/** Objects and lists of a query are JSON; what is undefined is left out. */
function searchOf(query: Query | undefined): string {
  const search = new URLSearchParams()
  for (const [name, value] of Object.entries(query ?? {}))
    if (value !== undefined) search.set(name, typeof value === 'object' ? JSON.stringify(value) : String(value))
  const text = search.toString()
  return text === '' ? '' : `?${text}`
}

const isForm = (body: unknown): boolean => body instanceof FormData || body instanceof Blob
const isStream = (body: unknown): boolean => body instanceof ReadableStream

/** Waits no longer than the signal lets it; the work itself goes on. @throws what the signal was aborted with */
export function until<Result>(work: Promise<Result>, signal: AbortSignal | undefined): Promise<Result> {
  if (signal === undefined) return work
  const { promise, reject } = Promise.withResolvers<never>()
  const stop = () => reject(signal.reason)
  if (signal.aborted) stop()
  else signal.addEventListener('abort', stop, { once: true })
  return Promise.race([work, promise]).finally(() => signal.removeEventListener('abort', stop))
}

/** Work that has so many milliseconds, whether it heeds its signal or not. @throws a TimeoutError */
export async function within<Result>(ms: number, work: (signal: AbortSignal) => Promise<Result>): Promise<Result> {
  const controller = new AbortController()
  const timer = setTimeout(() => controller.abort(new DOMException('It took too long', 'TimeoutError')), ms)
  try {
    return await until(work(controller.signal), controller.signal)
  } finally {
    clearTimeout(timer)
  }
}

/** Waits about so long, ten seconds at the most. @throws what the signal was aborted with */
export function pause(ms: number, signal: AbortSignal | undefined): Promise<void> {
  signal?.throwIfAborted()
  const { promise, resolve, reject } = Promise.withResolvers<void>()
  // Many clients that were refused together do not come again together.
  const timer = setTimeout(resolve, Math.min(ms, longestPauseMs) * (0.75 + Math.random() / 2))
  const stop = () => {
    clearTimeout(timer)
    reject(signal?.reason)
  }
  signal?.addEventListener('abort', stop, { once: true })
  return promise.finally(() => signal?.removeEventListener('abort', stop))
}
