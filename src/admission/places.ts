import type { Places } from './step.ts'

/**
 * Of the connections that reads have, how many admitted work may hold at a time. The rest is for what is never admitted:
 * reads by key, and whatever else takes no time. Heavy work leaves some of its places to lists that are quick.
 */
export function readPlaces(connections: number, heavyAtOnce: number | undefined): Pick<Places, 'all' | 'heavy'> {
  const kept = connections >= 5 ? 2 : connections >= 2 ? 1 : 0
  const all = connections - kept
  return { all, heavy: Math.min(all, heavyAtOnce ?? Math.max(1, Math.floor(all / 2))) }
}
