import type { Collection, Field, Relation } from '../../../catalog/catalog.ts'
import { ruleProblems } from '../../../catalog/validate.ts'
import { parameterType, readParam, type ValueType } from '../../../catalog/values.ts'
import type { Config } from '../../../config/config.ts'
import { AppError, errors, type FieldProblem } from '../../../errors.ts'
import { oncePer } from '../../../language/once.ts'
import { type Access, compileGrant, type FieldGrant, type Grant, grantOf, reaches } from '../../../query/access.ts'
import { isObject, member } from '../../../query/guards.ts'
import { resolveDefaults } from '../../../query/variables.ts'
import {
  type Cell,
  type GrantedBy,
  keyCell,
  openProblems,
  type PayloadContext,
  type Problems,
  refuseProblems,
  rulesOf,
} from './context.ts'
import {
  type AnyKey,
  anyKeys,
  contestsIn,
  decideKeys,
  idAlone,
  type KeyDecisions,
  relationOfColumn,
  relationsByKey,
  type StoredKeys,
} from './foreign-keys.ts'
import { halfReferenceOf, type Reference, type RowReference, referenceOf } from './references.ts'

/** One payload, read: what becomes columns, and what concerns other rows. */
export type Payload = {
  readonly cells: readonly Cell[]
  /** By the name of the foreign key; where a payload names only the kind of a many-to-any key, by that of its column. */
  readonly references: ReadonlyMap<string, Reference>
  /** Names of the relations that were given by an id, in nested rows also by their foreign key, by the name of that. */
  readonly aliases: ReadonlyMap<string, string>
  /** Relations given as rows, in the order of the payload. */
  readonly relations: readonly RelationValue[]
  /** The row goes to the end of its collection's manual order. */
  readonly sortsLast: boolean
}

export type RelationValue = {
  readonly relation: Relation
  readonly value: unknown
  /** The foreign key is named elsewhere in the payload: only what is in this row is written. */
  readonly isBeside: boolean
}

type ReadOptions = {
  /** Where a nested payload hangs; undefined for the request's own. */
  readonly via?: GrantPath
  /** Put before the names of fields in problems: `lines.2.`. */
  readonly label?: string
  /** Foreign keys that the parent fills; the payload's own values of them are dropped. */
  readonly filled?: ReadonlySet<string>
  /** The parent's relation that sets these columns; the client has not named them. */
  readonly relation?: string
  /** The keys of other rows were found or written by this request, so they need no check. */
  readonly trusted?: boolean
  /** Collects what is wrong instead of throwing it. */
  readonly problems?: Problems
  /** Of the row to change, where the payload names foreign keys more than once. */
  readonly stored?: StoredKeys | undefined
  /** The row that would be created is there, and has what the payload leaves out. */
  readonly isThere?: boolean
}

/**
 * Reads one payload: unknown keys and VIRTUAL columns are dropped, keys the caller may not write are refused (403),
 * values are checked against their field's type and rules and all problems reported together (400).
 *
 * The server's own columns are not the payload's to set: createdAt and updatedAt are dropped unless the permission names
 * them, the primary key of an existing row and the tenant of a scoped caller never change.
 */
export function readPayload(context: PayloadContext, payload: unknown, options: ReadOptions = {}): Payload {
  if (!isObject(payload)) throw noObject(options.label)
  const { action, collection, defaults: unsaid = {}, platform = {} } = context
  const opening = openingOf(context)
  const problems = options.problems ?? openProblems()
  const reported = problems.fields.length
  const cells: Cell[] = []
  const relations: RelationValue[] = []
  const reading = { context, opening, payload, options, problems: problems.fields, cells, relations, named: {} }
  const row: RowReading = { ...reading, aside: asideIn(reading, problems) }
  for (const [field, value] of defaults(context, opening)) readCell(row, columnOf(row, field), value)
  for (const key of Object.keys(payload)) readMember(row, key, payload[key])
  // After its members: a payload that names a field is refused for that.
  if (grantsNothing(opening.grant)) throw errors.actionDenied(action, collection.name)
  const own = Object.entries(unsaid).filter(([name]) => payload[name] === undefined)
  for (const [name, value] of [...own, ...Object.entries(platform)])
    put(cells, keyCell(collection.fields.get(name)!, value))
  if (options.trusted !== true) addAnyReferences(row, problems)
  if (action === 'create' && options.isThere !== true) reportMissing(row, reported)
  if (options.problems === undefined) refuseProblems(problems)
  const sortsLast = action === 'create' && collection.sortEnabled && cellOf(cells, 'sort')?.value == null
  const written = sortsLast ? cells.filter(({ field }) => field.name !== 'sort') : cells
  stamp(context, opening, written)
  const { references = noNames, aliases = noNames } = row.named
  return { cells: written, references, aliases, relations, sortsLast }
}

/** `label` is the place in the request, where that is a list: `2.`, or `lines.2.` of a nested row. */
const noObject = (label = '') =>
  label === ''
    ? errors.badBody('Request body must be an object')
    : errors.badBody(`${label.slice(0, -1)} must be an object`)

/** For the many rows that name no other. */
const noNames: ReadonlyMap<string, never> = new Map<string, never>()

/** Decisions that hold for all rows of a change: a list of many asks for them once. */
type Opening = {
  readonly grant: Grant | undefined
  readonly tenant: OwnTenant | undefined
  /** Those that payloads have named so far. */
  readonly columns: Map<Field, Column>
}

/** Throws what refuses every payload of the change. */
const openingOf = oncePer((context: PayloadContext): Opening => {
  const { access, action, collection, platform } = context
  const grant = access.admin ? undefined : (context.grant ?? access.grant(collection.name, action))
  if (!access.admin && grant === undefined) throw errors.actionDenied(action, collection.name)
  const { createdElsewhere } = rulesOf(context) ?? {}
  if (createdElsewhere !== undefined && action === 'create' && platform === undefined)
    throw errors.badBody(createdElsewhere)
  return { grant, tenant: ownTenant(context), columns: new Map() }
})

/** A column as payloads of a change may set it. */
type Column = {
  readonly field: Field
  readonly pgType: string
  readonly isServersOwn: boolean
  /** Granted by the collection's own permission. */
  readonly isGranted: boolean
  /** The foreign key of a relation. */
  readonly isForeignKey: boolean
}

function columnOf({ context, opening }: Pick<RowReading, 'context' | 'opening'>, field: Field): Column {
  const { columns, grant } = opening
  const known = columns.get(field)
  if (known !== undefined) return known
  const column = {
    field,
    pgType: parameterType(field),
    isServersOwn: isServersOwn(context, grant, field),
    isGranted: grant === undefined || mayWrite(context, grant, field),
    isForeignKey: relationsByKey(context.collection).has(field.name),
  }
  columns.set(field, column)
  return column
}

/** A row of the request while it is read. */
type RowReading = {
  readonly context: PayloadContext
  readonly opening: Opening
  readonly payload: Readonly<Record<string, unknown>>
  readonly options: ReadOptions
  readonly problems: FieldProblem[]
  /** One of each column. */
  readonly cells: Cell[]
  readonly relations: RelationValue[]
  /** By the name of the foreign key; made for the first of them. */
  readonly named: { references?: Map<string, Reference>; aliases?: Map<string, string> }
  readonly aside: KeyDecisions['aside']
}

/** Decides which members set the foreign keys that the payload names more than once, and reports those that contradict. */
function asideIn(row: Omit<RowReading, 'aside'>, { relations }: Problems): KeyDecisions['aside'] {
  const { context, opening, payload, options } = row
  const contests = contestsIn(context, payload)
  if (contests.length === 0) return nothingAside
  const isOthers = (name: string) => {
    const field = context.collection.fields.get(name)!
    return options.filled?.has(name) || field === opening.tenant?.field || columnOf(row, field).isServersOwn
  }
  const { aside, conflicts } = decideKeys(
    contests.filter(({ foreignKey }) => !isOthers(foreignKey)),
    options.stored,
  )
  for (const { relation, message } of conflicts)
    relations.push({ field: `${options.label ?? ''}${relation.name}`, message })
  return aside
}

const nothingAside: KeyDecisions['aside'] = new Map()

/**
 * A key of a payload means a column, a relation by the id of the other row, or a relation as rows. Each is refused here where
 * the caller may not write it.
 */
function readMember(row: RowReading, key: string, value: unknown): void {
  if (value === undefined) return
  const { collection } = row.context
  const field = collection.fields.get(key)
  if (field?.generated !== undefined) return
  const relation =
    field === undefined ? collection.relations.get(key) : relationOfRow(collection, row.payload, field, value)
  if (relation === undefined) {
    if (field !== undefined) readColumn(row, columnOf(row, field), { key, value })
    return
  }
  const foreignKey = relation.kind === 'belongsTo' ? collection.fields.get(relation.foreignKey) : undefined
  const id = foreignKey && idAlone(relation, value)
  if (foreignKey !== undefined && id !== undefined)
    readColumn(row, columnOf(row, foreignKey), { key, value: id }, relation)
  else if (foreignKey === undefined || isToBeRead(row, columnOf(row, foreignKey), value)) {
    requireRelation(row, relation)
    row.relations.push({ relation, value, isBeside: row.aside.has(key) })
  }
}

/** A member of a payload; `value` as its column takes it. */
type ColumnMember = { readonly key: string; readonly value: unknown }

/** `alias` is the relation that was named instead of its foreign key. */
function readColumn(row: RowReading, column: Column, { key, value }: ColumnMember, alias?: Relation): void {
  if (!isToBeRead(row, column, value)) return
  requireField(row, column, alias)
  requireDeletion(row.context, column.field, value)
  if (row.aside.has(key)) return
  readCell(row, column, value)
  if (column.isForeignKey && row.options.trusted !== true) addReference(row, column, value, alias)
}

/** Whoever puts a row into the trash deletes it, by whichever request. The statement sees to the rule for the row. */
function requireDeletion({ access, action, collection }: PayloadContext, field: Field, value: unknown): void {
  const isDeletion = action === 'update' && collection.paranoid && field.name === 'deletedAt' && value !== null
  if (isDeletion && !access.admin && access.grant(collection.name, 'delete') === undefined)
    throw errors.actionDenied('delete', collection.name)
}

/** False for columns that others fill: the parent, the server, the session. Throws for a tenant that is not the caller's. */
function isToBeRead({ context, opening, options }: RowReading, { field, isServersOwn }: Column, value: unknown) {
  if (options.filled?.has(field.name)) return false
  if (field !== opening.tenant?.field) return !isServersOwn
  checkTenant(context, opening.tenant, value)
  return false
}

/** `author_Id: {id}`: the foreign key's name with a row means the relation. */
function relationOfRow(
  collection: Collection,
  payload: Readonly<Record<string, unknown>>,
  field: Field,
  value: unknown,
): Relation | undefined {
  return isObject(value) && field.kind !== 'json' ? relationOfColumn(collection, field.name, payload) : undefined
}

/** Columns that are not the payload's to set. */
function isServersOwn(context: PayloadContext, grant: Grant | undefined, field: Field): boolean {
  const { collection, action } = context
  if (rulesOf(context)?.serversOwn?.has(field.name) === true) return true
  if (action === 'update' && field.primaryKey) return true
  const isTimestamp = collection.timestamps && (field.name === 'createdAt' || field.name === 'updatedAt')
  return isTimestamp && grant !== undefined && grant.fields?.includes(field.name) !== true
}

function addReference(row: RowReading, { field }: Column, value: unknown, alias: Relation | undefined): void {
  const { collection } = row.context
  const relation = alias ?? relationOfColumn(collection, field.name, row.payload)
  if (relation === undefined || (alias === undefined && relation.discriminator !== undefined)) return
  // The row of a many-to-any junction says by a second column which collection it points at.
  if (alias?.discriminator !== undefined)
    readCell(row, columnOf(row, collection.fields.get(alias.discriminator.column)!), alias.discriminator.value)
  if (value === null) return
  refer(row, relation, { byRelation: alias !== undefined, value })
}

function refer({ context, named, options }: RowReading, relation: Relation, by: RowReference): void {
  const { foreignKey, name } = relation
  // In a nested row the foreign key is how its relation is written.
  if (by.byRelation || options.via !== undefined) {
    named.aliases ??= new Map()
    named.aliases.set(foreignKey, name)
  }
  const reference = referenceOf(context, relation, by)
  if (reference === undefined) return
  named.references ??= new Map()
  named.references.set(foreignKey, reference)
}

/**
 * The checks of many-to-any keys. Either of their two columns decides which row is meant, and each may come from the payload, the
 * grant or a default, so they are looked at when all cells are there.
 */
function addAnyReferences(row: RowReading, problems: Problems): void {
  const keys = anyKeys(row.context.collection)
  if (keys.length === 0) return
  const filled = filledKeys(row)
  // A key of which the payload names neither column comes from the permission alone, or was looked at by its relation.
  const isNamed = ({ foreignKey, discriminator }: AnyKey) =>
    member(row.payload, foreignKey) !== undefined || member(row.payload, discriminator) !== undefined
  for (const key of keys) if (isNamed(key) && !filled.has(key.foreignKey)) addAnyReference(row, key, problems)
}

function addAnyReference(row: RowReading, any: AnyKey, { fields, relations }: Problems): void {
  const { context, cells, named, options } = row
  const { foreignKey, discriminator } = any
  const key = cellOf(cells, foreignKey)
  const own = cellOf(cells, discriminator)
  // A row that lacks either points nowhere.
  if ((key === undefined && own === undefined) || key?.value === null || own?.value === null) return
  const label = options.label ?? ''
  const kind = own?.value ?? (context.action === 'create' ? defaultKind(context, discriminator) : undefined)
  if (kind === null) return
  if (kind === undefined && context.action === 'create') {
    fields.push({ field: `${label}${discriminator}`, message: 'is required', rule: 'notNull' })
    return
  }
  const relation = kind === undefined ? undefined : any.relations.get(String(kind))
  if (kind !== undefined && relation === undefined) {
    relations.push({ field: `${label}${discriminator}`, message: `cannot hold an item of ${String(kind)}` })
    return
  }
  if (key !== undefined && relation !== undefined) {
    if (named.references?.get(foreignKey)?.relation !== relation)
      refer(row, relation, { byRelation: false, value: key.value })
  } else if (context.action === 'update') {
    named.references ??= new Map()
    named.references.set(
      key === undefined ? discriminator : foreignKey,
      halfReferenceOf(context, any, key !== undefined),
    )
  }
}

/** The kind of a new row that names none: null for no kind, undefined where only the database knows. */
function defaultKind({ collection }: PayloadContext, discriminator: string): unknown {
  const given = collection.fields.get(discriminator)!.default
  if (given === undefined) return null
  return given.kind === 'literal' ? given.value : undefined
}

/** Columns that get their value from rows written before this one, or from the parent. */
function filledKeys({ relations, options: { filled = noKeys } }: RowReading): ReadonlySet<string> {
  if (relations.length === 0) return filled
  const toOne = relations.filter(({ relation, isBeside }) => relation.kind === 'belongsTo' && !isBeside)
  const keys = toOne.flatMap(({ relation: { foreignKey, discriminator } }) => [
    foreignKey,
    ...(discriminator === undefined ? [] : [discriminator.column]),
  ])
  return new Set([...filled, ...keys])
}

const noKeys: ReadonlySet<string> = new Set()

/** Values that the permission row puts under the payload; they need no grant of their own. */
function defaults(
  { catalog, collection, access, now }: PayloadContext,
  { grant }: Opening,
): readonly (readonly [Field, unknown])[] {
  if (grant?.defaultValues == null) return noDefaults
  const values = resolveDefaults(grant.defaultValues, { catalog, access, now, ofRequest: false })
  return Object.entries(values).flatMap(([key, value]): [Field, unknown][] => {
    const field = collection.fields.get(key)
    return field === undefined ? [] : [[field, value]]
  })
}

const noDefaults: readonly never[] = []

function readCell({ cells, problems, options }: RowReading, { field, pgType }: Column, raw: unknown): void {
  const { label = '' } = options
  if (raw === null) {
    if (!field.nullable)
      problems.push({ field: `${label}${field.name}`, message: 'is required', value: null, rule: 'notNull' })
    put(cells, { field, value: null, pgType: field.pgType })
    return
  }
  const broken = ruleProblems(field, raw)
  if (broken.length > 0) {
    for (const problem of broken) problems.push({ ...problem, field: `${label}${field.name}` })
    return
  }
  try {
    put(cells, { field, value: readParam(raw, field as ValueType, field.name), pgType })
  } catch (error) {
    if (!(error instanceof AppError) || error.status !== 400) throw error
    problems.push({ field: `${label}${field.name}`, message: reason(error), value: shown(field, raw), rule: 'type' })
  }
}

/** The last value of a column counts, in the place of the first: a row has few, so they are looked through. */
function put(cells: Cell[], cell: Cell): void {
  let at = 0
  while (at < cells.length && cells[at]!.field !== cell.field) at += 1
  cells[at] = cell
}

const cellOf = (cells: readonly Cell[], name: string): Cell | undefined =>
  cells.find(({ field }) => field.name === name)

/** "age: expected an integer" without the name, which the error body puts in front again. */
function reason(error: AppError): string {
  const text = typeof error.details === 'string' ? error.details : error.message
  return text.slice(text.indexOf(': ') + 1).trim()
}

function shown(field: Field, raw: unknown): unknown {
  if (field.hidden) return undefined
  return typeof raw === 'string' && raw.length > 200 ? `${raw.slice(0, 200)}…` : raw
}

/** What others of the request were told is not looked through: `from` is where the problems of this row begin. */
function reportMissing(row: RowReading, from: number): void {
  const { context, cells, problems, options } = row
  const filled = filledKeys(row)
  const reported = new Set(problems.slice(from).map(({ field }) => field))
  for (const field of neededFields(context.collection)) {
    if (cellOf(cells, field.name) !== undefined || filled.has(field.name)) continue
    const name = `${options.label ?? ''}${field.name}`
    if (!reported.has(name)) problems.push({ field: name, message: 'is required', rule: 'notNull' })
  }
}

/** The fields without which no row can be created. */
export const neededFields = oncePer(({ fields }: Collection): readonly Field[] =>
  [...fields.values()].filter(
    (field) => !field.nullable && field.default === undefined && field.generated === undefined,
  ),
)

/** Columns the server fills in: user track, tenant, and defaults that mean the caller. */
function stamp({ collection, access, action }: PayloadContext, { tenant }: Opening, cells: Cell[]): void {
  const fill = (name: string, value: string | undefined) => {
    const field = collection.fields.get(name)
    if (field !== undefined && value !== undefined) put(cells, { field, value, pgType: field.pgType })
  }
  if (action === 'update') {
    if (collection.usertrack) fill('userUpdated_Id', access.userId)
    return
  }
  if (tenant?.id != null) fill(tenant.field.name, tenant.id)
  if (collection.usertrack)
    // Whoever may name them brings rows with their past from elsewhere.
    for (const name of ['userCreated_Id', 'userUpdated_Id'])
      if (cellOf(cells, name) === undefined) fill(name, access.userId)
  for (const field of fieldsOfCaller(collection)) {
    if (cellOf(cells, field.name) !== undefined) continue
    if (field.default?.kind === 'current_user') fill(field.name, access.userId)
    if (field.default?.kind === 'current_tenant') fill(field.name, access.tenantId)
  }
}

/** The fields whose default means the caller. */
const fieldsOfCaller = oncePer(({ fields }: Collection): readonly Field[] =>
  [...fields.values()].filter(
    ({ default: given }) => given?.kind === 'current_user' || given?.kind === 'current_tenant',
  ),
)

/** Where a nested payload hangs: the relations that lead to it, and what the request's own collection grants of them. */
type GrantPath = { readonly root: FieldGrant | undefined; readonly path: readonly string[] }

/** On writes, no fields means none: the opposite of reading. */
export function writeGrant(grant: Grant | undefined): FieldGrant | undefined {
  return grant && compiled(grant)
}

const compiled = oncePer(
  ({ fields }: Grant): FieldGrant => (fields === null ? { granted: [], excluded: [] } : compileGrant(fields)),
)

/** Whether a permission names no field, and so opens no write at all, not even one that names none either. */
export const grantsNothing = (grant: Grant | undefined): boolean =>
  grant !== undefined && !grant.fields?.some((spec) => !spec.startsWith('-'))

/**
 * 403 unless the field is granted by the collection's own permission and, in a nested payload, by the path that leads
 * to it. An alias with an id is granted like the foreign key that it stands for, or as a relation.
 */
function requireField(
  { context, opening: { grant }, options: { via, relation } }: RowReading,
  { field, isGranted }: Column,
  alias: Relation | undefined,
): void {
  if (grant === undefined) return
  const asRelation = (root: FieldGrant | undefined, path: readonly string[]) =>
    alias !== undefined && root !== undefined && reaches(root, [...path, alias.name])
  if (!isGranted && !asRelation(writeGrant(grant), []))
    throw errors.fieldDenied(context.action, relation === undefined ? field.name : `${relation}.${field.name}`)
  if (via?.root === undefined || field.primaryKey) return
  const path = [...via.path, field.name]
  if (grantOf(via.root, path) === undefined && !asRelation(via.root, via.path))
    throw errors.fieldDenied(context.action, path.join('.'))
}

/** 403 unless the relation is granted: `*` is every column, but no relation. */
function requireRelation(
  { context: { action }, opening: { grant }, options: { via } }: RowReading,
  relation: Relation,
): void {
  if (grant === undefined) return
  const path = [...(via?.path ?? []), relation.name]
  const isGranted = reaches(writeGrant(grant)!, [relation.name]) && (via?.root === undefined || reaches(via.root, path))
  if (!isGranted) throw errors.relationDenied(action, path.join('.'))
}

const privilegeFields = new Set(['role_Id', 'tenant_Id', 'userCreated_Id', 'userUpdated_Id', 'emailVerified'])

/** The fields that a payload of this caller may set. */
export function writableFields(context: PayloadContext): readonly Field[] {
  const { collection, grant } = context
  return [...collection.fields.values()].filter(
    (field) =>
      field.generated === undefined &&
      !isServersOwn(context, grant, field) &&
      (grant === undefined || mayWrite(context, grant, field)),
  )
}

/** Whether the grant opens the field for this write. `PROTECT_PRIVILEGE_FIELDS` takes some out of what `*` opens. */
export function mayWrite(context: PayloadContext, grant: Grant, field: Field): boolean {
  const specs = grant.fields ?? []
  if (specs.includes(`-${field.name}`)) return false
  const { config, action } = context
  const openedBy = rulesOf(context)?.protectedFields?.[field.name]?.(config, action) ?? usuallyOpenedBy(field, config)
  if (openedBy === 'nothing') return false
  if (specs.includes(field.name) || (field.primaryKey && openedBy === 'wildcard')) return true
  return openedBy === 'wildcard' && (specs.includes('*') || specs.includes('*.*'))
}

function usuallyOpenedBy(field: Field, { access }: Config): GrantedBy {
  if (field.primaryKey || !access.protectPrivilegeFields) return 'wildcard'
  return field.hidden || privilegeFields.has(field.name) ? 'name' : 'wildcard'
}

const tenantField = 'tenant_Id'

/** The tenant that everything a scoped caller writes belongs to; null for callers without one. */
type OwnTenant = { readonly field: Field; readonly id: string | null }

/**
 * Undefined where the caller is free: administrators, roles that are not tenant-specific where isolation is not strict,
 * collections without tenants. 403 for a tenant-specific role without a tenant.
 */
export function ownTenant({ collection, access, config }: PayloadContext): OwnTenant | undefined {
  const field = collection.fields.get(tenantField)
  if (field === undefined || !isScoped(access, config) || !isTenanted(collection, config)) return undefined
  if (access.tenantId === undefined && access.tenantSpecific)
    throw new AppError(403, 'No tenant context available for tenant-specific operation')
  return { field, id: access.tenantId ?? null }
}

/** Whether rows of the collection belong to tenants. */
export function isTenanted({ name, fields }: Collection, { tenancy }: PayloadContext['config']): boolean {
  return tenancy.enabled && fields.has(tenantField) && !tenancy.ignoredTables.includes(name)
}

/** Whether MULTI_TENANT keeps this caller inside a tenant. */
export function isScoped(access: Access, { tenancy }: Pick<PayloadContext, 'config'>['config']): boolean {
  return tenancy.enabled && !access.admin && (access.tenantSpecific || tenancy.strictIsolation)
}

/** The tenant comes from the session alone: a payload may repeat it, never name another. */
export function checkTenant({ action }: PayloadContext, own: Pick<OwnTenant, 'id'>, given: unknown): void {
  const isOwn = given === own.id || (typeof given === 'string' && given.toLowerCase() === own.id?.toLowerCase())
  if (isOwn) return
  throw new AppError(
    403,
    action === 'create' ? 'Cannot operate on data from different tenant' : "Cannot change item's tenant",
  )
}
