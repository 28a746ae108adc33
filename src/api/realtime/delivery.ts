import { setTimeout as delay } from 'node:timers/promises'
import type { Socket } from 'socket.io'
import { pauseAfter } from '../../adapters/retry.ts'
import type { CurrentCatalog } from '../../catalog/store.ts'
import { isDataError, isPassing, isStalePlan } from '../../db/errors.ts'
import { readFromNowOn } from '../../db/replicas/replicas.ts'
import { AppError } from '../../errors.ts'
import {
  afterSeen,
  type Cursor,
  encodeCursor,
  isVisible,
  parseCursor,
  parseSnapshot,
  type Snapshot,
} from '../../events/cursor.ts'
import type { Feed, Subscription } from '../../events/feed.ts'
import { currentCursor, type LogEvent } from '../../events/log-reader.ts'
import { definitions } from '../../features/data/changes/changes.ts'
import type { Access } from '../../query/access.ts'
import type { RealtimeReads } from '../capabilities.ts'
import { type CatchUp, openCatchUp, openSnapshots, readBackoff, type Snapshots } from './catch-up.ts'
import type { Outbox } from './connections.ts'
import { readMessage } from './messages.ts'
import { openRegistry, openShapes, openWatched, type Shape, type Subscriber } from './registry.ts'
import { beginning, type MessageInput, type SubscriptionEffect, type SubscriptionInput, step } from './subscription.ts'
import {
  changesSeen,
  compileView,
  inOneMessage,
  type Message,
  partsOf,
  refuseUnrecorded,
  type SubscribeRequest,
  touchedBy,
  unfitView,
  watchScope,
} from './views.ts'

/**
 * Delivers changes to subscribers. SQL computes the visible part of a change by the projection and condition of a read,
 * in one statement per batch and distinct shape of a view, for all its subscribers (ADR 23). subscription.ts decides
 * what happens to each subscription. While the database does not answer, changes wait; any other failure delivers
 * nothing and asks the client to read again.
 */
export type EventDelivery = {
  mayRead(access: Access, collection: string): boolean
  /**
   * Sends what happened after `since`, or the rows with `snapshot`, and resolves; what happens from then on waits until
   * `begin`. Replaces the socket's subscription to the collection. Throws AppError when there is none.
   */
  subscribe(socket: Socket, access: Access, request: SubscribeRequest): Promise<SubscriptionStart>
  unsubscribe(socket: Socket, request: unknown): Promise<object>
  /** How many other collections the socket follows. */
  othersOf(socket: Socket, collection: string): number
  /** Subscriptions of all sockets. */
  total(): number
  forget(socket: Socket): void
  /** The rights of the socket's user have changed: drops subscriptions that are no longer allowed, goes on with the others. */
  renew(socket: Socket, access: Access): void
  close(): void
}

/** `snapshot`: how many rows were sent. */
export type SubscriptionStart = { readonly answer: { cursor: string; snapshot?: number }; begin(): void }

export const notAllowed = 'No permission to subscribe to this collection'

type Shell = {
  readonly deps: RealtimeReads
  readonly feed: Feed
  readonly outbox: Outbox
  readonly registry: ReturnType<typeof openRegistry>
  readonly shapes: ReturnType<typeof openShapes>
  readonly isWatched: ReturnType<typeof openWatched>
  readonly catchUp: CatchUp
  readonly snapshots: Snapshots
  readonly confirm: () => Promise<void>
  live: Subscription | undefined
  closed: boolean
  /** One value for all who go live at the same moment: they get the same messages. */
  newest: { readonly text: string; readonly seen: Snapshot | undefined } | undefined
}

/** `confirm` closes the sockets of sessions that have ended without our hearing of it; nothing is sent before. */
export function openDelivery(
  deps: RealtimeReads,
  feed: Feed,
  outbox: Outbox,
  confirm: () => Promise<void>,
): EventDelivery {
  const registry = openRegistry()
  const catchUp = openCatchUp(deps, outbox, registry.has)
  const snapshots = openSnapshots(deps, outbox, registry.has)
  const begun = { live: undefined, closed: false, newest: undefined }
  const shapes = openShapes(deps, (subscriber, error) => refuse(shell, subscriber, error))
  const isWatched = openWatched(deps)
  const shell: Shell = { deps, feed, outbox, registry, shapes, isWatched, catchUp, snapshots, confirm, ...begun }
  return {
    mayRead: (access, name) => mayRead(deps, access, name),
    subscribe: (socket, access, request) => subscribe(shell, socket, access, request),
    unsubscribe: async (socket, message) => {
      const { collection } = readMessage('unsubscribe', message)
      for (const subscriber of registry.on(socket))
        if (subscriber.request.collection === collection) registry.remove(subscriber)
      return {}
    },
    total: () => registry.all().length,
    othersOf: (socket, collection) =>
      registry.on(socket).filter(({ request }) => request.collection !== collection).length,
    forget: (socket) => registry.on(socket).forEach(registry.remove),
    renew: (socket, access) => {
      for (const subscriber of registry.on(socket)) renew(shell, subscriber, access)
    },
    close: () => {
      shell.closed = true
      shell.live?.close()
    },
  }
}

function mayRead({ catalog }: CurrentCatalog, access: Access, name: string): boolean {
  const collection = catalog.current().collections.get(name)
  if (collection === undefined || !collection.realtime.enabled || !collection.logged) return false
  return access.admin || access.grant(name, 'read') !== undefined
}

async function subscribe(
  shell: Shell,
  socket: Socket,
  access: Access,
  request: SubscribeRequest,
): Promise<SubscriptionStart> {
  const { deps, registry } = shell
  const view = inOneMessage(() => compileView(deps, access, request))
  refuseUnrecorded(deps, access, request)
  const watch = watchScope(deps, access, request)
  const subscriber: Subscriber = { socket, request, access, view, watch, state: beginning }
  registry.add(subscriber)
  try {
    await follow(shell)
    const sent = await sendFirst(shell, subscriber)
    if (sent === undefined) take(shell, subscriber, { is: 'unknown' })
    const at = sent?.at ?? (await currentCursor(deps.feedDb))
    // A client that has to read again has got nothing since.
    const cursor = encodeCursor(sent === undefined ? (request.since ?? at) : at)
    // And so must the list that is read after this.
    await readFromNowOn(deps, access)
    const answer = { cursor, ...(sent?.rows !== undefined && { snapshot: sent.rows }) }
    return { answer, begin: () => goLive(shell, subscriber, at) }
  } catch (error) {
    registry.remove(subscriber)
    throw unfitView(error) ?? error
  }
}

/** Resolves when every later event will be delivered. */
async function follow(shell: Shell): Promise<void> {
  const { feed, registry } = shell
  if (shell.live === undefined && !shell.closed)
    shell.live = feed.subscribe(
      'now',
      (batch, resume) => deliver(shell, batch, resume),
      () => {
        shell.live = undefined
        for (const subscriber of registry.all()) take(shell, subscriber, { is: 'unknown' })
      },
    )
  await shell.live?.started
}

/** Sends the changes or rows that the client still lacks; undefined when it has to read again. */
async function sendFirst(shell: Shell, subscriber: Subscriber): Promise<{ at: Cursor; rows?: number } | undefined> {
  const { since, snapshot } = subscriber.request
  const reached = since && (await caughtUp(shell, subscriber, since))
  if (reached !== undefined) return { at: reached }
  if (snapshot) return shell.snapshots.send(subscriber)
  return since === undefined ? { at: await currentCursor(shell.deps.feedDb) } : undefined
}

/** Rows of the past may not be what their fields are now: then those of the present decide whether the filter can be evaluated. */
async function caughtUp({ catchUp }: Shell, subscriber: Subscriber, since: Cursor): Promise<Cursor | undefined> {
  try {
    return await catchUp.from(subscriber, since)
  } catch (error) {
    if (isDataError(error)) return undefined
    throw error
  }
}

/** From here on live events go out at once; those that the subscriber has seen already do not. */
function goLive(shell: Shell, subscriber: Subscriber, cursor: Cursor): void {
  const text = cursor.snapshot
  if (shell.newest?.text !== text) shell.newest = { text, seen: parseSnapshot(text) }
  take(shell, subscriber, { is: 'caught up', cursor, seen: shell.newest.seen })
}

async function catchUpAgain(shell: Shell, subscriber: Subscriber, from: Cursor): Promise<void> {
  try {
    const reached = await shell.catchUp.from(subscriber, from)
    if (reached === undefined) take(shell, subscriber, { is: 'unknown' })
    else goLive(shell, subscriber, reached)
  } catch (error) {
    fail(shell, [subscriber], error)
  }
}

async function deliver(shell: Shell, batch: readonly LogEvent[], resume: string): Promise<void> {
  const { registry } = shell
  await shell.confirm()
  const wanted = batch.filter(({ type, entity }) => type === 'data' && registry.follows(entity))
  const byCollection = Map.groupBy(wanted, ({ entity }) => entity)
  await Promise.all([...byCollection].map(([name, events]) => deliverTo(shell, registry.of(name), events, firstTry)))
  await noticeDisturbances(shell, batch)
  const input = { is: 'read', upTo: parseSnapshot(parseCursor(resume).snapshot)! } as const
  for (const subscriber of registry.all()) if (subscriber.state.seen !== undefined) take(shell, subscriber, input)
}

/** How often it has failed, and whether the catalog has been read again since. */
type Tries = { readonly failures: number; readonly isReloaded: boolean }
const firstTry: Tries = { failures: 1, isReloaded: false }

async function deliverTo(
  shell: Shell,
  subscribers: readonly Subscriber[],
  events: readonly LogEvent[],
  tries: Tries,
): Promise<void> {
  await Promise.all(shell.shapes(subscribers).map((shape) => deliverShape(shell, shape, events, tries)))
}

async function deliverShape(shell: Shell, shape: Shape, events: readonly LogEvent[], tries: Tries): Promise<void> {
  const { view, viewers, subscribers } = shape
  const open = (some: readonly (readonly Subscriber[])[]) => some.flat().filter(shell.registry.has)
  let handed = 0
  try {
    for (const part of partsOf(events)) {
      const { collection } = subscribers[0]![0]!.request
      const { messages, isWhole } = await changesSeen(shell.deps, collection, view, viewers, part)
      for (const { message, viewers: to } of messages) {
        const seeing = to.flatMap((n) => subscribers[n]!)
        hand(shell, seeing, message)
      }
      if (!isWhole) for (const subscriber of subscribers.flat()) take(shell, subscriber, { is: 'disturbed' })
      handed += part.length
    }
  } catch (error) {
    if (shell.closed) return
    const rest = events.slice(handed)
    const next = await prepareAgain(shell, error, tries)
    if (next !== undefined) return deliverTo(shell, open(subscribers), rest, next)
    if (subscribers.length === 1 || !isDataError(error)) return fail(shell, subscribers.flat(), error)
    // The value of one, such as a malformed pattern, must not cost the others the change.
    const half = subscribers.length >> 1
    for (const some of [subscribers.slice(0, half), subscribers.slice(half)])
      await deliverTo(shell, open(some), rest, tries)
  }
}

/** Undefined when there is no use in trying again. */
async function prepareAgain({ deps, confirm }: Shell, error: unknown, tries: Tries): Promise<Tries | undefined> {
  if (isPassing(error)) {
    const pauseMs = pauseAfter(tries.failures, readBackoff)
    deps.log.warn({ err: error, retryInMs: pauseMs }, 'changes could not be read')
    await delay(pauseMs)
    // Sessions may have ended meanwhile without our hearing of it.
    await confirm()
    return { ...tries, failures: tries.failures + 1 }
  }
  if (tries.isReloaded || !isStalePlan(error)) return undefined
  // The collection has changed under the statement.
  await deps.catalog.reloadIfStale()
  return { ...tries, isReloaded: true }
}

/** Gives a message to those who see it, encoded once for all who get it as it is. */
function hand(shell: Shell, subscribers: readonly Subscriber[], message: Message): void {
  const { registry, outbox } = shell
  const input: MessageInput = { is: 'message', message, slow: false }
  const ready: Socket[] = []
  const ahead: { readonly socket: Socket; readonly after: Snapshot }[] = []
  for (const subscriber of subscribers) {
    if (!registry.has(subscriber)) continue
    const { socket, state } = subscriber
    const [next, effects] = step(state, outbox.isFull(socket) ? { ...input, slow: true } : input)
    subscriber.state = next
    for (const effect of effects)
      if (effect.do !== 'send') perform(shell, subscriber, effect)
      else if (effect.after === undefined) ready.push(socket)
      else ahead.push({ socket, after: effect.after })
  }
  const { name, body } = message
  outbox.send(ready, name, body)
  // The message's own cursor knows nothing of the later events that these have seen.
  for (const [after, group] of Map.groupBy(ahead, (one) => one.after)) {
    const sockets = group.map(({ socket }) => socket)
    outbox.send(sockets, name, { ...body, cursor: afterSeen(body.cursor, after) })
  }
}

async function noticeDisturbances(shell: Shell, batch: readonly LogEvent[]): Promise<void> {
  const byAll = touchedBy(batch)
  if (byAll.collections.has(definitions)) await knowDefinitions(shell)
  if (!shell.isWatched(shell.registry.all(), byAll)) return
  for (const subscriber of shell.registry.all()) {
    const { watch } = subscriber
    const { seen } = subscriber.state
    // Its first read already shows events from before it subscribed, however late they are delivered.
    const touched = seen === undefined ? byAll : touchedBy(batch.filter(({ xid }) => !isVisible(BigInt(xid), seen)))
    try {
      if (!watch.isMovedBy(touched)) continue
      if (touched.collections.has(definitions)) requireView(shell, subscriber)
      take(shell, subscriber, { is: 'disturbed' })
    } catch (error) {
      refuse(shell, subscriber, error)
    }
  }
}

/** A subscriber that reads again because of a new definition is answered by it. */
async function knowDefinitions({ deps }: Shell): Promise<void> {
  try {
    await deps.catalog.reloadIfStale()
  } catch (error) {
    // Its notification, or the next connection, leads to the definitions too.
    deps.log.warn({ err: error }, 'the definitions could not be read again')
  }
}

/** Throws AppError where reading again would be refused. */
function requireView({ deps }: Shell, { access, request }: Subscriber): void {
  if (!mayRead(deps, access, request.collection)) throw new AppError(403, notAllowed)
  compileView(deps, access, request)
}

/** Goes on with another access where it shows the same rows and fields. */
function renew(shell: Shell, subscriber: Subscriber, access: Access): void {
  const { deps, registry } = shell
  const { request, view: before } = subscriber
  if (!mayRead(deps, access, request.collection))
    return void take(shell, subscriber, { is: 'refused', reason: notAllowed })
  try {
    const view = compileView(deps, access, request)
    const same = before.catalog === view.catalog ? before : compileView(deps, subscriber.access, request)
    registry.renew(subscriber, { access, view, watch: watchScope(deps, access, request) })
    if (same.text !== view.text || same.key !== view.key) take(shell, subscriber, { is: 'unknown' })
  } catch (error) {
    refuse(shell, subscriber, error)
  }
}

/** One subscriber whose view makes no sense any more must not cost the others their events. */
function refuse(shell: Shell, subscriber: Subscriber, error: unknown): void {
  if (error instanceof AppError) return void take(shell, subscriber, { is: 'refused', reason: error.message })
  const { collection } = subscriber.request
  shell.deps.log.warn({ err: error, collection }, 'a subscriber’s rule could not be resolved: it has to read again')
  take(shell, subscriber, { is: 'failed' })
}

/** A filter that cannot be evaluated would fail again with each change of the row: its subscription ends and says why. */
function fail(shell: Shell, subscribers: readonly Subscriber[], error: unknown): void {
  const { collection } = subscribers[0]!.request
  const unfit = unfitView(error)
  if (unfit === undefined)
    shell.deps.log.error({ err: error, collection }, 'changes could not be evaluated: subscribers have to read again')
  for (const subscriber of subscribers) {
    const isOwn = unfit !== undefined && subscriber.request.filter !== undefined
    take(shell, subscriber, isOwn ? { is: 'refused', reason: unfit.message } : { is: 'failed' })
  }
}

function take(shell: Shell, subscriber: Subscriber, input: SubscriptionInput): void {
  if (!shell.registry.has(subscriber)) return
  const [state, effects] = step(subscriber.state, input)
  subscriber.state = state
  for (const effect of effects) perform(shell, subscriber, effect)
}

function perform(shell: Shell, subscriber: Subscriber, effect: SubscriptionEffect): void {
  const { deps, registry } = shell
  const { socket, access, request } = subscriber
  const { collection } = request
  switch (effect.do) {
    case 'hand':
      for (const message of effect.messages) hand(shell, [subscriber], message)
      return
    case 'catch up':
      return void catchUpAgain(shell, subscriber, effect.from)
    case 'end':
      registry.remove(subscriber)
      return void socket.emit('unsubscribed', { collection, reason: effect.reason })
    case 'resync': {
      registry.remove(subscriber)
      const { reason } = effect
      const notify = () => void socket.emit('resync', { collection, ...(reason && { reason }) })
      // The list that is read next must show what this is about.
      if (deps.replicas === undefined) notify()
      else void readFromNowOn(deps, access).then(notify)
    }
  }
}
