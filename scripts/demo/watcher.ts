import { io } from 'socket.io-client'
import { until } from './wait.ts'

/** A subscriber's message for one change: the event's name is `{collection}:{action}`. */
export type Change = {
  readonly action: 'create' | 'update' | 'delete' | 'remove'
  readonly collection: string
  readonly data: Readonly<Record<string, unknown>>
  readonly timestamp: string
  /** Where to resume after this change. */
  readonly cursor: string
  /** Unique; ascending among the changes of one row. */
  readonly position: string
}

export type Watcher = {
  /**
   * Every change once, in the order of arrival. Throws when the subscription can't go on: the session or the permission
   * has ended, or the log no longer holds what was missed.
   */
  changes(): readonly Change[]
  /** How often the subscription has begun or gone on. */
  readonly subscriptions: number
  close(): void
}

/** Sooner than the library's default, which is meant for thousands of clients. */
const reconnection = { reconnectionDelay: 100, reconnectionDelayMax: 500 }

type Subscribed = { status: 'success'; cursor: string } | { status: 'error'; message: string }

/**
 * Subscribes to a collection over socket.io and stays subscribed: the library reconnects by itself, and each time the
 * subscription goes on after the last change that came. Resolves when the first one has begun.
 */
export async function watch(url: string, token: string, collection: string): Promise<Watcher> {
  const changes: Change[] = []
  let subscriptions = 0
  let since: string | undefined
  let ended: string | undefined
  const end = (why: string) => {
    ended ??= why
  }
  const unlessEnded = <T>(value: T) => {
    if (ended !== undefined) throw new Error(`the subscription to ${collection} has ended: ${ended}`)
    return value
  }

  const socket = io(url, { path: '/realtime', auth: { token }, transports: ['websocket'], ...reconnection })
  socket.on('connect', () =>
    socket.emit('subscribe', { collection, since }, (answer: Subscribed) => {
      if (answer.status !== 'success') return end(answer.message)
      since ??= answer.cursor
      subscriptions += 1
    }),
  )
  for (const action of ['create', 'update', 'delete', 'remove'])
    socket.on(`${collection}:${action}`, (change: Change) => {
      since = change.cursor
      changes.push(change)
    })
  socket.on('resync', () => end('the server asks to read the collection again'))
  socket.on('unsubscribed', ({ reason }: { reason: string }) => end(reason))
  // After a refusal the library does not try again.
  socket.on('connect_error', ({ message }) => socket.active || end(message))
  socket.on('disconnect', (reason) => socket.active || reason === 'io client disconnect' || end(reason))

  const close = () => void socket.close()
  await until('the subscription', () => unlessEnded(subscriptions > 0)).catch((error) => {
    close()
    throw error
  })
  return {
    changes: () => unlessEnded(changes),
    get subscriptions() {
      return subscriptions
    },
    close,
  }
}
