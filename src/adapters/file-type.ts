/** So many bytes of the beginning tell most types. */
export const tellingBytes = 4100

/** The type that the first bytes of a file prove; undefined for text and for what nobody knows. */
export async function provenType(head: Uint8Array): Promise<string | undefined> {
  const { fileTypeFromBuffer } = await import('file-type')
  return (await fileTypeFromBuffer(head))?.mime
}
