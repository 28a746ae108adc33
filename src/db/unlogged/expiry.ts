import type { UnloggedWrites } from '../sql.ts'
import { run } from './run.ts'

/* Rows that are over and were not removed by the next request. */

const expired = {
  // A day late: a mail that is tried again may still renew its secret.
  secrets: ['svc_Verification', `"expiresAt" < now() - interval '1 day'`],
  'code tries': ['svc_CodeTry', '"endsAt" <= now()'],
  challenges: ['svc_Challenge', '"expiresAt" <= now()'],
  'programs that registered': ['svc_OAuthClient', '"expiresAt" <= now()'],
  // As long as a second use may be an attack on what the first one opened.
  'codes of programs': ['svc_OAuthCode', `"expiresAt" < now() - interval '1 day'`],
  'idempotency keys': ['svc_IdempotencyKey', '"expiresAt" <= now()'],
  'rate limits': ['svc_RateLimit', '"endsAt" <= now()'],
  uploads: ['svc_Upload', '"expiresAt" <= now()'],
  'webhook deliveries': [
    'svc_WebhookDelivery',
    `"createdAt" < now() - case when status = 'dead' then interval '30 days' else interval '7 days' end and status <> 'pending'`,
  ],
  'task locks': ['svc_TaskLock', `"expiresAt" < now() - interval '1 day'`],
} as const

type ExpiringKind = keyof typeof expired
export const expiringKinds = Object.keys(expired) as readonly ExpiringKind[]

/** For the cleanup worker; gives how many were deleted. Rows that somebody is using stay for the next time. */
export async function deleteExpired(deps: UnloggedWrites, what: ExpiringKind, atMost: number): Promise<number> {
  const [table, condition] = expired[what]
  const rows = await run(
    deps,
    `delete from "${table}" where ctid = any (array(
       select ctid from "${table}" where ${condition} limit $1 for update skip locked)) returning 1`,
    [atMost],
  )
  return rows.length
}
