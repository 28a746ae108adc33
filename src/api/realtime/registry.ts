import type { Socket } from 'socket.io'
import type { Catalog } from '../../catalog/catalog.ts'
import type { CurrentCatalog } from '../../catalog/store.ts'
import type { Configuration } from '../../config/config.ts'
import type { Clock } from '../../db/clock.ts'
import { type EventScope, type Viewers, viewersOf } from '../../features/data/changes/changes.ts'
import { oncePer } from '../../language/once.ts'
import type { Access } from '../../query/access.ts'
import type { SubscriptionState } from './subscription.ts'
import { type CompiledView, compileView, type ScopeWatch, type SubscribeRequest, viewNow } from './views.ts'

/*
 * The subscribers of this process by socket and by collection, and the shapes by which many of them share one statement.
 */

/** The subscription of one socket to one collection, and how far it is. */
export type Subscriber = {
  readonly socket: Socket
  readonly request: SubscribeRequest
  access: Access
  /** Compiled for the access and the catalog. */
  view: CompiledView
  /** Watches the tables that can change the rows it sees without an event of them. */
  watch: ScopeWatch
  state: SubscriptionState
}

/** The subscribers that share one statement, by the values that are their own. */
export type Shape = {
  readonly view: CompiledView
  readonly subscribers: readonly (readonly Subscriber[])[]
  /** In the same order. */
  readonly viewers: Viewers
}

type Registry = {
  add(subscriber: Subscriber): void
  remove(subscriber: Subscriber): void
  /** It goes on with this access. */
  renew(subscriber: Subscriber, renewed: Pick<Subscriber, 'access' | 'view' | 'watch'>): void
  /** False for one that was removed, or replaced by a later one of the same socket. */
  has(subscriber: Subscriber): boolean
  /** All of a collection: the same array until one comes, goes or is renewed. */
  of(collection: string): readonly Subscriber[]
  on(socket: Socket): readonly Subscriber[]
  /** The same array until one comes, goes or is renewed. */
  all(): readonly Subscriber[]
  follows(collection: string): boolean
}

export function openRegistry(): Registry {
  const byCollection = new Map<string, Map<Socket, Subscriber>>()
  const bySocket = new Map<Socket, Map<string, Subscriber>>()
  const lists = new Map<string, readonly Subscriber[]>()
  let all: readonly Subscriber[] | undefined
  const forgetLists = (collection: string) => {
    lists.delete(collection)
    all = undefined
  }
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
      forgetLists(request.collection)
    },
    remove: (subscriber) => {
      const { socket, request } = subscriber
      if (!has(subscriber)) return
      drop(byCollection, request.collection, socket)
      drop(bySocket, socket, request.collection)
      forgetLists(request.collection)
    },
    renew: (subscriber, renewed) => {
      Object.assign(subscriber, renewed)
      forgetLists(subscriber.request.collection)
    },
    has,
    of: (collection) => {
      const list = lists.get(collection) ?? [...(byCollection.get(collection)?.values() ?? [])]
      lists.set(collection, list)
      return list
    },
    on: (socket) => [...(bySocket.get(socket)?.values() ?? [])],
    all: () => {
      all ??= [...byCollection.values()].flatMap((ofOne) => [...ofOne.values()])
      return all
    },
    follows: (collection) => byCollection.has(collection),
  }
}

type ShapeReads = Clock & Configuration & CurrentCatalog

/** {@link shapesOf}, worked out anew only where the list or the catalog is another one, or the time counts. */
export function openShapes(deps: ShapeReads, refuse: (subscriber: Subscriber, error: unknown) => void) {
  const make = (subscribers: readonly Subscriber[]) => shapesOf(deps, subscribers, refuse)
  const known = oncePer((_catalog: Catalog) => oncePer(make))
  return (subscribers: readonly Subscriber[]): readonly Shape[] =>
    subscribers.some(({ view }) => view.timed) ? make(subscribers) : known(deps.catalog.current())(subscribers)
}

/**
 * Subscribers by what they see: equal texts share a statement, equal values a viewer of it. A subscriber whose view cannot
 * be made is handed to `refuse`.
 */
function shapesOf(
  deps: ShapeReads,
  subscribers: readonly Subscriber[],
  refuse: (subscriber: Subscriber, error: unknown) => void,
): readonly Shape[] {
  type Viewer = { view: CompiledView; subscribers: Subscriber[] }
  const shapes = new Map<string, Map<string, Viewer>>()
  for (const subscriber of subscribers) {
    const view = attempt(
      () => currentView(deps, subscriber),
      (error) => refuse(subscriber, error),
    )
    if (view === undefined) continue
    const byKey = shapes.get(view.text) ?? new Map<string, Viewer>()
    shapes.set(view.text, byKey)
    const same = byKey.get(view.key)
    if (same === undefined) byKey.set(view.key, { view, subscribers: [subscriber] })
    else same.subscribers.push(subscriber)
  }
  return [...shapes.values()].map((byKey) => {
    const distinct = [...byKey.values()]
    return {
      view: distinct[0]!.view,
      subscribers: distinct.map((viewer) => viewer.subscribers),
      viewers: viewersOf(distinct.map(({ view }) => view)),
    }
  })
}

/** Tells quickly that no subscriber watches what a batch has touched. */
export function openWatched({ catalog }: CurrentCatalog) {
  const known = oncePer((_catalog: Catalog) => oncePer(watchedBy))
  return (subscribers: readonly Subscriber[], { collections: touched }: EventScope): boolean => {
    const { names } = known(catalog.current())(subscribers)
    return names === undefined || [...touched].some((name) => names.has(name))
  }
}

/** No names where each subscriber must be asked: the rule of one makes no sense any more, or its collection is gone. */
function watchedBy(subscribers: readonly Subscriber[]): { readonly names: ReadonlySet<string> | undefined } {
  const names = new Set<string>()
  for (const { watch } of subscribers) {
    const own = attempt(watch.collections, () => undefined)
    if (own === undefined) return { names: undefined }
    for (const name of own) names.add(name)
  }
  return { names }
}

/** As of now, and of the collections as they are now. */
export function currentView(deps: ShapeReads, subscriber: Subscriber): CompiledView {
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
