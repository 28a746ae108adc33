/** Stored definitions, and edits of them. */
import { AppError } from '../errors.ts'
import type { Catalog, CollectionDefinition, FieldJson, SchemaJson } from './catalog.ts'
import { shortened } from './identifiers.ts'

/** Schemas by collection, as they are stored. Edits copy; nothing here changes what it was given. */
export type Definitions = ReadonlyMap<string, SchemaJson>

export function definitionsOf(catalog: Catalog): Definitions {
  return new Map([...catalog.collections].map(([name, { definition }]) => [name, definition.schema]))
}

/** A schema as it is stored. jsonb forgets the order of keys, but that of fields is the order of answers. */
export const toStored = (schema: SchemaJson): SchemaJson => ({ ...schema, fieldOrder: Object.keys(schema.fields) })

/** A stored schema as it was declared; one without an order of fields, as it comes. */
export function fromStored({ fieldOrder, ...schema }: SchemaJson): SchemaJson {
  if (!Array.isArray(fieldOrder)) return schema
  const places = new Map<unknown, number>(fieldOrder.map((name, i) => [name, i]))
  const placeOf = ([name]: readonly [string, unknown]) => places.get(name) ?? fieldOrder.length
  return {
    ...schema,
    fields: Object.fromEntries(Object.entries(schema.fields).sort((a, b) => placeOf(a) - placeOf(b))),
  }
}

export function listOf(definitions: Definitions): CollectionDefinition[] {
  return [...definitions].map(([collectionName, schema]) => ({ collectionName, schema }))
}

/** As {@link definitionsOf}; 404 when the named collection is not among them. */
export function knownDefinitions(catalog: Catalog, name: string): Definitions {
  if (!catalog.collections.has(name)) throw new AppError(404, 'Schema not found', { code: 'UNKNOWN_COLLECTION' })
  return definitionsOf(catalog)
}

/** One collection's schema put in, replacing what was there. */
export function withSchema(definitions: Definitions, name: string, schema: SchemaJson): Definitions {
  return new Map(definitions).set(name, schema)
}

/** A field or relation of a known collection, added or replaced. */
export function withField(definitions: Definitions, collection: string, name: string, json: FieldJson): Definitions {
  const schema = definitions.get(collection)!
  return withSchema(definitions, collection, { ...schema, fields: { ...schema.fields, [name]: json } })
}

/** A known collection without these fields, and without the indexes and unique constraints that name one. */
export function withoutFields(definitions: Definitions, collection: string, names: readonly string[]): Definitions {
  const { fields, indexes, constraints, ...schema } = definitions.get(collection)!
  const isKept = (list: { fields?: unknown }) =>
    !(Array.isArray(list.fields) && list.fields.some((f) => names.includes(f)))
  return withSchema(definitions, collection, {
    ...schema,
    fields: Object.fromEntries(Object.entries(fields).filter(([name]) => !names.includes(name))),
    ...(indexes !== undefined && { indexes: indexes.filter(isKept) }),
    ...(Array.isArray(constraints)
      ? { constraints: constraints.filter(isKept) }
      : constraints !== undefined && { constraints }),
  })
}

/** How a foreign key to a collection is declared: with the type of its primary key, but without that type's default. */
export function keyReference({ fields }: SchemaJson): FieldJson {
  const key = Object.values(fields).find(({ primaryKey }) => primaryKey === true || primaryKey === 'true') ?? fields.id
  const { type = 'UUID', values } = key ?? {}
  if (type === 'SUID' || type === 'TOKEN') return { type: 'String' }
  return { type, ...(values !== undefined && { values }) }
}

/* Junctions. */

/** One side of a junction: the collection, the column that points at it, and the alias of that relation. */
export type JunctionEnd = { readonly collection: string; readonly foreignKey: string; readonly alias: string }

/** The junction of a many-to-many relationship: a row is a pair, and each pair is there once. */
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

/** Adds the junctions that a BelongsToMany goes through and no definition declares. */
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

/* What happens to the rows that point at a row which is deleted. */

const actionNames = ['onDelete', 'onUpdate'] as const
type Action = (typeof actionNames)[number]

/**
 * Carries what a HasMany or HasOne says of deleted and changed keys to the foreign key on its target, where it takes effect: to the
 * BelongsTo that holds the column, which is added where the target has nothing but the column. Only what this edit has changed is carried,
 * and what it says at the BelongsTo itself comes first; the other side then says the same.
 */
export function withActionsAtKeys(before: Definitions, edited: Definitions): Definitions {
  let next = edited
  for (const [collection, { fields }] of edited)
    for (const [name, json] of Object.entries(fields)) {
      const far = { collection, name, json, was: before.get(collection)?.fields[name] }
      if (isFar(json) && hasActions(json) && edited.has(json.target as string)) next = withActionsOf(far, before, next)
    }
  return next
}

type FarEntry = {
  readonly collection: string
  readonly name: string
  readonly json: FieldJson
  /** As it was declared before the edit. */
  readonly was: FieldJson | undefined
}

/** Whether a member of a declaration says anything. */
export const isGiven = (value: unknown): boolean => value !== undefined && value !== null && value !== ''
const hasActions = (json: FieldJson) => actionNames.some((action) => isGiven(json[action]))
/** A row of the junction of a many-to-any relationship points at no one table. */
const isFar = ({ relType, polymorphic, scope }: FieldJson) =>
  (relType === 'HasMany' || relType === 'HasOne') && polymorphic !== true && !isGiven(scope)

function withActionsOf(
  { collection, name, json, was }: FarEntry,
  before: Definitions,
  edited: Definitions,
): Definitions {
  const target = json.target as string
  const foreignKey = foreignKeyOf(collection, json)
  const { fields } = edited.get(target)!
  const holder = Object.entries(fields).find(
    ([alias, own]) =>
      own.relType === 'BelongsTo' &&
      own.target === collection &&
      own.constraints !== false &&
      foreignKeyOf(alias, own) === foreignKey,
  )
  const changed = actionNames.filter((action) => isGiven(json[action]) && json[action] !== was?.[action])
  if (holder === undefined) {
    if (changed.length === 0 || !Object.hasOwn(fields, String(foreignKey))) return edited
    const added = { relType: 'BelongsTo', target: collection, foreignKey, ...only(json, actionNames) }
    return withField(edited, target, freeName(fields, [collection, `${collection}_${name}`]), added)
  }
  const [alias, own] = holder
  const old = before.get(target)?.fields[alias]
  const isOfKey = (action: Action) => isGiven(own[action]) && own[action] !== old?.[action]
  const toKey = changed.filter((action) => !isOfKey(action))
  const fromKey = actionNames.filter((action) => isGiven(json[action]) && isOfKey(action))
  return withMembers(withMembers(edited, target, alias, only(json, toKey)), collection, name, only(own, fromKey))
}

/** An entry with these members; the definitions as they are where it has them. */
function withMembers(definitions: Definitions, collection: string, name: string, members: FieldJson): Definitions {
  const json = definitions.get(collection)!.fields[name]!
  const isSame = Object.entries(members).every(([word, value]) => json[word] === value)
  return isSame ? definitions : withField(definitions, collection, name, { ...json, ...members })
}

/** The column of a BelongsTo of this name, or of a relation back to a collection of this name. */
const foreignKeyOf = (name: string, { foreignKey }: FieldJson) => (isGiven(foreignKey) ? foreignKey : `${name}_Id`)

const only = (json: FieldJson, names: readonly string[]): FieldJson =>
  Object.fromEntries(names.filter((name) => isGiven(json[name])).map((name) => [name, json[name]]))

function freeName(taken: SchemaJson['fields'], [first, second]: readonly [string, string]): string {
  if (!Object.hasOwn(taken, first)) return first
  let name = shortened(second)
  for (let n = 2; Object.hasOwn(taken, name); n += 1) name = shortened(`${second}_${n}`)
  return name
}
