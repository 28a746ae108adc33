import { randomBytes } from 'node:crypto'
import { connect as connectTcp, type Socket } from 'node:net'
import { afterAll } from 'vitest'
import { waitFor } from './wait.ts'

/** A client that speaks the protocol packet by packet, so that it can also misspeak it, or stop to listen. */
export type RawSocket = {
  /** The packets received, as text. */
  readonly packets: readonly string[]
  readonly closed: boolean
  /** Sends packets of the socket protocol, each in a frame of its own, text or binary, and all in one piece. */
  send(...packets: (string | Buffer)[]): void
  /** Sends a ping of the WebSocket protocol itself. */
  ping(): void
  /** How many pings were answered. */
  readonly pongs: number
  /** The first packet, past or to come, that begins so. */
  packet(start: string): Promise<string>
  /** Leaves what comes in the buffers of the system, until `resume`. */
  pause(): void
  resume(): void
  close(): void
}

const open: Socket[] = []

afterAll(() => {
  for (const socket of open) socket.destroy()
})

/** Opens a WebSocket by hand; with a token it also joins the channel. */
export async function openRaw(address: string, token?: string): Promise<RawSocket> {
  const { hostname, port, host } = new URL(address)
  const socket = connectTcp(Number(port), hostname)
  open.push(socket)
  const packets: string[] = []
  let closed = false
  let rest: Buffer = Buffer.alloc(0)
  let upgraded = false
  let pongs = 0
  socket.on('error', () => undefined)
  socket.on('close', () => {
    closed = true
  })
  socket.on('data', (data) => {
    rest = Buffer.concat([rest, data])
    if (!upgraded) {
      const end = rest.indexOf('\r\n\r\n')
      if (end < 0) return
      packets.push(rest.subarray(0, rest.indexOf('\r\n')).toString())
      upgraded = true
      rest = rest.subarray(end + 4)
    }
    for (let frame = frameOf(rest); frame !== undefined; frame = frameOf(rest)) {
      if (frame.opcode === 1) packets.push(frame.payload.toString())
      if (frame.opcode === 10) pongs += 1
      if (frame.opcode === 8) socket.end(maskedFrame(frame.payload, 8))
      rest = rest.subarray(frame.end)
    }
  })
  socket.write(
    `GET /realtime/?EIO=4&transport=websocket HTTP/1.1\r\nhost: ${host}\r\nupgrade: websocket\r\nconnection: upgrade\r\n` +
      `sec-websocket-version: 13\r\nsec-websocket-key: ${randomBytes(16).toString('base64')}\r\n\r\n`,
  )
  const raw: RawSocket = {
    packets,
    get closed() {
      return closed
    },
    send: (...packets) => {
      if (!closed) socket.write(Buffer.concat(packets.map((packet) => maskedFrame(packet))))
    },
    ping: () => {
      if (!closed) socket.write(Buffer.from([0x89, 0x80, 0, 0, 0, 0]))
    },
    get pongs() {
      return pongs
    },
    packet: async (start) =>
      (await waitFor(() => packets.find((packet) => packet.startsWith(start)), { what: `a packet ${start}` }))!,
    pause: () => socket.pause(),
    resume: () => socket.resume(),
    close: () => socket.destroy(),
  }
  await waitFor(() => closed || packets.length > 0, { what: 'an answer to the upgrade' })
  if (token !== undefined) {
    raw.send(`40${JSON.stringify({ token })}`)
    await raw.packet('42["connected"')
  }
  return raw
}

/** A frame of a server, which is never masked or split; undefined while it is not whole. */
function frameOf(data: Buffer) {
  if (data.length < 2) return undefined
  const short = data[1]! & 127
  const head = short === 126 ? 4 : short === 127 ? 10 : 2
  if (data.length < head) return undefined
  const length = short === 126 ? data.readUInt16BE(2) : short === 127 ? Number(data.readBigUInt64BE(2)) : short
  if (data.length < head + length) return undefined
  return { opcode: data[0]! & 15, payload: data.subarray(head, head + length), end: head + length }
}

function maskedFrame(packet: string | Buffer, opcode = typeof packet === 'string' ? 1 : 2): Buffer {
  const payload = Buffer.from(packet as string)
  const head = Buffer.alloc(14)
  head[0] = 128 | opcode
  head[1] = 128 | 127
  head.writeBigUInt64BE(BigInt(payload.length), 2)
  // A mask of zeros leaves the payload as it is.
  return Buffer.concat([head, payload])
}
