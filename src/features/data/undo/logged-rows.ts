import type { Catalog } from '../../../catalog/catalog.ts'
import { logTable } from '../../../catalog/log-triggers.ts'
import { droppedColumnsSql } from '../../../catalog/past-columns.ts'
import { type Reader, rawQuery } from '../../../db/sql.ts'
import { eventIdSql } from '../../../events/log.ts'
import { ofTodaySql } from '../../../query/past.ts'
import { createParams } from '../../../query/sql.ts'
import { chosenSql, type EventChoice } from './queries.ts'
import type { LoggedChange } from './reversal.ts'

/* The changes of the rows that an undo is about, as the log has them. */

/** A row with all its events since the first chosen one; without events if it was in a dropped collection of the same name. */
export type LoggedRow = { readonly collection: string; readonly id: string; readonly changes: readonly LoggedChange[] }

/** `first` is when the first chosen event was written. */
export async function changesOf(
  db: Reader,
  { collections }: Catalog,
  chosen: EventChoice,
  first: string,
): Promise<readonly LoggedRow[]> {
  const logged = await loggedChanges(db, chosen, first)
  const isStrange = (collection: string, name: string) => collections.get(collection)?.fields.has(name) === false
  const positions = logged.flatMap(({ collection, changes }) =>
    changes.flatMap(({ position, fields }) => (fields.some((name) => isStrange(collection, name)) ? [position] : [])),
  )
  if (positions.length === 0) return logged
  const still = await columnsLeftAlone(db, positions)
  return logged.map(({ collection, changes, ...row }) => {
    const isLeftAlone = (position: string, name: string) =>
      isStrange(collection, name) && still.get(position)?.has(name) === true
    return {
      ...{ ...row, collection },
      changes: changes.map((change) => ({
        ...change,
        fields: change.fields.filter((name) => !isLeftAlone(change.position, name)),
      })),
    }
  })
}

/**
 * Columns that updates at these positions name though they did not change them, or that PostgreSQL calculates. The log compares
 * the columns of the definition alone, so others, made by SQL, are named by every update. A hidden field is null before and after
 * its change: null counts of columns that are there alone.
 */
async function columnsLeftAlone(
  db: Reader,
  positions: readonly string[],
): Promise<ReadonlyMap<string, ReadonlySet<string>>> {
  const rows = await db.any<{ position: string; names: string[] }>(
    rawQuery(
      `select e.position::text as position, json_agg(b.key) as names
       from "${logTable}" e cross join lateral jsonb_each(e.changes->'before') b
         left join pg_attribute a on a.attrelid = to_regclass('public.' || quote_ident(e.entity)) and a.attname = b.key and not a.attisdropped
       where e.id in (select ${eventIdSql('p')} from unnest($1::bigint[]) p) and (a.attgenerated <> ''
         or (b.value = e.changes->'after'->b.key and (a.attname is not null or b.value <> 'null')))
       group by 1`,
      [positions],
    ),
  )
  return new Map(rows.map(({ position, names }) => [position, new Set(names)]))
}

async function loggedChanges(db: Reader, chosen: EventChoice, first: string): Promise<readonly LoggedRow[]> {
  const params = createParams()
  const where = chosenSql(chosen, params)
  const isChosen = chosenSql(chosen, params, 'e')
  const since = params.bind(first, 'timestamptz')
  return db.any<LoggedRow>(
    rawQuery(
      `with touched as materialized (
         select l.entity, l."entityId", min(l.position) filter (where ${ofTodaySql('l.entity', 'l')}) as first
         from "${logTable}" l where ${where} and l.type = 'data' group by 1, 2),
       undoing as materialized (
         select l.xid from "${logTable}" l
         where l.entity = 'svc_AuditLog' and l.type = 'history' and l.action = 'undone' and l."createdAt" >= ${since}),
       gone as materialized (
         select c.entity, ${droppedColumnsSql('c.entity')} as columns from (select distinct entity from touched) c)
       select t.entity as collection, t."entityId" as id, coalesce(json_agg(json_build_object(
           'position', e.position::text, 'action', e.action, 'isErased', e.changes ? 'erased', 'isUndone', ${isChosen},
           'isByUndo', e.xid in (select xid from undoing),
           'fields', ${changedSql('not')}, 'dropped', ${changedSql()}
         ) order by e.position) filter (where e.position is not null), '[]') as changes
       from touched t join gone g using (entity) left join "${logTable}" e on e.type = 'data' and e.entity = t.entity and e."entityId" = t."entityId"
         and e.position >= t.first and e."createdAt" >= ${since}
       group by 1, 2 order by 1, 2`,
      params.values,
    ),
  )
}

/** The fields that an update changed: those dropped after it, or the others. */
const changedSql = (not: '' | 'not' = ''): string =>
  `case when e.action = 'update' and jsonb_typeof(e.changes->'before') = 'object'
             then (select coalesce(json_agg(k), '[]') from jsonb_object_keys(e.changes->'before') k
               where ${not} coalesce((g.columns->>k)::bigint > e.position, false)) else '[]'::json end`
