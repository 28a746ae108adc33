/** The time between the oldest moment that can be read and now, by the server's clock. */
export type Reach = { readonly oldest: number; readonly now: number }

const minute = 60_000

/** How fast the scale gets finer towards now: equal ways stand for equal ratios of time. */
const bend = ({ oldest, now }: Reach) => Math.max(1, Math.log((now - oldest) / minute))

/** Where a moment is between the left end, the oldest, and the right one, now. The closer to now, the finer. */
export function placeOf(time: number, reach: Reach): number {
  const ago = Math.min(1, Math.max(0, (reach.now - time) / (reach.now - reach.oldest)))
  return 1 - Math.log1p(ago * Math.expm1(bend(reach))) / bend(reach)
}

/** The moment at a place of the scale. */
export function timeAt(place: number, reach: Reach): number {
  const ago = Math.expm1((1 - place) * bend(reach)) / Math.expm1(bend(reach))
  return Math.round(reach.now - ago * (reach.now - reach.oldest))
}

/** A moment as `asOf` takes it: with what happened in the same millisecond, since events are shown without their microseconds. */
export const momentOf = (createdAt: string): string => createdAt.replace(/(\.\d{3})Z$/, '$1999Z')

/** Whether a moment is a cursor of the history, which says no time. */
export const isCursor = (asOf: string): boolean => !/^\d{4}-/.test(asOf) || Number.isNaN(Date.parse(asOf))

/** Whether a moment is that of an event. */
export const isMomentOf = (asOf: string | undefined, createdAt: string): boolean =>
  asOf !== undefined && asOf.slice(0, createdAt.length - 1) === createdAt.slice(0, -1)
