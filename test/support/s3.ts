import { createHash, createHmac } from 'node:crypto'
import { mkdtemp, rm } from 'node:fs/promises'
import { createServer, type IncomingMessage, request as requestHttp, type ServerResponse } from 'node:http'
import { createRequire } from 'node:module'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { buffer } from 'node:stream/consumers'
import { SignatureV4 } from '@smithy/signature-v4'
import { waitFor } from './wait.ts'

/** How a request goes wrong: answered 503, its answer cut or left in the middle, or never answered. */
export type Fault = '503' | 'cut' | 'stop' | 'silence'

export type S3 = {
  readonly endpoint: string
  /** The variables of a service of the name. */
  env(name: string): Record<string, string>
  /** Requests so far, `PUT key`. */
  readonly requests: readonly string[]
  /** Asked for each request; undefined lets it through. */
  fault: (request: string) => Fault | undefined
  close(): Promise<void>
}

type S3rver = { run(): Promise<AddressInfo>; close(): Promise<void> }
const S3rverClass = createRequire(import.meta.url)('s3rver') as new (options: object) => S3rver

/** As docs/files.md has them. */
const credentials = { accessKeyId: 'my-key', secretAccessKey: 'my-secret' }
const region = 'eu-central-1'
const bucket = 'my-files'

/**
 * An S3 server on a real directory, behind a proxy that lets no request through whose signature (version 4, in the header
 * or in the address) is not that of the key, or whose body is not the one that was signed; and that fails as told.
 */
export async function startS3(): Promise<S3> {
  const directory = await mkdtemp(join(tmpdir(), 'daybook-s3-'))
  const options = { address: '127.0.0.1', port: 0, silent: true, directory, configureBuckets: [{ name: bucket }] }
  const server = new S3rverClass(options)
  const { port } = await server.run()
  const requests: string[] = []
  const s3: { fault: S3['fault'] } = { fault: () => undefined }
  const proxy = createServer((request, response) => {
    const url = new URL(request.url!, 'http://x')
    const name = `${request.method} ${decodeURIComponent(url.pathname.slice(bucket.length + 2))}`
    requests.push(name)
    answer(request, response, { port, fault: s3.fault(name) }).catch((error: Error) => {
      response.destroy(error)
    })
  })
  proxy.listen(0, '127.0.0.1')
  await waitFor(() => proxy.listening)
  const endpoint = `http://127.0.0.1:${(proxy.address() as AddressInfo).port}`
  return Object.assign(s3, {
    endpoint,
    requests,
    env: (name: string) => ({
      [`${name}_STORAGE_DRIVER`]: 'S3',
      [`${name}_ACCESS_KEY_ID`]: credentials.accessKeyId,
      [`${name}_SECRET_ACCESS_KEY`]: credentials.secretAccessKey,
      [`${name}_REGION`]: region,
      [`${name}_BUCKET`]: bucket,
      [`${name}_ENDPOINT`]: endpoint,
    }),
    close: async () => {
      proxy.closeAllConnections()
      proxy.close()
      await server.close()
      await rm(directory, { recursive: true })
    },
  })
}

type To = { readonly port: number; readonly fault: Fault | undefined }

async function answer(request: IncomingMessage, response: ServerResponse, { port, fault }: To): Promise<void> {
  const body = await buffer(request)
  if (fault === 'silence') return
  if (fault === '503') return refuse(response, 503, 'SlowDown')
  const url = new URL(request.url!, `http://${request.headers.host}`)
  const isSigned = url.searchParams.has('X-Amz-Signature')
    ? await isPresigned(request, url)
    : await isSignedBy(request, url, body)
  if (!isSigned) return refuse(response, 403, 'SignatureDoesNotMatch')
  const overrides = [...url.searchParams].filter(([name]) => name.startsWith('response-'))
  for (const name of [...url.searchParams.keys()])
    if (/^(x-amz-|response-|x-id$)/i.test(name)) url.searchParams.delete(name)
  const { authorization: _a, host: _h, ...headers } = request.headers
  const forwarded = requestHttp({
    port,
    host: '127.0.0.1',
    method: request.method,
    path: url.pathname + url.search,
    headers,
  })
  forwarded.on('response', async (answered) => {
    const content = await buffer(answered)
    for (const [name, value] of overrides) answered.headers[name.slice('response-'.length)] = value
    response.writeHead(answered.statusCode!, answered.headers)
    if (fault === 'stop') return void response.write(content.subarray(0, content.length / 2))
    if (fault !== 'cut') return response.end(content)
    response.write(content.subarray(0, content.length / 2), () => response.destroy())
  })
  forwarded.end(body)
}

function refuse(response: ServerResponse, status: number, code: string): void {
  response.writeHead(status, { 'content-type': 'application/xml' })
  response.end(`<?xml version="1.0"?><Error><Code>${code}</Code><Message>${code}</Message></Error>`)
}

/** SHA-256 as the signer wants it. */
class Sha256 {
  readonly #hash
  constructor(secret?: string | Uint8Array | ArrayBuffer) {
    this.#hash = secret === undefined ? createHash('sha256') : createHmac('sha256', secret as Uint8Array)
  }
  update(data: Uint8Array): void {
    this.#hash.update(data)
  }
  async digest(): Promise<Uint8Array> {
    return this.#hash.digest()
  }
}

const signer = new SignatureV4({
  service: 's3',
  region,
  credentials,
  sha256: Sha256 as never,
  uriEscapePath: false,
})

function requestOf(request: IncomingMessage, url: URL, names: readonly string[]) {
  const query: Record<string, string> = {}
  for (const [name, value] of url.searchParams) if (!/^X-Amz-/.test(name)) query[name] = value
  const headers = Object.fromEntries(names.map((name) => [name, String(request.headers[name])]))
  const { method = '' } = request
  return {
    method,
    protocol: 'http:',
    hostname: url.hostname,
    port: Number(url.port),
    path: url.pathname,
    query,
    headers,
  }
}

/** `20261123T035000Z` */
const momentOf = (text: string): Date =>
  new Date(text.replace(/^(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)Z$/, '$1-$2-$3T$4:$5:$6Z'))

async function isSignedBy(request: IncomingMessage, url: URL, body: Buffer): Promise<boolean> {
  const given = request.headers.authorization ?? ''
  const names = /SignedHeaders=([^,]+)/.exec(given)?.[1]?.split(';') ?? []
  const hash = String(request.headers['x-amz-content-sha256'])
  const isBody = hash === 'UNSIGNED-PAYLOAD' || hash === createHash('sha256').update(body).digest('hex')
  const signed = await signer.sign(requestOf(request, url, names), {
    signingDate: momentOf(String(request.headers['x-amz-date'])),
    signableHeaders: new Set(names),
  })
  return isBody && given !== '' && signed.headers.authorization === given
}

async function isPresigned(request: IncomingMessage, url: URL): Promise<boolean> {
  const of = (name: string) => url.searchParams.get(`X-Amz-${name}`) ?? ''
  const date = momentOf(of('Date'))
  const expiresIn = Number(of('Expires'))
  if (Date.now() > date.getTime() + expiresIn * 1000) return false
  const plain = requestOf(request, url, ['host'])
  const hashed = url.searchParams.get('X-Amz-Content-Sha256')
  // The signer moves it to the address.
  const headers = { ...plain.headers, ...(hashed !== null && { 'X-Amz-Content-Sha256': hashed }) }
  const signed = await signer.presign({ ...plain, headers }, { signingDate: date, expiresIn })
  return signed.query?.['X-Amz-Signature'] === of('Signature')
}
