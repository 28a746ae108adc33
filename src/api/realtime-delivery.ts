import type { Socket } from 'socket.io'
import type { Collection } from '../catalog/catalog.ts'
import {
  type Cursor,
  includesSnapshot,
  isVisible,
  parseCursor,
  parseSnapshot,
  type Snapshot,
  snapshotOf,
} from '../events/cursor.ts'
import type { Feed, Subscription } from '../events/feed.ts'
import { currentCursor, type LogEvent, pullRound } from '../events/log-reader.ts'
import { type ChangedRow, changedRowsSql } from '../features/changes/changed-rows.ts'
import { disturbedCollections } from '../features/changes/disturbances.ts'
import { resolveEnv } from '../features/items/reads.ts'
import type { Access } from '../query/access.ts'
import { readableFields } from '../query/resolve.ts'
import type { Runtime } from '../runtime.ts'
import { type ScopeWatch, scopesRows, type Touched, touchedBy, watchScope } from './realtime-scope.ts'

/**
 * Who gets which change, in which form. What a subscriber may see of a change is computed in SQL, by the same
 * projection and condition as a read, in one statement per batch and distinct view of a collection: subscribers with
 * the same view share it (design §5). Whatever fails delivers nothing and tells the client to read again.
 */
export type Delivery = {
  mayRead(access: Access, collection: string): boolean
  /** Sends what happened after `from`, then goes on live. Resolves with `from`, or with where now is. */
  subscribe(socket: Socket, access: Access, collection: string, from: Cursor | undefined): Promise<Cursor>
  unsubscribe(socket: Socket, collection: string): void
  count(socket: Socket): number
  forget(socket: Socket): void
  /** What the socket's user may do has changed: drops subscriptions that are no longer allowed, goes on with the others. */
  renew(socket: Socket, access: Access): void
  close(): void
}

type Subscriber = {
  readonly socket: Socket
  access: Access
  /** What can change the rows that it sees without an event of them. */
  watch: ScopeWatch
  /** Events that arrived live while the missed ones were still being sent; undefined once live. */
  waiting: Message[] | undefined
  /** What is visible here has been sent, or was before the subscription; undefined when live events are all later. */
  seen: Snapshot | undefined
}

/** What a client receives: name `{collection}:{action}`. */
type Message = { readonly name: string; readonly xid: bigint; readonly body: object }

const catchUpPage = 500
const waitingAtMost = 10_000

/** `confirm` closes the sockets of sessions that have ended without our hearing of it; nothing is sent before. */
export function openDelivery(rt: Runtime, feed: Feed, confirm: () => Promise<void>): Delivery {
  const byCollection = new Map<string, Map<Socket, Subscriber>>()
  let live: Subscription | undefined
  let closed = false

  const deliver = async (batch: readonly LogEvent[], resume: string) => {
    await confirm()
    const wanted = Map.groupBy(
      batch.filter((event) => event.type === 'data' && byCollection.has(event.entity)),
      (event) => event.entity,
    )
    for (const [collection, events] of wanted) await deliverTo(collection, events)
    resyncDisturbed(touchedBy(batch))
    const behind = parseSnapshot(snapshotOf(parseCursor(resume)))!
    for (const subscribers of byCollection.values())
      for (const subscriber of subscribers.values())
        if (
          subscriber.waiting === undefined &&
          subscriber.seen !== undefined &&
          includesSnapshot(behind, subscriber.seen)
        )
          subscriber.seen = undefined
  }

  const resyncDisturbed = (touched: Touched) => {
    for (const [collection, subscribers] of byCollection)
      for (const { socket, watch } of [...subscribers.values()])
        if (orResync(socket, collection, () => watch(touched))) resync(socket, collection)
  }

  /** One subscriber whose rule makes no sense must not cost the others their events. */
  const orResync = <T>(socket: Socket, collection: string, work: () => T): T | undefined => {
    try {
      return work()
    } catch (error) {
      rt.log.warn({ err: error, collection }, 'a subscriber’s rule could not be resolved: it is told to read again')
      resync(socket, collection)
      return undefined
    }
  }

  const deliverTo = async (collection: string, events: readonly LogEvent[]) => {
    const views = Map.groupBy([...(byCollection.get(collection)?.values() ?? [])], ({ socket, access }) =>
      orResync(socket, collection, () => viewKey(rt, access, collection)),
    )
    views.delete(undefined)
    for (const subscribers of views.values()) {
      try {
        const messages = await visibleChanges(rt, subscribers[0]!.access, collection, events)
        for (const subscriber of subscribers) hand(subscriber, messages)
      } catch (error) {
        rt.log.error({ err: error, collection }, 'changes could not be evaluated: subscribers are told to read again')
        for (const { socket } of subscribers) resync(socket, collection)
      }
    }
  }

  const hand = (subscriber: Subscriber, messages: readonly Message[]) => {
    if (subscriber.waiting === undefined) send(subscriber, messages)
    else if (subscriber.waiting.length < waitingAtMost) subscriber.waiting.push(...messages)
    else throw new Error('a subscriber that catches up is too far behind')
  }

  const resync = (socket: Socket, collection: string) => {
    byCollection.get(collection)?.delete(socket)
    socket.emit('resync', { collection })
  }

  const follow = async () => {
    if (live === undefined && !closed)
      live = feed.subscribe('now', deliver, () => {
        live = undefined
        for (const [collection, subscribers] of byCollection)
          for (const socket of [...subscribers.keys()]) resync(socket, collection)
      })
    await live?.started
  }

  const unsubscribe = (socket: Socket, collection: string) => {
    const subscribers = byCollection.get(collection)
    subscribers?.delete(socket)
    if (subscribers?.size === 0) byCollection.delete(collection)
  }

  const mayRead = (access: Access, name: string) => {
    const collection = rt.catalog.current().collections.get(name)
    if (collection === undefined || !collection.realtime.enabled || !collection.logged) return false
    return access.admin || access.grant(name, 'read') !== undefined
  }

  return {
    mayRead,
    subscribe: async (socket, access, collection, from) => {
      // Refused here, not at the first change.
      viewKey(rt, access, collection)
      await follow()
      const watch = watchScope(rt, access, collection)
      const subscriber: Subscriber = { socket, access, watch, waiting: [], seen: undefined }
      const subscribers = byCollection.get(collection) ?? new Map<Socket, Subscriber>()
      subscribers.set(socket, subscriber)
      byCollection.set(collection, subscribers)
      const start = from ?? (await currentCursor(rt.feedDb.pool))
      const behind = from === undefined ? start : await catchUp(rt, subscriber, collection, from)
      if (behind === undefined) resync(socket, collection)
      else goLive(subscriber, behind)
      return start
    },
    unsubscribe,
    count: (socket) => [...byCollection.values()].filter((subscribers) => subscribers.has(socket)).length,
    forget: (socket) => {
      for (const collection of [...byCollection.keys()]) unsubscribe(socket, collection)
    },
    renew: (socket, access) => {
      for (const [collection, subscribers] of [...byCollection]) {
        const subscriber = subscribers.get(socket)
        if (subscriber === undefined) continue
        const before = subscriber.access
        subscriber.access = access
        subscriber.watch = watchScope(rt, access, collection)
        if (mayRead(access, collection)) {
          if (orResync(socket, collection, () => !seesTheSame(rt, before, access, collection)))
            resync(socket, collection)
          continue
        }
        unsubscribe(socket, collection)
        socket.emit('unsubscribed', { collection, reason: 'No permission to subscribe to this collection' })
      }
    },
    close: () => {
      closed = true
      live?.close()
    },
  }
}

/**
 * Sends what was missed. The round ends at a snapshot taken after the subscriber was registered, so what is neither
 * visible in it nor arrives live does not exist. Undefined when the log no longer holds what was missed.
 */
async function catchUp(
  rt: Runtime,
  subscriber: Subscriber,
  collection: string,
  from: Cursor,
): Promise<Cursor | undefined> {
  for (let cursor = from; ; ) {
    const page = await pullRound(rt.feedDb.pool, cursor, { collections: [collection], limit: catchUpPage })
    if (page.resync) return undefined
    send(subscriber, await visibleChanges(rt, subscriber.access, collection, page.events))
    cursor = page.cursor
    if (!page.more) return (await isDisturbed(rt, subscriber.access, collection, from, cursor)) ? undefined : cursor
  }
}

/** Whether something happened meanwhile that no event of the collection's rows tells. */
async function isDisturbed(rt: Runtime, access: Access, name: string, from: Cursor, behind: Cursor): Promise<boolean> {
  const collection = rt.catalog.current().collections.get(name)
  if (collection === undefined) return true
  if (!scopesRows(rt)) return false
  const followed = new Map([[name, { collection, fields: [] }]])
  const round = { from: snapshotOf(from), upTo: snapshotOf(behind) }
  return (await disturbedCollections(rt, access, { followed, named: [name] }, round)).length > 0
}

/** From here on live events go out at once; those that the subscriber has seen already do not. */
function goLive(subscriber: Subscriber, behind: Cursor): void {
  subscriber.seen = parseSnapshot(snapshotOf(behind))
  const waiting = subscriber.waiting ?? []
  subscriber.waiting = undefined
  send(subscriber, waiting)
}

function send({ socket, seen }: Subscriber, messages: readonly Message[]): void {
  for (const { name, xid, body } of messages) if (seen === undefined || !isVisible(xid, seen)) socket.emit(name, body)
}

/** The batch as one view of the collection sees it. */
async function visibleChanges(
  rt: Runtime,
  access: Access,
  name: string,
  events: readonly LogEvent[],
): Promise<readonly Message[]> {
  const collection = rt.catalog.current().collections.get(name)
  if (collection === undefined || events.length === 0) return []
  const { text, values } = viewSql(rt, access, collection)
  const byPosition = new Map(events.map((event) => [event.position, event]))
  const rows = await rt.feedDb.run<ChangedRow>(text, [[...byPosition.keys()], ...values])
  return rows.flatMap((row) => {
    const event = byPosition.get(row.position)!
    return messageOf(collection, event, row) ?? []
  })
}

const actionNames = { create: 'insert', update: 'update', delete: 'delete' } as const

function messageOf(collection: Collection, event: LogEvent, row: ChangedRow): Message | undefined {
  const { position, createdAt: timestamp, cursor } = event
  const message = (action: string, data: unknown) => ({
    name: `${collection.name}:${action}`,
    xid: BigInt(event.xid),
    body: { action, collection: collection.name, data, timestamp, cursor, position },
  })
  const wanted = collection.realtime.actions.has(actionNames[event.action as keyof typeof actionNames])
  if (event.action === 'delete') return wanted && row.was_visible ? message('delete', JSON.parse(row.data)) : undefined
  // A row that has left the subscriber's scope is gone for it: only its id may still be told.
  if (!row.visible)
    return row.was_visible ? message('remove', { [collection.primaryKey.name]: JSON.parse(row.key) }) : undefined
  return wanted ? message(event.action, JSON.parse(row.data)) : undefined
}

function viewSql(rt: Runtime, access: Access, collection: Collection, env = resolveEnv(rt)) {
  const catalog = rt.catalog.current()
  const fields = readableFields(catalog, access, collection.name)
  return changedRowsSql({ catalog, access, collection, fields, env, scoped: scopesRows(rt) })
}

function viewKey(rt: Runtime, access: Access, collection: string, env = resolveEnv(rt)): string {
  const { text, values } = viewSql(rt, access, rt.catalog.current().collections.get(collection)!, env)
  return `${text}\n${JSON.stringify(values)}`
}

/** Whether two accesses show the same rows and fields, at one moment. */
function seesTheSame(rt: Runtime, before: Access, after: Access, collection: string): boolean {
  const env = resolveEnv(rt)
  return viewKey(rt, before, collection, env) === viewKey(rt, after, collection, env)
}
