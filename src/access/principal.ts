import type { Logger } from 'pino'
import type { Catalog, Collection } from '../catalog/catalog.ts'
import type { CurrentCatalog } from '../catalog/store.ts'
import type { Database } from '../db/pools.ts'
import { AppError, errors } from '../errors.ts'
import { oncePer } from '../language/once.ts'
import { type Access, systemAccess, type VariableName } from '../query/access.ts'
import { compileOne } from '../query/compile.ts'
import { projectionList } from '../query/compile-rows.ts'
import { isObject } from '../query/guards.ts'
import { parseListQuery } from '../query/parse.ts'
import { noSettings, resolveOne } from '../query/resolve.ts'
import type { Statement } from '../query/sql.ts'
import { accessOf, type RelatedPath, type RelatedValues, relatedPathsOf, type VariableRow } from './access.ts'
import type { AccessRules, Role } from './store.ts'

/** A user with everything that rules may refer to, as one statement saw it. Rows are in wire form, without hidden fields. */
export type Principal = {
  readonly userId: string
  /** Undefined outside multi-tenant mode. */
  readonly tenantId: string | undefined
  readonly role: Role
  readonly user: VariableRow
  readonly userRole: VariableRow
  readonly tenant: VariableRow | undefined
  /** The rules that say what the principal may do, and the values of their variables over relations. */
  readonly rules: AccessRules
  readonly related: RelatedValues
}

/** The row of a statement that selects `principalSql`. */
export type PrincipalRow = {
  userId: string
  tenantId: string | null
  role: Role
  user: VariableRow
  userRole: VariableRow
  tenant: VariableRow | null
}

/** The caller: a user with a live session or an API key, or the public role. */
export type Caller = {
  readonly role: Role
  readonly admin: boolean
  readonly userId: string | undefined
  readonly tenantId: string | undefined
  readonly sessionId: string | undefined
  /** The API key that stands in for a session; never both. */
  readonly keyId: string | undefined
  /** The user's own row in wire form, without hidden fields; undefined for the public role. */
  readonly user: VariableRow | undefined
  readonly access: Access
  /** The program that acts for the user by an OAuth token; its session ends with what the user has allowed it. */
  readonly client?: ActingClient | undefined
  /** Set where an administrator looks at what this caller would see (docs/console.md); nothing can be written then. */
  readonly preview?: { readonly owner: Caller } | undefined
}

/** The user who is really there. */
export const ownerOf = (caller: Caller): Caller => caller.preview?.owner ?? caller

/** A program, what it was granted (`access.scope` has what counts for access), and the resources that its token is for. */
type ActingClient = {
  readonly clientId: string
  readonly name: string
  readonly scopes: readonly string[]
  readonly audience: readonly string[]
}

/** A caller who is a user, with a session or an API key; 401 for others. */
export function identified(caller: Caller): Caller & { readonly userId: string } {
  const { userId } = caller
  if (userId === undefined) throw errors.unauthorized('Unauthorized')
  return { ...caller, userId }
}

/** A caller of a route that needs a session of the user's own; 403 with an API key or a program's token instead, 401 for others. */
export function signedIn(caller: Caller): Caller & { readonly sessionId: string; readonly userId: string } {
  const { sessionId, userId, keyId, client } = caller
  if (keyId !== undefined) throw errors.sessionNeeded()
  if (client !== undefined) throw errors.tokenNotAccepted()
  if (sessionId === undefined || userId === undefined) throw errors.unauthorized('Unauthorized')
  return { ...caller, sessionId, userId }
}

/**
 * SQL expression of the row `alias` as JSON in wire form, without hidden fields: what callers may know of their own
 * user, role and tenant, whatever their permissions say.
 */
export function ownRowSql(collection: Collection, alias: string): string {
  const visible = [...collection.fields.values()].filter((field) => !field.hidden)
  return `(select to_json(own) from (select ${projectionList(visible, alias)}) own)`
}

/** Select list of a principal's rows: of svc_Role r, svc_User u, svc_UserRole ur and svc_Tenant t. */
export function principalSql(catalog: Catalog): string {
  const row = (name: string, alias: string) => ownRowSql(catalog.collections.get(name)!, alias)
  return `${row('svc_Role', 'r')} as role, ${row('svc_User', 'u')} as "user", ${row('svc_UserRole', 'ur')} as "userRole",
      case when t.id is not null then ${row('svc_Tenant', 't')} end as tenant`
}

/** Adds what the role's rules need to know of the user; one more statement where they follow relations. */
export async function principalOf(
  db: Database,
  rules: AccessRules,
  multiTenant: boolean,
  { tenantId, tenant, ...same }: PrincipalRow,
  log: Logger,
): Promise<Principal> {
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

/** The value of `$CURRENT_SETTINGS`; the settings are opened above. */
export type SettingsInForce = {
  readonly settings: {
    readonly current: (tenantId: string | undefined) => VariableRow
    readonly reload: () => Promise<unknown>
  }
}

/** The access of a principal. */
export function accessOfPrincipal(deps: CurrentCatalog & SettingsInForce, principal: Principal): Access {
  const { rules, related, role, userId, tenantId, user, tenant, userRole } = principal
  const rows = { CURRENT_USER: user, CURRENT_ROLE: role, CURRENT_TENANT: tenant, CURRENT_USERROLE: userRole }
  return accessOf(rules, { role, userId, tenantId, rows: withSettings(deps, tenantId, rows), related })
}

/** The access of a caller of whom no more than the role is known. */
export function accessOfRole(
  deps: CurrentCatalog & SettingsInForce,
  rules: AccessRules,
  role: Role,
  tenantId: string | undefined,
): Access {
  const rows = withSettings(deps, tenantId, { CURRENT_ROLE: role })
  return accessOf(rules, { role, userId: undefined, tenantId, rows, related: new Map() })
}

type VariableRows = Partial<Record<VariableName, VariableRow | undefined>>

/** Settings are looked up when a rule asks for them: a caller may be remembered for longer than they stand. */
function withSettings(deps: CurrentCatalog & SettingsInForce, tenantId: string | undefined, rows: VariableRows) {
  const given = Object.fromEntries(Object.entries(rows).filter(([, row]) => row !== undefined))
  return Object.defineProperty(given, 'CURRENT_SETTINGS', {
    enumerable: true,
    get: () => visibleSettings(deps, tenantId),
  }) as Record<VariableName, VariableRow>
}

function visibleSettings(
  { catalog, settings }: CurrentCatalog & SettingsInForce,
  tenantId: string | undefined,
): VariableRow {
  return visibleBy(catalog.current().collections.get('svc_Settings')!)(settings.current(tenantId))
}

const visibleBy = oncePer(({ fields }: Collection) =>
  oncePer((settings: VariableRow): VariableRow => {
    const visible = Object.entries(settings).filter(([name]) => fields.get(name)?.hidden === false)
    return Object.fromEntries(visible)
  }),
)

/**
 * The values of these paths for the user in a role that the row of svc_UserRole names, in wire form, whatever their
 * permissions say; hidden fields and soft-deleted rows are left out. To-many paths give an array of different values.
 */
async function loadRelated(
  db: Database,
  catalog: Catalog,
  paths: readonly RelatedPath[],
  userRoleId: string,
  log: Logger,
): Promise<RelatedValues> {
  const statement = paths.length === 0 ? undefined : relatedSql(catalog, paths, userRoleId, log)
  if (statement === undefined) return new Map()
  const [row] = await db.run<{ data: string }>(statement.text, statement.values, 'prepared')
  const tree: unknown = row === undefined ? null : JSON.parse(row.data)
  return new Map(
    paths.flatMap(({ key, path, many }): [string, unknown][] => {
      const found = [...new Set(valuesAt(tree, path))]
      return found.length === 0 ? [] : [[key, many ? found : found[0]]]
    }),
  )
}

/** Undefined, so that the variables match nothing, where all rules together follow more relations than one query may. */
function relatedSql(
  catalog: Catalog,
  paths: readonly RelatedPath[],
  userRoleId: string,
  log: Logger,
): Statement | undefined {
  try {
    const query = parseListQuery({ fields: paths.map(({ path }) => path.join('.')) })
    return compileOne(resolveOne(catalog, systemAccess, 'svc_UserRole', userRoleId, query, noSettings))
  } catch (error) {
    if (!(error instanceof AppError)) throw error
    log.error({ err: error }, 'the variables in stored permissions cannot be read')
    return undefined
  }
}

function valuesAt(node: unknown, [head, ...rest]: readonly string[]): unknown[] {
  if (node === null || node === undefined) return []
  if (head === undefined) return [node]
  if (Array.isArray(node)) return node.flatMap((one) => valuesAt(one, [head, ...rest]))
  return isObject(node) ? valuesAt(node[head], rest) : []
}
