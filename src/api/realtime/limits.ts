import type { IncomingMessage } from 'node:http'
import type { Socket } from 'socket.io'
import { clientNetwork, forwardedAddress } from '../../adapters/client-address.ts'
import type { Config } from '../../config.ts'
import { AppError } from '../../errors.ts'
import { openWindows } from '../windows.ts'

/** What clients may take of a process (quality D-11, docs/realtime.md). */
export type SocketLimits = {
  /** Why this request may not begin a connection; undefined when it may. Every question counts as a beginning. */
  refusal(request: IncomingMessage): 'Too many connections' | undefined
  /** Counts a connection, and its messages: `onExcess` is called once, when there are too many in a second. */
  watch(conn: Connection, onExcess: () => void): void
  /** Counts a socket for its user until it is closed. Throws AppError 429. */
  admit(socket: Socket, userId: string | undefined): void
}

type Connection = Socket['conn']

const windowMs = 10_000
const addressesAtMost = 10_000

export function openSocketLimits(config: Config): SocketLimits {
  const { realtime } = config
  const addresses = openCounts()
  const users = openCounts()
  const beginnings = openWindows(addressesAtMost)
  const addressOf = ({ socket, headers }: IncomingMessage) =>
    clientNetwork(forwardedAddress(socket.remoteAddress ?? '', headers['x-forwarded-for'], config.server.trustProxy))
  const begins = (address: string): number => {
    const fresh = { count: 0, endsAt: performance.now() + windowMs }
    const window = beginnings.live(address) ?? beginnings.begin(address, fresh)
    window.count += 1
    return window.count
  }
  return {
    refusal: (request) => {
      const address = addressOf(request)
      const isOver = exceeds(begins(address), realtime.connectsPerAddress)
      return isOver || exceeds(addresses.of(address) + 1, realtime.socketsPerAddress)
        ? 'Too many connections'
        : undefined
    },
    watch: (conn, onExcess) => {
      const address = addressOf(conn.request)
      addresses.add(address)
      conn.once('close', () => addresses.remove(address))
      limitMessages(conn, realtime.messagesPerSecond, onExcess)
    },
    admit: ({ conn }, userId) => {
      const user = String(userId)
      if (users.of(user) >= realtime.socketsPerUser) throw new AppError(429, 'Too many connections')
      users.add(user)
      conn.once('close', () => users.remove(user))
    },
  }
}

const exceeds = (count: number, limit: number): boolean => limit > 0 && count > limit

function limitMessages(conn: Connection, limit: number, onExcess: () => void): void {
  const isWithin = perSecond(limit)
  const onPacket = () => {
    if (isWithin()) return
    conn.off('packet', onPacket)
    onExcess()
  }
  conn.on('packet', onPacket)
}

/** Counts its calls: false for those beyond `limit` in a second. */
export function perSecond(limit: number): () => boolean {
  let count = 0
  let endsAt = 0
  return () => {
    const now = performance.now()
    if (now >= endsAt) {
      count = 0
      endsAt = now + 1000
    }
    count += 1
    return count <= limit
  }
}

function openCounts() {
  const counts = new Map<string, number>()
  const of = (key: string) => counts.get(key) ?? 0
  return {
    of,
    add: (key: string) => counts.set(key, of(key) + 1),
    remove: (key: string) => (of(key) > 1 ? counts.set(key, of(key) - 1) : counts.delete(key)),
  }
}
