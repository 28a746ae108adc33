import type { Catalog, Collection, Field, Relation } from '../../../catalog/catalog.ts'
import { isToMany } from '../../../query/plan.ts'
import type { Rights, WriteRights } from '../../data/items/items.ts'
import { keySchema, orNull, readSchema, writeSchema } from './fields.ts'
import type { Json, Stand } from './shape.ts'

/** A collection as one caller knows it. */
export type Described = { readonly collection: Collection; readonly rights: Rights }

/** The names of a collection's schemas among the components; names of collections have no dots. */
const rowOf = (name: string) => name
const newRowOf = (name: string) => `${name}.new`
const changedRowOf = (name: string) => `${name}.change`

export const componentRef = (kind: string, name: string): Json => ({ $ref: `#/components/${kind}/${name}` })
const schemaRef = (name: string) => componentRef('schemas', name)

/** The schemas of a collection: its rows as they are answered, and what a new or a changed one may set. */
export function collectionSchemas(catalog: Catalog, { collection, rights }: Described, readable: ReadonlySet<string>) {
  const schemas: Record<string, Json> = {}
  const { name } = collection
  const { read, create, update } = rights
  if (read !== undefined) schemas[rowOf(name)] = rowSchema(catalog, { collection, rights }, readable)
  if (create !== undefined) schemas[newRowOf(name)] = writtenSchema(catalog, collection, create)
  if (update !== undefined) schemas[changedRowOf(name)] = writtenSchema(catalog, collection, update)
  return schemas
}

/** What stands for the rows of a collection in the shapes of its routes. */
export function standIn({ collection, rights }: Described): Stand {
  const { name, primaryKey } = collection
  const key = keySchema(primaryKey)
  const onlyKey = { type: 'object', properties: { [primaryKey.name]: key } }
  const row = rights.read === undefined ? onlyKey : schemaRef(rowOf(name))
  return (represents) => {
    switch (represents) {
      case 'key':
        return key
      case 'row':
        return row
      case 'written row': {
        // The key is answered as `id`, whatever its field is called.
        const written = { type: 'object', properties: { id: key }, required: ['id'] }
        return primaryKey.name === 'id' ? row : { anyOf: [written, row] }
      }
      case 'new row':
        return rights.create === undefined ? { type: 'object' } : schemaRef(newRowOf(name))
      case 'changed row':
        return rights.update === undefined ? { type: 'object' } : schemaRef(changedRowOf(name))
    }
  }
}

/** Every member is optional: `fields` decides which there are, and `aggregate` adds some. */
function rowSchema(catalog: Catalog, { collection, rights }: Described, readable: ReadonlySet<string>): Json {
  const { fields, relations } = rights.read!
  const properties: Record<string, Json> = {}
  for (const field of fields) properties[field.name] = readSchema(field, descriptionOf(collection, field.name))
  for (const { relation, fields: behind } of relations) {
    // What was declared as a field is a column of the row, whatever else has its name.
    if (properties[relation.name] !== undefined) continue
    const target = catalog.collections.get(relation.target)!
    const row =
      sameFields(behind, target) && readable.has(target.name) ? schemaRef(rowOf(target.name)) : ofFields(behind)
    properties[relation.name] = nestedSchema(relation, row)
  }
  return { type: 'object', ...describedAs(collection), properties }
}

/** Whether the relation shows what reading the collection itself may show at most. */
const sameFields = (behind: readonly Field[], { fields }: Collection): boolean =>
  behind.length === [...fields.values()].filter(({ hidden }) => !hidden).length

function ofFields(fields: readonly Field[]): Json {
  const properties = Object.fromEntries(fields.map((field) => [field.name, readSchema(field, undefined)]))
  return { type: 'object', properties }
}

function nestedSchema(relation: Relation, row: Json): Json {
  const description = `${relation.target}, where \`fields\` asks for it: \`${relation.name}.*\`.`
  if (isToMany(relation)) return { type: 'array', items: row, description }
  return { anyOf: [row, { type: 'null' }], description }
}

function writtenSchema(catalog: Catalog, collection: Collection, { fields, relations, required }: WriteRights): Json {
  const properties: Record<string, Json> = {}
  for (const field of fields) properties[field.name] = writeSchema(field, descriptionOf(collection, field.name))
  for (const relation of relations)
    properties[relation.name] ??= writtenRelation(relation, catalog.collections.get(relation.target))
  // A row of the relation, or its key by the relation's name, will do as well.
  const replaceable = new Set(relations.filter(({ kind }) => kind === 'belongsTo').map(({ foreignKey }) => foreignKey))
  const needed = [...required].filter((name) => properties[name] !== undefined && !replaceable.has(name))
  return {
    type: 'object',
    ...describedAs(collection),
    properties,
    ...(needed.length > 0 && { required: needed.sort() }),
  }
}

function writtenRelation(relation: Relation, target: Collection | undefined): Json {
  const key = target === undefined ? {} : keySchema(target.primaryKey)
  const row = { anyOf: [key, { type: 'object' }] }
  if (!isToMany(relation))
    return {
      ...orNull(row),
      description: `The key of a row of ${relation.target}, or a row; may stand for \`${relation.foreignKey}\`.`,
    }
  const description = `Rows of ${relation.target} or their keys: a list replaces all, \`{create, update, delete}\` changes some.`
  return { anyOf: [{ type: 'array', items: row }, { type: 'object' }, { type: 'null' }], description }
}

function describedAs({ definition, name }: Collection): Json {
  const text = definition.schema.description
  return { title: name, ...(typeof text === 'string' && text !== '' && { description: text }) }
}

function descriptionOf({ definition }: Collection, field: string): string | undefined {
  const { description, comment } = definition.schema.fields[field] ?? {}
  return [description, comment].find((text): text is string => typeof text === 'string' && text !== '')
}
