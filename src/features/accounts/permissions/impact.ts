import { administratorRole } from '../../../access/access.ts'
import { accessOfRole } from '../../../access/principal.ts'
import type { AccessRules, PermissionRow, Role, StoredRule } from '../../../access/store.ts'
import type { Collection } from '../../../catalog/catalog.ts'
import { type Action, AppError, errors } from '../../../errors.ts'
import { resolveEnv } from '../../../query/resolve.ts'
import { createParams, ident } from '../../../query/sql.ts'
import { usableFields } from './explain.ts'
import { membersOf, namesCaller, type PermissionReads, requireRole, rowsSql, type Viewer, within } from './holders.ts'
import { aclProblems, openedBy, permissionProblems, refuseSystemRule } from './permissions.ts'

/** An edit of one permission that is not stored yet; null for its removal. */
type PermissionDraft = {
  readonly role: string
  readonly collection: string
  readonly action: Action
  readonly permission: (Partial<StoredRule> & { readonly acl_Ids?: unknown }) | null
}

const usersAtMost = 50
const exactMs = 3000
const sampleMs = 2000
/** Rows of a collection too large to be counted that are looked at instead. */
const sampleSize = 20_000

/** An edit of a named rule that is not stored yet; members that are not given are as they are stored. */
type AclDraft = Partial<StoredRule> & { readonly id: string }

type RuleDrafts = { readonly changes: readonly PermissionDraft[]; readonly acls?: readonly AclDraft[] | undefined }

/**
 * `POST /permissions/impact`: what edits of permissions, and of named rules that they use, would change, each permission
 * against what is stored now: rows that users would gain and lose, and fields. Compiled and counted by what decides
 * requests. 400 for what could not be stored, 403 for a named rule of the system, 404 for unknown roles, collections and
 * named rules.
 */
export async function impactOf(deps: PermissionReads, { changes, acls = [] }: RuleDrafts) {
  const before = deps.access.current()
  const edited = withAcls(before, acls)
  const results = []
  for (const draft of changes) results.push(await impactOfOne(deps, [before, edited], draft))
  return results
}

async function impactOfOne(
  deps: PermissionReads,
  [before, edited]: readonly [AccessRules, AccessRules],
  draft: PermissionDraft,
) {
  const role = requireRole(before, draft.role)
  const collection = before.catalog.collections.get(draft.collection)
  if (collection === undefined) throw errors.unknownCollection(draft.collection)
  if (role.name === administratorRole) throw errors.badBody('The administrator role needs no permissions')
  const now = storedRow(before, role, draft)
  const next = draft.permission === null ? undefined : rowOf(draft, role, now)
  if (next !== undefined) refuseProblems(deps, edited, next)
  const after = withPermission(edited, role, draft, next)
  const isPersonal = namesCaller(before, now) || namesCaller(after, next)
  const members = await membersOf(deps, [before, after], role, { isPersonal, atMost: usersAtMost })
  const rows = draft.action === 'create' ? null : await countRows(deps, collection, draft.action, members.viewers)
  const users = members.viewers.map(({ users }) => users)
  const sum = (of: readonly boolean[] | undefined) => (of ?? []).reduce((all, yes, i) => all + (yes ? users[i]! : 0), 0)
  return {
    role: { id: role.id, name: role.name },
    collection: draft.collection,
    action: draft.action,
    kind:
      now === undefined ? (next === undefined ? 'unchanged' : 'created') : next === undefined ? 'deleted' : 'changed',
    users: {
      total: members.total,
      looked: users.reduce((all, one) => all + one, 0),
      gaining: sum(rows?.gaining),
      losing: sum(rows?.losing),
    },
    rows: rows === null || rows === undefined ? null : rows.counts,
    fields: fieldsOf(
      deps,
      [
        { rules: before, row: now },
        { rules: after, row: next },
      ],
      { role, collection, action: draft.action },
      members.viewers[0],
    ),
    complete: members.complete && rows !== undefined,
  }
}

const storedRow = ({ permissions }: AccessRules, role: Role, { collection, action }: PermissionDraft) =>
  permissions.get(role.id)?.find((row) => row.collection === collection && row.action === action)

/** Members that are not given are as they are stored. */
function rowOf(
  { collection, action, permission }: PermissionDraft,
  role: Role,
  now: PermissionRow | undefined,
): PermissionRow {
  const none = { fields: null, conditions: null, relConditions: null, defaultValues: null, acl_Ids: null }
  const written = { id: '', createdAt: '', updatedAt: '' }
  return { ...written, ...none, ...now, ...permission, role_Id: role.id, collection, action }
}

function refuseProblems(deps: PermissionReads, { catalog, acls }: AccessRules, row: PermissionRow): void {
  const problems = permissionProblems(catalog, resolveEnv(deps), row, acls)
  if (problems.length > 0) throw errors.validation(problems)
}

/** The rules with other named rules. */
function withAcls(rules: AccessRules, drafts: readonly AclDraft[]): AccessRules {
  if (drafts.length === 0) return rules
  const acls = new Map(rules.acls)
  for (const { id, ...members } of drafts) {
    const stored = rules.acls.get(id)
    if (stored === undefined) throw new AppError(404, 'ACL not found')
    refuseSystemRule(stored)
    const next = { ...stored, ...members }
    const problems = aclProblems(rules.catalog, next)
    if (problems.length > 0) throw errors.validation(problems)
    acls.set(id, next)
  }
  return { ...rules, acls }
}

/** The rules as they would be; another value, so that nothing that was compiled of the present ones is taken for it. */
function withPermission(
  rules: AccessRules,
  role: Role,
  { collection, action }: PermissionDraft,
  next: PermissionRow | undefined,
): AccessRules {
  const others = (rules.permissions.get(role.id) ?? []).filter(
    (row) => row.collection !== collection || row.action !== action,
  )
  const permissions = new Map(rules.permissions).set(role.id, next === undefined ? others : [...others, next])
  return { ...rules, permissions }
}

type RowCounts = {
  readonly counts: {
    readonly total: number
    readonly gained: number
    readonly lost: number
    readonly exact: boolean
  }
  readonly gaining: readonly boolean[]
  readonly losing: readonly boolean[]
}

/** Undefined where there was no time. Every row is looked at once, for all viewers together. */
async function countRows(
  deps: PermissionReads,
  collection: Collection,
  action: Action,
  viewers: readonly Viewer[],
): Promise<RowCounts | undefined> {
  const table = ident(collection.name)
  const exact = await count(deps, { collection, action, viewers, source: table, ms: exactMs })
  if (exact !== undefined) return exact
  const [{ rows }] = (await deps.db.run<{ rows: number }>(
    `select greatest(reltuples, 1)::float8 as rows from pg_class where oid = $1::regclass`,
    [table],
  )) as [{ rows: number }]
  const percent = Math.min(100, (100 * sampleSize) / rows)
  const source = `(select * from ${table} tablesample system (${percent}))`
  const sampled = await count(deps, { collection, action, viewers, source, ms: sampleMs })
  if (sampled === undefined) return undefined
  const { total, gained, lost } = sampled.counts
  const scaled = (one: number) => Math.round((one * rows) / Math.max(1, total))
  return { ...sampled, counts: { total: Math.round(rows), gained: scaled(gained), lost: scaled(lost), exact: false } }
}

type CountQuestion = {
  readonly collection: Collection
  readonly action: Action
  readonly viewers: readonly Viewer[]
  readonly source: string
  readonly ms: number
}

async function count(
  deps: PermissionReads,
  { collection, action, viewers, source, ms }: CountQuestion,
): Promise<RowCounts | undefined> {
  const params = createParams()
  const conditions = viewers.map(({ accesses: [before, after] }) => {
    const [old, next] = [before!, after!].map((access) => rowsSql(deps, access, collection.name, action, params))
    return { gain: `(${next} and not ${old})`, loss: `(${old} and not ${next})` }
  })
  const columns = conditions.flatMap(({ gain, loss }, i) => [`${gain} as g${i}`, `${loss} as l${i}`])
  const any = (letter: string) => (viewers.length === 0 ? 'false' : viewers.map((_, i) => `${letter}${i}`).join(' or '))
  const each = (letter: string) => viewers.map((_, i) => `coalesce(bool_or(${letter}${i}), false)`).join(', ')
  const text = `select count(*)::float8 as total, count(*) filter (where ${any('g')})::float8 as gained,
      count(*) filter (where ${any('l')})::float8 as lost,
      json_build_array(${each('g')}) as gaining, json_build_array(${each('l')}) as losing
    from (select ${['1 as one', ...columns].join(', ')} from ${source} t) decided`
  const rows = await within(ms, (signal) =>
    deps.db.run<{ total: number; gained: number; lost: number; gaining: boolean[]; losing: boolean[] }>(
      text,
      params.values,
      'unnamed',
      signal,
    ),
  )
  if (rows === undefined) return undefined
  const { gaining, losing, ...counts } = rows[0]!
  return { counts: { ...counts, exact: true }, gaining, losing }
}

type RuleVersion = { readonly rules: AccessRules; readonly row: PermissionRow | undefined }

/** Of a user in the role where it is held: own columns, and those of relations that the permission opens by naming them. */
function fieldsOf(
  deps: PermissionReads,
  versions: readonly [RuleVersion, RuleVersion],
  { role, collection, action }: { readonly role: Role; readonly collection: Collection; readonly action: Action },
  viewer: Viewer | undefined,
) {
  const tenantId = viewer?.accesses[0]?.tenantId
  const [before, after] = versions.map(({ rules, row }) => {
    const access = accessOfRole(deps, rules, role, tenantId)
    const own = usableFields(deps, { access, rules, role, user: undefined, tenantId }, collection, action)
    const related = row === undefined ? [] : openedBy(rules, access, row)
    return new Set([...own, ...related.flatMap(({ relation, fields }) => fields.map((name) => `${relation}.${name}`))])
  }) as [Set<string>, Set<string>]
  const missing = (of: Set<string>, other: Set<string>) => [...of].filter((name) => !other.has(name))
  return { gained: missing(after, before), lost: missing(before, after) }
}
