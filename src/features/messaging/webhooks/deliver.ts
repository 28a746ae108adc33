import { createHmac, randomBytes, randomUUID } from 'node:crypto'
import { fetchBeginning, UrlFetchError } from '../../../adapters/fetch-url.ts'
import { seal, unseal } from '../../../adapters/sealing.ts'
import type { Configuration } from '../../../config/config.ts'
import type { Tx } from '../../../db/sql.ts'
import {
  type ClaimedDelivery,
  claimDeliveries,
  type DeliveryResult,
  settleDelivery,
} from '../../../db/unlogged/webhooks.ts'
import { commit, type Writes } from '../../../events/commit.ts'
import { readEvents } from '../../../events/log-reader.ts'
import { type DomainEvent, systemActor } from '../../../events/types.ts'
import { queueMail } from '../mail/mail.ts'
import { insertNotification } from '../notifications/notifications.ts'
import { noteStopped, ownerOf, secretsOf, setStatus, type Webhook, webhookById } from './queries.ts'
import { refusalOf, type SightReads, seenBy, seenEvents } from './sight.ts'

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

/**
 * Sends what is due for one endpoint until there is nothing more, or `signal` aborts. Endpoints do not wait for each other:
 * each has slots of its own.
 */
export async function deliverTo(rt: DeliveryWrites, webhookId: string, signal: AbortSignal): Promise<void> {
  const running = new Set<Promise<void>>()
  const token = randomUUID()
  while (!signal.aborted) {
    // Some at a time: a statement for each that has ended would cost more than the sending.
    const free = slotsOfEndpoint - running.size
    const claimed = free * 2 < slotsOfEndpoint ? [] : await claimDeliveries(rt, webhookId, token, free, claimMs)
    if (claimed.length === 0 && running.size === 0) return
    const webhook = claimed.length === 0 ? undefined : await webhookById(rt.db, webhookId)
    const secrets = webhook === undefined ? [] : await openSecrets(rt, webhookId)
    for (const { delivery, text } of webhook === undefined ? [] : await composed(rt, webhook, claimed)) {
      const sent = attempt(rt, { ...webhook!, secrets }, delivery, text, token)
        .catch((error) =>
          rt.log.warn({ err: error, delivery: delivery.id }, 'a delivery could not be noted; it is done again'),
        )
        .finally(() => running.delete(sent))
      running.add(sent)
    }
    if (running.size > 0) await Promise.race(running)
  }
  await Promise.all(running)
}

/** What is sent, as text; undefined for what the role may not see any more. */
type Composed = { readonly delivery: ClaimedDelivery; readonly text: string | undefined }

async function composed(
  rt: DeliveryWrites,
  webhook: Webhook,
  deliveries: readonly ClaimedDelivery[],
): Promise<readonly Composed[]> {
  const refusal = await refusalOf(rt, rt.db, webhook)
  if (refusal !== undefined) {
    await pause(rt, webhook, refusal)
    return []
  }
  const sight = seenBy(rt, webhook)
  const changes = deliveries.filter(({ action }) => !signs.has(action))
  const events = await readEvents(
    rt.db,
    changes.map(({ position }) => position),
  )
  const seen = sight === undefined ? undefined : await seenEvents(rt, rt.db, sight, events)
  return deliveries.map((delivery) => {
    const { action, collection, position, cursor } = delivery
    const place = `"position":"${position}"${cursor === null ? '' : `,"cursor":"${cursor}"`}`
    if (action === 'test') return { delivery, text: `{"type":"test","timestamp":"${rt.clock().toISOString()}"}` }
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
type Signing = Webhook & { readonly secrets: readonly string[] }

async function attempt(
  rt: DeliveryWrites,
  webhook: Signing,
  delivery: ClaimedDelivery,
  text: string | undefined,
  token: string,
): Promise<void> {
  const settle = (result: DeliveryResult) => settleDelivery(rt, webhook.id, { id: delivery.id, token }, result)
  if (text === undefined) {
    const error = 'its role does not see this any more'
    await settle({ status: 'withheld', inMs: 0, responseStatus: undefined, response: undefined, error, durationMs: 0 })
    return
  }
  const startedAt = performance.now()
  const answer = await post(rt, webhook, delivery, text)
  const verdict = verdictOn(answer, { attempts: delivery.attempts, ageMs: delivery.ageMs, chance: Math.random() })
  const { response, error } = answer
  const responseStatus = answer.status
  const durationMs = performance.now() - startedAt
  const { failingMs } = await settle({ ...verdict, responseStatus, response, error, durationMs })
  if (verdict.status === 'delivered') return
  if (answer.status === 410) await pause(rt, webhook, 'the endpoint answered 410: it is gone')
  else if (failingMs > longestFailingMs) await pause(rt, webhook, 'nothing has reached the endpoint for a day')
}

const longestFailingMs = 86_400_000

type Answer = {
  readonly status: number | undefined
  readonly retryAfterMs: number | undefined
  readonly response: string | undefined
  readonly error: string | undefined
}

type Attempted = { readonly attempts: number; readonly ageMs: number; readonly chance: number }

/**
 * What follows from an answer: delivered by any 2xx, else tried again for three days, ever more seldom and not all at the
 * same moment, as late as the endpoint asks for.
 */
export function verdictOn(
  { status, retryAfterMs }: Pick<Answer, 'status' | 'retryAfterMs'>,
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
  rt: DeliveryWrites,
  { url, secrets }: Signing,
  { id: deliveryId, depth, request }: ClaimedDelivery,
  text: string,
): Promise<Answer> {
  const at = Math.floor(rt.clock().getTime() / 1000)
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
      ...{ method: 'POST', headers, body: text, timeoutMs, maxBytes: responseBytes },
      allowPrivate: rt.config.files.allowPrivateUrlFetch,
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

export const newWebhookSecret = (): string => secretPrefix + randomBytes(32).toString('base64')

const sealedFor = (webhookId: string) => ({ purpose: 'webhook', owner: webhookId })

export const sealSecret = ({ config }: Configuration, webhookId: string, secret: string): string =>
  seal(config, sealedFor(webhookId), secret)

/** The present one first; the former one as long as it counts. */
async function openSecrets(rt: DeliveryWrites, webhookId: string): Promise<readonly string[]> {
  const stored = await secretsOf(rt.db, webhookId)
  if (stored === undefined) return []
  const { secret, formerSecret, isFormerValid } = stored
  const sealed = isFormerValid && formerSecret !== null ? [secret, formerSecret] : [secret]
  return sealed.map((one) => unseal(rt.config, sealedFor(webhookId), one).text)
}

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
async function pause(rt: DeliveryWrites, webhook: Webhook, reason: string): Promise<void> {
  const { id } = webhook
  const message = `is paused: ${reason}. Changes are kept for it; resume it when this is mended.`
  const isPaused = await commit(rt, systemActor, async (tx) => {
    if (!(await setStatus(tx, id, 'paused', reason))) return { result: false }
    return { result: true, events: await tellOwner(tx, webhook, 'is paused', message) }
  })
  if (isPaused) rt.log.warn({ webhook: id, reason }, 'a webhook was paused')
}

/**
 * Tells the owners of webhooks whose place retention has taken from the log, once for each: they have missed changes, and a
 * replay has them go on.
 */
export async function tellOfStopped(rt: DeliveryWrites): Promise<void> {
  const noted = await commit(rt, systemActor, async (tx) => {
    const stopped = await noteStopped(tx, stoppedReason)
    const message = `has stopped: ${stoppedReason}. Have the receiver read the collections anew, and replay the webhook since now.`
    const events: DomainEvent[] = []
    for (const webhook of stopped) events.push(...(await tellOwner(tx, webhook, 'has stopped', message)))
    return { result: stopped.map(({ id }) => id), events }
  })
  if (noted.length > 0)
    rt.log.warn({ webhooks: noted }, 'webhooks have stopped: the log they had yet to read is removed')
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
