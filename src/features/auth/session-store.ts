import type { Logger } from 'pino'
import { hashSecret } from '../../adapters/tokens.ts'
import type { Catalog } from '../../catalog/catalog.ts'
import type { CatalogStore } from '../../catalog/store.ts'
import type { Config } from '../../config.ts'
import { isStalePlan } from '../../db/errors.ts'
import type { Listener } from '../../db/listener.ts'
import type { Database } from '../../db/pools.ts'
import { statementName } from '../../db/statement-names.ts'
import { errors } from '../../errors.ts'
import type { AccessStore, Role } from '../permissions/store.ts'
import { ownRowSql } from './own-row.ts'

export type SessionType = 'default' | 'web' | 'mobile'

/** A live session and whom it stands for, as one statement saw them. Rows are in wire form, without hidden fields. */
export type Session = {
  readonly id: string
  readonly type: SessionType
  readonly userId: string
  /** The tenant it was opened for; undefined outside multi-tenant mode. */
  readonly tenantId: string | undefined
  /** The role that the user has now, not the one at sign-in. */
  readonly role: Role
  readonly user: Row
  readonly userRole: Row
  readonly tenant: Row | undefined
  /** Its row was last touched more than a day ago: time to extend it. */
  readonly extendable: boolean
}

type Row = Readonly<Record<string, unknown>>

export type SessionStore = {
  /**
   * The live session of a token; undefined when it has ended or expired, its user is not active, or the user no longer
   * has a role there. Rejects with 503 when the database can't tell: a caller is never taken for somebody else.
   */
  find(sessionToken: string): Promise<Session | undefined>
  /** Forgets a session that this process has just ended, without waiting for the notification. */
  forget(sessionId: string): void
  /**
   * Calls the handler when sessions ended or changed, in whichever process, with a test for them. Whoever holds a
   * connection of such a session asks `find` again.
   */
  onEnded(handler: (concerns: Concerns) => void): void
}

/** Whether a change concerns a session. */
export type Concerns = (session: { readonly id: string | undefined; readonly userId: string | undefined }) => boolean

export type SessionStoreOptions = {
  /** The connections kept for session checks. */
  db: Database
  listener: Listener
  catalog: CatalogStore
  access: AccessStore
  config: Config
  log: Logger
}

/** After this a session is read again, so that what no notification tells (a custom column of the user) counts soon. */
const freshForMs = 1000
const sessionsAtMost = 10_000

type Entry = { readonly session: Session; readonly staleAt: number }

/**
 * The sessions this process has seen in the last second. An entry is served only while the notification connection
 * has answered within the last second, and not beyond its own expiry, measured from the database's clock.
 */
export function openSessionStore(options: SessionStoreOptions): SessionStore {
  const { db, listener, catalog, access, config, log } = options
  const entries = new Map<string, Entry>()
  const reading = new Map<string, Promise<Session | undefined>>()
  const handlers: ((concerns: Concerns) => void)[] = []
  // What was read before an invalidation must not be kept after it: a read keeps its result only in its own generation.
  let generation = 0

  const invalidate = (concerns: Concerns) => {
    generation += 1
    reading.clear()
    for (const [key, { session }] of entries) if (concerns(session)) entries.delete(key)
    for (const handler of handlers) handler(concerns)
  }

  const load = async (key: string): Promise<Found | undefined> => {
    try {
      return await readSession(db, catalog.current(), config, key)
    } catch (error) {
      if (!isStalePlan(error)) throw error
      return readSession(db, await catalog.reload(), config, key)
    }
  }

  const read = async (key: string): Promise<Session | undefined> => {
    const born = generation
    const startedAt = performance.now()
    const found = await load(key)
    if (found === undefined || born !== generation) return found?.session
    entries.delete(key)
    entries.set(key, { session: found.session, staleAt: startedAt + Math.min(freshForMs, found.remainingMs) })
    if (entries.size > sessionsAtMost) entries.delete(entries.keys().next().value!)
    return found.session
  }

  const readOnce = (key: string): Promise<Session | undefined> => {
    const running = reading.get(key)
    if (running !== undefined) return running
    const started = read(key).finally(() => {
      if (reading.get(key) === started) reading.delete(key)
    })
    reading.set(key, started)
    return started
  }

  const find = async (sessionToken: string): Promise<Session | undefined> => {
    const key = hashSecret(sessionToken)
    try {
      if (!listener.isLive()) return (await load(key))?.session
      const entry = entries.get(key)
      if (entry !== undefined && performance.now() < entry.staleAt) return entry.session
      return await readOnce(key)
    } catch (error) {
      log.warn({ err: error }, 'a session could not be checked')
      throw Object.assign(errors.unavailable(), { cause: error })
    }
  }

  listener.on('svc_sessions', (payload) => invalidate(concernsOf(payload)))
  listener.onReconnect(() => invalidate(everybody))
  access.onChange(() => invalidate(everybody))
  return {
    find,
    forget: (sessionId) => invalidate((session) => session.id === sessionId),
    onEnded: (handler) => handlers.push(handler),
  }
}

const everybody: Concerns = () => true

/** Payloads are `session:<id>`, `user:<id>` or `*`; what is not understood concerns everybody. */
function concernsOf(payload: string): Concerns {
  const [kind, id] = payload.split(':')
  if (kind === 'session') return (session) => session.id === id
  return kind === 'user' ? (session) => session.userId === id : everybody
}

type Found = { readonly session: Session; readonly remainingMs: number }

type FoundRow = {
  id: string
  type: SessionType
  userId: string
  tenantId: string | null
  role: Role
  user: Row
  userRole: Row
  tenant: Row | null
  extendable: boolean
  remainingMs: number
}

async function readSession(
  db: Database,
  catalog: Catalog,
  config: Config,
  tokenHash: string,
): Promise<Found | undefined> {
  const text = sessionSql(catalog)
  const [row] = await db.run<FoundRow>(text, [tokenHash], statementName(text))
  if (row === undefined) return undefined
  const { remainingMs, tenantId, tenant, ...same } = row
  const multi = config.tenancy.enabled
  const session = {
    ...same,
    tenantId: multi ? (tenantId ?? undefined) : undefined,
    tenant: multi ? (tenant ?? undefined) : undefined,
  }
  return { session, remainingMs }
}

const texts = new WeakMap<Catalog, string>()

function sessionSql(catalog: Catalog): string {
  const text = texts.get(catalog) ?? makeSessionSql(catalog)
  texts.set(catalog, text)
  return text
}

/** A session counts with the role that its user has at its tenant now: demotion and removal act at once. */
function makeSessionSql(catalog: Catalog): string {
  const row = (name: string, alias: string) => ownRowSql(catalog.collections.get(name)!, alias)
  return `
    select s.id, s.type, s."user_Id" as "userId", s."tenant_Id" as "tenantId",
      ${row('svc_Role', 'r')} as role, ${row('svc_User', 'u')} as "user", ${row('svc_UserRole', 'ur')} as "userRole",
      case when t.id is not null then ${row('svc_Tenant', 't')} end as tenant,
      s."updatedAt" < now() - interval '1 day' as extendable,
      (extract(epoch from s."expiresAt" - now()) * 1000)::float8 as "remainingMs"
    from "svc_Sessions" s
    join "svc_User" u on u.id = s."user_Id" and u.status = 'active'
    join "svc_UserRole" ur on ur."user_Id" = s."user_Id" and ur."tenant_Id" is not distinct from s."tenant_Id"
    join "svc_Role" r on r.id = ur."role_Id"
    left join "svc_Tenant" t on t.id = s."tenant_Id"
    where s.token = $1 and s."expiresAt" > now()`
}
