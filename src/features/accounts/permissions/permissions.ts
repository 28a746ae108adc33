import {
  accessOf,
  administratorRole,
  fieldSpecs,
  grantOf,
  hasInlineRule,
  isFieldList,
  isNone,
  namedRules,
  relatedPart,
  variableKey,
  variableTarget,
} from '../../../access/access.ts'
import { accessOfRole } from '../../../access/principal.ts'
import type { AccessRules, PermissionRow, Role, StoredRule } from '../../../access/store.ts'
import type { Catalog, Collection, Field, Kind } from '../../../catalog/catalog.ts'
import { isCollectionName } from '../../../catalog/identifiers.ts'
import type { CurrentCatalog } from '../../../catalog/store.ts'
import { routedCollections, writersOf } from '../../../catalog/system-collections.ts'
import { hasUnresolved, parameterType, readValue } from '../../../catalog/values.ts'
import type { Configuration } from '../../../config/config.ts'
import type { Clock } from '../../../db/clock.ts'
import type { Reads } from '../../../db/pools.ts'
import { type Action, AppError, errors, type FieldProblem } from '../../../errors.ts'
import { shown } from '../../../language/text.ts'
import {
  type Access,
  compileGrant,
  compileReadGrant,
  type Grant,
  grantOf as grantsField,
  isLink,
  systemAccess,
} from '../../../query/access.ts'
import { guard, isObject } from '../../../query/guards.ts'
import { parseUntrustedFilter } from '../../../query/parse.ts'
import { checkConditions, columnsBehind, type ResolveEnv, resolveEnv, variableScope } from '../../../query/resolve.ts'
import { rowPart } from '../../../query/resolve-view.ts'
import { createParams, ident } from '../../../query/sql.ts'
import { substitute } from '../../../query/variables.ts'
import {
  membersOf,
  namesCaller,
  type PermissionReads,
  peopleAtMost,
  type RoleHolder,
  type RoleHolders,
  rowsSql,
  type Viewer,
  within,
} from './holders.ts'
import { aclsById, collectionsUsingAcl, storedRow } from './queries.ts'

/*
 * The rules of permissions and named rules: what a row may say, checked when it is written, and what stored rows have come
 * to mean. Everything that other slices use of this one; `explain.ts` and `transfer.ts` are for its own routes, because they
 * build on slices that build on this.
 */

// Checks a row of svc_Permission or svc_ACL before any write: a meaningless rule is refused (400) with all of its
// problems. The collections that it names may still change later; a stored rule that no longer makes sense lets nothing
// through.

/** A row of svc_Permission or svc_ACL. */
export type RuleRow = Readonly<Record<string, unknown>>

type RuleCollection = 'svc_Permission' | 'svc_ACL'

/** Named rules by id, for permissions that refer to them. */
export type AclsById = ReadonlyMap<string, StoredRule>

/**
 * Throws 400 with all that is wrong with a row of one of the two about to be created, or with an id changed by these
 * members; 403 for a system rule, which cannot be changed. Nothing for an id that does not exist: the statement says so.
 */
export async function checkRule(
  deps: Reads & Clock & Configuration & CurrentCatalog,
  collection: RuleCollection,
  given: RuleRow,
  id?: string,
): Promise<void> {
  const stored = id === undefined ? {} : await storedRow(deps.db, deps.catalog.current(), collection, id)
  if (stored === undefined) return
  const row = { ...stored, ...given }
  if (collection === 'svc_Permission') return checkPermission(deps, row)
  refuseSystemRule(stored)
  await checkAcl(deps, row, id)
}

/** A column that is about to be written, and its value as a parameter. */
type RuleCell = { readonly field: Field; readonly value: unknown }

/** The same for the cells of an item that is about to be written; other collections pass. */
export async function checkRuleCells(
  deps: Reads & Clock & Configuration & CurrentCatalog,
  collection: string,
  cells: readonly RuleCell[],
  id?: string,
): Promise<void> {
  if (collection !== 'svc_Permission' && collection !== 'svc_ACL') return
  const row = Object.fromEntries(cells.map(({ field, value }) => [field.name, givenValue(field, value)]))
  await checkRule(deps, collection, row, id)
}

/** For every route that deletes: 409 for a named rule that is in use, 403 for one of the system's. */
export async function checkRuleDelete(
  { db, catalog }: Reads & CurrentCatalog,
  collection: string,
  ids: readonly string[],
): Promise<void> {
  if (collection !== 'svc_ACL') return
  for (const id of ids) {
    const usedOn = await collectionsUsingAcl(db, id)
    if (usedOn.length > 0) throw errors.conflict('The rule is in use', { collections: usedOn })
    refuseSystemRule((await storedRow(db, catalog.current(), collection, id)) ?? {})
  }
}

async function checkPermission(
  deps: Reads & Clock & Configuration & CurrentCatalog,
  permission: RuleRow,
): Promise<void> {
  const ids = Array.isArray(permission.acl_Ids) ? permission.acl_Ids.map(shown) : []
  const acls = new Map((ids.length === 0 ? [] : await aclsById(deps.db, ids)).map((acl) => [acl.id, acl]))
  // Another process may have created it just now.
  const { collection } = permission
  if (typeof collection === 'string' && !deps.catalog.current().collections.has(collection))
    await deps.catalog.reloadIfStale()
  await refuseProblems(deps, (catalog) => permissionProblems(catalog, resolveEnv(deps), permission, acls))
}

/** A rule must make sense on every collection that a permission uses it on. */
async function checkAcl(
  deps: Reads & Clock & Configuration & CurrentCatalog,
  acl: RuleRow,
  id: string | undefined,
): Promise<void> {
  const usedOn = id === undefined ? [] : await collectionsUsingAcl(deps.db, id)
  await refuseProblems(deps, (catalog) => [
    ...aclProblems(catalog, acl),
    ...usedOn.flatMap((name) => ruleProblems(catalog, resolveEnv(deps), name, ruleOf(acl))),
  ])
}

/** 403 for one of the system's named rules. */
export function refuseSystemRule(stored: RuleRow): void {
  if (stored.system === true) throw new AppError(403, 'System rules cannot be changed')
}

/** All that is wrong with a permission, by member. */
export function permissionProblems(
  catalog: Catalog,
  env: ResolveEnv,
  permission: RuleRow,
  acls: AclsById,
): readonly FieldProblem[] {
  const { collection: name, action } = permission
  const problems = shapeProblems(ruleOf(permission))
  if (typeof action !== 'string' || !actions.has(action))
    problems.push(problem('action', 'must be create, read, update or delete'))
  if (isGiven(permission.acl_Ids) && !Array.isArray(permission.acl_Ids)) problems.push(aclsProblem)
  const isKnown = typeof name === 'string' && catalog.collections.has(name)
  if (isNone(name)) return [...problems, problem('collection', 'is required')]
  // It may be declared later, and then the permission begins to count.
  if (!isKnown && !isCollectionName(name))
    return [...problems, problem('collection', 'is not a known collection, and cannot become one')]
  problems.push(...effectProblems(name, action))
  if (problems.length > 0) return problems
  if (!isNone(permission.acl_Ids)) return referenceProblems(catalog, env, name, permission, acls)
  const rule = ruleOf(permission)
  return isKnown ? ruleProblems(catalog, env, name, rule) : textProblems(catalog, rule)
}

/** Problems that a rule has on every collection. */
function textProblems(catalog: Catalog, rule: StoredRule): readonly FieldProblem[] {
  const { conditions } = rule
  return [
    ...(isNone(conditions) ? [] : attempt('conditions', () => parseUntrustedFilter(conditions))),
    ...(['conditions', 'relConditions', 'defaultValues'] as const).flatMap((member) =>
      attempt(member, () => replaceVariables(catalog, rule[member], member)),
    ),
  ]
}

/** Actions that no permission opens. */
function effectProblems(collection: string, action: unknown): readonly FieldProblem[] {
  if (action !== 'create' && action !== 'update' && action !== 'delete') return []
  if (routedCollections.has(collection)) return []
  const writers = writersOf(collection, action)
  if (writers === 'granted') return []
  const who = writers === 'nobody' ? 'nobody' : 'only an administrator'
  return [problem('action', `has no effect: ${who} may ${action} items in '${collection}'`)]
}

const actions = new Set(['create', 'read', 'update', 'delete'])
const rulesAtMost = 20

function referenceProblems(
  catalog: Catalog,
  env: ResolveEnv,
  collection: string,
  permission: RuleRow,
  acls: AclsById,
): readonly FieldProblem[] {
  const ids = permission.acl_Ids
  const isList = Array.isArray(ids) && ids.every((id) => typeof id === 'string') && ids.length <= rulesAtMost
  if (!isList) return [aclsProblem]
  if (hasInlineRule(ruleOf(permission)))
    return [problem('acl_Ids', 'cannot stand beside fields, conditions, relConditions or defaultValues')]
  return ids.flatMap((id) => {
    const acl = acls.get(id)
    if (acl === undefined) return [problem('acl_Ids', `${id} is not a known rule`)]
    const inside = ruleProblems(catalog, env, collection, acl)
    return inside.map(({ field, message }) => problem('acl_Ids', `${id} does not fit: ${field}: ${message}`))
  })
}

/** All that is wrong with a named rule, whatever uses it, by member. */
export function aclProblems(catalog: Catalog, acl: RuleRow): readonly FieldProblem[] {
  const rule = ruleOf(acl)
  const problems = shapeProblems(rule)
  if (typeof acl.name !== 'string' || acl.name.trim() === '') problems.push(problem('name', 'is required'))
  if (acl.system !== undefined && acl.system !== null && acl.system !== false)
    problems.push(problem('system', 'cannot be given'))
  return [...problems, ...textProblems(catalog, rule)]
}

const isGiven = (value: unknown): boolean => value !== undefined && value !== null

function shapeProblems({ fields, ...objects }: StoredRule): FieldProblem[] {
  const problems = isFieldList(fields) ? [] : [problem('fields', 'must be text or a list of texts')]
  for (const [member, value] of Object.entries(objects))
    if (isGiven(value) && !isObject(value)) problems.push(problem(member, 'must be an object'))
  return problems
}

/** The parts of a rule that do not resolve for the items of a collection. */
function ruleProblems(
  catalog: Catalog,
  env: ResolveEnv,
  name: string,
  { conditions, relConditions, defaultValues }: StoredRule,
): readonly FieldProblem[] {
  const collection = catalog.collections.get(name)
  if (collection === undefined) return []
  const check = (value: unknown, of: Collection) => checkConditions(catalog, sampleAccess(catalog), of.name, value, env)
  return [
    ...(isNone(conditions) ? [] : attempt('conditions', () => check(conditions, collection))),
    ...attempt('relConditions', () => {
      guard('relConditions', relConditions)
      checkRelated(catalog, relConditions, collection, check)
    }),
    ...Object.entries(isObject(defaultValues) ? defaultValues : {}).flatMap(([key, value]) =>
      attempt('defaultValues', () => checkDefault(catalog, collection, key, value)),
    ),
  ]
}

function checkRelated(
  catalog: Catalog,
  relConditions: unknown,
  collection: Collection,
  check: (value: unknown, of: Collection) => void,
): void {
  if (!isObject(relConditions)) return
  for (const [name, related] of Object.entries(relConditions)) {
    const relation = collection.relations.get(name)
    const target = relation && catalog.collections.get(relation.target)
    if (target === undefined) throw errors.badQuery(`${name} is not a relation of '${collection.name}'`)
    if (!isObject(related)) throw errors.badQuery(`${name}: must be an object`)
    check(rowPart(related, target), target)
    checkRelated(catalog, relatedPart(related, target), target, check)
  }
}

function checkDefault(catalog: Catalog, collection: Collection, key: string, raw: unknown): void {
  const field = collection.fields.get(key)
  if (field === undefined || field.generated !== undefined)
    throw errors.badQuery(`${key} is not a field that can be written`)
  const value = replaceVariables(catalog, raw, key)
  if (value === null && !field.nullable) throw errors.badQuery(`${key}: is required`)
  if (value !== null && !hasUnresolved(value)) readValue(value, field, key)
}

function replaceVariables(catalog: Catalog, value: unknown, label: string): unknown {
  guard(label, value)
  return substitute(value, variableScope(catalog, sampleAccess(catalog), new Date(0)))
}

/**
 * A caller whose variables have values of the right type, so that a rule is checked for what it compares, not for who
 * writes it. Texts have none: whether one fits a column shows only when it is there.
 */
function sampleAccess(catalog: Catalog): Access {
  return {
    ...systemAccess,
    variable: (name, path) => {
      const target = variableTarget(catalog, { name, path })
      const tooFar = path.length > (name === 'CURRENT_SETTINGS' ? 1 : relationsAtMost + 1)
      if (target === undefined || tooFar)
        throw errors.badQuery(`$${variableKey({ name, path })} is not a known variable`)
      const sample = samples[target.field.kind]
      return target.many && sample !== undefined ? [sample] : sample
    },
  }
}

/** In the path of a variable; the query that reads it starts one relation further away. */
const relationsAtMost = 6

const samples: Partial<Record<Kind, unknown>> = {
  uuid: '00000000-0000-4000-8000-000000000000',
  integer: 1,
  bigint: 1,
  float: 1,
  decimal: '1',
  boolean: true,
  datetime: '2000-01-01T00:00:00.000Z',
  datetime_no_tz: '2000-01-01T00:00:00.000Z',
  date: '2000-01-01',
}

function ruleOf({ fields, conditions, relConditions, defaultValues }: RuleRow): StoredRule {
  return { fields, conditions, relConditions, defaultValues }
}

/** A cell's value as the client gave it: JSON travels as text. */
function givenValue(field: Field, value: unknown): unknown {
  return field.kind === 'json' && typeof value === 'string' ? JSON.parse(value) : value
}

const problem = (field: string, message: string): FieldProblem => ({ field, message, rule: 'permission' })
const aclsProblem = problem('acl_Ids', `must be a list of at most ${rulesAtMost} ids`)

function attempt(member: string, work: () => unknown): readonly FieldProblem[] {
  try {
    work()
    return []
  } catch (error) {
    if (!(error instanceof AppError)) throw error
    const text = typeof error.details === 'string' ? error.details : error.message
    return [problem(member, text.replace(/^(conditions|relConditions|filter)[.:] ?/, ''))]
  }
}

/** A collection or field that another process has just made is not unknown. */
async function refuseProblems(
  deps: CurrentCatalog,
  find: (catalog: Catalog) => readonly FieldProblem[],
): Promise<void> {
  const catalog = deps.catalog.current()
  let problems = find(catalog)
  if (problems.length === 0) return
  const newest = await deps.catalog.reloadIfStale()
  if (newest.version !== catalog.version) problems = find(newest)
  if (problems.length > 0) throw errors.validation(problems)
}

/** The meaning of one stored permission, beside its members. */
export type Review = {
  readonly role: Role
  readonly row: PermissionRow
  /** Its collection is not declared yet. */
  readonly waits: boolean
  /** The parts that do not fit the present collections; they grant nothing. */
  readonly problems: readonly FieldProblem[]
  readonly opened: readonly OpenedRelation[]
}

/** A relation that a permission opens by naming it, although the role has no such grant for the collection that it leads to. */
export type OpenedRelation = {
  /** Dotted, from the permission's collection. */
  readonly relation: string
  readonly collection: string
  /** The columns that are shown by its name alone. */
  readonly fields: readonly string[]
}

/** Every stored permission of every role, in the order of roles and collections. */
export function reviewPermissions(rules: AccessRules, env: ResolveEnv): readonly Review[] {
  return [...rules.roles.values()].flatMap((role) => {
    const rows = rules.permissions.get(role.id) ?? []
    return rows.map((row) => ({
      role,
      row,
      waits: !rules.catalog.collections.has(row.collection),
      problems: storedProblems(rules, env, row),
      opened: role.name === administratorRole ? [] : openedBy(rules, accessOfNobody(rules, role), row),
    }))
  })
}

/** All that is wrong with a permission as it is stored, against the collections as they are. */
export function storedProblems(rules: AccessRules, env: ResolveEnv, row: PermissionRow): readonly FieldProblem[] {
  const { catalog, acls } = rules
  const collection = catalog.collections.get(row.collection)
  const found = permissionProblems(catalog, env, row, acls)
  if (collection === undefined || found.length > 0) return found
  const fields = isNone(row.acl_Ids) ? [row.fields] : namedRules(row.acl_Ids, acls).map((acl) => acl.fields)
  const unknown = fields
    .flatMap((stored) => fieldSpecs(stored) ?? [])
    .filter((spec) => !leads(spec, collection, catalog))
  return unknown.map((spec) => ({ field: 'fields', message: `${spec} names no field or relation`, rule: 'permission' }))
}

/** The relations that a stored permission opens for callers with this access. */
export function openedBy(rules: AccessRules, access: Access, row: PermissionRow): readonly OpenedRelation[] {
  const { catalog } = rules
  const collection = catalog.collections.get(row.collection)
  const grant = row.action === 'read' && collection !== undefined ? grantOf(row, rules) : undefined
  if (grant === undefined || collection === undefined) return []
  return [...compileReadGrant(catalog, collection, grant).opened].flatMap((relation): OpenedRelation[] => {
    const path = relation.split('.')
    const columns = columnsBehind(catalog, access, collection.name, path)
    const way = targetsOf(catalog, collection, path)
    const target = way.at(-1)!
    const isGranted = way.every((one) => isLink(one) || access.grant(one.name, 'read') !== undefined)
    const own = access.grant(target.name, 'read')
    const isByName = ({ name, primaryKey }: Field) =>
      !isGranted || !(primaryKey || isShownAnyway(grant, own, path, name))
    const fields = (columns ?? []).filter(isByName).map(({ name }) => name)
    return columns === undefined || fields.length === 0 ? [] : [{ relation, collection: target.name, fields }]
  })
}

/** Whether both grants together show a column of a relation, whatever its name opens. */
function isShownAnyway(grant: Grant, own: Grant | undefined, path: readonly string[], name: string): boolean {
  const isNamed = grantsField(compileGrant(grant.fields), [...path, name]) === 'named'
  return isNamed || own === undefined || grantsField(compileGrant(own.fields), [name]) !== undefined
}

/** The collections that a path of relations leads to, in its order. */
function targetsOf(catalog: Catalog, collection: Collection, path: readonly string[]): readonly Collection[] {
  let current = collection
  return path.map((name) => {
    current = catalog.collections.get(current.relations.get(name)!.target)!
    return current
  })
}

/** Whether a field spec leads to something; what follows a wildcard may be of any collection. */
function leads(spec: string, collection: Collection, catalog: Catalog): boolean {
  const segments = (spec.startsWith('-') ? spec.slice(1) : spec).split('.')
  let current: Collection | undefined = collection
  for (const [i, segment] of segments.entries()) {
    if (segment === '*') return true
    if (current === undefined) return false
    if (current.fields.has(segment)) return i === segments.length - 1
    const relation = current.relations.get(segment)
    if (relation === undefined) return false
    current = catalog.collections.get(relation.target)
  }
  return true
}

/** The rights of an unknown user in a role: enough to know the columns. */
function accessOfNobody(rules: AccessRules, role: Role): Access {
  return accessOf(rules, { role, userId: undefined, tenantId: undefined, rows: {}, related: new Map() })
}

type WhoQuestion = {
  readonly collection: string
  readonly id: string | number
  readonly action?: Exclude<Action, 'create'> | undefined
}

type RoleAnswer = {
  readonly role: { readonly id: string; readonly name: string }
  readonly reason: 'administrator' | 'no permission' | 'rule' | 'every row'
  readonly users: number
  readonly allowed: number
  readonly looked: number
  readonly people: readonly RoleHolder[]
}

const usersAtMost = 200
/** Conditions in one statement. */
const batchSize = 40
const longestMs = 4000

/**
 * `POST /permissions/who`: which users may see an item, or change or delete it, by role. Permissions decide here; what protects
 * accounts besides is for `explain`. 404 for an item that is not there.
 */
export async function whoMay(deps: PermissionReads, { collection: name, id, action = 'read' }: WhoQuestion) {
  const collection = deps.catalog.current().collections.get(name)
  if (collection === undefined) throw errors.unknownCollection(name)
  const item = { collection, id: String(id), action }
  await requireItem(deps, item)
  const rules = deps.access.current()
  const until = performance.now() + longestMs
  const roles: RoleAnswer[] = []
  let complete = true
  for (const role of rules.roles.values()) {
    const answer = await answerOf(deps, rules, role, item, until)
    complete &&= answer.complete
    roles.push(answer.answer)
  }
  const nobody = { users: 0, people: [], accesses: [accessOfRole(deps, rules, rules.publicRole, undefined)] }
  const [stranger] = await decided(deps, { total: 0, viewers: [nobody], complete }, item, until)
  if (stranger === undefined) complete = false
  return {
    complete,
    strangers: stranger?.isAllowed ?? null,
    roles: roles.toSorted((a, b) => b.allowed - a.allowed || (a.role.name < b.role.name ? -1 : 1)),
  }
}

type ItemQuestion = { readonly collection: Collection; readonly id: string; readonly action: Exclude<Action, 'create'> }

async function requireItem({ db }: PermissionReads, item: ItemQuestion): Promise<void> {
  const [row] = await db.run(...statement(item, () => 'true'))
  if (row === undefined) throw new AppError(404, 'Item not found')
}

async function answerOf(
  deps: PermissionReads,
  rules: AccessRules,
  role: Role,
  item: ItemQuestion,
  until: number,
): Promise<{ readonly answer: RoleAnswer; readonly complete: boolean }> {
  const { id, name } = role
  const isAdministrator = name === administratorRole
  const permission = (rules.permissions.get(id) ?? []).find(
    (row) => row.collection === item.collection.name && row.action === item.action,
  )
  const stored = permission !== undefined
  const isPersonal = namesCaller(rules, permission)
  const members = await membersOf(deps, [rules], role, { isPersonal, atMost: usersAtMost })
  const looked = isAdministrator || !stored ? members.viewers : await decided(deps, members, item, until)
  const allowed = isAdministrator
    ? members.viewers
    : stored
      ? looked.filter(({ isAllowed }: Viewer & { isAllowed?: boolean }) => isAllowed)
      : []
  const count = (viewers: readonly Viewer[]) => viewers.reduce((sum, { users }) => sum + users, 0)
  const answer: RoleAnswer = {
    role: { id, name },
    reason: isAdministrator ? 'administrator' : !stored ? 'no permission' : isPersonal ? 'rule' : 'every row',
    users: members.total,
    allowed: count(allowed),
    looked: stored || isAdministrator ? count(looked) : members.total,
    people: allowed.flatMap(({ people }) => people).slice(0, peopleAtMost),
  }
  return { answer, complete: !stored || isAdministrator || answer.looked === members.total }
}

/** The viewers that there was time to ask about. */
async function decided(
  deps: PermissionReads,
  { viewers }: RoleHolders,
  item: ItemQuestion,
  until: number,
): Promise<readonly (Viewer & { readonly isAllowed: boolean })[]> {
  const answered: (Viewer & { readonly isAllowed: boolean })[] = []
  for (let i = 0; i < viewers.length; i += batchSize) {
    const batch = viewers.slice(i, i + batchSize)
    const [text, values] = statement(item, (params) => {
      const conditions = batch.map(({ accesses }) =>
        rowsSql(deps, accesses[0]!, item.collection.name, item.action, params),
      )
      return `json_build_array(${conditions.join(', ')})`
    })
    const left = until - performance.now()
    const rows =
      left <= 0
        ? undefined
        : await within(left, (signal) => deps.db.run<{ answer: readonly boolean[] }>(text, values, 'unnamed', signal))
    if (rows === undefined) break
    answered.push(...batch.map((viewer, n) => ({ ...viewer, isAllowed: rows[0]?.answer[n] === true })))
  }
  return answered
}

function statement(
  { collection, id }: ItemQuestion,
  answer: (params: ReturnType<typeof createParams>) => string,
): [text: string, values: readonly unknown[]] {
  const { primaryKey, name } = collection
  const params = createParams()
  const key = params.bind(readValue(id, primaryKey, 'id').value, parameterType(primaryKey))
  const text = `select ${answer(params)} as answer from ${ident(name)} t where t.${ident(primaryKey.name)} = ${key}`
  return [text, params.values]
}
