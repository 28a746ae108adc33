import { oncePer } from '../once-per.ts'
import type { Catalog, Collection, Relation } from './catalog.ts'

/**
 * A collection whose items a table links: its column `foreignKey` holds their keys, with a discriminator only in rows
 * where that column has that value.
 */
export type LinkEnd = {
  readonly collection: Collection
  readonly foreignKey: string
  readonly discriminator: Relation['discriminator']
}

/**
 * The ends of a table between: the collections that have a relation through it, many-to-many or many-to-any. Rows of such
 * a table are part of these items, so their change is one of the items. Empty for every other collection, and for ends
 * that are the system's own or keep no log.
 */
export function linkEnds(catalog: Catalog, { name, fields }: Collection): readonly LinkEnd[] {
  const ends = endsByTable(catalog).get(name) ?? []
  // What cannot be compared is no reference; reads through such a relation fail, and writes must not.
  return ends.filter(({ collection, foreignKey }) => fields.get(foreignKey)?.kind === collection.primaryKey.kind)
}

const endsByTable = oncePer((catalog: Catalog): ReadonlyMap<string, readonly LinkEnd[]> => {
  const found = new Map<string, Map<string, LinkEnd>>()
  for (const collection of catalog.collections.values()) {
    if (collection.system || !collection.logged) continue
    for (const relation of collection.relations.values()) {
      const table = tableBetween(catalog, relation)
      if (table === undefined) continue
      const { foreignKey, discriminator } = relation
      const ends = found.get(table) ?? new Map<string, LinkEnd>()
      ends.set(JSON.stringify([collection.name, foreignKey, discriminator]), { collection, foreignKey, discriminator })
      found.set(table, ends)
    }
  }
  return new Map([...found].map(([table, ends]) => [table, [...ends.values()]]))
})

function tableBetween({ collections }: Catalog, { kind, target, through }: Relation): string | undefined {
  if (kind === 'belongsToMany') return through
  const isLink = collections.get(target)?.definition.schema.isJunction === true
  return isLink && kind !== 'belongsTo' ? target : undefined
}
