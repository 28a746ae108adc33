import { createHash } from 'node:crypto'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { basename, join, relative, resolve } from 'node:path'
import { pathToFileURL } from 'node:url'
import { compareVersions, isInitialRelease, isVersion } from '../../../adapters/version-order.ts'
import type { Config } from '../../../config/config.ts'
import { AppError } from '../../../errors.ts'
import type { MigrationScript } from '../../../events/direct-session.ts'

export type LoadedScript = MigrationScript & {
  /** Path as a reader of messages knows it, from the working directory. */
  readonly file: string
  /** MD5 of the file, in hex. */
  readonly checksum: string
  /** Part of the program: run by setup, neither marked nor rolled back by users. */
  readonly isSystem: boolean
}

export const migrationTypes = ['upgrade', 'hotfix', 'schema', 'data', 'rollback'] as const

/** The program's own scripts. It is also what MIGRATIONS_DIR names by default in a checkout. */
const systemMigrationsDir = resolve(import.meta.dirname, '../../../../migrations')

/**
 * The program's scripts and those of MIGRATIONS_DIR, in the order of their versions. In the program's own folder the
 * files of releases, `0.y.z_….ts`, are the program's, everything else is the user's.
 *
 * @throws AppError 400 for a file that is no migration, 409 for two of the same version; both name the files
 */
export async function loadScripts(config: Config): Promise<readonly LoadedScript[]> {
  const dirs = new Set([systemMigrationsDir, resolve(config.migrations.dir)])
  const scripts = (await Promise.all([...dirs].map((dir) => loadDirectory(dir)))).flat()
  const ofVersion = Map.groupBy(scripts, ({ version }) => version)
  for (const [version, same] of ofVersion) if (same.length > 1) throw duplicate(version, same)
  return inOrder(scripts)
}

/** The program's alone: what users have written beside them cannot keep it from starting. */
export async function loadSystemScripts(): Promise<readonly LoadedScript[]> {
  return inOrder(await loadDirectory(systemMigrationsDir, isSystemFile))
}

/** Their versions, by the names of the files: nothing is loaded. */
export function systemVersions(): ReadonlySet<string> {
  return new Set(
    scriptsIn(systemMigrationsDir)
      .filter(isSystemFile)
      .map((file) => file.split('_')[0]!),
  )
}

/** `0.2.1_system_acls.ts` */
function isSystemFile(file: string): boolean {
  return isInitialRelease(file.split('_')[0]!)
}

function inOrder(scripts: readonly LoadedScript[]): readonly LoadedScript[] {
  return scripts.toSorted((a, b) => compareVersions(a.version, b.version))
}

async function loadDirectory(dir: string, isWanted = (_file: string) => true): Promise<readonly LoadedScript[]> {
  if (!existsSync(dir)) return []
  return Promise.all(
    scriptsIn(dir)
      .filter(isWanted)
      .map((file) => loadFile(dir, join(dir, file))),
  )
}

const scriptsIn = (dir: string): readonly string[] => readdirSync(dir).filter((file) => /(?<!\.d)\.(ts|js)$/.test(file))

async function loadFile(dir: string, path: string): Promise<LoadedScript> {
  const file = relative(process.cwd(), path)
  const checksum = createHash('md5').update(readFileSync(path)).digest('hex')
  // A module is evaluated once per address: with its hash in it a file that was changed is a new one.
  const address = `${pathToFileURL(path).href}?${checksum}`
  const exported = await import(/* @vite-ignore */ address).catch((error: Error) => {
    throw invalid(file, `cannot be loaded: ${error.message}`, error)
  })
  const problem = problemOf(exported)
  if (problem !== undefined) throw invalid(file, problem)
  const script = exported as MigrationScript
  return { ...script, file, checksum, isSystem: dir === systemMigrationsDir && isSystemFile(basename(path)) }
}

/** The reason why a module is not a migration script; undefined for one that is. */
function problemOf(exported: Readonly<Record<string, unknown>>): string | undefined {
  const { version, name, description, type, transaction, up, down } = exported
  if (typeof version !== 'string' || !isVersion(version))
    return 'version must be a semantic version like 0.1.0-alpha.7 or a timestamp like 20241224_001_add_column'
  if (typeof name !== 'string' || name === '') return 'name must be a text'
  if (description !== undefined && typeof description !== 'string') return 'description must be a text'
  if (type !== undefined && !migrationTypes.some((known) => known === type))
    return `type must be one of ${migrationTypes.join(', ')}`
  if (transaction !== undefined && typeof transaction !== 'boolean') return 'transaction must be true or false'
  if (typeof up !== 'function') return 'up must be a function'
  return down === undefined || typeof down === 'function' ? undefined : 'down must be a function'
}

function invalid(file: string, problem: string, cause?: unknown): AppError {
  return new AppError(400, `Migration file ${file}: ${problem}`, { code: 'INVALID_MIGRATION_FILE', cause })
}

function duplicate(version: string, same: readonly LoadedScript[]): AppError {
  const files = same.map(({ file }) => file).sort()
  return new AppError(
    409,
    `Version ${version} is used by ${files.join(' and ')}: rename one with a more specific version`,
    {
      code: 'DUPLICATE_MIGRATION_VERSION',
      details: { version, files },
    },
  )
}
