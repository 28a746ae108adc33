import { hastenRemoval } from '../../../db/unlogged/file-removals.ts'
import type { CollectionRules } from '../../data/items/items.ts'
import type { ContentWrites } from './capabilities.ts'
import { quotaGuard } from './quota.ts'
import { contentOfVersions } from './removal.ts'
import { contentColumns, restoreContent } from './restore.ts'

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
