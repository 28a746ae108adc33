import type { Runtime } from '../../src/process/runtime.ts'
import type { Cluster } from './cluster.ts'

/** Claims of mails and jobs become as old as those are that a worker has forgotten. */
export async function ageMailClaims(sql: Cluster['sql']): Promise<void> {
  await sql(`update "svc_EmailLog" set "claimedAt" = now() - interval '1 hour' where status = 'sending'`)
  await sql(`update pgboss.job set started_on = now() - interval '1 hour' where name = 'mail' and state = 'active'`)
}

/** What workers do once a minute. */
export async function lookForLapsedJobs(sql: Cluster['sql'], { boss }: Runtime): Promise<void> {
  await sql('update pgboss.queue set monitor_claim_on = null, monitor_on = null')
  await (await boss()).supervise('mail')
}
