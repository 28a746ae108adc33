import { setTimeout as delay } from 'node:timers/promises'
import type { Socket } from 'socket.io'
import { pauseAfter } from '../../adapters/retry.ts'
import { isPassing, isStalePlan } from '../../db/errors.ts'
import { readFromNowOn } from '../../db/read-anywhere.ts'
import { AppError } from '../../errors.ts'
import {
  afterSeen,
  type Cursor,
  encodeCursor,
  includesSnapshot,
  isVisible,
  parseCursor,
  parseSnapshot,
  type Snapshot,
} from '../../events/cursor.ts'
import type { Feed, Subscription } from '../../events/feed.ts'
import { currentCursor, type LogEvent } from '../../events/log-reader.ts'
import type { Access } from '../../query/access.ts'
import type { Runtime } from '../../runtime.ts'
import { type CatchUp, openCatchUp, readBackoff } from './catch-up.ts'
import { changesSeen, type Message, partsOf } from './changes.ts'
import type { Outbox } from './outbox.ts'
import { touchedBy, watchScope } from './scope.ts'
import { openSnapshots, type Snapshots } from './snapshot.ts'
import { hasSeen, openRegistry, type Shape, type Subscriber, shapesOf } from './subscribers.ts'
import { compileView, inOneMessage, refuseUnrecorded, type Wish } from './wish.ts'

/**
 * Who gets which change, in which form. What a subscriber may see of a change is computed in SQL, by the same
 * projection and condition as a read, in one statement per batch and distinct shape of a view, for all subscribers who
 * have it (design §5). While the database does not answer, changes wait; whatever else fails delivers nothing and tells
 * the client to read again.
 */
export type Delivery = {
  mayRead(access: Access, collection: string): boolean
  /**
   * Sends what happened after `since`, or the rows with `snapshot`, and resolves; what happens from then on waits until
   * `begin`. Replaces the socket's subscription to the collection. Throws AppError when there is none.
   */
  subscribe(socket: Socket, access: Access, wish: Wish): Promise<Begun>
  unsubscribe(socket: Socket, collection: string): void
  /** How many other collections the socket follows. */
  othersOf(socket: Socket, collection: string): number
  /** Subscriptions of all sockets. */
  total(): number
  forget(socket: Socket): void
  /** What the socket's user may do has changed: drops subscriptions that are no longer allowed, goes on with the others. */
  renew(socket: Socket, access: Access): void
  close(): void
}

/** `snapshot`: how many rows were sent. */
export type Begun = { readonly answer: { cursor: string; snapshot?: number }; begin(): void }

export const notAllowed = 'No permission to subscribe to this collection'
const waitingAtMost = 1000

/** `confirm` closes the sockets of sessions that have ended without our hearing of it; nothing is sent before. */
export function openDelivery(rt: Runtime, feed: Feed, outbox: Outbox, confirm: () => Promise<void>): Delivery {
  const registry = openRegistry()
  const catchUp: CatchUp = openCatchUp(rt, outbox, registry.has)
  const snapshots: Snapshots = openSnapshots(rt, outbox, registry.has)
  let live: Subscription | undefined
  let closed = false

  const deliver = async (batch: readonly LogEvent[], resume: string) => {
    await confirm()
    const wanted = batch.filter(({ type, entity }) => type === 'data' && registry.follows(entity))
    const byCollection = Map.groupBy(wanted, ({ entity }) => entity)
    await Promise.all([...byCollection].map(([name, events]) => deliverTo(registry.of(name), events)))
    resyncDisturbed(batch)
    const behind = parseSnapshot(parseCursor(resume).snapshot)!
    for (const subscriber of registry.all())
      if (subscriber.waiting === undefined && subscriber.seen && includesSnapshot(behind, subscriber.seen))
        subscriber.seen = undefined
  }

  const deliverTo = async (subscribers: readonly Subscriber[], events: readonly LogEvent[]) => {
    await Promise.all(shapesOf(rt, subscribers, refuse).map((shape) => deliverShape(shape, events)))
  }

  const deliverShape = async (shape: Shape, events: readonly LogEvent[], tries: Tries = firstTry) => {
    const { view, viewers, values } = shape
    const all = viewers.flat()
    let handed = 0
    try {
      for (const part of partsOf(events)) {
        for (const { message, viewers: to } of await changesSeen(rt, all[0]!.wish.collection, view, values, part))
          hand(
            to.flatMap((n) => viewers[n]!),
            message,
          )
        handed += part.length
      }
    } catch (error) {
      if (closed) return
      const next = await prepareAgain(error, tries)
      if (next === undefined) return resyncAll(all, error)
      const shapes = shapesOf(rt, all.filter(registry.has), refuse)
      await Promise.all(shapes.map((one) => deliverShape(one, events.slice(handed), next)))
    }
  }

  /** Undefined when there is no use in trying again. */
  const prepareAgain = async (error: unknown, { failures, isReloaded }: Tries): Promise<Tries | undefined> => {
    if (isPassing(error)) {
      const pauseMs = pauseAfter(failures, readBackoff)
      rt.log.warn({ err: error, retryInMs: pauseMs }, 'changes could not be read')
      await delay(pauseMs)
      // Sessions may have ended meanwhile without our hearing of it.
      await confirm()
      return { failures: failures + 1, isReloaded }
    }
    if (isReloaded || !isStalePlan(error)) return undefined
    // The collection has changed under the statement.
    await rt.catalog.reloadIfStale()
    return { failures, isReloaded: true }
  }

  const hand = (subscribers: readonly Subscriber[], message: Message) => {
    const ready: Socket[] = []
    const behind: Subscriber[] = []
    for (const subscriber of subscribers) {
      if (!registry.has(subscriber)) continue
      if (subscriber.waiting !== undefined) wait(subscriber, message)
      else if (hasSeen(subscriber, message)) continue
      else if (outbox.isFull(subscriber.socket)) resync(subscriber, 'slow')
      else if (subscriber.seen === undefined) ready.push(subscriber.socket)
      else behind.push(subscriber)
    }
    const { name, body } = message
    outbox.send(ready, name, body)
    // Its own cursor knows nothing of the later events that these have seen.
    for (const [seen, group] of Map.groupBy(behind, (subscriber) => subscriber.seen!)) {
      const sockets = group.map(({ socket }) => socket)
      outbox.send(sockets, name, { ...body, cursor: afterSeen(body.cursor, seen) })
    }
  }

  const resyncDisturbed = (batch: readonly LogEvent[]) => {
    const byAll = touchedBy(batch)
    for (const subscriber of registry.all()) {
      const { watch, seen } = subscriber
      if (watch === undefined) continue
      // What happened before it subscribed is in what it has read, however late it is delivered.
      const touched = seen === undefined ? byAll : touchedBy(batch.filter(({ xid }) => !isVisible(BigInt(xid), seen)))
      try {
        if (!watch(touched)) continue
        // Whether it is later than what is being sent, reading it from the log will tell.
        if (subscriber.waiting !== undefined) subscriber.overflowed = true
        else resync(subscriber)
      } catch (error) {
        refuse(subscriber, error)
      }
    }
  }

  const resync = (subscriber: Subscriber, reason?: 'slow' | 'failed') => {
    if (!registry.has(subscriber)) return
    registry.remove(subscriber)
    const { socket, wish, access } = subscriber
    const tell = () => void socket.emit('resync', { collection: wish.collection, ...(reason && { reason }) })
    // The list that is read next must show what this is about.
    if (rt.replicas === undefined) tell()
    else void readFromNowOn(rt, access).then(tell)
  }

  const resyncAll = (subscribers: readonly Subscriber[], error: unknown) => {
    const collection = subscribers[0]!.wish.collection
    rt.log.error({ err: error, collection }, 'changes could not be evaluated: subscribers are told to read again')
    for (const subscriber of subscribers) resync(subscriber, 'failed')
  }

  /** One subscriber whose view makes no sense any more must not cost the others their events. */
  const refuse = (subscriber: Subscriber, error: unknown) => {
    if (error instanceof AppError) return end(subscriber, error.message)
    const { collection } = subscriber.wish
    rt.log.warn({ err: error, collection }, 'a subscriber’s rule could not be resolved: it is told to read again')
    resync(subscriber, 'failed')
  }

  const end = (subscriber: Subscriber, reason: string) => {
    if (!registry.has(subscriber)) return
    registry.remove(subscriber)
    subscriber.socket.emit('unsubscribed', { collection: subscriber.wish.collection, reason })
  }

  const follow = async () => {
    if (live === undefined && !closed)
      live = feed.subscribe('now', deliver, () => {
        live = undefined
        for (const subscriber of registry.all()) resync(subscriber)
      })
    await live?.started
  }

  const mayRead = (access: Access, name: string) => {
    const collection = rt.catalog.current().collections.get(name)
    if (collection === undefined || !collection.realtime.enabled || !collection.logged) return false
    return access.admin || access.grant(name, 'read') !== undefined
  }

  /** What the client has missed or has not got yet; undefined when it has to read again. */
  const sendFirst = async (subscriber: Subscriber): Promise<{ at: Cursor; rows?: number } | undefined> => {
    const { since, snapshot } = subscriber.wish
    const reached = since && (await catchUp.from(subscriber, since))
    if (reached !== undefined) return { at: reached }
    if (snapshot) return snapshots.send(subscriber)
    return since === undefined ? { at: await currentCursor(rt.feedDb) } : undefined
  }

  let newest: { readonly text: string; readonly seen: Snapshot | undefined } | undefined
  /** One value for all who begin at the same moment: they get the same messages. */
  const seenBy = ({ snapshot: text }: Cursor) => {
    if (newest?.text !== text) newest = { text, seen: parseSnapshot(text) }
    return newest.seen
  }

  /** From here on live events go out at once; those that the subscriber has seen already do not. */
  const goLive = (subscriber: Subscriber, behind: Cursor) => {
    if (!registry.has(subscriber)) return
    subscriber.seen = seenBy(behind)
    if (subscriber.overflowed) return void catchUpAgain(subscriber, behind)
    const waiting = subscriber.waiting ?? []
    subscriber.waiting = undefined
    for (const message of waiting) hand([subscriber], message)
  }

  const catchUpAgain = async (subscriber: Subscriber, from: Cursor) => {
    try {
      Object.assign(subscriber, { waiting: [], overflowed: false })
      const reached = await catchUp.from(subscriber, from)
      if (reached === undefined) resync(subscriber)
      else goLive(subscriber, reached)
    } catch (error) {
      resyncAll([subscriber], error)
    }
  }

  return {
    mayRead,
    subscribe: async (socket, access, wish) => {
      const view = inOneMessage(() => compileView(rt, access, wish))
      refuseUnrecorded(rt, access, wish)
      const watch = watchScope(rt, access, wish)
      const subscriber = { socket, wish, access, view, watch, waiting: [], overflowed: false, seen: undefined }
      registry.add(subscriber)
      try {
        await follow()
        const sent = await sendFirst(subscriber)
        if (sent === undefined) resync(subscriber)
        const at = sent?.at ?? (await currentCursor(rt.feedDb))
        // Who has to read again has got nothing since.
        const cursor = encodeCursor(sent === undefined ? (wish.since ?? at) : at)
        // And so must the one that is read after this.
        await readFromNowOn(rt, access)
        const answer = { cursor, ...(sent?.rows !== undefined && { snapshot: sent.rows }) }
        return { answer, begin: () => goLive(subscriber, at) }
      } catch (error) {
        registry.remove(subscriber)
        throw error
      }
    },
    unsubscribe: (socket, collection) =>
      registry
        .on(socket)
        .filter(({ wish }) => wish.collection === collection)
        .forEach(registry.remove),
    total: () => registry.all().length,
    othersOf: (socket, collection) => registry.on(socket).filter(({ wish }) => wish.collection !== collection).length,
    forget: (socket) => registry.on(socket).forEach(registry.remove),
    renew: (socket, access) => {
      for (const subscriber of registry.on(socket)) {
        if (!mayRead(access, subscriber.wish.collection)) end(subscriber, notAllowed)
        else renewOne(rt, subscriber, access, { refuse, resync })
      }
    },
    close: () => {
      closed = true
      live?.close()
    },
  }

  function wait(subscriber: Subscriber, message: Message): void {
    if (subscriber.waiting!.length < waitingAtMost) subscriber.waiting!.push(message)
    else Object.assign(subscriber, { waiting: [], overflowed: true })
  }
}

/** How long to wait after a passing failure, and whether the catalog has been read again after another one. */
type Tries = { readonly failures: number; readonly isReloaded: boolean }
const firstTry: Tries = { failures: 1, isReloaded: false }

type Endings = {
  refuse(subscriber: Subscriber, error: unknown): void
  resync(subscriber: Subscriber): void
}

/** Goes on with another access where it shows the same rows and fields. */
function renewOne(rt: Runtime, subscriber: Subscriber, access: Access, { refuse, resync }: Endings): void {
  const { wish, view: before } = subscriber
  try {
    const view = compileView(rt, access, wish)
    const same = before.catalog === view.catalog ? before : compileView(rt, subscriber.access, wish)
    Object.assign(subscriber, { access, view, watch: watchScope(rt, access, wish) })
    if (same.text !== view.text || same.key !== view.key) resync(subscriber)
  } catch (error) {
    refuse(subscriber, error)
  }
}
