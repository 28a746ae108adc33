import { AppError } from '../errors.ts'
import type { Catalog, CollectionDefinition, FieldJson, SchemaJson } from './catalog.ts'

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
