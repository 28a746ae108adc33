import type { Tx } from '../../../db/sql.ts'
import { commit, type Writes } from '../../../events/commit.ts'
import { type DomainEvent, systemActor } from '../../../events/types.ts'
import { queueMail } from '../mail/mail.ts'
import { insertNotification } from '../notifications/notifications.ts'
import { noteStopped, ownerOf, setStatus, type Webhook } from './queries.ts'
import type { SightReads } from './sight.ts'

export type DeliveryWrites = SightReads & Writes

/** Pauses a webhook and tells its owner, by mail and by a notification. Its place in the log is kept. */
export async function pause(deps: DeliveryWrites, webhook: Webhook, reason: string): Promise<void> {
  const { id } = webhook
  const message = `is paused: ${reason}. Changes are kept for it; resume it when this is fixed.`
  const isPaused = await commit(deps, systemActor, async (tx) => {
    if (!(await setStatus(tx, id, 'paused', reason))) return { result: false }
    return { result: true, events: await tellOwner(tx, webhook, 'is paused', message) }
  })
  if (isPaused) deps.log.warn({ webhook: id, reason }, 'a webhook was paused')
}

/**
 * Tells the owners of webhooks whose place retention has taken from the log, once for each: they have missed changes, and a
 * replay has them go on.
 */
export async function tellOfStopped(deps: DeliveryWrites): Promise<void> {
  const noted = await commit(deps, systemActor, async (tx) => {
    const stopped = await noteStopped(tx, stoppedReason)
    const message = `has stopped: ${stoppedReason}. Have the receiver read the collections anew, and replay the webhook since now.`
    const events: DomainEvent[] = []
    for (const webhook of stopped) events.push(...(await tellOwner(tx, webhook, 'has stopped', message)))
    return { result: stopped.map(({ id }) => id), events }
  })
  if (noted.length > 0)
    deps.log.warn({ webhooks: noted }, 'webhooks have stopped: the log they had yet to read is removed')
}

const stoppedReason = 'it was away for longer than the log is kept for it, so changes were missed'

/** By mail and by a notification, where there still is an owner. */
async function tellOwner(
  tx: Tx,
  { id, name, user_Id, tenant_Id }: Webhook,
  what: string,
  more: string,
): Promise<readonly DomainEvent[]> {
  const owner = await ownerOf(tx, user_Id)
  if (owner === undefined) return []
  const title = `The webhook ${name} ${what}`
  const message = `The webhook “${name}” ${more}`
  await insertNotification(tx, { userId: user_Id, tenantId: tenant_Id, type: 'webhook', title, message, data: { id } })
  const { event } = await queueMail(tx, {
    ...{ type: 'custom', to: owner.email, user: { id: user_Id } },
    ...(tenant_Id !== null && { tenantId: tenant_Id }),
    context: {
      template: 'notification',
      variables: { notification_title: title, notification_message: message, action_url: '', action_text: '' },
    },
  })
  return [event]
}
