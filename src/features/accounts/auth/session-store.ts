import type { Logger } from 'pino'
import { administratorRole, relatedPathsOf } from '../../../access/access.ts'
import { ownRowSql, type Principal, type PrincipalRow, principalOf, principalSql } from '../../../access/principal.ts'
import type { AccessStore } from '../../../access/store.ts'
import { type Delegation, hashSecret } from '../../../adapters/tokens.ts'
import type { Catalog } from '../../../catalog/catalog.ts'
import { type CatalogStore, withFreshPlan } from '../../../catalog/store.ts'
import type { Config } from '../../../config/config.ts'
import type { Leases } from '../../../db/leases.ts'
import type { Listener } from '../../../db/listener.ts'
import type { Database } from '../../../db/pools.ts'
import type { SessionType } from '../../../db/unlogged/sessions.ts'
import { errors } from '../../../errors.ts'
import { oncePer } from '../../../language/once.ts'

export type { SessionType } from '../../../db/unlogged/sessions.ts'

/** A live session. Its tenant is the one it was opened for, its role the one that the user has there now. */
export type Session = Principal & {
  readonly id: string
  readonly type: SessionType
  /** Its row was last touched more than a day ago: time to extend it. */
  readonly extendable: boolean
  /** It has replaced another one, and nobody has used it yet. */
  readonly isUnused: boolean
  /** Not noted as used for five minutes. */
  readonly idle: boolean
  /** The name of the program that it was opened for; null where users have signed in themselves. */
  readonly client: string | null
  /** The rights that the token gives that program. */
  readonly delegation?: Delegation | undefined
  /** The principal whose view the owner, an administrator, looks at; undefined inside if that principal is gone. */
  readonly preview?: { readonly of: Principal | undefined } | undefined
  /** When its row expires unless it is extended, as `performance.now()` tells it. */
  readonly endsAt: number
}

export type SessionStore = {
  /**
   * The live session of a token, where memory can vouch for it: no end of it has been answered to anybody, in whichever
   * process (ADR 25). Undefined says nothing: ask `find`.
   */
  recall(sessionToken: string): Session | undefined
  /**
   * The live session of a token; undefined when it has ended or expired, its user is not active, or the user no longer
   * has a role there. Rejects with 503 when the database can't tell: a caller is never taken for another.
   */
  find(sessionToken: string): Promise<Session | undefined>
  /**
   * To be awaited between a commit and its answer: makes what the transaction said of sessions known here, and resolves
   * when no process takes them for what they were. `messages` are payloads of `svc_sessions`; without one, at once.
   */
  ended(messages: readonly string[]): Promise<void>
  /**
   * Calls the handler when sessions ended or changed, in any process, with a test for them. Holders of a connection of
   * such a session ask `find` again.
   */
  onEnded(handler: (concerns: Concerns) => void): void
}

/** The live sessions; on the reserved connections. */
export type Sessions = { readonly sessions: SessionStore }

/** Whether a change concerns a session. */
export type Concerns = (session: {
  readonly id: string | undefined
  readonly userId: string | undefined
  readonly roleId?: string | undefined
  readonly tenantId?: string | undefined
}) => boolean

type SessionStoreOptions = {
  /** The connections kept for session checks. */
  db: Database
  listener: Listener
  leases: Leases
  catalog: CatalogStore
  access: AccessStore
  config: Config
  log: Logger
}

/** After this a session is read again, so that its use is noted and its end moved. */
const freshForMs = 30_000
/** The same where rules follow relations: changes of the rows that they lead to notify no process. */
const relatedFreshForMs = 1000
const sessionsAtMost = 10_000

type KeptSession = { readonly session: Session; readonly staleAt: number }

/** A session being read, and what was heard of sessions meanwhile. */
type PendingRead = { readonly entry: Promise<KeptSession | undefined>; readonly heard: Concerns[] }

/**
 * The sessions of this process's callers: from memory while the listener is live, since a request that ends one waits for that
 * (ADR 25); from the database otherwise, by a statement of its own for each caller.
 */
export function openSessionStore(options: SessionStoreOptions): SessionStore {
  const { listener, leases, catalog, access, log } = options
  const entries = new Map<string, KeptSession>()
  const readings = openReadings((key) => withFreshPlan(catalog, () => readEntry(options, key)), keepIn(entries))
  const handlers: ((concerns: Concerns) => void)[] = []

  const notify = (concerns: Concerns) => {
    readings.hear(concerns)
    for (const [key, { session }] of entries) if (isAbout(concerns, session)) entries.delete(key)
    for (const handler of handlers) handler(concerns)
  }

  const recall = (sessionToken: string): Session | undefined => {
    const entry = entries.get(sessionToken)
    if (entry === undefined || !listener.isLive()) return undefined
    const { session, staleAt } = entry
    return session.rules === access.current() && performance.now() < staleAt ? session : undefined
  }

  /** Another caller's reading began before the question: it is as good as memory, under the same condition. */
  const findEntry = async (key: string): Promise<KeptSession | undefined> => {
    const other = listener.isLive() ? readings.latest(key) : undefined
    if (other === undefined) return readings.read(key).entry
    const entry = await other.entry
    return isConcerned(other.heard, entry) ? readings.read(key).entry : entry
  }

  const find = async (sessionToken: string): Promise<Session | undefined> => {
    const known = recall(sessionToken)
    if (known !== undefined) return known
    try {
      return (await findEntry(sessionToken))?.session
    } catch (error) {
      log.warn({ err: error }, 'a session could not be checked')
      throw Object.assign(errors.unavailable(), { cause: error })
    }
  }

  const ended = async (messages: readonly string[]): Promise<void> => {
    for (const message of messages) notify(concernsOf(message))
    if (messages.length > 0) await leases.heardByAll()
  }

  listener.on('svc_sessions', (message) => notify(concernsOf(message)))
  listener.onReconnect(() => notify(everybody))
  access.onChange(() => notify(everybody))
  return { recall, find, ended, onEnded: (handler) => handlers.push(handler) }
}

/** The statements that run, so that each hears of what changes meanwhile. */
function openReadings(
  start: (key: string) => Promise<KeptSession | undefined>,
  keep: (key: string, entry: KeptSession) => void,
) {
  const running = new Set<PendingRead>()
  const latest = new Map<string, PendingRead>()
  return {
    latest: (key: string): PendingRead | undefined => latest.get(key),
    hear: (concerns: Concerns): void => {
      for (const { heard } of running) heard.push(concerns)
    },
    /** A change that was heard of during the statement may be older or newer than it: such an entry is not kept. */
    read: (key: string): PendingRead => {
      const heard: Concerns[] = []
      const entry = start(key).then((found) => {
        if (found !== undefined && !isConcerned(heard, found)) keep(key, found)
        return found
      })
      const reading = { entry, heard }
      running.add(reading)
      latest.set(key, reading)
      const done = () => {
        running.delete(reading)
        if (latest.get(key) === reading) latest.delete(key)
      }
      entry.then(done, done)
      return reading
    },
  }
}

const keepIn = (entries: Map<string, KeptSession>) => (key: string, entry: KeptSession) => {
  entries.delete(key)
  entries.set(key, entry)
  if (entries.size > sessionsAtMost) entries.delete(entries.keys().next().value!)
}

async function readEntry(options: SessionStoreOptions, sessionToken: string): Promise<KeptSession | undefined> {
  const { db, catalog, access, config, log } = options
  const startedAt = performance.now()
  const row = await readSession(db, catalog.current(), hashSecret(sessionToken))
  if (row === undefined) return undefined
  const { remainingMs, id, type, client, extendable, isUnused, idle, ...found } = row
  const endsAt = startedAt + remainingMs
  const principal = await principalOf(db, access.current(), config.tenancy.enabled, found, log)
  const preview = row.preview === null ? undefined : { of: await previewOf(options, row.preview, principal) }
  const session = { ...principal, id, type, client, extendable, isUnused, idle, endsAt, preview }
  const follows = [session, preview?.of].some((one) => one && relatedPathsOf(one.rules, one.role.id).length > 0)
  const fresh = follows ? relatedFreshForMs : freshForMs
  return { session, staleAt: Math.min(startedAt + fresh, session.endsAt) }
}

const everybody: Concerns = () => true

function isConcerned(heard: readonly Concerns[], entry: KeptSession | undefined): boolean {
  if (entry === undefined) return heard.length > 0
  return heard.some((concerns) => isAbout(concerns, entry.session))
}

/** Whether a change concerns a session, or the one whose view it shows. */
function isAbout(concerns: Concerns, { id, preview, ...owner }: Session): boolean {
  const shown = preview?.of === undefined ? [owner] : [owner, preview.of]
  return shown.some(({ userId, role, tenantId }) => concerns({ id, userId, roleId: role.id, tenantId }))
}

/** Messages are `session:<id>`, `user:<id>`, `role:<id>`, `tenant:<id>` or `*`; what is not understood concerns everybody. */
function concernsOf(message: string): Concerns {
  const [kind, id] = message.split(':')
  if (kind === 'session') return (session) => session.id === id
  if (kind === 'user') return (session) => session.userId === id
  if (kind === 'role') return (session) => session.roleId === id
  return kind === 'tenant' ? (session) => session.tenantId === id : everybody
}

type SessionRow = PrincipalRow & {
  id: string
  type: SessionType
  client: string | null
  extendable: boolean
  isUnused: boolean
  idle: boolean
  remainingMs: number
  preview: PreviewRow | null
}

/** A user in the role that they have at the tenant, or the owner of the session in another role. */
type PreviewRow = {
  readonly userId: string | null
  readonly roleId: string | null
  readonly tenantId: string | null
}

/** A live session and the user it stands for; undefined when it is not live. */
async function readSession(db: Database, catalog: Catalog, tokenHash: string): Promise<SessionRow | undefined> {
  const text = sessionSql(catalog)
  const [row] = await db.run<SessionRow>(text, [tokenHash], 'prepared')
  return row
}

/**
 * The principal that a preview shows. Undefined, which then sees nothing, where the owner is no administrator any more, or
 * the other is gone or suspended: it must never turn into the owner's own view behind the owner's back.
 */
async function previewOf(
  { db, catalog, access, config, log }: SessionStoreOptions,
  { userId, roleId, tenantId }: PreviewRow,
  owner: Principal,
): Promise<Principal | undefined> {
  const rules = access.current()
  const { enabled } = config.tenancy
  const now = catalog.current()
  if (owner.role.name !== administratorRole) return undefined
  if (userId !== null) {
    const [row] = await db.run<PrincipalRow>(previewedUserSql(now), [userId, tenantId])
    return row && principalOf(db, rules, enabled, row, log)
  }
  const role = roleId === null ? undefined : rules.roles.get(roleId)
  if (role === undefined) return undefined
  const tenantRow = ownRowSql(now.collections.get('svc_Tenant')!, 't')
  const [at] = await db.run<{ tenant: PrincipalRow['tenant'] }>(
    `select (select ${tenantRow} from "svc_Tenant" t where t.id = $1::uuid) as tenant`,
    [tenantId],
  )
  const row = { userId: owner.userId, tenantId, role, user: owner.user, userRole: owner.userRole, tenant: at!.tenant }
  const principal = await principalOf(db, rules, enabled, row, log)
  // Values that depend on the owner's own role or membership do not apply to the previewed principal.
  const related = new Map([...principal.related].filter(([key]) => key.startsWith('CURRENT_USER.')))
  return { ...principal, userRole: {}, related }
}

const previewedUserSql = oncePer(
  (catalog: Catalog) => `
    select u.id as "userId", ur."tenant_Id" as "tenantId", ${principalSql(catalog)}
    from "svc_User" u
    join "svc_UserRole" ur on ur."user_Id" = u.id and ur."tenant_Id" is not distinct from $2::uuid
    join "svc_Role" r on r.id = ur."role_Id"
    left join "svc_Tenant" t on t.id = ur."tenant_Id"
    where u.id = $1::uuid and u.status = 'active'`,
)

/** A session counts with the role that its user has at its tenant now: demotion and removal act at once. */
const sessionSql = oncePer(
  (catalog: Catalog) => `
    select s.id, s.type, s."user_Id" as "userId", s."tenant_Id" as "tenantId", ${principalSql(catalog)},
      g."clientName" as client,
      g.id is null and s."updatedAt" < now() - interval '1 day' as extendable,
      s."lastUsedAt" is not distinct from s."createdAt" as "isUnused",
      coalesce(s."lastUsedAt", s."createdAt") < now() - interval '5 minutes' as idle,
      (extract(epoch from s."expiresAt" - now()) * 1000)::float8 as "remainingMs",
      (select json_build_object('userId', p."user_Id", 'roleId', p."role_Id", 'tenantId', p."tenant_Id")
       from "svc_Preview" p where p."session_Id" = s.id) as preview
    from "svc_Sessions" s
    join "svc_User" u on u.id = s."user_Id" and u.status = 'active'
    join "svc_UserRole" ur on ur."user_Id" = s."user_Id" and ur."tenant_Id" is not distinct from s."tenant_Id"
    join "svc_Role" r on r.id = ur."role_Id"
    left join "svc_Tenant" t on t.id = s."tenant_Id"
    left join "svc_OAuthGrant" g on g."session_Id" = s.id
    where s.token = $1 and s."expiresAt" > now()`,
)
