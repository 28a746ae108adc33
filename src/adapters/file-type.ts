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

/** `text/html` of `Text/HTML; charset=utf-8`. */
export const essenceOf = (type: string): string => type.split(';', 1)[0]!.trim().toLowerCase()

/** Whether a browser may run content of a type, or load other content by it. */
export const isExecutable = (type: string): boolean => {
  const essence = essenceOf(type)
  return executable.has(essence) || executableFamily.test(essence)
}

const executable: ReadonlySet<string> = new Set([
  'text/xsl',
  'application/xml-dtd',
  'application/x-shockwave-flash',
  'multipart/x-mixed-replace',
  'message/rfc822',
  'text/vbscript',
  'text/cache-manifest',
])
/** Whatever such a type is called otherwise: `image/svg+xml`, `text/x-server-parsed-html`. */
const executableFamily = /html|svg|xml$|javascript|ecmascript|\/(x-)?(j|live)script[\d.]*$/
