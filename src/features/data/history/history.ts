import type { Readable } from 'node:stream'
import { admitted } from '../../../admission/lane.ts'
import type { Collection } from '../../../catalog/catalog.ts'
import type { CurrentCatalog } from '../../../catalog/store.ts'
import type { Configuration } from '../../../config/config.ts'
import type { Clock } from '../../../db/clock.ts'
import type { Database, Reads } from '../../../db/pools.ts'
import { readAnywhere } from '../../../db/replicas/read-anywhere.ts'
import { AppError, errors } from '../../../errors.ts'
import { commit, type Writes } from '../../../events/commit.ts'
import { cursorAt, encodeCursor } from '../../../events/cursor.ts'
import { positionOfEventId } from '../../../events/log.ts'
import type { Actor } from '../../../events/types.ts'
import type { Access } from '../../../query/access.ts'
import { resolveEnv } from '../../../query/env.ts'
import { readInteger, readString } from '../../../query/parse.ts'
import { readableFields, resolveCondition } from '../../../query/resolve.ts'
import type { Statement } from '../../../query/sql.ts'
import { canonicalKey, readOne, type SystemRules, streamRows } from '../items/items.ts'
import type { HistoryReads } from './capabilities.ts'
import {
  eraseImages,
  historyStatement,
  type ItemSight,
  type OwnedBy,
  presentMoment,
  userEventsStatement,
  versionStatement,
} from './queries.ts'

/**
 * `GET /items/{collection}/{id}/history`: `{"data":[{id, action, createdAt, userId, erased, changes}],"nextCursor"}`, the
 * newest event first; `changes` is `{field: {before, after}}`. `limit` is 1 to 100, 25 where there is none; `cursor` is the
 * `nextCursor` of the page before. 403 for an item that the caller may see neither now nor in any retained event.
 */
export async function readHistory(
  deps: HistoryReads,
  access: Access,
  name: string,
  id: string,
  raw: Readonly<Record<string, unknown>>,
): Promise<string> {
  const limit = Math.min(readInteger('limit', raw.limit, 1) ?? defaultLimit, largestLimit)
  const cursor = readString('cursor', raw.cursor)
  const position = cursor === undefined || cursor === '' ? undefined : positionOf(cursor)
  const via = { replicaFor: access }
  const sight = sightOf(deps, access, name)
  const place = { id: canonicalKey(sight.collection, id), position, limit: limit + 1 }
  const statement = historyStatement(sight, place)
  const rows = await admitted(deps.admission, { shape: statement.text, presumed: 'heavy' }, () =>
    readAnywhere(deps, access, (db) => run<{ id: string; data: string }>(db, statement)),
  )
  // Answers 403 unless the item is the caller's to see.
  if (rows.length === 0)
    await readOne(deps, access, name, id, { fields: sight.collection.primaryKey.name, paranoid: 'false' }, via)
  const page = rows.slice(0, limit)
  const next = rows.length > limit ? page.at(-1)!.id : null
  return `{"data":[${page.map(({ data }) => data).join(',')}],"nextCursor":${JSON.stringify(next)}}`
}

/**
 * The fields of an item after or before one of its events, as the caller may see them. 400 for what is no event's id, 403 where
 * there is no such version for the caller.
 */
export async function readEventVersion(
  deps: HistoryReads,
  access: Access,
  name: string,
  id: string,
  event: string,
  side: 'before' | 'after',
): Promise<Readonly<Record<string, unknown>>> {
  const sight = sightOf(deps, access, name)
  const key = canonicalKey(sight.collection, id)
  const [row] = await run<{ data: string }>(deps.db, versionStatement(sight, key, positionOf(event), side))
  if (row === undefined) throw errors.itemDenied('read')
  return JSON.parse(row.data)
}

/** `GET /history/now`: a cursor of this moment, for `asOf`, the database's time, and the oldest moment that can be read. */
export async function readNow(deps: Reads): Promise<{ data: { cursor: string; time: string; oldest: string | null } }> {
  const { snapshot, time, oldest } = await presentMoment(deps)
  return { data: { cursor: encodeCursor(cursorAt(snapshot)), time, oldest } }
}

/**
 * The right to be forgotten, the one exception to append-only: the images of an item's events become a marker, and for
 * a user the addresses of the user's requests are forgotten. The actor, action and time stay, and so does the item
 * itself. The erasure is an event. Answers the number of events; 404 when there are none.
 */
export async function eraseItem(
  deps: Writes & CurrentCatalog & SystemRules,
  actor: Actor,
  collection: string,
  id: string,
): Promise<number> {
  const known = deps.catalog.current().collections.get(collection)
  const item = known === undefined ? id : canonicalKey(known, id)
  return commit(deps, actor, async (tx) => {
    await deps.systemRules.get(collection)?.beforeErase?.(tx, item)
    const events = await eraseImages(tx, collection, item)
    if (events === 0) throw new AppError(404, `The log holds nothing about this item of ${collection}`)
    return { result: events, events: [{ type: 'history.erased', data: { collection, item, events } }] }
  })
}

/** Everything that the log holds about a user, one JSON object a line; hidden fields are not in it. 400 for a bad id. */
export async function exportUser(deps: HistoryReads, userId: string): Promise<Readable> {
  const { collections } = deps.catalog.current()
  const id = canonicalKey(collections.get('svc_User')!, userId)
  return streamRows(deps, userEventsStatement(id, ownedByUsers([...collections.values()])), async function* (rows) {
    for await (const batch of rows) yield `${batch.join('\n')}\n`
  })
}

const defaultLimit = 25
const largestLimit = 100

function sightOf(deps: Clock & Configuration & CurrentCatalog, access: Access, name: string): ItemSight {
  const catalog = deps.catalog.current()
  const fields = readableFields(catalog, access, name)
  // A deleted row is a version too, and what it was before is another.
  const rule = resolveCondition(catalog, access, name, 'read', resolveEnv(deps), { includeDeleted: true })
  const collection = catalog.collections.get(name)!
  if (!collection.logged) throw errors.badQuery(`${name} has no history`)
  return { collection, fields, rule, erased: access.admin }
}

function positionOf(event: string): string {
  const position = positionOfEventId(event)
  if (position === undefined) throw errors.badQuery('an event is named by its id')
  return position
}

/** The user who wrote a row last does not own it. */
function ownedByUsers(collections: readonly Collection[]): OwnedBy[] {
  return collections.flatMap(({ name, logged, relations }) =>
    [...relations.values()]
      .filter(({ kind, target }) => logged && kind === 'belongsTo' && target === 'svc_User')
      .filter(({ foreignKey }) => foreignKey !== 'userCreated_Id' && foreignKey !== 'userUpdated_Id')
      .map(({ foreignKey }) => ({ collection: name, column: foreignKey })),
  )
}

function run<Row extends object>(db: Database, { text, values }: Statement): Promise<Row[]> {
  return db.run(text, values, 'prepared') as Promise<Row[]>
}
