import { readDefinitions } from '../src/catalog/store.ts'
import { systemCollections } from '../src/catalog/system-definitions.ts'
import type { MigrationContext, MigrationResult } from '../src/events/direct-session.ts'

export const version = '0.1.2'
export const name = 'webhooks'
export const description = 'Webhooks, their deliveries and the health of their endpoints.'
export const type = 'upgrade'

export async function up({ db, sql, schemaManager }: MigrationContext): Promise<MigrationResult> {
  const stored = new Set((await readDefinitions(db)).map(({ collectionName }) => collectionName))
  const missing = systemCollections.filter(
    ({ collectionName }) => collectionName.startsWith('svc_Webhook') && !stored.has(collectionName),
  )
  // A database that was made by a program that knew them has them already.
  if (missing.length > 0) await schemaManager.createCollections(db, missing)
  for (const statement of statements) await sql(statement)
  return { success: true }
}

const statements = [
  `create index if not exists "svc_WebhookDelivery_due_idx" on "svc_WebhookDelivery" ("webhook_Id", "nextAt", position) where status = 'pending'`,
  `create index if not exists "svc_WebhookDelivery_record_idx" on "svc_WebhookDelivery" ("webhook_Id", collection, "itemId", position)
     where status = 'pending'`,
  // Since when nothing has reached an endpoint; no event.
  `create table if not exists "svc_WebhookFailing" (
    "webhook_Id" uuid primary key references "svc_Webhook" (id) on delete cascade,
    since timestamptz not null default now()
  )`,
  `alter table svc_log.consumer drop constraint if exists consumer_state_check,
     add constraint consumer_state_check check (state in ('running', 'paused', 'halted', 'stopped'))`,
]
