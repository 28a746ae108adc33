import { type Reader, sql } from '../../../db/sql.ts'
import { parseSnapshot } from '../../../events/cursor.ts'
import type { RuleRow } from './rule-sources.ts'

/** What became visible after `from` until `upTo`; both are texts of `pg_snapshot`. */
export type Round = { readonly from: string; readonly upTo: string }

type Watched = {
  /** Collections of which every change counts. */
  readonly collections: readonly string[]
  readonly rows: readonly RuleRow[]
  /** Collections whose erased events count. */
  readonly followed: readonly string[]
  readonly roleId: string
  readonly userId: string | undefined
}

export type Disturbance = {
  readonly source: 'collection' | 'row' | 'erased' | 'schema' | 'permission' | 'role'
  readonly collection: string
  /** The row of `source` row; the collection that a schema or permission is about; the role that a user had or got. */
  readonly subject: string | null
}

/** Collections that decide on rights, and on which columns there are. */
const accessCollections = ['svc_SchemaDefinition', 'svc_Permission', 'svc_Role', 'svc_UserRole']

/** The different things in a round that may have changed what a caller sees, beyond the rows that changed. */
export function disturbancesIn(db: Reader, { from, upTo }: Round, watched: Watched): Promise<readonly Disturbance[]> {
  const { xmax, running } = parseSnapshot(from)!
  const texts = (values: readonly string[]) => sql.array([...values], 'text')
  const owners = watched.rows.map(({ collection }) => collection)
  const ids = watched.rows.map(({ id }) => id)
  const sources = [...accessCollections, ...watched.collections, ...owners]
  return db.any<Disturbance>(sql.unsafe`
    select distinct found.source, e.entity as collection, found.subject
    from "svc_AuditLog" e
    cross join lateral (values (coalesce(e.changes->'after', '{}') || coalesce(e.changes->'before', '{}')), (e.changes->'after')) image (of)
    cross join lateral (
      select 'collection' as source, null as subject where e.entity = any(${texts(watched.collections)})
      union all
      select 'row', e."entityId" where (e.entity, e."entityId") in (select * from unnest(${texts(owners)}, ${texts(ids)}))
      union all
      select 'erased', null where e.changes ? 'erased' and e.entity = any(${texts(watched.followed)})
      union all
      select 'schema', image.of->>'collectionName' where e.entity = 'svc_SchemaDefinition'
      union all
      select 'permission', image.of->>'collection' where e.entity = 'svc_Permission' and image.of->>'action' = 'read'
        and image.of->>'role_Id' = ${watched.roleId}
      union all
      select 'role', e."entityId" where e.entity = 'svc_Role' and e."entityId" = ${watched.roleId}
      union all
      select 'role', image.of->>'role_Id' where e.entity = 'svc_UserRole' and image.of->>'user_Id' = ${watched.userId ?? null}
    ) found
    where (e.xid >= ${xmax.toString()}::xid8 or e.xid = any(${texts(running.map(String))}::xid8[]))
      and pg_visible_in_snapshot(e.xid, ${upTo}::pg_snapshot) and e.type = 'data'
      -- Most of a large round is none of this: its images need not be taken apart.
      and (e.entity = any(${texts(sources)}) or e.changes ? 'erased')`)
}
