import type { Collection, Index } from '../../catalog/catalog.ts'
import { statementName } from '../../db/statement-names.ts'
import { errors } from '../../errors.ts'
import { commit, commitRow } from '../../events/commit.ts'
import { actorCte } from '../../events/log.ts'
import { isObject } from '../../query/guards.ts'
import { ident, type Params } from '../../query/sql.ts'
import { readStrings } from '../../query/wire.ts'
import type { Runtime } from '../../runtime.ts'
import { type AnswerQuery, type Written, wantsRows, writtenRows } from './answers.ts'
import { openWrite, ruleSql, type WriteContext, type Writer } from './context.ts'
import { type Cell, type Payload, readPayload } from './payload.ts'
import { relationalError } from './problems.ts'
import { withFreshCatalog } from './reads.ts'
import { namedReference, runWrite } from './run.ts'
import { insertSource, keyProjection, parameters, refusalSql, touched, type Write } from './statements.ts'
import { beforeWrite } from './system-rules.ts'

/** What was written, and whether the first row is new. */
export type Upserted = Written & { readonly created: boolean }

/**
 * `PUT /items/{collection}?key=field[,field]`: each item is created, or changes the one with the same key; all or none.
 * The key is a unique field or index, and the decision is the database's (`on conflict`), so of any number of writers at
 * the same moment one creates and the others change. Needs the create and the update permission: a new row must satisfy
 * the one rule, an existing row the other, before and after. A soft-deleted item comes back.
 *
 * An item must be complete enough to be created, and relations in it are named by id. 400 for a key that is not unique.
 */
export async function upsertItems(
  rt: Runtime,
  writer: Writer,
  name: string,
  payloads: readonly unknown[],
  query: AnswerQuery,
): Promise<Upserted> {
  return withFreshCatalog(rt, async () => {
    const contexts = { create: openWrite(rt, writer, name, 'create'), update: openWrite(rt, writer, name, 'update') }
    const key = uniqueKey(contexts.create.collection, readStrings('key', query.key) ?? [])
    const hasRows = wantsRows(rt, writer.access, name, query)
    const plans: Plan[] = []
    for (const payload of payloads) plans.push(await planOf(rt, contexts, key, payload))
    const writes = plans.map((plan) => ({ plan, write: upsertStatement(contexts, key, plan) }))
    const [first] = writes
    if (writes.length === 1 && !hasRows)
      return answered([await runAlone(rt, writer, first!.write, first!.plan)], undefined)
    return commit(rt, writer.actor, async (tx) => {
      const outcomes: Outcome[] = []
      for (const { plan, write } of writes)
        outcomes.push(outcomeOf(await runWrite<Outcome>({ writer, tx }, write, plan.create)))
      const ids = outcomes.map(({ id }) => id)
      const rows = hasRows ? await writtenRows(rt, writer, tx, name, ids, query) : undefined
      return { result: answered(outcomes, rows) }
    })
  })
}

type Contexts = {
  readonly create: WriteContext & { action: 'create' }
  readonly update: WriteContext & { action: 'update' }
}

type Plan = { readonly create: Payload; readonly change: readonly Cell[] }

type Outcome = { readonly id: string; readonly created: boolean }

/** Columns of a unique index, and those which must have a value for a row to be in it. */
type Key = {
  readonly fields: readonly string[]
  readonly columns: readonly string[]
  readonly filled: readonly string[]
}

/** The index over exactly these fields, of a tenant's collection beside the tenant. */
function uniqueKey(collection: Collection, names: readonly string[]): Key {
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

async function planOf(rt: Runtime, { create, update }: Contexts, key: Key, payload: unknown): Promise<Plan> {
  const read = readPayload(create, payload)
  const rows = read.relations.map(({ relation }) => ({ field: relation.name, message: 'expected an id' }))
  if (rows.length > 0) throw relationalError(rows)
  for (const name of key.fields) requireValue(read.cells, name)
  const members = Object.entries(payload as object).filter(([name]) => !key.fields.includes(name))
  const change = readPayload(update, Object.fromEntries(members))
  const id = read.cells.find(({ field }) => field.primaryKey && key.fields.includes(field.name))?.value
  return {
    create: { ...read, cells: await beforeWrite(rt, create, read.cells) },
    change: await beforeWrite(rt, update, change.cells, id == null ? undefined : String(id)),
  }
}

function requireValue(cells: readonly Cell[], name: string): void {
  const cell = cells.find(({ field }) => field.name === name)
  if (cell === undefined || cell.value === null)
    throw errors.validation([{ field: name, message: 'is required', rule: 'key' }])
}

function upsertStatement({ create, update }: Contexts, key: Key, plan: Plan): Write {
  const { params, values } = parameters()
  const { collection } = create
  const source = insertSource(create, plan.create, params)
  const columns = key.columns.map(ident).join(', ')
  const inIndex =
    key.filled.length === 0 ? '' : ` where ${key.filled.map((name) => `${ident(name)} is not null`).join(' and ')}`
  const sets = changesOf(collection, plan.change, params)
  const allowed = ruleSql(update, 't', params)
  const text =
    `${actorCte(1)} insert into ${ident(collection.name)} as t ${source} on conflict (${columns})${inIndex} ` +
    `do update set ${sets} where ${allowed} returning ${returning({ create, update }, params)}`
  return { text, values: values() }
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

async function runAlone(rt: Runtime, { actor }: Writer, { text, values }: Write, { create }: Plan): Promise<Outcome> {
  try {
    return outcomeOf(await commitRow<Outcome>(rt, actor, { text, values, name: statementName(text) }))
  } catch (error) {
    throw namedReference(error, create)
  }
}

/** No row came back: there is an item with this key that the caller may not update. */
function outcomeOf([outcome]: readonly Outcome[]): Outcome {
  if (outcome === undefined) throw errors.itemDenied('update')
  return outcome
}

function answered(outcomes: readonly Outcome[], rows: readonly string[] | undefined): Upserted {
  return { ids: outcomes.map(({ id }) => id), rows, created: outcomes[0]?.created === true }
}

/** The items of a request: an array is many, an object is one. */
export function upsertPayloads(body: unknown): { readonly payloads: readonly unknown[]; readonly isList: boolean } {
  if (Array.isArray(body)) return { payloads: body, isList: true }
  if (!isObject(body)) throw errors.badBody('Request body must be an object or an array of objects')
  return { payloads: [body], isList: false }
}
