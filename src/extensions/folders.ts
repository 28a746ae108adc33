import { existsSync, readdirSync, statSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { type Config, ConfigError } from '../config/config.ts'
import { groups } from '../config/variables.ts'

/** An extension on disk: `svc-{kind}-{anything}/index.ts`. */
export type ExtensionFolder = { readonly kind: ExtensionKind; readonly name: string; readonly file: string }

/**
 * The extensions of EXTENSIONS_DIR in the order of their names; none where the default directory is not there. Runs nothing
 * of them.
 *
 * @throws {ConfigError} of one line for a directory that is not there, and for a folder that is no extension
 */
export function findExtensions({ server }: Config): readonly ExtensionFolder[] {
  const { extensionsDir: directory } = server
  if (existsSync(directory)) return foldersOf(directory)
  if (directory === groups.server.variables.extensionsDir.fallback) return []
  throw new ConfigError(`EXTENSIONS_DIR: ${directory} does not exist`)
}

export function broken(file: string, what: string): ConfigError {
  return new ConfigError(`EXTENSIONS_DIR: ${file} ${what}`)
}

const kinds = ['hook', 'endpoint', 'schedule', 'task', 'node', 'module', 'console'] as const
type ExtensionKind = (typeof kinds)[number]

const entryFiles = ['index.ts', 'index.js', 'index.mjs']

/**
 * Of what begins with `svc-` everything must be an extension: a misspelt folder would otherwise be a rule that silently does
 * not hold. Other entries are none of ours.
 */
function foldersOf(directory: string): readonly ExtensionFolder[] {
  const names = readdirSync(directory).filter((name) => name.startsWith('svc-'))
  return names.sort().map((name) => folderOf(resolve(directory), name))
}

function folderOf(directory: string, name: string): ExtensionFolder {
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
