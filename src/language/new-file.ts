import { rm, writeFile } from 'node:fs/promises'

type NewFileOptions = {
  readonly mode?: number
  /** An older file of the name is replaced; otherwise it is an error. */
  readonly replaces?: boolean
}

/**
 * Writes a small file, or leaves nothing of it. An error names the file, which Node's own does only where the file cannot be
 * opened.
 */
export async function writeNewFile(path: string, text: string, { mode, replaces = false }: NewFileOptions = {}) {
  try {
    await writeFile(path, text, { flag: replaces ? 'w' : 'wx', ...(mode !== undefined && { mode }) })
  } catch (error) {
    if ('path' in Object(error)) throw error
    await rm(path, { force: true })
    const { code, syscall, message } = error as NodeJS.ErrnoException
    throw Object.assign(new Error(`${path} cannot be written to: ${message}`, { cause: error }), {
      code,
      syscall,
      path,
    })
  }
}
