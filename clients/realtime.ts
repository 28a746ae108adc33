/**
 * Follows collections of a Daybook server (docs/realtime.md) from a browser or from Node: connects again, goes on where
 * it was, drops what comes twice and says when rows have to be read again. Needs socket.io-client and nothing else.
 */
import { io, type Socket } from 'socket.io-client'
import { type OwnOptions, openBackoff, openSubscription, type Subscription } from './realtime-subscription.ts'
import {
  type Realtime,
  RealtimeError,
  type RealtimeOptions,
  type SubscribeOptions,
  type SubscriptionHandle,
} from './realtime-types.ts'

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

/** Nobody has signed in. */
export const noToken = 'No authentication token provided'

/** A token that stays as it is makes no second attempt better. */
const refusals: readonly string[] = [noToken, 'Invalid or expired token']

/** `retryNow`: the next attempt has better chances than the ones before, and is made without a further wait. */
export type RetriedRealtime = Realtime & { retryNow(): void }

/** Connects, and stays connected until `close` or, with a token that is a text, until that is refused. */
export function createRealtime(options: RealtimeOptions): RetriedRealtime {
  const waits = { firstMs: 500, longestMs: 30_000, ...options.backoff }
  const reconnection = openBackoff(waits)
  const followed = openFollowed()
  let refusal: string | undefined
  let closed = false
  let isWaiting = false

  const connect = () => {
    isWaiting = false
    socket.connect()
  }
  const retry = () => {
    if (closed) return
    isWaiting = true
    reconnection.later(connect)
  }
  const socket = socketFor(options, (cause) => {
    followed.fail(`There is no token: ${String(cause)}`, { cause })
    socket.disconnect()
    retry()
  })
  const onBegun = () => {
    reconnection.reset()
    followed.succeeded()
  }
  const mayRetry = async (message: string) => {
    if (!refusals.includes(message)) return true
    return options.mayRetry?.(message) ?? typeof options.token !== 'string'
  }
  keepConnected(socket, followed, {
    onBegun,
    retry,
    refused: async (message) => {
      const isFinal = !(await mayRetry(message))
      if (closed) return
      followed.fail(message, { final: isFinal })
      if (!isFinal) return retry()
      refusal = message
      socket.disconnect()
    },
  })
  return {
    socket,
    subscribe: (collection, wish) => {
      if (refusal !== undefined) throw new RealtimeError(refusal, { final: true })
      return followed.add(socket, collection, wish, {
        backoff: waits,
        onBegun: () => {
          onBegun()
          wish.onBegun?.()
        },
      })
    },
    retryNow: () => {
      reconnection.reset()
      if (closed || !isWaiting) return
      reconnection.cancel()
      connect()
    },
    close: (error) => {
      closed = true
      reconnection.cancel()
      if (error !== undefined) followed.fail(error.message, { final: true })
      followed.end()
      socket.disconnect()
    },
  }
}

/** `onNoToken`: the function that gives the token has failed. */
function socketFor(options: RealtimeOptions, onNoToken: (cause: unknown) => void): Socket {
  const { url, token, path = '/realtime', transports = ['websocket'], withCookies = false } = options
  const authenticate = async (give: (data: object) => void) => {
    if (withCookies) return give({})
    try {
      give({ token: typeof token === 'string' ? token : await token() })
    } catch (cause) {
      onNoToken(cause)
    }
  }
  const { origin, pathname } = new URL(url)
  // Refusals and closed connections are met alike, which the library's own reconnection does not do. A path in its address would
  // be the name of another channel.
  return io(origin, {
    path: pathname.replace(/\/+$/, '') + path,
    transports,
    reconnection: false,
    forceNew: true,
    withCredentials: withCookies,
    auth: (give) => void authenticate(give),
  })
}

type OnConnection = {
  readonly onBegun: () => void
  readonly retry: () => void
  readonly refused: (message: string) => Promise<void>
}

function keepConnected(socket: Socket, followed: Followed, { onBegun, retry, refused }: OnConnection): void {
  /** Why the server will hang up. */
  let limit: string | undefined
  socket.on('connect', () => {
    if (followed.isEmpty()) onBegun()
    followed.begin()
  })
  socket.on('disconnect', (reason) => {
    if (reason === 'io client disconnect') return
    followed.fail(limit ?? `The connection was lost: ${reason}`)
    limit = undefined
    retry()
  })
  socket.on('connect_error', ({ message }) => void refused(message))
  socket.on('limited', ({ message }: { message: string }) => {
    limit = message
  })
}

type Followed = ReturnType<typeof openFollowed>

/** The collections that a client follows. */
function openFollowed() {
  const subscriptions = new Map<string, Subscription>()
  /** The failures of this break that have been told. */
  const told = new Set<string>()
  const all = () => [...subscriptions.values()]
  return {
    isEmpty: () => subscriptions.size === 0,
    add<Row extends object>(
      socket: Socket,
      collection: string,
      options: SubscribeOptions<Row>,
      own: Omit<OwnOptions, 'onEnd'>,
    ): SubscriptionHandle {
      if (subscriptions.has(collection))
        throw new Error(`${collection} is followed already: one client follows it once`)
      const onEnd = () => void subscriptions.delete(collection)
      const subscription = openSubscription(socket, collection, options, { ...own, onEnd })
      subscriptions.set(collection, subscription)
      return {
        get cursor() {
          return subscription.cursor
        },
        catchUp: () => subscription.catchUp(),
        unsubscribe: () => {
          if (subscriptions.get(collection) !== subscription) return
          subscription.end()
          if (socket.connected) socket.emit('unsubscribe', { collection })
        },
      }
    },
    begin: () => {
      for (const subscription of all()) subscription.begin()
    },
    fail(message: string, { final = false, cause }: { final?: boolean; cause?: unknown } = {}): void {
      if (told.has(message) && !final) return
      told.add(message)
      for (const subscription of all()) subscription.fail(new RealtimeError(message, { final, cause }))
    },
    succeeded: () => told.clear(),
    end: () => {
      for (const subscription of all()) subscription.end()
    },
  }
}
