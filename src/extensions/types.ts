import type { HookDb } from '../features/items/hooking.ts'
import type { App } from '../http.ts'
import type { ExtensionContext } from './context.ts'

/**
 * What an extension's file exports by default (realtime facts §5, docs/extensions.md). In this checkout an extension
 * takes these types from `#extensions`.
 */

export type { HookEvent } from '../features/hooks/hooks.ts'
export type { Accountability } from '../features/items/accountability.ts'
export type { HookDb } from '../features/items/hooking.ts'
export type { ExtensionContext } from './context.ts'
export type { ItemsService } from './items-service.ts'

/** `svc-hook-*`: registers its hooks and returns. */
export type HookExtension = (hooksService: HooksService, context: ExtensionContext) => unknown

export type HooksService = {
  /**
   * `collection` may be `*`. The hook gets the members of its event (docs/extensions.md) and returns the context with
   * other `data` or another `query`, or nothing. Throws for an event that there is not.
   */
  registerHook(collection: string, event: string, hook: (context: HookContext) => unknown): void
}

/** What every hook is told; `data`, `query`, `document` and so on depend on the event. */
export type HookContext = {
  readonly collection: string
  /** Null for what the platform itself or an extension does in nobody's name. */
  readonly accountability: import('../features/items/accountability.ts').Accountability | null
  /** Before a change: its transaction. */
  readonly db: HookDb
  data: Record<string, unknown>
  query: Record<string, unknown>
  readonly id: string | number
  readonly document: Readonly<Record<string, unknown>>
  readonly previousDocument: Readonly<Record<string, unknown>>
  readonly result: { readonly data: readonly Record<string, unknown>[]; readonly totalCount?: number }
}

/** `svc-endpoint-*`: routes below `/{id}`; `request.accountability` says who calls. */
export type EndpointExtension = {
  readonly id: string
  handler(app: App, context: ExtensionContext): unknown
}

/** `svc-schedule-*`: either registers its schedules itself or is one. */
export type ScheduleExtension =
  | ((schedule: unknown, context: ExtensionContext) => unknown)
  | { readonly id: string; readonly schedule: string; handler(context: ExtensionContext): unknown }
