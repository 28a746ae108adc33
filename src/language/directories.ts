import { mkdirSync, statSync } from 'node:fs'
import { mkdir } from 'node:fs/promises'
import { dirname } from 'node:path'

/**
 * Makes a directory and those above it that are missing; one that is there is left as it is. Node's own `recursive` never ends, and
 * takes a whole core, where the system refuses a name as missing though the directory above is there: below `/proc`, and in a
 * working directory that was removed.
 */
export async function makeDirectory(path: string, mode?: number): Promise<void> {
  const attempt = () =>
    mkdir(path, { mode }).then(
      () => undefined,
      (error: unknown) => error,
    )
  let error = await attempt()
  if (lacksOneAbove(path, error)) {
    await makeDirectory(dirname(path), mode)
    error = await attempt()
  }
  if (error !== undefined && !isDirectory(path)) throw error
}

/** {@link makeDirectory}, for code that waits for nothing. */
export function makeDirectorySync(path: string): void {
  const attempt = (): unknown => {
    try {
      mkdirSync(path)
      return undefined
    } catch (error) {
      return error
    }
  }
  let error = attempt()
  if (lacksOneAbove(path, error)) {
    makeDirectorySync(dirname(path))
    error = attempt()
  }
  if (error !== undefined && !isDirectory(path)) throw error
}

const lacksOneAbove = (path: string, error: unknown): boolean =>
  (error as NodeJS.ErrnoException | undefined)?.code === 'ENOENT' && dirname(path) !== path

const isDirectory = (path: string): boolean => statSync(path, { throwIfNoEntry: false })?.isDirectory() ?? false
