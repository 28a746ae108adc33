import { existsSync, readdirSync, statSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { pathToFileURL } from 'node:url'
import { ConfigError } from '../config/config.ts'

const kinds = ['hook', 'endpoint', 'schedule', 'task', 'node', 'module', 'console'] as const
type Kind = (typeof kinds)[number]

/** An extension on disk: `svc-{kind}-{anything}/index.ts`. */
export type Folder = { readonly kind: Kind; readonly name: string; readonly file: string }

const entryFiles = ['index.ts', 'index.js', 'index.mjs']

/**
 * The extensions of a directory in the order of their names. Of what begins with `svc-` everything must be one: a
 * misspelt folder would otherwise be a rule that silently does not hold. Other entries are none of ours.
 */
export function foldersOf(directory: string): readonly Folder[] {
  const names = readdirSync(directory).filter((name) => name.startsWith('svc-'))
  return names.sort().map((name) => folderOf(resolve(directory), name))
}

/** The default export of an extension's file. Throws a ConfigError of one line that names the file. */
export async function defaultExport({ file }: Folder): Promise<unknown> {
  const loaded = await explained(file, 'cannot be loaded', () => import(pathToFileURL(file).href))
  return (loaded as { default?: unknown }).default
}

/** Runs code of an extension while the process starts; what it throws stops the start and names the file. */
export async function explained<Result>(
  file: string,
  what: string,
  work: () => Result | Promise<Result>,
): Promise<Result> {
  try {
    return await work()
  } catch (error) {
    if (error instanceof ConfigError) throw error
    const [reason = ''] = (error instanceof Error ? error.message : String(error)).split('\n')
    throw Object.assign(broken(file, `${what}: ${reason}`), { cause: error })
  }
}

export function broken(file: string, what: string): ConfigError {
  return new ConfigError(`EXTENSIONS_DIR: ${file} ${what}`)
}

function folderOf(directory: string, name: string): Folder {
  const folder = join(directory, name)
  const kind = kinds.find((one) => name.startsWith(`svc-${one}-`))
  if (kind === undefined)
    throw broken(folder, `is no kind of extension; folders are named ${kinds.map((one) => `svc-${one}-*`).join(', ')}`)
  if (!statSync(folder).isDirectory()) throw broken(folder, 'is not a folder with an index.ts or index.js in it')
  const [entry, other] = entryFiles.filter((file) => existsSync(join(folder, file)))
  if (entry === undefined) throw broken(folder, `has none of ${entryFiles.join(', ')}`)
  if (other !== undefined) throw broken(folder, `has both ${entry} and ${other}`)
  return { kind, name, file: join(folder, entry) }
}
