import { compileCatalog } from '../catalog/compile.ts'
import { readDefinitions } from '../catalog/store.ts'
import type { Config } from '../config/config.ts'
import type { Reader } from '../db/sql.ts'
import { type RefusedSql, refusedObjects, refusedTexts } from '../features/data/schemas/schemas.ts'
import { type Finding, ok, warning } from './finding.ts'

const check = 'definitions'

/** SQL that definitions hold from before it was checked: it goes on running, with the rights of the database role. */
export async function checkDefinitions(db: Reader, { tenancy }: Config): Promise<Finding[]> {
  const catalog = compileCatalog(await readDefinitions(db), { multiTenant: tenancy.enabled })
  const collections = [...catalog.collections.values()]
  const texts: RefusedSql[] = []
  for (const collection of collections) texts.push(...(await refusedTexts(collection)))
  const places = new Set(texts.map(placeOf))
  const objects = (await refusedObjects(db, collections)).filter((refused) => !places.has(placeOf(refused)))
  const refused = [...texts, ...objects]
  if (refused.length === 0) return [ok(check, `the SQL of ${collections.length} collections is harmless`)]
  return refused.map((one) =>
    warning(
      check,
      `${placeOf(one)} ${one.reason}: it still runs, but the collection cannot be changed`,
      `change it by PATCH /schemas/${one.collection} (docs/schema-language.md#sql)`,
    ),
  )
}

const placeOf = ({ collection, part }: RefusedSql): string => `${collection}: ${part}`
