/**
 * Follows collections of a Daybook server (docs/realtime.md) from a browser or from Node: connects again, goes on where
 * it was, drops what comes twice and says when rows have to be read again. Needs socket.io-client and nothing else.
 */
import { io } from 'socket.io-client'
import { openBackoff, openSubscription, type Subscription } from './realtime-subscription.ts'
import { type Realtime, RealtimeError, type RealtimeOptions } from './realtime-types.ts'

export {
  type Change,
  type CursorStore,
  type Realtime,
  RealtimeError,
  type RealtimeOptions,
  type Removal,
  type SubscribeOptions,
  type SubscriptionHandle,
} from './realtime-types.ts'

/** A token that stays as it is makes no second attempt better. */
const refusals: readonly string[] = ['No authentication token provided', 'Invalid or expired token']

/** Connects, and stays connected until `close` or, with a token that is a text, until that is refused. */
export function createRealtime(options: RealtimeOptions): Realtime {
  const { url, token, path = '/realtime', transports = ['websocket'], withCookies = false, backoff } = options
  const waits = { firstMs: 500, longestMs: 30_000, ...backoff }
  const reconnection = openBackoff(waits)
  const subscriptions = new Map<string, Subscription>()
  /** The failures of this break that have been told. */
  const told = new Set<string>()
  /** Why the server will hang up. */
  let limit: string | undefined
  let refusal: string | undefined
  let closed = false

  const fail = (message: string, { final = false, cause }: { final?: boolean; cause?: unknown } = {}) => {
    if (told.has(message) && !final) return
    told.add(message)
    for (const subscription of [...subscriptions.values()])
      subscription.fail(new RealtimeError(message, { final, cause }))
  }

  const retry = () => {
    if (!closed) reconnection.later(() => socket.connect())
  }

  const authenticate = async (give: (data: object) => void) => {
    if (withCookies) return give({})
    try {
      give({ token: typeof token === 'string' ? token : await token() })
    } catch (cause) {
      fail(`There is no token: ${String(cause)}`, { cause })
      socket.disconnect()
      retry()
    }
  }

  // Refusals and closed connections are met alike, which the library's own reconnection does not do.
  const socket = io(url, {
    path,
    transports,
    reconnection: false,
    forceNew: true,
    withCredentials: withCookies,
    auth: (give) => void authenticate(give),
  })
  socket.on('connect', () => {
    if (subscriptions.size === 0) onBegun()
    for (const subscription of [...subscriptions.values()]) subscription.begin()
  })
  socket.on('disconnect', (reason) => {
    if (reason === 'io client disconnect') return
    fail(limit ?? `The connection was lost: ${reason}`)
    limit = undefined
    retry()
  })
  socket.on('connect_error', ({ message }) => {
    const final = typeof token === 'string' && refusals.includes(message)
    fail(message, { final })
    if (!final) return retry()
    refusal = message
    socket.disconnect()
  })
  socket.on('limited', ({ message }: { message: string }) => {
    limit = message
  })

  const onBegun = () => {
    reconnection.reset()
    told.clear()
  }

  return {
    socket,
    subscribe: (collection, wish) => {
      if (subscriptions.has(collection))
        throw new Error(`${collection} is followed already: one client follows it once`)
      if (refusal !== undefined) throw new RealtimeError(refusal, { final: true })
      const onEnd = () => void subscriptions.delete(collection)
      const subscription = openSubscription(socket, collection, {
        ...wish,
        ...{ backoff: waits, onEnd },
        onBegun: () => {
          onBegun()
          wish.onBegun?.()
        },
      })
      subscriptions.set(collection, subscription)
      return {
        get cursor() {
          return subscription.cursor
        },
        unsubscribe: () => {
          if (subscriptions.get(collection) !== subscription) return
          subscription.end()
          if (socket.connected) socket.emit('unsubscribe', { collection })
        },
      }
    },
    close: () => {
      closed = true
      reconnection.cancel()
      for (const subscription of [...subscriptions.values()]) subscription.end()
      socket.disconnect()
    },
  }
}
