import { type Reader, rawQuery, sql, type Tx } from '../../../db/sql.ts'
import type { NewDelivery } from '../../../db/unlogged/messages.ts'
import type { LastingEffect, UndoneEvents } from '../../data/items/items.ts'

export const actionsOfWebhooks = ['create', 'update', 'delete', 'remove'] as const
type WebhookAction = (typeof actionsOfWebhooks)[number]

export type Webhook = {
  readonly id: string
  readonly name: string
  readonly url: string
  readonly collections: readonly string[]
  /** Null for all. */
  readonly actions: readonly WebhookAction[] | null
  readonly filter: Readonly<Record<string, unknown>> | null
  readonly fields: readonly string[] | null
  readonly status: 'active' | 'paused'
  readonly reason: string | null
  readonly role_Id: string
  readonly tenant_Id: string | null
  readonly user_Id: string
  readonly createdAt: Date
  readonly updatedAt: Date
}

export type NewWebhook = Omit<Webhook, 'status' | 'reason' | 'createdAt' | 'updatedAt'>

const columns = `id, name, url, collections, actions, filter, fields, status, reason, "role_Id", "tenant_Id", "user_Id",
  "createdAt", "updatedAt"`

/** All, or those of one owner; `tenantId`: those at a tenant only, or with null those without one. */
export function webhooksOf(
  db: Reader,
  userId: string | undefined,
  tenantId?: string | null,
): Promise<readonly Webhook[]> {
  return db.any<Webhook>(
    rawQuery(
      `select ${columns} from "svc_Webhook"
       where ($1::uuid is null or "user_Id" = $1) and (not $2 or "tenant_Id" is not distinct from $3::uuid)
       order by "createdAt", id`,
      [userId ?? null, tenantId !== undefined, tenantId ?? null],
    ),
  )
}

export function webhookById(db: Reader, id: string): Promise<Webhook | undefined> {
  return db.maybeOne<Webhook>(rawQuery(`select ${columns} from "svc_Webhook" where id = $1`, [id]))
}

/** The same as it is now; no other transaction changes it before this one ends. */
export function lockWebhook(tx: Tx, id: string): Promise<Webhook | undefined> {
  return tx.maybeOne<Webhook>(rawQuery(`select ${columns} from "svc_Webhook" where id = $1 for no key update`, [id]))
}

type SealedSecrets = {
  readonly secret: string
  readonly formerSecret: string | null
  readonly isFormerValid: boolean
}

export function secretsOf(db: Reader, id: string): Promise<SealedSecrets | undefined> {
  return db.maybeOne<SealedSecrets>(
    rawQuery(
      `select secret, "formerSecret", coalesce("formerUntil" > now(), false) as "isFormerValid" from "svc_Webhook" where id = $1`,
      [id],
    ),
  )
}

/** How many the user has. Others who make one for the user wait for the end of the transaction. */
export async function countWebhooks(tx: Tx, userId: string): Promise<number> {
  await tx.any(rawQuery('select id from "svc_User" where id = $1 for no key update', [userId]))
  const { count } = await tx.one<{ count: number }>(
    rawQuery('select count(*)::int as count from "svc_Webhook" where "user_Id" = $1', [userId]),
  )
  return count
}

/** `place`: the snapshot from which on it follows the log. */
export async function insertWebhook(tx: Tx, webhook: NewWebhook, sealed: string, place: string): Promise<void> {
  const { id, name, url, collections, actions, filter, fields, role_Id, tenant_Id, user_Id } = webhook
  await tx.any(
    rawQuery(
      `insert into "svc_Webhook" (id, name, url, collections, actions, filter, fields, "role_Id", "tenant_Id", "user_Id", secret)
       values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`,
      [
        ...[id, name, url, JSON.stringify(collections), jsonOrNull(actions), jsonOrNull(filter), jsonOrNull(fields)],
        ...[role_Id, tenant_Id, user_Id, sealed],
      ],
    ),
  )
  await tx.any(
    rawQuery(`insert into svc_log.consumer (name, snapshot) values ('webhook:' || $1::uuid, $2::pg_snapshot)`, [
      id,
      place,
    ]),
  )
}

const jsonOrNull = (value: unknown): string | null => (value === null ? null : JSON.stringify(value))

/** Changes everything but its state and its secret. */
export async function updateWebhook(tx: Tx, webhook: NewWebhook): Promise<void> {
  const { id, name, url, collections, actions, filter, fields, role_Id, tenant_Id } = webhook
  await tx.any(
    rawQuery(
      `update "svc_Webhook" set name = $2, url = $3, collections = $4, actions = $5, filter = $6, fields = $7,
         "role_Id" = $8, "tenant_Id" = $9, "updatedAt" = now() where id = $1`,
      [
        ...[id, name, url, JSON.stringify(collections), jsonOrNull(actions), jsonOrNull(filter), jsonOrNull(fields)],
        ...[role_Id, tenant_Id],
      ],
    ),
  )
}

/** Pauses it, or has it go on; its place in the log stays as it is. False where it is so already. */
export async function setStatus(
  tx: Tx,
  id: string,
  status: Webhook['status'],
  reason: string | null,
): Promise<boolean> {
  const changed = await tx.any(
    rawQuery(
      `update "svc_Webhook" set status = $2, reason = $3, "updatedAt" = now() where id = $1 and status <> $2 returning id`,
      [id, status, reason],
    ),
  )
  if (changed.length === 0) return false
  const [from, to] = status === 'paused' ? ['running', 'paused'] : ['paused', 'running']
  await tx.any(
    rawQuery(
      `update svc_log.consumer set state = $3, token = null, "leaseUntil" = null
       where name = 'webhook:' || $1::uuid and state = $2`,
      [id, from, to],
    ),
  )
  if (status === 'active') await tx.any(rawQuery(`delete from "svc_WebhookFailing" where "webhook_Id" = $1`, [id]))
  return true
}

/** Notes of webhooks whose consumers were stopped why that is; gives those of which it was not noted yet. */
export function noteStopped(tx: Tx, reason: string): Promise<readonly Webhook[]> {
  return tx.any<Webhook>(
    rawQuery(
      `update "svc_Webhook" set reason = $1, "updatedAt" = now()
       where reason is distinct from $1
         and 'webhook:' || id in (select name from svc_log.consumer where state = 'stopped')
       returning ${columns}`,
      [reason],
    ),
  )
}

/** Forgets the reason recorded for its place, which no longer applies. */
export async function forgetReason(tx: Tx, id: string): Promise<void> {
  await tx.any(rawQuery(`update "svc_Webhook" set reason = null where id = $1 and reason is not null`, [id]))
}

/** The present one becomes the former one, unless it is `lost`: compared here, as another rotation may be under way. */
export async function setSecret(
  tx: Tx,
  id: string,
  sealed: string,
  { formerHours, lost }: { readonly formerHours: number; readonly lost: string | undefined },
): Promise<void> {
  await tx.any(
    rawQuery(
      `update "svc_Webhook" set "formerSecret" = nullif(secret, $4), "formerUntil" = now() + make_interval(hours => $3),
         secret = $2, "updatedAt" = now() where id = $1`,
      [id, sealed, formerHours, lost ?? null],
    ),
  )
}

export async function deleteWebhook(tx: Tx, id: string): Promise<void> {
  await tx.any(rawQuery(`delete from "svc_Webhook" where id = $1`, [id]))
  await tx.any(rawQuery(`delete from svc_log.consumer where name = 'webhook:' || $1::uuid`, [id]))
}

type WebhookOwner = {
  readonly email: string
  readonly memberships: readonly { readonly roleId: string; readonly tenantId: string | null }[]
}

/** An active user and its memberships. */
export function ownerOf(db: Reader, userId: string): Promise<WebhookOwner | undefined> {
  return db.maybeOne<WebhookOwner>(sql`
    select u.email, (select coalesce(jsonb_agg(jsonb_build_object('roleId', ur."role_Id", 'tenantId', ur."tenant_Id")), '[]')
      from "svc_UserRole" ur where ur."user_Id" = u.id) as memberships
    from "svc_User" u where u.id = ${userId} and u.status = 'active'`)
}

/** A replay delivers again what was delivered before. */
export async function insertDeliveries(tx: Tx, webhookId: string, deliveries: readonly NewDelivery[]): Promise<void> {
  if (deliveries.length === 0) return
  await tx.any(
    rawQuery(
      `insert into "svc_WebhookDelivery" as d (id, "webhook_Id", "tenant_Id", position, collection, action, "itemId", cursor, depth, request, "nextAt")
       select n.id, $1, (select w."tenant_Id" from "svc_Webhook" w where w.id = $1), n.position, n.collection, n.action, n."itemId", n.cursor, n.depth, n.request, now()
       from jsonb_to_recordset($2::jsonb) n (id uuid, position bigint, collection text, action text, "itemId" text,
         cursor text, depth int, request uuid)
       on conflict (id) do update set ${againSql}`,
      [webhookId, JSON.stringify(deliveries)],
    ),
  )
}

const againSql = `status = 'pending', attempts = 0, "nextAt" = now(), "createdAt" = now(), "updatedAt" = now(),
  "claimToken" = null, "claimedUntil" = null, error = null, response = null, "responseStatus" = null`

/** Has one delivered once more. False when there is none. */
export async function redeliver(tx: Tx, webhookId: string, id: string): Promise<boolean> {
  const rows = await tx.any(
    rawQuery(`update "svc_WebhookDelivery" set ${againSql} where id = $2 and "webhook_Id" = $1 returning id`, [
      webhookId,
      id,
    ]),
  )
  return rows.length === 1
}

/** The deliveries about events, made or planned; by webhook. */
export async function deliveriesAbout(
  db: Reader,
  { positions, since }: UndoneEvents,
): Promise<readonly LastingEffect[]> {
  return db.any<LastingEffect>(
    rawQuery(
      `select 'webhook.delivery' as event, w.id, d.count,
         to_char(d.at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as at
       from "svc_Webhook" w cross join lateral (
         select count(*)::int as count, max("updatedAt") as at from "svc_WebhookDelivery"
         where "webhook_Id" = w.id and "createdAt" >= $2::timestamptz and position = any($1::bigint[])
           and action not in ('resync', 'test') and status in ('pending', 'delivered')) d
       where d.count > 0 order by w.id`,
      [positions, since],
    ),
  )
}

export type Delivery = {
  readonly id: string
  readonly collection: string | null
  readonly action: string
  readonly itemId: string | null
  readonly position: string
  readonly status: 'pending' | 'delivered' | 'withheld' | 'dead'
  readonly attempts: number
  readonly nextAt: Date | null
  readonly responseStatus: number | null
  readonly response: string | null
  readonly error: string | null
  readonly durationMs: number | null
  readonly createdAt: Date
  readonly updatedAt: Date
}

const deliveryColumns = `id, collection, action, "itemId", position::text, status, attempts,
  case when status = 'pending' then "nextAt" end as "nextAt", "responseStatus", response, error, "durationMs", "createdAt", "updatedAt"`

/** The newest first. */
export function deliveriesIn(
  db: Reader,
  webhookId: string,
  { status, limit }: { readonly status: string | undefined; readonly limit: number },
): Promise<readonly Delivery[]> {
  return db.any<Delivery>(
    rawQuery(
      `select ${deliveryColumns} from "svc_WebhookDelivery" where "webhook_Id" = $1 and ($2::text is null or status::text = $2)
       order by "createdAt" desc, position desc limit $3`,
      [webhookId, status ?? null, limit],
    ),
  )
}

export function deliveryIn(db: Reader, webhookId: string, id: string): Promise<Delivery | undefined> {
  return db.maybeOne<Delivery>(
    rawQuery(`select ${deliveryColumns} from "svc_WebhookDelivery" where "webhook_Id" = $1 and id = $2`, [
      webhookId,
      id,
    ]),
  )
}
