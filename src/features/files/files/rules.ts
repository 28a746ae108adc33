import type { Tx } from '../../../db/sql.ts'
import { hastenRemoval, holdContent, releaseContent } from '../../../db/unlogged/file-removals.ts'
import { errors } from '../../../errors.ts'
import type { CollectionRules, Restoration } from '../../data/items/items.ts'
import type { ContentWrites } from './capabilities.ts'
import { type ContentLocation, contentGone, contentOf, discardContent, tookTooLong } from './content.ts'
import { quotaGuard } from './quota.ts'
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
