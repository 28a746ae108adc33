import type { Catalog, Collection, Field, Kind } from '../../../catalog/catalog.ts'
import { defaultExpression } from '../../../catalog/fields.ts'
import { type ParamValue, parameterType, readValue } from '../../../catalog/values.ts'
import { AppError, errors, refusals } from '../../../errors.ts'
import type { RowEvent } from '../../../events/commit.ts'
import { actorCondition, actorCte } from '../../../events/log.ts'
import { oncePer } from '../../../language/once.ts'
import { type Access, withGrants } from '../../../query/access.ts'
import { compileCondition } from '../../../query/compile.ts'
import { projectionSql } from '../../../query/compile-rows.ts'
import { isMoment } from '../../../query/moments.ts'
import { resolveCondition } from '../../../query/resolve.ts'
import { createParams, ident, literal, type Params } from '../../../query/sql.ts'
import { type Cell, type InsertCondition, partOfParent, type Write, type WriteContext } from './context.ts'
import { mayWrite, type Payload } from './payload.ts'
import { type Reference, referenceSql } from './references.ts'

/** A row to write; references are by the name of their column. */
export type RowToWrite = Pick<Payload, 'cells' | 'references' | 'sortsLast'> & {
  /** Columns that the row to be changed has a value for, as expressions. */
  readonly kept?: readonly { readonly column: string; readonly value: string }[]
}

type CheckOptions = {
  /** False: whether the row as written is within the caller's rule is checked later, when its related rows are there. */
  readonly checked?: boolean
}

export function insertStatement(context: WriteContext, rows: readonly RowToWrite[], options: CheckOptions = {}): Write {
  const { params, values } = parameters()
  if (context.condition !== undefined && rows.length > 1) throw new TypeError('a condition is of one row')
  const text =
    rows.length === 1 ? insertOne(context, rows[0]!, params, options) : insertMany(context, rows, params, options)
  return { text, values: values() }
}

/**
 * Versions of which a row must have one. A version is the transaction that wrote the row (`xmin`): every change by anybody
 * gives it another one, and comparing it costs nothing.
 */
export type Versions = readonly string[]

type UpdateOptions = CheckOptions & {
  /** See {@link Versions}. The answer then has a row in any case; see {@link ChangedId}. */
  readonly ifMatch?: Versions | undefined
  /** Keeps other writers away from rows that are looked at but not changed. */
  readonly locked?: boolean
}

/** Changes the rows with these keys that the caller may update. Rows that it may not, or that are missing, don't come back. */
export function updateStatement(
  context: WriteContext,
  ids: readonly ParamValue[],
  { cells, references }: Pick<RowToWrite, 'cells' | 'references'>,
  options: UpdateOptions = {},
): Write {
  const { params, values } = parameters()
  const { collection } = context
  const assignments = cells.map((cell) => ({ cell, column: ident(cell.field.name), value: bindCell(cell, params) }))
  const key = keyCondition(collection, ids, params)
  const where = [[key, ruleSql(context, 't', params), ...trashConditions(context, assignments, params)].join(' and ')]
  const matching = options.ifMatch === undefined ? [] : [versionCondition(options.ifMatch, params)]
  if (assignments.length === 0) {
    const found = `select ${projection(collection)} from ${ident(collection.name)} t where $1::text is not null and ${[...where, ...matching].join(' and ')}`
    const text = options.locked ? `${found} for update of t` : found
    return {
      text: options.ifMatch === undefined ? text : orWhetherFound(`(${text})`, '', context, where),
      values: values(),
    }
  }
  const sets = setsOf(collection, assignments)
  const checks = checksOf(assignments, references, params, (column, value) => `t.${column} = ${value}`)
  const conditions = [...where, ...matching, ...checks, actorCondition(1)].join(' and ')
  const change = `update ${ident(collection.name)} as t set ${sets.join(', ')} where ${conditions} returning ${returning(context, cells, params, options)}`
  const text =
    options.ifMatch === undefined ? change : orWhetherFound('changed', `with changed as (${change}) `, context, where)
  return { text, values: values() }
}

/**
 * The answer of a statement on one item: no row where there is no such item, or with a condition on its version (always
 * one row) `found`, and no `id` when the version was another one.
 */
export type ChangedId = { readonly id: string | null; readonly found?: boolean }

/** The id of the item that a statement changed. 403 when there is none for the caller, 412 when it has another version. */
export function changedId(action: 'update' | 'delete', rows: readonly ChangedId[]): string {
  const [row] = rows
  if (row === undefined || row.found === false) throw errors.itemDenied(action)
  if (row.id === null) throw anotherVersion()
  return row.id
}

/** What an insert returned. 403 where a trigger of the database has left out a row: all of the transaction must end then. */
export function allMade<Row>(rows: readonly Row[], wanted: number): readonly Row[] {
  if (rows.length < wanted) throw errors.notKept()
  return rows
}

/** 412 for an item that has none of the versions that the caller named. */
export const anotherVersion = (): AppError =>
  new AppError(412, 'The item has changed since it was read', { code: 'PRECONDITION_FAILED' })

/** Deletes (or, with `paranoid`, marks) exactly these items, or ends with 403. */
export function deleteStatement(
  context: WriteContext,
  ids: readonly ParamValue[],
  options: { readonly ifMatch?: Versions | undefined } = {},
): Write {
  const { params, values } = parameters()
  const { collection, catalog } = context
  const where = [`${keyCondition(collection, ids, params)} and ${ruleSql(context, 't', params)}`]
  const matching = options.ifMatch === undefined ? [] : [versionCondition(options.ifMatch, params)]
  const conditions = [...where, ...matching].join(' and ')
  const change = collection.paranoid
    ? `update ${ident(collection.name)} as t set "deletedAt" = now() from ctx where ${conditions}`
    : `delete from ${ident(collection.name)} as t using ctx where ${conditions}`
  const links = collection.paranoid ? [] : linkDeletions(catalog, collection)
  const key = links.length === 0 ? '' : `, t.${ident(collection.primaryKey.name)} as key`
  const gone = `${actorCte(1)}, gone as (${change} returning ${projection(collection)}${key})${links.map((link) => `, ${link}`).join('')}`
  if (options.ifMatch !== undefined)
    return { text: orWhetherFound('(select id from gone)', `${gone} `, context, where), values: values() }
  // Fewer rows than asked for: one is missing or not the caller's, so nothing may be deleted.
  const count = params.bind(ids.length, 'int')
  const refusal = params.bind(refusals.item('delete'), 'text')
  const checked = `select case when count(*) = ${count} then true else svc_refuse(${refusal}) end as ok from gone`
  return { text: `${gone} select gone.id from (${checked}) c left join gone on c.ok`, values: values() }
}

/** Ends with 403 unless the rows as they are now are within the caller's rule; undefined where it has none. */
export function recheckStatement(context: WriteContext, id: string): Write | undefined {
  const { params, values } = parameters()
  const { collection, access } = context
  const rule = access.admin ? 'true' : ruleSql(context, 't', params)
  if (rule === 'true') return undefined
  const where = keyCondition(collection, [id], params)
  const kept = `case when ${rule} or ${refusalSql(context, params)} then ${keyProjection(collection)} end as id`
  return {
    text: `select ${kept} from ${ident(collection.name)} t where $1::text is not null and ${where}`,
    values: values(),
  }
}

/**
 * The condition that rows of the context's collection must satisfy, on the row that the statement calls `alias`: the
 * grant's conditions, tenant and soft delete. Deleted rows pass it for an update, because restoring one is an update; see {@link trashConditions}.
 */
export function ruleSql(context: WriteContext, alias: string, params: Params): string {
  const { catalog, collection, action, env } = context
  const includeDeleted = action === 'update'
  const condition = resolveCondition(catalog, granting(context), collection.name, action, env, { includeDeleted })
  return condition === undefined ? 'true' : compileCondition(condition, alias, params)
}

/**
 * Of an update in a collection with soft delete: only a change that says so itself finds rows in the trash (and an undo, of a
 * caller who could say so), and one that puts a row there deletes it, so the caller's rule for that must hold as well.
 */
export function trashConditions(
  context: WriteContext,
  assignments: readonly { readonly cell: Cell; readonly value: string }[],
  params: Params,
): string[] {
  const { access, catalog, collection, env, isUndo } = context
  if (!collection.paranoid) return []
  const column = `t.${ident('deletedAt')}`
  const deletedAt = assignments.find(({ cell }) => cell.field.name === 'deletedAt')?.value
  if (deletedAt === undefined) return isUndo && mayChangeTrash(context) ? [] : [`${column} is null`]
  if (access.admin) return []
  const mayDelete = access.grant(collection.name, 'delete') !== undefined
  const condition = mayDelete ? resolveCondition(catalog, access, collection.name, 'delete', env) : undefined
  const rule = condition === undefined ? String(mayDelete) : compileCondition(condition, 't', params)
  return [`(${deletedAt} is null or ${column} is not null or ${rule})`]
}

/** Whether the caller may take rows out of the trash, and so may change those that are there. */
export function mayChangeTrash(context: WriteContext): boolean {
  const { collection, grant } = context
  const deletedAt = collection.fields.get('deletedAt')
  return grant === undefined || deletedAt === undefined || mayWrite({ ...context, action: 'update' }, grant, deletedAt)
}

/** The caller's access with the context's grant in it. */
function granting({ access, collection, action, grant }: WriteContext): Access {
  if (grant !== partOfParent) return access
  return withGrants(access, (name, other) =>
    name === collection.name && other === action ? grant : access.grant(name, other),
  )
}

/** Parameter 1 is the actor, which is put in front when the statement is run. */
export function parameters(): { params: Params; values: () => readonly ParamValue[] } {
  const params = createParams([null])
  return { params, values: () => params.values.slice(1) }
}

/** The key as it is stored, for comparing ids that came in different spellings. 400 for text that cannot be a key. */
export function canonicalKey(collection: Collection, id: unknown): string {
  const value = String(readValue(id, collection.primaryKey, collection.primaryKey.name).value)
  return collection.primaryKey.kind === 'uuid' ? value.toLowerCase() : value
}

/** The key as JSON text, for a select list. */
export function projection(collection: Collection, alias = 't'): string {
  return `${keyProjection(collection, alias)} as id`
}

export function keyProjection(collection: Collection, alias = 't'): string {
  return `to_jsonb(${projectionSql(collection.primaryKey, alias)})::text`
}

/**
 * The id, after a check that the row as written is still within the caller's rule: a row may neither be created outside it
 * nor moved out of it. `svc_refuse` ends the statement, and with it everything it wrote.
 */
function returning(
  context: WriteContext,
  cells: readonly Cell[],
  params: Params,
  { checked = true }: CheckOptions,
): string {
  const { access, collection } = context
  const counted = countedSql(context, cells)
  const condition = access.admin || !checked ? 'true' : ruleSql(context, 't', params)
  if (condition === 'true') return `${projection(collection)}${counted}`
  return `case when ${condition} or ${refusalSql(context, params)} then ${keyProjection(collection)} end as id${counted}`
}

/**
 * After what a statement returns of the row `t`: moves the counters of columns that these cells give a value to past that value,
 * or the counter would come to it later and a create fail. Nothing where no such column is given one.
 */
export function countedSql({ access, collection }: WriteContext, cells: readonly Cell[]): string {
  return cells
    .filter(isCounted)
    .map(({ field }, nth) => `, ${countSql(collection, field, access.admin)} as "svc$counted${nth}"`)
    .join('')
}

/**
 * Nothing but `nextval` moves a counter forward whatever others do at the same time, so it is called until the value is reached. Over
 * a long way `setval` does: to go back by it, others would have to go all of that way between its reading and its writing.
 */
function countSql({ name }: Collection, field: Field, byAdministrator: boolean): string {
  const value = `t.${ident(field.name)}`
  const most = byAdministrator ? furthest[field.kind] : furthestOfOthers[field.kind]
  const counter = `pg_get_serial_sequence(${literal(ident(name))}, ${literal(field.name)})::regclass`
  const missing = `case when ${value} between 1 and ${most} then ${value} - coalesce(pg_sequence_last_value(s.counter), nextval(s.counter)) end`
  return (
    `cardinality(array(select case when c.missing > ${longWay} then setval(c.counter, ${value}) else nextval(c.counter) end ` +
    `from (select s.counter, ${missing} as missing from (select ${counter} as counter) s) c, ` +
    `generate_series(1, case when c.missing > ${longWay} then 1 else c.missing end)))`
  )
}

const longWay = 1000

/**
 * A counter at its end would refuse every create that names no value, so a value near it leaves the counter alone; from callers
 * who are no administrators, one that would use up most of it.
 */
const furthest: Partial<Record<Kind, string>> = { integer: '2146483647', bigint: '9223372036853775807' }
const furthestOfOthers: Partial<Record<Kind, string>> = { integer: '1073741823', bigint: '4611686018427387903' }

export function refusalSql(
  { action, collection }: WriteContext,
  params: Params,
  words = refusalOf(action, collection),
): string {
  return `svc_refuse(${params.bind(words, 'text')})`
}

export const refusalOf = (action: WriteContext['action'], { name }: Collection): string =>
  action === 'create' ? refusals.action('create', name) : refusals.item('update')

function insertOne(context: WriteContext, row: RowToWrite, params: Params, options: CheckOptions): string {
  const source = insertSource(context, row, params)
  return `insert into ${ident(context.collection.name)} as t ${source} returning ${returning(context, row.cells, params, options)}`
}

/** `(columns) select values where …`, for an insert of one row into `t`; names the actor. */
export function insertSource(context: WriteContext, row: RowToWrite, params: Params, stays?: Stays): string {
  const { collection } = context
  const assignments = row.cells.map((cell) => ({ cell, value: bindCell(cell, params) }))
  const columns = assignments.map(({ cell }) => ident(cell.field.name))
  const written = assignments.map(({ value }) => value)
  for (const { column, value } of row.kept ?? []) {
    columns.push(column)
    written.push(value)
  }
  if (row.sortsLast) {
    columns.push(ident('sort'))
    written.push(lastSort(context, row, params, '1'))
  }
  const target =
    columns.length === 0
      ? `(${ident(collection.primaryKey.name)}) select ${keyDefault(collection)}`
      : `(${columns}) select ${written}`
  const conditions = [actorCondition(1), ...checksOf(assignments, row.references, params, stays)]
  if (context.condition !== undefined) conditions.push(conditionSql(context.condition, params))
  return `${target} where ${conditions.join(' and ')}`
}

const conditionSql = ({ name, args }: InsertCondition, params: Params): string =>
  `${ident(name)}(${args.map((value) => params.bind(value, 'text'))})`

/** An insert that names no column has no place for the actor; it names the key, whose default is an expression. */
function keyDefault(collection: Collection): string {
  const { primaryKey } = collection
  if (primaryKey.default?.kind === 'autoincrement')
    return `nextval(pg_get_serial_sequence('${ident(collection.name)}', '${primaryKey.name}'))`
  const expression = defaultExpression(primaryKey)
  if (expression !== undefined) return expression
  throw errors.validation([{ field: primaryKey.name, message: 'is required', rule: 'notNull' }])
}

/**
 * Rows may have different keys; an absent one means the column's default. A table of values cannot say
 * "default", so rows with the same keys form one insert each, chained as CTEs of one statement. An insert returns its rows
 * in the order in which it reads them.
 */
function insertMany(context: WriteContext, rows: readonly RowToWrite[], params: Params, options: CheckOptions): string {
  const groups = groupedByShape(rows)
  const inserts = groups.map((group) => insertGroup(context, params, group, options))
  if (inserts.length === 1) return `${actorCte(1)} ${inserts[0]}`
  const order = groups.flatMap((group) => group.map(({ index }) => index))
  const all = inserts.map(
    (_, number) => `select id, ${number} as grp, row_number() over () as nth from insert_${number}`,
  )
  const ctes = inserts.map((insert, number) => `insert_${number} as (${insert})`).join(', ')
  const position = params.bind(order, 'int[]')
  return (
    `${actorCte(1)}, ${ctes} select id from (select id, row_number() over (order by grp, nth) as nth from (${all.join(' union all ')}) g) r ` +
    `order by (${position})[r.nth]`
  )
}

type NumberedRow = { readonly row: RowToWrite; readonly index: number }

/** Mostly a row has the shape of the one before it. */
function groupedByShape(rows: readonly RowToWrite[]): readonly (readonly NumberedRow[])[] {
  const groups = new Map<string, NumberedRow[]>()
  let group: NumberedRow[] = []
  for (const [index, row] of rows.entries()) {
    if (index === 0 || !hasShapeOf(rows[index - 1]!, row)) {
      const shape = shapeOf(row)
      group = groups.get(shape) ?? []
      groups.set(shape, group)
    }
    group.push({ row, index })
  }
  // First those that give counted columns a value, past which the counters of the others then are.
  const all = [...groups.values()]
  return [...all.filter(namesCounted), ...all.filter((one) => !namesCounted(one))]
}

const namesCounted = ([first]: readonly NumberedRow[]): boolean => first!.row.cells.some(isCounted)
const isCounted = ({ field }: Cell): boolean => field.default?.kind === 'autoincrement'

function hasShapeOf(one: RowToWrite, other: RowToWrite): boolean {
  if (one.sortsLast !== other.sortsLast || one.cells.length !== other.cells.length) return false
  if (one.references.size !== other.references.size) return false
  for (let at = 0; at < one.cells.length; at += 1) if (one.cells[at]!.field !== other.cells[at]!.field) return false
  for (const [column, { relation }] of one.references)
    if (other.references.get(column)?.relation !== relation) return false
  return true
}

/** Rows of one shape set the same columns with the same checks. */
function shapeOf({ cells, references, sortsLast }: RowToWrite): string {
  const checks = [...references].map(([column, { relation }]) => `${column} ${relation.name}`)
  return [sortsLast, ...cells.map((cell) => cell.field.name), '', ...checks].join('\n')
}

function insertGroup(
  context: WriteContext,
  params: Params,
  group: readonly NumberedRow[],
  options: CheckOptions,
): string {
  return insertFrom(
    context,
    params,
    group[0]!.row,
    recordsSql(group, params),
    returning(context, group[0]!.row.cells, params, options),
  )
}

/** Inserts the rows of a table `r`, which are of one shape. */
export function insertFrom(
  context: WriteContext,
  params: Params,
  shape: RowToWrite,
  source: string,
  returned: string,
  order = '',
): string {
  const { cells, references, sortsLast } = shape
  const { collection } = context
  const columns = cells.map((cell) => ident(cell.field.name))
  const selected = cells.map(recordedValue)
  if (sortsLast) {
    columns.push(ident('sort'))
    selected.push(lastSort(context, shape, params, '1 + r."svc$index"'))
  }
  const target = columns.length === 0 ? ident(collection.primaryKey.name) : columns
  const values = columns.length === 0 ? keyDefault(collection) : selected
  const assignments = cells.map((cell) => ({ cell, value: `r.${ident(cell.field.name)}` }))
  const checks = checksOf(assignments, references, params)
  const where = checks.length === 0 ? '' : ` where ${checks.join(' and ')}`
  return `insert into ${ident(collection.name)} as t (${target}) select ${values} from ctx, ${source}${where}${order} returning ${returned}`
}

/** JSON is text within the record, so that it arrives as it is. */
const recordedType = ({ field }: Cell): string => (field.kind === 'json' ? 'text' : field.pgType)
export const recordedColumn = (cell: Cell): string => `${ident(cell.field.name)} ${recordedType(cell)}`
export const recordedValue = ({ field }: Cell): string =>
  field.kind === 'json' ? `r.${ident(field.name)}::${field.pgType}` : `r.${ident(field.name)}`

/**
 * The rows of a group as the table `r`; `svc$index` is the row's place in the request. An array of texts for each column:
 * PostgreSQL reads JSON records in twice the time, because it looks up every name in every record.
 */
function recordsSql(group: readonly NumberedRow[], params: Params): string {
  const { cells, sortsLast } = group[0]!.row
  if (cells.length === 0 && !sortsLast) return `generate_series(1, ${params.bind(group.length, 'int')})`
  const columns = cells.map(({ field }, at) => ({
    name: ident(field.name),
    type: field.kind === 'json' ? 'text' : parameterType(field),
    values: group.map(({ row }) => row.cells[at]!.value),
  }))
  if (sortsLast) columns.push({ name: '"svc$index"', type: 'int', values: group.map(({ index }) => index) })
  const names = columns.map(({ name }) => name)
  const arrays = columns.map(({ values }) => params.bind(arrayText(values), 'text[]'))
  const typed = columns.map(({ name, type }) => (type === 'text' ? `v.${name}` : `v.${name}::${type} as ${name}`))
  return `(select ${typed} from unnest(${arrays}) as v(${names})) r`
}

/** Values as the text of a PostgreSQL array of texts; those that are lists themselves as the texts of theirs. */
function arrayText(values: readonly ParamValue[]): string {
  const json = JSON.stringify(values)
  // It is the same but for what JSON escapes, and for lists in it, which would be further dimensions.
  const isSame = !json.includes('\\') && !json.includes('[', 1)
  return isSame ? `{${json.slice(1, -1)}}` : `{${values.map(elementText)}}`
}

function elementText(value: ParamValue): string {
  if (value === null || typeof value === 'number' || typeof value === 'boolean') return String(value)
  return `"${(typeof value === 'string' ? value : arrayText(value)).replaceAll(/["\\]/g, '\\$&')}"`
}

/**
 * The place after every other row (of the row's tenant), as of the start of the statement. After a row that has the last place
 * that there is, rows share it: lists put them in the order of their keys.
 */
function lastSort({ collection }: WriteContext, { cells }: RowToWrite, params: Params, more: string): string {
  const tenant = cells.find(({ field }) => field.name === 'tenant_Id')
  const where = tenant === undefined ? '' : ` where s."tenant_Id" is not distinct from ${bindCell(tenant, params)}`
  const place = `(select coalesce(max(s."sort"), 0) from ${ident(collection.name)} s${where})`
  if (collection.fields.get('sort')?.pgType !== 'integer') return `${place} + ${more}`
  return `least(${place}::bigint + ${more}, ${lastPlace})::integer`
}

/** The largest value of a field `sort`. */
export const lastPlace = 2_147_483_647

/**
 * The assignments of an update of `t`. One that changes nothing leaves updatedAt alone, so it appends no event; one that
 * changes something sets it, unless it is itself given another value.
 */
export function setsOf(collection: Collection, assignments: readonly ColumnAssignment[]): readonly string[] {
  const sets = assignments.map((assignment) => ({ column: assignment.column, value: keptSql(assignment) }))
  const written = ({ column, value }: (typeof sets)[number]) => `${column} = ${value}`
  if (!collection.timestamps || sets.length === 0) return sets.map(written)
  const own = ident('updatedAt')
  const others = sets.filter(({ column }) => column !== own)
  const given = assignments.find(({ column }) => column === own)
  return [...others.map(written), touchedSql(own, others, given)]
}

function touchedSql(
  own: string,
  others: readonly Pick<ColumnAssignment, 'column' | 'value'>[],
  given: ColumnAssignment | undefined,
): string {
  const changed = others.map(({ column, value }) => `t.${column} is distinct from ${value}`).join(' or ')
  const moved = given === undefined ? '' : `when not ${isAsShown(given)} then ${given.value} `
  const touched = changed === '' ? '' : `when ${changed} then now() `
  return `${own} = case ${moved}${touched}else t.${own} end`
}

/** A time that comes back as it was answered, in milliseconds, is the stored one with its microseconds. */
function keptSql(assignment: ColumnAssignment): string {
  const { cell, column, value } = assignment
  return isMoment(cell.field) ? `case when ${isAsShown(assignment)} then t.${column} else ${value} end` : value
}

const isAsShown = ({ column, value }: ColumnAssignment): string =>
  `date_trunc('milliseconds', t.${column}) is not distinct from ${value}`

type ColumnAssignment = { readonly cell: Cell; readonly column: string; readonly value: string }

type Assignment = { readonly cell: Cell; readonly value: string }

/** A condition that the row which is written has this value in the column already. */
export type Stays = (column: string, value: string) => string

export function checksOf(
  assignments: readonly Assignment[],
  references: ReadonlyMap<string, Reference>,
  params: Params,
  stays?: Stays,
): string[] {
  if (references.size === 0) return []
  return assignments.flatMap(({ cell, value }) => {
    const reference = references.get(cell.field.name)
    if (reference === undefined) return []
    const column = ident(cell.field.name)
    return [referenceSql(reference, value, params, stays && (() => stays(column, value)))]
  })
}

const bindCell = ({ value, pgType }: Cell, params: Params): string => params.bind(value, pgType)

/**
 * `ids` as {@link canonicalKey} gives them, or as they are stored. One is compared with `=`, so that the plan for the most
 * frequent statement is the simplest.
 */
export function keyCondition(
  { primaryKey }: Collection,
  ids: readonly ParamValue[],
  params: Params,
  asList = ids.length !== 1,
): string {
  const type = parameterType(primaryKey)
  const column = `t.${ident(primaryKey.name)}`
  return asList ? `${column} = any(${params.bind(ids, `${type}[]`)})` : `${column} = ${params.bind(ids[0]!, type)}`
}

/** A writer that waited for another one looks again at the row it finds then. */
const versionCondition = (versions: Versions, params: Params): string =>
  `t.xmin::text = any(${params.bind(versions, 'text[]')})`

/** One row that tells a version that did not match from an item that is not there. */
function orWhetherFound(changed: string, ctes: string, context: WriteContext, where: readonly string[]): string {
  const found = `exists(select 1 from ${ident(context.collection.name)} t where ${where.join(' and ')}) as found`
  return `${ctes}select c.id, f.found from (select ${found}) f left join ${changed} c on true`
}

/** Junction rows of many-to-any relations point at the deleted rows without a constraint that would remove them. */
function linkDeletions(catalog: Catalog, collection: Collection): string[] {
  return (linksByTarget(catalog).get(collection.name) ?? []).map(
    ({ junction, foreignKey, column, value }, number) =>
      `links_${number} as (delete from ${ident(junction)} l using gone where l.${ident(foreignKey)} = gone.key and l.${ident(column)} = ${literal(value)})`,
  )
}

/** Whether rows elsewhere point at rows of the collection without a constraint. */
export const hasLinks = (catalog: Catalog, { name }: Collection): boolean => linksByTarget(catalog).has(name)

type JunctionLink = {
  readonly junction: string
  readonly foreignKey: string
  readonly column: string
  readonly value: string
}

const linksByTarget = oncePer(
  (catalog: Catalog): ReadonlyMap<string, readonly JunctionLink[]> =>
    Map.groupBy(allLinks(catalog), ({ target }) => target),
)

function allLinks(catalog: Catalog): (JunctionLink & { readonly target: string })[] {
  return [...catalog.collections.values()].flatMap((junction) =>
    [...junction.relations.values()].flatMap(({ kind, target, foreignKey, discriminator }) =>
      kind !== 'belongsTo' || discriminator === undefined
        ? []
        : [{ junction: junction.name, target, foreignKey, ...discriminator }],
    ),
  )
}

/** The answer that a lost statement on one row would have given; undefined where its events do not show it. */
export type FromLog = (events: readonly RowEvent[]) => RecoveredRow | undefined

type RecoveredRow = { readonly id: string; readonly found: true; readonly created: boolean }

type Way = 'create' | 'update' | 'delete' | 'upsert'

/** A soft delete is an update; an update of the key is a delete and a create, and is not looked into. */
const actions: Readonly<Record<Way, readonly string[]>> = {
  create: ['create'],
  update: ['update'],
  delete: ['delete', 'update'],
  upsert: ['create', 'update'],
}

/** Reads the row's event among those of its statement; there may be others, of rows that were changed with it. */
export function rowFromLog({ collection }: WriteContext, way: Way, key?: string): FromLog {
  return (events) => {
    const own = events.filter(
      ({ entity, entityId, action }) =>
        entity === collection.name && actions[way].includes(action) && (key === undefined || entityId === key),
    )
    const [event] = own
    const id = own.length === 1 && event!.entityId !== null ? jsonOfKey(collection, event!.entityId) : undefined
    return id === undefined ? undefined : { id, found: true, created: event!.action === 'create' }
  }
}

/** As the statements project a key; undefined for kinds that are written in more than one way. */
function jsonOfKey({ primaryKey: { kind } }: Collection, text: string): string | undefined {
  if (kind === 'integer' || kind === 'bigint') return Number.isSafeInteger(Number(text)) ? text : JSON.stringify(text)
  return kind === 'uuid' || kind === 'text' ? JSON.stringify(text) : undefined
}
