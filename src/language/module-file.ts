import { extname, join } from 'node:path'

const extension = extname(import.meta.filename)

/**
 * The file of a module that a process or a thread starts with, by its name without an extension: `.ts` in a checkout,
 * `.js` in the package, where the compiler rewrites nothing but imports.
 */
export function moduleFile(directory: string, name: string): string {
  return join(directory, `${name}${extension}`)
}
