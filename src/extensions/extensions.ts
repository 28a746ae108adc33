import { lstatSync, statSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { parseCron } from '../adapters/cron.ts'
import { fits, Type } from '../adapters/typebox.ts'
import { ConfigError } from '../config/config.ts'
import type { ItemHooks } from '../features/data/hooks/hooks.ts'
import type { ExtensionNode } from '../features/work/workflows/workflows.ts'
import { asExtension } from '../language/extension-code.ts'
import { wordsOf } from '../language/thrown.ts'
import { contextFor, type ExtensionContext, type ExtensionWrites, type TasksService } from './context.ts'
import { broken, type ExtensionFolder, findExtensions } from './folders.ts'
import type {
  ConsoleExtension,
  EndpointExtension,
  HookExtension,
  ModuleFunctions,
  NodeExtension,
  ScheduleExtension,
  TaskExtension,
} from './types.ts'

/** An extension that is run later, with what it gets then. */
type LoadedExtension<Definition> = ExtensionFolder & {
  readonly definition: Definition
  readonly context: ExtensionContext
}

/**
 * The extensions found. Hooks are registered already; the web process registers the endpoints, the task worker the
 * schedules.
 */
export type Extensions = {
  readonly hooks: readonly ExtensionFolder[]
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
  const found = findExtensions(deps.config)
  const ofKind = (kind: ExtensionFolder['kind']) => found.filter((folder) => folder.kind === kind)
  const hooks = ofKind('hook')
  const context = ({ name }: ExtensionFolder) => contextFor(deps, name, { tasksService })
  for (const folder of hooks) await registerHooks(deps, folder, context(folder))
  const endpoints = await loadAll(context, ofKind('endpoint'), readEndpoint)
  const schedules = await loadAll(context, ofKind('schedule'), readSchedule)
  const tasks = await loadAll(context, ofKind('task'), readTask)
  for (const { name, definition, context: own } of await loadAll(context, ofKind('node'), readNode)) {
    const handler: ExtensionNode['handler'] = (input, given) =>
      asExtension(name, () => definition.handler(input, { ...own, ...given }))
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

async function registerHooks(deps: ItemHooks, folder: ExtensionFolder, context: ExtensionContext): Promise<void> {
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
  context: (folder: ExtensionFolder) => ExtensionContext,
  folders: readonly ExtensionFolder[],
  read: (folder: ExtensionFolder, exported: unknown) => Definition,
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

function readEndpoint({ file }: ExtensionFolder, exported: unknown): EndpointExtension {
  const { id, handler } = (exported ?? {}) as Partial<EndpointExtension>
  if (typeof id !== 'string' || typeof handler !== 'function')
    throw broken(file, 'must export { id, handler(app, context) } by default')
  if (!/^[a-z0-9][a-z0-9_-]*$/i.test(id)) throw broken(file, `has the id ${JSON.stringify(id)}, which cannot be a path`)
  return exported as EndpointExtension
}

function readSchedule({ file }: ExtensionFolder, exported: unknown): ScheduleExtension {
  if (typeof exported === 'function') return exported as ScheduleExtension
  const { id, schedule, handler } = (exported ?? {}) as Record<string, unknown>
  if (typeof id !== 'string' || typeof schedule !== 'string' || typeof handler !== 'function')
    throw broken(file, 'must export a function (schedule, context) or { id, schedule, handler } by default')
  return exported as ScheduleExtension
}

function readTask({ file }: ExtensionFolder, exported: unknown): TaskExtension {
  const { type, handler, timeoutSeconds } = (exported ?? {}) as Record<string, unknown>
  if (typeof type !== 'string' || type === '' || typeof handler !== 'function')
    throw broken(file, 'must export { type, handler(task, context) } by default')
  if (timeoutSeconds !== undefined && !(typeof timeoutSeconds === 'number' && timeoutSeconds > 0))
    throw broken(file, 'has a timeoutSeconds that is no positive number')
  return exported as TaskExtension
}

async function readModule(folder: ExtensionFolder, context: ExtensionContext): Promise<ModuleFunctions> {
  const { file, name } = folder
  const exported = await defaultExport(folder)
  const made =
    typeof exported === 'function' ? await explained(file, 'failed', () => exported(context) as unknown) : exported
  const functions = Object.entries((made ?? {}) as object)
  if (functions.length === 0 || functions.some(([, one]) => typeof one !== 'function'))
    throw broken(file, 'must export an object of functions, or function (context) that returns one, by default')
  return Object.fromEntries(
    functions.map(([member, work]) => [
      member,
      (...args: never[]) => asExtension(name, () => (work as (...args: never[]) => unknown)(...args)),
    ]),
  )
}

function readNode({ file }: ExtensionFolder, exported: unknown): NodeExtension {
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

/** An extension of the console, whose files are read as they are asked for. */
export type LoadedConsole = ExtensionFolder & {
  /** Its part of addresses: `svc-console-prices` is `prices`. */
  readonly id: string
  readonly definition: ConsoleExtension
  /** The directory of what browsers may load; nothing beside it is ever sent. */
  readonly files: string
}

const Names = Type.Optional(Type.Array(Type.String({ minLength: 1, maxLength: 200 })))
const closed = { additionalProperties: false }
const Framed = Type.Object({ file: Type.String() }, closed)

/** By member, so that a refusal names the one that is wrong. */
const members = {
  title: Type.String({ minLength: 1, maxLength: 60 }),
  page: Type.Optional(Framed),
  editors: Type.Optional(Type.Record(Type.String(), Framed)),
  collections: Type.Optional(Type.Object({ read: Names, write: Names }, closed)),
  roles: Names,
}

const words = 'must export { title, page, editors, collections, roles } by default'

/** @throws {ConfigError} of one line that names the file and what is wrong in it */
async function loadConsole(folder: ExtensionFolder): Promise<LoadedConsole> {
  const { file, name } = folder
  const exported = await defaultExport(folder)
  if (typeof exported !== 'object' || exported === null) throw broken(file, words)
  const unknown = Object.keys(exported).find((member) => !Object.hasOwn(members, member))
  if (unknown !== undefined) throw broken(file, `${words}, and nothing called ${JSON.stringify(unknown)}`)
  for (const [member, shape] of Object.entries(members)) {
    const value = (exported as Record<string, unknown>)[member]
    const isLeftOut = value === undefined && member !== 'title'
    if (!isLeftOut && !fits(shape, value)) throw broken(file, `has a wrong ${member} (docs/console-extensions.md)`)
  }
  const definition = exported as ConsoleExtension
  const id = name.slice('svc-console-'.length)
  if (!isName(id)) throw broken(dirname(file), 'must be named svc-console- and lowercase letters, digits and hyphens')
  const files = join(dirname(file), 'files')
  if (lstatSync(files, { throwIfNoEntry: false })?.isDirectory() !== true) throw broken(file, 'has no folder files')
  checkFrames(file, files, definition)
  return { ...folder, id, definition, files }
}

function checkFrames(file: string, files: string, { page, editors = {} }: ConsoleExtension): void {
  const wrong = Object.keys(editors).find((editor) => !isName(editor))
  if (wrong !== undefined) throw broken(file, `has an editor ${JSON.stringify(wrong)}, which cannot be a name`)
  const frames = [...(page === undefined ? [] : [page]), ...Object.values(editors)]
  if (frames.length === 0) throw broken(file, 'has neither a page nor editors')
  for (const { file: frame } of frames) {
    const isThere = isServed(frame) && statSync(join(files, frame), { throwIfNoEntry: false })?.isFile() === true
    if (!isThere || !frame.endsWith('.html')) throw broken(file, `names ${frame}, which is no page in its folder files`)
  }
}

const isName = (text: string): boolean => /^[a-z0-9][a-z0-9-]{0,62}$/.test(text)

/** Whether a path names what may be sent: plain names, of which none begins with a dot. */
export const isServed = (path: string): boolean =>
  path.length <= 400 && path.split('/').every((part) => /^[\w-][\w.-]{0,99}$/.test(part))

/** One thing to do again and again. */
type Schedule = { readonly id: string; readonly cron: string; run(): Promise<void> }

/**
 * The schedules of all extensions, in the order of their names.
 *
 * @throws {ConfigError} of one line for a malformed expression, or two schedules with the same id
 */
export async function schedulesOf({ schedules }: Extensions): Promise<readonly Schedule[]> {
  const all: Schedule[] = []
  for (const loaded of schedules) {
    const add = (id: string, cron: string, handler: () => unknown) => {
      if (all.some((other) => other.id === id)) throw broken(loaded.file, `has a second schedule with the id ${id}`)
      checkCron(loaded, cron)
      all.push({ id, cron, run: async () => void (await handler()) })
    }
    await register(loaded, add)
  }
  return all
}

type AddSchedule = (id: string, cron: string, handler: () => unknown) => void

async function register(
  { definition, context, file }: LoadedExtension<ScheduleExtension>,
  add: AddSchedule,
): Promise<void> {
  if (typeof definition === 'function') await explained(file, 'failed', () => definition({ scheduleJob: add }, context))
  else add(definition.id, definition.schedule, () => definition.handler(context))
}

function checkCron({ file }: LoadedExtension<ScheduleExtension>, cron: string): void {
  try {
    parseCron(cron)
  } catch (error) {
    throw broken(file, `has the schedule ${JSON.stringify(cron)}: ${(error as Error).message}`)
  }
}

/** The default export of an extension's file. Throws a ConfigError of one line that names the file. */
async function defaultExport({ file }: ExtensionFolder): Promise<unknown> {
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
    return await asExtension(basename(dirname(file)), work)
  } catch (error) {
    throw explanationOf(file, what, error)
  }
}

/** One line that names the file. */
export function explanationOf(file: string, what: string, error: unknown): ConfigError {
  if (error instanceof ConfigError) return error
  const [reason = ''] = wordsOf(error).split('\n')
  return Object.assign(broken(file, `${what}: ${reason}`), { cause: error })
}
