import type { NewDelivery } from '../../../db/unlogged/messages.ts'
import { type Consumer, type ConsumerPage, causesOf } from '../../../events/consumer.ts'
import type { LogEvent } from '../../../events/log-reader.ts'
import { accessCollections, disturbedCollections } from '../../data/changes/changes.ts'
import { type DeliveryWrites, pause } from './pausing.ts'
import { insertDeliveries, type Webhook, webhookById } from './queries.ts'
import { deliveryId, everything, type SightReads, seenBy, seenEvents } from './sight.ts'

/* How a webhook follows the log: what is to be delivered is decided when an event is handled. */

/** Under which a webhook follows the log. */
export const placeName = (webhookId: string): string => `webhook:${webhookId}`

/** The consumer of one webhook: notes what is to be delivered, in the transaction that moves its place. */
export function webhookConsumer(deps: DeliveryWrites, webhook: Webhook): Consumer {
  return {
    name: placeName(webhook.id),
    onFailure: 'set-aside',
    // Of all: a collection that is made meanwhile may not be known here yet when it has its first events.
    wants: () =>
      webhook.collections.includes(everything)
        ? {}
        : { collections: [...webhook.collections, ...watchedBy(deps, webhook)] },
    prepare: async (page) => {
      const current = await webhookById(deps.db, webhook.id)
      // Afterwards, so that they are no older than the webhook: a definition or a right that was given just now counts for it,
      // and for the events that followed.
      await deps.catalog.reloadIfStale()
      await deps.access.reloadIfStale()
      const deliveries = current?.status === 'active' ? await deliveriesOf(deps, current, page) : []
      // Paused, it has lost its lease, so its place stays before this page.
      return async (tx) => {
        const isActive = deliveries.length > 0 && (await webhookById(tx, webhook.id))?.status === 'active'
        if (isActive) await insertDeliveries(tx, webhook.id, deliveries)
        return undefined
      }
    },
  }
}

function watchedBy(deps: SightReads, webhook: Webhook): readonly string[] {
  // Where it cannot see, one of its own events, or of what changes that, has it paused.
  return [...(seenBy(deps, webhook).sight?.watched ?? accessCollections)]
}

/** None where it cannot see what it follows any more: then it is paused. */
async function deliveriesOf(
  deps: DeliveryWrites,
  webhook: Webhook,
  { events, round }: ConsumerPage,
): Promise<readonly NewDelivery[]> {
  const { sight, refusal } = seenBy(deps, webhook)
  if (sight === undefined) {
    await pause(deps, webhook, refusal)
    return []
  }
  const rows = events.filter(({ type, entity }) => type === 'data' && sight.followed.has(entity))
  const seen = await seenEvents(deps, deps.db, sight, rows)
  const causes = await causesOf(
    deps.db,
    rows.map(({ position }) => position),
    'webhook',
  )
  const changes = rows.flatMap((event) => {
    const action = seen.get(event.position)?.action
    if (action === undefined || (webhook.actions !== null && !webhook.actions.some((wanted) => wanted === action)))
      return []
    const { request = null, depth = 0 } = causes.get(event.position) ?? {}
    return [{ ...deliveryOf(webhook, event, action), request, depth }]
  })
  const disturbed = events.some(({ entity }) => sight.watched.has(entity))
    ? await disturbedCollections(
        deps,
        sight.access,
        { followed: sight.followed, named: [...sight.followed.keys()] },
        round,
      )
    : []
  const { position, cursor } = events.at(-1)!
  const resyncs = disturbed.map((collection) => ({
    ...{ id: deliveryId(webhook.id, 'resync', collection, round.upTo), position, collection, action: 'resync' },
    ...{ itemId: null, cursor, depth: 0, request: null },
  }))
  return [...changes, ...resyncs]
}

function deliveryOf(webhook: Webhook, event: LogEvent, action: string): NewDelivery {
  const { position, entity: collection, entityId: itemId, cursor } = event
  const id = deliveryId(webhook.id, position)
  return { id, position, collection, action, itemId, cursor, depth: 0, request: null }
}
