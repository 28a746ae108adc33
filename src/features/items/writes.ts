import type { Collection } from '../../catalog/catalog.ts'
import { rawQuery } from '../../db/sql.ts'
import { statementName } from '../../db/statement-names.ts'
import { type Action, errors } from '../../errors.ts'
import { commit, commitRow } from '../../events/commit.ts'
import { actorCte } from '../../events/log.ts'
import { type Actor, actorJson } from '../../events/types.ts'
import type { Access } from '../../query/access.ts'
import { compileCondition } from '../../query/compile.ts'
import { projectionSql } from '../../query/projection.ts'
import { resolveCondition } from '../../query/resolve.ts'
import { createParams, ident, type Params, type ParamValue } from '../../query/sql.ts'
import { parameterType, readValue } from '../../query/values.ts'
import type { Runtime } from '../../runtime.ts'
import { type Cell, type PayloadContext, readPayload, type WriteAction } from './payload.ts'
import { resolveEnv, withFreshCatalog } from './reads.ts'
import { beforeDelete, beforeWrite, checkWritable } from './system-rules.ts'

/** Who writes, and what they may. */
export type Writer = { readonly actor: Actor; readonly access: Access }

/** The written rows' ids as JSON texts (`"…"` or a number), in the order of the request. */
export type Ids = readonly string[]

/** Creates one item in one statement with its log row. */
export async function createItem(rt: Runtime, writer: Writer, collection: string, payload: unknown): Promise<string> {
  const ids = await createItems(rt, writer, collection, [payload])
  return ids[0]!
}

/** Creates all or none, in one statement: rows travel as one JSON parameter. */
export async function createItems(
  rt: Runtime,
  writer: Writer,
  name: string,
  payloads: readonly unknown[],
): Promise<Ids> {
  return withFreshCatalog(rt, async () => {
    const context = contextOf(rt, writer, name, 'create')
    const rows: (readonly Cell[])[] = []
    for (const payload of payloads) rows.push(await beforeWrite(rt, context, readPayload(context, payload)))
    if (rows.length === 0) return []
    return returnedIds(await execute(rt, writer, insertStatement(rt, context, rows)))
  })
}

/** Changes one item that the caller may update; 403 when there is none, or when the change would leave the caller's scope. */
export async function updateItem(
  rt: Runtime,
  writer: Writer,
  name: string,
  id: string,
  payload: unknown,
): Promise<string> {
  return withFreshCatalog(rt, async () => {
    const context = contextOf(rt, writer, name, 'update')
    const cells = await beforeWrite(rt, context, readPayload(context, payload), id)
    const found = returnedIds(await execute(rt, writer, updateStatement(rt, context, id, cells)))
    if (found.length === 0) throw errors.itemDenied('update')
    return found[0]!
  })
}

/**
 * Changes all or none, in one transaction. Elements are `{id, data: {…}}` or `{id, …fields}`; those without an id are
 * skipped (spec/items.md §1).
 */
export async function updateItems(
  rt: Runtime,
  writer: Writer,
  name: string,
  elements: readonly unknown[],
): Promise<Ids> {
  return withFreshCatalog(rt, async () => {
    const context = contextOf(rt, writer, name, 'update')
    const changes = elements
      .filter(hasId)
      .map(({ id, ...rest }) => ({ id: String(id), payload: isData(rest) ? rest.data : rest }))
    const statements: Write[] = []
    for (const { id, payload } of changes) {
      const cells = await beforeWrite(rt, context, readPayload(context, payload), id)
      statements.push(updateStatement(rt, context, id, cells))
    }
    return commit(rt, writer.actor, async (tx) => {
      const ids: string[] = []
      for (const { text, values } of statements) {
        const found = await tx.any<{ id: string }>(rawQuery(text, [actorJson(writer.actor), ...values]))
        if (found.length === 0) throw errors.itemDenied('update')
        ids.push(found[0]!.id)
      }
      return { result: ids }
    })
  })
}

function hasId(element: unknown): element is { id: string | number; [key: string]: unknown } {
  if (element === null || typeof element !== 'object') return false
  const { id } = element as { id?: unknown }
  return typeof id === 'string' || typeof id === 'number'
}

function isData(rest: Record<string, unknown>): rest is { data: Record<string, unknown> } {
  return Object.keys(rest).length === 1 && rest.data !== null && typeof rest.data === 'object'
}

/** Deletes (or, with `paranoid`, marks as deleted) exactly these items, or none of them. */
export async function deleteItems(rt: Runtime, writer: Writer, name: string, ids: readonly unknown[]): Promise<Ids> {
  return withFreshCatalog(rt, async () => {
    const context = contextOf(rt, writer, name, 'delete')
    const wanted = [...new Set(ids.map((id) => String(id)))]
    if (wanted.length === 0) return []
    await beforeDelete(rt, context.collection, wanted)
    return returnedIds(await execute(rt, writer, deleteStatement(rt, context, wanted)))
  })
}

type Context = Omit<PayloadContext, 'action'> & { readonly action: Exclude<Action, 'read'> }

function contextOf<A extends Exclude<Action, 'read'>>(rt: Runtime, { access }: Writer, name: string, action: A) {
  const catalog = rt.catalog.current()
  const collection = catalog.collections.get(name)
  if (collection === undefined) throw errors.unknownCollection(name)
  if (!access.admin && access.grant(name, action) === undefined) throw errors.actionDenied(action, name)
  checkWritable(collection, access, action)
  return { catalog, collection, access, action, config: rt.config, now: rt.clock() }
}

type Write = { readonly text: string; readonly values: readonly ParamValue[] }

async function execute(rt: Runtime, { actor }: Writer, write: Write): Promise<{ id: string }[]> {
  return commitRow(rt, actor, { text: write.text, values: write.values, name: statementName(write.text) })
}

function returnedIds(rows: readonly { id: string }[]): Ids {
  return rows.map((row) => row.id)
}

/** Parameter 1 is the actor; `commitRow` puts it in front. */
function parameters(): { params: Params; values: () => readonly ParamValue[] } {
  const params = createParams([null])
  return { params, values: () => params.values.slice(1) }
}

function insertStatement(
  rt: Runtime,
  context: Context & { action: WriteAction },
  rows: readonly (readonly Cell[])[],
): Write {
  return rows.length === 1 ? insertOne(rt, context, rows[0]!) : insertMany(rt, context, rows)
}

function insertOne(rt: Runtime, context: Context, cells: readonly Cell[]): Write {
  const { params, values } = parameters()
  const table = ident(context.collection.name)
  const columns = cells.map((cell) => ident(cell.field.name))
  const written = cells.map((cell) => params.bind(cell.value, cell.pgType))
  const target =
    columns.length === 0
      ? `(${ident(context.collection.primaryKey.name)}) select ${keyDefault(context.collection)} from ctx`
      : `(${columns}) select ${written} from ctx`
  const text = `${actorCte(1)} insert into ${table} as t ${target} returning ${returning(rt, context, params)}`
  return { text, values: values() }
}

/** An insert that names no column cannot select from the actor's CTE; it names the key, whose default is an expression. */
function keyDefault(collection: Collection): string {
  const { primaryKey } = collection
  if (primaryKey.default?.kind === 'uuid') return 'gen_random_uuid()'
  if (primaryKey.default?.kind === 'autoincrement')
    return `nextval(pg_get_serial_sequence('${ident(collection.name)}', '${primaryKey.name}'))`
  throw errors.validation([{ field: primaryKey.name, message: 'is required', rule: 'notNull' }])
}

/**
 * Rows may have different keys; an absent one means the column's default. `jsonb_populate_recordset` cannot say
 * "default", so rows with the same keys form one insert each, chained as CTEs of one statement.
 */
function insertMany(rt: Runtime, context: Context, rows: readonly (readonly Cell[])[]): Write {
  const { params, values } = parameters()
  const groups = Map.groupBy(
    rows.map((cells, index) => ({ cells, index })),
    ({ cells }) => cells.map((cell) => cell.field.name).join('\n'),
  )
  const inserts = [...groups.values()].map((group) => insertGroup(rt, context, params, group))
  const order = [...groups.values()].flatMap((group) => group.map(({ index }) => index))
  const all = inserts.map(
    (_, number) => `select id, ${number} as grp, row_number() over () as nth from insert_${number}`,
  )
  const ctes = inserts.map((insert, number) => `insert_${number} as (${insert})`).join(', ')
  const position = params.bind(order, 'int[]')
  const text =
    `${actorCte(1)}, ${ctes} select id from (select id, row_number() over (order by grp, nth) as nth from (${all.join(' union all ')}) g) r ` +
    `order by (${position})[r.nth]`
  return { text, values: values() }
}

function insertGroup(
  rt: Runtime,
  context: Context,
  params: Params,
  group: readonly { cells: readonly Cell[] }[],
): string {
  const cells = group[0]!.cells
  const columns = cells.map((cell) => ident(cell.field.name))
  const table = ident(context.collection.name)
  const records = JSON.stringify(
    group.map((row) => Object.fromEntries(row.cells.map((cell) => [cell.field.name, recordValue(cell)]))),
  )
  const shape = cells.map((cell) => `${ident(cell.field.name)} ${cell.field.pgType}`)
  const source =
    columns.length === 0
      ? `generate_series(1, ${params.bind(group.length, 'int')})`
      : `jsonb_to_recordset(${params.bind(records, 'jsonb')}) as r(${shape})`
  const selected = columns.length === 0 ? keyDefault(context.collection) : columns.map((column) => `r.${column}`)
  const target = columns.length === 0 ? ident(context.collection.primaryKey.name) : columns
  return `insert into ${table} as t (${target}) select ${selected} from ctx, ${source} returning ${returning(rt, context, params)}`
}

/** JSON columns travel as JSON inside the record, everything else as its text or number. */
function recordValue(cell: Cell): unknown {
  return cell.field.kind === 'json' && typeof cell.value === 'string' ? JSON.parse(cell.value) : cell.value
}

function updateStatement(rt: Runtime, context: Context, id: string, cells: readonly Cell[]): Write {
  const { params, values } = parameters()
  const { collection } = context
  const assignments = cells.map((cell) => ({
    column: ident(cell.field.name),
    value: params.bind(cell.value, cell.pgType),
  }))
  const sets = [...assignments.map(({ column, value }) => `${column} = ${value}`), ...touched(collection, assignments)]
  const where = `t.${ident(collection.primaryKey.name)} = ${bindId(params, collection, id)} and ${rule(rt, context, params)}`
  if (sets.length === 0)
    return {
      text: `select ${projection(collection)} from ${ident(collection.name)} t where $1::text is not null and ${where}`,
      values: values(),
    }
  const text = `${actorCte(1)} update ${ident(collection.name)} as t set ${sets.join(', ')} from ctx where ${where} returning ${returning(rt, context, params)}`
  return { text, values: values() }
}

/** An update that changes nothing leaves updatedAt alone, so it appends no event (design §4). */
function touched(collection: Collection, assignments: readonly { column: string; value: string }[]): string[] {
  const own = ident('updatedAt')
  const given = assignments.some(({ column }) => column === own)
  if (!collection.timestamps || given || assignments.length === 0) return []
  const changed = assignments.map(({ column, value }) => `t.${column} is distinct from ${value}`).join(' or ')
  return [`${own} = case when ${changed} then now() else t.${own} end`]
}

function deleteStatement(rt: Runtime, context: Context, ids: readonly string[]): Write {
  const { params, values } = parameters()
  const { collection } = context
  const key = ident(collection.primaryKey.name)
  const keys = ids.map((id) => keyValue(collection, id))
  const where = `t.${key} = any(${params.bind(keys, `${keyType(collection)}[]`)}) and ${rule(rt, context, params)}`
  const change = collection.paranoid
    ? `update ${ident(collection.name)} as t set "deletedAt" = now() from ctx where ${where}`
    : `delete from ${ident(collection.name)} as t using ctx where ${where}`
  // Fewer rows than asked for: one is missing or not the caller's, so nothing may be deleted.
  const count = params.bind(ids.length, 'int')
  const refusal = params.bind(errors.itemDenied('delete').message, 'text')
  const checked = `select case when count(*) = ${count} then true else svc_refuse(${refusal}) end as ok from gone`
  const text = `${actorCte(1)}, gone as (${change} returning ${projection(collection)}) select gone.id from (${checked}) c left join gone on c.ok`
  return { text, values: values() }
}

function bindId(params: Params, collection: Collection, id: string): string {
  return params.bind(keyValue(collection, id), keyType(collection))
}

/** 400 for text that cannot be a key of this collection. */
function keyValue(collection: Collection, id: string): ParamValue {
  return readValue(id, collection.primaryKey, collection.primaryKey.name).value
}

function keyType(collection: Collection): string {
  return parameterType(collection.primaryKey)
}

/** The caller's row rule for the action, on the alias `t`. */
function rule(rt: Runtime, { catalog, access, collection, action }: Context, params: Params): string {
  // Restoring a soft-deleted item is an update of it.
  const condition = resolveCondition(catalog, access, collection.name, action, resolveEnv(rt), {
    includeDeleted: action === 'update',
  })
  return condition === undefined ? 'true' : compileCondition(condition, 't', params)
}

/**
 * The id, after a check that the row as written is still within the caller's rule (decisions F17): a row may neither be
 * created outside it nor moved out of it. `svc_refuse` ends the statement, and with it everything it wrote.
 */
function returning(rt: Runtime, context: Context, params: Params): string {
  const { access, collection, action } = context
  if (access.admin || action === 'delete') return projection(collection)
  const condition = rule(rt, context, params)
  if (condition === 'true') return projection(collection)
  const refusal = action === 'create' ? errors.actionDenied('create', collection.name) : errors.itemDenied('update')
  return `case when ${condition} or svc_refuse(${params.bind(refusal.message, 'text')}) then ${projectionValue(collection)} end as id`
}

function projection(collection: Collection): string {
  return `${projectionValue(collection)} as id`
}

function projectionValue(collection: Collection): string {
  return `to_jsonb(${projectionSql(collection.primaryKey, 't')})::text`
}
