import type { Catalog, Collection, Field, Relation } from '../../catalog/catalog.ts'
import { ruleProblems } from '../../catalog/validate.ts'
import { readValue, type ValueType } from '../../catalog/values.ts'
import type { Config } from '../../config.ts'
import { AppError, errors, type FieldProblem } from '../../errors.ts'
import type { Access, Grant } from '../../query/access.ts'
import { isObject } from '../../query/guards.ts'
import type { ParamValue } from '../../query/sql.ts'
import { resolveDefaults } from '../../query/variables.ts'
import { openProblems, type Problems, refuseProblems } from './problems.ts'
import { type Reference, referenceOf, relationBehind } from './references.ts'
import { checkTenant, type OwnTenant, ownTenant } from './tenant.ts'
import { requireField, requireRelation, type Via } from './write-grants.ts'

/** A cell of a row that is about to be written: its field and the value as a parameter of its type. */
export type Cell = { readonly field: Field; readonly value: ParamValue; readonly pgType: string }

export type WriteAction = 'create' | 'update'

export type PayloadContext = {
  readonly catalog: Catalog
  readonly collection: Collection
  readonly access: Access
  readonly action: WriteAction
  readonly config: Config
  readonly now: Date
  /** Stands for the caller's own grant of the action. */
  readonly grant?: Grant | undefined
}

/** One payload, read: what becomes columns, and what concerns other rows. */
export type Payload = {
  readonly cells: readonly Cell[]
  /** By the name of the foreign key. */
  readonly references: ReadonlyMap<string, Reference>
  /** Names of the relations that were given by an id, by the name of the foreign key. */
  readonly aliases: ReadonlyMap<string, string>
  /** Relations given as rows, in the order of the payload. */
  readonly relations: readonly RelationValue[]
  /** The row goes to the end of its collection's manual order. */
  readonly sortsLast: boolean
}

export type RelationValue = { readonly relation: Relation; readonly value: unknown }

export type ReadOptions = {
  /** Where a nested payload hangs; undefined for the request's own. */
  readonly via?: Via
  /** Put before the names of fields in problems: `lines.2.`. */
  readonly label?: string
  /** Foreign keys that the parent fills; the payload's own values of them are dropped. */
  readonly filled?: ReadonlySet<string>
  /** The keys of other rows were found or written by this request, so they need no check. */
  readonly trusted?: boolean
  /** Collects what is wrong instead of throwing it. */
  readonly problems?: Problems
}

/**
 * Reads one payload: unknown keys and VIRTUAL columns are dropped, keys the caller may not write are refused (403),
 * values are checked against their field's type and rules and all problems reported together (400).
 *
 * The server's own columns are not the payload's to set: createdAt and updatedAt are dropped unless the permission names
 * them, the primary key of an existing row and the tenant of a scoped caller never change.
 */
export function readPayload(context: PayloadContext, payload: unknown, options: ReadOptions = {}): Payload {
  if (!isObject(payload)) throw errors.badBody('Request body must be an object')
  const { access, action, collection } = context
  const grant = access.admin ? undefined : (context.grant ?? access.grant(collection.name, action))
  if (!access.admin && grant === undefined) throw errors.actionDenied(action, collection.name)
  const tenant = ownTenant(context)
  const entries = entriesOf(context, grant, tenant, payload, options)
  const problems = options.problems ?? openProblems()
  const cells = readCells(context, grant, entries, problems.fields, options.label ?? '')
  if (action === 'create') reportMissing(collection, cells, filledKeys(entries, options), problems.fields, options)
  if (options.problems === undefined) refuseProblems(problems)
  const sortsLast = action === 'create' && collection.sortEnabled && cells.get('sort')?.value == null
  if (sortsLast) cells.delete('sort')
  const { references, aliases, relations } = entries
  return { cells: [...stamps(context, tenant, cells).values()], references, aliases, relations, sortsLast }
}

type Entries = {
  readonly fields: [Field, unknown][]
  readonly relations: RelationValue[]
  readonly references: Map<string, Reference>
  readonly aliases: Map<string, string>
}

/** The members of the payload that mean something, each after a check that the caller may write it. */
function entriesOf(
  context: PayloadContext,
  grant: Grant | undefined,
  tenant: OwnTenant | undefined,
  payload: Readonly<Record<string, unknown>>,
  { via, filled, trusted }: ReadOptions,
): Entries {
  const entries: Entries = { fields: [], relations: [], references: new Map(), aliases: new Map() }
  for (const [key, value] of Object.entries(payload)) {
    const member = value === undefined ? undefined : memberOf(context, payload, key, value)
    if (member === undefined || (member.field !== undefined && filled?.has(member.field.name))) continue
    const { field, relation } = member
    if (tenant !== undefined && field === tenant.field) checkTenant(context, tenant, member.value)
    else if (isServersOwn(context, grant, field)) continue
    else if (member.asRow) {
      requireRelation(context, grant, via, relation!)
      entries.relations.push({ relation: relation!, value: member.value })
    } else {
      requireField(context, grant, via, field!, relation)
      entries.fields.push([field!, member.value])
      if (trusted !== true) addReference(context, payload, entries, member)
    }
  }
  return entries
}

/** What a key of a payload means: a column, a relation by the id of the other row, or a relation as rows. */
type Member = {
  /** The column; of a to-one relation its foreign key. */
  readonly field: Field | undefined
  /** Set where the key names a relation. */
  readonly relation: Relation | undefined
  readonly value: unknown
  readonly asRow: boolean
}

function memberOf(
  { collection }: PayloadContext,
  payload: Readonly<Record<string, unknown>>,
  key: string,
  value: unknown,
): Member | undefined {
  const field = collection.fields.get(key)
  if (field?.generated !== undefined) return undefined
  const named = field === undefined ? collection.relations.get(key) : rowBehind(collection, payload, field, value)
  if (named === undefined) return field && { field, relation: undefined, value, asRow: false }
  if (named.kind !== 'belongsTo') return { field: undefined, relation: named, value, asRow: true }
  const id = idAlone(named, value)
  const foreignKey = collection.fields.get(named.foreignKey)!
  return id === undefined
    ? { field: foreignKey, relation: named, value, asRow: true }
    : { field: foreignKey, relation: named, value: id, asRow: false }
}

/** `author_Id: {id}`: the foreign key's name with a row means the relation. */
function rowBehind(
  collection: Collection,
  payload: Readonly<Record<string, unknown>>,
  field: Field,
  value: unknown,
): Relation | undefined {
  return isObject(value) && field.kind !== 'json' ? relationBehind(collection, field.name, payload) : undefined
}

/** The key that a value of a to-one relation names without saying more of the row: `5`, `{id: 5}`, null. */
function idAlone({ targetKey }: Relation, value: unknown): unknown {
  if (!isObject(value)) return Array.isArray(value) ? undefined : value
  const [first, ...more] = Object.entries(value)
  return first?.[0] === targetKey && more.length === 0 && !isObject(first[1]) ? (first[1] ?? undefined) : undefined
}

/** Columns that are not the payload's to set. */
function isServersOwn({ collection, action }: PayloadContext, grant: Grant | undefined, field: Field | undefined) {
  if (field === undefined) return false
  if (action === 'update' && field.primaryKey) return true
  const isTimestamp = collection.timestamps && (field.name === 'createdAt' || field.name === 'updatedAt')
  return isTimestamp && grant !== undefined && grant.fields?.includes(field.name) !== true
}

function addReference(
  context: PayloadContext,
  payload: Readonly<Record<string, unknown>>,
  { fields, references, aliases }: Entries,
  { field, relation, value }: Member,
): void {
  const { collection } = context
  const behind = relation ?? relationBehind(collection, field!.name, payload)
  if (behind === undefined) return
  // The row of a many-to-any junction says by a second column which collection it points at.
  if (relation?.discriminator !== undefined)
    fields.push([collection.fields.get(relation.discriminator.column)!, relation.discriminator.value])
  if (value === null) return
  if (relation !== undefined) aliases.set(field!.name, relation.name)
  const reference = referenceOf(context, behind, { byRelation: relation !== undefined, value })
  if (reference !== undefined) references.set(field!.name, reference)
}

/** Columns that get their value from rows written before this one, or from the parent. */
function filledKeys({ relations }: Entries, { filled = new Set() }: ReadOptions): ReadonlySet<string> {
  const toOne = relations.filter(({ relation }) => relation.kind === 'belongsTo')
  if (toOne.length === 0) return filled
  const keys = toOne.flatMap(({ relation: { foreignKey, discriminator } }) => [
    foreignKey,
    ...(discriminator === undefined ? [] : [discriminator.column]),
  ])
  return new Set([...filled, ...keys])
}

function readCells(
  context: PayloadContext,
  grant: Grant | undefined,
  { fields }: Entries,
  problems: FieldProblem[],
  label: string,
): Map<string, Cell> {
  const cells = new Map<string, Cell>()
  for (const [field, raw] of [...defaults(context, grant), ...fields]) {
    const cell = readCell(field, raw, problems, label)
    if (cell !== undefined) cells.set(field.name, cell)
  }
  return cells
}

/** Values that the permission row puts under the payload; they need no grant of their own. */
function defaults({ catalog, collection, access, now }: PayloadContext, grant: Grant | undefined): [Field, unknown][] {
  if (grant?.defaultValues == null) return []
  const values = resolveDefaults(grant.defaultValues, { catalog, access, now, ofRequest: false })
  return Object.entries(values).flatMap(([key, value]): [Field, unknown][] => {
    const field = collection.fields.get(key)
    return field === undefined ? [] : [[field, value]]
  })
}

function readCell(field: Field, raw: unknown, problems: FieldProblem[], label: string): Cell | undefined {
  const name = `${label}${field.name}`
  if (raw === null) {
    if (!field.nullable) problems.push({ field: name, message: 'is required', value: null, rule: 'notNull' })
    return { field, value: null, pgType: field.pgType }
  }
  const broken = ruleProblems(field, raw)
  if (broken.length > 0) {
    problems.push(...(label === '' ? broken : broken.map((problem) => ({ ...problem, field: name }))))
    return undefined
  }
  try {
    const { value, pgType } = readValue(raw, field as ValueType, field.name)
    return { field, value, pgType }
  } catch (error) {
    if (!(error instanceof AppError) || error.status !== 400) throw error
    problems.push({ field: name, message: reason(error), value: shown(field, raw), rule: 'type' })
    return undefined
  }
}

/** "age: expected an integer" without the name, which the error body puts in front again. */
function reason(error: AppError): string {
  const text = typeof error.details === 'string' ? error.details : error.message
  return text.slice(text.indexOf(': ') + 1).trim()
}

function shown(field: Field, raw: unknown): unknown {
  if (field.hidden) return undefined
  return typeof raw === 'string' && raw.length > 200 ? `${raw.slice(0, 200)}…` : raw
}

function reportMissing(
  collection: Collection,
  cells: ReadonlyMap<string, Cell>,
  filled: ReadonlySet<string>,
  problems: FieldProblem[],
  { label = '' }: ReadOptions,
): void {
  const reported = new Set(problems.map((problem) => problem.field))
  for (const field of collection.fields.values()) {
    const hasValue = cells.has(field.name) || filled.has(field.name)
    const isFilled = hasValue || field.nullable || field.default !== undefined || field.generated !== undefined
    const name = `${label}${field.name}`
    if (!isFilled && !reported.has(name)) problems.push({ field: name, message: 'is required', rule: 'notNull' })
  }
}

/** Columns the server fills in: user track, tenant, and defaults that mean the caller. */
function stamps(
  { collection, access, action }: PayloadContext,
  tenant: OwnTenant | undefined,
  cells: Map<string, Cell>,
): Map<string, Cell> {
  const stamp = (name: string, value: string | undefined) => {
    const field = collection.fields.get(name)
    if (field !== undefined && value !== undefined) cells.set(name, { field, value, pgType: field.pgType })
  }
  if (collection.usertrack) stamp('userUpdated_Id', access.userId)
  if (action === 'update') return cells
  if (tenant?.id != null) stamp(tenant.field.name, tenant.id)
  if (collection.usertrack && !cells.has('userCreated_Id')) stamp('userCreated_Id', access.userId)
  for (const field of collection.fields.values()) {
    if (cells.has(field.name)) continue
    if (field.default?.kind === 'current_user') stamp(field.name, access.userId)
    if (field.default?.kind === 'current_tenant') stamp(field.name, access.tenantId)
  }
  return cells
}
