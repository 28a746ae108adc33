import type { Collection, Field } from '../../../catalog/catalog.ts'
import type { Reader } from '../../../db/sql.ts'
import { AppError, errors } from '../../../errors.ts'
import { resolveCondition } from '../../../query/resolve.ts'
import {
  type Change,
  changeItems,
  type ItemReads,
  type ItemWrites,
  isMadeDeleted,
  mayChangeTrash,
  openWrite,
  type Requester,
  type Run,
  readPayload,
  refuseMisfits,
  type StoredValues,
} from '../items/items.ts'
import { type OrderedMove, orderOf } from './order.ts'
import { isServers, type PastRows, type PlannedRow, positionsOf } from './planned-rows.ts'
import { fieldsOfOthers, type RowBefore, rowsMarked, rowsNow, rowsWithin } from './queries.ts'

/** Writes a plan by the pipeline of items, as its caller's own changes. */

/** A statement and its values are made in one go. */
const chunk = 1000

/**
 * Writes all rows in a transaction, in an order in which every reference holds, else the last changed first: what a hook changed
 * comes back after the row that the hook belongs to. What hooks change of rows that were written before is written again. 409
 * where rows refer to each other in a circle that no column opens, and where hooks change rows without an end. `past` has the rows as they were; `cleared` are columns to be set to null because what they referred
 * to is gone.
 */
export async function applyPlan(
  deps: ItemWrites,
  run: Run,
  rows: readonly PlannedRow[],
  past: PastRows,
  cleared: (row: PlannedRow) => ReadonlySet<string>,
): Promise<void> {
  const waves = orderOf(rows.map(({ move }) => move))
  if (waves === undefined)
    throw new AppError(409, 'The rows to be undone need each other in a circle, and no column of it may be null', {
      code: 'UNDO_CIRCLE',
    })
  // The others have their place in the order alone.
  const isWritten = ({ move }: OrderedMove) => rows[move]!.action !== 'none'
  // Values that the platform writes into a row are passed for one row at a time.
  for (const wave of waves)
    for (const steps of Map.groupBy(newestFirst(rows, wave.filter(isWritten)), (step) => groupOf(rows, step)).values())
      if (steps.some(({ move }) => rows[move]!.restoring !== undefined))
        for (const step of steps) await applySteps(deps, run, rows, [step], past, cleared)
      else
        for (let at = 0; at < steps.length; at += chunk)
          await applySteps(deps, run, rows, steps.slice(at, at + chunk), past, cleared)
  if (!deps.hooks.isEmpty()) await settle(deps, run, rows, past, cleared)
}

const newestFirst = (rows: readonly PlannedRow[], steps: readonly OrderedMove[]): readonly OrderedMove[] =>
  steps
    .map((step) => ({ step, newest: BigInt(rows[step.move]!.newest ?? 0) }))
    .sort((a, b) => (a.newest < b.newest ? 1 : a.newest > b.newest ? -1 : 0))
    .map(({ step }) => step)

/** How often rows are written again before their hooks count as endless. */
const mostRounds = 3

/** Writes again what hooks have changed after it was written. */
async function settle(
  deps: ItemWrites,
  run: Run,
  rows: readonly PlannedRow[],
  past: PastRows,
  cleared: (row: PlannedRow) => ReadonlySet<string>,
): Promise<void> {
  for (let round = 1; ; round += 1) {
    const steps = await disturbed(run, rows, past, cleared)
    if (steps.length === 0) return
    if (round > mostRounds)
      throw new AppError(409, 'Hooks change rows of the undo again as often as they are brought back', {
        code: 'UNDO_HOOKS',
        details: steps
          .slice(0, 100)
          .map(({ move }) => ({ collection: rows[move]!.collection.name, id: rows[move]!.id })),
      })
    for (const step of steps) await applySteps(deps, run, rows, [step], past, cleared)
  }
}

/** Rows whose planned values hooks have changed since they were written, with these fields. */
async function disturbed(
  { tx, requester }: Run,
  rows: readonly PlannedRow[],
  past: PastRows,
  cleared: (row: PlannedRow) => ReadonlySet<string>,
): Promise<readonly OrderedMove[]> {
  const touched = await fieldsOfOthers(tx, requester.actor)
  if (touched.size === 0) return []
  const moves = [...rows.entries()].filter(
    ([, { action, collection, id }]) =>
      (action === 'create' || action === 'update') && touched.has(`${collection.name} ${id}`),
  )
  const steps: OrderedMove[] = []
  for (const own of Map.groupBy(moves, ([, { collection }]) => collection.name).values()) {
    const { collection } = own[0]![1]
    const fields = past.fields(collection)
    const ids = own.map(([, { id }]) => id)
    const now = await rowsNow(tx, collection, fields, ids)
    const before = await past.at(tx, collection, { fields }, [...new Set(own.flatMap(([, row]) => positionsOf(row)))])
    for (const [move, row] of own) {
      const only = touched.get(`${collection.name} ${row.id}`)!
      const values = now.get(row.id)
      const sources = { before, nulls: cleared(row), only, action: 'update' } as const
      const { exact } = valuesOf(row, fields, sources).stored
      const changed = [...exact].filter(([name, value]) => values !== undefined && values[name] !== value)
      if (changed.length > 0) steps.push({ move, without: [], only: changed.map(([name]) => name) })
    }
  }
  return steps
}

/**
 * Throws what would refuse to write a plan, as far as it shows without a write: 403 where the caller may not change a
 * collection, a row or a field, 400 where a value no longer fits its field. Hooks are not asked, and rows as they would
 * become are not held against row rules. Rows in conflict are refused for that, which the plan tells.
 */
export async function requireUndoable(asked: RightsAsked, rows: readonly PlannedRow[]): Promise<void> {
  for (const group of Map.groupBy(rows, ({ action, collection }) => `${action} ${collection.name}`).values())
    await named(group[0]!.collection.name, () => requireUndoableOf(asked, group))
}

type RightsAsked = {
  readonly deps: ItemReads
  readonly db: Reader
  readonly requester: Requester
  readonly past: PastRows
}

/** Of one collection and action. */
async function requireUndoableOf(
  { deps, db, requester, past }: RightsAsked,
  rows: readonly PlannedRow[],
): Promise<void> {
  const { action, collection } = rows[0]!
  if (action === 'none') return
  const { name } = collection
  const opened = openWrite(deps, requester, name, action)
  if (action !== 'create') {
    const { catalog, access, env } = opened
    const rule = resolveCondition(catalog, access, name, action, env, { includeDeleted: true })
    const ids = rows.map(({ id }) => id)
    if ((await rowsWithin(db, collection, rule, ids)).size < ids.length) throw errors.itemDenied(action)
    const mayAll = action === 'delete' || mayChangeTrash(opened)
    const alive = mayAll ? [] : rows.filter(({ fields }) => !fields.has('deletedAt')).map(({ id }) => id)
    if ((await rowsMarked(db, collection, alive)).size > 0) throw errors.itemDenied(action)
  }
  if (action === 'delete') return
  const context = { ...opened, action }
  const fields = past.fields(collection)
  for (let at = 0; at < rows.length; at += chunk) {
    const some = rows.slice(at, at + chunk)
    const before = await past.at(db, collection, { fields }, some.flatMap(positionsOf))
    for (const [index, row] of some.entries()) {
      const { payload, misfits } = valuesOf(row, fields, { before, nulls: clearedOf(row), only: undefined, action })
      const platform = row.restoring?.values
      const unread = { problems: { fields: [], relations: [] } }
      const options = { trusted: true, label: `${index}.`, ...(row.reasons.length > 0 && unread) }
      const read = () => {
        const { cells } = readPayload({ ...context, platform }, payload, options)
        if (action === 'create' && isMadeDeleted(context, cells)) throw errors.fieldDenied('create', 'deletedAt')
      }
      if (misfits.length === 0) read()
      else {
        requireAllowed(read)
        refuseMisfits(misfits.map((name) => `${index}.${name}`))
      }
    }
  }
}

/** Throws what the caller may not do; what is wrong in the values is said elsewhere. */
function requireAllowed(read: () => unknown): void {
  try {
    read()
  } catch (error) {
    if (!(error instanceof AppError) || error.status !== 400) throw error
  }
}

/** Fields that must be null because the row that they referred to is gone. */
export const clearedOf = ({ reasons }: PlannedRow): ReadonlySet<string> =>
  new Set(reasons.flatMap((reason) => (reason.reason === 'reference gone' ? reason.fields : [])))

const groupOf = (rows: readonly PlannedRow[], { move, only }: OrderedMove): string => {
  const { action, collection } = rows[move]!
  return `${only === undefined ? action : 'update'} ${collection.name}`
}

async function applySteps(
  deps: ItemWrites,
  { requester, tx, scope }: Run,
  rows: readonly PlannedRow[],
  steps: readonly OrderedMove[],
  past: PastRows,
  cleared: (row: PlannedRow) => ReadonlySet<string>,
): Promise<void> {
  const { collection, action: wanted, restoring } = rows[steps[0]!.move]!
  const platform = restoring && { collection: collection.name, values: restoring.values }
  const own = { ...requester, scope, isUndo: true, ...(platform !== undefined && { platform }) }
  await restoring?.during(tx)
  const action = steps[0]!.only === undefined ? wanted : 'update'
  const { name } = collection
  const write = (change: Change) => named(name, () => changeItems(deps, own, name, change))
  if (action === 'delete') {
    await write({ action, ids: steps.map(({ move }) => rows[move]!.id) })
    return
  }
  const fields = past.fields(collection)
  const positions = steps.flatMap(({ move }) => positionsOf(rows[move]!))
  const madeBySql = action === 'create' ? await past.madeBySql(tx, collection) : []
  const before = await past.at(tx, collection, { fields, madeBySql }, positions)
  const written = steps.map((step) => {
    const row = rows[step.move]!
    const nulls = new Set([...step.without, ...cleared(row)])
    const { stored, ...values } = valuesOf(row, fields, { before, nulls, only: step.only, action })
    return { id: row.id, ...values, stored: { ...stored, madeBySql: cellsOf(row, madeBySql, before) } }
  })
  // Throws, and first for what the caller may not do.
  if (written.some(({ misfits }) => misfits.length > 0))
    await requireUndoable(
      { deps, db: tx, requester: own, past },
      steps.map(({ move }) => rows[move]!),
    )
  if (action === 'create')
    await write({
      action,
      asList: true,
      payloads: written.map(({ payload }) => payload),
      stored: written.map(({ stored }) => stored),
    })
  else
    await write({
      action: 'update',
      changes: written.map(({ id, payload, stored }, index) => ({ id, payload, stored, label: `${index}` })),
    })
}

/** A refusal says of which collection: there may be several. */
async function named<Result>(collection: string, work: () => Promise<Result>): Promise<Result> {
  try {
    return await work()
  } catch (error) {
    if (!(error instanceof AppError) || error.status >= 500) throw error
    const { status, message, code, details, members } = error
    throw new AppError(status, `${collection}: ${message}`, {
      code,
      details,
      cause: error,
      ...(members !== undefined && { members: { ...members } }),
    })
  }
}

type Sources = {
  readonly before: ReadonlyMap<string, RowBefore>
  readonly nulls: ReadonlySet<string>
  readonly only: readonly string[] | undefined
  readonly action: 'create' | 'update' | 'none'
}

type RowToWrite = {
  readonly payload: Readonly<Record<string, unknown>>
  readonly stored: StoredValues
  /** Columns whose value does not fit: such a row is not written. */
  readonly misfits: readonly string[]
}

/**
 * The columns to write, as a payload and as they are stored. A new row leaves out what is null by itself. Columns that the row
 * did not have yet are no part of what it was: a new row takes their defaults.
 */
function valuesOf(
  { collection, image, fields: set, dangling }: PlannedRow,
  fields: readonly Field[],
  { before, nulls, only, action }: Sources,
): RowToWrite {
  const misfits: string[] = []
  const payload: Record<string, unknown> = {}
  const exact = new Map<string, string | null>()
  const servers = new Map<string, string | null>()
  for (const field of fields) {
    const { name } = field
    const position = set.get(name) ?? image
    const isNull = nulls.has(name)
    if ((position === undefined && !isNull) || (only !== undefined && !only.includes(name))) continue
    const was = isNull ? undefined : before.get(position!)!
    if (was?.younger.includes(name) === true) continue
    const isMisfit = was?.misfits.includes(name) === true
    if (isMisfit) misfits.push(name)
    const value = was?.exact[name] ?? null
    // Hidden values are stored as they were, a password's hash too.
    if (isServers(collection, name) || field.hidden) servers.set(name, value)
    else if (isMisfit || action !== 'create' || value !== null || isFilled(collection, field)) {
      payload[name] = was === undefined ? null : was.shown[name]
      exact.set(name, value)
    }
  }
  return { payload, stored: { exact, servers, dangling }, misfits }
}

/** Of a new row, the columns that no definition names; a column that the row did not have, or that its value does not fit, takes its default. */
const cellsOf = (
  { image, fields: set }: PlannedRow,
  madeBySql: readonly Field[],
  before: ReadonlyMap<string, RowBefore>,
): StoredValues['madeBySql'] =>
  madeBySql.flatMap((field) => {
    const { name, pgType } = field
    const was = before.get((set.get(name) ?? image)!)!
    return was.younger.includes(name) || was.misfits.includes(name)
      ? []
      : [{ field, value: was.exact[name] ?? null, pgType }]
  })

const isFilled = ({ sortEnabled }: Collection, field: Field): boolean =>
  field.default !== undefined || (sortEnabled && field.name === 'sort')
