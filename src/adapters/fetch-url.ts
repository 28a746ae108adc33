import type { ClientRequest, IncomingHttpHeaders, IncomingMessage } from 'node:http'
import { request as requestHttps } from 'node:https'
import { Readable } from 'node:stream'
import { request as requestHttp } from '../language/node-http.ts'
import { ForbiddenAddressError, isForbiddenLiteral, lookUpPublic } from './network-addresses.ts'

type UrlRequest = {
  readonly method?: string
  readonly headers?: Readonly<Record<string, string>>
  readonly body?: string | Uint8Array
  /** SSRF_ALLOW_PRIVATE_URL_FETCH: every address may be reached. */
  readonly allowPrivate: boolean
  /** Of the whole request, redirects and body included. Milliseconds. */
  readonly timeoutMs: number
  /** Ends the request, as if its time were over. */
  readonly signal?: AbortSignal
  /** Of each redirect and of the answer until they begin, and of each pause of the body. Without it `timeoutMs` is all. */
  readonly firstByteMs?: number
  /** Of the decoded body. Bytes. */
  readonly maxBytes: number
  /** How many redirects of a GET are followed; each is checked like the first address. Default: none. */
  readonly redirects?: number
}

type UrlResponse = {
  /** Where the body came from, after redirects. */
  readonly url: URL
  readonly status: number
  readonly headers: IncomingHttpHeaders
  /** Fails with {@link UrlFetchError} beyond `maxBytes` or `timeoutMs`; must be read or destroyed. */
  readonly body: Readable
}

/**
 * Why a URL was not fetched. `address`: it leads where the server may not go, or is no http(s) URL. `size`, `time`: a
 * limit was passed. `network`: no answer came, or the line broke. `redirects`: too many.
 */
export class UrlFetchError extends Error {
  readonly reason: 'address' | 'size' | 'time' | 'network' | 'redirects'

  constructor(reason: UrlFetchError['reason'], message: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause })
    this.name = 'UrlFetchError'
    this.reason = reason
  }
}

/**
 * The one way to fetch an address that a caller or a third party has named. Only http and https, and
 * only addresses of the public internet unless `allowPrivate`. The check is part of resolving the name for the very
 * connection, so no second answer of its DNS server can lead elsewhere; every redirect is checked anew. No proxy, no
 * cookies, and credentials in URLs are refused.
 */
export async function fetchUrlStream(address: string | URL, wanted: UrlRequest): Promise<UrlResponse> {
  const inTime = AbortSignal.timeout(wanted.timeoutMs)
  const signal = wanted.signal === undefined ? inTime : AbortSignal.any([inTime, wanted.signal])
  let url = webAddress(address)
  for (let left = wanted.redirects ?? 0; ; left -= 1) {
    const answer = await answerOf(url, wanted, signal)
    const { statusCode = 0, headers } = answer
    const isRedirect = wanted.redirects !== undefined && statusCode >= 300 && statusCode < 400 && headers.location
    if (!isRedirect)
      return {
        url,
        status: statusCode,
        headers,
        body: Readable.from(limited(answer, wanted.maxBytes, signal), { objectMode: false }),
      }
    answer.destroy()
    if (left === 0) throw new UrlFetchError('redirects', 'Too many redirects')
    url = webAddress(URL.parse(isRedirect, url.href) ?? '')
  }
}

/** As above, with the whole body in memory. */
export async function fetchUrl(
  address: string | URL,
  wanted: UrlRequest,
): Promise<Omit<UrlResponse, 'body'> & { readonly body: Buffer }> {
  const { body, ...answer } = await fetchUrlStream(address, wanted)
  const chunks: Buffer[] = []
  for await (const chunk of body) chunks.push(chunk as Buffer)
  return { ...answer, body: Buffer.concat(chunks) }
}

/**
 * As above, with the beginning of the body, however long it is: as much as comes within `bodyMs` of the status. The status is
 * the answer; a body that stalls or breaks off takes nothing from it.
 */
export async function fetchBeginning(
  address: string | URL,
  { bodyMs, ...wanted }: Omit<UrlRequest, 'redirects'> & { readonly bodyMs: number },
): Promise<Omit<UrlResponse, 'body'> & { readonly body: Buffer }> {
  const late = new AbortController()
  const signal = wanted.signal === undefined ? late.signal : AbortSignal.any([wanted.signal, late.signal])
  const { body, ...answer } = await fetchUrlStream(address, { ...wanted, signal, maxBytes: Number.POSITIVE_INFINITY })
  const timer = setTimeout(() => late.abort(), bodyMs)
  const chunks: Buffer[] = []
  let size = 0
  try {
    for await (const chunk of body) {
      chunks.push(chunk as Buffer)
      size += (chunk as Buffer).length
      if (size >= wanted.maxBytes) break
    }
  } catch (error) {
    if (!(error instanceof UrlFetchError)) throw error
  } finally {
    clearTimeout(timer)
  }
  return { ...answer, body: Buffer.concat(chunks).subarray(0, wanted.maxBytes) }
}

/** Throws {@link UrlFetchError} for what is no http(s) address, holds credentials, or is an address that may not be reached. */
export function checkUrl(address: string, { allowPrivate }: Pick<UrlRequest, 'allowPrivate'>): void {
  const { hostname } = webAddress(address)
  if (!allowPrivate && (isForbiddenLiteral(hostname) || /(^|\.)localhost\.?$/i.test(hostname))) throw forbidden()
}

function webAddress(address: string | URL): URL {
  const url = URL.parse(String(address))
  if (url === null || !/^https?:$/.test(url.protocol) || url.username !== '' || url.password !== '')
    throw new UrlFetchError('address', 'The URL is not an http or https address')
  if (url.port === '0') throw new UrlFetchError('address', 'The URL names port 0, where nothing can listen')
  return url
}

function answerOf(url: URL, wanted: UrlRequest, signal: AbortSignal): Promise<IncomingMessage> {
  // A literal address is connected to without being looked up.
  if (!wanted.allowPrivate && isForbiddenLiteral(url.hostname)) return Promise.reject(forbidden())
  return new Promise((resolve, reject) => {
    const fail = (error: unknown) => reject(failureOf(error, signal))
    try {
      const sent = send(url, wanted, signal)
      const { firstByteMs } = wanted
      const late = () => sent.destroy(new UrlFetchError('time', 'The URL did not answer in time'))
      const timer = firstByteMs === undefined ? undefined : setTimeout(late, firstByteMs)
      sent.once('close', () => clearTimeout(timer))
      sent.once('response', (answer) => {
        clearTimeout(timer)
        if (firstByteMs !== undefined) sent.setTimeout(firstByteMs, () => answer.destroy(stalled()))
        resolve(answer)
      })
      sent.once('error', fail).end(wanted.body)
    } catch (error) {
      fail(error)
    }
  })
}

function send(
  url: URL,
  { method = 'GET', headers, body, allowPrivate }: UrlRequest,
  signal: AbortSignal,
): ClientRequest {
  const request = url.protocol === 'https:' ? requestHttps : requestHttp
  const lookUp = allowPrivate ? {} : { lookup: lookUpPublic }
  // Where it is not said how long a body is, Node sends that of a DELETE as if it were the next request.
  const length = body === undefined ? {} : { 'content-length': String(Buffer.byteLength(body)) }
  const all = { 'user-agent': 'daybook', ...headers, ...length }
  // No agent: a kept connection would skip the check of the next request.
  return request(url, { method, headers: all, agent: false, signal, ...lookUp })
}

const stalled = () => new UrlFetchError('time', 'The URL did not go on with its answer in time')
const forbidden = () => new UrlFetchError('address', 'The URL leads to an address that is not allowed')

function failureOf(error: unknown, signal: AbortSignal): UrlFetchError {
  if (error instanceof UrlFetchError) return error
  if (error instanceof ForbiddenAddressError) return forbidden()
  if (signal.aborted) return new UrlFetchError('time', 'The URL did not answer in time', error)
  const { code } = error as NodeJS.ErrnoException
  const why = typeof code === 'string' && /^[A-Z\d_]+$/.test(code) ? ` (${code})` : ''
  return new UrlFetchError('network', `The URL could not be fetched${why}`, error)
}

/** The body as it comes, which ends with an error when there is too much of it or it comes too slowly. */
async function* limited(answer: IncomingMessage, maxBytes: number, signal: AbortSignal): AsyncGenerator<Buffer> {
  let size = 0
  try {
    for await (const chunk of answer as AsyncIterable<Buffer>) {
      size += chunk.length
      if (size > maxBytes) throw new UrlFetchError('size', `The answer is larger than ${maxBytes} bytes`)
      yield chunk
    }
  } catch (error) {
    throw failureOf(error, signal)
  }
}
