import { isDeepStrictEqual } from 'node:util'
import type { Catalog, Collection, SchemaJson } from '../../../catalog/catalog.ts'
import {
  type AlteredCount,
  type ChangeGuard,
  type CollectionChange,
  countAltered,
  countLosses,
  type DefinitionPlan,
  type DropCount,
  executeChange,
  type Loss,
  lockCatalog,
  planChange,
  RefusedPart,
  refuseImpossible,
} from '../../../catalog/change.ts'
import { checkShape } from '../../../catalog/compile.ts'
import type { Definitions } from '../../../catalog/definitions.ts'
import { type Extension, extensionOf, switchOf } from '../../../catalog/fields.ts'
import { isReservedName } from '../../../catalog/identifiers.ts'
import { readDefinitions } from '../../../catalog/store.ts'
import { systemCollections } from '../../../catalog/system-definitions.ts'
import type { Config, Configuration } from '../../../config/config.ts'
import { columnOf, databaseError, sqlState } from '../../../db/errors.ts'
import type { Reads } from '../../../db/pools.ts'
import { sql, type Tx } from '../../../db/sql.ts'
import { AppError, errors } from '../../../errors.ts'
import { commit, type WorkResult, type Writes } from '../../../events/commit.ts'
import type { Actor, DomainEvent } from '../../../events/types.ts'
import { lintSql, type MigrationFinding, readSubject } from '../migrations/migrations.ts'
import { checkObjects, checkTexts } from './sql-guard.ts'

/**
 * How a change is made: `drop` takes the definition as the whole, `alter` agrees to what becomes of stored values,
 * `dryRun` only tells.
 */
export type ChangeOptions = {
  readonly drop: boolean
  readonly alter: boolean
  readonly dryRun: boolean
}

/** A requested change of the definitions. */
export type SchemaChange = {
  /** The operation's words for whatever goes wrong. */
  readonly message: string
  /** The next definitions from the catalog as it is inside the transaction. */
  readonly edit: Edit
  /** Whether the request means to lose this; without it everything that is lost is meant. */
  readonly means?: (loss: Loss) => boolean
  /** Whether the change is refused where it alters stored values. */
  readonly keepsValues?: boolean
}

type Edit = (catalog: Catalog) => Definitions

/** The changes made, or of a dry run the changes to make. */
export type SchemaChanged = {
  readonly changes: readonly CollectionChange[]
  readonly dropped: readonly DropCount[]
  readonly altered: readonly AlteredCount[]
  readonly defaultless: DefinitionPlan['defaultless']
  /** The collections afterwards. */
  readonly catalog: Catalog
  readonly preview?: ChangePreview | undefined
}

/** The effects of a change that its sender may not have meant, as an answer tells them; nothing where there are none. */
export function warningsOf({ defaultless }: Pick<SchemaChanged, 'defaultless'>) {
  if (defaultless.length === 0) return {}
  const message = 'has no default any more, so every new item must have a value for it'
  return { warnings: defaultless.map((field) => ({ ...field, message })) }
}

/** The statements of a change that is not made, and what they would stop. */
type ChangePreview = {
  readonly sql: readonly string[]
  readonly findings: readonly MigrationFinding[]
  /** The definitions of the collections concerned; null for one that is not there. */
  readonly before: SchemasByName
  readonly after: SchemasByName
}

type SchemasByName = Readonly<Record<string, SchemaJson | null>>

/**
 * Changes definitions and tables in one transaction, with an event per collection touched. An impossible change answers
 * 400 or 409 under the operation's message, with the reason in `details`; 503 with Retry-After when a table is in use
 * for longer than a second. With `dryRun` nothing is changed, and nothing waits for it.
 */
export async function changeSchemas(
  deps: Reads & Writes,
  actor: Actor,
  change: SchemaChange,
  { dryRun = false }: { dryRun?: boolean } = {},
): Promise<SchemaChanged> {
  const guarded = {
    ...change,
    edit: (catalog: Catalog) => {
      const next = change.edit(catalog)
      checkChanges(deps.config, catalog, next)
      return next
    },
  }
  return explained(change.message, () => (dryRun ? previewChange(deps, guarded) : applyChange(deps, actor, guarded)))
}

/** As {@link changeSchemas}, for callers that check the definitions and word the errors themselves. SQL is checked here. */
export function applyChange(deps: Writes, actor: Actor, change: Omit<SchemaChange, 'message'>): Promise<SchemaChanged> {
  return commitDdl(deps, actor, async (tx) => {
    const done = await applyWithin(deps, tx, change)
    return { result: done, events: done.changes.map(changed) }
  })
}

/**
 * As {@link applyChange}, as a part of a transaction that {@link beginDdl} has prepared, and that appends the events of the
 * changes itself ({@link changed}).
 */
export async function applyWithin(
  deps: Configuration,
  tx: Tx,
  { edit, means, keepsValues = false }: Omit<SchemaChange, 'message'>,
): Promise<SchemaChanged> {
  let catalog: Catalog | undefined
  const guard: ChangeGuard = {
    before: (plan) => checkPlan(plan, means),
    ...(keepsValues && { altering: checkUnaltered }),
    afterwards: async (plan) => {
      catalog = plan.after
      await checkObjects(tx, plan.after, touchedBy(plan))
    },
  }
  const done = await executeChange(tx, edit, optionsOf(deps), guard)
  return { ...done, catalog: catalog! }
}

/**
 * The changes that {@link applyChange} would make, from the present definitions, if it may alter values. It does not try
 * the statements, but it looks for taken names and tries casts of values.
 */
export async function previewChange(
  deps: Reads & Configuration,
  { edit, means }: Omit<SchemaChange, 'message'>,
): Promise<SchemaChanged> {
  const stored = await readDefinitions(deps.db)
  const plan = planChange(stored, edit, optionsOf(deps))
  await checkPlan(plan, means)
  await refuseImpossible(deps.db, plan)
  const subject = { ...(await readSubject(deps.db, deps.config)), inTransaction: true }
  const findings = await lintSql(plan.statements, subject)
  const altered = await countAltered(deps.db, plan).catch((error) => {
    throw refusal(error)
  })
  return {
    changes: plan.changes,
    dropped: await countLosses(deps.db, plan),
    altered,
    defaultless: plan.defaultless,
    catalog: plan.after,
    preview: {
      sql: plan.statements,
      findings,
      before: schemasOf(plan, new Map(stored.map(({ collectionName, schema }) => [collectionName, schema]))),
      after: schemasOf(plan, plan.next),
    },
  }
}

const schemasOf = (plan: DefinitionPlan, definitions: Definitions): SchemasByName =>
  Object.fromEntries(touchedBy(plan).map((name) => [name, definitions.get(name) ?? null]))

const optionsOf = ({ config }: Configuration) => ({ multiTenant: config.tenancy.enabled })

const touchedBy = ({ changes }: DefinitionPlan) => changes.map(({ collection }) => collection)

async function checkPlan(plan: DefinitionPlan, means: SchemaChange['means']): Promise<void> {
  checkMeant(plan, means)
  await checkTexts(plan.after, touchedBy(plan))
}

/** A column never goes because something else was changed. */
function checkMeant({ losses }: DefinitionPlan, means: SchemaChange['means']): void {
  const unmeant = losses.filter((loss) => loss.field !== undefined && means?.(loss) === false)
  if (unmeant.length === 0) return
  const names = unmeant.map(({ collection, field }) => `${collection}.${field}`)
  throw new AppError(400, `This would drop ${names.join(', ')}`, {
    code: 'WOULD_DROP',
    details:
      'with its values: name it as null, delete it by DELETE /schemas/{collection}/fields/{field}, or add ?drop=true',
  })
}

/** Nor do values become others because a type was taken for one that holds them, or rows come back with a switch. */
async function checkUnaltered(altered: readonly AlteredCount[]): Promise<void> {
  if (altered.length === 0) return
  const values = altered.flatMap((count) =>
    'values' in count ? [`${count.collection}.${count.field} (${many(count.values, 'value')})`] : [],
  )
  const rows = altered.flatMap((count) =>
    'restored' in count ? [`${many(count.restored, 'deleted row')} of ${count.collection}`] : [],
  )
  const effects = [
    ...(values.length > 0
      ? [`alter ${values.join(', ')}: another type rounds, cuts off, rewrites or replaces them`]
      : []),
    ...(rows.length > 0 ? [`bring back ${rows.join(', ')}: without paranoid there is no trash`] : []),
  ]
  throw new AppError(400, `This would ${effects.join('; and ')}`, {
    code: 'WOULD_ALTER',
    details: 'add ?alter=true to agree to that',
  })
}

const many = (count: number, one: string) => `${count} ${one}${count === 1 ? '' : 's'}`

/** A commit whose DDL the database may refuse; all such refusals are answers to the schema, not faults of ours. */
export async function commitDdl<Result>(
  deps: Writes,
  actor: Actor,
  work: (tx: Tx) => Promise<WorkResult<Result>>,
): Promise<Result> {
  try {
    return await commit(deps, actor, async (tx) => {
      await beginDdl(tx)
      return work(tx)
    })
  } catch (error) {
    throw refusal(error)
  }
}

/** Lets one change of definitions after the other through, and none of them wait for a table for long. */
export async function beginDdl(tx: Tx): Promise<void> {
  await lockCatalog(tx)
  await tx.any(sql`select set_config('lock_timeout', ${longestLockWait}, true)`)
}

export function changed({ collection, change }: CollectionChange): DomainEvent {
  return { type: 'schema.changed', data: { collection, change } }
}

/**
 * While a change waits for a table behind a long reader, all others wait behind the change. Set only once the change has
 * its turn: no request waits behind those that wait for it.
 */
const longestLockWait = '1s'

/** Puts the operation's message over the reason, which moves into `details`. */
async function explained<Result>(message: string, work: () => Promise<Result>): Promise<Result> {
  try {
    return await work()
  } catch (error) {
    if (!(error instanceof AppError) || error.message === notFound || ![400, 404, 409].includes(error.status))
      throw error
    const { status, code, cause } = error
    const details = listsProblems(error) ? error.details : reasonOf(error)
    throw new AppError(status, message, { details, cause, ...(code !== undefined && { code }) })
  }
}

const notFound = 'Schema not found'

/** Whether an error lists what is wrong, each with its path. */
function listsProblems({ details }: AppError): boolean {
  return details !== null && typeof details === 'object' && 'errors' in details
}

/** The whole reason as one text. */
export function reasonOf({ message, details }: AppError): string {
  if (typeof details === 'string') return `${message}: ${details}`
  return Array.isArray(details) ? `${message}: ${details.join(', ')}` : message
}

/** What the database says against a change of definitions, as an answer to it; other errors as they are. */
export function refusal(error: unknown): unknown {
  const state = sqlState(error) ?? ''
  if (state === '55P03')
    return Object.assign(errors.unavailable('The collection is in use, try again'), { cause: error })
  if (!/^(42|22|23|54|58|0A|2B)/.test(state)) return error
  if (state === '23502') return notApplicable(400, withoutValue(error), error)
  const why = refusals[state] ?? refusals[state.slice(0, 2)] ?? null
  const details = why === null || !(error instanceof RefusedPart) ? why : `${placeOf(error)}: ${why}`
  return notApplicable(conflicts.has(state) ? 409 : 400, details, error)
}

/** The field that the refusal is about, or the constraint, or the collection alone. */
function placeOf(error: RefusedPart): string {
  const { collection, field } = error.subject
  const constraint = sqlState(error)?.startsWith('23') === true ? databaseError(error).constraint : undefined
  if (field !== undefined) return `${collection}.${field}`
  return constraint === undefined ? collection : `${collection}, ${constraint}`
}

/** The collection of which the database refused a part; undefined where it is not known. */
export function refusedCollection({ cause }: AppError): string | undefined {
  return cause instanceof RefusedPart ? cause.subject.collection : undefined
}

function notApplicable(status: number, details: string | null, cause?: unknown): AppError {
  return new AppError(status, 'The schema cannot be applied', { code: 'SCHEMA_NOT_APPLICABLE', details, cause })
}

/** Rows that came meanwhile, or a default that is null. The database's own words don't name the field. */
function withoutValue(error: unknown): string {
  const column = columnOf(error)
  return `stored rows have no value for ${column === undefined ? 'a required field' : `the required field ${column}`}`
}

const conflicts: ReadonlySet<string> = new Set(['42P07', '42710'])

const refusals: Readonly<Record<string, string>> = {
  '22': 'stored values do not fit the new type',
  '22P02': 'stored values cannot be converted to the new type',
  '42804': 'an SQL expression or the stored values have another type',
  '42846': 'stored values cannot be converted to the new type',
  '23503': 'stored rows refer to items that do not exist',
  '23505': 'stored rows have the same value in a unique field',
  '23514': 'stored values break a constraint or are not among the listed ones',
  '2B': 'something else in the database depends on it',
  '42501': 'the database role may not do this',
  '42601': 'an SQL expression is malformed',
  '42703': 'an SQL expression names an unknown field',
  '42710': 'an index or constraint of this name exists already',
  '42883': 'an SQL expression calls an unknown function or operator',
  '42P07': 'a table or index of this name exists already',
  '42P17': 'an SQL expression is not immutable',
  '54': 'there are too many fields, or values are too long for an index',
  '0A': 'PostgreSQL cannot do this',
}

/**
 * Refuses changes that administrators may not make: to parts that the system itself relies on (403), with reserved
 * names or types that are turned off (400). Looks only at collections that differ from the catalog's.
 */
function checkChanges(config: Config, catalog: Catalog, next: Definitions): void {
  for (const [name, schema] of next) checkChange(config, catalog, name, schema)
}

/** The same for one collection. */
export function checkChange(config: Config, catalog: Catalog, name: string, schema: SchemaJson): void {
  const before = catalog.collections.get(name)
  if (before !== undefined && isDeepStrictEqual(before.definition.schema, schema)) return
  checkShape(name, schema)
  if (before?.system) checkSystemKept(before, schema)
  // A table of ours named like one of PostgreSQL's catalogs would never be found behind it.
  if (before === undefined && isReservedName(name))
    throw errors.badBody('Collection names starting with svc_ or pg_ are reserved')
  checkTypesAllowed(config, before, schema)
}

/** Whether a field of a system collection is its own: others may join it, it is never changed. */
export function isOwn(field: Readonly<Record<string, unknown>>): boolean {
  return field.SystemGenerated === true || field.SystemGenerated === 'true'
}

const switches = ['timestamps', 'paranoid', 'usertrack', 'sortEnabled', 'isJunction'] as const

function checkSystemKept(before: Collection, schema: SchemaJson): void {
  const { schema: own } = before.definition
  if (!before.writable) throw new AppError(403, `System collection ${before.name} cannot be changed`)
  for (const [name, field] of Object.entries(own.fields))
    if (isOwn(field) && !isDeepStrictEqual(schema.fields[name], field))
      throw new AppError(403, `System field ${name} cannot be changed or removed`)
  for (const index of systemIndexes(before.name))
    if (!schema.indexes?.some((other) => isDeepStrictEqual(other, index)))
      throw new AppError(403, `System index ${index.name} cannot be changed or removed`)
  for (const name of switches)
    if (own[name] !== schema[name]) throw new AppError(403, `${name} of a system collection cannot be changed`)
}

function systemIndexes(name: string) {
  return systemCollections.find(({ collectionName }) => collectionName === name)?.schema.indexes ?? []
}

/** Types of an extension that is turned off; fields that have such a type already may keep it. */
function checkTypesAllowed(config: Config, before: Collection | undefined, schema: SchemaJson): void {
  for (const [name, { type }] of Object.entries(schema.fields)) {
    const extension = typeof type === 'string' ? extensionOf(type) : undefined
    const isNew = before?.fields.get(name)?.type !== type
    if (extension !== undefined && isNew && !isAllowed(config, extension))
      throw errors.badBody(`Field ${name}: type ${type} needs ${switchOf[extension]}`)
  }
}

function isAllowed({ database }: Config, extension: Extension): boolean {
  if (extension === 'postgis') return database.postgis
  return extension === 'vector' ? database.vector : true
}
