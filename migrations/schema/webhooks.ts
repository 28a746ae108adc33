export const webhooks = [
  `create index "svc_WebhookDelivery_due_idx" on "svc_WebhookDelivery" ("webhook_Id", "nextAt", position) where status = 'pending'`,
  `create index "svc_WebhookDelivery_record_idx" on "svc_WebhookDelivery" ("webhook_Id", collection, "itemId", position)
     where status = 'pending'`,
  // Since when an endpoint has failed. No event.
  `create table "svc_WebhookFailing" (
    "webhook_Id" uuid primary key references "svc_Webhook" (id) on delete cascade,
    since timestamptz not null default now()
  )`,
]
