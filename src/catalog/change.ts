/**
 * Changes of the catalog: planned first, purely, then definition rows and tables in the caller's transaction, so that a
 * failing statement leaves both as they were. One change at a time in the whole database.
 */
import { isDeepStrictEqual } from 'node:util'
import { databaseError, keyColumnsOf, sqlState } from '../db/errors.ts'
import { quoteName, type Reader, rawQuery, sql, type Tx } from '../db/sql.ts'
import { AppError } from '../errors.ts'
import {
  type Catalog,
  type CatalogOptions,
  type Collection,
  type CollectionDefinition,
  type Field,
  linkEnds,
} from './catalog.ts'
import { checksOf, compileCatalog } from './compile.ts'
import { catalogChangesSql, isReplaced } from './ddl.ts'
import { declaredSchema } from './declared.ts'
import {
  type Definitions,
  definitionsOf,
  knownDefinitions,
  listOf,
  toStored,
  withActionsAtKeys,
  withMissingJunctions,
  withSchema,
} from './definitions.ts'
import { defaultExpression } from './fields.ts'
import { logFunctionSql } from './log-triggers.ts'
import { conflictText, type DefinitionChange, mergeDefinitions } from './merge.ts'
import { withoutCollection } from './relationships.ts'
import { readDefinitions } from './store.ts'
import { type NewNames, newNames, refuseTaken } from './taken.ts'

export type CollectionChange = { readonly collection: string; readonly change: 'create' | 'update' | 'delete' }

/** A change of definitions before it is made. */
export type DefinitionPlan = {
  readonly next: Definitions
  readonly after: Catalog
  /** In name order. */
  readonly changes: readonly CollectionChange[]
  /** Bring the tables to the next definitions. */
  readonly statements: readonly string[]
  readonly losses: readonly Loss[]
  /** The names that it makes, which SQL from outside may have taken. */
  readonly names: NewNames
  /** Required fields that stored rows may have no value for. */
  readonly gaps: readonly Gap[]
  readonly casts: readonly Cast[]
  /** Collections whose deleted rows would be rows like any other: deletedAt means nothing any more. */
  readonly untrashed: readonly string[]
  /** Required fields that had a default: whoever creates a row has to name them now. */
  readonly defaultless: readonly FieldName[]
}

type FieldName = { readonly collection: string; readonly field: string }

/** Something that is there before a change and not after it: a whole collection, or one part of it. */
export type Loss = {
  readonly collection: string
  readonly field?: string
  readonly relation?: string
  readonly index?: string
  readonly constraint?: string
}

/** A loss with what it held: rows of a collection, values of a field. */
export type DropCount = Loss & { readonly rows?: number; readonly values?: number }

/**
 * Plans a change of definitions. Pure. Definitions that the edit has changed go through `declaredSchema`; junctions that a
 * BelongsToMany names and no definition declares are added, and actions go to the foreign keys that they are of.
 *
 * @throws AppError 400 for definitions that do not compile or cannot be reached from the present ones
 */
export function planChange(
  stored: readonly CollectionDefinition[],
  edit: (catalog: Catalog) => Definitions,
  options: CatalogOptions,
): DefinitionPlan {
  const before = compileCatalog(stored, options)
  const known = definitionsOf(before)
  const next = withMissingJunctions(withActionsAtKeys(known, declared(before, edit(before))))
  const after = compileCatalog(listOf(next), options)
  return {
    next,
    after,
    changes: changesBetween(known, next),
    statements: catalogChangesSql(before, after),
    losses: lossesBetween(before, after),
    names: newNames(before, after),
    gaps: requiredGaps(before, after),
    casts: castsBetween(before, after),
    untrashed: [...after.collections.values()]
      .filter(({ name, paranoid }) => !paranoid && before.collections.get(name)?.paranoid === true)
      .map(({ name }) => name),
    defaultless: lostDefaults(before, after),
  }
}

/** Defaults come and go with the field's other words: a primary key that is declared anew easily loses its own. */
function lostDefaults(before: Catalog, after: Catalog): readonly FieldName[] {
  return [...after.collections.values()].flatMap(({ name: collection, fields }) => {
    const old = before.collections.get(collection)?.fields
    return [...fields.values()]
      .filter(({ nullable, default: own, generated }) => !nullable && own === undefined && generated === undefined)
      .filter(({ name }) => old?.get(name)?.default !== undefined)
      .map(({ name: field }) => ({ collection, field }))
  })
}

/** Counts what is about to be lost: one look at each table. */
export async function countLosses(db: Reader, { losses }: Pick<DefinitionPlan, 'losses'>): Promise<DropCount[]> {
  const dropped: DropCount[] = []
  for (const collection of new Set(losses.map((loss) => loss.collection))) {
    const own = losses.filter((loss) => loss.collection === collection)
    dropped.push(...(await counted(db, collection, own)))
  }
  return dropped
}

/**
 * Refuses what the database would refuse, in words that help: names that are taken (409, of columns 400), and required
 * fields that stored rows have no value for (400).
 */
export async function refuseImpossible(db: Reader, plan: Pick<DefinitionPlan, 'names' | 'gaps'>): Promise<void> {
  await refuseTaken(db, plan.names)
  await refuseGaps(db, plan)
}

/** 400 with every field that stored rows have no value for; PostgreSQL would name the first, and not how many they are. */
async function refuseGaps(db: Reader, { gaps }: Pick<DefinitionPlan, 'gaps'>): Promise<void> {
  const found: string[] = []
  for (const { collection, field, countSql } of gaps) {
    const { rows } = await db.one<{ rows: bigint | number | string }>(rawQuery(countSql))
    if (BigInt(rows) > 0n) found.push(`${collection}.${field} is required, and stored rows without a value: ${rows}`)
  }
  if (found.length > 0)
    throw new AppError(400, 'The schema cannot be applied', {
      code: 'SCHEMA_NOT_APPLICABLE',
      details: found.join('; '),
    })
}

function declared(catalog: Catalog, edited: Definitions): Definitions {
  return new Map(
    [...edited].map(([collection, schema]) => {
      const isKept = catalog.collections.get(collection)?.definition.schema === schema
      return [collection, isKept ? schema : declaredSchema({ catalog, collection, beside: edited }, schema)]
    }),
  )
}

function changesBetween(before: Definitions, after: Definitions): CollectionChange[] {
  const names = [...new Set([...before.keys(), ...after.keys()])].sort()
  return names.flatMap((collection): CollectionChange[] => {
    if (!before.has(collection)) return [{ collection, change: 'create' }]
    if (!after.has(collection)) return [{ collection, change: 'delete' }]
    const [old, next] = [before.get(collection)!, after.get(collection)!]
    const isSame = old === next || isDeepStrictEqual(toStored(old), toStored(next))
    return isSame ? [] : [{ collection, change: 'update' }]
  })
}

function lossesBetween(before: Catalog, after: Catalog): Loss[] {
  return [...before.collections.values()].flatMap((old): Loss[] => {
    const collection = after.collections.get(old.name)
    return collection === undefined ? [{ collection: old.name }] : lossesOf(old, collection)
  })
}

function lossesOf(old: Collection, next: Collection): Loss[] {
  if (old.definition.schema === next.definition.schema) return []
  const { name: collection } = old
  const isDeclared = (name: string) => Object.hasOwn(old.definition.schema.fields, name)
  const missing = (names: Iterable<string>, kept: Iterable<string>) => {
    const still = new Set(kept)
    return [...names].filter((name) => !still.has(name))
  }
  const namesOf = (list: readonly { name: string }[]) => list.map(({ name }) => name)
  return [
    ...missing(old.fields.keys(), next.fields.keys()).map((field) => ({ collection, field })),
    ...missing(old.relations.keys(), next.relations.keys())
      .filter(isDeclared)
      .map((relation) => ({ collection, relation })),
    ...missing(namesOf(old.indexes), namesOf(next.indexes)).map((index) => ({ collection, index })),
    ...missing(namesOf(checksOf(old.definition)), namesOf(checksOf(next.definition))).map((constraint) => ({
      collection,
      constraint,
    })),
  ]
}

async function counted(db: Reader, collection: string, losses: readonly Loss[]): Promise<DropCount[]> {
  const isWhole = (loss: Loss) => Object.keys(loss).length === 1
  const fields = losses.flatMap(({ field }) => field ?? [])
  if (fields.length === 0 && !losses.some(isWhole)) return [...losses]
  const { there } = await db.one<{ there: boolean }>(
    sql`select to_regclass(${`public.${quoteName(collection)}`}) is not null as there`,
  )
  if (!there) return losses.map((loss) => (isWhole(loss) ? { ...loss, rows: 0 } : loss))
  const counts = fields.map((field, i) => `, count(${quoteName(field)}) as "${i}"`).join('')
  const row = await db.one<Record<string, string | number>>(
    rawQuery(`select count(*) as rows${counts} from ${quoteName(collection)}`),
  )
  return losses.map((loss): DropCount => {
    if (isWhole(loss)) return { ...loss, rows: Number(row.rows) }
    return loss.field === undefined ? loss : { ...loss, values: Number(row[String(fields.indexOf(loss.field))]) }
  })
}

/* Fields that the next definitions require. */

/** A field that stored rows may have no value for, though the next catalog requires one. */
type Gap = {
  readonly collection: string
  readonly field: string
  /** Counts the rows without a value, as `rows`. */
  readonly countSql: string
}

/** The fields that become required without anything that gives stored rows a value. Pure. */
function requiredGaps(before: Catalog, after: Catalog): readonly Gap[] {
  return [...after.collections.values()].flatMap((collection) => {
    const old = before.collections.get(collection.name)
    return old === undefined ? [] : [...collection.fields.values()].flatMap((field) => gapOf(old, field))
  })
}

function gapOf({ name, fields }: Collection, field: Field): Gap[] {
  const before = fields.get(field.name)
  if (field.nullable || field.generated !== undefined || before?.nullable === false) return []
  const isKept = before !== undefined && !isReplaced(before, field)
  const isFilled = defaultExpression(field) !== undefined || field.default?.kind === 'autoincrement'
  if (!isKept && isFilled) return []
  const where = isKept ? ` where ${quoteName(field.name)} is null` : ''
  return [{ collection: name, field: field.name, countSql: `select count(*) as rows from ${quoteName(name)}${where}` }]
}

/* Fields whose type changes. */

/** A field whose stored values may become others. */
type Cast = {
  readonly collection: string
  readonly field: Field
  /** The type that they are cast to; undefined where the column is made anew without them. */
  readonly to: string | undefined
}

/** How many values a change makes others: rounded, cut off, rewritten, or replaced by calculated ones. */
type AlteredValues = { readonly collection: string; readonly field: string; readonly values: number }

/** How many deleted rows come back where a collection has no trash any more. */
type RestoredRows = { readonly collection: string; readonly restored: number }

export type AlteredCount = AlteredValues | RestoredRows

/** Pure. */
function castsBetween(before: Catalog, after: Catalog): readonly Cast[] {
  return [...after.collections.values()].flatMap(({ name: collection, fields }) =>
    [...fields.values()].flatMap((next) => {
      const field = before.collections.get(collection)?.fields.get(next.name)
      return field === undefined ? [] : castOf(collection, field, next)
    }),
  )
}

function castOf(collection: string, field: Field, next: Field): Cast[] {
  // A VIRTUAL column that stays one is calculated again, as its author wants it.
  const isVirtual = field.generated !== undefined && next.generated !== undefined
  if (isReplaced(field, next)) return isVirtual ? [] : [{ collection, field, to: undefined }]
  return keepsAll(field.pgType, next.pgType) ? [] : [{ collection, field, to: next.pgType }]
}

/**
 * Whether the other type takes every value as it is, told by the types alone. PostgreSQL makes most of these changes at
 * once, however large the table is, and nobody should wait until it is counted.
 */
function keepsAll(from: string, to: string): boolean {
  if (from === to) return true
  const [old, next] = [roomOf(from), roomOf(to)]
  return old !== undefined && old.family === next?.family && old.room <= next.room
}

/** The length of a text type or the decimal places of numeric, infinite where none is declared. */
function roomOf(pgType: string): { readonly family: string; readonly room: number } | undefined {
  const [, name = '', size, scale = 0] = /^(\w+)(?:\((\d+)(?:,(\d+))?\))?$/.exec(pgType) ?? []
  if (['text', 'citext', 'varchar'].includes(name)) return { family: 'text', room: Number(size ?? Infinity) }
  return name === 'numeric' ? { family: name, room: size === undefined ? Infinity : Number(scale) } : undefined
}

/**
 * Counts the values that would not come back as they were, of the fields that have some, and the deleted rows that would.
 * In a transaction, `attempt` keeps it usable after a statement that fails.
 *
 * @throws the database's refusal where a value cannot be cast, as the change itself would
 */
export async function countAltered(
  db: Reader,
  { casts, untrashed }: Pick<DefinitionPlan, 'casts' | 'untrashed'>,
  attempt: Attempt = (work) => work(),
): Promise<AlteredCount[]> {
  const counts: AlteredValues[] = []
  for (const cast of casts) {
    const subject = { collection: cast.collection, field: cast.field.name }
    const values = await alteredBy(db, cast, attempt).catch((error) => refusedFor(subject, error))
    counts.push({ ...subject, values })
  }
  const trash: RestoredRows[] = []
  for (const collection of untrashed) trash.push({ collection, restored: await deletedRows(db, collection) })
  return [...counts.filter(({ values }) => values > 0), ...trash.filter(({ restored }) => restored > 0)]
}

async function deletedRows(db: Reader, collection: string): Promise<number> {
  const { rows } = await db.one<{ rows: string | number }>(
    rawQuery(`select count("deletedAt") as rows from ${quoteName(collection)}`),
  )
  return Number(rows)
}

type Attempt = <T>(work: () => Promise<T>) => Promise<T>

async function alteredBy(db: Reader, { collection, field, to }: Cast, attempt: Attempt): Promise<number> {
  const [table, column] = [quoteName(collection), quoteName(field.name)]
  const count = async (text: string) => Number((await db.one<{ values: string | number }>(rawQuery(text))).values)
  const differing = (one: string, other: string) =>
    count(`select count(*) as values from ${table} where ${one} is distinct from ${other}`)
  const cast = to === undefined ? column : `${column}::${to}`
  const all = await count(`select count(${cast}) as values from ${table}`)
  if (all === 0 || to === undefined) return all
  try {
    return await attempt(() => differing(`${cast}::${withoutSize(field.pgType)}`, column))
  } catch (error) {
    const state = sqlState(error) ?? ''
    // No way back: none is what it was.
    if (['42846', '42883'].includes(state)) return all
    // One that was cut off is no value of the old type any more.
    if (state.startsWith('22')) return differing(`${cast}::text`, `${column}::text`)
    throw error
  }
}

/** A rounded value may need more digits than the old type has: 99.99 becomes 100. */
const withoutSize = (pgType: string): string => pgType.replace(/\(.*\)/, '')

/** As {@link countAltered}, on tables that nobody else writes before the transaction ends. */
async function countAlteredLocked(tx: Tx, plan: Pick<DefinitionPlan, 'casts' | 'untrashed'>): Promise<AlteredCount[]> {
  for (const collection of new Set([...plan.casts.map((cast) => cast.collection), ...plan.untrashed]))
    await tx.any(rawQuery(`lock table ${quoteName(collection)} in access exclusive mode`))
  return countAltered(tx, plan, (work) => atSavepoint(tx, work))
}

async function atSavepoint<T>(tx: Tx, work: () => Promise<T>): Promise<T> {
  await tx.any(sql`savepoint counting`)
  try {
    return await work()
  } catch (error) {
    await tx.any(sql`rollback to savepoint counting`)
    throw error
  } finally {
    await tx.any(sql`release savepoint counting`)
  }
}

/* Execution. */

/** The part of a change that a refused statement was about; the database names neither the field of a value nor, for that, the table. */
type Subject = { readonly collection: string; readonly field?: string | undefined }

/** The database's refusal of a part of a change, which is the `cause`. */
export class RefusedPart extends Error {
  override readonly name = 'RefusedPart'
  readonly subject: Subject
  constructor(subject: Subject, cause: unknown) {
    const { collection, field } = subject
    super(`${field === undefined ? collection : `${collection}.${field}`}: ${databaseError(cause).message}`, { cause })
    this.subject = subject
  }
}

/** Refusals of values, of rows and of expressions; all else is about no part of the change. */
function refusedFor(subject: Subject | undefined, error: unknown): never {
  if (subject === undefined || !/^(22|23|42)/.test(sqlState(error) ?? '')) throw error
  const [field = enumFieldOf(error), ...others] = keyColumnsOf(error)
  throw new RefusedPart(others.length > 0 ? subject : { field, ...subject }, error)
}

/** The table and the column of a statement of ddl.ts. */
function subjectOf(statement: string): Subject | undefined {
  const name = '"((?:[^"]|"")+)"'
  const plain = (quoted: string | undefined) => quoted?.replaceAll('""', '"')
  const [, table, column] = new RegExp(`^alter table ${name}(?: (?:alter|add) column ${name})?`).exec(statement) ?? []
  const [, indexed] = new RegExp(`^create (?:unique )?index ${name} on ${name}`).exec(statement)?.slice(1) ?? []
  const collection = plain(table ?? indexed)
  return collection === undefined ? undefined : { collection, ...(column !== undefined && { field: plain(column) }) }
}

/** The field of which a stored value is none of the listed ones. */
function enumFieldOf(error: unknown): string | undefined {
  const { table = '', constraint = '' } = databaseError(error)
  const isOwn = sqlState(error) === '23514' && constraint.startsWith(`${table}_`) && constraint.endsWith('_check')
  return isOwn ? constraint.slice(table.length + 1, -'_check'.length) : undefined
}

/** May refuse a change by throwing: before its first statement, when it is known what it alters, and after its last one. */
export type ChangeGuard = Readonly<Record<'before' | 'afterwards', (plan: DefinitionPlan) => Promise<void>>> & {
  readonly altering?: (altered: readonly AlteredCount[]) => Promise<void>
}

/** Migrations are the operator's own. */
const unguarded: ChangeGuard = { before: async () => undefined, afterwards: async () => undefined }

/**
 * The one way to change definitions: `edit` makes the next ones from the catalog as it is inside the transaction, the
 * tables follow by the difference. What {@link planChange} adds to them is stored with them.
 *
 * @returns what was done to which collection, in name order
 * @throws AppError 400 for definitions that do not compile or cannot be reached from the present ones
 */
export async function changeDefinitions(
  tx: Tx,
  edit: (catalog: Catalog) => Definitions,
  options: CatalogOptions = {},
): Promise<readonly CollectionChange[]> {
  return (await executeChange(tx, edit, options)).changes
}

/** As {@link changeDefinitions}, with what was dropped and altered; the guard may refuse the change. */
export async function executeChange(
  tx: Tx,
  edit: (catalog: Catalog) => Definitions,
  options: CatalogOptions = {},
  guard: ChangeGuard = unguarded,
): Promise<ExecutedChange> {
  const plan = planChange(await lockedDefinitions(tx), edit, options)
  await guard.before(plan)
  await refuseImpossible(tx, plan)
  const altered = await countAlteredLocked(tx, plan)
  await guard.altering?.(altered)
  const dropped = await countLosses(tx, plan)
  await runStatements(tx, plan)
  await guard.afterwards(plan)
  await storeChanges(tx, plan)
  return { changes: plan.changes, dropped, altered, defaultless: plan.defaultless }
}

async function runStatements(tx: Tx, { statements }: DefinitionPlan): Promise<void> {
  for (const statement of statements)
    await tx.any(rawQuery(statement)).catch((error) => refusedFor(subjectOf(statement), error))
}

async function storeChanges(tx: Tx, { changes, next }: DefinitionPlan): Promise<void> {
  for (const change of changes) await storeChange(tx, change, next)
}

/**
 * Makes the difference between two versions of collections on those that are there, and leaves alone what it does not
 * concern.
 *
 * @throws AppError 409 with every member that is neither as before nor as after; then nothing is changed
 */
export async function changeByDifference(
  tx: Tx,
  change: DefinitionChange,
  options: CatalogOptions = {},
): Promise<readonly CollectionChange[]> {
  return changeDefinitions(tx, (catalog) => withDifference(catalog, change), options)
}

/**
 * Runs the statements of {@link changeByDifference} as if the definitions were these, with a look at the rows of
 * these collections only. For previews of several changes, whose transaction only notes what it is given.
 */
export async function previewDifference(
  tx: Tx,
  { stored, hasRows }: { stored: readonly CollectionDefinition[]; hasRows: (collection: string) => boolean },
  change: DefinitionChange,
  options: CatalogOptions,
): Promise<DefinitionPlan> {
  const plan = planChange(stored, (catalog) => withDifference(catalog, change), options)
  await refuseGaps(tx, { gaps: plan.gaps.filter(({ collection }) => hasRows(collection)) })
  await runStatements(tx, plan)
  await storeChanges(tx, plan)
  return plan
}

function withDifference(catalog: Catalog, change: DefinitionChange): Definitions {
  const { next, conflicts } = mergeDefinitions(change, definitionsOf(catalog))
  if (next !== undefined) return next
  const places = conflicts.map(conflictText).join('; ')
  throw new AppError(409, `The collections are not as the change expects them: ${places}`, {
    code: 'DEFINITIONS_DIFFER',
  })
}

type ExecutedChange = {
  readonly changes: readonly CollectionChange[]
  readonly dropped: readonly DropCount[]
  readonly altered: readonly AlteredCount[]
  readonly defaultless: DefinitionPlan['defaultless']
}

/** Lets one change of definitions after the other through; the lock ends with the transaction, readers never wait. */
export async function lockCatalog(tx: Tx): Promise<void> {
  await tx.any(sql`select pg_advisory_xact_lock(hashtext('daybook catalog'))`)
}

/** Creates collections that may point at each other. 409 when one exists. */
export async function createCollections(
  tx: Tx,
  definitions: readonly CollectionDefinition[],
  options: CatalogOptions = {},
): Promise<void> {
  await changeDefinitions(tx, (catalog) => withNew(catalog, definitions), options)
}

/** The definitions of a catalog and new ones beside them. 409 when one exists. */
export function withNew(catalog: Catalog, definitions: readonly CollectionDefinition[]): Definitions {
  const next = new Map(definitionsOf(catalog))
  for (const { collectionName, schema } of definitions) {
    if (next.has(collectionName))
      throw new AppError(409, `Collection ${collectionName} already exists`, { code: 'COLLECTION_EXISTS' })
    next.set(collectionName, schema)
  }
  return next
}

/** Registers a collection whose table exists already: the log, whose table is made by `events/log.ts`. */
export async function adoptCollection(tx: Tx, definition: CollectionDefinition): Promise<void> {
  compileCatalog([...(await lockedDefinitions(tx)), definition])
  const { collectionName, schema } = definition
  await storeChange(tx, { collection: collectionName, change: 'create' }, new Map([[collectionName, schema]]))
}

/** Brings table and definition to a new version. 404 for an unknown collection. */
export async function updateCollection(
  tx: Tx,
  { collectionName, schema }: CollectionDefinition,
  options: CatalogOptions = {},
): Promise<void> {
  const edit = (catalog: Catalog) => withSchema(knownDefinitions(catalog, collectionName), collectionName, schema)
  await changeDefinitions(tx, edit, options)
}

/**
 * Drops table and definition, and with them the junctions that were made for its relationships and what others declare
 * about it. 404 for an unknown collection, 409 while others have a foreign key to it.
 */
export async function deleteCollection(tx: Tx, name: string, options: CatalogOptions = {}): Promise<void> {
  await changeDefinitions(tx, (catalog) => withoutCollection(knownDefinitions(catalog, name), name), options)
}

/**
 * Gives the tables that were made before MULTI_TENANT was turned on their tenant column and makes their unique fields
 * unique per tenant. Part of setup; safe to run again. Returns the collections it changed.
 */
export async function adoptTenants(tx: Tx): Promise<readonly string[]> {
  const stored = await lockedDefinitions(tx)
  const [plain, tenanted] = [compileCatalog(stored), compileCatalog(stored, { multiTenant: true })]
  const done = await tablesWithTenants(tx)
  const missing = [...plain.collections.keys()].filter((name) => !name.startsWith('svc_') && !done.has(name))
  const present = new Map(tenanted.collections)
  for (const name of missing) present.set(name, plain.collections.get(name)!)
  const statements = catalogChangesSql({ ...plain, collections: present }, tenanted)
  for (const statement of statements) await tx.any(rawQuery(statement))
  return missing
}

/** Gives the tables of all collections today's function for their log triggers, which locks no table. For migrations. */
export async function renewLogFunctions(tx: Tx): Promise<void> {
  const stored = await lockedDefinitions(tx)
  const [plain, tenanted] = [compileCatalog(stored), compileCatalog(stored, { multiTenant: true })]
  const done = await tablesWithTenants(tx)
  const collections = new Map(
    [...plain.collections].map(([name, collection]) => [
      name,
      done.has(name) ? tenanted.collections.get(name)! : collection,
    ]),
  )
  const catalog = { ...plain, collections }
  for (const collection of collections.values())
    for (const statement of logFunctionSql(collection, linkEnds(catalog, collection))) await tx.any(rawQuery(statement))
}

/** The tables that have a tenant column, whatever MULTI_TENANT is now. */
async function tablesWithTenants(tx: Tx): Promise<ReadonlySet<string>> {
  const rows = await tx.any<{ name: string }>(sql`
    select table_name as name from information_schema.columns where column_name = 'tenant_Id' and table_schema = 'public'`)
  return new Set(rows.map(({ name }) => name))
}

async function storeChange(tx: Tx, { collection, change }: CollectionChange, definitions: Definitions): Promise<void> {
  const next = definitions.get(collection)
  const schema = sql.jsonb(next === undefined ? null : toStored(next))
  // The clock and not the start of the transaction: the last event of a dropped collection of this name may be younger than that.
  if (change === 'create')
    await tx.any(
      sql`insert into "svc_SchemaDefinition" ("collectionName", schema, "createdAt") values (${collection}, ${schema}, clock_timestamp())`,
    )
  if (change === 'update')
    await tx.any(
      sql`update "svc_SchemaDefinition" set schema = ${schema}, "updatedAt" = now() where "collectionName" = ${collection}`,
    )
  if (change === 'delete') await tx.any(sql`delete from "svc_SchemaDefinition" where "collectionName" = ${collection}`)
}

async function lockedDefinitions(tx: Tx): Promise<readonly CollectionDefinition[]> {
  await lockCatalog(tx)
  const { exists } = await tx.one<{ exists: boolean }>(
    sql`select to_regclass('"svc_SchemaDefinition"') is not null as exists`,
  )
  return exists ? readDefinitions(tx) : []
}
