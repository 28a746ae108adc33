import { admitted } from '../../../admission/lane.ts'
import type { Collection } from '../../../catalog/catalog.ts'
import { logTable } from '../../../catalog/log-triggers.ts'
import { ofTodaysColumns } from '../../../catalog/past-columns.ts'
import type { CurrentCatalog } from '../../../catalog/store.ts'
import type { Configuration } from '../../../config/config.ts'
import type { Clock } from '../../../db/clock.ts'
import { errors } from '../../../errors.ts'
import { eventIdSql } from '../../../events/log.ts'
import type { Access } from '../../../query/access.ts'
import { compileCondition } from '../../../query/compile.ts'
import { projectionList } from '../../../query/compile-rows.ts'
import { readInteger, readString } from '../../../query/parse.ts'
import { ofTodaySql } from '../../../query/past.ts'
import { readableFields, resolveCondition, resolveEnv } from '../../../query/resolve.ts'
import {
  createParams,
  type Images,
  misfitsSql,
  rowOfImage,
  ruledBySql,
  type Statement,
  statement,
} from '../../../query/sql.ts'
import { isMadeMarked, unmarkedImage } from '../history/history.ts'
import { readImages } from '../items/items.ts'
import { type UndoReads, wireTime } from './queries.ts'
import { positionOf } from './undo.ts'

const defaultLimit = 25
const largestLimit = 100

/**
 * `GET /items/{collection}/deleted`: `{"data":[{id, event, deletedAt, deletedBy, requestId, item}],"nextCursor"}`, what was
 * deleted last first. A row is in it while its newest event is its deletion, or in a collection with soft delete the one that
 * marked it or made it marked, and the log still holds it; `item` are the fields that the caller may read, of rows that it might have read.
 */
export async function listDeleted(
  deps: UndoReads,
  access: Access,
  name: string,
  raw: Readonly<Record<string, unknown>>,
): Promise<string> {
  const limit = readInteger('limit', raw.limit, 1, largestLimit) ?? defaultLimit
  const cursor = readString('cursor', raw.cursor)
  const isFirst = cursor === undefined || cursor === ''
  const position = isFirst ? undefined : positionOf(cursor)
  if (position === undefined && !isFirst) throw errors.badQuery('cursor: expected the nextCursor of the page before')
  const rows = await readImages((images) => {
    const asked = deletedStatement(deps, access, name, { position, limit: limit + 1, images })
    return admitted(
      deps.admission,
      { shape: asked.text, presumed: 'heavy' },
      () => deps.db.run(asked.text, asked.values, 'prepared') as Promise<{ event: string; data: string }[]>,
    )
  })
  const page = rows.slice(0, limit)
  const next = rows.length > limit ? page.at(-1)!.event : null
  return `{"data":[${page.map(({ data }) => data).join(',')}],"nextCursor":${JSON.stringify(next)}}`
}

type TrashPage = { readonly position: string | undefined; readonly limit: number; readonly images: Images }

function deletedStatement(
  deps: Clock & Configuration & CurrentCatalog,
  access: Access,
  name: string,
  { position, limit, images }: TrashPage,
): Statement {
  const catalog = deps.catalog.current()
  const fields = readableFields(catalog, access, name)
  const rule = resolveCondition(catalog, access, name, 'read', resolveEnv(deps), { includeDeleted: true })
  const collection = catalog.collections.get(name)!
  if (!collection.logged) throw errors.badQuery(`${name} has no history`)
  const params = createParams()
  const entity = params.bind(name, 'text')
  const before = position === undefined ? '' : ` and ${isBefore(params.bind(position, 'bigint'))}`
  const image = ofTodaysColumns(goneImage(collection), entity, 'e')
  const isShown = images === 'whole' ? 'true' : ruledBySql(misfitsSql(name, image), rule?.ruled ?? new Set())
  const where = rule === undefined ? '' : ` and ${isShown} and ${compileCondition(rule, 't', params)}`
  const text = `select e.id::text as event, json_build_object('id', (select to_jsonb(k.*)->${params.bind(collection.primaryKey.name, 'text')} from (
        select ${projectionList([collection.primaryKey], 't')}) k), 'event', e.id, 'deletedAt', ${wireTime('e."createdAt"')},
      'deletedBy', e."userId", 'requestId', e."logRequestId", 'item', o.item)::text as data
    from "${logTable}" e
    cross join lateral ${rowOfImage(name, image, images)} t
    cross join lateral (select to_jsonb(i.*) as item from (select ${projectionList(fields, 't')}) i) o
    where e.type = 'data' and e.entity = ${entity} and ${ofTodaySql(entity)} and ${isDeletion(collection)}${before}
      and not exists (select from "${logTable}" l where l.type = 'data' and l.entity = ${entity} and l."entityId" = e."entityId"
        and l.position > e.position and ${isLater(collection)})${where}
    order by e."createdAt" desc, e.position desc limit ${params.bind(limit, 'bigint')}`
  return statement(text, params.values)
}

/** In the order of time, as the index has it. If an event is gone, so are all events before it. */
const isBefore = (position: string): string =>
  `(e."createdAt", e.position) < (coalesce((select c."createdAt" from "${logTable}" c where c.id = ${eventIdSql(position)}), '-infinity'), ${position})`

/** The row that the event took away. A marked one is still there, and is shown as it was before. */
const goneImage = ({ paranoid }: Collection): string =>
  paranoid
    ? `case when ${isMadeMarked('e')} then ${unmarkedImage('e')}
        when e.action = 'update' then (e.changes->'after') || (e.changes->'before') else e.changes->'before' end`
    : `e.changes->'before'`

const isMarking = (event: string): string =>
  `(${event}.action = 'update' and ${event}.changes->'before' ? 'deletedAt' and ${event}.changes->'before'->>'deletedAt' is null
    and ${event}.changes->'after'->>'deletedAt' is not null)`

/** An erased event has no images, and cannot be brought back. */
const isDeletion = ({ paranoid }: Collection): string =>
  paranoid
    ? `not e.changes ? 'erased' and (e.action = 'delete' or ${isMarking('e')} or ${isMadeMarked('e')})`
    : `e.action = 'delete' and not e.changes ? 'erased'`

/** Where rows are marked, one that was written afterwards is still deleted: unless it was brought back, or is gone for good. */
const isLater = ({ paranoid }: Collection): string =>
  paranoid
    ? `(l.action <> 'update' or l.changes ? 'erased' or l.changes->'before' ? 'deletedAt')`
    : `l.action <> 'update'`
