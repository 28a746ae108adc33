import { createServer, type RequestListener } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterAll, expect, it } from 'vitest'
import { fetchUrl, UrlFetchError } from '../../src/adapters/fetch-url.ts'

const servers: ReturnType<typeof createServer>[] = []
afterAll(() => {
  for (const server of servers) server.close().closeAllConnections()
})

async function serve(listener: RequestListener): Promise<string> {
  const server = createServer(listener)
  servers.push(server)
  await new Promise<void>((listening) => server.listen(0, '127.0.0.1', listening))
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
}

const limits = { allowPrivate: true, timeoutMs: 5000, maxBytes: 1000 }
const reasonOf = (fetched: Promise<unknown>) =>
  fetched.then(
    () => 'fetched',
    (error: unknown) => (error instanceof UrlFetchError ? error.reason : String(error)),
  )

it('nothing local is asked without leave, however it is written', async () => {
  let asked = 0
  const base = await serve((_request, response) => {
    asked += 1
    response.end('secret')
  })
  const port = new URL(base).port
  const spellings = [
    '127.0.0.1',
    'localhost',
    '2130706433',
    '0x7f.1',
    '0177.0.0.1',
    '127.1',
    '[::1]',
    '[::ffff:7f00:1]',
  ]
  for (const host of [...spellings, '0', 'LOCALHOST', '１２７.0.0.1'])
    expect([host, await reasonOf(fetchUrl(`http://${host}:${port}/`, { ...limits, allowPrivate: false }))]).toEqual([
      host,
      'address',
    ])
  expect(asked).toBe(0)
  expect((await fetchUrl(`http://localhost:${port}/`, limits)).body.toString()).toBe('secret')
})

it.each([
  'ftp://example.com/',
  'file:///etc/passwd',
  'data:,x',
  'http://u:p@example.com/',
  '//example.com',
  'http://example.com:0/',
  'nonsense',
])('%s is refused', async (address) => {
  expect(await reasonOf(fetchUrl(address, limits))).toBe('address')
})

it('a redirect is an answer unless redirects are wanted, and each one is checked', async () => {
  const base = await serve((request, response) => {
    if (request.url === '/end') return void response.end('there')
    const location = { '/out': 'file:///etc/passwd', '/loop': '/loop' }[request.url ?? ''] ?? '/end'
    response.writeHead(302, { location }).end()
  })
  expect((await fetchUrl(`${base}/`, limits)).status).toBe(302)
  const followed = await fetchUrl(`${base}/`, { ...limits, redirects: 1 })
  expect([followed.body.toString(), followed.url.pathname]).toEqual(['there', '/end'])
  expect(await reasonOf(fetchUrl(`${base}/loop`, { ...limits, redirects: 3 }))).toBe('redirects')
  expect(await reasonOf(fetchUrl(`${base}/out`, { ...limits, redirects: 3 }))).toBe('address')
})

it('an answer that is too large, too slow or broken ends with an error', async () => {
  const base = await serve((request, response) => {
    if (request.url === '/large') response.end('x'.repeat(1001))
    else if (request.url === '/slow') response.write('begin')
    else if (request.url === '/broken') response.destroy()
    else response.writeHead(200, { 'content-length': '10' }).write('12345', () => response.destroy())
  })
  expect(await reasonOf(fetchUrl(`${base}/large`, limits))).toBe('size')
  expect(await reasonOf(fetchUrl(`${base}/slow`, { ...limits, timeoutMs: 100 }))).toBe('time')
  expect(await reasonOf(fetchUrl(`${base}/broken`, limits))).toBe('network')
  expect(await reasonOf(fetchUrl(`${base}/cut`, limits))).toBe('network')
  await expect(fetchUrl(`${base}/broken`, limits)).rejects.toThrow('The URL could not be fetched (ECONNRESET)')
  await expect(fetchUrl('http://127.0.0.1:1/', limits)).rejects.toThrow('The URL could not be fetched (ECONNREFUSED)')
})

it('a body is sent as it is', async () => {
  const base = await serve((request, response) => void request.pipe(response))
  for (const method of ['POST', 'PUT', 'PATCH', 'DELETE']) {
    const answer = await fetchUrl(base, { ...limits, method, body: 'hellö' })
    expect([method, answer.body.toString()]).toEqual([method, 'hellö'])
  }
})
