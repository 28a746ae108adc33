import type { FieldJson, SchemaJson } from './catalog.ts'
import { type Definitions, keyReference, withSchema } from './definitions.ts'
import { shortened } from './identifiers.ts'

/** One side of a junction: the collection, the column that points at it, and the alias of that relation. */
export type JunctionEnd = { readonly collection: string; readonly foreignKey: string; readonly alias: string }

/** The junction of a many-to-many relationship: a row is a pair, and each pair is there once (spec/schemas.md §3). */
export function pairSchema(definitions: Definitions, junction: string, ends: readonly JunctionEnd[]): SchemaJson {
  const keys = ends.map(({ foreignKey }) => foreignKey)
  return {
    ...junctionSwitches,
    fields: {
      id: rowKey,
      ...Object.assign({}, ...ends.map((end) => endFields(definitions, end))),
    },
    indexes: [{ name: shortened(`${junction}_pair_key`), fields: keys, unique: true }],
  }
}

/**
 * The junction of a many-to-any relationship: a row points at an item of one of several collections, which `collection`
 * names. There is no foreign key to the item, because a column can have one to one table only.
 */
export function anySchema(
  definitions: Definitions,
  junction: string,
  owner: JunctionEnd,
  tables: readonly string[],
): SchemaJson {
  const items = tables.map((table) => [
    table,
    { relType: 'BelongsTo', target: table, foreignKey: 'item_id', constraints: false, scope: { collection: table } },
  ])
  return {
    ...junctionSwitches,
    fields: {
      id: rowKey,
      ...endFields(definitions, owner),
      item_id: { ...keyReference(definitions.get(tables[0]!)!), allowNull: false },
      collection: { type: 'String', allowNull: false },
      ...Object.fromEntries(items),
    },
    indexes: [
      {
        name: shortened(`${junction}_item_key`),
        fields: [owner.foreignKey, 'item_id', 'collection'],
        unique: true,
      },
      { name: shortened(`${junction}_item_idx`), fields: ['item_id'] },
    ],
  }
}

/** Adds the junctions that a BelongsToMany goes through and nobody has declared. */
export function withMissingJunctions(definitions: Definitions): Definitions {
  let next = definitions
  for (const [source, { fields }] of definitions)
    for (const relation of Object.values(fields)) {
      const { relType, through, target } = relation
      const isMissing = relType === 'BelongsToMany' && typeof through === 'string' && !next.has(through)
      if (isMissing && typeof target === 'string' && next.has(target))
        next = withSchema(next, through, pairSchema(next, through, declaredEnds(source, target, relation)))
    }
  return next
}

/** The ends of a BelongsToMany, with the keys that the catalog expects of it. */
function declaredEnds(source: string, target: string, relation: FieldJson): JunctionEnd[] {
  const text = (value: unknown, absent: string) => (typeof value === 'string' && value !== '' ? value : absent)
  return [
    { collection: source, foreignKey: text(relation.foreignKey, `${source}_Id`), alias: source },
    {
      collection: target,
      foreignKey: text(relation.otherKey, `${target}_Id`),
      alias: source === target ? `${target}_2` : target,
    },
  ]
}

const junctionSwitches = { timestamps: true, isJunction: true } as const
const rowKey: FieldJson = { type: 'Integer', primaryKey: true, defaultValue: { type: 'AUTOINCREMENT' } }

/** The column and its relation; a link goes with either of the rows it links. */
function endFields(
  definitions: Definitions,
  { collection, foreignKey, alias }: JunctionEnd,
): Record<string, FieldJson> {
  return {
    [foreignKey]: { ...keyReference(definitions.get(collection)!), allowNull: false },
    [alias]: { relType: 'BelongsTo', target: collection, foreignKey, onDelete: 'CASCADE', description: 'M2O' },
  }
}
