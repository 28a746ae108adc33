import type { Collection } from '../../../catalog/catalog.ts'
import { rawQuery, sql, type Tx } from '../../../db/sql.ts'
import { AppError, errors } from '../../../errors.ts'
import { commit } from '../../../events/commit.ts'
import { readAs } from '../../../http/shapes.ts'
import { createParams, ident, type Params } from '../../../query/sql.ts'
import { type ItemReads, type ItemWrites, keyCell, type Requester, runWrite, type WriteContext } from './context.ts'
import { SortBody } from './declarations.ts'
import { mayWrite, readPayload } from './payload.ts'
import { openWrite } from './plan.ts'
import { canonicalKey, lastPlace, ruleSql, updateStatement } from './statements.ts'

type SortResult = { readonly item: unknown; readonly collection: string; readonly newSort: number }

/**
 * Moves an item before or after another one in the manual order of its collection. Items from that
 * place on move up by one, as far as they are the caller's to update and of the target's tenant. One move at a time.
 *
 * @throws AppError 404 for an unknown collection or item, 403 without the update permission for `sort`, 400 for a
 *   collection without an integer field `sort` and for a request that names no items
 */
export async function sortItem(
  deps: ItemWrites,
  requester: Requester,
  name: string,
  body: unknown,
): Promise<SortResult> {
  const context = openSort(deps, requester, name)
  const { item, to, mode } = readAs(SortBody, body)
  const isAfter = mode === 'after'
  const move: SortMove = { context, item: known(context, item), target: known(context, to, 'Target item'), isAfter }
  return commit(deps, requester.actor, async (tx) => {
    const newSort = await moveItem({ deps, requester, tx }, move)
    return { result: { item, collection: name, newSort } }
  })
}

type SortContext = WriteContext & { readonly action: 'update' }
type NamedItem = { readonly key: string; readonly given: unknown; readonly what: string }
type SortMove = {
  readonly context: SortContext
  readonly item: NamedItem
  readonly target: NamedItem
  readonly isAfter: boolean
}

function openSort(deps: ItemReads, requester: Requester, name: string): SortContext {
  const collection = deps.catalog.current().collections.get(name)
  if (collection === undefined)
    throw new AppError(404, `Collection '${name}' does not exist`, { code: 'UNKNOWN_COLLECTION' })
  const denied = new AppError(403, `You don't have permission to sort items in '${name}'`)
  if (!requester.access.admin && requester.access.grant(name, 'update') === undefined) throw denied
  const context = openWrite(deps, requester, name, 'update')
  const field = collection.fields.get('sort')
  if (field?.kind !== 'integer') throw errors.badBody(`Collection '${name}' does not have a sort field`)
  if (context.grant !== undefined && !mayWrite(context, context.grant, field)) throw denied
  return context
}

/** Text that cannot be an id names no item either. */
function known({ collection }: SortContext, given: unknown, what = 'Item'): NamedItem {
  try {
    return { key: canonicalKey(collection, given), given, what }
  } catch (error) {
    throw error instanceof AppError && error.status === 400 ? notFound(what, given) : error
  }
}

const notFound = (what: string, given: unknown): AppError =>
  new AppError(404, `${what} with ID ${String(given).slice(0, 100)} not found`)

async function moveItem(
  run: Parameters<typeof runWrite>[0],
  { context, item, target, isAfter }: SortMove,
): Promise<number> {
  const { tx } = run
  const { collection } = context
  await tx.any(sql`select pg_advisory_xact_lock(hashtextextended(${`order of ${collection.name}`}, 0))`)
  const moved = await rowAt(tx, context, item)
  const found = await rowAt(tx, context, target)
  const near = (await numberAgain(tx, context, found)) ? await rowAt(tx, context, target) : found
  if (item.key === target.key) return moved.sort ?? 0
  const place = near.sort ?? (await numberRest(tx, context, near))
  const newSort = isAfter ? place + 1 : place
  await makeRoom(tx, context, near, item.key, newSort)
  const { cells } = readPayload(context, { sort: newSort })
  const [written] = await runWrite(run, updateStatement(context, [item.key], { cells, references: new Map() }))
  if (written === undefined) throw errors.itemDenied('update')
  return newSort
}

type SortedRow = { readonly key: string; readonly sort: number | null; readonly tenant: string | null }

async function rowAt(tx: Tx, context: SortContext, { key, given, what }: NamedItem): Promise<SortedRow> {
  const { collection } = context
  const params = createParams()
  const cell = keyCell(collection.primaryKey, key)
  const own = `t.${ident(collection.primaryKey.name)} = ${params.bind(cell.value, cell.pgType)}`
  const tenant = collection.fields.has('tenant_Id') ? 't."tenant_Id"::text' : 'null::text'
  const row = await tx.maybeOne<Omit<SortedRow, 'key'>>(
    rawQuery(
      `select t.sort, ${tenant} as tenant from ${ident(collection.name)} t where ${own} and ${ruleSql(context, 't', params)}`,
      params.values,
    ),
  )
  if (row === undefined) throw notFound(what, given)
  return { ...row, key }
}

/** Numbers the rows from 1 on in their order, where one of them has the last place that there is; whether it did. */
async function numberAgain(tx: Tx, context: SortContext, near: SortedRow): Promise<boolean> {
  const { collection } = context
  const params = createParams()
  const table = ident(collection.name)
  const key = ident(collection.primaryKey.name)
  const scope = scopeSql(context, near, params)
  const full = `exists (select from ${table} t where t.sort >= ${params.bind(lastPlace, 'bigint')} and ${scope})`
  const numbered = await tx.any(
    rawQuery(
      `update ${table} as t set sort = n.place${touch(collection)} from (
         select t.${key} as key, row_number() over (order by t.sort, t.${key}) as place from ${table} t
         where t.sort is not null and ${scope}) n
       where t.${key} = n.key and t.sort is distinct from n.place and ${full} returning 1 as one`,
      params.values,
    ),
  )
  return numbered.length > 0
}

/** Rows without a place follow the others in the order of their keys; gives the place of one of them. */
async function numberRest(tx: Tx, context: SortContext, near: SortedRow): Promise<number> {
  const { collection } = context
  const params = createParams()
  const table = ident(collection.name)
  const key = ident(collection.primaryKey.name)
  const scope = scopeSql(context, near, params)
  const cell = keyCell(collection.primaryKey, near.key)
  const rows = await tx.any<{ sort: number; isNear: boolean }>(
    rawQuery(
      `update ${table} as t set sort = n.place from (
         select t.${key} as key, (select coalesce(max(t.sort), 0) from ${table} t where ${scope}) + row_number() over (order by t.${key}) as place
         from ${table} t where t.sort is null and ${scope}) n
       where t.${key} = n.key returning t.sort, t.${key} = ${params.bind(cell.value, cell.pgType)} as "isNear"`,
      params.values,
    ),
  )
  const placed = rows.find(({ isNear }) => isNear)
  if (placed === undefined) throw errors.itemDenied('update')
  return placed.sort
}

async function makeRoom(tx: Tx, context: SortContext, near: SortedRow, moved: string, from: number): Promise<void> {
  const { collection } = context
  const params = createParams()
  const cell = keyCell(collection.primaryKey, moved)
  const others = `t.${ident(collection.primaryKey.name)} <> ${params.bind(cell.value, cell.pgType)}`
  const following = `t.sort >= ${params.bind(from, 'integer')}`
  await tx.any(
    rawQuery(
      `update ${ident(collection.name)} as t set sort = t.sort + 1${touch(collection)} where ${following} and ${others} and ${scopeSql(context, near, params)}`,
      params.values,
    ),
  )
}

const touch = ({ timestamps }: Collection): string => (timestamps ? ', "updatedAt" = now()' : '')

/** The rows that are ordered together: those the caller may update, of one tenant. */
function scopeSql(context: SortContext, { tenant }: SortedRow, params: Params): string {
  const rule = ruleSql(context, 't', params)
  const isPerTenant = context.config.tenancy.enabled && context.collection.fields.has('tenant_Id')
  return isPerTenant ? `${rule} and t."tenant_Id" is not distinct from ${params.bind(tenant, 'uuid')}` : rule
}
