import type { TSchema } from 'typebox'
import type { HookEvent } from '../features/data/hooks/hooks.ts'
import type { Accountability, HookDb } from '../features/data/items/items.ts'
import type { ClaimedTask } from '../features/work/tasks/tasks.ts'
import type { App } from '../http/http.ts'
import type { ExtensionContext } from './context.ts'

/**
 * The types of an extension's default export (docs/extensions.md). An extension imports them from `daybook/extensions`.
 */

export type { HookEvent } from '../features/data/hooks/hooks.ts'
export type { Accountability, HookDb } from '../features/data/items/items.ts'
export type { ExtensionContext, ItemsService, SocketService, StorageService, TasksService } from './context.ts'

declare module 'fastify' {
  interface FastifyRequest {
    /** The caller, as extensions see it; set on the routes of endpoints. */
    accountability: Accountability | null
    /** The bytes of the body, on routes with `config: { rawBody: true }`; undefined where it has none. */
    rawBody: Buffer | undefined
  }
  interface FastifyContextConfig {
    /** Keeps the bytes of bodies in `request.rawBody`, as signatures of senders need them. */
    rawBody?: boolean
  }
}

/** `svc-hook-*`: registers its hooks and returns. */
export type HookExtension = (hooksService: HooksService, context: ExtensionContext) => unknown

export type HooksService = {
  /**
   * `collection` may be `*`. The hook gets the members of its event (docs/extensions.md) and returns the context with
   * other `data` or another `query`, or nothing. Throws for an event that there is not.
   */
  registerHook<Event extends HookEventName, Row extends object = HookRow>(
    collection: string,
    event: Event,
    hook: (context: HookContext<Event, Row>) => unknown,
  ): void
}

/** An event; `items.create.before` is another way to write `items.create`. */
export type HookEventName = HookEvent | `${Exclude<HookEvent, `${string}.after`>}.before`

/** A row whose fields nobody has declared: `daybook types` writes types of collections. */
// biome-ignore lint/suspicious/noExplicitAny: each collection has fields of its own
export type HookRow = Record<string, any>

/** What a hook gets: the members of every event, and those of its own. */
export type HookContext<Event extends HookEventName = HookEventName, Row extends object = HookRow> = {
  readonly collection: string
  /** Null for what the platform itself or an extension does without a user. */
  readonly accountability: Accountability | null
  /** Before a change: its transaction. */
  readonly db: HookDb
} & EventMembers<Row>[BareName<Event>]

type BareName<Event extends HookEventName> = Event extends `${infer Name extends HookEvent}.before`
  ? Name
  : Event & HookEvent

type HookId = { readonly id: string | number }
type HookQuery = { query: Record<string, unknown> }
type BeforeChange = {
  /** The same as `db`. */
  readonly transaction: HookDb
}

/** By event, what its hooks get besides the members of every event. */
type EventMembers<Row extends object> = {
  'items.create': BeforeChange & { data: Partial<Row> }
  'items.update': BeforeChange & HookId & { data: Partial<Row>; readonly previousDocument: Readonly<Row> }
  'items.delete': BeforeChange & HookId & { readonly document: Readonly<Row> }
  'items.create.after': HookId & { readonly document: Readonly<Row> }
  'items.update.after': HookId & { readonly document: Readonly<Row>; readonly previousDocument: Readonly<Row> }
  'items.delete.after': HookId & { readonly document: Readonly<Row> }
  'items.read': HookQuery
  'items.read.one': HookQuery & HookId
  'items.read.after': Readonly<HookQuery> & {
    readonly result: { readonly data: readonly Row[]; readonly totalCount?: number }
  }
  'items.read.one.after': Readonly<HookQuery> & HookId & { readonly document: Readonly<Row> }
}

/** `svc-endpoint-*`: routes below `/{id}`; `request.accountability` says who calls. */
export type EndpointExtension = {
  readonly id: string
  handler(app: App, context: ExtensionContext): unknown
}

/** `svc-schedule-*`: either registers its schedules itself or is one. */
export type ScheduleExtension =
  | ((schedule: Schedules, context: ExtensionContext) => unknown)
  | { readonly id: string; readonly schedule: string; handler(context: ExtensionContext): unknown }

export type Schedules = {
  /** `cron` has five or six fields (seconds first), in UTC; `id` is unique among all schedules. */
  scheduleJob(id: string, cron: string, handler: () => unknown): void
}

/** `svc-task-*`: runs the tasks of one type, one after the other in a process that has no other task then. */
export type TaskExtension = {
  /** The `type` of the tasks in svc_Tasks. */
  readonly type: string
  /** After this an attempt is ended with its process; TASK_TIMEOUT where not given. */
  readonly timeoutSeconds?: number
  /** Its result becomes `result_data`; an error that it throws ends the task in `Error`. */
  handler(task: TaskToDo, context: ExtensionContext): unknown
}

/** `svc-node-*`: a type of node for workflows. */
export type NodeExtension = {
  /** The `type` of the nodes; none of the platform's own. */
  readonly type: string
  /** The shape of their data (TypeBox or JSON Schema); workflows are checked by it, and templates are replaced before. */
  readonly input: TSchema
  /** Its output. It may be called again for the same place of the same execution, with the same key. */
  handler(
    input: Readonly<Record<string, unknown>>,
    context: ExtensionContext & { readonly idempotencyKey: string; readonly signal: AbortSignal },
  ): unknown
}

/** `svc-module-*`: functions for scripts of workflows, as `require('*')`; what they take and give crosses as JSON. */
export type ModuleExtension = ModuleFunctions | ((context: ExtensionContext) => ModuleFunctions)

export type ModuleFunctions = Readonly<Record<string, (...args: never[]) => unknown>>

/** `svc-console-*`: a page of the console, and editors for fields, made of the files in the folder's `files`. */
export type ConsoleExtension = {
  /** Its name for people: in the navigation, and on what it says. */
  readonly title: string
  /** The page at `/console/extensions/{name}`: a file of `files`. */
  readonly page?: { readonly file: string }
  /** Editors by name: a field has one whose definition says `editor: '{extension}/{editor}'`. */
  readonly editors?: Readonly<Record<string, { readonly file: string }>>
  /** The collections that its frames may ask the console for, with the rights of the signed-in user and never more. */
  readonly collections?: { readonly read?: readonly string[]; readonly write?: readonly string[] }
  /** The names of the roles that see it; every signed-in user where it is not given. Administrators always do. */
  readonly roles?: readonly string[]
}

/** The task as its handler sees it, with the functions to report. */
export type TaskToDo = Omit<ClaimedTask, 'token' | 'creatorLeft' | 'data'> & {
  /** The JSON of `task_data`, as whoever created the task has given it. */
  // biome-ignore lint/suspicious/noExplicitAny: each type of task has data of its own
  readonly data: any
  /** Shows how far it is, from 0 to 1. Of reports in quick succession the last one counts. */
  progress(share: number, message?: string): void
  /**
   * The end of the task as one transaction: all that `work` does with the members of the context, the completion, and as
   * `result_data` what it returns. Done exactly once, or refused because the task was given to another attempt. The
   * handler returns afterwards; what it returns then is dropped.
   */
  finish(work: () => unknown): Promise<void>
}
