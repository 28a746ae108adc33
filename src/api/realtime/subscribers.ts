import type { Socket } from 'socket.io'
import type { CurrentCatalog } from '../../catalog/store.ts'
import type { Configuration } from '../../config/config.ts'
import type { Clock } from '../../db/clock.ts'
import type { Access } from '../../query/access.ts'
import type { SubscriptionState } from './subscription.ts'
import { type CompiledView, compileView, type ScopeWatch, type SubscribeRequest, viewNow } from './views.ts'

/** The subscription of one socket to one collection, and how far it is. */
export type Subscriber = {
  readonly socket: Socket
  readonly request: SubscribeRequest
  access: Access
  /** Compiled for the access and the catalog. */
  view: CompiledView
  /** Watches the tables that can change the rows it sees without an event of them. */
  watch: ScopeWatch | undefined
  state: SubscriptionState
}

/** The subscribers that share one statement, by the values that are their own. */
export type Shape = {
  readonly view: CompiledView
  readonly viewers: readonly Subscribers[]
  /** Of the viewer at the same place. */
  readonly values: readonly CompiledView['values'][]
}
type Subscribers = readonly Subscriber[]

type Registry = {
  add(subscriber: Subscriber): void
  remove(subscriber: Subscriber): void
  /** False for one that was removed, or replaced by a later one of the same socket. */
  has(subscriber: Subscriber): boolean
  of(collection: string): Subscribers
  on(socket: Socket): Subscribers
  all(): Subscribers
  follows(collection: string): boolean
}

export function openRegistry(): Registry {
  const byCollection = new Map<string, Map<Socket, Subscriber>>()
  const bySocket = new Map<Socket, Map<string, Subscriber>>()
  const put = <K, L>(map: Map<K, Map<L, Subscriber>>, key: K, inner: L, subscriber: Subscriber) =>
    map.set(key, (map.get(key) ?? new Map<L, Subscriber>()).set(inner, subscriber))
  const drop = <K, L>(map: Map<K, Map<L, Subscriber>>, key: K, inner: L) => {
    map.get(key)?.delete(inner)
    if (map.get(key)?.size === 0) map.delete(key)
  }
  const has = (subscriber: Subscriber) =>
    byCollection.get(subscriber.request.collection)?.get(subscriber.socket) === subscriber
  return {
    add: (subscriber) => {
      const { socket, request } = subscriber
      put(byCollection, request.collection, socket, subscriber)
      put(bySocket, socket, request.collection, subscriber)
    },
    remove: (subscriber) => {
      const { socket, request } = subscriber
      if (!has(subscriber)) return
      drop(byCollection, request.collection, socket)
      drop(bySocket, socket, request.collection)
    },
    has,
    of: (collection) => [...(byCollection.get(collection)?.values() ?? [])],
    on: (socket) => [...(bySocket.get(socket)?.values() ?? [])],
    all: () => [...bySocket.values()].flatMap((ofOne) => [...ofOne.values()]),
    follows: (collection) => byCollection.has(collection),
  }
}

/**
 * Subscribers by what they see: equal texts share a statement, equal values a viewer of it. A subscriber whose view cannot
 * be made is handed to `refuse`.
 */
export function shapesOf(
  deps: Clock & Configuration & CurrentCatalog,
  subscribers: Subscribers,
  refuse: (subscriber: Subscriber, error: unknown) => void,
): readonly Shape[] {
  const shapes = new Map<string, Map<string, { view: CompiledView; viewers: Subscriber[] }>>()
  for (const subscriber of subscribers) {
    const view = attempt(
      () => currentView(deps, subscriber),
      (error) => refuse(subscriber, error),
    )
    if (view === undefined) continue
    const byKey = shapes.get(view.text) ?? new Map<string, { view: CompiledView; viewers: Subscriber[] }>()
    shapes.set(view.text, byKey)
    const same = byKey.get(view.key)
    if (same === undefined) byKey.set(view.key, { view, viewers: [subscriber] })
    else same.viewers.push(subscriber)
  }
  return [...shapes.values()].map((byKey) => {
    const distinct = [...byKey.values()]
    return {
      view: distinct[0]!.view,
      viewers: distinct.map(({ viewers }) => viewers),
      values: distinct.map(({ view }) => view.values),
    }
  })
}

/** As of now, and of the collections as they are now. */
export function currentView(deps: Clock & Configuration & CurrentCatalog, subscriber: Subscriber): CompiledView {
  const { access, request } = subscriber
  if (subscriber.view.catalog !== deps.catalog.current()) subscriber.view = compileView(deps, access, request)
  return viewNow(deps, access, request, subscriber.view)
}

function attempt<T>(work: () => T, refuse: (error: unknown) => void): T | undefined {
  try {
    return work()
  } catch (error) {
    refuse(error)
    return undefined
  }
}
