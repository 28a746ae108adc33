import type { Job, QueueName } from './jobs.ts'

export {
  type Actor,
  type Agent,
  actorJson,
  type Cause,
  causedActor,
  causeOf,
  consequenceOf,
  deepestCause,
  systemActor,
} from './actor.ts'

/**
 * Every domain event. Row changes are appended to the log by the database itself; these are the facts beside them.
 * A new event needs a decision in `reactions.ts`, or the project does not compile.
 */
export type EventData = {
  /** An account was created by registration. */
  'auth.register': { userId: string }
  /** Somebody signed in, by whatever proof. */
  'auth.login': { userId: string }
  /** Wrong credentials for an existing account; unknown addresses have no entity and are only counted by the limiter. */
  'auth.login_failed': { userId: string }
  /** A session was ended by its user. */
  'auth.logout': { userId: string }
  /** A session got another token. */
  'auth.refresh': { userId: string }
  /** An administrator began to look at what a user, or anybody in a role, would see; nothing can be written meanwhile. */
  'auth.preview_started': { userId: string; asUserId: string | null; asRoleId: string | null; tenantId: string | null }
  /** The administrator sees with their own rights again. */
  'auth.preview_stopped': { userId: string }
  /** A session was ended by its user from another one, or by an administrator. */
  'auth.session_ended': { userId: string; sessionId: string }
  /** A user went on at another tenant. */
  'auth.tenant_switched': { userId: string; tenantId: string }
  /** A user was asked to join a tenant. */
  'auth.invite': { userId: string; inviteId: string }
  /** An invited user joined the tenant. */
  'auth.invite_accepted': { userId: string; inviteId: string }
  /** An address was confirmed from its mailbox. */
  'auth.email_verified': { userId: string }
  /** The owner asked for another address, which is to be confirmed from there. */
  'auth.email_change_requested': { userId: string }
  /** A wrong password was given for a change of the address. */
  'auth.email_change_failed': { userId: string }
  /** An account has another address: confirmed by its owner, or set by another user, as the actor tells. */
  'auth.email_changed': { userId: string }
  /** A link or code was asked for; unknown addresses are only counted by the limiter. */
  'auth.magic_link_requested': { userId: string }
  /** A link or code that opens nothing; whose, where the caller said so. */
  'auth.magic_link_failed': { userId: string | null }
  /** A link or code for a new password was asked for. */
  'auth.password_reset_requested': { userId: string }
  /** A link or code that sets no password; whose, where the caller said so. */
  'auth.password_reset_failed': { userId: string | null }
  /** A new password by a mailed link or code. */
  'auth.password_reset': { userId: string }
  /** The current password that came with a new one was wrong. */
  'auth.password_change_failed': { userId: string }
  /** A new password by its owner, or by an administrator: the actor tells. */
  'auth.password_change': { userId: string }
  /** Somebody proved that the address is theirs; what was set up before by anybody is gone (ADR 8). */
  'auth.unverified_credentials_dropped': { userId: string }
  /** A first factor was right, the second is asked for; no session yet. */
  'auth.2fa_challenged': { userId: string }
  /** A code of the second factor was wrong. */
  'auth.2fa_failed': { userId: string }
  /** A user has a second factor from now on. */
  'auth.2fa_enabled': { userId: string }
  /** A user has no second factor any more. */
  'auth.2fa_disabled': { userId: string }
  /** A wrong fresh proof of the user was given. */
  'auth.proof_failed': { userId: string }
  /** A passkey opens the account from now on. */
  'auth.passkey_added': { userId: string; passkey: string }
  /** A passkey opens the account no more. */
  'auth.passkey_removed': { userId: string; passkey: string }
  /** An API key was made. */
  'auth.key_created': { userId: string; key: string }
  /** An API key was revoked. */
  'auth.key_revoked': { userId: string; key: string }
  /** An identity at a provider opens the account from now on. */
  'auth.social_linked': { userId: string; provider: string }
  /** A program registered itself, for anybody to sign in to. */
  'oauth.client_registered': { clientId: string; name: string }
  /** A user allowed a program to act for them, within these scopes. */
  'oauth.authorized': { userId: string; clientId: string; scopes: readonly string[] }
  /** The program got its first tokens: the session is open. */
  'oauth.signed_in': { userId: string; clientId: string }
  /** The program got its next tokens. */
  'oauth.refreshed': { userId: string; clientId: string }
  /** The program gave its access back. */
  'oauth.revoked': { userId: string; clientId: string }
  /** A code or refresh token came a second time, which ended the access: another person may have it. */
  'oauth.reuse_detected': { userId: string; clientId: string; what: 'code' | 'refresh token' }
  /** A mail of a tenant, or of the installation, was accepted: its svc_EmailLog row is in state `queued`. `from`: the sender that it names. */
  'mail.queued': { emailLogId: string; tenantId?: string; from?: string }
  /** An administrator had a job done again; it went back into its queue as a new one. */
  'job.redriven': { jobId: string; job: Job }
  /** An administrator had a waiting job done at once. */
  'job.hurried': { jobId: string; queue: QueueName }
  /** An administrator cancelled a waiting job. */
  'job.cancelled': { jobId: string; queue: QueueName }
  /** An administrator had a task done again; its row says the rest. */
  'task.redriven': { taskId: number }
  /** An administrator had a waiting task done at once. */
  'task.hurried': { taskId: number }
  /** An administrator cancelled a waiting task. */
  'task.cancelled': { taskId: number }
  /** A collection was created, changed or dropped. */
  'schema.changed': { collection: string; change: 'create' | 'update' | 'delete' }
  /** An administrator erased the images of an item's events. */
  'history.erased': { collection: string; item: string; events: number }
  /**
   * The changes of a request, a transaction (named by the position of an event) or a user were undone; with the number
   * of rows.
   */
  'history.undone': {
    undone: string
    by: 'request' | 'transaction' | 'user'
    rows: number
    forced: number
    from?: string
    to?: string
  }
  /** An operator brought a collection or a tenant back to what it was at a time, by the log or a backup; so many rows. */
  'history.restored': {
    restored: string
    what: 'collection' | 'tenant'
    at: string
    by: 'log' | 'backup'
    rows: number
  }
  /** Settings were set, of a tenant or the installation; without keys the tenant's own were removed. */
  'system.settings': { tenantId: string | null; keys: readonly string[] }
  /** A migration was executed, together with those of the same batch. */
  'migration.run': { version: string; batch: number }
  /** A migration was undone. */
  'migration.rolled_back': { version: string; reason?: string }
  /** A migration was recorded as done without being executed. */
  'migration.marked_completed': { version: string }
  /** The system was initialised. */
  'system.setup': { version: string }
}

export type EventType = keyof EventData
export type DomainEvent = { [Type in EventType]: { readonly type: Type; readonly data: EventData[Type] } }[EventType]
