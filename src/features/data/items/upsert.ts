import type { Collection, Field, Index } from '../../../catalog/catalog.ts'
import { type Reader, rawQuery } from '../../../db/sql.ts'
import { errors, refusals } from '../../../errors.ts'
import { isObject, meantName, member, quoted } from '../../../query/guards.ts'
import { readStrings } from '../../../query/parse.ts'
import { createParams, ident, type Params } from '../../../query/sql.ts'
import {
  type Cell,
  type ItemReads,
  keyCell,
  openProblems,
  type Requester,
  type RequestPlace,
  type Run,
  relationalError,
  rulesOf,
  runWrite,
  type Write,
  type WriteContext,
} from './context.ts'
import { contestsIn, isOpen, type StoredKeys } from './foreign-keys.ts'
import { guardInserts, guardRows, isGuarded, isMadeDeleted } from './guard.ts'
import { beforeRow, meetsHooks, noteWritten } from './hooking.ts'
import { neededFields, type Payload, readPayload } from './payload.ts'
import { inTurn, openWrite } from './plan.ts'
import {
  checksOf,
  countedSql,
  insertSource,
  keyProjection,
  parameters,
  projection,
  type RowToWrite,
  refusalSql,
  rowFromLog,
  ruleSql,
  type Stays,
  setsOf,
  trashConditions,
} from './statements.ts'
import { storedKeys } from './stored-keys.ts'

/**
 * Each item is created, or changes the one with the same key; all or none. The key is a unique field or index, and the
 * decision is the database's (`on conflict`), so of any number of writers at the same moment one creates and the others
 * change. Needs the create and the update permission: a new row must satisfy the one rule, an existing row the other,
 * before and after. A soft-deleted item comes back.
 *
 * An item whose row is there names the key and what changes; any other one must be complete enough to be created. Relations in
 * it are named by id.
 */
type Upsert = OpenUpsert & {
  readonly items: readonly UpsertItem[]
  /** The items as they were read; undefined where hooks may make something else of them first. */
  readonly planned: readonly UpsertPlan[] | undefined
  /** Some of them need to know, before they are written, whether their row is there. */
  readonly isForeseen: boolean
}

type OpenUpsert = { readonly contexts: Contexts; readonly key: UpsertKey }

type Contexts = {
  readonly create: WriteContext & { action: 'create' }
  readonly update: WriteContext & { action: 'update' }
}

/** One item of the request, and what is put before the names of its fields in problems. */
type UpsertItem = { readonly payload: unknown; readonly label: string }

/** The two halves of an upsert. */
type UpsertPlan = {
  readonly create: Payload
  /** Its row is there and has the required fields that the item leaves out. */
  readonly isThere: boolean
  readonly change: readonly Cell[]
  /** What the change refers to with the row as it is stored; all else is looked at as the new row would. */
  readonly halves: Payload['references']
  /** Put before the names of fields in problems. */
  readonly label: string
}

type UpsertResult = { readonly id: string; readonly created: boolean }

/** An upsert before its items are read; `names` are the fields of its key, by default the primary key. 400 for a key that is not unique. */
export function openUpsert(deps: ItemReads, requester: Requester, name: string, names: unknown): OpenUpsert {
  const contexts = {
    create: openWrite(deps, requester, name, 'create'),
    update: openWrite(deps, requester, name, 'update'),
  }
  const { collection } = contexts.create
  return { contexts, key: uniqueKey(collection, readStrings('key', names) ?? [collection.primaryKey.name]) }
}

/** Reads and permits the items; `db` sees the rows that they may change. */
export async function planUpsert(
  deps: ItemReads,
  db: Reader,
  { contexts, key }: OpenUpsert,
  payloads: readonly unknown[],
  asList: boolean,
): Promise<Upsert> {
  const { create, update } = contexts
  const items = payloads.map((payload, index) => ({ payload, label: asList ? `${index}.` : '' }))
  if (meetsHooks(deps, create) || meetsHooks(deps, update))
    return { contexts, key, items, planned: undefined, isForeseen: true }
  const planned = await inTurn(items, (item) => readItem(deps, db, contexts, key, item))
  const isForeseen = planned.some(({ change }) => isGuarded(update, 'update', change))
  return { contexts, key, items, planned, isForeseen }
}

/** The statement of an upsert that is one item and needs nothing around it. */
export function aloneUpsert({ contexts, key, planned, isForeseen }: Upsert) {
  const [only, ...more] = planned ?? []
  if (only === undefined || more.length > 0 || isForeseen) return undefined
  const write = upsertStatement(contexts, key, only)
  return { write, place: placeIn(only), fromLog: rowFromLog(contexts.create, 'upsert'), outcomes: upserted }
}

/** Writes the items, one after the other. Throws {@link Unforeseen} where another writer came in between. */
export function applyUpsert(run: Run, upsert: Upsert): Promise<readonly UpsertResult[]> {
  const { contexts, key, items, planned, isForeseen } = upsert
  return inTurn(items, (item, index) => {
    const known = planned?.[index]
    return isForeseen
      ? writeForeseen(run, contexts, key, item, known)
      : writePlanned(run, known!, upsertStatement(contexts, key, known!))
  })
}

/** A row was there that was not expected, or the other way round: all is to be tried again. */
export class Unforeseen extends Error {}

/**
 * One upsert with guards and hooks around it. Which of them are asked is what the row's presence lets expect; the
 * database decides.
 */
async function writeForeseen(
  run: Run,
  contexts: Contexts,
  key: UpsertKey,
  item: UpsertItem,
  known: UpsertPlan | undefined,
): Promise<UpsertResult> {
  const { create, update } = contexts
  const id = await presentId(run, contexts, key, item.payload)
  const told = await beforeRow({ deps: run.deps, run }, id === undefined ? create : update, item.payload, id)
  const payload = told === undefined ? item.payload : withKey(key, told.payload, item.payload)
  const planned = known ?? (await readItem(run.deps, run.tx, contexts, key, { ...item, payload }))
  if (id === undefined) guardInserts(run, create, [planned.create])
  const guarded = id === undefined ? undefined : await guardRows(run, update, [id], planned.change)
  const whole = { ...planned, change: guarded?.cells ?? planned.change }
  const outcome = await writePlanned(run, planned, upsertStatement(contexts, key, whole))
  await guarded?.after()
  if (outcome.created !== (id === undefined)) throw new Unforeseen()
  const action = outcome.created ? 'create' : 'update'
  noteWritten(run, { collection: create.collection, action, id: outcome.id, previous: told?.previous })
  return outcome
}

async function writePlanned(run: Run, planned: UpsertPlan, write: Write): Promise<UpsertResult> {
  return upserted(await runWrite<UpsertResult>(run, write, placeIn(planned)))[0]!
}

const placeIn = ({ create: { aliases }, label }: UpsertPlan): RequestPlace => ({ aliases, label })

/** No row came back: there is an item with this key that the caller may not update. */
function upserted(rows: readonly UpsertResult[]): readonly UpsertResult[] {
  if (rows.length === 0) throw errors.itemDenied('update')
  return rows
}

/** The item that the caller would change, as far as can be told before the statement. */
async function presentId(run: Run, contexts: Contexts, key: UpsertKey, payload: unknown): Promise<string | undefined> {
  return presentIn(run.tx, contexts, key, payload)
}

async function presentIn(
  db: Reader,
  contexts: Contexts,
  key: UpsertKey,
  payload: unknown,
): Promise<string | undefined> {
  const query = presentQuery(contexts, key, payload)
  const present = query && (await db.maybeOne<{ id: string }>(rawQuery(query.text, query.values)))
  return present && String(JSON.parse(present.id))
}

/** Which item is meant is the request's to say, not a hook's. */
function withKey({ fields }: UpsertKey, payload: unknown, given: unknown): unknown {
  if (!isObject(payload) || !isObject(given)) return payload
  return { ...payload, ...Object.fromEntries(fields.map((name) => [name, member(given, name)])) }
}

/** Columns of a unique index, and those which must have a value for a row to be in it. */
type UpsertKey = {
  readonly fields: readonly string[]
  readonly columns: readonly string[]
  readonly filled: readonly string[]
}

/** The index over exactly these fields, of a tenant's collection beside the tenant. 400 when they are not unique. */
function uniqueKey(collection: Collection, names: readonly string[]): UpsertKey {
  const { fields, primaryKey, indexes } = collection
  const wanted = new Set(names)
  if (wanted.size === 0) throw errors.badQuery('key: name the fields that identify an item')
  const shown = [...fields.values()].filter((field) => !field.hidden).map((field) => field.name)
  const unknown = [...wanted].find((name) => !shown.includes(name))
  if (unknown !== undefined) throw errors.badQuery(`key: unknown field ${quoted(unknown)}${meantName(unknown, shown)}`)
  const known = [...wanted].map((name) => fields.get(name)!)
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

/** Reads an item as both halves of an upsert. 400 for rows in it, and for one without a value of the key. */
async function readItem(
  deps: ItemReads,
  db: Reader,
  contexts: Contexts,
  key: UpsertKey,
  { payload, label }: UpsertItem,
): Promise<UpsertPlan> {
  const { create, update } = contexts
  const stored = await keysOfPresent(db, contexts, key, payload)
  const isThere = await isPresent(db, contexts, key, payload)
  const read = readPayload(create, payload, { label, stored, isThere })
  const rows = read.relations.map(({ relation }) => ({ field: `${label}${relation.name}`, message: 'expected an id' }))
  if (rows.length > 0) throw relationalError(rows)
  for (const name of key.fields) requireValue(read.cells, name, label)
  const members = Object.entries(payload as object).filter(([name]) => !key.fields.includes(name))
  const change = readPayload(update, Object.fromEntries(members), { label, stored })
  const { beforeWrite } = rulesOf(create) ?? {}
  const halves = new Map([...change.references].filter(([, { half }]) => half !== undefined))
  if (beforeWrite === undefined)
    return { label, isThere, create: read, change: outOfTrash(update, change.cells), halves }
  const isKey = ({ field }: Cell) => key.fields.includes(field.name)
  const id = read.cells.find((cell) => cell.field.primaryKey && isKey(cell))?.value
  const present = id == null ? await presentIn(db, contexts, key, payload) : String(id)
  // A row that is made meanwhile is judged by what its key says.
  const whole = present === undefined ? [...read.cells.filter(isKey), ...change.cells] : change.cells
  const changed = await beforeWrite(deps, update, whole, present)
  return {
    label,
    halves,
    isThere,
    create: { ...read, cells: await beforeWrite(deps, create, read.cells) },
    change: outOfTrash(
      update,
      changed.filter((cell) => !isKey(cell)),
    ),
  }
}

/**
 * Whether the row is there, asked for an item that could not be created, and for one that names another primary key than the
 * key finds: 409 for that.
 */
async function isPresent(db: Reader, contexts: Contexts, key: UpsertKey, payload: unknown): Promise<boolean> {
  if (!isObject(payload)) return false
  const { collection } = contexts.create
  const { primaryKey } = collection
  const names = key.fields.includes(primaryKey.name) ? undefined : member(payload, primaryKey.name)
  const isWhole = neededFields(collection).every(({ name }) => member(payload, name) !== undefined)
  if (isWhole && names == null) return false
  const id = await presentIn(db, contexts, key, payload)
  if (id === undefined) return false
  if (names != null && !isSameKey(primaryKey, names, id))
    throw errors.conflict(`The item that ${key.fields.join(', ')} finds has another ${primaryKey.name}`)
  return !isWhole
}

function isSameKey({ kind }: Field, given: unknown, id: string): boolean {
  return kind === 'uuid' ? String(given).toLowerCase() === id.toLowerCase() : String(given) === id
}

/** The foreign keys that the row to change has to decide; undefined where there are none, or no row. */
async function keysOfPresent(
  db: Reader,
  contexts: Contexts,
  key: UpsertKey,
  payload: unknown,
): Promise<StoredKeys | undefined> {
  const { create, update } = contexts
  const contests = isObject(payload) ? contestsIn(create, payload) : []
  // A foreign key that says which row is meant is not decided by that row.
  const open = contests.filter((contest) => isOpen(contest) && !key.columns.includes(contest.foreignKey))
  const id = open.length === 0 ? undefined : await presentIn(db, contexts, key, payload)
  return id === undefined ? undefined : storedKeys(db, update, id, open)
}

/** An upsert takes a row out of the trash unless its payload says otherwise: a change of the row, which guards see. */
function outOfTrash({ collection }: WriteContext, cells: readonly Cell[]): readonly Cell[] {
  const name = 'deletedAt'
  if (!collection.paranoid || cells.some(({ field }) => field.name === name)) return cells
  return [...cells, keyCell(collection.fields.get(name)!, null)]
}

function requireValue(cells: readonly Cell[], name: string, label: string): void {
  const cell = cells.find(({ field }) => field.name === name)
  if (cell === undefined || cell.value === null)
    throw errors.validation([{ field: `${label}${name}`, message: 'is required', rule: 'key' }])
}

/**
 * Finds the row that the caller would change, as far as can be told before the statement. Undefined for a payload that
 * does not name one; `readItem` says what is wrong with it.
 */
function presentQuery({ create, update }: Contexts, key: UpsertKey, payload: unknown): Write | undefined {
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

function upsertStatement({ create, update }: Contexts, key: UpsertKey, plan: UpsertPlan): Write {
  const { params, values } = parameters()
  const { collection } = create
  const kept = plan.isThere ? keptOf(update, key, plan, params) : []
  const source = insertSource(create, { ...plan.create, kept }, params, staysIn(update, key, plan, params))
  const columns = key.columns.map(ident).join(', ')
  const inIndex =
    key.filled.length === 0 ? '' : ` where ${key.filled.map((name) => `${ident(name)} is not null`).join(' and ')}`
  const changes = plan.change.map((cell) => {
    const value = params.bind(cell.value, cell.pgType)
    return { cell, column: ident(cell.field.name), value }
  })
  const sets = changesOf(collection, changes)
  const checks = checksOf(changes, plan.halves, params, (column, value) => `t.${column} = ${value}`)
  const allowed = [ruleSql(update, 't', params), ...trashConditions(update, changes, params), ...checks].join(' and ')
  const text =
    `insert into ${ident(collection.name)} as t ${source} on conflict (${columns})${inIndex} ` +
    `do update set ${sets} where ${allowed} returning ${returning({ create, update }, plan, params)}`
  return { text, values: values() }
}

/** The row of the key, where the caller may change it, has the value already. */
function staysIn(update: WriteContext, key: UpsertKey, plan: UpsertPlan, params: Params): Stays {
  return (column, value) => `exists(select 1 from ${rowOfKey(update, key, plan, params)} and k.${column} = ${value})`
}

/**
 * The required columns that an item leaves out, as its row has them. PostgreSQL asks for them before it sees that the row is
 * there. The lock waits for whoever is deleting the row: of one that has gone PostgreSQL then misses them, instead of making it
 * again.
 */
function keptOf(update: WriteContext, key: UpsertKey, plan: UpsertPlan, params: Params): RowToWrite['kept'] {
  const { cells, sortsLast } = plan.create
  const given = new Set([...cells.map(({ field }) => field.name), ...(sortsLast ? ['sort'] : [])])
  return [...update.collection.fields.values()]
    .filter(({ name, nullable, generated }) => !nullable && generated === undefined && !given.has(name))
    .map(({ name }) => ident(name))
    .map((column) => ({
      column,
      value: `(select k.${column} from ${rowOfKey(update, key, plan, params)} for no key update)`,
    }))
}

/** `table k where …` */
function rowOfKey(update: WriteContext, key: UpsertKey, { create }: UpsertPlan, params: Params): string {
  const same = key.columns.map((name) => {
    const cell = create.cells.find(({ field }) => field.name === name)
    return cell?.value == null
      ? `k.${ident(name)} is null`
      : `k.${ident(name)} = ${params.bind(cell.value, cell.pgType)}`
  })
  return `${ident(update.collection.name)} k where ${[...same, ruleSql(update, 'k', params)].join(' and ')}`
}

/** Without a change the row is written as it is, because only written rows come back; the log sees that nothing changed. */
function changesOf(collection: Collection, given: Parameters<typeof setsOf>[1]): string {
  const key = ident(collection.primaryKey.name)
  if (given.length === 0) return `${key} = t.${key}`
  return setsOf(collection, given).join(', ')
}

/** A row that no other transaction has locked yet (`xmax` 0) is one that this statement created. */
function returning({ create, update }: Contexts, plan: UpsertPlan, params: Params): string {
  const { collection, access } = create
  const { cells } = plan.create
  const id = keyProjection(collection)
  const counted = countedSql(create, cells)
  if (access.admin) return `${id} as id, t.xmax = 0 as created${counted}`
  const within = (context: WriteContext, words?: string) =>
    `(${ruleSql(context, 't', params)} or ${refusalSql(context, params, words)})`
  const denied = isMadeDeleted(create, cells) ? refusals.field('create', 'deletedAt') : undefined
  const checked = `case when t.xmax = 0 then ${within(create, denied)} else ${within(update)} end`
  return `case when ${checked} then ${id} end as id, t.xmax = 0 as created${counted}`
}
