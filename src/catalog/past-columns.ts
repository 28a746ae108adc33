import { logTable } from './log-triggers.ts'

/**
 * A column that is made again under the name of a dropped one is another column, which begins with an empty past. Images of the log name
 * columns only; when one was dropped, the log tells by the definitions, whose rows it holds like all others.
 */

/** The image (SQL) of a row before the event, in the columns of then. */
export const imageBefore = (event: string): string =>
  `case when ${event}.action = 'update' then (${event}.changes->'after') || (${event}.changes->'before') else ${event}.changes->'before' end`

/**
 * An image (SQL) of the event, without the columns that were dropped after it. The collection's name is SQL too, and so is `first`: a
 * position before which none of the events is, where there is one.
 */
export const ofTodaysColumns = (image: string, collection: string, event: string, first?: string): string =>
  `((${image}) - array(select d.key from jsonb_each_text(coalesce(${droppedColumnsSql(collection, first)}, '{}')) d where d.value::bigint > ${event}.position))`

/**
 * SQL of an object: for each column of a collection that a change of its definition has dropped, the position of the last such change;
 * null where there is none. Changes before the position `first` are not looked at. Neither may be of a row where many rows need it, so
 * that PostgreSQL reads it once.
 */
export const droppedColumnsSql = (collection: string, first?: string): string =>
  `(select jsonb_object_agg(g.name, g.position) from (
      select was.name, max(s.position) as position from public."${logTable}" s
      cross join lateral (${columnsSql(`s.changes->'before'->'schema'`)} except ${columnsSql(`s.changes->'after'->'schema'`)}) was
      where s.entity = 'svc_SchemaDefinition' and s."entityId" = ${collection} and s.type = 'data' and s.action = 'update'${first === undefined ? '' : ` and s.position > ${first}`}
        and s.changes->'before' ? 'schema' and was.name is not null
      group by was.name) g)`

/** The columns of a stored definition, without those of its switches; that of a BelongsTo may be there by the relation alone. */
const columnsSql = (schema: string): string =>
  `select case when not f.value ? 'relType' then f.key when f.value->>'relType' = 'BelongsTo' then coalesce(f.value->>'foreignKey', f.key || '_Id') end as name
       from jsonb_each(${schema}->'fields') f`
