import type { Readable } from 'node:stream'
import { errors } from '../../../errors.ts'
import type { Writes } from '../../../events/commit.ts'
import type { Actor } from '../../../events/types.ts'
import { changeItems, listItems, type Requester } from '../../data/items/items.ts'
import type { NewNotification } from './input.ts'
import {
  deleteSomeOlderThan,
  isTenant,
  type NotificationReads,
  type NotificationWrites,
  notifications,
  ownNotifications,
  unknownUsers,
} from './queries.ts'

export { newNotificationOf } from './input.ts'
export { openProgress } from './progress.ts'
export { insertNotification, notifications, withOwnNotifications } from './queries.ts'

/** The reader's own notifications, as `/items` lists them, the newest first unless asked otherwise. */
export function listNotifications(
  deps: NotificationReads,
  reader: Requester,
  query: Readonly<Record<string, unknown>>,
): Promise<string | Readable> {
  const own = { ...reader, access: ownNotifications(reader.access) }
  return listItems(deps, own, notifications, newestFirst(query))
}

/**
 * One notification for each of the users, all or none, in one transaction; their ids in the order of the users.
 * Connected users get `svc_Notification:create`.
 *
 * @throws {AppError} 400 for users or a tenant that there are not
 */
export async function sendNotifications(
  deps: NotificationWrites,
  sender: Requester,
  { userIds, tenantId, ...content }: NewNotification,
): Promise<readonly string[]> {
  const db = sender.scope?.tx ?? deps.db
  const unknown = await unknownUsers(db, userIds)
  if (unknown.length > 0) throw errors.badBody('userIds: unknown users', { unknown })
  const tenant_Id = tenantId === undefined ? (sender.access.tenantId ?? null) : tenantId
  if (tenant_Id !== null && !(await isTenant(db, tenant_Id))) throw errors.badBody('tenant_Id: unknown tenant')
  const rows = userIds.map((userId) => ({ ...content, userId, tenant_Id }))
  const { ids } = await changeItems(deps, sender, notifications, { action: 'create', payloads: rows })
  return ids.map((id) => JSON.parse(id) as string)
}

/** Deletes everybody's notifications that are older than `days`, some at a time so that no lock is held for long. */
export async function cleanUpNotifications(deps: Writes, actor: Actor, days: number): Promise<number> {
  for (let deleted = 0; ; ) {
    const some = await deleteSomeOlderThan(deps, actor, days, deletedAtOnce)
    deleted += some
    if (some < deletedAtOnce) return deleted
  }
}

const deletedAtOnce = 2000

/** Of groups there is no newest one. */
function newestFirst(query: Readonly<Record<string, unknown>>): Record<string, unknown> {
  const isChosen = Object.keys(query).some((key) => /^(sort|groupBy|aggregate|sortByRelevance)(\[|$)/.test(key))
  return isChosen ? { ...query } : { ...query, sort: '-createdAt' }
}
