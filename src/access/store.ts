import type { Logger } from 'pino'
import type { Catalog } from '../catalog/catalog.ts'
import type { CatalogStore } from '../catalog/store.ts'
import type { Listener } from '../db/listener.ts'
import { inRounds } from '../db/rounds.ts'
import { type Reader, rawQuery } from '../db/sql.ts'
import { projectionList } from '../query/compile-rows.ts'

export type Role = {
  readonly id: string
  readonly name: string
  readonly description: string | null
  readonly isTenantSpecific: boolean
  readonly canInviteRoleIds: readonly string[] | null
  readonly [more: string]: unknown
}

/** The content of a permission row or a named rule, as stored. */
export type StoredRule = {
  readonly fields: unknown
  readonly conditions: unknown
  readonly relConditions: unknown
  readonly defaultValues: unknown
}

/** A stored row of svc_Permission in its wire form. */
export type PermissionRow = StoredRule & {
  readonly id: string
  readonly role_Id: string
  readonly collection: string
  readonly action: string
  readonly acl_Ids: unknown
  readonly createdAt: string
  readonly updatedAt: string
}

/** A stored row of svc_ACL in its wire form: a rule with a name, which permissions of any collection refer to. */
export type AclRow = StoredRule & { readonly id: string; readonly name: string; readonly system: boolean }

export type AccessRules = {
  readonly roles: ReadonlyMap<string, Role>
  readonly publicRole: Role
  /** Rows of a role, in collection and action order. */
  readonly permissions: ReadonlyMap<string, readonly PermissionRow[]>
  /** Named rules by id. */
  readonly acls: ReadonlyMap<string, AclRow>
  /** The meaning of their names. */
  readonly catalog: Catalog
  /** Different after every change; part of cache keys. */
  readonly version: number
}

/** Roles and permissions of the whole installation, kept in step by NOTIFY with a TTL as the last net. */
export type AccessStore = {
  current(): AccessRules
  reload(): Promise<void>
  /** As `reload`, but without a change it notifies no one, and what is kept for the rules stays. */
  reloadIfStale(): Promise<void>
  /** The rules as they are now, read again where they know no role of this id or name: it may have been made a moment ago. */
  knowing(role: string): Promise<AccessRules>
  onChange(handler: () => void): void
}

/** The roles and their rules as they are now. */
export type CurrentAccess = { readonly access: AccessStore }

export async function openAccessStore(
  db: Reader,
  catalog: CatalogStore,
  listener: Listener,
  log: Logger,
  ttlSeconds: number,
): Promise<AccessStore> {
  let version = 0
  let rules = await readRules(db, catalog.current(), version)
  let loadedAt = Date.now()
  let refreshing = false
  const handlers: (() => void)[] = []

  // Keepers of what was made from the rules hear of new ones before anybody can see them.
  const swap = (next: AccessRules) => {
    rules = next
    for (const handler of handlers) handler()
  }
  // One reader: of two beside each other, the one that began before a change could end after the other and undo it.
  const read = inRounds(async (wanted: readonly ('always' | 'when changed')[]) => {
    const next = await readRules(db, catalog.current(), version)
    loadedAt = Date.now()
    if (!wanted.includes('always') && contentOf(next) === contentOf(rules)) return
    // The collections may have changed while this was read; then it is read again, too.
    swap({ ...next, catalog: catalog.current(), version: ++version })
  })
  const reload = () => read('always')
  const reloadIfStale = () => read('when changed')
  const reloadSoon = () => {
    refreshing = true
    reload()
      .catch((error: unknown) => log.error({ err: error }, 'roles and permissions could not be reloaded'))
      .finally(() => {
        refreshing = false
      })
  }
  listener.on('svc_access', reloadSoon)
  listener.onReconnect(reloadSoon)
  // A rule is compiled against the collections: what a name means may have changed, and roles may have new columns.
  catalog.onChange((_before, after) => {
    swap({ ...rules, catalog: after, version: ++version })
    reloadSoon()
  })
  return {
    current: () => {
      if (Date.now() - loadedAt > ttlSeconds * 1000 && !refreshing) reloadSoon()
      return rules
    },
    reload,
    reloadIfStale,
    async knowing(role) {
      if (roleIn(rules, role) === undefined) await reloadIfStale()
      return rules
    },
    onChange: (handler) => handlers.push(handler),
  }
}

/** The role of this id, else of this name. */
export function roleIn({ roles }: AccessRules, idOrName: string): Role | undefined {
  return roles.get(idOrName) ?? [...roles.values()].find(({ name }) => name === idOrName)
}

const contentOf = ({ roles, permissions, acls }: AccessRules): string =>
  JSON.stringify([[...roles], [...permissions], [...acls]])

/** Everything that is stored, read as of now. */
export async function readRules(db: Reader, catalog: Catalog, version: number): Promise<AccessRules> {
  const all = <Row>(name: string, order: string) => {
    const { fields } = catalog.collections.get(name)!
    const columns = projectionList([...fields.values()], 't')
    return db.any<Row>(rawQuery(`select ${columns} from "${name}" t order by ${order}`))
  }
  const roles = await all<Role>('svc_Role', 't.name')
  const rows = await all<PermissionRow>('svc_Permission', 't.collection, t.action')
  const acls = await all<AclRow>('svc_ACL', 't.name')
  const byId = new Map(roles.map((role) => [role.id, role]))
  const publicRole = [...byId.values()].find((role) => role.name === 'public')
  if (publicRole === undefined) throw new Error('the role public is missing: run the setup')
  return {
    roles: byId,
    publicRole,
    permissions: Map.groupBy(rows, (permission) => permission.role_Id),
    acls: new Map(acls.map((acl) => [acl.id, acl])),
    catalog,
    version,
  }
}
