import { createHmac, randomBytes, randomUUID } from 'node:crypto'
import { type Caller, identified } from '../../../access/principal.ts'
import { checkUrl, fetchBeginning, UrlFetchError } from '../../../adapters/fetch-url.ts'
import type { IdSource } from '../../../adapters/ids.ts'
import { seal, tryUnseal } from '../../../adapters/sealing.ts'
import type { Config, Configuration } from '../../../config/config.ts'
import type { Reads } from '../../../db/pools.ts'
import type { Reader, Tx } from '../../../db/sql.ts'
import {
  type ClaimedDelivery,
  claimDeliveries,
  type DeliveredAttempt,
  type DeliveryResult,
  returnClaims,
  settleDelivered,
  settleDelivery,
} from '../../../db/unlogged/messages.ts'
import { type Action, AppError, errors } from '../../../errors.ts'
import { commit, type Writes } from '../../../events/commit.ts'
import { moveTo } from '../../../events/consumer.ts'
import { currentCursor, readEvents } from '../../../events/log-reader.ts'
import { type Actor, type DomainEvent, systemActor } from '../../../events/types.ts'
import { isUuid } from '../../../language/text.ts'
import { queueMail } from '../mail/mail.ts'
import { insertNotification } from '../notifications/notifications.ts'
import {
  countWebhooks,
  type Delivery,
  deleteWebhook,
  deliveriesIn,
  deliveryIn,
  forgetReason,
  insertDeliveries,
  insertWebhook,
  lockWebhook,
  type NewWebhook,
  noteStopped,
  ownerOf,
  redeliver,
  secretsOf,
  setSecret,
  setStatus,
  updateWebhook,
  type Webhook,
  webhookById,
  webhooksOf,
} from './queries.ts'
import { deliveryId, placeName, refusalOf, type SightReads, seenBy, seenEvents, sightOf } from './sight.ts'

export { actionsOfWebhooks, deliveriesAbout, type Webhook, webhooksOf } from './queries.ts'
export { webhookConsumer } from './sight.ts'

export type WebhookWrites = SightReads & Writes & Reads & IdSource

/** The asking party, as the routes know it. */
type WebhookAsker = { readonly caller: Caller; readonly actor: Actor }

/** The members of a webhook; a change gives some of them. */
type WebhookInput = {
  readonly name: string
  readonly url: string
  readonly collections: readonly string[]
  readonly actions?: Webhook['actions']
  readonly filter?: Webhook['filter']
  readonly fields?: readonly string[] | null
  readonly role_Id?: string
  readonly tenant_Id?: string | null
}

type WebhookChange = Partial<WebhookInput> & { readonly status?: Webhook['status'] }

const webhooksAtMost = 50
/** A receiver may check by the former secret for a day. */
const formerHours = 24

/**
 * Makes a webhook; its secret is answered this one time. It follows the log from now on, with the role (and tenant) that it
 * names, by default the maker's.
 *
 * @throws {AppError} 403 without a grant, for a role that the maker may not assign, a tenant that is not that of the maker's
 *   session, and what the role may not read; 404 for an unknown collection; 400 for an address that may not be reached and for what makes no sense
 */
export async function createWebhook(deps: WebhookWrites, { caller, actor }: WebhookAsker, input: WebhookInput) {
  permit(caller, 'create')
  const { userId } = identified(caller)
  const { actions = null, filter = null, fields = null } = input
  const { role_Id = caller.role.id, tenant_Id = caller.tenantId ?? null } = input
  const id = deps.newId()
  const webhook: NewWebhook = { ...input, id, actions, filter, fields, role_Id, tenant_Id, user_Id: userId }
  await check(deps, deps.db, caller, webhook)
  const secret = newWebhookSecret()
  // Before its transaction has a number (ADR 39).
  const { snapshot } = await currentCursor(deps.db)
  return commit(deps, actor, async (tx) => {
    if ((await countWebhooks(tx, userId)) >= webhooksAtMost)
      throw new AppError(400, `At most ${webhooksAtMost} webhooks`)
    await insertWebhook(tx, webhook, sealSecret(deps, id, secret), snapshot)
    return { result: { id, secret } }
  })
}

/** The caller's webhooks at the tenant of its session; an administrator's are all. */
export async function listWebhooks({ db, config }: Reads & Configuration, caller: Caller): Promise<readonly Webhook[]> {
  permit(caller, 'read')
  return caller.admin ? webhooksOf(db, undefined) : webhooksOf(db, identified(caller).userId, boundTo(config, caller))
}

/**
 * The tenant that a caller's webhooks are at; undefined where there are no tenants, and for administrators. The grants of a
 * session are those of its tenant: at another one the user may have no rights to webhooks at all.
 */
function boundTo({ tenancy }: Config, { admin, tenantId }: Caller): string | null | undefined {
  return tenancy.enabled && !admin ? (tenantId ?? null) : undefined
}

function isAtOwnTenant(config: Config, caller: Caller, { tenant_Id }: Pick<Webhook, 'tenant_Id'>): boolean {
  const bound = boundTo(config, caller)
  return bound === undefined || bound === tenant_Id
}

/** 404 for one that is not the caller's to see. */
export async function readWebhook(
  { db, config }: Reads & Configuration,
  caller: Caller,
  id: string,
  action: Action = 'read',
): Promise<Webhook> {
  permit(caller, action)
  return seenWebhook(config, caller, isUuid(id) ? await webhookById(db, id) : undefined)
}

function seenWebhook(config: Config, caller: Caller, webhook: Webhook | undefined): Webhook {
  const isSeen =
    webhook !== undefined &&
    (caller.admin || webhook.user_Id === caller.userId) &&
    isAtOwnTenant(config, caller, webhook)
  if (!isSeen) throw new AppError(404, 'Webhook not found')
  return webhook
}

/**
 * Changes what is given, of the webhook as it is then: of simultaneous changes none undoes another. `paused` keeps its place
 * in the log; `active` has it go on there, with all that happened since.
 */
export async function changeWebhook(
  deps: WebhookWrites,
  { caller, actor }: WebhookAsker,
  id: string,
  { status, ...change }: WebhookChange,
): Promise<Webhook> {
  await readWebhook(deps, caller, id, 'update')
  return commit(deps, actor, async (tx) => {
    const webhook = { ...seenWebhook(deps.config, caller, await lockWebhook(tx, id)), ...change }
    if (Object.keys(change).length > 0 || status === 'active') await check(deps, tx, caller, webhook)
    if (status === 'active') await requireSecret({ db: tx, config: deps.config }, id)
    if (Object.keys(change).length > 0) await updateWebhook(tx, webhook)
    if (status !== undefined) await setStatus(tx, id, status, status === 'paused' ? 'by request' : null)
    return { result: (await webhookById(tx, id))! }
  })
}

/** Ends a webhook with its deliveries. */
export async function removeWebhook(deps: WebhookWrites, { caller, actor }: WebhookAsker, id: string): Promise<void> {
  await readWebhook(deps, caller, id, 'delete')
  await commit(deps, actor, async (tx) => ({ result: await deleteWebhook(tx, id) }))
}

/**
 * Gives a webhook another secret, answered this one time. For a day deliveries are signed with both, unless the key of the
 * former one is lost: nothing can be signed with that any more.
 */
export async function rotateSecret(deps: WebhookWrites, { caller, actor }: WebhookAsker, id: string) {
  await readWebhook(deps, caller, id, 'update')
  const secret = newWebhookSecret()
  return commit(deps, actor, async (tx) => {
    const former = (await secretsOf(tx, id))?.secret
    const isLost = former !== undefined && tryUnseal(deps.config, sealedForWebhook(id), former) === undefined
    await setSecret(tx, id, sealSecret(deps, id, secret), { formerHours, lost: isLost ? former : undefined })
    return { result: { id, secret } }
  })
}

/** Has a delivery sent that says nothing but that it is a test. Gives its id. */
export async function testWebhook(deps: WebhookWrites, { caller, actor }: WebhookAsker, id: string) {
  const webhook = await readWebhook(deps, caller, id, 'update')
  await requireSecret(deps, id)
  requireActive(webhook)
  const delivery = deliveryId(id, 'test', deps.newId())
  return commit(deps, actor, async (tx) => {
    const test = {
      position: '0',
      collection: null,
      action: 'test',
      itemId: null,
      cursor: null,
      depth: 0,
      request: null,
    }
    await insertDeliveries(tx, id, [{ id: delivery, ...test }])
    return { result: { id: delivery } }
  })
}

/**
 * Has a webhook be told everything again since a cursor or a moment; what it has had comes under the id of then.
 *
 * @throws {AppError} 400 for what is neither, 409 while it is paused
 */
export async function replayWebhook(
  deps: WebhookWrites,
  { caller, actor }: WebhookAsker,
  id: string,
  since: string,
): Promise<void> {
  const webhook = await readWebhook(deps, caller, id, 'update')
  requireActive(webhook)
  await moveTo(deps, placeName(id), since)
  await commit(deps, actor, async (tx) => ({ result: await forgetReason(tx, id) }))
}

export async function listDeliveries(
  deps: Reads & Configuration,
  caller: Caller,
  id: string,
  query: { readonly status?: string; readonly limit?: number },
): Promise<readonly Delivery[]> {
  await readWebhook(deps, caller, id)
  return deliveriesIn(deps.db, id, { status: query.status, limit: query.limit ?? 50 })
}

export async function readDelivery(
  deps: Reads & Configuration,
  caller: Caller,
  id: string,
  deliveryOf: string,
): Promise<Delivery> {
  await readWebhook(deps, caller, id)
  const delivery = isUuid(deliveryOf) ? await deliveryIn(deps.db, id, deliveryOf) : undefined
  if (delivery === undefined) throw deliveryNotFound()
  return delivery
}

/** Has one delivery sent once more, under its id; also one that was given up. */
export async function redeliverOne(
  deps: WebhookWrites,
  { caller, actor }: WebhookAsker,
  id: string,
  one: string,
): Promise<void> {
  requireActive(await readWebhook(deps, caller, id, 'update'))
  if (!isUuid(one)) throw deliveryNotFound()
  await commit(deps, actor, async (tx) => {
    if (!(await redeliver(tx, id, one))) throw deliveryNotFound()
    return { result: null }
  })
}

const deliveryNotFound = () => new AppError(404, 'Delivery not found')

function requireActive({ status }: Webhook): void {
  if (status === 'paused') throw new AppError(409, 'The webhook is paused', { code: 'WEBHOOK_PAUSED' })
}

/** Refuses what would only have the webhook paused, or paused again. */
async function requireSecret(deps: SecretReads, id: string): Promise<void> {
  if ((await openSecrets(deps, id)) === undefined)
    throw new AppError(409, `The webhook cannot sign: ${secretLost}`, { code: 'WEBHOOK_SECRET_LOST' })
}

function permit({ access }: Caller, action: Action): void {
  if (!access.admin && access.grant('svc_Webhook', action) === undefined)
    throw errors.actionDenied(action, 'svc_Webhook')
}

async function check(deps: WebhookWrites, db: Reader, caller: Caller, webhook: NewWebhook): Promise<void> {
  try {
    checkUrl(webhook.url, { allowPrivate: deps.config.files.allowPrivateUrlFetch })
  } catch (error) {
    if (error instanceof UrlFetchError) throw errors.badBody(`url: ${error.message}`)
    throw error
  }
  const isRefused = !isAtOwnTenant(deps.config, caller, webhook) || (await refusalOf(deps, db, webhook)) !== undefined
  if (isRefused) throw new AppError(403, 'You may not have a webhook see with this role at this tenant')
  sightOf(deps, webhook)
}

/*
 * Sending: what is due for an endpoint is claimed, composed as its role sees it now, signed and posted. A worker that dies on
 * the way has its claims taken over, so something may be sent twice, under the same id.
 */

type DeliveryWrites = SightReads & Writes

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
    const webhook = await signing(deps, webhookId)
    if (webhook === undefined) return await returnClaims(deps, token, idsOf(claimed))
    const ready = await composed(deps, webhook, claimed)
    lane.queue.push(...ready.map((one) => ({ ...one, webhook, claimedAt })))
  } catch (error) {
    lane.isDry = true
    deps.log.warn({ err: error, webhook: webhookId }, 'deliveries could not be claimed; they go on')
  } finally {
    lane.claiming = undefined
  }
}

/** A webhook with what it signs; undefined where it is gone, or is paused by now because it may or can send nothing. */
async function signing(deps: DeliveryWrites, id: string): Promise<SigningWebhook | undefined> {
  const webhook = await webhookById(deps.db, id)
  if (webhook === undefined) return undefined
  const secrets = await openSecrets(deps, id)
  const refusal = await refusalOf(deps, deps.db, webhook)
  if (secrets !== undefined && refusal === undefined) return { ...webhook, secrets }
  await pause(deps, webhook, refusal ?? secretLost)
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
  webhook: Webhook,
  deliveries: readonly ClaimedDelivery[],
): Promise<readonly Composed[]> {
  const sight = seenBy(deps, webhook)
  const changes = deliveries.filter(({ action }) => !signs.has(action))
  const events = await readEvents(
    deps.db,
    changes.map(({ position }) => position),
  )
  const seen = sight === undefined ? undefined : await seenEvents(deps, deps.db, sight, events)
  return deliveries.map((delivery) => {
    const { action, collection, position, cursor } = delivery
    const place = `"position":"${position}"${cursor === null ? '' : `,"cursor":"${cursor}"`}`
    if (action === 'test') return { delivery, text: `{"type":"test","timestamp":"${deps.clock().toISOString()}"}` }
    if (action === 'resync')
      return { delivery, text: `{"type":"resync","collection":${JSON.stringify(collection)},${place}}` }
    const event = events.find((one) => one.position === position)
    const found = seen?.get(position)
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

/** By the Standard Webhooks scheme: of id, time and body, with the key that the secret stands for. */
function signatureOf(secret: string, id: string, at: number, text: string): string {
  const key = Buffer.from(secret.slice(secretPrefix.length), 'base64')
  return `v1,${createHmac('sha256', key).update(`${id}.${at}.${text}`).digest('base64')}`
}

const secretPrefix = 'whsec_'

const newWebhookSecret = (): string => secretPrefix + randomBytes(32).toString('base64')

/** The purpose that the secret of a webhook is sealed for. */
export const sealedForWebhook = (webhookId: string) => ({ purpose: 'webhook', owner: webhookId })

const sealSecret = ({ config }: Configuration, webhookId: string, secret: string): string =>
  seal(config, sealedForWebhook(webhookId), secret)

/**
 * The present one first; the former one as long as it counts, and where it still opens: receivers have the present one by then.
 * Undefined where the present one does not open, as after a change of SECRET_KEY.
 */
async function openSecrets({ db, config }: SecretReads, id: string): Promise<readonly string[] | undefined> {
  const stored = await secretsOf(db, id)
  if (stored === undefined) return undefined
  const { secret, formerSecret, isFormerValid } = stored
  const open = (sealed: string) => tryUnseal(config, sealedForWebhook(id), sealed)?.text
  const [present, former] = [open(secret), isFormerValid && formerSecret !== null ? open(formerSecret) : undefined]
  if (present === undefined) return undefined
  return former === undefined ? [present] : [present, former]
}

type SecretReads = Configuration & { readonly db: Reader }

const secretLost =
  'its secret cannot be read with the present SECRET_KEY: rotate the secret, or set SECRET_KEY_PREVIOUS to the former key'

function withoutSecrets(text: string, secrets: readonly string[]): string {
  return secrets
    .flatMap((secret) => [secret, secret.slice(secretPrefix.length)])
    .reduce((rest, secret) => rest.replaceAll(secret, '********'), text)
}

/** Seconds or a date. */
export function retryAfterOf(header: string | undefined, now: number): number | undefined {
  if (header === undefined) return undefined
  const ms = /^\d{1,9}$/.test(header) ? Number(header) * 1000 : Date.parse(header) - now
  return Number.isNaN(ms) ? undefined : Math.max(0, ms)
}

/** Pauses a webhook and tells its owner, by mail and by a notification. Its place in the log is kept. */
async function pause(deps: DeliveryWrites, webhook: Webhook, reason: string): Promise<void> {
  const { id } = webhook
  const message = `is paused: ${reason}. Changes are kept for it; resume it when this is mended.`
  const isPaused = await commit(deps, systemActor, async (tx) => {
    if (!(await setStatus(tx, id, 'paused', reason))) return { result: false }
    return { result: true, events: await tellOwner(tx, webhook, 'is paused', message) }
  })
  if (isPaused) deps.log.warn({ webhook: id, reason }, 'a webhook was paused')
}

/**
 * Tells the owners of webhooks whose place retention has taken from the log, once for each: they have missed changes, and a
 * replay has them go on.
 */
export async function tellOfStopped(deps: DeliveryWrites): Promise<void> {
  const noted = await commit(deps, systemActor, async (tx) => {
    const stopped = await noteStopped(tx, stoppedReason)
    const message = `has stopped: ${stoppedReason}. Have the receiver read the collections anew, and replay the webhook since now.`
    const events: DomainEvent[] = []
    for (const webhook of stopped) events.push(...(await tellOwner(tx, webhook, 'has stopped', message)))
    return { result: stopped.map(({ id }) => id), events }
  })
  if (noted.length > 0)
    deps.log.warn({ webhooks: noted }, 'webhooks have stopped: the log they had yet to read is removed')
}

const stoppedReason = 'it was away for longer than the log is kept for it, so changes were missed'

/** By mail and by a notification, where there still is an owner. */
async function tellOwner(
  tx: Tx,
  { id, name, user_Id, tenant_Id }: Webhook,
  what: string,
  more: string,
): Promise<readonly DomainEvent[]> {
  const owner = await ownerOf(tx, user_Id)
  if (owner === undefined) return []
  const title = `The webhook ${name} ${what}`
  const message = `The webhook “${name}” ${more}`
  await insertNotification(tx, { userId: user_Id, tenantId: tenant_Id, type: 'webhook', title, message, data: { id } })
  const { event } = await queueMail(tx, {
    ...{ type: 'custom', to: owner.email, user: { id: user_Id } },
    ...(tenant_Id !== null && { tenantId: tenant_Id }),
    context: {
      template: 'notification',
      variables: { notification_title: title, notification_message: message, action_url: '', action_text: '' },
    },
  })
  return [event]
}
