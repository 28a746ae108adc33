import { statementName } from '../../db/statement-names.ts'
import { commit, commitRow } from '../../events/commit.ts'
import type { Runtime } from '../../runtime.ts'
import { type AnswerQuery, type Written, wantsRows, writtenRows } from './answers.ts'
import { applyTree } from './apply.ts'
import { openWrite, type Writer } from './context.ts'
import { withFreshCatalog } from './reads.ts'
import { namedReference, type ReferencePlace, type Run, runWrite } from './run.ts'
import {
  type Changed,
  canonicalKey,
  deleteStatement,
  insertStatement,
  updateStatement,
  type Write,
} from './statements.ts'
import { beforeDelete } from './system-rules.ts'
import { planTree, type Tree } from './tree.ts'
import { changedId, type Versions } from './versions.ts'

export type { Writer } from './context.ts'

/** The written rows' ids as JSON texts (`"…"` or a number), in the order of the request. */
export type Ids = readonly string[]

export type WriteOptions = {
  /** What to answer besides the ids. */
  readonly answer?: AnswerQuery
  /** 412 unless the item has one of these versions. */
  readonly ifMatch?: Versions | undefined
}

/** Creates one item; without relations in it, in one statement with its log row. */
export async function createItem(rt: Runtime, writer: Writer, collection: string, payload: unknown): Promise<string> {
  const ids = await createItems(rt, writer, collection, [payload])
  return ids[0]!
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
  { answer = {} }: WriteOptions = {},
): Promise<Written> {
  return withFreshCatalog(rt, async () => {
    const context = openWrite(rt, writer, name, 'create')
    const hasRows = wantsRows(rt, writer.access, name, answer)
    const trees: Tree[] = []
    for (const payload of payloads) trees.push(await planTree(rt, writer, context, payload))
    if (trees.length === 0) return { ids: [], rows: undefined }
    if (trees.every(isPlain) && !hasRows)
      return { ids: idsOf(await execute(rt, writer, insertStatement(context, trees), trees[0])), rows: undefined }
    return inTransaction(rt, writer, name, hasRows ? answer : undefined, (run) => createTrees(run, trees))
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
  return withFreshCatalog(rt, async () => {
    const context = openWrite(rt, writer, name, 'update')
    const hasRows = wantsRows(rt, writer.access, name, answer)
    const tree = await planTree(rt, writer, context, payload, { id: canonicalKey(context.collection, id) })
    if (isPlain(tree) && !hasRows) {
      const write = updateStatement(context, [tree.id!], tree, { ifMatch })
      return { ids: [changedId('update', await execute<Changed>(rt, writer, write, tree))], rows: undefined }
    }
    return inTransaction(rt, writer, name, hasRows ? answer : undefined, async (run) => [
      await applyTree(run, tree, [], ifMatch),
    ])
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
  return withFreshCatalog(rt, async () => {
    const context = openWrite(rt, writer, name, 'update')
    const hasRows = wantsRows(rt, writer.access, name, answer)
    const trees: Tree[] = []
    for (const { id, ...rest } of elements.filter(hasId)) {
      const key = canonicalKey(context.collection, id)
      trees.push(await planTree(rt, writer, context, isData(rest) ? rest.data : rest, { id: key }))
    }
    if (trees.length === 0) return { ids: [], rows: undefined }
    return inTransaction(rt, writer, name, hasRows ? answer : undefined, async (run) => {
      const ids: string[] = []
      for (const tree of trees) ids.push(await applyTree(run, tree))
      return ids
    })
  })
}

/** Deletes (or, with `paranoid`, marks as deleted) exactly these items, or none of them. */
export async function deleteItems(rt: Runtime, writer: Writer, name: string, ids: readonly unknown[]): Promise<Ids> {
  return withFreshCatalog(rt, async () => {
    const context = openWrite(rt, writer, name, 'delete')
    const wanted = [...new Set(ids.map((id) => canonicalKey(context.collection, id)))]
    if (wanted.length === 0) return []
    await beforeDelete(rt, context.collection, wanted)
    return idsOf(await execute(rt, writer, deleteStatement(context, wanted)))
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
  return withFreshCatalog(rt, async () => {
    const context = openWrite(rt, writer, name, 'delete')
    const key = canonicalKey(context.collection, id)
    await beforeDelete(rt, context.collection, [key])
    return changedId('delete', await execute<Changed>(rt, writer, deleteStatement(context, [key], { ifMatch })))
  })
}

/** Creates rows inside a transaction, runs of plain ones in one statement each; ids in the order of the trees. */
export async function createTrees(run: Run, trees: readonly Tree[]): Promise<string[]> {
  const ids: string[] = []
  for (let at = 0; at < trees.length; ) {
    const tree = trees[at]!
    const nested = trees.findIndex((other, index) => index >= at && !isPlain(other))
    const plain = trees.slice(at, nested === -1 ? undefined : nested)
    if (plain.length === 0) ids.push(await applyTree(run, tree))
    else ids.push(...idsOf(await runWrite(run, insertStatement(tree.context, plain), tree)))
    at += Math.max(plain.length, 1)
  }
  return ids
}

/** One row and nothing else. */
const isPlain = ({ parents, sets }: Tree): boolean => parents.length === 0 && sets.length === 0

function hasId(element: unknown): element is { id: string | number; [key: string]: unknown } {
  if (element === null || typeof element !== 'object') return false
  const { id } = element as { id?: unknown }
  return typeof id === 'string' || typeof id === 'number'
}

function isData(rest: Record<string, unknown>): rest is { data: Record<string, unknown> } {
  return Object.keys(rest).length === 1 && rest.data !== null && typeof rest.data === 'object'
}

/** The short way: one statement without BEGIN and COMMIT around it. */
async function execute<Answer = { id: string }>(
  rt: Runtime,
  { actor }: Writer,
  { text, values }: Write,
  place: ReferencePlace = {},
): Promise<readonly Answer[]> {
  try {
    return await commitRow<Answer>(rt, actor, { text, values, name: statementName(text) })
  } catch (error) {
    throw namedReference(error, place)
  }
}

async function inTransaction(
  rt: Runtime,
  writer: Writer,
  collection: string,
  answer: AnswerQuery | undefined,
  work: (run: Run) => Promise<Ids>,
): Promise<Written> {
  return commit(rt, writer.actor, async (tx) => {
    const ids = await work({ rt, writer, tx })
    const rows = answer && (await writtenRows(rt, writer, tx, collection, ids, answer))
    return { result: { ids, rows } }
  })
}

const idsOf = (rows: readonly { id: string }[]): Ids => rows.map(({ id }) => id)
