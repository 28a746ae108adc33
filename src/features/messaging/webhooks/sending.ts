import { randomUUID } from 'node:crypto'
import { fetchBeginning, UrlFetchError } from '../../../adapters/fetch-url.ts'
import {
  type ClaimedDelivery,
  claimDeliveries,
  type DeliveredAttempt,
  type DeliveryResult,
  returnClaims,
  settleDelivered,
  settleDelivery,
} from '../../../db/unlogged/messages.ts'
import { readEvents } from '../../../events/log-reader.ts'
import { type DeliveryWrites, pause } from './pausing.ts'
import { type Webhook, webhookById } from './queries.ts'
import { openSecrets, secretLost, signatureOf, withoutSecrets } from './secrets.ts'
import { refusalOf, type Sight, seenBy, seenEvents } from './sight.ts'

/*
 * Sending: what is due for an endpoint is claimed, composed as its role sees it now, signed and posted. A worker that dies on
 * the way has its claims taken over, so something may be sent twice, under the same id.
 */

/** How many requests one endpoint gets at the same time from one process. */
const slotsOfEndpoint = 8
const timeoutMs = 10_000
/** Longer than an attempt can take: then its process is gone. */
const claimMs = 25_000
const responseBytes = 8192
/** The body of an answer is for display only, and has a slot wait no longer than this. */
const bodyMs = 1000

/** The most deliveries claimed at once; an endpoint that answers quickly gets so far ahead. */
const aheadAtMost = 128
const aheadMs = 500
/**
 * A delivery that has waited longer for a slot is given back and composed again: rights and secrets may have changed.
 */
const longestWaitMs = 2000

/**
 * Sends what is due for one endpoint until there is nothing more, or `stopping` aborts. What is on its way then may end, until
 * `ending` aborts: deliveries that are not answered by then are given back, not counted. Endpoints do not wait for each other:
 * each has slots of its own. Claiming, composing and noting cost a statement each, so they are done for many at once.
 */
export async function deliverTo(
  deps: DeliveryWrites,
  webhookId: string,
  { stopping, ending }: { readonly stopping: AbortSignal; readonly ending: AbortSignal },
): Promise<void> {
  const lane: EndpointLane = {
    ...{ deps, webhookId, ending, token: randomUUID(), queue: [], running: new Set(), noting: new Set() },
    ...{ settle: openSettling(deps), claiming: undefined, isDry: false, changes: 0 },
    ...{ ahead: slotsOfEndpoint, meanMs: undefined },
  }
  while (!stopping.aborted) {
    if (lane.claiming === undefined && !lane.isDry && lane.queue.length * 2 < lane.ahead) lane.claiming = refill(lane)
    sendFrom(lane)
    const work = [...lane.running, ...lane.noting, ...(lane.claiming === undefined ? [] : [lane.claiming])]
    if (work.length === 0 && lane.queue.length === 0) break
    await Promise.race(work)
  }
  await Promise.all([lane.claiming, ...lane.running, ...lane.noting])
  await giveBack(lane)
}

/** The state of one process for one endpoint. */
type EndpointLane = {
  readonly deps: DeliveryWrites
  readonly webhookId: string
  readonly ending: AbortSignal
  /** Of its claims. */
  readonly token: string
  /** Composed, and waiting for a slot. */
  queue: WaitingDelivery[]
  readonly running: Set<Promise<void>>
  /** Deliveries that were answered and are being noted; those after them may be claimed when they are. */
  readonly noting: Set<Promise<void>>
  readonly settle: Settling
  claiming: Promise<void> | undefined
  /** The last claim found nothing, and nothing was noted since. */
  isDry: boolean
  /** How many were noted: each may have been what something waits for. */
  changes: number
  ahead: number
  /** Of an attempt that is delivered. */
  meanMs: number | undefined
}

type WaitingDelivery = Composed & { readonly webhook: SigningWebhook; readonly claimedAt: number }

/** Throws nothing that would end the deliveries that are on their way; what failed is tried again by the next lane. */
async function refill(lane: EndpointLane): Promise<void> {
  const { deps, webhookId, token } = lane
  const claimedAt = performance.now()
  const { changes } = lane
  try {
    const claimed = await claimDeliveries(deps, webhookId, token, lane.ahead, claimMs)
    lane.isDry = claimed.length === 0 && lane.changes === changes
    if (claimed.length === 0) return
    const sender = await sending(deps, webhookId)
    if (sender === undefined) return await returnClaims(deps, token, idsOf(claimed))
    const { webhook, sight } = sender
    const ready = await composed(deps, sight, claimed)
    lane.queue.push(...ready.map((one) => ({ ...one, webhook, claimedAt })))
  } catch (error) {
    lane.isDry = true
    deps.log.warn({ err: error, webhook: webhookId }, 'deliveries could not be claimed; they go on')
  } finally {
    lane.claiming = undefined
  }
}

/** A webhook with what it signs and sees; undefined where it is gone, or is paused by now because it may or can send nothing. */
async function sending(deps: DeliveryWrites, id: string): Promise<Sender | undefined> {
  const webhook = await webhookById(deps.db, id)
  if (webhook === undefined) return undefined
  // Afterwards: a definition that this process does not know yet must not pause it.
  await deps.catalog.reloadIfStale()
  await deps.access.reloadIfStale()
  const secrets = await openSecrets(deps, id)
  const refused = await refusalOf(deps, deps.db, webhook)
  const { sight, refusal } = seenBy(deps, webhook)
  if (secrets !== undefined && refused === undefined && sight !== undefined)
    return { webhook: { ...webhook, secrets }, sight }
  await pause(deps, webhook, refused ?? (secrets === undefined ? secretLost : refusal!))
  return undefined
}

const idsOf = (deliveries: readonly ClaimedDelivery[]) => deliveries.map(({ id }) => id)

function sendFrom(lane: EndpointLane): void {
  const { deps, queue, running } = lane
  if (queue.length > 0 && performance.now() - queue[0]!.claimedAt > longestWaitMs) noted(lane, giveBack(lane))
  while (running.size < slotsOfEndpoint && lane.queue.length > 0) {
    const one = lane.queue.shift()!
    const sent = attempt(lane, one)
      .catch((error) =>
        deps.log.warn(
          { err: error, delivery: one.delivery.id },
          'the outcome of a delivery could not be stored; it is delivered again',
        ),
      )
      .finally(() => running.delete(sent))
    running.add(sent)
  }
}

/** Others, or the next claim, take what is waiting here. */
async function giveBack(lane: EndpointLane): Promise<void> {
  const ids = idsOf(lane.queue.map(({ delivery }) => delivery))
  lane.queue = []
  if (ids.length > 0) await returnClaims(lane.deps, lane.token, ids)
}

/** Has the lane stay for it. */
function noted(lane: EndpointLane, work: Promise<unknown>): void {
  const noting = work
    .then(
      () => change(lane),
      (error: unknown) =>
        lane.deps.log.warn(
          { err: error, webhook: lane.webhookId },
          'deliveries could not be noted; they are done again',
        ),
    )
    .finally(() => lane.noting.delete(noting))
  lane.noting.add(noting)
}

function change(lane: EndpointLane): void {
  lane.changes += 1
  lane.isDry = false
}

type Settling = (webhookId: string, token: string, one: DeliveredAttempt) => Promise<void>

/** Notes what was delivered: while one statement is on its way, what comes is for the next. */
function openSettling(deps: DeliveryWrites): Settling {
  let waiting: { readonly one: DeliveredAttempt; readonly done: PromiseWithResolvers<void> }[] = []
  let isRunning = false
  const run = async (webhookId: string, token: string) => {
    isRunning = true
    while (waiting.length > 0) {
      const batch = waiting
      waiting = []
      const all = batch.map(({ one }) => one)
      await settleDelivered(deps, webhookId, token, all).then(
        () => batch.forEach(({ done }) => void done.resolve()),
        (error: unknown) => batch.forEach(({ done }) => void done.reject(error)),
      )
    }
    isRunning = false
  }
  return (webhookId, token, one) => {
    const done = Promise.withResolvers<void>()
    waiting.push({ one, done })
    if (!isRunning) void run(webhookId, token)
    return done.promise
  }
}

/** A delivery with its text; undefined if the role may no longer see the row. */
type Composed = { readonly delivery: ClaimedDelivery; readonly text: string | undefined }

async function composed(
  deps: DeliveryWrites,
  sight: Sight,
  deliveries: readonly ClaimedDelivery[],
): Promise<readonly Composed[]> {
  const changes = deliveries.filter(({ action }) => !signs.has(action))
  const events = await readEvents(
    deps.db,
    changes.map(({ position }) => position),
  )
  const seen = await seenEvents(deps, deps.db, sight, events)
  return deliveries.map((delivery) => {
    const { action, collection, position, cursor } = delivery
    const place = `"position":"${position}"${cursor === null ? '' : `,"cursor":"${cursor}"`}`
    if (action === 'test') return { delivery, text: `{"type":"test","timestamp":"${deps.clock().toISOString()}"}` }
    if (action === 'resync')
      return { delivery, text: `{"type":"resync","collection":${JSON.stringify(collection)},${place}}` }
    const event = events.find((one) => one.position === position)
    const found = seen.get(position)
    if (event === undefined || found === undefined) return { delivery, text: undefined }
    const { row } = found
    const head = `"type":"change","collection":${JSON.stringify(collection)},"action":"${found.action}"`
    const time = `"timestamp":"${event.createdAt}"`
    if (row === undefined)
      return { delivery, text: `{${head},"id":${JSON.stringify(event.entityId)},"erased":true,${time},${place}}` }
    const data = found.action === 'create' || found.action === 'update' ? `,"data":${row.data}` : ''
    return { delivery, text: `{${head},"id":${row.key}${data},${time},${place}}` }
  })
}

const signs: ReadonlySet<string> = new Set(['test', 'resync'])

/** A webhook, and what its deliveries are signed with. */
type SigningWebhook = Webhook & { readonly secrets: readonly string[] }

type Sender = { readonly webhook: SigningWebhook; readonly sight: Sight }

/** Sends one. A slot is free again when the endpoint has answered; what it took is noted together with others. */
async function attempt(lane: EndpointLane, one: WaitingDelivery): Promise<void> {
  const { webhook, delivery, text } = one
  const { deps, ending, token } = lane
  const { id } = delivery
  const settle = async (result: DeliveryResult) => {
    const settled = await settleDelivery(deps, webhook.id, { id, token }, result)
    change(lane)
    return settled
  }
  if (text === undefined) {
    const error = 'its role does not see this any more'
    await settle({ status: 'withheld', inMs: 0, responseStatus: undefined, response: undefined, error, durationMs: 0 })
    return
  }
  const startedAt = performance.now()
  const answer = await post(deps, webhook, delivery, text, ending)
  if (ending.aborted && answer.status === undefined) {
    // Given back together with what waits.
    lane.queue.push(one)
    return
  }
  const verdict = verdictOn(answer, { attempts: delivery.attempts, ageMs: delivery.ageMs, chance: Math.random() })
  const { response, error } = answer
  const responseStatus = answer.status
  const durationMs = performance.now() - startedAt
  if (verdict.status === 'delivered') {
    noted(lane, lane.settle(webhook.id, token, { id, responseStatus: responseStatus!, response, durationMs }))
    lane.meanMs = lane.meanMs === undefined ? durationMs : lane.meanMs * 0.9 + durationMs * 0.1
    lane.ahead = aheadOf(lane.meanMs)
    return
  }
  // Further deliveries would wait for an endpoint in trouble.
  lane.ahead = slotsOfEndpoint
  lane.meanMs = undefined
  await giveBack(lane)
  const { failingMs } = await settle({ ...verdict, responseStatus, response, error, durationMs })
  if (answer.status === 410) await pause(deps, webhook, 'the endpoint answered 410: it is gone')
  else if (failingMs > longestFailingMs) await pause(deps, webhook, 'nothing has reached the endpoint for a day')
}

/** How many an endpoint that takes so long is sent within the time that is claimed ahead. */
export function aheadOf(meanMs: number): number {
  const sendable = Math.floor((slotsOfEndpoint * aheadMs) / Math.max(meanMs, 1))
  return Math.min(aheadAtMost, Math.max(slotsOfEndpoint, sendable))
}

const longestFailingMs = 86_400_000

type EndpointAnswer = {
  readonly status: number | undefined
  readonly retryAfterMs: number | undefined
  readonly response: string | undefined
  readonly error: string | undefined
}

type Attempted = { readonly attempts: number; readonly ageMs: number; readonly chance: number }

/**
 * Decides by an answer: any 2xx delivers; otherwise attempts go on for three days, with growing and random pauses, as
 * late as the endpoint asks for.
 */
export function verdictOn(
  { status, retryAfterMs }: Pick<EndpointAnswer, 'status' | 'retryAfterMs'>,
  { attempts, ageMs, chance }: Attempted,
): Pick<DeliveryResult, 'status' | 'inMs'> {
  if (status !== undefined && status >= 200 && status < 300) return { status: 'delivered', inMs: 0 }
  const planned = Math.min(firstRetryMs * 4 ** (attempts - 1), longestRetryMs) * (0.75 + chance / 2)
  const inMs = Math.round(Math.max(planned, Math.min(retryAfterMs ?? 0, longestRetryAfterMs)))
  return ageMs + inMs > longestTryingMs ? { status: 'dead', inMs: 0 } : { status: 'pending', inMs }
}

const firstRetryMs = 5000
const longestRetryMs = 6 * 3_600_000
const longestRetryAfterMs = 86_400_000
const longestTryingMs = 3 * 86_400_000

async function post(
  { clock, config }: DeliveryWrites,
  { url, secrets }: SigningWebhook,
  { id: deliveryId, depth, request }: ClaimedDelivery,
  text: string,
  signal: AbortSignal,
): Promise<EndpointAnswer> {
  const at = Math.floor(clock().getTime() / 1000)
  const headers = {
    'content-type': 'application/json',
    'user-agent': 'daybook-webhooks',
    'webhook-id': deliveryId,
    'webhook-timestamp': String(at),
    'webhook-signature': secrets.map((secret) => signatureOf(secret, deliveryId, at, text)).join(' '),
    ...(request !== null && { 'daybook-cause': `${request}/${depth}` }),
  }
  const clean = (said: string) => withoutSecrets(said, secrets)
  try {
    const answer = await fetchBeginning(url, {
      ...{ method: 'POST', headers, body: text, timeoutMs, bodyMs, signal, maxBytes: responseBytes },
      allowPrivate: config.files.allowPrivateUrlFetch,
    })
    const { status } = answer
    const error = status >= 200 && status < 300 ? undefined : `the endpoint answered ${status}`
    const response = clean(answer.body.toString('utf8').replaceAll('\0', ''))
    return { status, retryAfterMs: retryAfterOf(answer.headers['retry-after'], at * 1000), response, error }
  } catch (error) {
    if (!(error instanceof UrlFetchError)) throw error
    return { status: undefined, retryAfterMs: undefined, response: undefined, error: clean(error.message) }
  }
}

/** Seconds or a date. */
export function retryAfterOf(header: string | undefined, now: number): number | undefined {
  if (header === undefined) return undefined
  const ms = /^\d{1,9}$/.test(header) ? Number(header) * 1000 : Date.parse(header) - now
  return Number.isNaN(ms) ? undefined : Math.max(0, ms)
}
