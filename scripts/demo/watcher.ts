import { io } from 'socket.io-client'
import { until } from './wait.ts'

/** What a subscriber gets for one change: the event's name is `{collection}:{action}`. */
export type Change = {
  readonly action: 'create' | 'update' | 'delete' | 'remove'
  readonly collection: string
  readonly data: Readonly<Record<string, unknown>>
  readonly timestamp: string
  /** Where to resume after this change. */
  readonly cursor: string
  /** Unique; a change that comes again after a resumption has the same one. */
  readonly position: string
}

export type Watcher = {
  /** Every change once, in the order of arrival. */
  readonly changes: readonly Change[]
  /** Changes that came again after a resumption and were dropped. */
  readonly repeats: number
  /** How often the subscription has begun or gone on. */
  readonly subscriptions: number
  close(): void
}

type Subscribed = { status: 'success'; cursor: string } | { status: 'error'; message: string }

/**
 * Subscribes to a collection over socket.io and stays subscribed: the library reconnects by itself, and each time the
 * subscription goes on behind the last change that came. Resolves when the first one has begun.
 *
 * @param onEnd told when it cannot go on: the session or the permission ended, or the log no longer holds what was missed
 */
export async function watch(
  url: string,
  token: string,
  collection: string,
  onEnd: (why: string) => void,
): Promise<Watcher> {
  const changes: Change[] = []
  const seen = new Set<string>()
  let repeats = 0
  let subscriptions = 0
  let since: string | undefined

  const socket = io(url, { path: '/realtime', auth: { token }, transports: ['websocket'], reconnectionDelay: 100 })
  socket.on('connect', () =>
    socket.emit('subscribe', { collection, since }, (answer: Subscribed) => {
      if (answer.status !== 'success') return onEnd(answer.message)
      since ??= answer.cursor
      subscriptions += 1
    }),
  )
  for (const action of ['create', 'update', 'delete', 'remove'])
    socket.on(`${collection}:${action}`, (change: Change) => {
      since = change.cursor
      if (seen.has(change.position)) repeats += 1
      else changes.push(change)
      seen.add(change.position)
    })
  socket.on('resync', () => onEnd('the server asks to read the collection again'))
  socket.on('unsubscribed', ({ reason }: { reason: string }) => onEnd(reason))
  // After a refusal the library does not try again.
  socket.on('connect_error', ({ message }) => socket.active || onEnd(message))
  socket.on('disconnect', (reason) => socket.active || reason === 'io client disconnect' || onEnd(reason))

  await until('the subscription', () => subscriptions > 0)
  return {
    changes,
    get repeats() {
      return repeats
    },
    get subscriptions() {
      return subscriptions
    },
    close: () => void socket.close(),
  }
}
