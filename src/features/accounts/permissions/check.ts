import { hasInlineRule, isFieldList, isNone, relatedPart, variableKey, variableTarget } from '../../../access/access.ts'
import type { StoredRule } from '../../../access/store.ts'
import type { Catalog, Collection, Field, Kind } from '../../../catalog/catalog.ts'
import { isCollectionName } from '../../../catalog/identifiers.ts'
import type { CurrentCatalog } from '../../../catalog/store.ts'
import { routedCollections, writersOf } from '../../../catalog/system-collections.ts'
import { hasUnresolved, readValue } from '../../../catalog/values.ts'
import type { Configuration } from '../../../config/config.ts'
import type { Clock } from '../../../db/clock.ts'
import type { Reads } from '../../../db/pools.ts'
import { AppError, errors, type FieldProblem } from '../../../errors.ts'
import { shown } from '../../../language/text.ts'
import { type Access, systemAccess } from '../../../query/access.ts'
import { guard, isObject } from '../../../query/guards.ts'
import { parseUntrustedFilter } from '../../../query/parse.ts'
import { checkConditions, type ResolveEnv, resolveEnv, variableScope } from '../../../query/resolve.ts'
import { rowPart } from '../../../query/resolve-view.ts'
import { substitute } from '../../../query/variables.ts'
import { aclsById, collectionsUsingAcl, storedRow } from './queries.ts'

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
  const isKnown = typeof name === 'string' && catalog.collections.has(name)
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
  if (!isList) return [problem('acl_Ids', `must be a list of at most ${rulesAtMost} ids`)]
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

function shapeProblems({ fields, ...objects }: StoredRule): FieldProblem[] {
  const problems = isFieldList(fields) ? [] : [problem('fields', 'must be text or a list of texts')]
  for (const [member, value] of Object.entries(objects))
    if (!isNone(value) && !isObject(value)) problems.push(problem(member, 'must be an object'))
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
  for (const [name, behind] of Object.entries(relConditions)) {
    const relation = collection.relations.get(name)
    const target = relation && catalog.collections.get(relation.target)
    if (target === undefined) throw errors.badQuery(`${name} is not a relation of '${collection.name}'`)
    if (!isObject(behind)) throw errors.badQuery(`${name}: must be an object`)
    check(rowPart(behind, target), target)
    checkRelated(catalog, relatedPart(behind, target), target, check)
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
