/** Bringing one collection or one tenant back, beside everything else that goes on: from the log, or from a backup. */
import type { IdSource } from '../../../adapters/ids.ts'
import type { Catalog, Collection } from '../../../catalog/catalog.ts'
import { logTable } from '../../../catalog/log-triggers.ts'
import { clientError } from '../../../db/errors.ts'
import { type Reader, rawQuery, type UnloggedWrites } from '../../../db/sql.ts'
import { AppError } from '../../../errors.ts'
import { systemActor } from '../../../events/types.ts'
import { isUuid } from '../../../language/text.ts'
import { systemAccess } from '../../../query/access.ts'
import {
  isProtected,
  type PastState,
  type RestorablePart,
  type RestoreChoices,
  type RestoredPart,
  restoreState,
  type StateReport,
  type TenantRows,
  type UndoWrites,
} from '../../data/undo/undo.ts'
import type { StorageServices } from '../../files/storage/storage.ts'
import { loadPart } from './loading.ts'
import { readPlace } from './place.ts'

type PartWrites = UndoWrites & UnloggedWrites & StorageServices & IdSource

/** A moment (a time or a cursor) that the log reaches back to, or the place of a backup. */
export type RestoredFrom = { readonly at: string } | { readonly file: string }

export type PartReport = StateReport & {
  /** The log's id of what was written, by which it can be undone. */
  readonly requestId: string
}

/** @throws {AppError} 404, 409 for a collection that is never brought back by itself, 410 where the log does not reach back */
export function restoreCollection(
  deps: PartWrites,
  collection: string,
  from: RestoredFrom,
  choices: RestoreChoices,
): Promise<PartReport> {
  return restore(deps, { what: 'collection', name: collection, collections: [collection] }, from, choices)
}

/** All rows of a tenant (by its id or name), its members and files, and the tenant itself. */
export async function restoreTenant(
  deps: PartWrites,
  tenant: string,
  from: RestoredFrom,
  choices: RestoreChoices,
): Promise<PartReport> {
  if (!deps.config.tenancy.enabled) throw new AppError(400, 'There are no tenants: MULTI_TENANT is off')
  const id = await tenantOf(deps.db, tenant)
  return restore(deps, { what: 'tenant', name: id, ...partOfTenant(deps.catalog.current(), id) }, from, choices)
}

async function restore(
  deps: PartWrites,
  part: RestoredPart,
  from: RestoredFrom,
  choices: RestoreChoices,
): Promise<PartReport> {
  const requestId = deps.newId()
  const actor = { ...systemActor, userAgent: 'daybook restore', requestId, logRequestId: requestId }
  const state: PastState =
    'at' in from
      ? { by: 'log', at: from.at }
      : {
          by: 'backup',
          load: async (tx) => {
            const source = await readPlace(deps, from.file)
            try {
              return await loadPart(deps, tx, source, part, { writesContent: !choices.dryRun })
            } finally {
              source.destroy()
            }
          },
        }
  try {
    return { ...(await restoreState(deps, { actor, access: systemAccess }, part, state, choices)), requestId }
  } catch (error) {
    throw clientError(error) ?? error
  }
}

export const home = 'svc_Tenant'
export const tenantColumn = 'tenant_Id'

/** Tasks that waited then have run since, and would run again. */
const neverAgain = new Set(['svc_Tasks'])

/** Which rows are a tenant's: those of collections with a column that says so, and what is a part of them. */
function partOfTenant({ collections }: Catalog, id: string): RestorablePart & { readonly tenant: TenantRows } {
  const all = [...collections.values()].filter(({ name, logged }) => logged && !neverAgain.has(name))
  const owned = all.filter(({ fields }) => fields.has(tenantColumn))
  const names = new Set(owned.map(({ name }) => name))
  const parts = all.flatMap((collection) => partsIn(collection, names))
  const others = parts.map(({ collection }) => collection)
  return { collections: [home, ...names, ...others], tenant: { id, home, parts } }
}

/** By the relation whose rows take this one with them. */
export function partsIn(collection: Collection, owned: ReadonlySet<string>): TenantRows['parts'] {
  const { name, fields, relations } = collection
  if (name === home || fields.has(tenantColumn) || isProtected(name)) return []
  const whole = [...relations.values()].find(
    ({ kind, target, foreignKey, onDelete }) =>
      kind === 'belongsTo' && onDelete === 'CASCADE' && owned.has(target) && fields.get(foreignKey)?.nullable === false,
  )
  return whole === undefined ? [] : [{ collection: name, column: whole.foreignKey, of: whole.target }]
}

/** Also of a tenant that is gone. */
export async function tenantOf(db: Reader, tenant: string): Promise<string> {
  if (isUuid(tenant)) return tenant.toLowerCase()
  const row = await db.maybeOne<{ id: string }>(
    rawQuery(
      `select id::text, 0 as gone, 0::bigint as position from "${home}" where name = $1
       union all select "entityId", 1, -position from "${logTable}"
       where type = 'data' and entity = '${home}' and action = 'delete' and changes->'before'->>'name' = $1
       order by gone, position limit 1`,
      [tenant],
    ),
  )
  if (row === null || row === undefined)
    throw new AppError(404, `There is no tenant ${tenant}, and the log knows of none`)
  return row.id
}
