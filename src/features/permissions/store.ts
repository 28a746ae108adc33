import type { Logger } from 'pino'
import type { Catalog } from '../../catalog/catalog.ts'
import type { CatalogStore } from '../../catalog/store.ts'
import type { Listener } from '../../db/listener.ts'
import { type Reader, rawQuery } from '../../db/sql.ts'
import { projectionList } from '../../query/projection.ts'

export type Role = {
  readonly id: string
  readonly name: string
  readonly description: string | null
  readonly isTenantSpecific: boolean
  readonly canInviteRoleIds: readonly string[] | null
  readonly [more: string]: unknown
}

/** A stored row of svc_Permission in its wire form (spec/permissions.md §6). */
export type PermissionRow = {
  readonly id: string
  readonly role_Id: string
  readonly collection: string
  readonly action: string
  readonly fields: unknown
  readonly conditions: unknown
  readonly relConditions: unknown
  readonly defaultValues: unknown
  readonly createdAt: string
  readonly updatedAt: string
}

export type AccessRules = {
  readonly roles: ReadonlyMap<string, Role>
  readonly publicRole: Role
  /** Rows of a role, in collection and action order. */
  readonly permissions: ReadonlyMap<string, readonly PermissionRow[]>
  /** Different after every change; part of cache keys. */
  readonly version: number
}

/** Roles and permissions of the whole installation, kept in step by NOTIFY with a TTL as the last net. */
export type AccessStore = {
  current(): AccessRules
  reload(): Promise<void>
  onChange(handler: () => void): void
}

const ttlMs = 30_000

export async function openAccessStore(
  db: Reader,
  catalog: CatalogStore,
  listener: Listener,
  log: Logger,
): Promise<AccessStore> {
  let version = 0
  let rules = await readRules(db, catalog.current(), version)
  let loadedAt = Date.now()
  let loading: Promise<void> | undefined
  let again = false
  const handlers: (() => void)[] = []

  const load = async () => {
    do {
      again = false
      const next = await readRules(db, catalog.current(), ++version)
      rules = next
      loadedAt = Date.now()
    } while (again)
    for (const handler of handlers) handler()
  }
  const reload = (): Promise<void> => {
    if (loading !== undefined) {
      again = true
      return loading
    }
    loading = load().finally(() => {
      loading = undefined
    })
    return loading
  }
  const reloadSoon = () => {
    reload().catch((error: unknown) => log.error({ err: error }, 'roles and permissions could not be reloaded'))
  }
  listener.on('svc_access', reloadSoon)
  listener.onReconnect(reloadSoon)
  return {
    current: () => {
      if (Date.now() - loadedAt > ttlMs && loading === undefined) reloadSoon()
      return rules
    },
    reload,
    onChange: (handler) => handlers.push(handler),
  }
}

async function readRules(db: Reader, catalog: Catalog, version: number): Promise<AccessRules> {
  const all = <Row>(name: string, order: string) => {
    const { fields } = catalog.collections.get(name)!
    const columns = projectionList([...fields.values()], 't')
    return db.any<Row>(rawQuery(`select ${columns} from "${name}" t order by ${order}`))
  }
  const roles = await all<Role>('svc_Role', 't.name')
  const rows = await all<PermissionRow>('svc_Permission', 't.collection, t.action')
  const byId = new Map(roles.map((role) => [role.id, role]))
  const publicRole = [...byId.values()].find((role) => role.name === 'public')
  if (publicRole === undefined) throw new Error('the role public is missing: run the setup')
  const permissions = Map.groupBy(rows, (permission) => permission.role_Id)
  return { roles: byId, publicRole, permissions, version }
}
