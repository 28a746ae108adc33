import { accounts, permissions } from './access.ts'
import { items, log, schemas } from './data.ts'
import type { Example } from './example.ts'
import { files } from './files.ts'
import { tenants } from './tenants.ts'
import { documentation, notifications, operations, programs, settings, triggers, webhooks, workflows } from './work.ts'

export type { Example } from './example.ts'

/** The requests to one server, in this order, by part of the platform. */
export const stories: Readonly<Record<string, readonly Example[]>> = {
  schemas,
  items,
  log,
  permissions,
  files,
  accounts,
  notifications,
  webhooks,
  workflows,
  triggers,
  settings,
  operations,
  documentation,
  programs,
}

/** The same, to a server with tenants. */
export { tenants }

/** The request on the page of a route, if one is tried: the first. */
export const exampleOfRoute: ReadonlyMap<string, Example> = new Map(
  [...Object.values(stories).flat(), ...tenants].reverse().map((example) => [example.route, example]),
)
