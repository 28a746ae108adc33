import { type Caller, identified } from '../../../access/principal.ts'
import { checkUrl, UrlFetchError } from '../../../adapters/fetch-url.ts'
import type { IdSource } from '../../../adapters/ids.ts'
import { unseal } from '../../../adapters/sealing.ts'
import type { Config, Configuration } from '../../../config/config.ts'
import type { Reads } from '../../../db/pools.ts'
import type { Reader } from '../../../db/sql.ts'
import { type Action, AppError, errors } from '../../../errors.ts'
import { commit, type Writes } from '../../../events/commit.ts'
import { moveTo } from '../../../events/consumer.ts'
import { currentCursor } from '../../../events/log-reader.ts'
import type { Actor } from '../../../events/types.ts'
import { isUuid } from '../../../language/text.ts'
import { placeName } from './following.ts'
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
  redeliver,
  secretsOf,
  setSecret,
  setStatus,
  updateWebhook,
  type Webhook,
  webhookById,
  webhooksOf,
} from './queries.ts'
import { newWebhookSecret, openSecrets, type SecretReads, sealedForWebhook, sealSecret, secretLost } from './secrets.ts'
import { deliveryId, refusalOf, type SightReads, sightOf } from './sight.ts'

export { webhookConsumer } from './following.ts'
export { tellOfStopped } from './pausing.ts'
export { actionsOfWebhooks, deliveriesAbout, type Webhook, webhooksOf } from './queries.ts'
export { sealedForWebhook } from './secrets.ts'
export { deliverTo } from './sending.ts'

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
    const isLost = former !== undefined && unseal(deps.config, sealedForWebhook(id), former) === undefined
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
