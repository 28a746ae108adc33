import { parseSnapshot } from '../cursor.ts'
import type { SealedEvents } from './links.ts'

/**
 * The chain's bounds on time, for events that were sealed after others: a transaction that had not begun when a link
 * was made cannot have written before the events of that link, and positions are given out in the order of time. So
 * nobody can date an event back that is inserted now.
 */
type Timeline = {
  /** Links in the order of the chain; what is asked is held against those that have passed. */
  passed(link: SealedEvents): void
  /** Why an event cannot be what it says; undefined where it can. */
  contradictionOf(event: {
    readonly position: string
    readonly xid: string
    readonly createdAt: string
  }): string | undefined
}

/** How far a clock may be set back, and a process be stopped between two of its steps. */
const toleranceMs = 60_000

type Passed = {
  /** Transactions from this one on had not begun; undefined where the link does not say. */
  readonly xmax: bigint | undefined
  /** Of all links until here. */
  readonly latestMs: number
  readonly position: bigint
}

export function openTimeline(): Timeline {
  const links: Passed[] = []
  /** By transaction: events of one come together. */
  let asked: { xid: string; links: number; latestMs: number | undefined } | undefined

  const latestBefore = (xid: string): number | undefined => {
    if (asked?.xid === xid && asked.links === links.length) return asked.latestMs
    const number = BigInt(xid)
    const found = links.findLast(({ xmax }) => xmax !== undefined && xmax <= number)
    asked = { xid, links: links.length, latestMs: found?.latestMs }
    return found?.latestMs
  }

  return {
    passed: ({ round, latest, last }) => {
      const before = links.at(-1)
      const position = BigInt(last)
      links.push({
        xmax: round === undefined ? undefined : parseSnapshot(round.upTo)!.xmax,
        latestMs: Math.max(before?.latestMs ?? 0, Date.parse(latest)),
        position: before !== undefined && before.position > position ? before.position : position,
      })
    },
    contradictionOf: ({ position, xid, createdAt }) => {
      const writtenMs = Date.parse(createdAt)
      const begunAfterMs = latestBefore(xid)
      if (begunAfterMs !== undefined && writtenMs < begunAfterMs - toleranceMs)
        return `says it was written at ${createdAt}, but its transaction began after ${iso(begunAfterMs)}`
      const earlier = lastBefore(links, writtenMs - toleranceMs)
      if (earlier !== undefined && earlier.position > BigInt(position))
        return `says it was written at ${createdAt}, when its position was long given out`
      return undefined
    },
  }
}

/** The newest of the links all of whose events, and those before, are older than a time. */
function lastBefore(links: readonly Passed[], ms: number): Passed | undefined {
  let [low, high] = [0, links.length]
  while (low < high) {
    const middle = (low + high) >> 1
    if (links[middle]!.latestMs < ms) low = middle + 1
    else high = middle
  }
  return links[low - 1]
}

const iso = (ms: number): string => new Date(ms).toISOString()
