import type { Readable } from 'node:stream'
import { admitted } from '../../../admission/lane.ts'
import type { Collection, Field } from '../../../catalog/catalog.ts'
import { logSchema, logTable } from '../../../catalog/log-triggers.ts'
import { imageBefore, ofTodaysColumns } from '../../../catalog/past-columns.ts'
import type { CurrentCatalog } from '../../../catalog/store.ts'
import type { Configuration } from '../../../config/config.ts'
import type { Clock } from '../../../db/clock.ts'
import type { Database, Reads } from '../../../db/pools.ts'
import { readAnywhere } from '../../../db/replicas/replicas.ts'
import { rawQuery, type Tx } from '../../../db/sql.ts'
import { AppError, errors } from '../../../errors.ts'
import { commit, type Writes } from '../../../events/commit.ts'
import { cursorAt, encodeCursor, momentSql } from '../../../events/cursor.ts'
import { erasedMarker, logDoors, positionOfEventId } from '../../../events/log.ts'
import { keepCommitments } from '../../../events/seals/seals.ts'
import type { Actor } from '../../../events/types.ts'
import type { Access } from '../../../query/access.ts'
import { compileCondition } from '../../../query/compile.ts'
import { projectionList } from '../../../query/compile-rows.ts'
import { readInteger, readString } from '../../../query/parse.ts'
import { afterSql, namesToLookFor, ofTodaySql, parsePoint, youngerSql } from '../../../query/past.ts'
import { type ResolvedFilter, readableFields, resolveCondition, resolveEnv } from '../../../query/resolve.ts'
import {
  createParams,
  type Images,
  literal,
  misfitsSql,
  rowOfJson,
  ruledBySql,
  type Statement,
  statement,
} from '../../../query/sql.ts'
import {
  canonicalKey,
  type ItemReads,
  type ItemWrites,
  readImages,
  readOne,
  type SystemRules,
  streamRows,
} from '../items/items.ts'

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
  const limit = readInteger('limit', raw.limit, 1, largestLimit) ?? defaultLimit
  const cursor = readString('cursor', raw.cursor)
  const position = cursor === undefined || cursor === '' ? undefined : positionOf(cursor)
  const via = { replicaFor: access }
  const sight = sightOf(deps, access, name)
  const place = { id: canonicalKey(sight.collection, id), position, limit: limit + 1 }
  const rows = await readImages((images) => {
    const statement = historyStatement({ ...sight, images }, place)
    return admitted(deps.admission, { shape: statement.text, presumed: 'heavy' }, () =>
      readAnywhere(deps, access, (db) => run<{ id: string; data: string }>(db, statement)),
    )
  })
  // Answers 403 unless the item is the caller's to see.
  if (rows.length === 0)
    await readOne(deps, access, name, id, { fields: sight.collection.primaryKey.name, paranoid: 'false' }, via)
  const page = rows.slice(0, limit)
  const next = rows.length > limit ? page.at(-1)!.id : null
  return `{"data":[${page.map(({ data }) => data).join(',')}],"nextCursor":${JSON.stringify(next)}}`
}

/** An item as it was. */
export type ItemVersion = {
  readonly values: Readonly<Record<string, unknown>>
  /** Fields that came to the collection later, null in `values`. */
  readonly younger: readonly string[]
  /** Fields whose value of then does not fit their column of today. */
  readonly misfits: readonly string[]
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
): Promise<ItemVersion> {
  const sight = sightOf(deps, access, name)
  const key = canonicalKey(sight.collection, id)
  const versioned = versionStatement(sight, key, positionOf(event), side)
  const [row] = await run<{ data: string; younger: string[]; misfits: string[] }>(deps.db, versioned)
  if (row === undefined) throw errors.itemDenied('read')
  return { values: JSON.parse(row.data), younger: row.younger, misfits: row.misfits }
}

/**
 * Of a version of an item, which is that of a cursor or a time: those of the fields that came to the collection later, and the
 * names of values that do not fit.
 */
export async function unheldFields(
  deps: HistoryReads,
  name: string,
  id: string,
  asOf: string,
  fields: readonly Field[],
): Promise<Pick<ItemVersion, 'younger' | 'misfits'>> {
  const collection = deps.catalog.current().collections.get(name)!
  const asked = unheldStatement(collection, canonicalKey(collection, id), asOf, fields)
  // An item without an event since then is as it was.
  return (await run<{ younger: string[]; misfits: string[] }>(deps.db, asked))[0] ?? { younger: [], misfits: [] }
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
  return { collection, fields, rule, erased: access.admin, images: 'fitting' }
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

/**
 * The part of an item's rows that a caller may see: these fields of the rows that satisfy the rule (undefined: all).
 */
type ItemSight = {
  readonly collection: Collection
  readonly fields: readonly Field[]
  readonly rule: ResolvedFilter | undefined
  readonly images: Images
  /** Whether erased events are told. */
  readonly erased: boolean
}

/** A place in an item's history: `position` undefined begins at the newest event. */
type HistoryPage = { readonly id: string; readonly position: string | undefined; readonly limit: number }

/**
 * One row per event, the newest first: `id`, and `data`, its JSON text. Images are rows of then and pass the same
 * condition and projection as rows of today; an item that comes into sight is created to the caller, one that leaves it
 * deleted, and an update of nothing that the caller sees has not happened.
 */
function historyStatement(sight: ItemSight, { id, position, limit }: HistoryPage): Statement {
  const params = createParams()
  const { collection, erased } = sight
  const ofTodays = (image: string) => ofTodaysColumns(image, literal(collection.name), 'l')
  const text = `select h.id::text as id, json_build_object('id', h.id, 'action', ${shownAction}, 'createdAt', ${wireTime('h."createdAt"')},
      'userId', h."userId", 'requestId', h."logRequestId", 'agent', h.agent, 'cause', h.cause, 'erased', h.erased, 'changes', ${changedFields})::text as data
    from (select e.*, ${imageSql(sight, 'e.old', params)} as before, ${imageSql(sight, 'e.new', params)} as after
      from (select l.id, l.position, l.action, l."createdAt", l."userId", l."logRequestId", l.agent, l.cause, coalesce(l.changes ? 'erased', false) as erased,
          ${ofTodays(oldImage)} as old,
          ${ofTodays(`l.changes->'after'`)} as new
        from "${logTable}" l
        where l.type = 'data' and l.entity = ${params.bind(collection.name, 'text')} and l."entityId" = ${params.bind(id, 'text')}
          and ${ofTodaySql(literal(collection.name), 'l')} and l.position < ${params.bind(position ?? newest, 'bigint')}
      ) e
    ) h
    where case when h.erased then ${params.bind(erased, 'boolean')} else h.before is distinct from h.after end
    order by h.position desc limit ${params.bind(limit, 'bigint')}`
  return statement(text, params.values)
}

/** Whether an event made its row in the trash: brought it back there, or gave a row that was there another key. */
export const isMadeMarked = (event: string): string =>
  `(${event}.action = 'create' and ${event}.changes->'after'->>'deletedAt' is not null)`

/** Such a row before it was marked, as far as the log tells. */
export const unmarkedImage = (event: string): string => `${event}.changes->'after' || '{"deletedAt": null}'`

/** One row with `data`, the JSON text of the item as an event left or found it, or no row. */
function versionStatement(sight: ItemSight, id: string, position: string, side: 'before' | 'after'): Statement {
  const params = createParams()
  const before = sight.collection.paranoid
    ? `case when ${isMadeMarked('l')} then ${unmarkedImage('l')} else ${oldImage} end`
    : oldImage
  const whole = side === 'after' ? `l.changes->'after'` : before
  const event = `select ${ofTodaysColumns(whole, literal(sight.collection.name), 'l')} as image from "${logTable}" l where l.type = 'data'
    and l.entity = ${params.bind(sight.collection.name, 'text')} and l."entityId" = ${params.bind(id, 'text')}
    and ${ofTodaySql(literal(sight.collection.name), 'l')} and l.position = ${params.bind(position, 'bigint')}`
  const image = imageSql(sight, 'e.image', params)
  const younger = youngerSql('e.image', params.bind(namesToLookFor(sight.collection, sight.fields), 'text[]'))
  return statement(
    `select v.data::text as data, v.younger, v.misfits from (select ${image} as data, ${younger} as younger,
       ${misfitsSql(sight.collection.name, 'e.image')} as misfits from (${event}) e) v
     where v.data is not null`,
    params.values,
  )
}

/** One row with `younger` and `misfits`, by the first event of the item after the moment, or no row. */
function unheldStatement(collection: Collection, id: string, asOf: string, fields: readonly Field[]): Statement {
  const params = createParams()
  const event = `select ${ofTodaysColumns(oldImage, literal(collection.name), 'l')} as image from "${logTable}" l where l.type = 'data'
    and l.entity = ${params.bind(collection.name, 'text')} and l."entityId" = ${params.bind(id, 'text')}
    and ${ofTodaySql(literal(collection.name), 'l')} and ${afterSql(parsePoint(asOf), params, 'l')} order by l.position limit 1`
  const younger = youngerSql('e.image', params.bind(namesToLookFor(collection, fields), 'text[]'))
  const misfits = misfitsSql(collection.name, 'e.image')
  return statement(`select ${younger} as younger, ${misfits} as misfits from (${event}) e`, params.values)
}

/** The present moment, for `cursorAt`, and as an ISO time; and the oldest one that the log reaches, null while it is empty. */
async function presentMoment({ db }: Reads): Promise<{ snapshot: string; time: string; oldest: string | null }> {
  return db.one(
    rawQuery(`select ${momentSql} as snapshot, ${wireTime('clock_timestamp()')} as time,
      (select ${wireTime(`date_trunc('milliseconds', nullif(greatest(f."upTo", (select min("createdAt") from "${logTable}")), '-infinity') + interval '999 microseconds')`)}
       from ${logSchema}.floor f) as oldest`),
  )
}

/** Replaces the images of one item's events by the marker and gives their number. Their seals stay provable. */
async function eraseImages(tx: Tx, collection: string, id: string): Promise<number> {
  const where = `e.type = 'data' and e.entity = $1 and e."entityId" = $2`
  await keepCommitments(tx, { part: 'images', where, values: [collection, id] })
  const erased = await tx.any(
    rawQuery(
      `${logDoors.erase} update "${logTable}" set changes = $1::jsonb
       where type = 'data' and entity = $2 and "entityId" = $3 returning 1`,
      [JSON.stringify(erasedMarker), collection, id],
    ),
  )
  if (collection === 'svc_User') await forgetOrigins(tx, id)
  return erased.length
}

/** Where a user's requests came from, in every event that the user caused or that is about the user. */
async function forgetOrigins(tx: Tx, userId: string): Promise<void> {
  const where = `(e."userId"::text = $1 or (e.entity = 'svc_User' and e."entityId" = $1)) and coalesce(e.ipaddress, e."userAgent") is not null`
  await keepCommitments(tx, { part: 'origin', where, values: [userId] })
  await tx.any(
    rawQuery(
      `${logDoors.erase} update "${logTable}" set ipaddress = null, "userAgent" = null
       where ("userId"::text = $1 or (entity = 'svc_User' and "entityId" = $1)) and coalesce(ipaddress, "userAgent") is not null`,
      [userId],
    ),
  )
}

/** A collection whose rows belong to a user, and the column that says to which. */
type OwnedBy = { readonly collection: string; readonly column: string }

/**
 * One row per event, the oldest first, with `data`, its JSON text: what is about the user or about an item that belongs to
 * the user, with both images, and what the user did to anything else, without them.
 */
function userEventsStatement(userId: string, owned: readonly OwnedBy[]): Statement {
  const params = createParams()
  const user = params.bind(userId, 'text')
  const names = params.bind(
    owned.map(({ collection }) => collection),
    'text[]',
  )
  const columns = params.bind(
    owned.map(({ column }) => column),
    'text[]',
  )
  const text = `select json_build_object('id', e.id, 'createdAt', ${wireTime('e."createdAt"')}, 'type', e.type, 'entity', e.entity,
      'entityId', e."entityId", 'action', e.action, 'userId', e."userId", 'requestId', e."logRequestId", 'agent', e.agent, 'cause', e.cause, 'ipaddress', case when own.caused then e.ipaddress end,
      'userAgent', case when own.caused then e."userAgent" end,
      'changes', case when own.about then ${logSchema}.shown(e.type, e.entity, e.action, e.changes) end)::text as data
    from "${logTable}" e cross join lateral (select coalesce(e."userId"::text = ${user}, false) as caused,
      (e.entity = 'svc_User' and coalesce(e."entityId" = ${user}, false)) or (e.type = 'data' and exists (
        select from unnest(${names}, ${columns}) o(entity, field) where o.entity = e.entity
          and (e.changes->'after'->>o.field = ${user} or e.changes->'before'->>o.field = ${user}))) as about) own
    where own.caused or own.about
    order by e.position`
  return statement(text, params.values)
}

const oldImage = imageBefore('l')

/** Above every position. */
const newest = '9223372036854775807'

const shownAction = `case when h.erased then h.action when h.before is null then 'create' when h.after is null then 'delete' else 'update' end`

/** `{field: {before, after}}` of the fields that differ; null where the images were erased. */
const changedFields = `case when not h.erased then (
        select coalesce(json_object_agg(key, json_build_object('before', b.value, 'after', a.value)), '{}')
        from jsonb_each(coalesce(h.before, '{}')) b full join jsonb_each(coalesce(h.after, '{}')) a using (key)
        where b.value is distinct from a.value) end`

/**
 * An image as the caller sees it, jsonb; null where there is none or the rule does not hold for it. A value that does not
 * fit is as it stands in the log.
 */
function imageSql(
  { collection, fields, rule, images }: ItemSight,
  image: string,
  params: ReturnType<typeof createParams>,
): string {
  const where = rule === undefined ? '' : ` and ${compileCondition(rule, 't', params)}`
  const shown = `select ${projectionList(fields, 't')}`
  if (images === 'whole')
    return `(select to_jsonb(o.*) from (${shown}
        from ${rowOfJson(collection.name, image)} t where ${image} is not null${where}) o)`
  const names = params.bind(
    fields.map(({ name }) => name),
    'text[]',
  )
  const asLogged = `(select coalesce(jsonb_object_agg(n, ${image}->n), '{}') from unnest(m.misfits) n where n = any(${names}))`
  return `(select to_jsonb(o.*) || ${asLogged} from (select ${misfitsSql(collection.name, image)} as misfits offset 0) m
        cross join lateral (${shown} from ${rowOfJson(collection.name, `${image} - m.misfits`)} t
          where ${image} is not null and ${ruledBySql('m.misfits', rule?.ruled ?? new Set())}${where}) o)`
}

const wireTime = (time: string): string => `to_char(${time} at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')`

/** The capabilities that reads of this folder need: those of reading items. */
export type HistoryReads = ItemReads

/** The capabilities that changes of this folder need: those of changing items. */
export type HistoryWrites = ItemWrites
