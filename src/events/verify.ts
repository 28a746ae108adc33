/** Proof that the tables are what the log says: the newest event of every row against the row. */
import type { Catalog, Collection } from '../catalog/catalog.ts'
import { compileCatalog } from '../catalog/compile.ts'
import { imageSettings, imageSql, logTable } from '../catalog/log-triggers.ts'
import { ofTodaysColumns } from '../catalog/past-columns.ts'
import { readDefinitions } from '../catalog/store.ts'
import { lackInWords, tableLacks } from '../catalog/tables.ts'
import type { Config } from '../config/config.ts'
import { requireSetUp } from '../db/needs.ts'
import { type PgClient, readerOn } from '../db/pools.ts'
import { onSoleConnection } from '../db/sole-connection.ts'
import { quoteName } from '../db/sql.ts'

export type Verification = {
  readonly collection: string
  /** In the table. Each is exactly one of verified, unverifiable, erased or different. */
  readonly rows: number
  readonly verified: number
  /** No event within the retention: nothing to compare with, which is not the same as good. */
  readonly unverifiable: number
  /** The newest event's images were erased. */
  readonly erased: number
  /** Rows that differ from the log, and rows of the log that the table lacks. */
  readonly different: number
  /** The first ten of them by item id. */
  readonly differences: readonly RowDifference[]
  /** Why its rows could not be compared. */
  readonly problem?: string
}

type RowDifference = {
  readonly entityId: string
  /** Other values than the newest event's; in the log, not in the table; in the table after its delete in the log. */
  readonly kind: 'changed' | 'lost' | 'revived'
  /** The fields that differ, never their values. */
  readonly fields: readonly string[]
}

/** {@link verifyLog} of an installation. */
export const verifyTablesOf = (config: Config): Promise<Verification[]> =>
  onSoleConnection(config, 'log verify', async (client) => {
    const db = readerOn(client)
    await requireSetUp(db)
    return verifyLog(client, compileCatalog(await readDefinitions(db)))
  })

/**
 * Compares every row of every logged collection with its newest retained event, in one snapshot. Hidden fields are
 * redacted on both sides, unlogged fields ignored, and so are fields that are younger than the event. Reads everything:
 * about half a minute per million rows. Needs one connection, not a pool, without an open transaction.
 */
export async function verifyLog(client: PgClient, catalog: Catalog): Promise<Verification[]> {
  const logged = [...catalog.collections.values()].filter((collection) => collection.logged)
  await client.query('begin isolation level repeatable read read only')
  try {
    for (const [name, value] of Object.entries(imageSettings))
      await client.query('select set_config($1, $2, true)', [name, value])
    const lacks = new Map(
      (await tableLacks(readerOn(client), catalog)).map((lack) => [lack.collection, lackInWords(lack)]),
    )
    const results: Verification[] = []
    for (const collection of logged) {
      const problem = lacks.get(collection.name)
      results.push(problem === undefined ? await verifyCollection(client, collection) : unread(collection, problem))
    }
    return results
  } finally {
    await client.query('rollback')
  }
}

const unread = ({ name: collection }: Collection, problem: string): Verification => ({
  ...{ collection, rows: 0, verified: 0, unverifiable: 0, erased: 0, different: 0, differences: [], problem },
})

async function verifyCollection(client: PgClient, collection: Collection): Promise<Verification> {
  const fields = [...collection.fields.values()]
  const names = (wanted: (field: (typeof fields)[number]) => boolean) => fields.filter(wanted).map(({ name }) => name)
  const compared = names(({ unlogged, hidden }) => !unlogged && !hidden)
  const { rows } = await client.query(verifySql(collection), [collection.name, compared])
  return { collection: collection.name, ...rows[0] }
}

/** Values count as equal in their text form too, so that a changed column type does not make all older events wrong. */
function verifySql(collection: Collection): string {
  return `with newest as (
  select distinct on ("entityId") "entityId" as id, action, ${ofTodaysColumns("changes -> 'after'", '$1', `"${logTable}"`)} as image, coalesce(changes ? 'erased', false) as erased
  from "${logTable}"
  where entity = $1 and type = 'data' and action in ('create', 'update', 'delete')
  order by "entityId", position desc
), stored as (
  select "svc$row".${quoteName(collection.primaryKey.name)}::text as id, ${imageSql(collection, '"svc$row".*')} as image
  from ${quoteName(collection.name)} "svc$row"
), paired as (
  select coalesce(stored.id, newest.id) as id, stored.id is not null as stored,
    case
      when newest.id is null then 'unverifiable'
      when stored.id is null then case newest.action when 'delete' then 'deleted' else 'lost' end
      when newest.action = 'delete' then 'revived'
      when newest.erased then 'erased'
      when newest.image is null then 'changed'
      else 'same'
    end as verdict,
    case
      when stored.image is null or newest.image is null or stored.image = newest.image then '{}'
      else array(
        select name from unnest($2::text[]) with ordinality as field (name, ordinal)
        where newest.image ? name and newest.image -> name is distinct from stored.image -> name
          and newest.image ->> name is distinct from stored.image ->> name
        order by ordinal)
    end as fields
  from newest full join stored on stored.id = newest.id
), judged as (
  select id, stored, fields, case when verdict = 'same' and fields <> '{}' then 'changed' else verdict end as verdict from paired
), wrong as (
  select id as "entityId", verdict as kind, fields from judged where verdict in ('changed', 'lost', 'revived')
)
select count(*) filter (where stored)::int as rows,
  count(*) filter (where verdict = 'same')::int as verified,
  count(*) filter (where verdict = 'unverifiable')::int as unverifiable,
  count(*) filter (where verdict = 'erased')::int as erased,
  (select count(*)::int from wrong) as different,
  (select coalesce(json_agg(first), '[]') from (select * from wrong order by "entityId" limit 10) first) as differences
from judged`
}
