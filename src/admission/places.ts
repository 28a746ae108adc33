import type { Room } from './step.ts'

/**
 * Of the connections that reads have, how many admitted work may hold at a time. The rest is for what is never admitted:
 * reads by key, and whatever else takes no time. Heavy work leaves half of the places to lists, and does not run on more
 * than `cores` of them, where the database shares this machine: more statements would not end sooner, and everything else
 * would wait for a core. Work of its kinds that is quick leaves one place, unless `heavyAtOnce` bounds all of it.
 */
export function readPlaces(connections: number, heavyAtOnce: number | undefined, cores: number): Room {
  const kept = connections >= 5 ? 2 : connections >= 2 ? 1 : 0
  const all = connections - kept
  const heavy = Math.min(all, heavyAtOnce ?? Math.max(1, Math.min(cores, Math.floor(all / 2))))
  return { all, heavy, quick: heavyAtOnce === undefined ? Math.max(heavy, all - 1) : heavy }
}
