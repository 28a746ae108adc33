import type { CurrentAccess } from '../../../access/store.ts'
import type { Logs } from '../../../adapters/logger.ts'
import type { AdmissionLanes } from '../../../admission/lane.ts'
import type { ResultCache } from '../../../cache/data-cache.ts'
import type { Catalog, Collection, Field, Relation } from '../../../catalog/catalog.ts'
import { checksOf } from '../../../catalog/compile.ts'
import type { CurrentCatalog } from '../../../catalog/store.ts'
import { type ParamValue, parameterType, readValue } from '../../../catalog/values.ts'
import type { Config, Configuration } from '../../../config/config.ts'
import type { Clock } from '../../../db/clock.ts'
import {
  type BrokenCheck,
  brokenCheck,
  columnOf,
  databaseError,
  keyProblemOf,
  requiredFieldMissing,
  ruleBroken,
  sqlState,
} from '../../../db/errors.ts'
import type { Reads } from '../../../db/pools.ts'
import type { ReplicaReads } from '../../../db/replicas/replicas.ts'
import { type Reader, rawQuery, type Tx } from '../../../db/sql.ts'
import { type Action, AppError, errors, type FieldProblem } from '../../../errors.ts'
import type { Fact, Writes } from '../../../events/commit.ts'
import { setActorSql } from '../../../events/log.ts'
import { type Actor, actorJson } from '../../../events/types.ts'
import type { Access, Grant } from '../../../query/access.ts'
import type { ResolveEnv } from '../../../query/resolve.ts'
import type { ItemHooks } from '../hooks/hooks.ts'

/**
 * The context of every step of a change: the requester and its rights, the rules of the collection, the open
 * transaction, and the way errors name their place in the request.
 */

/** The caller of a change. */
export type Requester = {
  readonly actor: Actor
  readonly access: Access
  /** The own row of the user, as hooks are shown it. */
  readonly user?: Readonly<Record<string, unknown>> | undefined
  /** The session that stays when its user is given another password. */
  readonly sessionId?: string | undefined
  /** The transaction to write in; without one the write has its own. */
  readonly scope?: OpenTransaction | undefined
  /** Values that the platform itself writes into the row of the change. */
  readonly platform?: PlatformValues | undefined
  /** Rows come back as they were: it changes those in the trash too, and lets rows of a junction link them. */
  readonly isUndo?: boolean
}

/** Values of columns that no payload sets (`serversOwn`), for one row of a collection. */
type PlatformValues = {
  readonly collection: string
  readonly values: Readonly<Record<string, unknown>>
  /** Values of columns that neither the payload nor a hook sets. */
  readonly defaults?: Readonly<Record<string, unknown>>
  readonly condition?: InsertCondition
}

/** A function of the database, called with these texts by the statement that inserts the row; it raises what is wrong. */
export type InsertCondition = { readonly name: string; readonly args: readonly string[] }

export type ChangeAction = Exclude<Action, 'read'>
export type WriteAction = 'create' | 'update'

/** A cell of a row that is about to be written: its field and the value as a parameter of its type. */
export type Cell = { readonly field: Field; readonly value: ParamValue; readonly pgType: string }

/**
 * Values of a row as PostgreSQL writes them, beside a payload that says the same in JSON, which cannot hold all of them
 * exactly. Rights and rules are decided by the payload; what hooks have changed in it stays changed.
 */
export type StoredValues = {
  readonly exact: ReadonlyMap<string, string | null>
  /** Columns that are the server's own to set, whatever the caller may. */
  readonly servers: ReadonlyMap<string, string | null>
  /** Columns that refer to a row which is gone, and had led nowhere before: they are not held against what is there. */
  readonly dangling?: ReadonlySet<string> | undefined
  /** Columns of the table that the definition does not name: nobody has rights to them. */
  readonly madeBySql?: readonly Cell[]
}

/** Everything that decides how a payload of one collection is read. */
export type PayloadContext = {
  readonly catalog: Catalog
  readonly collection: Collection
  readonly access: Access
  readonly action: WriteAction
  readonly config: Config
  readonly now: Date
  /** Of all collections that have some. */
  readonly rules: Rules
  /** Stands for the caller's own grant of the action. */
  readonly grant?: Grant | undefined
  readonly platform?: PlatformValues['values'] | undefined
  readonly defaults?: PlatformValues['defaults']
  readonly condition?: InsertCondition | undefined
  /** See {@link Requester}; never of rows that are written as part of others. */
  readonly isUndo?: boolean
}

/** Everything that decides what one kind of change of one collection may do. */
export type WriteContext = Omit<PayloadContext, 'action'> & {
  readonly action: ChangeAction
  readonly env: ResolveEnv
  /** Undefined for administrators. */
  readonly grant: Grant | undefined
}

/** By the name of the collection; see `process/system-rules.ts` for the list. */
export type Rules = ReadonlyMap<string, CollectionRules>

/** The rules for rows of system collections. */
export type SystemRules = { readonly systemRules: Rules }

/** The rules for the rows of one collection, however they are written. A member that is absent allows everything. */
export type CollectionRules = {
  /** Throws where the caller may not change the collection so, whatever it was granted. */
  readonly checkCaller?: (deps: Configuration & CurrentAccess, access: Access, action: ChangeAction) => void
  /** The grant that a write of a field needs, where `*` may not be enough. */
  readonly protectedFields?: Readonly<Partial<Record<string, (config: Config, action: WriteAction) => GrantedBy>>>
  /** Columns that only the platform writes: payloads may repeat them, which means nothing. */
  readonly serversOwn?: ReadonlySet<string>
  /** The answer (400) to callers who create rows other than with values of the platform. */
  readonly createdElsewhere?: string
  /** Its rows are the tenants that rows of other collections belong to. */
  readonly holdsTenants?: boolean
  /** New rows belong to no tenant until a membership says so. */
  readonly tenantlessWhenNew?: boolean
  /** The key of the row that is the caller's own; it may always be pointed at, since it is known to be there. */
  readonly ownKey?: (access: Access) => string | undefined
  /** The cells to write instead of these; throws what is wrong with them. A new row has no `id`. */
  readonly beforeWrite?: (
    deps: ItemReads,
    context: PayloadContext,
    cells: readonly Cell[],
    id?: string,
  ) => Promise<readonly Cell[]>
  /** Throws where one of these rows must stay. */
  readonly beforeDelete?: (deps: Reads & CurrentCatalog, ids: readonly string[]) => Promise<void>
  readonly guard?: Guard
  /**
   * Brings back the parts of a version that a payload cannot write: `present` is the present row, undefined for a
   * deleted one. Throws if the version cannot be restored.
   */
  readonly restores?: (
    deps: ItemReads,
    version: Readonly<Record<string, unknown>>,
    present: Readonly<Record<string, unknown>> | undefined,
  ) => Promise<Restoration | undefined>
  /** The effects of events outside the database, which an undo does not take back. */
  readonly lasting?: (db: Reader, events: UndoneEvents) => Promise<readonly LastingEffect[]>
  /** When a change of its rows is durable, before its writer is answered: what this process must know of. */
  readonly written?: () => Promise<void>
  /** In the transaction that erases all images of a row from the log, before it does. */
  readonly beforeErase?: (tx: Tx, id: string) => Promise<void>
}

/** Events by their positions, none of them written before `since`. */
export type UndoneEvents = { readonly positions: readonly string[]; readonly since: string }

/** `event` is named as facts of the log are: what, of which row, the last time when. */
export type LastingEffect = {
  readonly event: string
  readonly id: string
  readonly at: string
  readonly count: number
}

/** Values of columns that no payload sets, and what belongs in the transaction that writes them. */
export type Restoration = { readonly values: PlatformValues['values']; readonly during: (tx: Tx) => Promise<void> }

/** The grant that opens a field: one that names it, `*` too, or none at all. */
export type GrantedBy = 'name' | 'wildcard' | 'nothing'

/**
 * Decisions that look at stored rows, made in the transaction that writes, before its statement. Throws 403 for the first
 * row that is refused. The rows it reads stay locked, so that what was decided still holds when they are written.
 */
type Guard = {
  /** Whether a change passes the guard, and so needs a transaction. */
  readonly applies: (action: 'update' | 'delete', cells: readonly Cell[]) => boolean
  readonly inserts?: (run: Pick<Run, 'deps' | 'requester'>, rows: readonly (readonly Cell[])[]) => void
  /** Answers in the order of the changes. */
  readonly updates?: (
    run: Run,
    context: WriteContext,
    changes: readonly RowChange[],
  ) => Promise<readonly GuardedChange[]>
  /** Gives what is to be done after the rows were deleted. */
  readonly deletes?: (run: Run, context: WriteContext, ids: readonly string[]) => Promise<() => Promise<void>>
}

export type RowChange = { readonly id: string; readonly cells: readonly Cell[] }

/** A change of one row, as the guard lets it through. */
export type GuardedChange = {
  /** Written with it. */
  readonly cells: readonly Cell[]
  /** To be done after it was written. */
  readonly after: () => Promise<void>
}

/** The rules of the context's own collection. */
export function rulesOf({ rules, collection }: Pick<PayloadContext, 'rules' | 'collection'>) {
  return rules.get(collection.name)
}

/** The parent's grant of the relation, in place of one for the junction's rows. */
export const partOfParent: Grant = { fields: ['*'], conditions: null, relConditions: null, defaultValues: null }

export function isJunction({ definition }: Collection): boolean {
  return definition.schema.isJunction === true
}

/** One requester's writes inside a transaction. */
export type Run = {
  readonly deps: ItemReads
  readonly requester: Requester
  readonly tx: Tx
  readonly scope: OpenTransaction
}

/** An open transaction that other writers may take part in, and what is to follow from it. */
export type OpenTransaction = {
  readonly tx: Tx
  /** The log names this one for all that is written in it. */
  readonly actor: Actor
  /** Rows of which hooks are notified when it has committed. */
  readonly written: WrittenRow[]
  readonly events: Fact[]
  /** Its connection belongs to others now. */
  isOver: boolean
}

/** A row of which hooks are notified when the transaction has committed. */
export type WrittenRow = {
  readonly requester: Requester
  readonly collection: Collection
  readonly action: ChangeAction
  /** JSON text. */
  readonly id: string
  /** The row as it was; undefined for a new one. */
  readonly previous: Document | undefined
}

/** A row in its wire form, without hidden fields. */
export type Document = Readonly<Record<string, unknown>>

/**
 * A write of rows as SQL: one statement with its checks in it. It takes the actor's JSON as its first parameter, which is
 * not among `values`, and returns `id`, the JSON text of the primary key, per written row.
 */
export type Write = { readonly text: string; readonly values: readonly ParamValue[] }

/** Where in the request the rows of a statement stand. */
export type RequestPlace = {
  /** Put before the names of fields. */
  readonly label?: string
  /** Names of the relations that were given by an id, by the name of the foreign key. */
  readonly aliases?: ReadonlyMap<string, string>
  /** The rows of one statement, each where it stands; without them all is one row. */
  readonly rows?: readonly PlacedRow[]
}

type PlacedRow = Pick<RequestPlace, 'aliases'> & {
  readonly label: string
  readonly cells: readonly Cell[]
  /** By the name of the foreign key. */
  readonly references: ReadonlyMap<string, { readonly relation: Relation }>
  /** Where a relation stands that the row does not name itself. */
  readonly ends?: ReadonlyMap<string, string>
}

/** The place of rows that are written by one statement; `label` is that of them all. */
export function placeOf(trees: readonly PlacedRow[], label = ''): RequestPlace {
  const [first] = trees
  if (first === undefined || trees.length === 1) return first ?? {}
  return { label, ...(first.aliases && { aliases: first.aliases }), rows: trees }
}

/** Runs a statement; its refusal is named by its place in the request. */
export async function runWrite<Answer = { id: string }>(
  { deps, requester, tx }: Pick<Run, 'requester' | 'tx'> & { readonly deps: CurrentCatalog },
  { text, values }: Write,
  place: RequestPlace = {},
): Promise<readonly Answer[]> {
  try {
    namedIn.set(tx, requester.actor)
    return await tx.any<Answer>(rawQuery(text, [actorJson(requester.actor), ...values]))
  } catch (error) {
    throw placed(error, place, deps, requester.access)
  }
}

/** Has the log name this actor for the statements that follow in the transaction and do not say so themselves. */
export async function nameActor(tx: Tx, actor: Actor): Promise<void> {
  if (namedIn.get(tx) === actor) return
  await tx.any(rawQuery(setActorSql, [actorJson(actor)]))
  namedIn.set(tx, actor)
}

/** Notes the actor for the log, in a transaction that has just begun. */
export function noteNamed(tx: Tx, actor: Actor): void {
  namedIn.set(tx, actor)
}

/** The actor that the setting of a transaction names. */
const namedIn = new WeakMap<Tx, Actor>()

/**
 * The answer to a reference that was refused, by `svc_refer`, whose message is the relation and the key, or by the database's
 * constraint for a relation that the payload names, and to a value that only the database missed (a default that is null,
 * a user where no user is signed in), and to a row that breaks a declared rule. Every other error stays what it is.
 */
export function placed(error: unknown, place: RequestPlace, deps: CurrentCatalog, access: Access): unknown {
  const rule = declaredCheck(error, deps, access)
  if (rule !== undefined) return ruleBroken(rule.table, rule.constraint)
  const field = refusedReference(error, place)
  if (field !== undefined) return relationalError([{ field, message: unknownItem('read') }])
  const column = sqlState(error) === '23502' ? columnOf(error) : undefined
  return column === undefined ? error : requiredFieldMissing(`${labelOf(place, column)}${column}`)
}

/**
 * The CHECK that a row broke, where the collection's definition declares it. Its name may speak of fields, so only those learn
 * it who may write the collection: a deletion may change rows of others, too.
 */
function declaredCheck(error: unknown, { catalog }: CurrentCatalog, access: Access): BrokenCheck | undefined {
  const broken = brokenCheck(error)
  const collection = broken && catalog.current().collections.get(broken.table)
  if (collection === undefined || !checksOf(collection.definition).some(({ name }) => name === broken!.constraint))
    return undefined
  const mayWrite = access.admin || (['create', 'update'] as const).some((action) => access.grant(broken!.table, action))
  return mayWrite ? broken : undefined
}

/** Of several rows the first that does not name the column: only what was not given can be missing. */
function labelOf({ label = '', rows = [] }: RequestPlace, column: string): string {
  return rows.find(({ cells }) => !cells.some(({ field }) => field.name === column))?.label ?? label
}

/** The path of a reference that was refused; of several rows the first that has its value. */
function refusedReference(error: unknown, { label = '', aliases, rows = [] }: RequestPlace): string | undefined {
  const refusal = refusedKey(error)
  if (refusal === undefined) return undefined
  for (const row of rows) {
    const relation = relationRefusedIn(row, refusal)
    if (relation !== undefined) return row.ends?.get(relation) ?? `${row.label}${relation}`
  }
  const relation = refusal.by === 'relation' ? refusal.name : aliases?.get(refusal.name)
  return relation === undefined ? undefined : `${label}${relation}`
}

/** A key without a row that the caller may point at. It is named by its relation or by its column. */
type RefusedKey = { readonly by: 'relation' | 'column'; readonly name: string; readonly value: string }

function refusedKey(error: unknown): RefusedKey | undefined {
  const state = sqlState(error)
  if (state === 'SV400') {
    const [relation = '', ...value] = databaseError(error).message?.split(' ') ?? []
    return { by: 'relation', name: relation, value: value.join(' ') }
  }
  if (state !== '23503') return undefined
  const {
    columns: [column, ...others],
    values,
  } = keyProblemOf(error)
  return column === undefined || others.length > 0 ? undefined : { by: 'column', name: column, value: values }
}

function relationRefusedIn({ cells, references, aliases }: PlacedRow, { by, name, value }: RefusedKey) {
  const named = [...references].find(([, { relation }]) => relation.name === name)
  const [column, relation] = by === 'column' ? [name, aliases?.get(name)] : [named?.[0], name]
  return cells.some((cell) => cell.field.name === column && isWritten(cell, value)) ? relation : undefined
}

/** Whether PostgreSQL writes the value so. */
const isWritten = ({ field, value }: Cell, text: string): boolean =>
  (field.kind === 'uuid' ? String(value).toLowerCase() : String(value)) === text

/** A column with the key of another row, as a cell. */
export function keyCell(field: Field, raw: unknown): Cell {
  const value = raw === null ? null : readValue(raw, field, field.name).value
  return { field, value, pgType: parameterType(field) }
}

/** Later cells of a column replace earlier ones. */
export function withCells(cells: readonly Cell[], more: readonly Cell[]): readonly Cell[] {
  if (more.length === 0) return cells
  return [...new Map([...cells, ...more].map((cell) => [cell.field.name, cell])).values()]
}

/** A problem with a relation of a payload; `field` is its path, e.g. `lines.2.product`. */
type RelationProblem = { readonly field: string; readonly message: string }

/** Everything wrong with one request, so that it is answered at once. */
export type Problems = { readonly fields: FieldProblem[]; readonly relations: RelationProblem[] }

export const openProblems = (): Problems => ({ fields: [], relations: [] })

/** 400 with all of them; relations first, because their fields could not be read. */
export function refuseProblems({ fields, relations }: Problems): void {
  if (relations.length > 0) throw relationalError(relations)
  if (fields.length > 0) throw errors.validation(fields)
}

/** 400 for relations that cannot be written as they were given. */
export function relationalError(problems: readonly RelationProblem[]): AppError {
  return new AppError(400, 'Validation failed for relational data', { details: problems })
}

/** The same words for an item that is missing and one that is not the caller's, so that nothing is given away. */
export const unknownItem = (action: 'read' | 'update'): string => errors.itemDenied(action).message

/** The same for a row that a payload of another one names; where only the client gives keys, it may have meant to create it. */
export function unknownNested({ name, primaryKey }: Collection): string {
  if (primaryKey.default !== undefined) return unknownItem('update')
  return `${unknownItem('update')}. A nested row with a key is changed, never created: create it first by POST /items/${name}`
}

/** The capabilities that reads of this folder need. */
export type ItemReads = Reads &
  ReplicaReads &
  AdmissionLanes &
  Clock &
  Configuration &
  CurrentAccess &
  CurrentCatalog &
  ItemHooks &
  Logs &
  ResultCache &
  SystemRules

/** The capabilities that changes of this folder need. */
export type ItemWrites = Reads &
  Writes &
  AdmissionLanes &
  Clock &
  CurrentAccess &
  CurrentCatalog &
  ItemHooks &
  ResultCache &
  SystemRules
