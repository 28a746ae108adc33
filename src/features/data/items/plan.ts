import { checkScope } from '../../../access/scopes.ts'
import type { Catalog, Collection, Relation } from '../../../catalog/catalog.ts'
import type { CurrentCatalog } from '../../../catalog/store.ts'
import { decidesForOthers, writersOf } from '../../../catalog/system-collections.ts'
import { AppError, errors } from '../../../errors.ts'
import { breather } from '../../../language/breather.ts'
import type { FieldGrant } from '../../../query/access.ts'
import { isObject, MAX_NODES, MAX_RELATION_DEPTH, member } from '../../../query/guards.ts'
import { type ResolveEnv, resolveEnv } from '../../../query/resolve.ts'
import {
  type Cell,
  type ChangeAction,
  type Document,
  type ItemReads,
  isJunction,
  openProblems,
  type Problems,
  partOfParent,
  type Requester,
  type Rules,
  type Run,
  refuseProblems,
  relationalError,
  rulesOf,
  type StoredValues,
  type WriteAction,
  type WriteContext,
  withCells,
} from './context.ts'
import { contestsIn, isOpen, type KeyContest, type StoredKeys } from './foreign-keys.ts'
import { beforeRow } from './hooking.ts'
import { type Payload, type RelationValue, readPayload, writeGrant } from './payload.ts'
import { canonicalKey } from './statements.ts'
import { storedKeys } from './stored-keys.ts'

type OpenOptions = {
  /** The rows are written as part of a row of another collection. */
  readonly asPart?: boolean
}

/**
 * 404 for an unknown collection, 403 for one that the caller may not change so. The rows of a junction are the
 * relation itself: where the caller has no grant of its own for them and they are written as part of their parent,
 * the parent's grant of the relation is enough, as it is for reading them.
 */
export function openWrite<A extends ChangeAction>(
  deps: ItemReads,
  { access, platform, isUndo = false }: Partial<Requester> & Pick<Requester, 'access'>,
  name: string,
  action: A,
  { asPart = false }: OpenOptions = {},
): WriteContext & { readonly action: A } {
  const catalog = deps.catalog.current()
  const collection = catalog.collections.get(name)
  if (collection === undefined) throw errors.unknownCollection(name)
  const isPart = asPart && isJunction(collection)
  const grant = access.admin ? undefined : (access.grant(name, action) ?? (isPart ? partOfParent : undefined))
  if (!access.admin && grant === undefined) throw errors.actionDenied(action, name)
  checkScope(access, access.admin && decidesForOthers(collection) ? 'admin' : 'write')
  const writers = writersOf(name, action)
  if (writers === 'nobody' || (writers === 'administrators' && !access.admin)) throw errors.actionDenied(action, name)
  const rules = deps.systemRules
  rules.get(name)?.checkCaller?.(deps, access, action)
  const env = exempted(resolveEnv(deps), rules, collection, action, isPart)
  const own = platform?.collection === name && !isPart ? platform : undefined
  return {
    ...{ catalog, collection, access, action, grant, config: deps.config, now: env.now, env, rules },
    platform: own?.values,
    ...(own?.defaults !== undefined && { defaults: own.defaults }),
    condition: own?.condition,
    isUndo: isUndo && !asPart,
  }
}

/** Rows that have no tenant of their own: a junction's have their parent's, those of some collections get one only later. */
function exempted(env: ResolveEnv, rules: Rules, collection: Collection, action: ChangeAction, isPart: boolean) {
  const isTenantless = isPart && !collection.fields.has('tenant_Id')
  const isLater = action === 'create' && rules.get(collection.name)?.tenantlessWhenNew === true
  if (!isTenantless && !isLater) return env
  const { multiTenant } = env
  return { ...env, multiTenant: { ...multiTenant, ignored: new Set([...multiTenant.ignored, collection.name]) } }
}

/**
 * To be awaited before payloads for a collection are read; undefined where all names in them are known. Members that no
 * process knows are dropped, so a value for a field that another process has just added would be lost without a word: a
 * payload with an unknown name is read with the newest collections.
 */
export function learnNames({ catalog: store }: CurrentCatalog, name: string, payloads: readonly unknown[]) {
  const catalog = store.current()
  const collection = catalog.collections.get(name)
  const isStale = collection !== undefined && isUnknownIn(catalog, collection, payloads)
  return isStale ? store.reloadIfStale() : undefined
}

/** Also in the rows of its relations; those of many-to-any relations are looked at no further. */
function isUnknownIn(catalog: Catalog, collection: Collection, payload: unknown): boolean {
  if (Array.isArray(payload)) return payload.some((row) => isUnknownIn(catalog, collection, row))
  if (!isObject(payload)) return false
  for (const key of Object.keys(payload)) {
    const relation = collection.relations.get(key)
    if (relation === undefined) {
      if (!collection.fields.has(key)) return true
      continue
    }
    const target = relation.kind === 'polymorphic' ? undefined : catalog.collections.get(relation.target)
    if (target !== undefined && isUnknownIn(catalog, target, payload[key])) return true
  }
  return false
}

/**
 * A write of one row with all its nested rows, read and permitted before anything is written: each nested row by its
 * own collection's permission for its action, and by the grant of the request's collection for the relation. apply.ts
 * checks in the transaction what depends on stored rows (row rules, earlier members of a set).
 */
export type Tree = Omit<Payload, 'relations'> & {
  readonly context: WriteContext & { readonly action: WriteAction }
  /** The row to change; undefined for a new one. */
  readonly id: string | undefined
  /** The row as it is, where hooks were shown it. */
  readonly previous: Document | undefined
  /** Put before the names of fields in problems. */
  readonly label: string
  /** It is written as part of another row of the request. */
  readonly isPart: boolean
  /** To-one relations given as rows: written first, because this row points at them. */
  readonly parents: readonly TreeParent[]
  /** Relations to rows that point at this one: written last. */
  readonly sets: readonly ChildSet[]
}

/** A row that this row points at, or (`isBeside`) one that is only changed with it. */
export type TreeParent = { readonly relation: Relation; readonly tree: Tree; readonly isBeside: boolean }

/** The members that a relation is to have after the write. */
export type ChildSet = {
  readonly relation: Relation
  readonly target: Collection
  /** Path of the relation in the request. */
  readonly label: string
  readonly elements: readonly Element[]
  /** Reads an element as a change of a row that turned out to be there. */
  readonly planUpdate: (id: string, payload: JsonObject, label: string) => Promise<Tree>
}

/** A member of a set: a row that exists (without tree: as it is), or one to create. */
export type Element = {
  readonly label: string
  readonly id: string | undefined
  readonly tree: Tree | undefined
  readonly payload: JsonObject
}

export type JsonObject = Readonly<Record<string, unknown>>

type PlanOptions = {
  /** The row to change. */
  readonly id?: string | undefined
  /** Its place in the request, where that is a list. */
  readonly label?: string | undefined
  readonly stored?: StoredValues | undefined
  /** Where the tree will be written; needed where hooks may be met (see hooking.ts). */
  readonly run?: Run | undefined
}

/**
 * Reads the payload of one row and of every row in it. All problems of all of them are reported together (400); 403 for
 * what the caller may not do. Depth is limited to 7 relations, nested rows to 1 000. The tree is there at once where nothing of it has
 * to be waited for: a thousand promises cost a bulk create as much as a tenth of its checks.
 */
export function planTree(
  deps: ItemReads,
  requester: Requester,
  context: Tree['context'],
  payload: unknown,
  { id, label = '', run, stored }: PlanOptions = {},
): Tree | Promise<Tree> {
  const problems = openProblems()
  const planning: PlanContext = { deps, requester, run, root: writeGrant(context.grant), problems, stored, nodes: 0 }
  const sound = (tree: Tree): Tree => {
    refuseProblems(problems)
    return tree
  }
  const planned = plan(planning, context, payload, id, { path: [], label, filled: none })
  return planned instanceof Promise ? planned.then(sound) : sound(planned)
}

const none: ReadonlySet<string> = new Set()

type PlanContext = {
  readonly deps: ItemReads
  readonly requester: Requester
  readonly run: Run | undefined
  readonly root: FieldGrant | undefined
  readonly problems: Problems
  /** Of the outermost row. */
  readonly stored: StoredValues | undefined
  nodes: number
}

/** Where in the request a payload is. `path` has relation names, `label` the places in lists too. */
type TreePosition = {
  readonly path: readonly string[]
  readonly label: string
  /** Columns that the parent fills. */
  readonly filled: ReadonlySet<string>
}

function plan(
  planning: PlanContext,
  context: Tree['context'],
  given: unknown,
  id: string | undefined,
  position: TreePosition,
): Tree | Promise<Tree> {
  const told = beforeRow(planning, context, given, id)
  if (told !== undefined) return told.then((row) => planHooked(planning, context, { given, id, ...row }, position))
  return planHooked(planning, context, { given, id, payload: given, previous: undefined }, position)
}

/** A payload as it was given, and as it is after its hooks. */
type GivenElement = Pick<Tree, 'id' | 'previous'> & { readonly given: unknown; readonly payload: unknown }

function planHooked(
  planning: PlanContext,
  context: Tree['context'],
  element: GivenElement,
  position: TreePosition,
): Tree | Promise<Tree> {
  const { id, payload } = element
  const open = id === undefined ? [] : openContests(context, payload, position)
  if (open.length === 0) return planRead(planning, context, element, position)
  const { deps, requester, run } = planning
  const db = run?.tx ?? requester.scope?.tx ?? deps.db
  return storedKeys(db, context, id!, open).then((stored) => planRead(planning, context, element, position, stored))
}

/** The foreign keys of which the stored row has to tell what the payload means. */
function openContests(context: WriteContext, payload: unknown, { filled }: TreePosition): readonly KeyContest[] {
  if (!isObject(payload)) return []
  return contestsIn(context, payload).filter((contest) => isOpen(contest) && !filled.has(contest.foreignKey))
}

function planRead(
  planning: PlanContext,
  context: Tree['context'],
  { given, id, payload, previous }: GivenElement,
  { path, label, filled }: TreePosition,
  keys?: StoredKeys,
): Tree | Promise<Tree> {
  const { root, problems } = planning
  const prefix = label === '' ? '' : `${label}.`
  const via = path.length === 0 ? undefined : { root, path }
  const options = { problems, label: prefix, filled, stored: keys }
  const asRead = readPayload(context, payload, via === undefined ? options : { ...options, via })
  const isStored = path.length === 0 && planning.stored !== undefined
  const read = isStored ? withStored(context, asRead, { given, payload, stored: planning.stored! }) : asRead
  const { references, aliases, sortsLast, relations } = read
  const tree = { context, id, previous, label: prefix, isPart: path.length > 0, references, aliases, sortsLast }
  if (relations.length > 0 || rulesOf(context)?.beforeWrite !== undefined)
    return planFurther(planning, read, tree, { path, prefix })
  return { ...tree, cells: isSound(problems) ? read.cells : [], parents: [], sets: [] }
}

/** A broken payload is refused anyway, and its cells may be what the rules of the system cannot take. */
const isSound = ({ fields, relations }: Problems): boolean => fields.length === 0 && relations.length === 0

/** With the rows of its relations, and what the rules of its collection make of it. */
async function planFurther(
  planning: PlanContext,
  { cells, relations }: Payload,
  tree: Omit<Tree, 'cells' | 'parents' | 'sets'>,
  { path, prefix }: { readonly path: readonly string[]; readonly prefix: string },
): Promise<Tree> {
  const { deps, problems } = planning
  const { context, id } = tree
  const parents: TreeParent[] = []
  const sets: ChildSet[] = []
  for (const value of relations) {
    const place = { path: [...path, value.relation.name], label: `${prefix}${value.relation.name}` }
    if (value.relation.kind !== 'belongsTo') sets.push(...(await planSet(planning, context, value, place)))
    else parents.push(...(await planParent(planning, context, value, place)))
  }
  const { beforeWrite } = rulesOf(context) ?? {}
  const ruled = async () => (beforeWrite === undefined ? cells : beforeWrite(deps, context, cells, id))
  return { ...tree, cells: isSound(problems) ? await ruled() : [], parents, sets }
}

/** Puts the stored values in place of what JSON makes of them. */
function withStored(
  { collection }: WriteContext,
  read: Payload,
  { given, payload, stored }: { readonly given: unknown; readonly payload: unknown; readonly stored: StoredValues },
): Payload {
  const of = (values: unknown, name: string) => JSON.stringify(isObject(values) ? (member(values, name) ?? null) : null)
  const cellOf = (name: string, value: string | null): Cell => {
    const field = collection.fields.get(name)!
    return { field, value, pgType: field.pgType }
  }
  const sorted = read.sortsLast && stored.exact.has('sort')
  const isGiven = (name: string) => stored.exact.has(name) && of(given, name) === of(payload, name)
  const cells = (sorted ? [...read.cells, cellOf('sort', null)] : read.cells).map((cell) => {
    const { name } = cell.field
    return isGiven(name) ? cellOf(name, stored.exact.get(name)!) : cell
  })
  const servers = [...stored.servers].map(([name, value]) => cellOf(name, value))
  const isChecked = ([name]: readonly [string, unknown]) => stored.dangling?.has(name) !== true || !isGiven(name)
  const references = stored.dangling === undefined ? read.references : new Map([...read.references].filter(isChecked))
  return {
    ...read,
    references,
    cells: withCells(cells, [...servers, ...(stored.madeBySql ?? [])]),
    sortsLast: read.sortsLast && !sorted,
  }
}

/** `{id, …more}` changes the related row, an object without the id creates it. */
async function planParent(
  planning: PlanContext,
  { catalog }: WriteContext,
  { relation, value, isBeside }: RelationValue,
  place: Omit<TreePosition, 'filled'>,
): Promise<readonly TreeParent[]> {
  if (!isObject(value)) return report(planning, place.label, 'expected an id or an object')
  const target = catalog.collections.get(relation.target)!
  const tree = await planRow(planning, target, value, { ...place, filled: new Set() })
  return tree === undefined ? [] : [{ relation, tree, isBeside }]
}

async function planSet(
  planning: PlanContext,
  { catalog }: WriteContext,
  { relation, value }: RelationValue,
  { path, label }: Omit<TreePosition, 'filled'>,
): Promise<readonly ChildSet[]> {
  const values = relation.kind === 'hasOne' ? (value === null ? [] : [value]) : value
  if (!Array.isArray(values)) return report(planning, label, 'expected a list')
  const target = catalog.collections.get(relation.target)!
  const filled = new Set(ownedColumns(relation))
  const elements: Element[] = []
  for (const [index, raw] of values.entries()) {
    const place = { path, label: relation.kind === 'hasOne' ? label : `${label}.${index}`, filled }
    elements.push(...(await planElement(planning, relation, target, raw, place)))
  }
  const planUpdate: ChildSet['planUpdate'] = async (id, payload, elementLabel) => {
    const tree = await planChange(planning, target, id, payload, { path, label: elementLabel, filled })
    refuseProblems(planning.problems)
    return tree
  }
  return [{ relation, target, label, elements, planUpdate }]
}

/** Columns of the rows of a set that say whose they are. */
function ownedColumns({ kind, foreignKey, discriminator }: Relation): readonly string[] {
  if (kind === 'belongsToMany') return []
  return discriminator === undefined ? [foreignKey] : [foreignKey, discriminator.column]
}

async function planElement(
  planning: PlanContext,
  relation: Relation,
  target: Collection,
  raw: unknown,
  place: TreePosition,
): Promise<readonly Element[]> {
  const { label } = place
  const payload = relation.kind === 'polymorphic' && isObject(raw) ? asJunctionRow(target, raw) : raw
  if (payload === undefined)
    return report(planning, label, `cannot hold an item of ${String(collectionIn(target, raw))}`)
  const id = idAlone(target, payload)
  if (id !== undefined) {
    count(planning, place)
    return [{ label, id: readKey(planning, target, id, label), tree: undefined, payload: {} }]
  }
  if (!isObject(payload)) return report(planning, label, 'expected an id or an object')
  const tree = await planRow(planning, target, payload, place)
  return tree === undefined ? [] : [{ label, id: tree.id, tree, payload }]
}

/** An id, or an object with nothing but one. */
function idAlone({ primaryKey }: Collection, payload: unknown): string | number | undefined {
  const alone = isObject(payload) && Object.keys(payload).length === 1 ? member(payload, primaryKey.name) : payload
  return typeof alone === 'string' || typeof alone === 'number' ? alone : undefined
}

async function planRow(
  planning: PlanContext,
  target: Collection,
  payload: JsonObject,
  place: TreePosition,
): Promise<Tree | undefined> {
  count(planning, place)
  const id = member(payload, target.primaryKey.name)
  if (id === undefined || id === null) {
    const context = openWrite(planning.deps, planning.requester, target.name, 'create', { asPart: true })
    return plan(planning, context, payload, undefined, place)
  }
  const key = readKey(planning, target, id, place.label)
  return key === undefined ? undefined : planChange(planning, target, key, payload, place)
}

async function planChange(
  planning: PlanContext,
  target: Collection,
  id: string,
  payload: JsonObject,
  place: TreePosition,
): Promise<Tree> {
  const context = openWrite(planning.deps, planning.requester, target.name, 'update', { asPart: true })
  return plan(planning, context, payload, id, place)
}

/**
 * A member of a many-to-any relation, `{collection|type, item_id|item|id, …}`, as the row of its junction: the relation
 * to the named collection, and what else the row holds. Undefined when the junction cannot point there.
 */
function asJunctionRow(junction: Collection, raw: JsonObject): JsonObject | undefined {
  const name = collectionIn(junction, raw)
  if (name === undefined) return raw
  const towards = itemRelations(junction).find(({ discriminator }) => discriminator?.value === name)
  if (towards === undefined) return undefined
  const { primaryKey, fields } = junction
  const itemKeys = [towards.foreignKey, 'item_id', 'item'].filter(
    (key) => key === towards.foreignKey || !fields.has(key),
  )
  const given = itemKeys.find((key) => Object.hasOwn(raw, key))
  const row = member(raw, towards.name)
  const isAsRead = isObject(row) && !isObject(given && raw[given])
  const itemKey = given ?? (isAsRead ? towards.name : primaryKey.name)
  const dropped = new Set([...itemKeys, itemKey, ...collectionKeys(junction), towards.name])
  const rest = Object.entries(raw).filter(([key]) => !dropped.has(key))
  const item = member(raw, itemKey) ?? row ?? null
  if (!isAsRead || isObject(item)) return Object.fromEntries([...rest, [towards.name, item]])
  const { foreignKey, discriminator } = towards
  return Object.fromEntries([...rest, [discriminator!.column, name], [foreignKey, item], [towards.name, row]])
}

function itemRelations(junction: Collection): readonly Relation[] {
  return [...junction.relations.values()].filter(
    ({ kind, discriminator }) => kind === 'belongsTo' && discriminator !== undefined,
  )
}

/** The collection that a member of a many-to-any relation names. */
function collectionIn(junction: Collection, raw: unknown): unknown {
  const key = isObject(raw) ? collectionKeys(junction).find((name) => Object.hasOwn(raw, name)) : undefined
  return key === undefined ? undefined : (raw as JsonObject)[key]
}

function collectionKeys(junction: Collection): readonly string[] {
  const column = itemRelations(junction)[0]?.discriminator?.column ?? 'collection'
  return [column, 'collection', 'type'].filter((key) => key === column || !junction.fields.has(key))
}

/** The key in its stored spelling; what cannot be one is reported. */
function readKey(planning: PlanContext, target: Collection, id: unknown, label: string): string | undefined {
  try {
    return canonicalKey(target, id)
  } catch (error) {
    if (!(error instanceof AppError) || error.status !== 400) throw error
    report(planning, label, 'is not an id')
    return undefined
  }
}

/** Ends planning at once where a request asks for too much. */
function count(planning: PlanContext, { path, label }: TreePosition): void {
  planning.nodes += 1
  const isTooMuch = path.length > MAX_RELATION_DEPTH || planning.nodes > MAX_NODES
  if (isTooMuch)
    throw relationalError([
      {
        field: label,
        message: `more than ${MAX_RELATION_DEPTH} levels or ${MAX_NODES} rows cannot be written at once`,
      },
    ])
}

function report(planning: PlanContext, field: string, message: string): [] {
  planning.problems.relations.push({ field, message })
  return []
}

/** The results of `work` in order, one after the other; other requests have their turn in between. */
export async function inTurn<From, To>(
  list: readonly From[],
  work: (one: From, index: number) => To | Promise<To>,
): Promise<To[]> {
  const done: To[] = []
  const breathe = breather()
  for (const [index, one] of list.entries()) {
    const made = work(one, index)
    done.push(made instanceof Promise ? await made : made)
    const pause = breathe()
    if (pause !== undefined) await pause
  }
  return done
}
