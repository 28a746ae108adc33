import { accessOfRole } from '../../../access/principal.ts'
import { administratorRole } from '../../../access/roles.ts'
import type { AccessRules, Role } from '../../../access/store.ts'
import type { Collection } from '../../../catalog/catalog.ts'
import { parameterType, readValue } from '../../../catalog/values.ts'
import { type Action, AppError, errors } from '../../../errors.ts'
import { createParams, ident } from '../../../query/sql.ts'
import type { PermissionReads } from './capabilities.ts'
import {
  type Members,
  membersOf,
  namesCaller,
  peopleAtMost,
  type RoleHolder,
  rowsSql,
  type Viewer,
  within,
} from './members.ts'

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
  { viewers }: Members,
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
