import type { Configuration } from '../../../config/config.ts'
import { rawQuery, type Tx } from '../../../db/sql.ts'
import { hastenRemoval, holdContent, releaseContent } from '../../../db/unlogged/files.ts'
import { AppError, errors } from '../../../errors.ts'
import type { CollectionRules, Restoration } from '../../data/items/items.ts'
import {
  type ContentLocation,
  type ContentWrites,
  contentGone,
  contentOf,
  discardContent,
  tookTooLong,
} from './content.ts'
import { tenantOf, usedBytesNow } from './queries.ts'
import { contentOfVersions } from './removal.ts'

/** The columns of svc_File that describe the content. Only the content itself changes it. */
const contentColumns = [
  'filename',
  'storage',
  'storage_folder',
  'size',
  'type',
  'typeProven',
  'width',
  'height',
  'hash',
] as const

/** The rules for rows of svc_File, however they are written. */
export const fileRules = (deps: ContentWrites): CollectionRules => ({
  createdElsewhere: 'Files are created by POST /files',
  serversOwn: new Set(contentColumns),
  guard: quotaGuard(deps),
  protectedFields: { isPublic: ({ files }) => (files.protectIsPublic ? 'name' : 'wildcard') },
  restores: (_deps, version, present) => restoreContent(deps, version, present),
  // At once, and not after FILE_RETENTION_DAYS: no image of the row will say any more what it named.
  beforeErase: async (tx, id) => hastenRemoval(tx, await contentOfVersions(tx, id), 0),
})

const holdSeconds = 600

/**
 * Brings a file back to a version that names other content than the row does, or to a deleted row: the content must
 * still exist (FILE_RETENTION_DAYS), and is held until the row names it. 409 where it is gone.
 */
async function restoreContent(
  deps: ContentWrites,
  version: Readonly<Record<string, unknown>>,
  present: Readonly<Record<string, unknown>> | undefined,
): Promise<Restoration | undefined> {
  const named = ['storage', 'storage_folder', 'filename']
  if (present !== undefined && named.every((name) => (version[name] ?? null) === (present[name] ?? null)))
    return undefined
  for (const name of contentColumns) if (!(name in version)) throw errors.fieldDenied('read', name)
  const place: ContentLocation = {
    storage: String(version.storage),
    folder: (version.storage_folder as string | null) ?? null,
    filename: String(version.filename),
  }
  if (!(await holdContent(deps, contentOf(place), holdSeconds))) throw contentGone()
  const { storage, key } = contentOf(place)
  if ((await deps.storages.holding(storage).stat(key)) === undefined) {
    await discardContent(deps, place)
    throw contentGone()
  }
  return {
    values: Object.fromEntries(contentColumns.map((name) => [name, version[name] ?? null])),
    during: async (tx: Tx) => {
      if (!(await releaseContent(tx, contentOf(place)))) throw tookTooLong()
    },
  }
}

/* The limit of a tenant's files (STORAGE_QUOTA_TENANT). */

export const quotaExceeded = () => new AppError(413, 'The storage of this tenant is full', { code: 'STORAGE_QUOTA' })

/** 413 where a row that this transaction has written is too much for its tenant. */
export async function requireQuota({ config }: Configuration, tx: Tx, id: string): Promise<void> {
  const { quotaTenant } = config.storage
  const tenant = quotaTenant === undefined ? null : await tenantOf(tx, id)
  if (tenant !== null && (await usedBytesNow(tx, tenant)) > quotaTenant!) throw quotaExceeded()
}

/** Files that are given to another tenant count there from then on, so they must find room. */
const quotaGuard = (deps: Configuration): CollectionRules['guard'] => ({
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
