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
import { relatedPathsOf } from '../permissions/permissions.ts'
import { loadRelated, type Related } from '../permissions/related.ts'
import type { AccessRules, AccessStore, Role } from '../permissions/store.ts'
import { standingSql } from './own-row.ts'

export type SessionType = 'default' | 'web' | 'mobile'

/** Who somebody is, as one statement saw it. Rows are in wire form, without hidden fields. */
export type Standing = {
  readonly userId: string
  /** Undefined outside multi-tenant mode. */
  readonly tenantId: string | undefined
  readonly role: Role
  readonly user: Row
  readonly userRole: Row
  readonly tenant: Row | undefined
  /** The rules that say what it may do, and what their variables over relations stand for. */
  readonly rules: AccessRules
  readonly related: Related
}

/** A live session. Its tenant is the one it was opened for, its role the one that the user has there now. */
export type Session = Standing & {
  readonly id: string
  readonly type: SessionType
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
      return await readFresh(key)
    } catch (error) {
      if (!isStalePlan(error)) throw error
      await catalog.reload()
      return readFresh(key)
    }
  }

  const readFresh = async (key: string): Promise<Found | undefined> => {
    const row = await readSession(db, catalog.current(), key)
    if (row === undefined) return undefined
    const { remainingMs, id, type, extendable, ...found } = row
    const standing = await standingOf(db, access.current(), config.tenancy.enabled, found, log)
    return { session: { ...standing, id, type, extendable }, remainingMs }
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

/** What a statement with {@link standingSql} finds. */
export type StandingRow = {
  userId: string
  tenantId: string | null
  role: Role
  user: Row
  userRole: Row
  tenant: Row | null
}

type FoundRow = StandingRow & { id: string; type: SessionType; extendable: boolean; remainingMs: number }

/** Adds what the role's rules need to know of the user; one more statement where they follow relations. */
export async function standingOf(
  db: Database,
  rules: AccessRules,
  multiTenant: boolean,
  { tenantId, tenant, ...same }: StandingRow,
  log: Logger,
): Promise<Standing> {
  const paths = relatedPathsOf(rules, same.role.id)
  const related = await loadRelated(db, rules.catalog, paths, String(same.userRole.id), log)
  return {
    ...same,
    tenantId: multiTenant ? (tenantId ?? undefined) : undefined,
    tenant: multiTenant ? (tenant ?? undefined) : undefined,
    rules,
    related,
  }
}

async function readSession(db: Database, catalog: Catalog, tokenHash: string): Promise<FoundRow | undefined> {
  const text = sessionSql(catalog)
  const [row] = await db.run<FoundRow>(text, [tokenHash], statementName(text))
  return row
}

const texts = new WeakMap<Catalog, string>()

function sessionSql(catalog: Catalog): string {
  const text = texts.get(catalog) ?? makeSessionSql(catalog)
  texts.set(catalog, text)
  return text
}

/** A session counts with the role that its user has at its tenant now: demotion and removal act at once. */
function makeSessionSql(catalog: Catalog): string {
  return `
    select s.id, s.type, s."user_Id" as "userId", s."tenant_Id" as "tenantId", ${standingSql(catalog)},
      s."updatedAt" < now() - interval '1 day' as extendable,
      (extract(epoch from s."expiresAt" - now()) * 1000)::float8 as "remainingMs"
    from "svc_Sessions" s
    join "svc_User" u on u.id = s."user_Id" and u.status = 'active'
    join "svc_UserRole" ur on ur."user_Id" = s."user_Id" and ur."tenant_Id" is not distinct from s."tenant_Id"
    join "svc_Role" r on r.id = ur."role_Id"
    left join "svc_Tenant" t on t.id = s."tenant_Id"
    where s.token = $1 and s."expiresAt" > now()`
}
