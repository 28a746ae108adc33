import { type AddressInfo, connect, type Socket } from 'node:net'
import { setTimeout as delay } from 'node:timers/promises'
import Fastify from 'fastify'
import { expect, it, onTestFinished } from 'vitest'
import { limitBodyTimes } from '../../src/api/http-connections.ts'
import type { App } from '../../src/http/http.ts'
import { waitFor } from '../support/wait.ts'

/** Bodies that come slowly, by real sockets with short times. */

let streams = 0

const times = { wholeMs: 300, silenceMs: 300, whileMs: 600, leastBytes: 3000, closingMs: 200 }

type Client = Socket & { readonly answer: () => string; readonly isClosed: () => Promise<boolean> }

async function open(): Promise<{ app: App; begin: (path: string) => Promise<Client> }> {
  const app = Fastify({ return503OnClosing: false }) as unknown as App
  limitBodyTimes(app, times)
  app.addContentTypeParser('x/stream', (_request, _payload, done) => done(null))
  app.post('/whole', async (request) => String(request.body).length)
  app.post('/stream', { config: { streamedBody: true } }, async (request) => {
    streams += 1
    let size = 0
    for await (const piece of request.raw) size += piece.length
    return String(size)
  })
  await app.listen({ port: 0, host: '127.0.0.1' })
  onTestFinished(() => app.close())
  const { port } = app.server.address() as AddressInfo
  const begin = async (path: string) => {
    const socket = connect(port, '127.0.0.1')
    onTestFinished(() => void socket.destroy())
    let text = ''
    socket.on('data', (data) => {
      text += data
    })
    socket.on('error', () => undefined)
    await waitFor(() => socket.readyState === 'open')
    socket.write(
      `POST ${path} HTTP/1.1\r\nhost: x\r\ncontent-type: ${path === '/stream' ? 'x/stream' : 'text/plain'}\r\ncontent-length: 20000\r\n\r\n`,
    )
    return Object.assign(socket, { answer: () => text, isClosed: () => waitFor(() => socket.closed) })
  }
  return { app, begin }
}

/** Sends pieces until all is sent, or the other side has had enough. */
async function drip(socket: Socket, piece: number, everyMs: number): Promise<void> {
  for (let sent = 0; sent < 20_000 && !socket.destroyed; sent += piece) {
    socket.write(Buffer.alloc(Math.min(piece, 20_000 - sent)))
    await delay(everyMs)
  }
}

it('a stream that moves may take longer than any whole body, and one that hardly moves may not', async () => {
  const { begin } = await open()
  const [moving, dripping, silent] = [await begin('/stream'), await begin('/stream'), await begin('/stream')]
  silent.write('some')
  const startedAt = performance.now()
  await Promise.all([drip(moving, 1000, 60), drip(dripping, 10, 50), dripping.isClosed(), silent.isClosed()])
  await waitFor(() => moving.answer() !== '')
  expect(performance.now() - startedAt).toBeGreaterThan(times.whileMs)
  expect(moving.answer()).toMatch(/^HTTP\/1\.1 200[\s\S]*20000$/)
  expect(dripping.answer()).toMatch(/^HTTP\/1\.1 408/)
  expect(silent.answer()).toMatch(/^HTTP\/1\.1 408/)
})

it('a body that is read as a whole must be there in time, however it moves', async () => {
  const { begin } = await open()
  const socket = await begin('/whole')
  await Promise.all([drip(socket, 100, 20), socket.isClosed()])
  expect(socket.answer()).toMatch(/^HTTP\/1\.1 408/)
})

it('a stream that is coming when the server closes gets a while more', async () => {
  streams = 0
  const { app, begin } = await open()
  const socket = await begin('/stream')
  socket.write('some')
  await waitFor(() => streams > 0)
  await Promise.all([drip(socket, 200, 20), app.close(), socket.isClosed()])
  expect(socket.answer()).toMatch(/^HTTP\/1\.1 408/)
})
