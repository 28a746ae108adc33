import type { Socket } from 'socket.io-client'
import { type BackoffOptions, openBackoff } from './realtime-backoff.ts'
import { type Change, RealtimeError, type Removal, type SubscribeOptions } from './realtime-types.ts'

/** One collection that is followed, over all connections of its socket. */
export type Subscription = {
  readonly cursor: string | undefined
  /** Subscribes on the connection that has just been made, behind the last change that was handled. */
  begin(): void
  /** Tells of a failure of the connection; a final one ends the subscription. */
  fail(error: RealtimeError): void
  end(): void
}

type Answer = { status: 'success'; cursor: string } | { status: 'error'; message: string }
type Piece<Row> = { index: number; data: Row[]; more: boolean }
type AnyChange<Row> = Change<Row> | Removal<Row>

/** Faults of the server; everything else that it answers stays as it is when it is asked again. */
const passing: readonly string[] = ['Internal server error', 'Service temporarily unavailable']

/** `onBegun`: the server has answered. `onEnd`: nothing more will be told. */
export function openSubscription<Row extends object>(
  socket: Socket,
  collection: string,
  options: SubscribeOptions<Row> & { backoff: BackoffOptions; onBegun: () => void; onEnd: () => void },
): Subscription {
  const { filter, fields, snapshot, store, onChange, onRemove, onError, onBegun, onEnd } = options
  const backoff = openBackoff(options.backoff)
  let cursor = options.since
  /** Of the subscription that counts; what is answered to an earlier one is of no interest. */
  let attempt = 0
  let state: 'loading' | 'idle' | 'starting' | 'following' | 'ended' = 'loading'
  let mustRead = false
  let rows: Row[] = []

  const end = () => {
    if (state === 'ended') return
    state = 'ended'
    backoff.cancel()
    for (const [name, handler] of handlers) socket.off(name, handler)
    onEnd()
  }

  const fail = (error: RealtimeError) => {
    if (state === 'ended') return
    if (error.final) end()
    onError(error)
  }

  /** An error of the application's handler must not lose the message. */
  const handle = (work: () => void): boolean => {
    try {
      work()
      return true
    } catch (cause) {
      fail(new RealtimeError(`A handler of ${collection} has failed: ${String(cause)}`, { final: true, cause }))
      return false
    }
  }

  const save = saver(store, (cause) =>
    fail(new RealtimeError(`The cursor of ${collection} cannot be kept`, { final: false, cause })),
  )
  const moveTo = (reached: string) => {
    cursor = reached
    save(reached)
  }

  const begin = () => {
    if (state === 'loading' || state === 'ended' || !socket.connected) return
    state = cursor === undefined ? 'starting' : 'following'
    attempt += 1
    const mine = attempt
    const request = { collection, since: cursor, snapshot, filter, fields }
    socket.emit('subscribe', request, (answer: Answer) => mine === attempt && answered(answer))
  }

  const answered = (answer: Answer) => {
    if (state === 'ended') return
    if (answer.status === 'error') {
      const final = !passing.includes(answer.message)
      fail(new RealtimeError(answer.message, { final }))
      return final ? undefined : backoff.later(begin)
    }
    state = 'following'
    backoff.reset()
    onBegun()
    // It comes after the rows, or what was missed.
    moveTo(answer.cursor)
    if (mustRead) {
      mustRead = false
      handle(() => options.onResync?.())
    }
  }

  /** Begins anew from now on, with the rows or with the application's promise to read them. */
  const startOver = () => {
    cursor = undefined
    mustRead = snapshot !== true
    begin()
  }

  const received = (change: AnyChange<Row>) => {
    // On its way when we decided to start over.
    if (state === 'starting') return
    const isGone = change.action === 'delete' || change.action === 'remove'
    if (handle(() => (isGone ? onRemove(change as Removal<Row>) : onChange(change as Change<Row>))))
      moveTo(change.cursor)
  }

  const pieceCame = ({ index, data, more }: Piece<Row>) => {
    if (index === 0) rows = []
    rows.push(...data)
    if (more) return
    const all = rows
    rows = []
    // Newer than the cursor that was asked for, and their own comes with the answer.
    cursor = undefined
    handle(() => options.onSnapshot?.(all))
  }

  const resync = ({ collection: concerned, reason }: { collection?: string; reason?: string }) => {
    if (concerned !== collection) return
    if (reason !== 'slow') return startOver()
    attempt += 1
    backoff.later(begin)
  }

  const unsubscribed = ({ collection: concerned, reason }: { collection?: string; reason: string }) => {
    if (concerned === collection) fail(new RealtimeError(reason, { final: true }))
  }

  const handlers: readonly (readonly [string, Parameters<Socket['on']>[1]])[] = [
    ...['create', 'update', 'delete', 'remove'].map((action) => [`${collection}:${action}`, received] as const),
    [`${collection}:snapshot`, pieceCame],
    ['resync', resync],
    ['unsubscribed', unsubscribed],
  ]
  for (const [name, handler] of handlers) socket.on(name, handler)

  const load = async () => {
    try {
      cursor ??= await store?.load()
    } catch (cause) {
      return fail(new RealtimeError(`The cursor of ${collection} cannot be loaded`, { final: true, cause }))
    }
    if (state === 'loading') state = 'idle'
    begin()
  }
  void load()

  return {
    get cursor() {
      return cursor
    },
    begin,
    fail,
    end,
  }
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
