import type { Configuration } from '../../../config/config.ts'
import { rawQuery, type Tx } from '../../../db/sql.ts'
import { AppError } from '../../../errors.ts'
import type { CollectionRules } from '../../data/items/items.ts'
import { tenantOf, usedBytesNow } from './queries.ts'

/* The limit of a tenant's files (STORAGE_QUOTA_TENANT). */

export const quotaExceeded = () => new AppError(413, 'The storage of this tenant is full', { code: 'STORAGE_QUOTA' })

/** 413 where a row that this transaction has written is too much for its tenant. */
export async function requireQuota({ config }: Configuration, tx: Tx, id: string): Promise<void> {
  const { quotaTenant } = config.storage
  const tenant = quotaTenant === undefined ? null : await tenantOf(tx, id)
  if (tenant !== null && (await usedBytesNow(tx, tenant)) > quotaTenant!) throw quotaExceeded()
}

/** Files that are given to another tenant count there from then on, so they must find room. */
export const quotaGuard = (deps: Configuration): CollectionRules['guard'] => ({
  applies: (action, cells) =>
    action === 'update' &&
    deps.config.storage.quotaTenant !== undefined &&
    cells.some(({ field }) => field.name === 'tenant_Id'),
  async updates({ tx }, _context, changes) {
    const ids = changes.map(({ id }) => id)
    const rows = await tx.any<{ id: string; tenant: string | null }>(
      rawQuery(`select id, "tenant_Id" as tenant from "svc_File" where id = any($1::uuid[]) order by id for update`, [
        ids,
      ]),
    )
    const before = new Map(rows.map(({ id, tenant }) => [id, tenant]))
    return changes.map(({ id }) => ({
      cells: [],
      async after() {
        // One that is not there, or not the caller's to change, was not written.
        if (!before.has(id.toLowerCase())) return
        const moved = (await tenantOf(tx, id)) !== before.get(id.toLowerCase())
        if (moved) await requireQuota(deps, tx, id)
      },
    }))
  },
})
