/** So many bytes of the beginning tell most types. */
export const tellingBytes = 4100

/** The type that the first bytes of a file prove; undefined for text and for unknown types. */
export async function provenType(head: Uint8Array): Promise<string | undefined> {
  const { fileTypeFromBuffer } = await import('file-type')
  return (await fileTypeFromBuffer(head))?.mime
}

/** The type that files with such a name usually have; undefined for an unknown extension. */
export async function usualType(name: string): Promise<string | undefined> {
  // Without an extension the library would take the name itself for one.
  const extension = /\.([a-z0-9]+)$/i.exec(name)?.[1]?.toLowerCase()
  if (extension === undefined) return undefined
  const { default: mimeTypes } = await import('mime-types')
  return registered.get(extension) ?? (mimeTypes.lookup(extension) || undefined)
}

/** Where the library has names of old. */
const registered: ReadonlyMap<string, string> = new Map([
  ['js', 'text/javascript'],
  ['mjs', 'text/javascript'],
  ['vcf', 'text/vcard'],
  ['yaml', 'application/yaml'],
  ['yml', 'application/yaml'],
])
