/**
 * The two kinds of view. An *access view* shows what a caller's grants show: the grant of the collection that the
 * query starts from must cover every path, and the related collections' own row rules, tenant scope and soft delete
 * hold on the way. A related collection needs a grant of its own, or to be named on the way (access.ts). A *trusted
 * view* resolves the administrator's own texts, the conditions of permission rows: everything but hidden fields.
 */
import type { Catalog, Collection, Field, Relation } from '../catalog/catalog.ts'
import { isObject, member } from '../catalog/values.ts'
import { type Action, AppError, errors } from '../errors.ts'
import {
  type Access,
  compileReadGrant,
  type FieldGrant,
  type Grant,
  grantOf,
  isLink,
  namesColumn,
  type ReadGrant,
  reaches,
} from './access.ts'
import { guard } from './guards.ts'
import { findOperator, type OperatorExtension } from './operators.ts'
import { type Filter, parseFilter } from './parse.ts'
import { ALWAYS, allOf, NEVER, type Predicate, type Slot, type Step, type TimeTest } from './plan.ts'
import { resolveFilter } from './resolve-filter.ts'
import { substitute, type VariableScope } from './variables.ts'
import type { RelationEntry, View } from './view.ts'

/** Everything that resolving a query needs besides the query. */
export type ResolveContext = {
  readonly catalog: Catalog
  readonly access: Access
  readonly now: Date
  readonly tenants: TenantRules
  readonly extensions: ReadonlySet<OperatorExtension>
  readonly includeDeleted: boolean
  /** Every collection met on the way is added. */
  readonly collections: Set<string>
  /** Every column that a rule of the caller names is added, by collection. */
  readonly ruled: Map<string, Set<string>>
  /** Every value of the request's filter is added, in its order. */
  readonly slots: Slot[]
  /** How often the time was asked for, and the tests that this was for. */
  readonly time: { uses: number; readonly tests: TimeTest[] }
}

/** The view that a query of `collection` starts from. 403 without a read grant. */
export function accessView(collection: Collection, context: ResolveContext): View {
  const grant = requireGrant(collection, 'read', context)
  const root = grant && compileReadGrant(context.catalog, collection, grant)
  const relConditions = [grant?.relConditions ?? null]
  return viewOf({ collection, path: [], root, own: root?.fields, relConditions, context })
}

/** The grant for an action, undefined for administrators; 403 without one. */
export function requireGrant(collection: Collection, action: Action, { access }: ResolveContext): Grant | undefined {
  if (access.admin) return undefined
  const grant = access.grant(collection.name, action)
  if (grant === undefined) throw errors.actionDenied(action, collection.name)
  return grant
}

/** Rows of a collection that the caller may use for an action: its conditions, the tenant and soft delete. */
export function rowRule(
  collection: Collection,
  action: Action,
  grant: Grant | undefined,
  context: ResolveContext,
): Predicate {
  return allOf([
    storedRule(grant?.conditions, collection, context),
    tenantRule(collection, action, context),
    deletionRule(collection, context),
  ])
}

/** A stored condition; one that no longer resolves (unknown field or operator) lets nothing through. */
function storedRule(conditions: unknown, collection: Collection, context: ResolveContext): Predicate {
  if (conditions === undefined || conditions === null) return ALWAYS
  if (Array.isArray(conditions) && conditions.length === 0) return ALWAYS
  try {
    return resolveStored(conditions, collection, context)
  } catch (error) {
    if (error instanceof AppError) return NEVER
    throw error
  }
}

/** As {@link storedRule}, but throws what is wrong with it; for checking a rule before it is stored. */
export function resolveStored(conditions: unknown, collection: Collection, context: ResolveContext): Predicate {
  guard('conditions', conditions)
  return resolveTrusted(parseFilter(conditions), collection, context)
}

const resolveTrusted = (filter: Filter, collection: Collection, context: ResolveContext): Predicate =>
  resolveFilter(filter, trustedView(collection, context), 'conditions')

function tenantRule(collection: Collection, action: Action, context: ResolveContext): Predicate {
  const filter = tenantFilter(collection, action, context.access, context.tenants)
  return filter === undefined ? ALWAYS : filter === 'nothing' ? NEVER : resolveTrusted(filter, collection, context)
}

const deletionRule = (collection: Collection, { includeDeleted }: ResolveContext): Predicate =>
  includeDeleted ? ALWAYS : notDeleted(collection)

function notDeleted(collection: Collection): Predicate {
  const column = collection.paranoid ? collection.fields.get('deletedAt') : undefined
  if (column === undefined) return ALWAYS
  const { operator } = findOperator('isNull')!
  const operand = operator.read(true, column, column.name)
  return { kind: 'test', left: { column, up: 0, cast: undefined }, operator, operand }
}

/** A caller's position in the catalog. `root` is undefined for administrators. */
type ViewPosition = {
  readonly collection: Collection
  /** Relation names from the collection that the query starts from. */
  readonly path: readonly string[]
  readonly root: ReadGrant | undefined
  /** The collection's own read grant; undefined where the relation itself is granted. */
  readonly own: FieldGrant | undefined
  /** Stored relConditions that hold for relations from here. */
  readonly relConditions: readonly unknown[]
  readonly context: ResolveContext
}

function viewOf(position: ViewPosition): View {
  const { collection, context } = position
  context.collections.add(collection.name)
  const entered = new Map<string, RelationEntry | undefined>()
  return {
    collection,
    mayRead: (field) => mayRead(field, position),
    maySearch: (field) => maySearch(field, position),
    // A thousand paths over one relation resolve its rule once.
    enter: (relation) => {
      if (!entered.has(relation.name)) entered.set(relation.name, enterGranted(relation, position))
      return entered.get(relation.name)
    },
    note: (slot) => void context.slots.push(slot),
    ...shared(context, true),
  }
}

/** A named column is deliberate; a wildcard gives no more than the collection's own grant does. */
function mayRead(field: Field, { collection, root, own, path }: ViewPosition): boolean {
  if (field.hidden) return false
  if (root === undefined || field.primaryKey) return true
  if (grantOf(root.fields, [...path, field.name]) === undefined) return false
  if (path.length === 0 || namesColumn(root.fields, path, field.name, collection)) return true
  return own !== undefined && grantOf(own, [field.name]) !== undefined
}

/** The relation as such is granted for reading its columns, not for looking for words in all of them. */
function maySearch(field: Field, position: ViewPosition): boolean {
  const { root, own, path } = position
  if (!mayRead(field, position)) return false
  return root === undefined || path.length === 0 || (own !== undefined && grantOf(own, [field.name]) !== undefined)
}

function enterGranted(relation: Relation, position: ViewPosition): RelationEntry | undefined {
  const { context, root } = position
  const target = context.catalog.collections.get(relation.target)
  const path = [...position.path, relation.name]
  if (target === undefined || (root !== undefined && !reaches(root.fields, path))) return undefined
  const grant = context.access.admin ? undefined : context.access.grant(target.name, 'read')
  if (root !== undefined && grant === undefined && !isOpened(path, target, root, context)) return undefined
  const inherited = position.relConditions.map((conditions) => relConditionsAt(conditions, relation.name))
  const rule = allOf([
    relatedRule(target, grant, context),
    ...inherited.map((conditions) => storedRule(rowPart(conditions, target), target, context)),
  ])
  const own = grant && compileReadGrant(context.catalog, target, grant).fields
  const relConditions = [...inherited, grant?.relConditions ?? null]
  const view = viewOf({ collection: target, path, root, own, relConditions, context })
  return { step: stepOver(relation, position.collection, target, rule, context), view }
}

const isOpened = (
  path: readonly string[],
  target: Collection,
  { opened }: ReadGrant,
  { access }: ResolveContext,
): boolean => opened.has(path.join('.')) && access.closed?.has(target.name) !== true

function relatedRule(target: Collection, grant: Grant | undefined, context: ResolveContext): Predicate {
  if (!isLink(target) || target.fields.has('tenant_Id')) return rowRule(target, 'read', grant, context)
  return allOf([storedRule(grant?.conditions, target, context), deletionRule(target, context)])
}

function trustedView(collection: Collection, context: ResolveContext): View {
  context.collections.add(collection.name)
  return {
    collection,
    mayRead: (field) => {
      noteRuled(context, collection, field.name)
      return !field.hidden
    },
    maySearch: (field) => !field.hidden,
    enter: (relation) => {
      const target = context.catalog.collections.get(relation.target)
      if (target === undefined) return undefined
      // It is a column of the one or of the other.
      for (const side of [collection, target]) noteRuled(context, side, relation.foreignKey)
      const step = stepOver(relation, collection, target, notDeleted(target), { ...context, includeDeleted: false })
      return { step, view: trustedView(target, context) }
    },
    ...shared(context, false),
  }
}

function noteRuled({ ruled }: ResolveContext, { name }: Collection, column: string): void {
  const columns = ruled.get(name) ?? new Set()
  ruled.set(name, columns.add(column))
}

function shared(context: ResolveContext, ofRequest: boolean): Pick<View, 'substitute' | 'hasExtension' | 'noteTime'> {
  const scope: VariableScope = {
    catalog: context.catalog,
    access: context.access,
    ofRequest,
    get now() {
      context.time.uses += 1
      return context.now
    },
  }
  return {
    substitute: (value) => substitute(value, scope),
    hasExtension: (name) => context.extensions.has(name),
    noteTime: (test) => void context.time.tests.push(test),
  }
}

function stepOver(
  relation: Relation,
  source: Collection,
  target: Collection,
  rule: Predicate,
  { catalog, collections, includeDeleted }: ResolveContext,
): Step {
  const through = relation.through === undefined ? undefined : catalog.collections.get(relation.through)
  if (through !== undefined) collections.add(through.name)
  return { relation, source, target, through, rule, includeDeleted }
}

/** The part of `{ relation: { …filter…, nested: {…} } }` for one relation. */
export function relConditionsAt(conditions: unknown, relation: string): unknown {
  return isObject(conditions) ? (member(conditions, relation) ?? null) : null
}

/** Its members that are filters of the row itself; those named after a relation belong to related rows. */
export function rowPart(conditions: unknown, collection: Collection): unknown {
  if (!isObject(conditions)) return conditions
  const own = Object.entries(conditions).filter(([key, value]) => !(collection.relations.has(key) && isObject(value)))
  return Object.fromEntries(own)
}

/* Tenants: the rows that belong to the caller's. */

export type TenantRules = {
  /** MULTI_TENANT. */
  readonly enabled: boolean
  /** STRICT_TENANT_ISOLATION: only the administrator escapes. */
  readonly strict: boolean
  /** TENANT_IGNORED_TABLES. */
  readonly ignored: ReadonlySet<string>
}

/** System collections whose rows without a tenant are everybody's defaults, to read. */
const SHARED_DEFAULTS = new Set(['svc_Template', 'svc_Settings'])

/** System collections whose tenant is that of a related row. */
const VIA: ReadonlyMap<string, string> = new Map([
  ['svc_User', 'userRoles.tenant_Id'],
  ['svc_WorkflowExecutionLog', 'execution.tenant_Id'],
  ['svc_Block', 'page.tenant_Id'],
])

/**
 * The filter that keeps a caller inside its tenant; undefined where none is needed, `nothing` where a row cannot be
 * attributed to a tenant. 403 for a tenant-specific role without a tenant.
 */
function tenantFilter(
  collection: Collection,
  action: Action,
  access: Access,
  rules: TenantRules,
): Filter | 'nothing' | undefined {
  const scoped = rules.enabled && !access.admin && (access.tenantSpecific || rules.strict)
  if (!scoped || rules.ignored.has(collection.name)) return undefined
  const path = tenantPath(collection)
  if (path === undefined) return collection.system ? undefined : 'nothing'
  if (access.tenantId === undefined && access.tenantSpecific) {
    throw new AppError(403, 'Tenant context required but not provided')
  }
  const own = entry(path, access.tenantId ?? null)
  return action === 'read' ? { kind: 'or', of: [own, ...readableBesides(collection, access)] } : own
}

function tenantPath(collection: Collection): string | undefined {
  return VIA.get(collection.name) ?? (collection.fields.has('tenant_Id') ? 'tenant_Id' : undefined)
}

/** The rows that a caller reads besides those of its tenant. */
function readableBesides(collection: Collection, { userId }: Access): Filter[] {
  if (collection.name === 'svc_File') return [entry('isPublic', true)]
  const withoutTenant = entry('tenant_Id', null)
  // Each is for the one user that it names.
  if (collection.name === 'svc_Notification' && userId !== undefined)
    return [{ kind: 'and', of: [withoutTenant, entry('userId', '$CURRENT_USER')] }]
  return SHARED_DEFAULTS.has(collection.name) ? [withoutTenant] : []
}

const entry = (path: string, value: unknown): Filter => ({ kind: 'entry', path, value })
