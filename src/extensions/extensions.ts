import { existsSync } from 'node:fs'
import { ConfigError } from '../config/config.ts'
import { groups } from '../config/variables.ts'
import type { ItemHooks } from '../features/data/hooks/hooks.ts'
import type { ExtensionNode } from '../features/work/workflows/workflows.ts'
import type { ExtensionWrites } from './capabilities.ts'
import { type LoadedConsole, loadConsole } from './console.ts'
import { contextFor, type ExtensionContext } from './context.ts'
import { broken, defaultExport, explained, type Folder, foldersOf } from './folders.ts'
import type { TasksService } from './tasks-service.ts'
import type {
  EndpointExtension,
  HookExtension,
  ModuleFunctions,
  NodeExtension,
  ScheduleExtension,
  TaskExtension,
} from './types.ts'

/** An extension that is run later, with what it gets then. */
export type LoadedExtension<Definition> = Folder & {
  readonly definition: Definition
  readonly context: ExtensionContext
}

/**
 * The extensions found. Hooks are registered already; the web process registers the endpoints, the task worker the
 * schedules.
 */
export type Extensions = {
  readonly hooks: readonly Folder[]
  readonly endpoints: readonly LoadedExtension<EndpointExtension>[]
  readonly schedules: readonly LoadedExtension<ScheduleExtension>[]
  readonly tasks: readonly LoadedExtension<TaskExtension>[]
  readonly consoles: readonly LoadedConsole[]
}

/**
 * Loads every extension of EXTENSIONS_DIR in the order of their names, and registers the hooks. One that cannot be
 * loaded stops the start: to run without it would silently drop its rules.
 *
 * @throws {ConfigError} of one line that names the file, or the two that have the same id
 */
export async function loadExtensions(deps: ExtensionWrites, tasksService?: TasksService): Promise<Extensions> {
  const directory = deps.config.server.extensionsDir
  if (!existsSync(directory)) {
    if (directory !== groups.server.variables.extensionsDir.fallback)
      throw new ConfigError(`EXTENSIONS_DIR: ${directory} does not exist`)
    return { hooks: [], endpoints: [], schedules: [], tasks: [], consoles: [] }
  }
  const found = foldersOf(directory)
  const ofKind = (kind: Folder['kind']) => found.filter((folder) => folder.kind === kind)
  const hooks = ofKind('hook')
  const context = ({ name }: Folder) => contextFor(deps, name, { tasksService })
  for (const folder of hooks) await registerHooks(deps, folder, context(folder))
  const endpoints = await loadAll(context, ofKind('endpoint'), readEndpoint)
  const schedules = await loadAll(context, ofKind('schedule'), readSchedule)
  const tasks = await loadAll(context, ofKind('task'), readTask)
  for (const { definition, context: own } of await loadAll(context, ofKind('node'), readNode)) {
    const handler: ExtensionNode['handler'] = (input, given) => definition.handler(input, { ...own, ...given })
    deps.workflows.nodes.set(definition.type, { ...definition, handler })
  }
  for (const folder of ofKind('module')) {
    const functions = await readModule(folder, context(folder))
    deps.workflows.modules.set(folder.name.slice('svc-module-'.length), functions)
  }
  const consoles = await Promise.all(ofKind('console').map(loadConsole))
  for (const { name } of found) deps.log.info({ extension: name }, 'extension loaded')
  return { hooks, endpoints, schedules, tasks, consoles }
}

async function registerHooks(deps: ItemHooks, folder: Folder, context: ExtensionContext): Promise<void> {
  const { file, name } = folder
  const register = await defaultExport(folder)
  if (typeof register !== 'function') throw broken(file, 'must export a function (hooksService, context) by default')
  const hooksService = {
    registerHook: (collection: string, event: string, hook: never) =>
      deps.hooks.register(name, collection, event, hook),
  }
  await explained(file, 'failed', () => (register as HookExtension)(hooksService, context))
}

async function loadAll<Definition extends object>(
  context: (folder: Folder) => ExtensionContext,
  folders: readonly Folder[],
  read: (folder: Folder, exported: unknown) => Definition,
): Promise<readonly LoadedExtension<Definition>[]> {
  const loaded: LoadedExtension<Definition>[] = []
  for (const folder of folders) {
    const definition = read(folder, await defaultExport(folder))
    const id = idOf(definition)
    const same = id === undefined ? undefined : loaded.find((other) => idOf(other.definition) === id)
    if (same !== undefined) throw broken(folder.file, `has the id ${id} of ${same.file}`)
    loaded.push({ ...folder, definition, context: context(folder) })
  }
  return loaded
}

/** Two handlers of the same type of task cannot both have it. */
function idOf(definition: object): string | undefined {
  if ('type' in definition) return String(definition.type)
  return 'id' in definition ? String(definition.id).toLowerCase() : undefined
}

function readEndpoint({ file }: Folder, exported: unknown): EndpointExtension {
  const { id, handler } = (exported ?? {}) as Partial<EndpointExtension>
  if (typeof id !== 'string' || typeof handler !== 'function')
    throw broken(file, 'must export { id, handler(app, context) } by default')
  if (!/^[a-z0-9][a-z0-9_-]*$/i.test(id)) throw broken(file, `has the id ${JSON.stringify(id)}, which cannot be a path`)
  return exported as EndpointExtension
}

function readSchedule({ file }: Folder, exported: unknown): ScheduleExtension {
  if (typeof exported === 'function') return exported as ScheduleExtension
  const { id, schedule, handler } = (exported ?? {}) as Record<string, unknown>
  if (typeof id !== 'string' || typeof schedule !== 'string' || typeof handler !== 'function')
    throw broken(file, 'must export a function (schedule, context) or { id, schedule, handler } by default')
  return exported as ScheduleExtension
}

function readTask({ file }: Folder, exported: unknown): TaskExtension {
  const { type, handler, timeoutSeconds } = (exported ?? {}) as Record<string, unknown>
  if (typeof type !== 'string' || type === '' || typeof handler !== 'function')
    throw broken(file, 'must export { type, handler(task, context) } by default')
  if (timeoutSeconds !== undefined && !(typeof timeoutSeconds === 'number' && timeoutSeconds > 0))
    throw broken(file, 'has a timeoutSeconds that is no positive number')
  return exported as TaskExtension
}

async function readModule(folder: Folder, context: ExtensionContext): Promise<ModuleFunctions> {
  const { file } = folder
  const exported = await defaultExport(folder)
  const made =
    typeof exported === 'function' ? await explained(file, 'failed', () => exported(context) as unknown) : exported
  const functions = Object.entries((made ?? {}) as object)
  if (functions.length === 0 || functions.some(([, one]) => typeof one !== 'function'))
    throw broken(file, 'must export an object of functions, or function (context) that returns one, by default')
  return Object.fromEntries(functions)
}

function readNode({ file }: Folder, exported: unknown): NodeExtension {
  const { type, input, handler } = (exported ?? {}) as Record<string, unknown>
  if (
    typeof type !== 'string' ||
    type === '' ||
    typeof handler !== 'function' ||
    input === null ||
    typeof input !== 'object'
  )
    throw broken(file, 'must export { type, input, handler(input, context) } by default')
  return exported as NodeExtension
}
