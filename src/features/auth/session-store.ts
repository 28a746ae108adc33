import type { Logger } from 'pino'
import { hashSecret } from '../../adapters/tokens.ts'
import type { Catalog } from '../../catalog/catalog.ts'
import type { CatalogStore } from '../../catalog/store.ts'
import type { Config } from '../../config.ts'
import { isStalePlan } from '../../db/errors.ts'
import type { Listener } from '../../db/listener.ts'
import type { Database } from '../../db/pools.ts'
import { statementName } from '../../db/statement-names.ts'
import type { SessionType } from '../../db/unlogged.ts'
import { errors } from '../../errors.ts'
import { relatedPathsOf } from '../permissions/permissions.ts'
import { loadRelated, type Related } from '../permissions/related.ts'
import type { AccessRules, AccessStore, Role } from '../permissions/store.ts'
import { standingSql } from './own-row.ts'
import { liveSessionSql, openSessionChecks, sessionVersionSql } from './session-checks.ts'

export type { SessionType } from '../../db/unlogged.ts'

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
  /** Not noted as used for five minutes. */
  readonly idle: boolean
  /** When its row expires unless it is extended, as `performance.now()` tells it. */
  readonly endsAt: number
}

type Row = Readonly<Record<string, unknown>>

export type SessionStore = {
  /**
   * The live session of a token; undefined when it has ended or expired, its user is not active, or the user no longer
   * has a role there. Rejects with 503 when the database can't tell: a caller is never taken for somebody else.
   */
  find(sessionToken: string): Promise<Session | undefined>
  /** Tells the watchers here of a session that this process has just ended, without waiting for the notification. */
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

/** After this a session is read again, so that what its rows do not tell (a variable over relations) counts soon. */
const freshForMs = 1000
const sessionsAtMost = 10_000

type Entry = { readonly session: Session; readonly version: string; readonly staleAt: number }

/**
 * The sessions of this process's callers. Every `find` asks the database whether the session is live; what is kept in
 * memory, for a second, is only what an unchanged session means (ADR 9). An end is thus effective with its commit.
 */
export function openSessionStore(options: SessionStoreOptions): SessionStore {
  const { db, listener, catalog, access, config, log } = options
  const checks = openSessionChecks(db)
  const entries = new Map<string, Entry>()
  const reading = new Map<string, Promise<Entry | undefined>>()
  const handlers: ((concerns: Concerns) => void)[] = []

  const tell = (concerns: Concerns) => {
    for (const [key, { session }] of entries) if (concerns(session)) entries.delete(key)
    for (const handler of handlers) handler(concerns)
  }

  const load = async (key: string): Promise<Entry | undefined> => {
    try {
      return await readEntry(key)
    } catch (error) {
      if (!isStalePlan(error)) throw error
      await catalog.reload()
      return readEntry(key)
    }
  }

  const readEntry = async (key: string): Promise<Entry | undefined> => {
    const startedAt = performance.now()
    const row = await readSession(db, catalog.current(), key)
    if (row === undefined) return undefined
    const { remainingMs, version, id, type, extendable, idle, ...found } = row
    const standing = await standingOf(db, access.current(), config.tenancy.enabled, found, log)
    const session = { ...standing, id, type, extendable, idle, endsAt: startedAt + remainingMs }
    return { session, version, staleAt: startedAt + freshForMs }
  }

  const keep = (key: string, entry: Entry | undefined) => {
    entries.delete(key)
    if (entry === undefined) return
    entries.set(key, entry)
    if (entries.size > sessionsAtMost) entries.delete(entries.keys().next().value!)
  }

  /** One read for all that ask at the same time. It may have begun before the question: compare its version. */
  const readShared = (key: string): Promise<Entry | undefined> => {
    const running = reading.get(key)
    if (running !== undefined) return running
    const started = load(key).finally(() => reading.delete(key))
    reading.set(key, started)
    return started
  }

  const isCurrent = (entry: Entry | undefined, version: string): entry is Entry =>
    entry?.version === version && entry.session.rules === access.current() && performance.now() < entry.staleAt

  const find = async (sessionToken: string): Promise<Session | undefined> => {
    const key = hashSecret(sessionToken)
    try {
      const version = await checks.versionOf(key)
      if (version === undefined) return undefined
      const kept = entries.get(key)
      if (isCurrent(kept, version)) return kept.session
      const shared = await readShared(key)
      const entry = isCurrent(shared, version) ? shared : await load(key)
      keep(key, entry)
      return entry?.session
    } catch (error) {
      log.warn({ err: error }, 'a session could not be checked')
      throw Object.assign(errors.unavailable(), { cause: error })
    }
  }

  listener.on('svc_sessions', (payload) => tell(concernsOf(payload)))
  listener.onReconnect(() => tell(everybody))
  access.onChange(() => tell(everybody))
  return {
    find,
    forget: (sessionId) => tell((session) => session.id === sessionId),
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

/** What a statement with {@link standingSql} finds. */
export type StandingRow = {
  userId: string
  tenantId: string | null
  role: Role
  user: Row
  userRole: Row
  tenant: Row | null
}

type FoundRow = StandingRow &
  Pick<Session, 'id' | 'type' | 'extendable' | 'idle'> & { version: string; remainingMs: number }

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
      ${sessionVersionSql} as version, s."updatedAt" < now() - interval '1 day' as extendable,
      coalesce(s."lastUsedAt", s."createdAt") < now() - interval '5 minutes' as idle,
      (extract(epoch from s."expiresAt" - now()) * 1000)::float8 as "remainingMs" ${liveSessionSql}
    where s.token = $1 and s."expiresAt" > now()`
}
