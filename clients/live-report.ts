import type { Socket } from 'socket.io-client'
import type { ReportQuery } from './items.ts'
import type { LiveStatus, LiveView, OfSession } from './live.ts'
import { isPassing } from './realtime-step.ts'
import { openBackoff } from './realtime-subscription.ts'
import { RealtimeError } from './realtime-types.ts'
import type { Aggregates, Name, SchemaType } from './schema.ts'

/** The body of `POST /reports/{collection}`, and the collection. */
export type LiveReportQuery<
  S extends SchemaType,
  C extends Name<S>,
  A extends Aggregates<S, C>,
  G extends readonly string[],
  F extends readonly string[] = [],
> = { readonly collection: C } & Omit<ReportQuery<S, C, A, G, F>, 'signal' | 'asOf'>

export type LiveReport<R> = {
  readonly view: LiveView<R>
  /** Called after each change of the view. Gives what ends it. */
  subscribe(listener: () => void): () => void
  close(): void
}

type Answer<R> =
  | { readonly status: 'success'; readonly id: string; readonly data: readonly R[] }
  | { readonly status: 'error'; readonly message: string }
type Result<R> = { readonly data: readonly R[] }
type Ended = { readonly id: string; readonly message: string }

const waits = { firstMs: 500, longestMs: 30_000 }

/**
 * Follows a report by the messages of docs/live-reports.md; it begins anew with each connection, and after faults of the
 * server that pass.
 */
export function openLiveReport<R extends object>(
  query: object,
  connect: () => Socket,
  onClose: () => void,
  backoff = openBackoff(waits),
): LiveReport<R> & OfSession {
  let socket: Socket
  const shown = openView<R>()
  let id: string | undefined
  let asked = 0

  const onResult = ({ data }: Result<R>) => shown.change({ rows: data, status: 'live', error: undefined })
  const waiting = (): LiveStatus => (shown.view.status === 'loading' ? 'loading' : 'broken')
  const fail = (message: string) => {
    if (!isPassing(message)) return end(new RealtimeError(message, { final: true }))
    shown.change({ status: waiting(), error: new RealtimeError(message, { final: false }) })
    backoff.later(() => socket.connected && begin())
  }
  const leave = () => {
    if (id !== undefined) socket.off(`report:${id}`, onResult)
    id = undefined
  }
  const begin = () => {
    asked += 1
    const mine = asked
    socket.emit('report:subscribe', query, (answer: Answer<R>) => {
      // Asked again since, or closed: of another connection, which took its reports along.
      if (mine !== asked) return
      if (answer.status === 'error') return fail(answer.message)
      backoff.reset()
      id = answer.id
      socket.on(`report:${id}`, onResult)
      onResult(answer)
    })
  }
  const onBreak = () => {
    asked += 1
    leave()
    backoff.cancel()
    if (shown.view.status !== 'ended') shown.change({ status: waiting() })
  }
  const onEnded = (ended: Ended) => {
    if (ended.id !== id) return
    leave()
    fail(ended.message)
  }

  const follow = () => {
    socket = connect()
    socket.on('connect', begin).on('disconnect', onBreak).on('report:ended', onEnded)
    if (socket.connected) begin()
  }
  follow()
  const stop = () => {
    asked += 1
    backoff.cancel()
    if (id !== undefined && socket.connected) socket.emit('report:unsubscribe', { id })
    leave()
    socket.off('connect', begin).off('disconnect', onBreak).off('report:ended', onEnded)
  }
  /** What may not be followed any more may not be read any more. */
  const end = (error: RealtimeError) => {
    stop()
    onClose()
    shown.change({ rows: [], status: 'ended', error })
  }
  return {
    get view() {
      return shown.view
    },
    subscribe: shown.subscribe,
    close() {
      stop()
      onClose()
      shown.forget()
    },
    end,
    beginAnew() {
      stop()
      shown.change({ rows: [], status: 'loading', error: undefined })
      follow()
    },
  }
}

/** A view, and the listeners that are called after each of its changes. */
function openView<R>() {
  const listeners = new Set<() => void>()
  let view: LiveView<R> = { rows: [], status: 'loading', error: undefined }
  return {
    get view() {
      return view
    },
    change(change: Partial<LiveView<R>>) {
      view = { ...view, ...change }
      for (const listener of [...listeners]) listener()
    },
    subscribe(listener: () => void) {
      listeners.add(listener)
      return () => void listeners.delete(listener)
    },
    forget: () => listeners.clear(),
  }
}
