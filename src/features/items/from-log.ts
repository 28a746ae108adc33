import type { Collection } from '../../catalog/catalog.ts'
import type { RowEvent } from '../../events/lost-writes.ts'
import type { WriteContext } from './context.ts'

/** What a statement on one row would have answered; undefined where its events do not tell. */
export type FromLog = (events: readonly RowEvent[]) => LoggedRow | undefined

type LoggedRow = { readonly id: string; readonly found: true; readonly created: boolean }

type Way = 'create' | 'update' | 'delete' | 'upsert'

/** A soft delete is an update; an update of the key is a delete and a create, and is not looked into. */
const actions: Readonly<Record<Way, readonly string[]>> = {
  create: ['create'],
  update: ['update'],
  delete: ['delete', 'update'],
  upsert: ['create', 'update'],
}

/** Reads the row's event among those of its statement; there may be others, of rows that were changed with it. */
export function rowFromLog({ collection }: WriteContext, way: Way, key?: string): FromLog {
  return (events) => {
    const own = events.filter(
      ({ entity, entityId, action }) =>
        entity === collection.name && actions[way].includes(action) && (key === undefined || entityId === key),
    )
    const [event] = own
    const id = own.length === 1 && event!.entityId !== null ? jsonOfKey(collection, event!.entityId) : undefined
    return id === undefined ? undefined : { id, found: true, created: event!.action === 'create' }
  }
}

/** As the statements project a key; undefined for kinds that are written in more than one way. */
function jsonOfKey({ primaryKey: { kind } }: Collection, text: string): string | undefined {
  if (kind === 'integer' || kind === 'bigint') return Number.isSafeInteger(Number(text)) ? text : JSON.stringify(text)
  return kind === 'uuid' || kind === 'text' ? JSON.stringify(text) : undefined
}
