import type { Logger } from 'pino'
import { clientError, sqlState } from '../../../db/errors.ts'
import { AppError } from '../../../errors.ts'
import { asExtension } from '../../../language/extension-code.ts'
import { STATUS_CODES } from '../../../language/node-http.ts'
import { requirePlainRow } from '../../../language/plain-json.ts'

/** The events of hooks: those with a bare name run before the operation, the others when it is durable. */
const hookEvents = [
  'items.create',
  'items.create.after',
  'items.read',
  'items.read.after',
  'items.read.one',
  'items.read.one.after',
  'items.update',
  'items.update.after',
  'items.delete',
  'items.delete.after',
] as const

export type HookEvent = (typeof hookEvents)[number]

/** The argument of a hook: `collection` and the members of its event. */
type HookMembers = { readonly collection: string; readonly [member: string]: unknown }

/** Returns the context with what it changed, or nothing; throwing before an operation refuses it. */
type Hook = (context: never) => unknown

type Hooks = {
  /** True as long as no extension has registered a hook. */
  isEmpty(): boolean
  /**
   * Hooks of `*` run before those of the collection, each in the order of registration. `owner` names the hook in the
   * log. Throws for an event that there is not.
   */
  register(owner: string, collection: string, event: string, hook: Hook): void
  /** False where an operation takes its ordinary path. */
  has(collection: string, event: HookEvent): boolean
  /**
   * Runs the hooks of an event one after the other; resolves with the context that they leave. Of a hook's
   * result only `data` and `query` count: a hook may change neither the target of an operation nor its actor.
   *
   * @throws {AppError} 400 with a hook's own message, or the status 400 to 499 that its error has. A fault, such as a
   *   TypeError or an error of the database, passes unchanged. It is a fault to leave `data` that is no JSON.
   */
  before<Context extends HookMembers>(event: HookEvent, context: Context): Promise<Context>
  /** Runs the hooks of an event one after the other. Their errors are logged and change nothing. */
  after(event: HookEvent, context: HookMembers): Promise<void>
  /** Asks for hooks that come and go; they run after those that were registered. */
  follow(source: HookSource): void
}

/** Hooks that are no code of extensions. As {@link Hooks.before} and {@link Hooks.after}, for what `has` says there is. */
export type HookSource = {
  isEmpty(): boolean
  has(collection: string, event: HookEvent): boolean
  before(event: HookEvent, context: HookMembers): Promise<unknown>
  after(event: HookEvent, context: HookMembers): Promise<void>
}

/** The hooks that extensions registered on items; complete before the process serves. */
export type ItemHooks = { readonly hooks: Hooks }

export function openHooks(log: Logger): Hooks {
  const registered = new Map<string, RegisteredHook[]>()
  let source: HookSource | undefined
  const hooksOf = (collection: string, event: HookEvent) => [
    ...(registered.get(`* ${event}`) ?? []),
    ...(registered.get(`${collection} ${event}`) ?? []),
  ]
  return {
    isEmpty: () => registered.size === 0 && source?.isEmpty() !== false,
    register: (owner, collection, event, hook) => {
      if (typeof hook !== 'function') throw new Error(`the hook for ${event} of ${collection} is not a function`)
      const key = `${collection} ${knownEvent(event)}`
      registered.set(key, [...(registered.get(key) ?? []), { owner, hook: hook as RegisteredHook['hook'] }])
    },
    has: (collection, event) =>
      registered.has(`* ${event}`) ||
      registered.has(`${collection} ${event}`) ||
      source?.has(collection, event) === true,
    before: async (event, context) => {
      let current = context
      for (const { hook, owner } of hooksOf(context.collection, event)) {
        current = await refusing(log, owner, event, async () => {
          const left = { ...current, ...changesIn(await asExtension(owner, () => hook(current))) }
          requirePlainRow((left as { data?: unknown }).data, 'data')
          return left
        })
      }
      if (source?.has(context.collection, event) !== true) return current
      const followed = source
      const returned = await refusing(log, 'workflows', event, () => followed.before(event, current))
      return { ...current, ...changesIn(returned) }
    },
    after: async (event, context) => {
      const { collection } = context
      for (const { hook, owner } of hooksOf(collection, event))
        try {
          await asExtension(owner, () => hook(context))
        } catch (error) {
          log.error({ err: error, hook: owner, event, collection }, 'a hook failed; the change that it followed stands')
        }
      if (source?.has(collection, event) === true) await source.after(event, context)
    },
    follow: (followed) => {
      source = followed
    },
  }
}

type RegisteredHook = { readonly owner: string; readonly hook: (context: HookMembers) => unknown }

/** `items.create.before` is another way to write `items.create`. */
function knownEvent(event: string): HookEvent {
  const name = String(event).replace(/\.before$/, '')
  const known = hookEvents.find((one) => one === name)
  if (known === undefined) throw new Error(`there is no hook event ${event}; there are: ${hookEvents.join(', ')}`)
  return known
}

async function refusing<Result>(
  log: Logger,
  owner: string,
  event: HookEvent,
  run: () => Promise<Result>,
): Promise<Result> {
  try {
    return await run()
  } catch (error) {
    // An error that the platform itself threw into the hook is answered as it would be without a hook.
    if (clientError(error) !== undefined || sqlState(error) !== undefined) throw error
    const refusal = refusalOf(error)
    if (refusal === undefined) log.error({ err: error, hook: owner, event }, 'a hook failed')
    throw refusal ?? error
  }
}

/** Undefined for faults: programming errors and errors of the system, whose text is not for clients. */
function refusalOf(error: unknown): AppError | undefined {
  const stated = statedRefusal(error, refusalCode)
  if (stated !== undefined) return stated
  if (!(error instanceof Error)) return refused(textOf(error), error)
  const { code } = error as { code?: unknown }
  const isFault = code !== undefined || faults.some((fault) => error instanceof fault)
  return isFault ? undefined : refused(error.message, error)
}

const refusalCode = 'HOOK_REFUSED'

/** The refusal of an operation that has too many rows for its hooks: no single row is to blame. */
export const tooManyForHooks = (message: string): AppError => new AppError(413, message, { code: 'HOOKS_TOO_SLOW' })

export const isTooManyForHooks = (error: unknown): boolean =>
  error instanceof AppError && error.code === 'HOOKS_TOO_SLOW'

const refused = (message: string, cause: unknown): AppError => new AppError(400, message, { code: refusalCode, cause })

/** Of an object its message: `[object Object]` says nothing to anybody. */
function textOf(thrown: unknown): string {
  const { message } = Object(thrown) as { message?: unknown }
  if (typeof message === 'string') return message
  return thrown === null || typeof thrown !== 'object' ? String(thrown) : 'A hook refused this'
}

const faults = [TypeError, ReferenceError, RangeError, SyntaxError] as const

function changesIn(returned: unknown): { data?: unknown; query?: unknown } {
  if (returned === null || typeof returned !== 'object') return {}
  const { data, query } = returned as { data?: unknown; query?: unknown }
  return { ...(data !== undefined && { data }), ...(query !== undefined && { query }) }
}

/**
 * The refusal that an extension states by throwing an error or a plain object with a `status` (or `statusCode`) from
 * 400 to 499; it has the `message` and, if given, the `code` and the `details` of the thrown value. Undefined for any other
 * thrown value. One rule for hooks, endpoints and the handlers of messages.
 */
export function statedRefusal(thrown: unknown, code?: string): AppError | undefined {
  if (thrown instanceof AppError) return thrown
  if (thrown === null || typeof thrown !== 'object') return undefined
  const stated = thrown as {
    status?: unknown
    statusCode?: unknown
    message?: unknown
    code?: unknown
    details?: unknown
  }
  const status = stated.status ?? stated.statusCode
  if (typeof status !== 'number' || !Number.isInteger(status) || status < 400 || status > 499) return undefined
  const hasWords = typeof stated.message === 'string' && stated.message !== ''
  const words = hasWords ? (stated.message as string) : (STATUS_CODES[status] ?? 'Refused')
  const own = typeof stated.code === 'string' && /^[A-Z][A-Z0-9_]*$/.test(stated.code) ? stated.code : code
  const details = plainDetails(stated.details)
  return new AppError(status, words, { cause: thrown, details, ...(own !== undefined && { code: own }) })
}

const longestDetails = 20_000

/** As JSON has them. A client is told why those are missing that cannot be sent, and so is the author of the extension. */
function plainDetails(details: unknown): unknown {
  if (details === undefined) return undefined
  const json = jsonOf(details)
  if (json === undefined) return 'The details of this refusal are not JSON'
  return json.length > longestDetails
    ? `The details of this refusal are longer than ${longestDetails} characters`
    : JSON.parse(json)
}

/** Undefined for what is none; reading a value of an extension may throw anything. */
function jsonOf(value: unknown): string | undefined {
  try {
    return JSON.stringify(value)
  } catch {
    return undefined
  }
}
