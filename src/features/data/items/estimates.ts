import { rawQuery } from '../../../db/sql.ts'
import { resolveEnv } from '../../../query/env.ts'
import { resolveCondition } from '../../../query/resolve.ts'
import type { ItemReads, Requester } from './context.ts'

/** About how many rows a collection has. */
export type Estimate = { readonly collection: string; readonly rows: number }

/** Fewer rows are counted in no time. */
const fewestEstimated = 100_000

/**
 * `GET /estimates`: about how many rows large collections have, by the statistics of the database, which takes no time however many
 * there are. Only of collections with more than 100,000 rows of which the caller may read every one: of others it would tell how
 * many are hidden. Soft-deleted rows are left out. A collection that the database has not analyzed yet has no estimate.
 */
export async function readEstimates(
  deps: ItemReads,
  { access }: Requester,
  asked: readonly string[] | undefined,
): Promise<readonly Estimate[]> {
  const catalog = deps.catalog.current()
  const env = resolveEnv(deps)
  const open = [...catalog.collections.values()].filter(
    ({ name }) =>
      (asked === undefined || asked.includes(name)) &&
      (access.admin || access.grant(name, 'read') !== undefined) &&
      resolveCondition(catalog, access, name, 'read', env, { includeDeleted: true }) === undefined,
  )
  const values = [open.map(({ name }) => name), open.map(({ paranoid }) => paranoid), fewestEstimated]
  const rows = await deps.db.any<Estimate>(rawQuery(estimatesSql, values))
  return rows
}

/** A partitioned table has no statistics of its own; of rows that are marked as deleted there is the share of those that are not. */
const estimatesSql = `select e.collection, e.rows from (
    select a.name as collection, round(
      coalesce((select sum(greatest(p.reltuples, 0)) from pg_partition_tree(c.oid) t join pg_class p on p.oid = t.relid where t.isleaf), c.reltuples)
      * case when a.paranoid then coalesce((select s.null_frac from pg_stats s
          where s.schemaname = 'public' and s.tablename = a.name and s.attname = 'deletedAt'), 1) else 1 end)::float8 as rows
    from unnest($1::text[], $2::boolean[]) a(name, paranoid)
      join pg_class c on c.relname = a.name and c.relnamespace = 'public'::regnamespace) e
  where e.rows > $3::float8`
