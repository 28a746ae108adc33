import { type Reader, rawQuery } from '../../../db/sql.ts'
import { AppError } from '../../../errors.ts'
import { bossSchema } from '../../../events/jobs.ts'
import { isUuid } from '../../../language/uuid.ts'

/** The effects of a request outside of its rows: jobs, with their mails and deliveries of webhooks. */
type RequestEffects = {
  /** The request, and those that it led to, of which the first 200 are looked at. */
  readonly requests: readonly string[]
  readonly mails: readonly Readonly<Record<string, unknown>>[]
  readonly jobs: readonly Readonly<Record<string, unknown>>[]
  readonly deliveries: readonly Readonly<Record<string, unknown>>[]
}

const mostRequests = 200
/** Of each kind. */
const mostRows = 200

/** `GET /log/requests/{id}/effects`. 404 for a request without events. */
export async function effectsOf(db: Reader, id: string): Promise<RequestEffects> {
  const known = isUuid(id) ? await requestsFrom(db, id.toLowerCase()) : undefined
  if (known === undefined) throw new AppError(404, 'The log has no such request')
  const { requests, since, until } = known
  const [found] = await db.any<Omit<RequestEffects, 'requests'>>(rawQuery(effectsSql, [requests, since, until]))
  return { requests, ...found! }
}

type Known = { readonly requests: readonly string[]; readonly since: string; readonly until: string }

/** Found by the time in the id of each, as the log writes all of a request soon after it. */
async function requestsFrom(db: Reader, id: string): Promise<Known | undefined> {
  const [found] = await db.any<Known & { readonly events: number }>(
    rawQuery(
      `with recursive caused(id) as (
         select $1::text
         union
         select l."logRequestId"::text from caused c join "svc_AuditLog" l on l.cause is not null and l.cause->>'request' = c.id
         where l."logRequestId" is not null),
       few as (select id from caused limit ${mostRequests}),
       times as (select id, to_timestamp(('x' || lpad(left(replace(id, '-', ''), 12), 16, '0'))::bit(64)::bigint / 1000.0) as at from few)
       select (select json_agg(id) from few) as requests,
         (select min(at) - interval '2 minutes' from times)::text as since,
         (select max(at) + interval '15 minutes' from times)::text as until,
         (select count(*)::int from (select from "svc_AuditLog" l, times t where t.id = $1 and l."logRequestId" = $1::uuid
            and l."createdAt" between t.at - interval '2 minutes' and t.at + interval '15 minutes' limit 1) any_event) as events`,
      [id],
    ),
  )
  return found === undefined || found.events === 0 ? undefined : found
}

const iso = (time: string) => `to_char(${time} at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')`

const effectsSql = `
  with events as materialized (
    select l.position, l.type, l.action, l."entityId", l."logRequestId" from "svc_AuditLog" l
    where l."logRequestId" = any($1::uuid[]) and l."createdAt" between $2::timestamptz and $3::timestamptz),
  mails as (
    select m.*, e."logRequestId" as request from events e join "svc_EmailLog" m on m.id::text = e."entityId"
    where e.type = 'mail' and e.action = 'queued' order by m."createdAt" limit ${mostRows}),
  jobs as (
    select j.id, coalesce(j.source_name, j.name) as queue, j.state::text as state, j.created_on, j.completed_on, j.retry_count,
      j.output #>> '{message}' as reason, j.data->>'emailLogId' as mail, j.data->'cause'->>'request' as request
    from ${bossSchema}.job j
    where j.created_on between $2::timestamptz and $3::timestamptz
      and (j.data->'cause'->>'request' = any($1::text[]) or j.data->>'emailLogId' in (select id::text from mails))
    order by j.created_on limit ${mostRows}),
  deliveries as (
    select d.*, e."logRequestId" as by, w.url from events e
    join "svc_WebhookDelivery" d on d.position = e.position and d."createdAt" >= $2::timestamptz
    join "svc_Webhook" w on w.id = d."webhook_Id"
    where d.action not in ('resync', 'test') order by d."createdAt" limit ${mostRows})
  select
    coalesce((select json_agg(json_build_object('id', id, 'request', request, 'template', "templateName", 'email', email,
      'subject', subject, 'status', status, 'createdAt', ${iso('"createdAt"')}, 'sentAt', ${iso('"sentAt"')},
      'error', "errorMessage")) from mails), '[]') as mails,
    coalesce((select json_agg(json_build_object('id', id, 'request', request, 'queue', queue, 'state', state, 'mail', mail,
      'retries', retry_count, 'createdAt', ${iso('created_on')}, 'completedAt', ${iso('completed_on')}, 'reason', reason))
      from jobs), '[]') as jobs,
    coalesce((select json_agg(json_build_object('id', id, 'request', by, 'webhook', "webhook_Id", 'url', url,
      'collection', collection, 'item', "itemId", 'action', action, 'status', status, 'attempts', attempts,
      'responseStatus', "responseStatus", 'createdAt', ${iso('"createdAt"')}, 'error', error)) from deliveries), '[]') as deliveries`
