import type { Logs } from '../adapters/logger.ts'
import { mailProblems, openMailer } from '../adapters/mailer.ts'
import { isShared } from '../cache/result-cache.ts'
import { dropInvalidated } from '../cache/shared-store.ts'
import type { Config, Configuration } from '../config/config.ts'
import type { Writes } from '../events/commit.ts'
import { type QueueName, readMailGroup } from '../events/jobs.ts'
import { deleteOldSessions } from '../features/accounts/auth/auth.ts'
import { contentConsumer, removeDueContent } from '../features/files/files/files.ts'
import {
  cleanMailLog,
  inbox,
  mailSlots,
  openLanes,
  senderOf,
  sendMailInLane,
  sweepMails,
} from '../features/messaging/mail/mail.ts'
import { makeScheduledBackup, watchBackups } from '../features/operations/backup/backup.ts'
import { recoverTasks } from '../features/work/tasks/tasks.ts'
import type { OpenedService, WorkerWrites } from './capabilities.ts'
import { openConsumers } from './consumers.ts'
import { cleanAuditLog, deleteWhatExpired, ensureLogPartitions, openSeals } from './log-upkeep.ts'
import type { Admission, Handler } from './loop.ts'
import type { WorkerName } from './names.ts'
import { openTasks } from './tasks/worker.ts'
import { openWebhooks } from './webhooks.ts'
import { openWorkflows } from './workflows.ts'

/** One queue that a worker process serves. Retries and time limits are the queue's own (events/jobs.ts). */
export type QueueWorker<Name extends QueueName = QueueName> = {
  readonly queue: Name
  /** Jobs at the same time in one process. */
  readonly concurrency: number
  /** Cron expression in UTC: when a job is put into the queue by itself, once however many processes there are. */
  readonly schedule?: string
  /** The same where the configuration says it; undefined for never. */
  readonly scheduleOf?: (config: Config) => string | undefined
  /** A job is put into the queue this long after the process has started, too. */
  readonly secondsAfterStart?: number
  open(deps: WorkerWrites): OpenedWorker<Name>
}

type OpenedWorker<Name extends QueueName = QueueName> = {
  readonly handler: Handler<Name>
  /** How jobs of different groups share the places; none where all jobs are alike. */
  readonly admission?: Admission
  /** Gives back what the handler held, after its last job. */
  close(): void
}

/** Work of a process besides serving queues. */
export type Service = {
  readonly service: string
  /** Done again where the database was away: leaves nothing at work when it rejects. */
  open(deps: WorkerWrites): Promise<OpenedService>
}

/** THE list: every worker process by its name, the queues it serves and what else it does. */
export const workers = {
  mail: [
    serve({ queue: 'mail', concurrency: mailSlots, open: openMailQueue }),
    serve({ queue: 'mail-sweep', concurrency: 1, schedule: '7 * * * *', open: () => stateless(sweepMails) }),
  ],
  tasks: [
    serve({ queue: 'task-recovery', concurrency: 1, schedule: '* * * * *', open: () => stateless(recoverTasks) }),
    { service: 'tasks', open: openTasksIfEnabled },
  ],
  'log-cleanup': [
    serve({
      queue: 'log-partitions',
      concurrency: 1,
      schedule: '17 2 * * *',
      open: () => stateless(ensureLogPartitions),
    }),
    serve({
      queue: 'session-cleanup',
      concurrency: 1,
      schedule: '41 * * * *',
      secondsAfterStart: 5,
      open: () => stateless(deleteOldSessions),
    }),
    serve({
      queue: 'audit-log-cleanup',
      concurrency: 1,
      schedule: '23 3 * * *',
      secondsAfterStart: 10,
      open: openAuditLogCleanup,
    }),
    serve({
      queue: 'email-log-cleanup',
      concurrency: 1,
      schedule: '53 3 * * *',
      secondsAfterStart: 10,
      open: openEmailLogCleanup,
    }),
    serve({
      queue: 'expired-cleanup',
      concurrency: 1,
      schedule: '29 * * * *',
      secondsAfterStart: 10,
      open: () => stateless(deleteWhatExpired),
    }),
    serve({
      queue: 'file-removal',
      concurrency: 1,
      schedule: '* * * * *',
      open: (deps) => stateless((_deps, signal) => removeDueContent(deps, signal)),
    }),
    serve({
      queue: 'backup',
      concurrency: 1,
      scheduleOf: ({ backup }) => backup.schedule,
      open: (deps) => ({ handler: () => makeScheduledBackup(deps), close: () => undefined }),
    }),
    serve({
      queue: 'backup-watch',
      concurrency: 1,
      schedule: '11 * * * *',
      open: (deps) => ({ handler: () => watchBackups(deps), close: () => undefined }),
    }),
    { service: 'removal of content', open: (deps) => openConsumers(deps, [contentConsumer(deps)]) },
    { service: 'log seals', open: (deps: WorkerWrites) => openSeals(deps) },
  ],
  webhooks: [{ service: 'webhooks', open: openWebhooks }],
  workflows: [{ service: 'workflows', open: openWorkflows }],
  'cache-invalidation': [serve({ queue: 'cache-invalidation', concurrency: 4, open: openInvalidation })],
} satisfies Readonly<Record<WorkerName, readonly (QueueWorker | Service)[]>>

function openMailQueue(deps: WorkerWrites): OpenedWorker<'mail'> {
  const sender = senderOf(deps, undefined)
  if (sender === undefined)
    deps.log.warn('no mail sender is configured: mails wait until MAIL_SENDERS_ENABLED names a complete one')
  if (sender?.isPasswordLost) deps.log.error({ sender: sender.name }, `mails wait: ${mailProblems['lost password']}`)
  if (sender === inbox) deps.log.info('no mail sender is configured: mails are kept in the inbox at /_dev/mail')
  const mailer = openMailer()
  const lanes = openLanes((group) => {
    const { tenantId, from } = readMailGroup(group)
    return senderOf(deps, tenantId, from)
  })
  deps.settings.onChange(lanes.forgetSenders)
  return {
    admission: { ...lanes, enter: (jobId, group) => group === undefined || lanes.enter(jobId, group) },
    handler: (_deps, { emailLogId }, job) => sendMailInLane(deps, mailer, lanes, emailLogId, job),
    close: () => mailer.close(),
  }
}

/** Served in either case: jobs of a schedule that was once set must not pile up. */
function openAuditLogCleanup({ config, log }: Configuration & Logs): OpenedWorker<'audit-log-cleanup'> {
  if (!config.log.auditCleanupEnabled) log.info('AUDIT_LOG_CLEANUP_ENABLED is false: the log keeps everything')
  return stateless(cleanAuditLog)
}

function openEmailLogCleanup({ config, log }: Configuration & Logs): OpenedWorker<'email-log-cleanup'> {
  if (!config.log.emailCleanupEnabled) log.info('EMAIL_LOG_CLEANUP_ENABLED is false: svc_EmailLog keeps everything')
  return stateless(cleanMailLog)
}

async function openTasksIfEnabled(deps: WorkerWrites) {
  if (deps.config.tasks.enabled) return openTasks(deps)
  deps.log.warn('TASK_SERVICE_ENABLED is false: tasks wait')
  return { stop: async () => undefined }
}

function openInvalidation({ config, log }: Configuration & Logs): OpenedWorker<'cache-invalidation'> {
  if (!isShared(config)) log.info('no cache is shared: there is nothing to invalidate')
  return { handler: dropInvalidated, close: () => undefined }
}

function stateless<Name extends QueueName>(
  work: (deps: Writes, signal: AbortSignal) => Promise<void>,
): OpenedWorker<Name> {
  return { handler: (deps, _data, { signal }) => work(deps, signal), close: () => undefined }
}

/** Checks an entry against its queue's data; beyond the list all entries are alike. */
function serve<Name extends QueueName>(worker: QueueWorker<Name>): QueueWorker {
  return worker as unknown as QueueWorker
}
