import type { Socket } from 'socket.io-client'
import {
  type Answer,
  type AnyChange,
  type Piece,
  type SubscriptionEffect,
  type SubscriptionInput,
  stepSubscription,
  unloaded,
} from './realtime-step.ts'
import { type Change, RealtimeError, type Removal, type SubscribeOptions } from './realtime-types.ts'

/** One collection that is followed, over all connections of its socket. */
export type Subscription = {
  readonly cursor: string | undefined
  /** Subscribes on the connection that has just been made, after the last change that was handled. */
  begin(): void
  /** Asks for all that there is to tell until now; `onBegun` says that it has come. */
  catchUp(): void
  /** Tells of a failure of the connection; a final one ends the subscription. */
  fail(error: RealtimeError): void
  end(): void
}

/** `onBegun`: the server has answered. `onEnd`: nothing more will be told. */
export type OwnOptions = {
  readonly backoff: BackoffOptions
  readonly onBegun: () => void
  readonly onEnd: () => void
}

export function openSubscription<Row extends object>(
  socket: Socket,
  collection: string,
  options: SubscribeOptions<Row>,
  own: OwnOptions,
): Subscription {
  const backoff = openBackoff(own.backoff)
  const save = saver(options.store, (cause) =>
    fail(new RealtimeError(`The cursor of ${collection} cannot be kept`, { final: false, cause })),
  )
  let state = unloaded<Row>(options.since)

  const put = (input: SubscriptionInput<Row>): void => {
    const [next, effects] = stepSubscription(state, input, { snapshot: options.snapshot === true })
    state = next
    for (const effect of effects) (doing[effect.kind] as (effect: SubscriptionEffect<Row>) => void)(effect)
  }
  const begin = () => {
    if (socket.connected) put({ kind: 'begin' })
  }
  const fail = (error: RealtimeError) => put({ kind: 'failed', error })
  const subscribe = (attempt: number, since: string | undefined) => {
    const { snapshot, filter, fields } = options
    const request = { collection, since, snapshot, filter, fields }
    socket.emit('subscribe', request, (answer: Answer) => put({ kind: 'answered', attempt, answer }))
  }

  const stopListening = listen<Row>(socket, collection, put)
  const tell = (effect: ToldEffect<Row>) => callHandler(collection, options, effect, put)
  const doing: Doing<Row> = {
    subscribe: ({ attempt, since }) => subscribe(attempt, since),
    begin,
    retry: () => backoff.later(begin),
    begun: () => {
      backoff.reset()
      own.onBegun()
    },
    save: ({ cursor }) => save(cursor),
    tell,
    show: tell,
    read: tell,
    error: ({ error }) => options.onError(error),
    close: () => {
      backoff.cancel()
      stopListening()
      own.onEnd()
    },
  }
  void load(collection, options).then(put)
  return {
    get cursor() {
      return state.cursor
    },
    begin,
    catchUp: () => {
      if (socket.connected) put({ kind: 'catch up' })
    },
    fail,
    end: () => put({ kind: 'end' }),
  }
}

type Put<Row> = (input: SubscriptionInput<Row>) => void
type Effect<Row, Kind> = Extract<SubscriptionEffect<Row>, { kind: Kind }>
type Doing<Row> = { readonly [Kind in SubscriptionEffect<Row>['kind']]: (effect: Effect<Row, Kind>) => void }
/** The effects that are calls of the application's handlers. */
type ToldEffect<Row> = Effect<Row, 'tell' | 'show' | 'read'>

/** Hears what the server tells of a collection, until the function that it returns is called. */
function listen<Row>(socket: Socket, collection: string, put: Put<Row>): () => void {
  const changed = (change: AnyChange<Row>) => put({ kind: 'changed', change })
  const concerns = (message: { collection?: string }) => message.collection === collection
  const handlers: readonly (readonly [string, Parameters<Socket['on']>[1]])[] = [
    ...['create', 'update', 'delete', 'remove'].map((action) => [`${collection}:${action}`, changed] as const),
    [`${collection}:snapshot`, (piece: Piece<Row>) => put({ kind: 'piece', piece })],
    [
      'resync',
      (message: { collection?: string; reason?: string }) => {
        if (concerns(message)) put({ kind: 'resync', reason: message.reason })
      },
    ],
    [
      'unsubscribed',
      (message: { collection?: string; reason: string }) => {
        if (concerns(message)) put({ kind: 'failed', error: new RealtimeError(message.reason, { final: true }) })
      },
    ],
  ]
  for (const [name, handler] of handlers) socket.on(name, handler)
  return () => {
    for (const [name, handler] of handlers) socket.off(name, handler)
  }
}

/** The cursor to begin with; where it cannot be loaded, the failure that ends the subscription. */
async function load<Row extends object>(
  collection: string,
  { since, store }: SubscribeOptions<Row>,
): Promise<SubscriptionInput<Row>> {
  try {
    return { kind: 'loaded', cursor: since ?? (await store?.load()) }
  } catch (cause) {
    const error = new RealtimeError(`The cursor of ${collection} cannot be loaded`, { final: true, cause })
    return { kind: 'failed', error }
  }
}

/** An error of the application's handler must not lose the message: the subscription ends before it. */
function callHandler<Row extends object>(
  collection: string,
  { onChange, onRemove, onSnapshot, onResync }: SubscribeOptions<Row>,
  effect: ToldEffect<Row>,
  put: Put<Row>,
): void {
  try {
    if (effect.kind === 'show') onSnapshot?.([...effect.rows], effect.facts)
    else if (effect.kind === 'read') onResync?.()
    else if (effect.change.action === 'delete' || effect.change.action === 'remove')
      onRemove(effect.change as Removal<Row>)
    else onChange(effect.change as Change<Row>)
  } catch (cause) {
    const message = `A handler of ${collection} has failed: ${String(cause)}`
    const isSaid = cause instanceof RealtimeError && cause.final
    put({ kind: 'failed', error: isSaid ? cause : new RealtimeError(message, { final: true, cause }) })
    return
  }
  if (effect.kind === 'tell') put({ kind: 'handled', cursor: effect.change.cursor })
}

/** Keeps one cursor at a time, and the newest one last. */
function saver(store: SubscribeOptions<object>['store'], onFailure: (cause: unknown) => void) {
  let newest: string | undefined
  let saving = false
  const run = async () => {
    saving = true
    try {
      while (newest !== undefined) {
        const cursor = newest
        newest = undefined
        await store!.save(cursor)
      }
    } catch (cause) {
      onFailure(cause)
    } finally {
      saving = false
    }
  }
  return (cursor: string) => {
    if (store === undefined) return
    newest = cursor
    if (!saving) void run()
  }
}

/** How long to wait before the next attempt, milliseconds. */
type BackoffOptions = { readonly firstMs: number; readonly longestMs: number }

type Backoff = {
  /** Runs this later, each time after twice as long; what was to run before does not. */
  later(run: () => void): void
  /** An attempt has succeeded: the next wait is short again. */
  reset(): void
  /** Nothing runs any more. */
  cancel(): void
}

export function openBackoff({ firstMs, longestMs }: BackoffOptions): Backoff {
  let failures = 0
  let timer: ReturnType<typeof setTimeout> | undefined
  const cancel = () => clearTimeout(timer)
  return {
    later: (run) => {
      cancel()
      const wait = Math.min(longestMs, firstMs * 2 ** failures)
      failures += 1
      // All clients lose a server at the same moment; they shall not all come back at the same one.
      timer = setTimeout(run, wait * (0.5 + Math.random() / 2))
    },
    reset: () => {
      failures = 0
    },
    cancel,
  }
}
