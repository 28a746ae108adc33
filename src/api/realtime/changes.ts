import type { LogEvent } from '../../events/log-reader.ts'
import { type ChangedRow, changedRows, type View } from '../../features/changes/changed-rows.ts'
import type { Runtime } from '../../runtime.ts'

/** What a client receives: name `{collection}:{action}`. */
export type Message = { readonly name: string; readonly xid: bigint; readonly body: { readonly cursor: string } }

/** A message and who gets it, as numbers of viewers from 0. */
export type Told = { readonly message: Message; readonly viewers: readonly number[] }

/** One statement's worth of images; a batch of large rows must not be held whole. */
const rowsAtOnce = 250
/** A view that takes longer would hold up everybody's changes. */
const longestMs = 10_000

/** Events in parts that one statement may evaluate. */
export function* partsOf(events: readonly LogEvent[]): Generator<readonly LogEvent[]> {
  for (let i = 0; i < events.length; i += rowsAtOnce) yield events.slice(i, i + rowsAtOnce)
}

/**
 * What viewers with one view and own values see of a part, in its order: one statement for all of them (design §5).
 */
export async function changesSeen(
  rt: Runtime,
  collectionName: string,
  view: View,
  viewers: readonly View['values'][],
  part: readonly LogEvent[],
): Promise<readonly Told[]> {
  const events = new Map(part.map((event) => [event.position, event]))
  const rows = await changedRows(rt.feedDb, view, viewers, [...events.keys()], AbortSignal.timeout(longestMs))
  return rows.flatMap((row) => messagesOf(rt, collectionName, events.get(row.position)!, row))
}

const actionNames = { create: 'insert', update: 'update', delete: 'delete' } as const

function messagesOf(rt: Runtime, name: string, event: LogEvent, row: ChangedRow): Told[] {
  const collection = rt.catalog.current().collections.get(name)
  if (collection === undefined) return []
  const { action, position, createdAt: timestamp, cursor } = event
  const tell = (as: string, data: unknown, to: readonly number[]): Told[] => {
    if (to.length === 0) return []
    const body = { action: as, collection: name, data, timestamp, cursor, position }
    return [{ message: { name: `${name}:${as}`, xid: BigInt(event.xid), body }, viewers: to.map((n) => n - 1) }]
  }
  const isWanted = collection.realtime.actions.has(actionNames[action as keyof typeof actionNames])
  if (action === 'delete') return isWanted ? tell('delete', JSON.parse(row.data), row.was_visible) : []
  // A row that has left a subscriber's scope is gone for it: only its id may still be told.
  const left = row.was_visible.filter((n) => !row.visible.includes(n))
  const removed = tell('remove', { [collection.primaryKey.name]: JSON.parse(row.key) }, left)
  return isWanted ? [...tell(action, JSON.parse(row.data), row.visible), ...removed] : removed
}
