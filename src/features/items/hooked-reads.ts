import type { Readable } from 'node:stream'
import { text } from 'node:stream/consumers'
import { plainQuery, readBoolean } from '../../query/parse.ts'
import type { Runtime } from '../../runtime.ts'
import type { Writer } from './context.ts'
import { beforeRead, tellAfter } from './hooking.ts'
import { readList, readVersion, type Via } from './reads.ts'

/**
 * As `readList`, with the hooks of the collection around it. They are given the query as plain values and may give
 * another one, which is still the caller's to read. Where a hook wants to see the result it is read whole, however long.
 * With `changesCursor=true` the answer ends with the cursor from which `GET /changes` goes on (docs/changes.md).
 */
export async function listItems(
  rt: Runtime,
  reader: Writer,
  collection: string,
  raw: Record<string, unknown>,
  via: Pick<Via, 'replicaFor' | 'trace' | 'defaultLimit'> = {},
): Promise<string | Readable> {
  const { hooks } = rt
  const query = await hookedQuery(rt, reader, collection, raw)
  const tx = reader.scope?.tx
  // Inside a transaction that writes there is no place in the log to go on from yet.
  const marked = tx === undefined && readBoolean('changesCursor', raw.changesCursor) === true
  const list = await readList(rt, reader.access, collection, query, { ...via, tx, marked })
  if (!hooks.has(collection, 'items.read.after')) return list
  const body = typeof list === 'string' ? list : await text(list)
  await tellAfter(rt, reader, 'items.read.after', collection, { query, result: JSON.parse(body) })
  return body
}

/** What the hooks of a list make of its query: the caller's own where there are none. */
export async function hookedQuery(
  rt: Runtime,
  reader: Writer,
  collection: string,
  raw: Record<string, unknown>,
): Promise<Record<string, unknown>> {
  if (!rt.hooks.has(collection, 'items.read') || !isReadable(rt, reader, collection)) return raw
  const { query } = await beforeRead(rt, reader, 'items.read', collection, { query: plainQuery(raw) })
  return query
}

/** As `readVersion`, with the hooks of the collection around it. */
export async function readItem(
  rt: Runtime,
  reader: Writer,
  collection: string,
  id: string,
  raw: Record<string, unknown>,
  via: Pick<Via, 'replicaFor' | 'trace'> = {},
): Promise<{ readonly body: string; readonly version: string | undefined }> {
  const { hooks } = rt
  const { access, scope } = reader
  const { query } =
    hooks.has(collection, 'items.read.one') && isReadable(rt, reader, collection)
      ? await beforeRead(rt, reader, 'items.read.one', collection, { id, query: plainQuery(raw) })
      : { query: raw }
  const item = await readVersion(rt, access, collection, id, query, { ...via, tx: scope?.tx })
  if (hooks.has(collection, 'items.read.one.after'))
    await tellAfter(rt, reader, 'items.read.one.after', collection, { id, query, document: JSON.parse(item.body).data })
  return item
}

/** Hooks don't hear of what is refused anyway: unknown collections, and those that the caller may not read. */
function isReadable(rt: Runtime, { access }: Writer, collection: string): boolean {
  if (!rt.catalog.current().collections.has(collection)) return false
  return access.admin || access.grant(collection, 'read') !== undefined
}
