import type { Collection } from '../../../catalog/catalog.ts'
import type { ParamValue } from '../../../catalog/values.ts'
import { rawQuery } from '../../../db/sql.ts'
import { ident } from '../../../query/sql.ts'
import { type Cell, isJunction, keyCell, type Run, type WriteContext, withCells } from './context.ts'
import { isScoped, isTenanted } from './payload.ts'
import type { Tree } from './plan.ts'

/**
 * The tenant of nested rows. What a caller with a tenant writes belongs to that one. A nested row of a caller without one belongs
 * to the tenant of the row that it is nested in, unless it names another, or none: otherwise the parent's tenant would not see it.
 */

/** The tenant of a row, for the rows nested in it; undefined or null for none. Looked up when the first of them needs it. */
export type TenantOfRow = () => Promise<ParamValue | undefined>

export const noTenant: TenantOfRow = async () => undefined

const tenantField = 'tenant_Id'

/** The cells of a new row that is nested in another one, with the tenant of that one where they name none. */
export async function withTenant(
  context: WriteContext,
  cells: readonly Cell[],
  above: TenantOfRow,
): Promise<readonly Cell[]> {
  if (above === noTenant || !takesTenant(context) || cellOfTenant(cells) !== undefined) return cells
  const tenant = await above()
  return tenant == null ? cells : withCells(cells, [keyCell(context.collection.fields.get(tenantField)!, tenant)])
}

/**
 * The tenant that a row gives to those nested in it: the one it is written with, or else the stored one. `cells` are those
 * that it is written with, as far as they are known when it is asked for.
 */
export function tenantOf(
  run: Run,
  { context, id }: Pick<Tree, 'context' | 'id'>,
  cells: () => readonly Cell[],
  above: TenantOfRow,
): TenantOfRow {
  const { collection, config } = context
  if (!isWithoutTenant(context)) return noTenant
  // A row of a junction is a part of its parent.
  if (isJunction(collection) && !isTenanted(collection, config)) return above
  if (!collection.fields.has(tenantField)) return noTenant
  let stored: ReturnType<TenantOfRow> | undefined
  return async () => {
    const cell = cellOfTenant(cells())
    if (cell !== undefined) return cell.value
    if (id === undefined) return takesTenant(context) ? above() : undefined
    stored ??= storedTenant(run, collection, id)
    return stored
  }
}

async function storedTenant({ tx }: Run, { name, primaryKey }: Collection, id: string) {
  const { value, pgType } = keyCell(primaryKey, id)
  const key = `t.${ident(primaryKey.name)} = $1::${pgType}`
  const row = await tx.maybeOne<{ tenant: string | null }>(
    rawQuery(`select t.${ident(tenantField)}::text as tenant from ${ident(name)} t where ${key}`, [value]),
  )
  return row?.tenant
}

/** Rows of collections that belong to all tenants alike stay so. */
const takesTenant = (context: WriteContext): boolean =>
  isWithoutTenant(context) && isTenanted(context.collection, context.config)

const isWithoutTenant = ({ access, config }: WriteContext): boolean =>
  config.tenancy.enabled && access.tenantId === undefined && !isScoped(access, config)

const cellOfTenant = (cells: readonly Cell[]): Cell | undefined => cells.find(({ field }) => field.name === tenantField)

/** A tenant that is made by the same request is needed by the rows beside it. */
export function tenantFirst(parents: Tree['parents']): Tree['parents'] {
  const isTenant = ({ relation, isBeside }: Tree['parents'][number]) => relation.foreignKey === tenantField && !isBeside
  return parents.length > 1 && parents.some(isTenant)
    ? [...parents.filter(isTenant), ...parents.filter((parent) => !isTenant(parent))]
    : parents
}
