import { isNone, namedRules } from '../../../access/access.ts'
import type { PermissionRow } from '../../../access/store.ts'
import type { Collection } from '../../../catalog/catalog.ts'
import { isCollectionName } from '../../../catalog/identifiers.ts'
import { parameterType, readValue } from '../../../catalog/values.ts'
import type { Configuration } from '../../../config/config.ts'
import type { Clock } from '../../../db/clock.ts'
import { rawQuery } from '../../../db/sql.ts'
import { type Action, AppError, errors, type FieldProblem } from '../../../errors.ts'
import { systemActor } from '../../../events/types.ts'
import { type Access, type Grant, withGrants } from '../../../query/access.ts'
import { compileCondition } from '../../../query/compile.ts'
import { parseListQuery } from '../../../query/parse.ts'
import {
  checkConditions,
  type ResolvedFilter,
  readableFields,
  resolveCondition,
  resolveEnv,
  resolveList,
  variableScope,
} from '../../../query/resolve.ts'
import { createParams, ident } from '../../../query/sql.ts'
import { resolveDefaults } from '../../../query/variables.ts'
import { grantsNothing, openProblems, openWrite, readPayload } from '../../data/items/items.ts'
import { checkIdentity } from '../identity/identity.ts'
import { type Party, type PermissionReads, partyOf, type Subject } from './holders.ts'
import { type OpenedRelation, openedBy, storedProblems } from './permissions.ts'
import { readValuesOf, type Term, termsOf, testsIn } from './terms.ts'

/**
 * `GET` and `POST /permissions/explain`: whether a caller may do something, and what decides it. It asks the functions that every
 * request goes through and evaluates nothing itself, so it cannot disagree with them.
 */
type Explanation = {
  readonly allowed: boolean
  /** The reason of the decision. */
  readonly decidedBy: 'administrator' | 'account' | 'permission' | 'collection' | 'tenant' | 'rule' | 'field' | 'row'
  /** In the words of the request's own answer where it is refused. */
  readonly reason: string
  readonly collection: string
  readonly action: Action
  readonly role: { readonly id: string; readonly name: string } | null
  readonly user: { readonly id: string; readonly status: string } | null
  readonly tenant: string | null
  readonly permission: {
    readonly id: string
    readonly acls: readonly { readonly id: string; readonly name: string }[]
    /** As stored, named rules combined. */
    readonly fields: readonly string[] | null
    /** The parts that do not fit the present collections, and therefore grant nothing. */
    readonly problems: readonly FieldProblem[]
  } | null
  /** Own columns that can be read or written; null where nothing can, and for delete. */
  readonly fields: readonly string[] | null
  /** On read: the relations that the permission opens by naming them. */
  readonly relations: readonly OpenedRelation[]
  /** On read: the permissions for other collections that show rows of this one through a relation. */
  readonly through: readonly Through[]
  /** Own columns that the action leaves out or refuses, with why; null as for `fields`. */
  readonly dropped: readonly DroppedField[] | null
  /** The answers for the fields of the question. */
  readonly asked: readonly AskedField[]
  /** The conditions part by part, each with whether the item meets it; null where there are none. */
  readonly terms: Term | null
  /** Whether rows are limited to the caller's tenant, and whether the item is within. */
  readonly tenantRule: { readonly applies: boolean; readonly holds: boolean | null }
  readonly conditions: ValueExplanation
  readonly relConditions: ValueExplanation
  readonly defaultValues: ValueExplanation
  /** The item in question; null without an id, and for create. */
  readonly row: RowAnswer | null
}

/** A stored value, and what its variables stand for; `problem` says why it lets nothing through. */
type ValueExplanation = { readonly stored: unknown; readonly resolved: unknown; readonly problem: string | null }

type DroppedField = { readonly field: string; readonly reason: string }
type AskedField = { readonly field: string; readonly allowed: boolean; readonly reason: string | null }

type Through = Pick<OpenedRelation, 'relation' | 'fields'> & {
  /** The collection of the permission. */
  readonly collection: string
  readonly permission: string
}

type RowAnswer = {
  readonly exists: boolean
  /** Whether the request would find it; the others say by which part of the rule. */
  readonly matches: boolean
  readonly conditions: boolean
  readonly tenant: boolean
  readonly deleted: boolean
}

/** Either `role` or `user` is needed. */
type ExplainRequest = {
  readonly collection: string
  readonly action: Action
  readonly role?: string | undefined
  readonly user?: string | undefined
  readonly tenant?: string | undefined
  readonly id?: string | undefined
  readonly field?: string | undefined
  readonly fields?: readonly string[] | undefined
  readonly record?: Readonly<Record<string, unknown>> | undefined
}

/**
 * `collection`, `action` and `role` (id or name) or `user` (id) are required; `tenant`, `id` and `field` ask more
 * precisely. A role alone is asked about as a caller of whom nothing else is known. 400 for a query that makes no sense, 404
 * for an unknown role or user, and for an unknown collection, unless the role has a permission that waits for it.
 */
export async function explain(deps: PermissionReads, asked: ExplainRequest): Promise<Explanation> {
  const query = questionOf(asked)
  const catalog = deps.catalog.current()
  const collection = catalog.collections.get(query.collection)
  if (collection === undefined) return waiting(deps, query)
  const party = await partyOf(deps, query)
  const question: ExplainQuestion = { deps, query, collection, party }
  const row = await rowAnswer(question)
  const found = await examined(question, row)
  const verdict = (await refusalOf(question, row)) ?? refusalOfRecord(question, found.terms) ?? grantedBy(question)
  return { ...verdict, ...described(question), ...found, row }
}

type ExplainQuestion = {
  readonly deps: PermissionReads
  readonly query: ExplainQuery
  readonly collection: Collection
  readonly party: Party
}

/** A permission for what is not there yet: it grants nothing until the collection is declared. */
async function waiting(deps: PermissionReads, query: ExplainQuery): Promise<Explanation> {
  const unknown = errors.unknownCollection(query.collection)
  const party = isCollectionName(query.collection) ? await partyOf(deps, query) : undefined
  const stored = party && storedOf(party, query)
  if (party === undefined || stored === undefined) throw unknown
  const grant = party.access.grant(query.collection, query.action)
  const untold = (value: unknown): ValueExplanation => ({ stored: value ?? null, resolved: null, problem: null })
  return {
    ...refused('collection', `${unknown.message}: the permission waits for the collection to be created`),
    ...toldOf(party, query),
    permission: permissionOf(deps, party, stored, grant),
    fields: null,
    dropped: null,
    asked: [],
    terms: null,
    tenantRule: { applies: false, holds: null },
    relations: [],
    through: [],
    conditions: untold(grant?.conditions),
    relConditions: untold(grant?.relConditions),
    defaultValues: untold(grant?.defaultValues),
    row: null,
  }
}

type Verdict = Pick<Explanation, 'allowed' | 'decidedBy' | 'reason'>

const refused = (decidedBy: Verdict['decidedBy'], reason: string): Verdict => ({ allowed: false, decidedBy, reason })

/** In the order in which a request meets them. */
async function refusalOf(question: ExplainQuestion, row: RowAnswer | null): Promise<Verdict | undefined> {
  const { party, query, collection, deps } = question
  const { action, id } = query
  if (party.blocked !== undefined) return refused('account', party.blocked)
  if (!party.access.admin && grantIn(question) === undefined)
    return refused('permission', errors.actionDenied(action, collection.name).message)
  const closed = failure(() => action !== 'read' && writeOf(question))
  if (closed !== undefined) return refused('collection', closed.message)
  if ((action === 'create' || action === 'update') && grantsNothing(grantIn(question)))
    return refused('field', fieldRefusal(question) ?? errors.actionDenied(action, collection.name).message)
  const scope = scopeFailure(question)
  if (scope !== undefined) return refused('tenant', scope.message)
  const rule = ruleProblem(question)
  if (rule !== null) return refused('rule', `The stored conditions let nothing through: ${rule}`)
  const field = fieldRefusal(question)
  if (field !== undefined) return refused('field', field)
  if (row !== null && !row.matches && action !== 'create') return rowRefusal(row, action)
  if (id === undefined) return undefined
  const { access } = party
  const identity = await failureOf(() =>
    checkIdentity({ deps, access, collection }, { action, id, field: query.field }),
  )
  if (identity !== undefined) return refused('row', identity.message)
  if (action !== 'delete') return undefined
  const protection = await failureOf(async () => deps.systemRules.get(collection.name)?.beforeDelete?.(deps, [id]))
  return protection && refused('collection', protection.message)
}

/** A row that is made up fails at the rule alone. */
function refusalOfRecord({ query }: ExplainQuestion, terms: Term | null): Verdict | undefined {
  return query.record !== undefined && terms?.holds === false
    ? refused('rule', 'The permission does not allow it on such an item')
    : undefined
}

function rowRefusal(row: RowAnswer, action: Exclude<Action, 'create'>): Verdict {
  const part = row.exists && !row.conditions ? 'rule' : row.exists && !row.tenant ? 'tenant' : 'row'
  return refused(part, errors.itemDenied(action).message)
}

function grantedBy(question: ExplainQuestion): Verdict {
  const { party, query } = question
  if (party.access.admin)
    return { allowed: true, decidedBy: 'administrator', reason: 'The administrator role needs no permission' }
  const how =
    query.id === undefined
      ? 'The permission allows it on the items that pass its conditions'
      : 'The permission allows it'
  const opened = relationOf(question)
  return {
    allowed: true,
    decidedBy: 'permission',
    reason: opened === undefined ? how : `${how}; it opens the relation ${opened} by naming it`,
  }
}

/** The relation that leads to the field in question, where the permission opens it. */
function relationOf({ party, query }: ExplainQuestion): string | undefined {
  const { action, field = '' } = query
  const stored = action === 'read' && field.includes('.') ? storedOf(party, query) : undefined
  const opened = stored === undefined ? [] : openedBy(party.rules, party.access, stored)
  return opened.find(({ relation }) => relation === field.slice(0, field.lastIndexOf('.')))?.relation
}

function described(question: ExplainQuestion): Omit<Explanation, keyof Verdict | keyof Examined | 'row'> {
  const { deps, party, query } = question
  const grant = grantIn(question)
  const stored = storedOf(party, query)
  return {
    ...toldOf(party, query),
    permission: stored === undefined ? null : permissionOf(deps, party, stored, grant),
    fields: fieldsOf(question),
    relations: stored === undefined || party.access.admin ? [] : openedBy(party.rules, party.access, stored),
    through: throughOthers(question),
    conditions: { ...explained(question, grant?.conditions), problem: ruleProblem(question) },
    relConditions: explained(question, grant?.relConditions),
    defaultValues: explained(question, grant?.defaultValues),
  }
}

function toldOf({ role, user, tenantId }: Party, { collection, action }: ExplainQuery) {
  return {
    collection,
    action,
    role: role === undefined ? null : { id: role.id, name: role.name },
    user: user ?? null,
    tenant: tenantId ?? null,
  }
}

type Examined = Pick<Explanation, 'dropped' | 'asked' | 'terms' | 'tenantRule'>

/** The rule taken apart: fields one by one, conditions one by one, the tenant by itself. */
async function examined(question: ExplainQuestion, row: RowAnswer | null): Promise<Examined> {
  const { query, collection } = question
  const allowed = new Set(fieldsOf(question))
  const isListed = fieldsOf(question) !== null
  const others = isListed ? [...collection.fields.values()].filter(({ name }) => !allowed.has(name)) : []
  return {
    dropped: isListed ? others.map(({ name }) => ({ field: name, reason: reasonOf(question, name) })) : null,
    asked: query.fields.map((field) => {
      const reason = fieldRefusal({ ...question, query: { ...query, field } }) ?? null
      return { field, allowed: reason === null && grantIn(question, true) !== undefined, reason }
    }),
    terms: await termsFor(question, row),
    tenantRule: { applies: isTenantScoped(question), holds: row === null || !row.exists ? null : row.tenant },
  }
}

function reasonOf(question: ExplainQuestion, field: string): string {
  if (question.collection.fields.get(field)!.hidden && question.query.action === 'read')
    return 'The field is hidden from everybody'
  const asked = { ...question, query: { ...question.query, field } }
  return fieldRefusal(asked) ?? 'The permission does not name it'
}

function isTenantScoped(question: ExplainQuestion): boolean {
  if (question.query.action === 'create') return false
  const access = withoutConditions(question.party.access)
  let applies = false
  failure(() => {
    applies = conditionOf(question, { access, includeDeleted: true }) !== undefined
  })
  return applies
}

async function termsFor(question: ExplainQuestion, row: RowAnswer | null): Promise<Term | null> {
  const { deps, query, collection, party } = question
  const conditions = grantIn(question)?.conditions
  if (isNone(conditions) || ruleProblem(question) !== null) return null
  const { id, record } = query
  const item = record !== undefined ? { record } : row?.exists === true ? { id: id! } : undefined
  const tests = testsIn(conditions)
  return termsOf(deps, collection, tests, item, {
    condition: (part) => {
      const access = withConditions(party.access, part)
      return conditionOf(question, { access, anyTenant: true, includeDeleted: true, as: 'read' })
    },
    resolved: (stored) => explained(question, stored).resolved,
    values: await readValuesOf(deps, collection, tests, item),
  })
}

const storedOf = ({ rules, role }: Party, query: ExplainQuery): PermissionRow | undefined =>
  role && rules.permissions.get(role.id)?.find((row) => isAbout(row, query))

function permissionOf(deps: Clock & Configuration, { rules }: Party, stored: PermissionRow, grant: Grant | undefined) {
  return {
    id: stored.id,
    acls: namedRules(stored.acl_Ids, rules.acls).map(({ id, name }) => ({ id, name })),
    fields: grant?.fields ?? null,
    problems: storedProblems(rules, resolveEnv(deps), stored),
  }
}

function throughOthers({ party, query }: ExplainQuestion): readonly Through[] {
  const { rules, role, access } = party
  if (query.action !== 'read' || role === undefined || access.admin) return []
  return (rules.permissions.get(role.id) ?? []).flatMap((row) =>
    openedBy(rules, access, row)
      .filter(({ collection }) => collection === query.collection)
      .map(({ relation, fields }) => ({ collection: row.collection, permission: row.id, relation, fields })),
  )
}

const isAbout = (row: { collection: string; action: string }, { collection, action }: ExplainQuery): boolean =>
  row.collection === collection && row.action === action

/** With `orAdmin` something also where none is needed. */
const grantIn = ({ party, query }: ExplainQuestion, orAdmin = false): Grant | undefined =>
  party.access.grant(query.collection, query.action) ?? (orAdmin && party.access.admin ? anything : undefined)

const anything: Grant = { fields: null, conditions: null, relConditions: null, defaultValues: null }

/** The context that a write of this kind would have. */
function writeOf({ deps, party, query, collection }: ExplainQuestion) {
  const requester = { actor: systemActor, access: party.access }
  return openWrite(deps, requester, collection.name, query.action as Exclude<Action, 'read'>)
}

/** Why no row at all can be in question: a role of a tenant without one. */
function scopeFailure(question: ExplainQuestion): AppError | undefined {
  const { action } = question.query
  const isPayload = action === 'create' || action === 'update'
  return failure(() => isPayload && payloadOf(question, {})) ?? failure(() => conditionOf(question))
}

function conditionOf(
  question: ExplainQuestion,
  only: { access?: Access; anyTenant?: boolean; includeDeleted?: boolean; as?: 'read' } = {},
): ResolvedFilter | undefined {
  const { deps, party, query } = question
  // A row in the trash can be restored, and not be changed otherwise.
  const restores = query.action === 'update' && query.field === 'deletedAt'
  const { access = party.access, includeDeleted = restores } = only
  const asked = query.action === 'read' || only.as === 'read' ? resolveEnv(deps) : writeOf(question).env
  const env = only.anyTenant ? { ...asked, multiTenant: { ...asked.multiTenant, enabled: false } } : asked
  return resolveCondition(deps.catalog.current(), access, query.collection, query.action, env, { includeDeleted })
}

function ruleProblem(question: ExplainQuestion): string | null {
  const { deps, party, query } = question
  const conditions = grantIn(question)?.conditions
  if (isNone(conditions)) return null
  const problem = failure(() =>
    checkConditions(deps.catalog.current(), party.access, query.collection, conditions, resolveEnv(deps)),
  )
  return problem === undefined ? null : detailOf(problem)
}

function explained({ deps, party }: ExplainQuestion, stored: unknown): ValueExplanation {
  if (isNone(stored)) return { stored: stored ?? null, resolved: null, problem: null }
  const scope = variableScope(deps.catalog.current(), party.access, deps.clock())
  let resolved: unknown = null
  const problem = failure(() => {
    resolved = resolveDefaults({ stored }, scope).stored
  })
  return { stored, resolved, problem: problem === undefined ? null : detailOf(problem) }
}

function fieldsOf(question: ExplainQuestion): readonly string[] | null {
  const { deps, party, query, collection } = question
  if (query.action === 'delete' || (!party.access.admin && grantIn(question) === undefined)) return null
  if (query.action === 'read')
    return readableFields(deps.catalog.current(), party.access, collection.name).map(({ name }) => name)
  if (failure(() => writeOf(question)) !== undefined) return null
  return [...collection.fields.keys()].filter((name) => writeRefusal(question, name) === undefined)
}

/** Own columns that a caller can read or write by the given rules. */
export function usableFields(deps: PermissionReads, party: Party, collection: Collection, action: Action) {
  const of = { collection: collection.name, action, who: { role: '' }, tenant: undefined, id: undefined }
  const query: ExplainQuery = { ...of, field: undefined, fields: [], record: undefined }
  return fieldsOf({ deps, query, collection, party }) ?? []
}

function fieldRefusal(question: ExplainQuestion): string | undefined {
  const { deps, party, query, collection } = question
  const { field, action } = query
  if (field === undefined || action === 'delete') return undefined
  if (action !== 'read') return writeRefusal(question, field)
  const list = parseListQuery({ fields: [field] })
  return failure(() => resolveList(deps.catalog.current(), party.access, collection.name, list, resolveEnv(deps)))
    ?.message
}

/** Why a member of a payload would not be written: it is refused, or dropped as none of the payload's business. */
function writeRefusal(question: ExplainQuestion, name: string): string | undefined {
  const { fields, relations } = question.collection
  if (!fields.has(name) && !relations.has(name))
    throw errors.badQuery(`field: ${JSON.stringify(name)} is not a field of the collection`)
  let isWritten = false
  const refusal = failure(() => {
    const { cells } = payloadOf(question, { [name]: null })
    isWritten = relations.has(name) || cells.some(({ field, value }) => field.name === name && value === null)
  })
  return refusal?.message ?? (isWritten ? undefined : `The field ${name} is set by the server alone`)
}

/** A payload as a request would read it, but for values that do not fit. */
function payloadOf(question: ExplainQuestion, payload: Readonly<Record<string, null>>) {
  const context = writeOf(question)
  if (context.action === 'delete') throw new Error('deleting takes no payload')
  return readPayload({ ...context, action: context.action }, payload, { problems: openProblems() })
}

async function rowAnswer(question: ExplainQuestion): Promise<RowAnswer | null> {
  const { deps, query, collection, party } = question
  if (query.id === undefined || query.action === 'create' || failure(() => conditionOf(question)) !== undefined)
    return null
  const access = withoutConditions(party.access)
  const params = createParams()
  const sql = (condition: ResolvedFilter | undefined) =>
    condition === undefined ? 'true' : `coalesce(${compileCondition(condition, 't', params)}, false)`
  const { primaryKey } = collection
  const id = params.bind(readValue(query.id, primaryKey, 'id').value, parameterType(primaryKey))
  const text = `select ${sql(conditionOf(question))} as matches,
      ${sql(conditionOf(question, { anyTenant: true, includeDeleted: true }))} as conditions,
      ${sql(conditionOf(question, { access, includeDeleted: true }))} as tenant,
      not ${sql(conditionOf(question, { access, anyTenant: true, includeDeleted: false }))} as deleted
    from ${ident(collection.name)} t where t.${ident(primaryKey.name)} = ${id}`
  const found = await deps.db.maybeOne<Omit<RowAnswer, 'exists'>>(rawQuery(text, params.values))
  if (found === undefined) return { exists: false, matches: false, conditions: false, tenant: false, deleted: false }
  return { exists: true, ...found }
}

const withoutConditions = (access: Access): Access => withConditions(access, null)

function withConditions(access: Access, conditions: unknown): Access {
  return withGrants(access, (collection, action) => {
    const grant = access.grant(collection, action)
    return grant && { ...grant, conditions }
  })
}

function failure(work: () => unknown): AppError | undefined {
  try {
    work()
    return undefined
  } catch (error) {
    if (error instanceof AppError) return error
    throw error
  }
}

async function failureOf(work: () => Promise<unknown>): Promise<AppError | undefined> {
  try {
    await work()
    return undefined
  } catch (error) {
    if (error instanceof AppError) return error
    throw error
  }
}

const detailOf = ({ details, message }: AppError): string => (typeof details === 'string' ? details : message)

type ExplainQuery = {
  readonly collection: string
  readonly action: Action
  readonly who: Subject
  readonly tenant: string | undefined
  readonly id: string | undefined
  readonly field: string | undefined
  readonly fields: readonly string[]
  /** A row that is not there, by its members. */
  readonly record: Readonly<Record<string, unknown>> | undefined
}

/** 400 unless it is about either a role or a user. Empty parameters say nothing. */
function questionOf({ collection, action, fields = [], record, ...given }: ExplainRequest): ExplainQuery {
  const [role, user] = [given.role || undefined, given.user || undefined]
  if ((role === undefined) === (user === undefined)) throw errors.badQuery('either role or user is required')
  const who = user === undefined ? { role: role! } : { user }
  const { tenant, id, field } = given
  const asked = { tenant: tenant || undefined, id: id || undefined, field: field || undefined }
  return { collection, action, who, ...asked, fields, record }
}
