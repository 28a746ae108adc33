import type { Logger } from 'pino'
import { AppError } from '../../errors.ts'

/** What extensions can hook into; before-hooks run inside the transaction, `.after` ones when it has committed. */
export const hookEvents = [
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

/** Who acts, as extensions see it (spec/auth.md §15). */
export type Accountability = {
  readonly user: Readonly<Record<string, unknown>> | null
  readonly role: Readonly<Record<string, unknown>>
  readonly permissions: readonly unknown[]
  readonly tenant: string | null
  readonly ipaddress: string | null
}

/** Members besides `collection` and `accountability` depend on the event (realtime facts §5). */
export type HookContext = {
  readonly collection: string
  readonly accountability: Accountability
  [member: string]: unknown
}

/** Returns the context with what it changed, or nothing; throwing in a before-hook aborts the operation. */
export type Hook = (context: HookContext) => unknown

export type Hooks = {
  /** Hooks for every collection run first, then those of the collection, each in the order of registration. */
  register(collection: string, event: string, hook: Hook): void
  /** False costs nothing: a collection without hooks takes its ordinary path. */
  has(collection: string, event: HookEvent): boolean
  /**
   * Runs before-hooks one after the other and resolves with the context they leave. Throws what a hook throws, as a
   * 400 with its message where it is not an answer of its own.
   */
  before<Context extends HookContext>(event: HookEvent, context: Context): Promise<Context>
  /** Runs after-hooks. What they throw is logged: the change is committed and stays. */
  after(event: HookEvent, context: HookContext): Promise<void>
}

export function openHooks(log: Logger): Hooks {
  const registered = new Map<string, Hook[]>()
  const hooksOf = (collection: string, event: HookEvent) => [
    ...(registered.get(`* ${event}`) ?? []),
    ...(registered.get(`${collection} ${event}`) ?? []),
  ]
  return {
    register: (collection, event, hook) => {
      const key = `${collection} ${knownEvent(event)}`
      registered.set(key, [...(registered.get(key) ?? []), hook])
    },
    has: (collection, event) => registered.has(`* ${event}`) || registered.has(`${collection} ${event}`),
    before: async (event, context) => {
      let current = context
      for (const hook of hooksOf(context.collection, event))
        current = { ...current, ...changes(await aborting(hook, current)) }
      return current
    },
    after: async (event, context) => {
      for (const hook of hooksOf(context.collection, event))
        try {
          await hook(context)
        } catch (error) {
          log.error({ err: error, event, collection: context.collection }, 'a hook failed after the change')
        }
    },
  }
}

/** `items.create.before` is another way to write `items.create`. */
function knownEvent(event: string): HookEvent {
  const name = event.replace(/\.before$/, '')
  if (!(hookEvents as readonly string[]).includes(name))
    throw new Error(`there is no hook event ${event}; there are: ${hookEvents.join(', ')}`)
  return name as HookEvent
}

async function aborting(hook: Hook, context: HookContext): Promise<unknown> {
  try {
    return await hook(context)
  } catch (error) {
    if (error instanceof AppError) throw error
    throw new AppError(400, error instanceof Error ? error.message : String(error), {
      code: 'HOOK_REFUSED',
      cause: error,
    })
  }
}

/** A hook may change where an operation goes or who acts as little as its caller may. */
const changeable = new Set(['data', 'query', 'document', 'result'])

function changes(returned: unknown): Record<string, unknown> {
  if (returned === null || typeof returned !== 'object') return {}
  return Object.fromEntries(Object.entries(returned).filter(([key]) => changeable.has(key)))
}
