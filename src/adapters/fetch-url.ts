import { type LookupAddress, lookup } from 'node:dns'
import { type ClientRequest, type IncomingHttpHeaders, type IncomingMessage, request as requestHttp } from 'node:http'
import { request as requestHttps } from 'node:https'
import { BlockList, isIP, type LookupFunction } from 'node:net'
import { Readable } from 'node:stream'

export type UrlRequest = {
  readonly method?: string
  readonly headers?: Readonly<Record<string, string>>
  readonly body?: string | Uint8Array
  /** SSRF_ALLOW_PRIVATE_URL_FETCH: every address may be reached. */
  readonly allowPrivate: boolean
  /** Of the whole request, redirects and body included. Milliseconds. */
  readonly timeoutMs: number
  /** Of the decoded body. Bytes. */
  readonly maxBytes: number
  /** How many redirects of a GET are followed; each is checked like the first address. Default: none. */
  readonly redirects?: number
}

export type UrlResponse = {
  /** Where the body came from, after redirects. */
  readonly url: URL
  readonly status: number
  readonly headers: IncomingHttpHeaders
  /** Fails with {@link UrlFetchError} beyond `maxBytes` or `timeoutMs`; must be read or destroyed. */
  readonly body: Readable
}

/**
 * Why a URL was not fetched. `address`: it leads where the server may not go, or is no http(s) URL. `size`, `time`: a
 * limit was passed. `network`: nobody answered, or the line broke. `redirects`: too many.
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
 * The one way to fetch an address that a caller or a third party has named (decisions A11). Only http and https, and
 * only addresses of the public internet unless `allowPrivate`. The check is part of resolving the name for the very
 * connection, so no second answer of its DNS server can lead elsewhere; every redirect is checked anew. No proxy, no
 * cookies, and credentials in URLs are refused.
 */
export async function openUrl(address: string | URL, wanted: UrlRequest): Promise<UrlResponse> {
  const signal = AbortSignal.timeout(wanted.timeoutMs)
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
  const { body, ...answer } = await openUrl(address, wanted)
  const chunks: Buffer[] = []
  for await (const chunk of body) chunks.push(chunk as Buffer)
  return { ...answer, body: Buffer.concat(chunks) }
}

/** Whether an IP address is one of the public internet. */
export function isPublicAddress(address: string): boolean {
  const family = isIP(address)
  if (family === 4) return !reserved.check(address, 'ipv4')
  return family === 6 && globalUnicast.check(address, 'ipv6') && !reserved.check(address, 'ipv6')
}

/** What the IANA registers of special-purpose addresses keep out of the public internet, and one metadata service. */
const reservedNetworks = [
  ...['0.0.0.0/8', '10.0.0.0/8', '100.64.0.0/10', '127.0.0.0/8', '169.254.0.0/16', '172.16.0.0/12', '192.0.0.0/24'],
  ...['192.0.2.0/24', '192.31.196.0/24', '192.52.193.0/24', '192.88.99.0/24', '192.168.0.0/16', '192.175.48.0/24'],
  ...['198.18.0.0/15', '198.51.100.0/24', '203.0.113.0/24', '224.0.0.0/4', '240.0.0.0/4', '168.63.129.16/32'],
  // Within the global unicast block: protocol assignments with Teredo, documentation, 6to4.
  ...['2001::/23', '2001:db8::/32', '2002::/16', '3fff::/20', '2620:4f:8000::/48'],
]

const reserved = blockListOf(reservedNetworks)
/** Mapped, translated, local and multicast addresses are outside of it. */
const globalUnicast = blockListOf(['2000::/3'])

function blockListOf(networks: readonly string[]): BlockList {
  const list = new BlockList()
  for (const network of networks) {
    const [address = '', prefix] = network.split('/')
    list.addSubnet(address, Number(prefix), isIP(address) === 6 ? 'ipv6' : 'ipv4')
  }
  return list
}

function webAddress(address: string | URL): URL {
  const url = URL.parse(String(address))
  if (url === null || !/^https?:$/.test(url.protocol) || url.username !== '' || url.password !== '')
    throw new UrlFetchError('address', 'The URL is not an http or https address')
  return url
}

function answerOf(url: URL, wanted: UrlRequest, signal: AbortSignal): Promise<IncomingMessage> {
  // A literal address is connected to without being looked up.
  const literal = url.hostname.replace(/^\[|\]$/g, '')
  if (isIP(literal) !== 0 && !wanted.allowPrivate && !isPublicAddress(literal)) return Promise.reject(forbidden())
  return new Promise((resolve, reject) => {
    const fail = (error: unknown) => reject(failureOf(error, signal))
    try {
      const sent = send(url, wanted, signal)
      sent.once('response', resolve).once('error', fail).end(wanted.body)
    } catch (error) {
      fail(error)
    }
  })
}

function send(url: URL, { method = 'GET', headers, allowPrivate }: UrlRequest, signal: AbortSignal): ClientRequest {
  const request = url.protocol === 'https:' ? requestHttps : requestHttp
  const lookUp = allowPrivate ? {} : { lookup: lookUpPublic }
  // No agent: a kept connection would skip the check of the next request.
  return request(url, { method, headers: { 'user-agent': 'daybook', ...headers }, agent: false, signal, ...lookUp })
}

/** One forbidden address among several makes the name forbidden: which one is connected to is not ours to say. */
const lookUpPublic: LookupFunction = (hostname, options, done) => {
  lookup(hostname, { ...options, all: true }, (error, addresses: LookupAddress[]) => {
    if (error !== null) return done(error, [])
    if (addresses.length === 0 || !addresses.every(({ address }) => isPublicAddress(address)))
      return done(forbidden(), [])
    if (options.all === true) return done(null, addresses)
    const [{ address, family }] = addresses as [LookupAddress]
    done(null, address, family)
  })
}

const forbidden = () => new UrlFetchError('address', 'The URL leads to an address that is not allowed')

function failureOf(error: unknown, signal: AbortSignal): UrlFetchError {
  if (error instanceof UrlFetchError) return error
  if (signal.aborted) return new UrlFetchError('time', 'The URL did not answer in time', error)
  return new UrlFetchError('network', 'The URL could not be fetched', error)
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
