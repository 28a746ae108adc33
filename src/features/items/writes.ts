import { breather } from '../../breather.ts'
import { commit, commitRow } from '../../events/commit.ts'
import type { Runtime } from '../../runtime.ts'
import { type AnswerQuery, type Written, wantsRows, writtenRows } from './answers.ts'
import { applyTree, noteTree } from './apply.ts'
import { openWrite, type Writer } from './context.ts'
import { type FromLog, rowFromLog } from './from-log.ts'
import { meetsHooks } from './hooking.ts'
import { guardInserts, guardTrees, isGuarded } from './identities.ts'
import { insertOf, updateOf } from './kept-writes.ts'
import { freshOutside } from './reads.ts'
import { deleteRows } from './removal.ts'
import { type Place, placed, placeOf, type Run, runWrite } from './run.ts'
import {
  type Changed,
  canonicalKey,
  deleteStatement,
  insertStatement,
  updateStatement,
  type Write,
} from './statements.ts'
import { beforeDelete } from './system-rules.ts'
import { inTransaction } from './transaction.ts'
import { planTree, type Tree } from './tree.ts'
import { learnNames } from './unknown-names.ts'
import { changedId, type Versions } from './versions.ts'

export type { Writer } from './context.ts'

/** The written rows' ids as JSON texts (`"…"` or a number), in the order of the request. */
export type Ids = readonly string[]

export type WriteOptions = {
  /** What to answer besides the ids. */
  readonly answer?: AnswerQuery
  /** 412 unless the item has one of these versions. */
  readonly ifMatch?: Versions | undefined
  /** The payloads are a list in the request, so each is named by its place in it: `2.name`. */
  readonly asList?: boolean
}

/** Creates one item; without relations in it, in one statement with its log row. */
export async function createItem(rt: Runtime, writer: Writer, collection: string, payload: unknown): Promise<string> {
  return (await writeNew(rt, writer, collection, [payload])).ids[0]!
}

/** Creates all or none; plain rows in one statement. */
export async function createItems(
  rt: Runtime,
  writer: Writer,
  name: string,
  payloads: readonly unknown[],
): Promise<Ids> {
  return (await writeNew(rt, writer, name, payloads)).ids
}

/** Changes one item that the caller may update; 403 when there is none, or when the change would leave the caller's scope. */
export async function updateItem(
  rt: Runtime,
  writer: Writer,
  name: string,
  id: string,
  payload: unknown,
): Promise<string> {
  return (await writeChange(rt, writer, name, id, payload)).ids[0]!
}

/** As {@link createItems}, and answers what was asked for. */
export async function writeNew(
  rt: Runtime,
  writer: Writer,
  name: string,
  payloads: readonly unknown[],
  { answer = {}, asList = false }: WriteOptions = {},
): Promise<Written> {
  return freshOutside(rt, writer.scope?.tx, async () => {
    await learnNames(rt, name, payloads)
    const context = openWrite(rt, writer, name, 'create')
    const asked = askedFor(rt, writer, name, answer)
    if (payloads.length === 0) return { ids: [], rows: undefined }
    const plan = async (run?: Run) => {
      const trees: Tree[] = []
      const breathe = breather()
      for (const [index, payload] of payloads.entries()) {
        const label = asList ? { label: `${index}` } : {}
        trees.push(await planTree(rt, writer, context, payload, { ...label, ...(run && { run }) }))
        await breathe()
      }
      return trees
    }
    if (meetsHooks(rt, context, payloads))
      return written(rt, writer, name, asked, async (run) => createTrees(run, await plan(run)))
    const trees = await plan()
    if (trees.length <= rowsPerStatement && trees.every(isPlain) && asked === undefined) {
      guardInserts({ rt, writer }, context, cellsOf(trees))
      const write = trees.length === 1 ? insertOf(context, trees[0]!) : insertStatement(context, trees)
      const fromLog = trees.length === 1 ? rowFromLog(context, 'create') : undefined
      return { ids: idsOf(await execute(rt, writer, write, { place: placeOf(trees), fromLog })), rows: undefined }
    }
    return written(rt, writer, name, asked, (run) => createTrees(run, trees))
  })
}

/** As {@link updateItem}, with a condition on the item's version, and answers what was asked for. */
export async function writeChange(
  rt: Runtime,
  writer: Writer,
  name: string,
  id: string,
  payload: unknown,
  { answer = {}, ifMatch }: WriteOptions = {},
): Promise<Written> {
  return freshOutside(rt, writer.scope?.tx, async () => {
    await learnNames(rt, name, [payload])
    const context = openWrite(rt, writer, name, 'update')
    const asked = askedFor(rt, writer, name, answer)
    const key = canonicalKey(context.collection, id)
    if (meetsHooks(rt, context, [payload]))
      return written(rt, writer, name, asked, async (run) => [
        await applyTo(run, await planTree(rt, writer, context, payload, { id: key, run }), ifMatch),
      ])
    const tree = await planTree(rt, writer, context, payload, { id: key })
    if (isPlain(tree) && asked === undefined && !isGuarded(context.collection, 'update', tree.cells)) {
      const write =
        ifMatch === undefined ? updateOf(context, key, tree) : updateStatement(context, [key], tree, { ifMatch })
      const fromLog = rowFromLog(context, 'update', key)
      const changed = await execute<Changed>(rt, writer, write, { place: tree, fromLog })
      return { ids: [changedId('update', changed)], rows: undefined }
    }
    return written(rt, writer, name, asked, async (run) => [await applyTo(run, tree, ifMatch)])
  })
}

/**
 * Changes all or none, in one transaction. Elements are `{id, data: {…}}` or `{id, …fields}`; those without an id are
 * skipped (spec/items.md §1).
 */
export async function writeChanges(
  rt: Runtime,
  writer: Writer,
  name: string,
  elements: readonly unknown[],
  { answer = {} }: WriteOptions = {},
): Promise<Written> {
  return freshOutside(rt, writer.scope?.tx, async () => {
    const given = elements.flatMap((element, index) => (hasId(element) ? [changeIn(element, `${index}`)] : []))
    const payloads = given.map(({ payload }) => payload)
    await learnNames(rt, name, payloads)
    const context = openWrite(rt, writer, name, 'update')
    const asked = askedFor(rt, writer, name, answer)
    const changes = given.map(({ id, ...change }) => ({ id: canonicalKey(context.collection, id), ...change }))
    if (changes.length === 0) return { ids: [], rows: undefined }
    const plan = async (run?: Run) => {
      const trees: Tree[] = []
      const breathe = breather()
      for (const { id, payload, label } of changes) {
        trees.push(await planTree(rt, writer, context, payload, { id, label, ...(run && { run }) }))
        await breathe()
      }
      return trees
    }
    const trees = meetsHooks(rt, context, payloads) ? undefined : await plan()
    return written(rt, writer, name, asked, async (run) => {
      const all = trees ?? (await plan(run))
      const guarded = await guardTrees(run, all)
      const ids: string[] = []
      for (const tree of all) ids.push(await applyTree(guarded, tree))
      return ids
    })
  })
}

/** Deletes (or, with `paranoid`, marks as deleted) exactly these items, or none of them. */
export async function deleteItems(rt: Runtime, writer: Writer, name: string, ids: readonly unknown[]): Promise<Ids> {
  return freshOutside(rt, writer.scope?.tx, async () => {
    const context = openWrite(rt, writer, name, 'delete')
    const wanted = [...new Set(ids.map((id) => canonicalKey(context.collection, id)))]
    if (wanted.length === 0) return []
    if (meetsHooks(rt, context) || isGuarded(context.collection, 'delete'))
      return inTransaction(rt, writer, async (run) => (await deleteRows(run, context, wanted)).map(({ id }) => id!))
    await beforeDelete(rt, context.collection, wanted)
    const fromLog = wanted.length === 1 ? rowFromLog(context, 'delete', wanted[0]) : undefined
    return idsOf(await execute(rt, writer, deleteStatement(context, wanted), { fromLog }))
  })
}

/** Deletes one item if it has one of these versions. */
export async function deleteItem(
  rt: Runtime,
  writer: Writer,
  name: string,
  id: string,
  ifMatch: Versions | undefined,
): Promise<string> {
  if (ifMatch === undefined) return (await deleteItems(rt, writer, name, [id]))[0]!
  return freshOutside(rt, writer.scope?.tx, async () => {
    const context = openWrite(rt, writer, name, 'delete')
    const key = canonicalKey(context.collection, id)
    if (meetsHooks(rt, context) || isGuarded(context.collection, 'delete'))
      return inTransaction(rt, writer, async (run) =>
        changedId('delete', await deleteRows(run, context, [key], ifMatch)),
      )
    await beforeDelete(rt, context.collection, [key])
    const fromLog = rowFromLog(context, 'delete', key)
    return changedId(
      'delete',
      await execute<Changed>(rt, writer, deleteStatement(context, [key], { ifMatch }), { fromLog }),
    )
  })
}

/** A statement is made in one go, and nobody else has a turn meanwhile. */
const rowsPerStatement = 2000

/** Creates rows inside a transaction, runs of plain ones in one statement each; ids in the order of the trees. */
export async function createTrees(given: Run, trees: readonly Tree[]): Promise<string[]> {
  const run = await guardTrees(given, trees)
  const ids: string[] = []
  for (let at = 0; at < trees.length; ) {
    const tree = trees[at]!
    const nested = trees.findIndex((other, index) => index >= at && !isPlain(other))
    const end = Math.min(nested === -1 ? trees.length : nested, at + rowsPerStatement)
    const plain = trees.slice(at, end)
    if (plain.length === 0) ids.push(await applyTree(run, tree))
    else {
      guardInserts(run, tree.context, cellsOf(plain))
      const made = idsOf(await runWrite(run, insertStatement(tree.context, plain), placeOf(plain)))
      for (const [index, id] of made.entries()) noteTree(run, plain[index]!, id)
      ids.push(...made)
    }
    at += Math.max(plain.length, 1)
  }
  return ids
}

async function applyTo(run: Run, tree: Tree, ifMatch: Versions | undefined): Promise<string> {
  return applyTree(await guardTrees(run, [tree]), tree, [], ifMatch)
}

const cellsOf = (trees: readonly Tree[]) => trees.map(({ cells }) => cells)

/** One row and nothing else. */
const isPlain = ({ parents, sets }: Tree): boolean => parents.length === 0 && sets.length === 0

function hasId(element: unknown): element is { id: string | number; [key: string]: unknown } {
  if (element === null || typeof element !== 'object') return false
  const { id } = element as { id?: unknown }
  return typeof id === 'string' || typeof id === 'number'
}

/** `{id, data: {…}}` or `{id, …fields}`, and its place in the request. */
function changeIn({ id, ...rest }: { readonly id: string | number }, label: string) {
  return { id, payload: isData(rest) ? rest.data : rest, label }
}

function isData(rest: Record<string, unknown>): rest is { data: Record<string, unknown> } {
  return Object.keys(rest).length === 1 && rest.data !== null && typeof rest.data === 'object'
}

/** What is to be answered besides the ids; 400 and 403 before anything is written. */
function askedFor(rt: Runtime, { access }: Writer, name: string, answer: AnswerQuery): AnswerQuery | undefined {
  return wantsRows(rt, access, name, answer) ? answer : undefined
}

type Short = {
  readonly place?: Place | undefined
  /** Of a statement on one row; see `commitRow`. */
  readonly fromLog?: FromLog | undefined
}

/**
 * The short way of one row: one statement without BEGIN and COMMIT around it, unless the writer is in a transaction. Of
 * several rows a transaction, so that it can be told how it ended.
 */
async function execute<Answer = { id: string }>(
  rt: Runtime,
  writer: Writer,
  write: Write,
  { place = {}, fromLog }: Short,
): Promise<readonly Answer[]> {
  const { actor, scope } = writer
  if (scope !== undefined) return runWrite<Answer>({ writer, tx: scope.tx }, write, place)
  if (fromLog === undefined)
    return commit(rt, actor, async (tx) => ({ result: await runWrite<Answer>({ writer, tx }, write, place) }))
  try {
    return await commitRow<Answer>(rt, actor, { ...write, sending: 'prepared' }, fromLog as never)
  } catch (error) {
    throw placed(error, place)
  }
}

function written(
  rt: Runtime,
  writer: Writer,
  collection: string,
  asked: AnswerQuery | undefined,
  work: (run: Run) => Promise<Ids>,
): Promise<Written> {
  return inTransaction(rt, writer, async (run) => {
    const ids = await work(run)
    return { ids, rows: asked && (await writtenRows(rt, writer, run.tx, collection, ids, asked)) }
  })
}

const idsOf = (rows: readonly { id: string }[]): Ids => rows.map(({ id }) => id)
