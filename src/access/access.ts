import { hash } from 'node:crypto'
import type { Catalog, Collection, Field } from '../catalog/catalog.ts'
import { AppError, errors } from '../errors.ts'
import { oncePer } from '../language/once.ts'
import { type Access, type Grant, systemAccess, type VariableName } from '../query/access.ts'
import { isObject } from '../query/guards.ts'
import { isToMany } from '../query/plan.ts'
import { rowPart } from '../query/resolve-view.ts'
import { rowsOf as collectionsOfRows, substitute } from '../query/variables.ts'
import type { AccessRules, AclRow, PermissionRow, Role, StoredRule } from './store.ts'

/** The holder of an access. */
export type Holder = {
  readonly role: Role
  readonly userId: string | undefined
  readonly tenantId: string | undefined
  /** Rows behind `$CURRENT_USER.x`, `$CURRENT_TENANT.x`, …; wire forms, without hidden fields. */
  readonly rows: Partial<Record<VariableName, Readonly<Record<string, unknown>>>>
  /** The paths that {@link relatedPathsOf} asked for. */
  readonly related: RelatedValues
}

/**
 * The rights of a caller. The grants are compiled once per role and version of the rules; the rest follows from whom the
 * access is for. Digests are made when a cache asks for them.
 */
export function accessOf(rules: AccessRules, holder: Holder): Access {
  const { grants, closed, isPersonal, isLasting } = compiledRole(rules, holder.role.id)
  const shared = once(() => digest(sharedOf(rules, holder)))
  const personal = once(() => digest(`${shared()} ${holder.userId ?? ''} ${rowsOf(holder)}`))
  return {
    admin: holder.role.name === administratorRole,
    roleId: holder.role.id,
    userId: holder.userId,
    tenantId: holder.tenantId,
    tenantSpecific: holder.role.isTenantSpecific,
    identity: (namesVariables) =>
      isPersonal || namesVariables ? `${personal()} ${digestOfRow(holder.rows.CURRENT_SETTINGS ?? none)}` : shared(),
    meaning: () => (isLasting ? (isPersonal ? personal() : shared()) : undefined),
    grant: (collection, action) => grants.get(`${action} ${collection}`),
    closed,
    variable: (name, path) => variableOf(rules, holder, name, path),
  }
}

/** The variables over relations in the rules of a role: what must be loaded before its access is made. */
export function relatedPathsOf(rules: AccessRules, roleId: string): readonly RelatedPath[] {
  return compiledRole(rules, roleId).paths
}

/** Collections with a read permission that has a row rule. */
export function collectionsWithRowRules(rules: AccessRules): readonly string[] {
  const reads = [...rules.permissions.values()].flat().filter(({ action }) => action === 'read')
  const ruled = reads.filter((row) => !isNone(grantOf(row, rules)?.conditions))
  return [...new Set(ruled.map(({ collection }) => collection))]
}

function variableOf(rules: AccessRules, holder: Holder, name: VariableName, path: readonly string[]): unknown {
  const row = holder.rows[name]
  if (path.length === 0) return ownIds(holder)[name] ?? row?.id
  const [column] = path as [string]
  if (path.length === 1 && row !== undefined && Object.hasOwn(row, column)) return row[column]
  const key = variableKey({ name, path })
  const isKnown = relatedPathsOf(rules, holder.role.id).some((known) => known.key === key)
  if (!isKnown && relatedPath(rules.catalog, { name, path }) !== undefined)
    throw errors.badQuery(`$${key}: only stored permissions can follow the relations of the caller`)
  return holder.related.get(key)
}

function ownIds({ userId, role, tenantId }: Holder): Partial<Record<VariableName, string | undefined>> {
  return { CURRENT_USER: userId, CURRENT_ROLE: role.id, CURRENT_TENANT: tenantId }
}

/** Roles with the same rules have the same digest in every process. */
function sharedOf(rules: AccessRules, { role, tenantId }: Holder): string {
  return `${role.id} ${tenantId ?? ''} ${role.name} ${role.isTenantSpecific} ${compiledRole(rules, role.id).digest}`
}

/** Values of the variables, without the settings: these may change while the holder stays the same. */
function rowsOf({ rows, related }: Holder): string {
  const { CURRENT_USER, CURRENT_ROLE, CURRENT_TENANT, CURRENT_USERROLE } = rows
  const values = [CURRENT_USER, CURRENT_ROLE, CURRENT_TENANT, CURRENT_USERROLE, [...related]]
  return JSON.stringify(values)
}

/** A row whose values the variables of rules stand for. */
export type VariableRow = Readonly<Record<string, unknown>>

/** A row object is never changed: a changed row is read into another object. */
const digestOfRow = oncePer((row: VariableRow) => digest(JSON.stringify(row)))
const none: VariableRow = {}

const digest = (text: string): string => hash('sha256', text, 'base64url')

function once<T extends NonNullable<unknown>>(make: () => T): () => T {
  let made: T | undefined
  return () => (made ??= make())
}

type CompiledRole = {
  readonly grants: ReadonlyMap<string, Grant>
  readonly closed: ReadonlySet<string>
  readonly paths: readonly RelatedPath[]
  readonly digest: string
  /** Whether a rule names a variable of the caller. */
  readonly isPersonal: boolean
  /** Whether no rule names what changes while the caller stays: the time, the settings. */
  readonly isLasting: boolean
}

const compiledRoles = oncePer((_rules: AccessRules) => new Map<string, CompiledRole>())

function compiledRole(rules: AccessRules, roleId: string): CompiledRole {
  const byRole = compiledRoles(rules)
  const known = byRole.get(roleId) ?? compileRole(rules, roleId)
  byRole.set(roleId, known)
  return known
}

function compileRole(rules: AccessRules, roleId: string): CompiledRole {
  const grants = new Map<string, Grant>()
  const closed = new Set<string>()
  for (const row of rules.permissions.get(roleId) ?? []) {
    const grant = grantOf(row, rules)
    if (grant !== undefined) grants.set(`${row.action} ${row.collection}`, grant)
    else if (row.action === 'read') closed.add(row.collection)
  }
  const text = JSON.stringify([...grants, ...closed])
  return {
    grants,
    closed,
    paths: pathsIn(rules, [...grants.values()]),
    digest: digest(text),
    isPersonal: text.includes('$CURRENT_'),
    isLasting: !text.includes('$NOW') && !text.includes('$CURRENT_SETTINGS'),
  }
}

function pathsIn({ catalog }: AccessRules, grants: readonly Grant[]): readonly RelatedPath[] {
  const values = grants.flatMap(({ conditions, relConditions, defaultValues }) => [
    conditions,
    relConditions,
    defaultValues,
  ])
  const paths = values
    .flatMap((value) => variablesIn(value, catalog))
    .flatMap((variable) => relatedPath(catalog, variable) ?? [])
  return [...new Map(paths.map((path) => [path.key, path])).values()]
}

/**
 * The grant of a permission row: its own fields and conditions, or the combination of the named rules it refers to.
 * Undefined, which means refused, where the stored row has no meaning: a row that was written past the checks must not
 * come out as "no restriction".
 */
export function grantOf(row: PermissionRow, rules: Pick<AccessRules, 'acls' | 'catalog'>): Grant | undefined {
  const collection = rules.catalog.collections.get(row.collection)
  const makesSense = (rule: StoredRule) => isWellFormed(rule) && (row.action !== 'read' || limitsFit(rule, collection))
  if (isNone(row.acl_Ids)) return makesSense(row) ? inlineGrant(row) : undefined
  if (hasInlineRule(row)) return undefined
  const named = namedRules(row.acl_Ids, rules.acls).filter(makesSense)
  return named.length === 0 ? undefined : combined(named, row, rules.catalog)
}

/** The rules with these ids, in their order; ids of rules that are gone grant nothing. */
export function namedRules(ids: unknown, acls: ReadonlyMap<string, AclRow>): readonly AclRow[] {
  return Array.isArray(ids) ? ids.flatMap((id) => acls.get(String(id)) ?? []) : []
}

/** `*`, `a, b.*` and `["a", "b.*"]` are all accepted; null and an empty list mean "none given". */
export function fieldSpecs(stored: unknown): readonly string[] | null {
  const list: readonly unknown[] = Array.isArray(stored) ? stored : [stored ?? '']
  const specs = list.flatMap((spec) => String(spec).split(',')).map((spec) => spec.trim())
  const given = specs.filter((spec) => spec !== '')
  return given.length === 0 ? null : given
}

/** Text or a list of texts, or nothing. */
export function isFieldList(value: unknown): boolean {
  if (value === undefined || value === null || typeof value === 'string') return true
  return Array.isArray(value) && value.every((spec) => typeof spec === 'string')
}

/** Null, an empty list or an empty object: nothing given. */
export function isNone(value: unknown): boolean {
  if (value === undefined || value === null) return true
  return Array.isArray(value) ? value.length === 0 : isObject(value) && Object.keys(value).length === 0
}

/** Whether a permission says anything itself, beside naming rules. */
export function hasInlineRule({ fields, conditions, relConditions, defaultValues }: StoredRule): boolean {
  return fieldSpecs(fields) !== null || ![conditions, relConditions, defaultValues].every(isNone)
}

function isWellFormed({ fields, relConditions, defaultValues }: StoredRule): boolean {
  // Conditions are not checked here: those that do not resolve let nothing through.
  const isNoneOrObject = (value: unknown) => isNone(value) || isObject(value)
  return isFieldList(fields) && isNoneOrObject(relConditions) && isNoneOrObject(defaultValues)
}

/** Limits on the rows of something that is no relation would limit nothing. */
function limitsFit({ relConditions }: StoredRule, collection: Collection | undefined): boolean {
  if (collection === undefined || !isObject(relConditions)) return true
  return Object.keys(relConditions).every((name) => collection.relations.has(name))
}

function inlineGrant({ fields, conditions, relConditions, defaultValues }: StoredRule): Grant {
  return {
    fields: fieldSpecs(fields),
    conditions: conditions ?? null,
    relConditions: relConditions ?? null,
    defaultValues: isObject(defaultValues) ? defaultValues : null,
  }
}

function combined(named: readonly StoredRule[], { action, collection }: PermissionRow, catalog: Catalog): Grant {
  const conditions = named.map((rule) => rule.conditions)
  return {
    fields: unionOfFields(named, action),
    conditions: conditions.some(isNone) ? null : conditions.length === 1 ? conditions[0] : { OR: conditions },
    relConditions: eitherOf(
      named.map((rule) => rule.relConditions),
      catalog.collections.get(collection),
      catalog,
    ),
    defaultValues: Object.assign({}, ...named.map((rule) => rule.defaultValues)),
  }
}

/** An exclusion in one of the rules holds for all of them: a union of what is left would need another language. */
function unionOfFields(named: readonly StoredRule[], action: string): readonly string[] | null {
  const union = new Set(named.flatMap((rule) => specsFor(action, fieldSpecs(rule.fields))))
  return union.size === 0 ? null : [...union]
}

/** No fields given: on read every own column, on write none. */
function specsFor(action: string, specs: readonly string[] | null): readonly string[] {
  if (action !== 'read') return specs ?? []
  return specs?.some((spec) => !spec.startsWith('-')) ? specs : ['*', ...(specs ?? [])]
}

type RelConditions = Readonly<Record<string, unknown>>

/** Limits on related rows that hold in every rule, each lifted to "one of them lets the row through". */
function eitherOf(all: readonly unknown[], collection: Collection | undefined, catalog: Catalog): RelConditions | null {
  const [first, ...rest] = all
  if (!all.every(isObject) || !isObject(first)) return null
  const common = Object.keys(first).filter((name) => rest.every((one) => Object.hasOwn(one as object, name)))
  const entries = common.flatMap((name) => {
    const relation = collection?.relations.get(name)
    const target = relation && catalog.collections.get(relation.target)
    if (target === undefined) return []
    const limits = all.map((one) => (one as RelConditions)[name])
    return [[name, rest.length === 0 ? limits[0] : eitherOfTarget(limits, target, catalog)]]
  })
  return Object.fromEntries(entries)
}

function eitherOfTarget(limits: readonly unknown[], target: Collection, catalog: Catalog): RelConditions {
  const rows = limits.map((conditions) => rowPart(conditions, target))
  const nested = limits.map((conditions) => relatedPart(conditions, target))
  return { ...(!rows.some(isNone) && { OR: rows }), ...eitherOf(nested, target, catalog) }
}

/** The part that {@link rowPart} leaves out. */
export function relatedPart(conditions: unknown, collection: Collection): RelConditions {
  const entries = isObject(conditions) ? Object.entries(conditions) : []
  return Object.fromEntries(entries.filter(([name, value]) => collection.relations.has(name) && isObject(value)))
}

// Variables that lead through relations, such as `$CURRENT_USER.userRoles.tenant_Id`. Rules are resolved without waiting,
// so their values must be known beforehand: the paths in a role's stored rules are collected when these are compiled, and
// their values are read with the session, in one statement.

/** `$name.path[0].path[1]…`; without a path the id of the row. */
export type CallerVariable = { readonly name: VariableName; readonly path: readonly string[] }

/** Values by {@link variableKey}; none where there is no related row. */
export type RelatedValues = ReadonlyMap<string, unknown>

/** The target of a variable: a field, reached over relations, perhaps of several rows. */
type VariableTarget = {
  readonly field: Field
  /** Relation names from the caller's row to the field's. */
  readonly relations: readonly string[]
  readonly many: boolean
}

export const variableKey = ({ name, path }: CallerVariable): string => [name, ...path].join('.')

/** Undefined for names that do not exist, and for hidden fields. A path that ends at a relation means its rows' ids. */
export function variableTarget(catalog: Catalog, { name, path }: CallerVariable): VariableTarget | undefined {
  let collection: Collection = catalog.collections.get(collectionsOfRows[name])!
  const relations: string[] = []
  let many = false
  for (const [i, segment] of path.entries()) {
    const field = collection.fields.get(segment)
    if (field !== undefined) return i === path.length - 1 && !field.hidden ? { field, relations, many } : undefined
    const relation = collection.relations.get(segment)
    const target = relation && catalog.collections.get(relation.target)
    if (relation === undefined || target === undefined) return undefined
    relations.push(segment)
    many ||= isToMany(relation)
    collection = target
  }
  return { field: collection.primaryKey, relations, many }
}

/** Every variable in a stored value. A path over a hidden field is not found: such a rule lets nothing through. */
export function variablesIn(value: unknown, catalog: Catalog): readonly CallerVariable[] {
  const found: CallerVariable[] = []
  const access: Access = {
    ...systemAccess,
    variable: (name, path) => {
      found.push({ name, path })
      return undefined
    },
  }
  try {
    substitute(value, { catalog, access, now: new Date(0), ofRequest: false })
  } catch (error) {
    if (!(error instanceof AppError)) throw error
  }
  return found
}

/** The way from a row of svc_UserRole to each of the caller's rows. The settings are not reached from there. */
const fromUserRole: Readonly<Record<VariableName, readonly string[] | undefined>> = {
  CURRENT_USER: ['user'],
  CURRENT_ROLE: ['role'],
  CURRENT_TENANT: ['tenant'],
  CURRENT_USERROLE: [],
  CURRENT_SETTINGS: undefined,
}

/** A variable that needs more than the caller's own rows, as the path of a query of svc_UserRole. */
export type RelatedPath = { readonly key: string; readonly path: readonly string[]; readonly many: boolean }

/** Undefined where the caller's own rows have the answer, or nothing has. */
export function relatedPath(catalog: Catalog, variable: CallerVariable): RelatedPath | undefined {
  const target = variableTarget(catalog, variable)
  const start = fromUserRole[variable.name]
  if (target === undefined || target.relations.length === 0 || start === undefined) return undefined
  const path = [...start, ...target.relations, target.field.name]
  return { key: variableKey(variable), path, many: target.many }
}

/** The administrator role is known by its name, which cannot be changed, used twice or deleted. */
export const administratorRole = 'administrator'
export const publicRole = 'public'

/**
 * Whether a caller may give others a role, or take it from them: administrators any, others one of `canInviteRoleIds` of
 * their own role, and never `administrator`. No user has `public`. Decides over invitations and memberships alike.
 */
export function mayAssign({ admin, role: own }: { readonly admin: boolean; readonly role: Role }, role: Role): boolean {
  if (role.name === publicRole) return false
  return admin || (role.name !== administratorRole && invitable(own).includes(role.id))
}

/** The ids of all roles that a role may assign. */
export function assignableRoles({ roles }: AccessRules, own: Role | undefined, admin: boolean): ReadonlySet<string> {
  const given = own === undefined ? [] : [...roles.values()].filter((role) => mayAssign({ admin, role: own }, role))
  return new Set(given.map(({ id }) => id))
}

/** Stored JSON, so it may be anything. */
const invitable = ({ canInviteRoleIds }: Role): readonly string[] =>
  Array.isArray(canInviteRoleIds) ? canInviteRoleIds : []

/**
 * Whether a reader would take a role of this name for one of the built-in roles: case, width, accents, invisible
 * characters and letters of other scripts that look the same make no other name.
 */
export function readsLikeBuiltIn(name: string): boolean {
  return builtIn.has(asRead(name))
}

/** Of the letters in the built-in names, after decomposition and in lower case. `i` and `l` are not told apart. */
const lookAlikes = new Map(
  Object.entries({
    a: 'аɑα',
    b: 'ьƅβ',
    c: 'сϲ',
    d: 'ԁɗ',
    e: 'еєε',
    l: 'iіıιɩ1|ӏ',
    m: 'мɱ',
    n: 'ոпη',
    o: 'оοօσ0',
    p: 'рρ',
    r: 'гɾ',
    s: 'ѕꜱƽ5',
    t: 'тτ7',
    u: 'υսᴜц',
  }).flatMap(([letter, others]) => [...others].map((other) => [other, letter] as const)),
)

const builtIn = new Set([administratorRole, publicRole, 'user'].map(asRead))

function asRead(name: string): string {
  const plain = name
    .normalize('NFKD')
    .toLowerCase()
    .replace(/[\p{M}\p{Cf}\s\p{P}]/gu, '')
  return [...plain].map((letter) => lookAlikes.get(letter) ?? letter).join('')
}
