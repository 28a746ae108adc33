import { openFailures } from '../adapters/failures.ts'
import { dropPlacesOfWebhooks, webhooksWithWork } from '../db/unlogged/messages.ts'
import {
  deliverTo,
  tellOfStopped,
  type Webhook,
  webhookConsumer,
  webhooksOf,
} from '../features/messaging/webhooks/webhooks.ts'
import type { OpenedService, WorkerWrites } from './capabilities.ts'
import { openConsumers } from './consumers.ts'
import { endWithin, openWakeup, orPause, repeat } from './wakeup.ts'

/** How often webhooks are looked for that were made, changed, paused or deleted. */
const lookMs = 1000
/** How often deliveries are looked for that are due again, where there is a webhook. */
const dueMs = 250
const tidyMs = 300_000
/** How often webhooks are looked for whose place retention has taken. */
const tellMs = 10_000

/**
 * The worker of webhooks: each follows the log by itself, so that one that is paused or lags keeps its own place, and has
 * what is due for it sent in a lane of its own, so that none waits for another's endpoint.
 */
export async function openWebhooks(deps: WorkerWrites): Promise<OpenedService> {
  let active: readonly Webhook[] = []
  const consumersOf = async () => {
    active = (await webhooksOf(deps.db, undefined)).filter(({ status }) => status === 'active')
    return active.map((webhook) => webhookConsumer(deps, webhook))
  }
  const consumers = await openConsumers(deps, await consumersOf())
  const following = repeat(deps, 'webhooks could not be read', lookMs, async () => consumers.serve(await consumersOf()))
  const tidying = repeat(deps, 'the places of webhooks that are gone could not be dropped', tidyMs, () =>
    dropPlacesOfWebhooks(deps),
  )
  const telling = repeat(deps, 'webhooks whose place is gone could not be looked for', tellMs, () =>
    tellOfStopped(deps),
  )
  const lanes = openLanes(deps, () => (active.length > 0 ? dueMs : lookMs))
  return {
    readiness: consumers.readiness,
    stop: async (waitMs) => {
      following.close()
      tidying.close()
      telling.close()
      await Promise.all([consumers.stop(waitMs), lanes.stop(waitMs)])
    },
  }
}

function openLanes(deps: WorkerWrites, untilNextLook: () => number) {
  const stopping = new AbortController()
  const ending = new AbortController()
  const signals = { stopping: stopping.signal, ending: ending.signal }
  const running = new Map<string, Promise<void>>()
  const { wake, wait } = openWakeup()
  const start = (id: string) => {
    const lane = deliverTo(deps, id, signals)
      .catch((error: unknown) => deps.log.warn({ err: error, webhook: id }, 'deliveries stopped; they go on'))
      .finally(() => running.delete(id))
    running.set(id, lane)
  }
  deps.listener.onReconnect(wake)
  const failures = openFailures(deps, 'due deliveries could not be read')
  /** Starts what is due and gives how long to wait. */
  const look = async (): Promise<number> => {
    for (const id of await webhooksWithWork(deps)) if (!running.has(id)) start(id)
    return untilNextLook()
  }
  const work = async () => {
    while (!stopping.signal.aborted) await wait(await orPause(failures, look))
    await Promise.all(running.values())
  }
  const worked = work()
  return {
    stop: async (waitMs: number) => {
      stopping.abort()
      wake()
      await endWithin(waitMs, worked, () => ending.abort())
    },
  }
}
