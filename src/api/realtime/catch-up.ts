import { retryTransient } from '../../adapters/retry.ts'
import { openSemaphore } from '../../adapters/semaphore.ts'
import { isPassing } from '../../db/errors.ts'
import type { Cursor } from '../../events/cursor.ts'
import { pullRound } from '../../events/log-reader.ts'
import { disturbedCollections } from '../../features/changes/disturbances.ts'
import type { Runtime } from '../../runtime.ts'
import { changesSeen, partsOf } from './changes.ts'
import type { Outbox } from './outbox.ts'
import { currentView, type Subscriber } from './subscribers.ts'
import { scopesRows } from './wish.ts'

export type CatchUp = {
  /**
   * Sends what was missed, as fast as the client reads. The round ends at a snapshot taken after the subscriber was
   * registered, so what is neither visible in it nor arrives live does not exist. Undefined when the log no longer tells
   * what was missed, or the subscription has ended meanwhile.
   */
  from(subscriber: Subscriber, cursor: Cursor): Promise<Cursor | undefined>
}

const eventsPerPage = 500
/** Live events go through the same few connections, and first. */
const pagesAtOnce = 1
/** While the database does not answer. */
export const readBackoff = { firstMs: 50, longestMs: 2000 }

export function openCatchUp(rt: Runtime, outbox: Outbox, isOpen: (subscriber: Subscriber) => boolean): CatchUp {
  const semaphore = openSemaphore(pagesAtOnce)
  const tried = <Result>(subscriber: Subscriber, work: () => Promise<Result>) =>
    retryTransient(work, {
      backoff: readBackoff,
      mayRetry: (error) => isPassing(error) && isOpen(subscriber),
      onRetry: (error, pauseMs) => rt.log.warn({ err: error, retryInMs: pauseMs }, 'changes could not be read'),
    })
  const sendPage = async (subscriber: Subscriber, cursor: Cursor) => {
    const { collection } = subscriber.wish
    const wanted = { collections: [collection], limit: eventsPerPage }
    const page = await tried(subscriber, () => pullRound(rt.feedDb, cursor, wanted))
    if (page.resync) return undefined
    for (const part of partsOf(page.events)) {
      const told = await tried(subscriber, () => {
        const view = currentView(rt, subscriber)
        return changesSeen(rt, collection, view, [view.values], part)
      })
      for (const { message } of told)
        if (isOpen(subscriber)) outbox.send([subscriber.socket], message.name, message.body)
    }
    return page
  }
  return {
    from: async (subscriber, start) => {
      let isOwnRound = false
      for (let cursor = start; ; ) {
        // One that was begun elsewhere has ended before now.
        isOwnRound ||= cursor.upTo === undefined
        const page = await semaphore(() => sendPage(subscriber, cursor))
        if (page === undefined || !isOpen(subscriber)) return undefined
        cursor = page.cursor
        if (!page.more && isOwnRound) {
          const isWhole = !(await tried(subscriber, () => isDisturbed(rt, subscriber, start, cursor)))
          return isWhole ? cursor : undefined
        }
        if (!(await outbox.drained(subscriber.socket))) return undefined
      }
    },
  }
}

/** Whether something happened meanwhile that no event of the collection's rows tells. */
async function isDisturbed(rt: Runtime, { wish, access }: Subscriber, from: Cursor, behind: Cursor): Promise<boolean> {
  const collection = rt.catalog.current().collections.get(wish.collection)
  if (collection === undefined) return true
  if (!scopesRows(rt, wish)) return false
  const followed = new Map([[collection.name, { collection, fields: [], filter: wish.filter }]])
  const round = { from: from.snapshot, upTo: behind.snapshot }
  return (await disturbedCollections(rt, access, { followed, named: [collection.name] }, round)).length > 0
}
