import type { Collection, Index } from '../../catalog/catalog.ts'
import { errors } from '../../errors.ts'
import { isObject } from '../../query/guards.ts'
import { createParams, ident, type Params } from '../../query/sql.ts'
import type { Runtime } from '../../runtime.ts'
import { ruleSql, type WriteContext } from './context.ts'
import { type Cell, type Payload, readPayload } from './payload.ts'
import { openProblems, relationalError } from './problems.ts'
import {
  insertSource,
  keyProjection,
  parameters,
  projection,
  refusalSql,
  type Stays,
  touched,
  type Write,
} from './statements.ts'
import { beforeWrite } from './system-rules.ts'

/** What an upsert is made of: its key, its two halves and its statement. */

export type Contexts = {
  readonly create: WriteContext & { action: 'create' }
  readonly update: WriteContext & { action: 'update' }
}

export type Plan = {
  readonly create: Payload
  readonly change: readonly Cell[]
  /** Put before the names of fields in problems. */
  readonly label: string
}

export type Outcome = { readonly id: string; readonly created: boolean }

/** Columns of a unique index, and those which must have a value for a row to be in it. */
export type Key = {
  readonly fields: readonly string[]
  readonly columns: readonly string[]
  readonly filled: readonly string[]
}

/** The index over exactly these fields, of a tenant's collection beside the tenant. 400 when they are not unique. */
export function uniqueKey(collection: Collection, names: readonly string[]): Key {
  const { fields, primaryKey, indexes } = collection
  const wanted = new Set(names)
  if (wanted.size === 0) throw errors.badQuery('key: name the fields that identify an item')
  const known = [...wanted].map((name) => fields.get(name))
  if (known.some((field) => field === undefined || field.hidden)) throw errors.badQuery('key: unknown field')
  const [only] = known.length === 1 ? known : []
  if (only !== undefined && (only.unique || only.name === primaryKey.name))
    return { fields: [only.name], columns: [only.name], filled: [] }
  const index = indexes.find((candidate) => isOver(candidate, wanted))
  if (index === undefined) throw errors.badQuery('key: these fields are not unique together')
  return { fields: [...wanted], columns: index.fields, filled: index.whereNotNull }
}

function isOver({ unique, fields }: Index, wanted: ReadonlySet<string>): boolean {
  const own = fields.filter((name) => name !== 'tenant_Id' || wanted.has(name))
  return unique && own.length === wanted.size && own.every((name) => wanted.has(name))
}

export async function planOf(
  rt: Runtime,
  { create, update }: Contexts,
  key: Key,
  payload: unknown,
  label: string,
): Promise<Plan> {
  const read = readPayload(create, payload, { label })
  const rows = read.relations.map(({ relation }) => ({ field: `${label}${relation.name}`, message: 'expected an id' }))
  if (rows.length > 0) throw relationalError(rows)
  for (const name of key.fields) requireValue(read.cells, name, label)
  const members = Object.entries(payload as object).filter(([name]) => !key.fields.includes(name))
  const change = readPayload(update, Object.fromEntries(members), { label })
  const id = read.cells.find(({ field }) => field.primaryKey && key.fields.includes(field.name))?.value
  return {
    label,
    create: { ...read, cells: await beforeWrite(rt, create, read.cells) },
    change: await beforeWrite(rt, update, change.cells, id == null ? undefined : String(id)),
  }
}

function requireValue(cells: readonly Cell[], name: string, label: string): void {
  const cell = cells.find(({ field }) => field.name === name)
  if (cell === undefined || cell.value === null)
    throw errors.validation([{ field: `${label}${name}`, message: 'is required', rule: 'key' }])
}

/**
 * Finds the row that the caller would change, as far as can be told before the statement. Undefined for a payload that
 * does not name one; `planOf` says what is wrong with it.
 */
export function presentQuery({ create, update }: Contexts, key: Key, payload: unknown): Write | undefined {
  const params = createParams()
  const members = isObject(payload) ? payload : {}
  const given = [...key.fields, ...key.columns].map((name) => [name, members[name]])
  const { cells } = readPayload(create, Object.fromEntries(given), { problems: openProblems() })
  const isNamed = key.fields.every((name) => cells.some(({ field, value }) => field.name === name && value !== null))
  if (!isNamed) return undefined
  const same = key.columns.map((name) => {
    const cell = cells.find(({ field }) => field.name === name)
    const { pgType } = cell ?? update.collection.fields.get(name)!
    return `t.${ident(name)} is not distinct from ${params.bind(cell?.value ?? null, pgType)}`
  })
  const where = [...same, ruleSql(update, 't', params)].join(' and ')
  const text = `select ${projection(update.collection)} from ${ident(update.collection.name)} t where ${where}`
  return { text, values: params.values }
}

export function upsertStatement({ create, update }: Contexts, key: Key, plan: Plan): Write {
  const { params, values } = parameters()
  const { collection } = create
  const source = insertSource(create, plan.create, params, staysIn(update, key, plan, params))
  const columns = key.columns.map(ident).join(', ')
  const inIndex =
    key.filled.length === 0 ? '' : ` where ${key.filled.map((name) => `${ident(name)} is not null`).join(' and ')}`
  const sets = changesOf(collection, plan.change, params)
  const allowed = ruleSql(update, 't', params)
  const text =
    `insert into ${ident(collection.name)} as t ${source} on conflict (${columns})${inIndex} ` +
    `do update set ${sets} where ${allowed} returning ${returning({ create, update }, params)}`
  return { text, values: values() }
}

/** The row of the key, where the caller may change it, has the value already. */
function staysIn(update: WriteContext, key: Key, { create }: Plan, params: Params): Stays {
  const { collection } = update
  return (column, value) => {
    const same = key.columns.map((name) => {
      const cell = create.cells.find(({ field }) => field.name === name)
      return cell?.value == null
        ? `k.${ident(name)} is null`
        : `k.${ident(name)} = ${params.bind(cell.value, cell.pgType)}`
    })
    const where = [...same, `k.${column} = ${value}`, ruleSql(update, 'k', params)].join(' and ')
    return `exists(select 1 from ${ident(collection.name)} k where ${where})`
  }
}

/** Without a change the row is written as it is, because only written rows come back; the log sees that nothing changed. */
function changesOf(collection: Collection, cells: readonly Cell[], params: Params): string {
  const given = cells.map(({ field, value, pgType }) => ({
    column: ident(field.name),
    value: params.bind(value, pgType),
  }))
  const isRestored = collection.paranoid && !cells.some(({ field }) => field.name === 'deletedAt')
  const changes = isRestored ? [...given, { column: '"deletedAt"', value: 'null' }] : given
  const key = ident(collection.primaryKey.name)
  if (changes.length === 0) return `${key} = t.${key}`
  return [...changes.map(({ column, value }) => `${column} = ${value}`), ...touched(collection, changes)].join(', ')
}

/** A row that nobody has locked yet (`xmax` 0) is one that this statement created. */
function returning({ create, update }: Contexts, params: Params): string {
  const { collection, access } = create
  const id = keyProjection(collection)
  if (access.admin) return `${id} as id, t.xmax = 0 as created`
  const within = (context: WriteContext) => `(${ruleSql(context, 't', params)} or ${refusalSql(context, params)})`
  const checked = `case when t.xmax = 0 then ${within(create)} else ${within(update)} end`
  return `case when ${checked} then ${id} end as id, t.xmax = 0 as created`
}
