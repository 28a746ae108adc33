import { accessOf, administratorRole, fieldSpecs, grantOf, isNone, namedRules } from '../../../access/access.ts'
import { accessOfRole } from '../../../access/principal.ts'
import type { AccessRules, PermissionRow, Role } from '../../../access/store.ts'
import type { Catalog, Collection, Field } from '../../../catalog/catalog.ts'
import { parameterType, readValue } from '../../../catalog/values.ts'
import { type Action, AppError, errors, type FieldProblem } from '../../../errors.ts'
import {
  type Access,
  compileGrant,
  compileReadGrant,
  type Grant,
  grantOf as grantsField,
  isLink,
} from '../../../query/access.ts'
import { columnsBehind, type ResolveEnv } from '../../../query/resolve.ts'
import { createParams, ident } from '../../../query/sql.ts'
import { permissionProblems } from './check.ts'
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

/** A relation that a permission opens by naming it, although the role has no such grant for the collection behind it. */
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
