import type { IdSource } from '../../../adapters/ids.ts'
import type { Configuration } from '../../../config/config.ts'
import type { Tx, UnloggedWrites } from '../../../db/sql.ts'
import { notifySockets } from '../../../db/unlogged/pushes.ts'
import { isUuid } from '../../../language/uuid.ts'

/**
 * What the server says to sockets of its own accord. It goes to all web processes by NOTIFY, from any process, and in a
 * transaction with its commit: no Redis is needed, and nothing is sent of what was rolled back. Nothing is kept: a client
 * that is not connected misses it.
 */
export type Push = {
  readonly to: Target
  readonly event: string
  readonly body: unknown
}

/** Tenants: null for sockets without one, undefined for all. */
export type Target =
  | { readonly kind: 'user'; readonly userId: string; readonly tenantId?: string | null | undefined }
  | { readonly kind: 'room'; readonly name: string; readonly tenantId: string | null }
  | { readonly kind: 'all'; readonly tenantId?: string | null | undefined }

/** PostgreSQL takes 8,000 bytes a time, some of which name the part. */
const partLength = 7000
const longest = 262_144

const reserved = new Set(['connect', 'connect_error', 'disconnect', 'disconnecting', 'newListener', 'removeListener'])

/** Throws a TypeError for an event or target that there cannot be, and for a body of more than 256 kB. */
export async function push(
  rt: UnloggedWrites & Configuration & IdSource,
  tx: Tx | undefined,
  what: Push,
): Promise<void> {
  if (typeof what.event !== 'string' || what.event === '' || reserved.has(what.event))
    throw new TypeError(`${JSON.stringify(what.event)} is no name for an event`)
  if (what.to.kind === 'user' && !isUuid(what.to.userId)) throw new TypeError('userId must be the id of a user')
  if (!rt.config.realtime.enabled) return
  await notifySockets(rt, tx, partsOf(rt.newId(), what))
}

/** `{id}:{index}:{count}:{text}`: the JSON in ASCII, so that a character is a byte, cut into pieces. */
function partsOf(id: string, what: Push): string[] {
  const text = JSON.stringify(what).replaceAll(/[^\x20-\x7e]/g, escaped)
  if (text.length > longest) throw new TypeError(`a push is at most ${longest} bytes`)
  const count = Math.ceil(text.length / partLength)
  return Array.from(
    { length: count },
    (_, index) => `${id}:${index}:${count}:${text.slice(index * partLength, (index + 1) * partLength)}`,
  )
}

const escaped = (unit: string) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`

/** Puts parts together; gives the push with its last part. Forgets what has stayed incomplete. */
export function openAssembly(): { add(part: string): Push | undefined; clear(): void } {
  const waiting = new Map<string, string[]>()
  return {
    add: (given) => {
      const [, id = '', index = '', count = '', text = ''] = /^([^:]+):(\d+):(\d+):(.*)$/s.exec(given) ?? []
      const parts = waiting.get(id) ?? []
      parts[Number(index)] = text
      waiting.set(id, parts)
      if (Object.keys(parts).length < Number(count)) return undefined
      waiting.delete(id)
      return JSON.parse(parts.join('')) as Push
    },
    clear: () => waiting.clear(),
  }
}
