import type { UnloggedWrites } from '../sql.ts'
import { run } from './run.ts'

/* Claims of mails: who is sending one, and that it lives. */

/** Begins the time of a claim anew; false when it was lost. */
export async function renewMailClaim(deps: UnloggedWrites, emailLogId: string, claimToken: string): Promise<boolean> {
  const rows = await run(
    deps,
    `update "svc_EmailLog" set "claimedAt" = now() where id = $1 and "claimToken" = $2 returning 1`,
    [emailLogId, claimToken],
  )
  return rows.length === 1
}

// The development inbox: mails that are not sent, with the secrets in them. It has no rows in production.

type DevelopmentMail = {
  readonly emailLogId: string
  readonly subject: string
  readonly html: string
  readonly text: string
}

const developmentMailsKept = 500

/** Keeps a mail as it would have been sent, once, and forgets the oldest of very many. */
export async function keepDevelopmentMail(deps: UnloggedWrites, mail: DevelopmentMail): Promise<void> {
  await run(
    deps,
    `with old as (
       delete from "svc_DevelopmentMail"
       where "keptAt" < (select "keptAt" from "svc_DevelopmentMail" order by "keptAt" desc offset $5 limit 1))
     insert into "svc_DevelopmentMail" ("emailLogId", subject, html, text) values ($1, $2, $3, $4)
     on conflict ("emailLogId") do update
       set subject = excluded.subject, html = excluded.html, text = excluded.text, "keptAt" = now()`,
    [mail.emailLogId, mail.subject, mail.html, mail.text, developmentMailsKept],
  )
}

/* Deliveries of webhooks: the claims of workers and the outcomes. `commit` decides what is to be delivered. */

/** Something that is to be delivered. */
export type NewDelivery = {
  readonly id: string
  readonly position: string
  readonly collection: string | null
  readonly action: string
  readonly itemId: string | null
  readonly cursor: string | null
  readonly depth: number
  readonly request: string | null
}

export type ClaimedDelivery = NewDelivery & { readonly attempts: number; readonly ageMs: number }

/** Webhooks that have something to deliver now. */
export async function webhooksWithWork(deps: UnloggedWrites): Promise<readonly string[]> {
  const rows = await run<{ id: string }>(
    deps,
    `select w.id from "svc_Webhook" w where w.status = 'active' and exists (
       select from "svc_WebhookDelivery" d where d."webhook_Id" = w.id and d.status = 'pending' and d."nextAt" <= now()
         and (d."claimedUntil" is null or d."claimedUntil" < now()))`,
    [],
  )
  return rows.map(({ id }) => id)
}

/**
 * Claims what is due for an endpoint, at most `atMost`. Of one record only what nothing earlier is before: it holds back its
 * own record and no other. That is asked row by row, in the order of the index, until there are enough: as a join it would be
 * computed for all that waits, which may be a backlog of days.
 */
export function claimDeliveries(
  deps: UnloggedWrites,
  webhookId: string,
  token: string,
  atMost: number,
  forMs: number,
): Promise<readonly ClaimedDelivery[]> {
  return run<ClaimedDelivery>(
    deps,
    `update "svc_WebhookDelivery" c set "claimToken" = $2, "claimedUntil" = now() + $4::int * interval '1 ms', attempts = c.attempts + 1
     from (
       select d.id from "svc_WebhookDelivery" d join "svc_Webhook" w on w.id = d."webhook_Id" and w.status = 'active'
       where d."webhook_Id" = $1 and d.status = 'pending' and d."nextAt" <= now()
         and (d."claimedUntil" is null or d."claimedUntil" < now())
         and (d."itemId" is null or d.position = (
           select e.position from "svc_WebhookDelivery" e where e."webhook_Id" = d."webhook_Id" and e.status = 'pending'
             and e.collection = d.collection and e."itemId" = d."itemId" order by e.position limit 1))
       order by d."nextAt", d.position limit $3 for update of d skip locked) due
     where c.id = due.id
     returning c.id, c.position::text, c.collection, c.action, c."itemId", c.cursor, c.depth, c.request, c.attempts,
       (extract(epoch from now() - c."createdAt") * 1000)::float8 as "ageMs"`,
    [webhookId, token, atMost, forMs],
  )
}

export type DeliveryResult = {
  readonly status: 'pending' | 'delivered' | 'withheld' | 'dead'
  /** Until the next attempt. */
  readonly inMs: number
  readonly responseStatus: number | undefined
  readonly response: string | undefined
  readonly error: string | undefined
  readonly durationMs: number
}

/** The recorded outcome: whether the claim still counted, and for how long nothing has reached the endpoint. */
type Settled = { readonly isOwn: boolean; readonly failingMs: number }

/** Notes what came of an attempt, where its claim was not lost, and of its endpoint whether anything reaches it. */
export async function settleDelivery(
  deps: UnloggedWrites,
  webhookId: string,
  { id, token }: { readonly id: string; readonly token: string },
  { status, inMs, responseStatus, response, error, durationMs }: DeliveryResult,
): Promise<Settled> {
  const result = [responseStatus ?? null, response ?? null, error ?? null, Math.round(durationMs)]
  const [row] = await run<Settled>(
    deps,
    `with settled as (
       update "svc_WebhookDelivery" set status = $3, "nextAt" = now() + $4::float8 * interval '1 ms', "responseStatus" = $5,
         response = $6, error = $7, "durationMs" = $8, "claimToken" = null, "claimedUntil" = null, "updatedAt" = now()
       where id = $1 and "claimToken" = $2 and status = 'pending' returning 1),
     ${endpointSql[status === 'pending' || status === 'dead' ? 'failing' : status]}
     select exists(select from settled) as "isOwn", coalesce((select ms from failing), 0) as "failingMs"`,
    [id, token, status, inMs, ...result, webhookId],
  )
  return row!
}

/** An attempt that has reached the endpoint. */
export type DeliveredAttempt = {
  readonly id: string
  readonly responseStatus: number
  readonly response: string | undefined
  readonly durationMs: number
}

/** The same for many that an endpoint has taken, where their claims were not lost. */
export async function settleDelivered(
  deps: UnloggedWrites,
  webhookId: string,
  token: string,
  delivered: readonly DeliveredAttempt[],
): Promise<void> {
  const rows = delivered.map(({ durationMs, ...one }) => ({ ...one, durationMs: Math.round(durationMs) }))
  await run(
    deps,
    `with settled as (
       update "svc_WebhookDelivery" d set status = 'delivered', "nextAt" = now(), "responseStatus" = r."responseStatus",
         response = r.response, error = null, "durationMs" = r."durationMs", "claimToken" = null, "claimedUntil" = null, "updatedAt" = now()
       from json_to_recordset($1::json) as r (id uuid, "responseStatus" int, response text, "durationMs" int)
       where d.id = r.id and d."claimToken" = $2 and d.status = 'pending')
     delete from "svc_WebhookFailing" where "webhook_Id" = $3`,
    [JSON.stringify(rows), token, webhookId],
  )
}

/** Gives claims back of what was not sent. */
export async function returnClaims(deps: UnloggedWrites, token: string, ids: readonly string[]): Promise<void> {
  await run(
    deps,
    `update "svc_WebhookDelivery" set "claimToken" = null, "claimedUntil" = null, attempts = attempts - 1
     where id = any($2::uuid[]) and "claimToken" = $1 and status = 'pending'`,
    [token, ids],
  )
}

/**
 * A withheld delivery says nothing about the endpoint. An endpoint that works has no row, which one statement finds out
 * on the way.
 */
const endpointSql = {
  failing: `failing as (
       insert into "svc_WebhookFailing" as f ("webhook_Id") values ($9)
       on conflict ("webhook_Id") do update set since = f.since
       returning (extract(epoch from now() - since) * 1000)::float8 as ms)`,
  delivered: `failing as (delete from "svc_WebhookFailing" where "webhook_Id" = $9 returning 0::float8 as ms)`,
  withheld: `failing as (select 0::float8 as ms where $9::uuid is null)`,
} as const

/** Forgets the places of webhooks that are gone. */
export async function dropPlacesOfWebhooks(deps: UnloggedWrites): Promise<void> {
  await run(
    deps,
    `delete from svc_log.consumer c where starts_with(c.name, 'webhook:')
       and not exists (select from "svc_Webhook" w where c.name = 'webhook:' || w.id::text)
       and c."advancedAt" < now() - interval '1 minute'`,
    [],
  )
}
