import type { Left, Member, Person, Room } from './rooms.ts'

/** What the scripts of `redis-scripts.ts` answer, as values. */

/** What a `leaveScript` did; undefined when there was nothing to leave. */
export function leftOf(
  socketId: string,
  [outcome, userId = '', next = '', nextUser = '']: readonly string[],
): Left | undefined {
  return outcome === 'left' ? { person: { socketId, userId }, newCreator: personOf(next, nextUser) } : undefined
}

export const personOf = (socketId: string, userId: string): Person | undefined =>
  socketId === '' ? undefined : { socketId, userId }

/** The room of a key as `roomKey` makes it. */
export function roomOf(key: string): Room {
  const at = key.indexOf(':')
  const tenant = key.slice(0, at)
  return { tenantId: tenant === '-' ? undefined : tenant, name: key.slice(at + 1) }
}

/** In the order in which they came, which is what they are stored with first. */
export function membersOf([, creator, ...pairs]: readonly string[]): readonly Member[] {
  return inPairs(pairs)
    .toSorted(([, a], [, b]) => (a < b ? -1 : 1))
    .map(([socketId, stored]) => {
      const [, userId = '', metadata = ''] = /^\S+ (\S+) \S+ (.*)$/s.exec(stored) ?? []
      return { socketId, userId, metadata: metadata === '' ? undefined : metadata, isCreator: socketId === creator }
    })
}

export const inPairs = <T>(flat: readonly T[]): [T, T][] =>
  Array.from({ length: flat.length / 2 }, (_, i) => [flat[2 * i]!, flat[2 * i + 1]!])
