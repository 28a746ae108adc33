import { randomBytes, randomUUID } from 'node:crypto'

/** The owner of a file; both members may be missing. */
export type Owner = { readonly tenantId: string | undefined; readonly userId: string | undefined }

/** The folder of new content with STORAGE_FOLDER_STRUCTURE; ids only, so it is a path of names. */
export function folderOf({ tenantId, userId }: Owner): string {
  const user = userId === undefined ? 'system' : `users/${userId}`
  return tenantId === undefined ? user : `tenants/${tenantId}/${user}`
}

/** A new id and the name of its content, from what it was sent as. */
export function newName(originalFilename: string): { readonly id: string; readonly filename: string } {
  // Not made of the time: an id is part of a key that nobody shall guess.
  const id = randomUUID()
  return { id, filename: `${id}-${leafOf(originalFilename)}` }
}

/** The name of content that takes the place of other content; never that of any other. */
export function nameOfReplacement(id: string, originalFilename: string): string {
  return `${id}-${randomBytes(4).toString('hex')}-${leafOf(originalFilename)}`
}

/** 40 characters of the name that every system takes, and its extension. */
function leafOf(originalFilename: string): string {
  const [, name = '', extension = ''] = /^(.*?)(\.[A-Za-z0-9]{1,10})?$/su.exec(baseOf(originalFilename)) ?? []
  const plain = name.replaceAll(/[^A-Za-z0-9._-]+/g, '_').slice(0, 40)
  return `${plain}${extension}`
}

/** Of a path, in either system's spelling, the last part. */
const baseOf = (name: string): string => name.split(/[/\\]/).at(-1) ?? ''

/** The name under which a file was sent, fit to be kept and shown: no path, no control characters, at most 255 bytes. */
export function shownName(name: string): string {
  const clean = baseOf(name)
    .toWellFormed()
    .replaceAll(/[\x00-\x1f\x7f]/g, '')
    .trim()
  let shown = clean
  while (Buffer.byteLength(shown) > 255) shown = [...shown].slice(0, -1).join('')
  return shown === '' ? 'file' : shown
}
