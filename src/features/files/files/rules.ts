import type { CollectionRules } from '../../data/items/items.ts'

/** What rows of svc_File say of their content. Only the content itself changes it. */
export const contentColumns = [
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

/** What holds for rows of svc_File, whichever way they are written. */
export const fileRules: CollectionRules = {
  createdElsewhere: 'Files are created by POST /files',
  serversOwn: new Set(contentColumns),
  protectedFields: { isPublic: ({ files }) => (files.protectIsPublic ? 'name' : 'wildcard') },
}
