import { existsSync, readdirSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { pathToFileURL } from 'node:url'
import type { Logger } from 'pino'
import { ConfigError } from '../../config.ts'
import type { Hooks } from './hooks.ts'

/** What a hook extension exports by default: it registers its hooks and returns. */
export type HookExtension = (
  hooksService: { registerHook(collection: string, event: string, hook: (context: never) => unknown): void },
  context: object,
) => unknown

const entryFiles = ['index.ts', 'index.js', 'index.mjs']

/**
 * Loads every `svc-hook-*` folder of EXTENSIONS_DIR, in name order. A missing directory means no extensions; an
 * extension that cannot be loaded stops the start, because running without it would silently drop its rules.
 */
export async function loadHookExtensions(dir: string, hooks: Hooks, context: object, log: Logger): Promise<void> {
  for (const name of foldersOf(dir, 'svc-hook-')) {
    const extension = await load(join(dir, name))
    await extension(
      { registerHook: (collection, event, hook) => hooks.register(collection, event, hook as never) },
      context,
    )
    log.info({ extension: name }, 'extension loaded')
  }
}

function foldersOf(dir: string, prefix: string): readonly string[] {
  if (!existsSync(dir)) return []
  const entries = readdirSync(dir, { withFileTypes: true })
  return entries
    .filter((entry) => entry.isDirectory() && entry.name.startsWith(prefix))
    .map((entry) => entry.name)
    .sort()
}

async function load(folder: string): Promise<HookExtension> {
  const entry = entryFiles.map((file) => join(resolve(folder), file)).find((file) => existsSync(file))
  if (entry === undefined) throw new ConfigError(`EXTENSIONS_DIR: ${folder} has none of ${entryFiles.join(', ')}`)
  const loaded = await importOrExplain(entry)
  if (typeof loaded.default !== 'function')
    throw new ConfigError(`EXTENSIONS_DIR: ${entry} must export a function by default`)
  return loaded.default as HookExtension
}

async function importOrExplain(entry: string): Promise<{ default?: unknown }> {
  try {
    return await import(pathToFileURL(entry).href)
  } catch (error) {
    throw new ConfigError(`EXTENSIONS_DIR: ${entry} cannot be loaded: ${(error as Error).message}`)
  }
}
