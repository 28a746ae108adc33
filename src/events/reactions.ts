import { type Job, mailGroup } from './jobs.ts'
import type { DomainEvent, EventData, EventType } from './types.ts'

/** The jobs that follow from an event, decided in one place and written in the same transaction. */
export type Reaction = {
  readonly jobs?: readonly Job[]
}

const nothing: Reaction = {}

const reactions: { readonly [Type in EventType]: (data: EventData[Type]) => Reaction } = {
  'auth.register': () => nothing,
  'auth.login': () => nothing,
  'auth.login_failed': () => nothing,
  'auth.logout': () => nothing,
  'auth.refresh': () => nothing,
  'auth.preview_started': () => nothing,
  'auth.preview_stopped': () => nothing,
  'auth.session_ended': () => nothing,
  'auth.tenant_switched': () => nothing,
  'auth.invite': () => nothing,
  'auth.invite_accepted': () => nothing,
  'auth.email_verified': () => nothing,
  'auth.email_change_requested': () => nothing,
  'auth.email_change_failed': () => nothing,
  'auth.email_changed': () => nothing,
  'auth.magic_link_requested': () => nothing,
  'auth.magic_link_failed': () => nothing,
  'auth.password_reset_requested': () => nothing,
  'auth.password_reset_failed': () => nothing,
  'auth.password_reset': () => nothing,
  'auth.password_change_failed': () => nothing,
  'auth.password_change': () => nothing,
  'auth.unverified_credentials_dropped': () => nothing,
  'auth.2fa_challenged': () => nothing,
  'auth.2fa_failed': () => nothing,
  'auth.2fa_enabled': () => nothing,
  'auth.2fa_disabled': () => nothing,
  'auth.proof_failed': () => nothing,
  'auth.passkey_added': () => nothing,
  'auth.passkey_removed': () => nothing,
  'auth.key_created': () => nothing,
  'auth.key_revoked': () => nothing,
  'auth.social_linked': () => nothing,
  'oauth.client_registered': () => nothing,
  'oauth.authorized': () => nothing,
  'oauth.signed_in': () => nothing,
  'oauth.refreshed': () => nothing,
  'oauth.revoked': () => nothing,
  'oauth.reuse_detected': () => nothing,
  'mail.queued': ({ emailLogId, tenantId, from }) => ({
    jobs: [{ queue: 'mail', data: { emailLogId }, group: mailGroup(tenantId, from) }],
  }),
  'job.redriven': ({ job }) => ({ jobs: [job] }),
  'job.hurried': () => nothing,
  'job.cancelled': () => nothing,
  // Its row wakes the workers.
  'task.redriven': () => nothing,
  'task.hurried': () => nothing,
  'task.cancelled': () => nothing,
  'schema.changed': () => nothing,
  // Content of erased versions is removed at once.
  'history.erased': ({ collection }) =>
    collection === 'svc_File' ? { jobs: [{ queue: 'file-removal', data: {} }] } : nothing,
  'history.undone': () => nothing,
  'history.restored': () => nothing,
  'system.settings': () => nothing,
  'migration.run': () => nothing,
  'migration.rolled_back': () => nothing,
  'migration.marked_completed': () => nothing,
  'system.setup': () => nothing,
}

/** The decision for one event. Total: an event type without an entry does not compile. */
export function reactionTo(event: DomainEvent): Reaction {
  const decide = reactions[event.type] as (data: DomainEvent['data']) => Reaction
  return decide(event.data)
}
