import type { Collection } from '../../../catalog/catalog.ts'
import type { CurrentCatalog } from '../../../catalog/store.ts'
import type { Configuration } from '../../../config/config.ts'
import type { Clock } from '../../../db/clock.ts'
import { rawQuery, type Tx } from '../../../db/sql.ts'
import { errors } from '../../../errors.ts'
import { commit, commitRow, type Writes } from '../../../events/commit.ts'
import { knowing, longNumber } from '../../../language/exact-json.ts'
import { compileOne } from '../../../query/compile.ts'
import { isObject, member } from '../../../query/guards.ts'
import { parseListQuery } from '../../../query/parse.ts'
import { resolveEnv, resolveList, resolveOne } from '../../../query/resolve.ts'
import { createTrees, deleteRows, isPlain, rowsPerStatement, updateTrees } from './apply.ts'
import {
  type ItemReads,
  type ItemWrites,
  placed,
  placeOf,
  type Requester,
  type RequestPlace,
  type Run,
  rulesOf,
  runWrite,
  type StoredValues,
} from './context.ts'
import { guardInserts, isGuarded } from './guard.ts'
import { goesOneByOne, inTransaction, meetsHooks } from './hooking.ts'
import { deleteOf, insertOf, type KeptWrite, updateOf } from './kept-writes.ts'
import { exactIds, exactPayload } from './long-numbers.ts'
import { inTurn, learnNames, openWrite, planTree, type Tree } from './plan.ts'
import {
  allMade,
  type ChangedId,
  canonicalKey,
  changedId,
  deleteStatement,
  type FromLog,
  insertStatement,
  rowFromLog,
  updateStatement,
  type Versions,
} from './statements.ts'
import { aloneUpsert, applyUpsert, openUpsert, planUpsert, Unforeseen } from './upsert.ts'

/**
 * THE way of every change of items: plan → apply → answer.
 *
 * A plan is one statement where that is all there is to it (plain rows without hooks, guards or wanted fields), or else
 * steps, which are applied in a transaction. Either way all of a change is durable, or nothing.
 */

export type Change =
  | {
      readonly action: 'create'
      readonly payloads: readonly unknown[]
      /** The payloads are a list in the request, so each is named by its place in it: `2.name`. */
      readonly asList?: boolean
      /** Of rows as they were, in the order of the payloads. */
      readonly stored?: readonly StoredValues[]
    }
  | { readonly action: 'update'; readonly changes: readonly RowUpdate[]; readonly ifMatch?: Versions | undefined }
  | { readonly action: 'delete'; readonly ids: readonly unknown[]; readonly ifMatch?: Versions | undefined }
  | {
      readonly action: 'upsert'
      readonly payloads: readonly unknown[]
      readonly asList?: boolean
      /** Names of the fields that identify an item, as in the query string. */
      readonly key: unknown
    }

/** `label` is its place in the request, where that is a list. */
type RowUpdate = {
  readonly id: unknown
  readonly payload: unknown
  readonly label?: string
  readonly stored?: StoredValues
}

/** The query string of a change: `fields` asks for more of the written row than its id. */
type AnswerQuery = Readonly<Record<string, unknown>>

export type ChangeAnswer = {
  /** JSON texts (`"…"` or a number), in the order of the request. */
  readonly ids: readonly string[]
  /** Where fields were asked for, the rows as JSON texts, in the same order. */
  readonly rows: readonly string[] | undefined
  /** Whether the first row is new; says something of an upsert only. */
  readonly created: boolean
}

/**
 * Makes all of a change, or nothing of it.
 *
 * @throws {AppError} 404 for an unknown collection, 403 for what the caller may not do or see (`updates` of missing items
 *   among it, and changes that would leave the caller's scope), 412 where an item has none of the versions of `ifMatch`,
 *   400 with everything that is wrong with the payloads
 */
export async function changeItems(
  deps: ItemWrites,
  requester: Requester,
  name: string,
  change: Change,
  query: AnswerQuery = {},
): Promise<ChangeAnswer> {
  const plan = await planChange(deps, requester, name, change, query)
  if (plan === undefined) return { ids: [], rows: undefined, created: false }
  const answer =
    'write' in plan
      ? answerOf(await execute(deps, requester, plan), undefined)
      : await applySteps(deps, requester, name, plan)
  const told = requester.scope === undefined ? deps.systemRules.get(name)?.written : undefined
  if (told !== undefined) await told()
  return answer
}

/**
 * The elements of a bulk update: `{id, data: {…}}` or `{id, …fields}`, with the key as `id` or under its own name. Those
 * without a key are skipped.
 */
export function updatesIn(
  { catalog }: CurrentCatalog,
  collection: string,
  elements: readonly unknown[],
): readonly RowUpdate[] {
  const names = keyNames(catalog.current().collections.get(collection))
  return elements.flatMap((element, index) => {
    const name = isObject(element) ? names.find((key) => isKey(member(element, key))) : undefined
    if (name === undefined) return []
    const { [name]: id, ...rest } = element as Readonly<Record<string, unknown>>
    const payload = isData(rest) ? rest.data : knowing(rest, element as object)
    return [{ id: longNumber(element as object, name) ?? id, payload, label: `${index}` }]
  })
}

/** `id` means the key of every collection but those that have another field of that name. */
function keyNames(collection: Collection | undefined): readonly string[] {
  if (collection === undefined) return ['id']
  const { fields, primaryKey } = collection
  return fields.has('id') ? [primaryKey.name, 'id'] : ['id', primaryKey.name]
}

/** Undefined where nothing is to be done. */
type WritePlan = OneStatement | Steps | undefined

type OneStatement = {
  readonly write: KeptWrite
  readonly place?: RequestPlace | undefined
  /** Of a statement on one row; see `commitRow`. */
  readonly fromLog?: FromLog | undefined
  /** Throws where the statement says that nothing was written. */
  readonly outcomes?: (rows: readonly never[]) => readonly RowOutcome[]
}

type Steps = {
  /** The fields to answer besides the ids. */
  readonly asked: AnswerQuery | undefined
  readonly apply: (run: Run) => Promise<readonly RowOutcome[]>
}

type RowOutcome = { readonly id: string; readonly created?: boolean }

function planChange(
  deps: ItemReads,
  requester: Requester,
  name: string,
  change: Change,
  query: AnswerQuery,
): Promise<WritePlan> {
  switch (change.action) {
    case 'create':
      return planCreate(deps, requester, name, change, query)
    case 'update':
      return planUpdate(deps, requester, name, change, query)
    case 'delete':
      return planDelete(deps, requester, name, change)
    case 'upsert':
      return planUpserts(deps, requester, name, change, query)
  }
}

type Of<Action> = Extract<Change, { action: Action }>

async function planCreate(
  deps: ItemReads,
  requester: Requester,
  name: string,
  { payloads: given, asList, stored }: Of<'create'>,
  query: AnswerQuery,
): Promise<WritePlan> {
  const learning = learnNames(deps, name, given)
  if (learning !== undefined) await learning
  const context = openWrite(deps, requester, name, 'create')
  const payloads = given.map((payload) => exactPayload(context, payload))
  const asked = askedFor(deps, requester, name, query)
  if (payloads.length === 0) return undefined
  const planOf = (payload: unknown, index: number, run?: Run) =>
    planTree(deps, requester, context, payload, {
      label: asList ? `${index}` : undefined,
      run,
      stored: stored?.[index],
    })
  const planAll = (run?: Run): Promise<Tree[]> => inTurn(payloads, (payload, index) => planOf(payload, index, run))
  if (goesOneByOne(deps, context, payloads)) {
    const create = async (run: Run, index: number) => createTrees(run, [await planOf(payloads[index], index, run)])
    return { asked, apply: (run) => eachInTurn(payloads, (_, index) => create(run, index)) }
  }
  if (meetsHooks(deps, context, payloads))
    return { asked, apply: async (run) => outcomesOf(await createTrees(run, await planAll(run))) }
  const trees = payloads.length === 1 ? [await planOf(payloads[0], 0)] : await planAll()
  if (asked !== undefined || trees.length > rowsPerStatement || !trees.every(isPlain))
    return { asked, apply: async (run) => outcomesOf(await createTrees(run, trees)) }
  guardInserts({ deps, requester }, context, trees)
  const outcomes = (rows: readonly RowOutcome[]) => allMade(rows, trees.length)
  return trees.length === 1
    ? { write: insertOf(context, trees[0]!), place: trees[0]!, fromLog: rowFromLog(context, 'create'), outcomes }
    : { write: insertStatement(context, trees), place: placeOf(trees), outcomes }
}

async function planUpdate(
  deps: ItemReads,
  requester: Requester,
  name: string,
  { changes, ifMatch }: Of<'update'>,
  query: AnswerQuery,
): Promise<WritePlan> {
  const given = changes.map(({ payload }) => payload)
  const learning = learnNames(deps, name, given)
  if (learning !== undefined) await learning
  const context = openWrite(deps, requester, name, 'update')
  const payloads = given.map((payload) => exactPayload(context, payload))
  const asked = askedFor(deps, requester, name, query)
  const keys = changes.map(({ id }) => canonicalKey(context.collection, id))
  if (keys.length === 0) return undefined
  const planOf = ({ label, stored }: RowUpdate, index: number, run?: Run) =>
    planTree(deps, requester, context, payloads[index], { id: keys[index], label, run, stored })
  if (meetsHooks(deps, context, payloads)) {
    const change = async (run: Run, update: RowUpdate, index: number) =>
      updateTrees(run, [await planOf(update, index, run)], ifMatch)
    return { asked, apply: (run) => eachInTurn(changes, (update, index) => change(run, update, index)) }
  }
  const trees =
    changes.length === 1
      ? [await planOf(changes[0]!, 0)]
      : await inTurn(changes, (update, index): Tree | Promise<Tree> => planOf(update, index))
  const [tree, ...others] = trees as [Tree, ...Tree[]]
  if (asked !== undefined || others.length > 0 || !isPlain(tree) || isGuarded(context, 'update', tree.cells))
    return { asked, apply: async (run) => outcomesOf(await updateTrees(run, trees, ifMatch)) }
  const [key] = keys as [string]
  return {
    write: ifMatch === undefined ? updateOf(context, key, tree) : updateStatement(context, [key], tree, { ifMatch }),
    place: tree,
    fromLog: rowFromLog(context, 'update', key),
    outcomes: updated,
  }
}

/** Deletes (or, with `paranoid`, marks as deleted) exactly these items. */
async function planDelete(
  deps: ItemReads,
  requester: Requester,
  name: string,
  { ids, ifMatch }: Of<'delete'>,
): Promise<WritePlan> {
  const context = openWrite(deps, requester, name, 'delete')
  const keys = [...new Set(exactIds(ids).map((id) => canonicalKey(context.collection, id)))]
  if (keys.length === 0) return undefined
  if (meetsHooks(deps, context) || isGuarded(context, 'delete')) {
    const apply = async (run: Run) => {
      const gone = await deleteRows(run, context, keys, ifMatch)
      return ifMatch === undefined ? (gone as readonly RowOutcome[]) : deleted(gone)
    }
    return { asked: undefined, apply }
  }
  await rulesOf(context)?.beforeDelete?.(deps, keys)
  return {
    write:
      keys.length === 1 && ifMatch === undefined
        ? deleteOf(context, keys[0]!)
        : deleteStatement(context, keys, { ifMatch }),
    fromLog: keys.length === 1 ? rowFromLog(context, 'delete', keys[0]) : undefined,
    ...(ifMatch !== undefined && { outcomes: deleted }),
  }
}

async function planUpserts(
  deps: ItemReads,
  requester: Requester,
  name: string,
  { payloads, key, asList = false }: Of<'upsert'>,
  query: AnswerQuery,
): Promise<WritePlan> {
  const learning = learnNames(deps, name, payloads)
  if (learning !== undefined) await learning
  const opened = openUpsert(deps, requester, name, key)
  const asked = askedFor(deps, requester, name, query)
  const exact = payloads.map((payload) => exactPayload(opened.contexts.create, payload))
  const upsert = await planUpsert(deps, requester.scope?.tx ?? deps.db, opened, exact, asList)
  const alone = asked === undefined ? aloneUpsert(upsert) : undefined
  return alone ?? { asked, apply: (run) => applyUpsert(run, upsert) }
}

const updated = (rows: readonly ChangedId[]): readonly RowOutcome[] => [{ id: changedId('update', rows) }]
const deleted = (rows: readonly ChangedId[]): readonly RowOutcome[] => [{ id: changedId('delete', rows) }]

/** Rows that are hooked and written one by one, in the order of the request. */
const eachInTurn = async <One>(
  list: readonly One[],
  write: (one: One, index: number) => Promise<string[]>,
): Promise<readonly RowOutcome[]> => outcomesOf((await inTurn(list, write)).flat())

const outcomesOf = (ids: readonly string[]): readonly RowOutcome[] => ids.map((id) => ({ id }))

/**
 * One row is one statement without BEGIN and COMMIT around it, unless the requester is in a transaction. Several rows are a
 * transaction, whose end can be found out where the answer to its COMMIT is lost.
 */
async function execute(
  deps: Writes & CurrentCatalog,
  requester: Requester,
  { write, place = {}, fromLog, outcomes }: OneStatement,
): Promise<readonly RowOutcome[]> {
  const { actor, scope } = requester
  const told = (rows: readonly RowOutcome[]) => (outcomes === undefined ? rows : outcomes(rows as readonly never[]))
  const writeIn = async (tx: Tx) => told(await runWrite<RowOutcome>({ deps, requester, tx }, write, place))
  if (scope !== undefined) return writeIn(scope.tx)
  if (fromLog === undefined) return commit(deps, actor, async (tx) => ({ result: await writeIn(tx) }))
  let rows: readonly RowOutcome[]
  try {
    rows = await commitRow<RowOutcome>(deps, actor, { ...write, sending: 'prepared' }, fromLog)
  } catch (error) {
    throw placed(error, place, deps, requester.access)
  }
  return told(rows)
}

const attempts = 5

/** Steps that are part of a larger transaction can only be tried again together with it. */
async function applySteps(
  deps: ItemWrites,
  requester: Requester,
  name: string,
  { asked, apply }: Steps,
): Promise<ChangeAnswer> {
  for (let attempt = 1; ; attempt += 1)
    try {
      return await inTransaction(deps, requester, async (run) => {
        const outcomes = await apply(run)
        return answerOf(outcomes, asked && (await writtenRows(run, name, outcomes, asked)))
      })
    } catch (error) {
      if (!(error instanceof Unforeseen)) throw error
      if (attempt === attempts || requester.scope !== undefined) throw errors.unavailable()
    }
}

function answerOf(outcomes: readonly RowOutcome[], rows: readonly string[] | undefined): ChangeAnswer {
  return { ids: outcomes.map(({ id }) => id), rows, created: outcomes[0]?.created === true }
}

/** The fields to answer besides the ids; 400 and 403 as for a read, before anything is written. */
function askedFor(
  deps: Clock & Configuration & CurrentCatalog,
  { access }: Requester,
  collection: string,
  query: AnswerQuery,
): AnswerQuery | undefined {
  const asked = fieldsOf(query)
  if (asked !== undefined)
    resolveList(deps.catalog.current(), access, collection, parseListQuery(asked), resolveEnv(deps))
  return asked
}

/** The rows as their writer may read them, in the transaction that wrote them; of one that it may not, the id alone. */
async function writtenRows(
  { deps, requester, tx }: Run,
  collection: string,
  outcomes: readonly RowOutcome[],
  asked: AnswerQuery,
): Promise<readonly string[]> {
  const query = parseListQuery(asked)
  const rows: string[] = []
  for (const { id } of outcomes) {
    const key = String(JSON.parse(id))
    const plan = resolveOne(deps.catalog.current(), requester.access, collection, key, query, resolveEnv(deps))
    const { text, values } = compileOne(plan)
    const row = await tx.maybeOne<{ data: string }>(rawQuery(text, values))
    rows.push(row?.data ?? `{"id":${id}}`)
  }
  return rows
}

/** The parameters that choose fields, in any of their spellings; undefined when there are none. */
function fieldsOf(query: AnswerQuery): AnswerQuery | undefined {
  const chosen = Object.entries(query).filter(([key]) => /^(fields|relConditions)(\[|$)/.test(key))
  return chosen.some(([key]) => key.startsWith('fields')) ? Object.fromEntries(chosen) : undefined
}

const isKey = (value: unknown): boolean => typeof value === 'string' || typeof value === 'number'

function isData(rest: Record<string, unknown>): rest is { data: Record<string, unknown> } {
  return Object.keys(rest).length === 1 && rest.data !== null && typeof rest.data === 'object'
}
