import type { Logger } from 'pino'
import { type Listener, liveForMs } from './listener.ts'
import type { Database } from './pools.ts'

/**
 * Leases: the processes that answer from memory, and how one waits for them (ADR 25). A process may do so while its
 * listener is live; it holds a lease, which is a row of svc_Lease that it renews. A process that has committed the end
 * of a session waits until each holder has heard of it, or could no longer answer from memory without having heard.
 */
export type Leases = {
  /**
   * Resolves when every other process has handled the notifications of what was committed before the call, or holds no
   * lease from before it: after a round trip when all is well, after little more than a second at most. Never rejects.
   */
  heardByAll(): Promise<void>
}

type LeasesOptions = { readonly db: Database; readonly listener: Listener; readonly log: Logger }

export function openLeases({ db, listener, log }: LeasesOptions): Leases {
  const rounds = new Map<string, LeaseRound>()
  let last = 0

  const ask = async (key: string, round: LeaseRound) => {
    const holders = await db.run<{ id: string }>(askHolders, [listener.id, `${listener.id} ${key}`], 'prepared')
    round.expect(holders.map(({ id }) => id))
  }

  listener.on('svc_leases', (payload) => {
    const [asker = '', key] = payload.split(' ')
    if (asker === listener.id || !listener.leased) return
    listener
      .notify(asker, `${key} ${listener.id}`)
      .catch((error: unknown) => log.debug({ err: error }, 'a question of another process stays without an answer'))
  })
  listener.onNotified((payload) => {
    const [key = '', from = ''] = payload.split(' ')
    rounds.get(key)?.hear(from)
  })
  return {
    heardByAll: async () => {
      const key = String(++last)
      const round = openRound()
      rounds.set(key, round)
      ask(key, round).catch((error: unknown) =>
        log.warn({ err: error }, 'who keeps sessions in memory could not be asked: waiting until nobody can'),
      )
      await round.done
      rounds.delete(key)
    },
  }
}

/** Clocks that run at slightly different speeds. */
const marginMs = 50

type LeaseRound = { readonly done: Promise<void>; expect(ids: readonly string[]): void; hear(id: string): void }

/** Ends when all expected have been heard of, in whichever order both is learned, or all leases of its beginning are over. */
function openRound(): LeaseRound {
  const { promise, resolve } = Promise.withResolvers<void>()
  const timer = setTimeout(resolve, liveForMs + marginMs)
  const heard = new Set<string>()
  let expected: readonly string[] | undefined
  const look = () => {
    if (expected?.every((id) => heard.has(id)) !== true) return
    clearTimeout(timer)
    resolve()
  }
  return {
    done: promise,
    expect: (ids) => {
      expected = ids
      look()
    },
    hear: (id) => {
      heard.add(id)
      look()
    },
  }
}

/**
 * Asks the holders, if there are any, and gives their ids. A holder that renewed longer ago is dead or stopped; five
 * seconds instead of one, because the last renewals are lost when the server crashes.
 */
const askHolders = `
    select id, pg_notify('svc_leases', $2) from "svc_Lease"
    where id <> $1 and "seenAt" > clock_timestamp() - interval '5 seconds'`
