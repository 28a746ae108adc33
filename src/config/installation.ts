import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { type Config, type ParseOptions, parseConfig } from './config.ts'
import type { Env } from './variable.ts'

/**
 * The configuration of the installation here, for commands that run beside its processes: without DATABASE_URL the database
 * is the embedded one that `npm start` runs. `secretKey` also takes the key that `npm start` keeps beside it.
 *
 * @throws {ConfigError} as `parseConfig`, which names DATABASE_URL where there is no embedded database either
 */
export function parseInstallation(env: Env, { secretKey = false }: { readonly secretKey?: boolean } = {}): Config {
  const options = { allowMissingSecret: true }
  const { database } = parseConfig(env, options)
  const kept = (name: string) => keptIn(database.dataDir, name)
  const all: ParseOptions = {
    ...options,
    requireDatabase: true,
    ...(secretKey && { secretKey: kept('secret-key') ?? '' }),
  }
  if (database.url !== undefined) return parseConfig(env, all)
  return parseConfig({ ...env, DATABASE_URL: embeddedDatabase(database.dataDir) }, all)
}

/** The address of the embedded database that a data directory holds; undefined where none was ever started. */
export function embeddedDatabase(dataDir: string): string | undefined {
  return keptIn(dataDir, 'database-url')
}

function keptIn(dataDir: string, name: string): string | undefined {
  const file = join(dataDir, name)
  return existsSync(file) ? readFileSync(file, 'utf8').trim() : undefined
}
