/** Fields, indexes and defaults that the definitions of system collections share. */
import type { CollectionDefinition, FieldJson, IndexJson, SchemaJson } from './catalog.ts'

export const uuid: FieldJson = { type: 'UUID' }
export const id: FieldJson = { type: 'UUID', primaryKey: true, defaultValue: { type: 'UUIDV4' } }
export const serial: FieldJson = { type: 'Integer', primaryKey: true, defaultValue: { type: 'AUTOINCREMENT' } }
export const string: FieldJson = { type: 'String' }
export const text: FieldJson = { type: 'Text' }
export const integer: FieldJson = { type: 'Integer' }
export const dateTime: FieldJson = { type: 'DateTime' }
export const json: FieldJson = { type: 'JSON' }
export const no: FieldJson = { type: 'Boolean', allowNull: false, defaultValue: false }
export const yes: FieldJson = { type: 'Boolean', allowNull: false, defaultValue: true }
export const hiddenString: FieldJson = { type: 'String', hidden: true }
export const hiddenText: FieldJson = { type: 'Text', hidden: true }
export const required = (field: FieldJson): FieldJson => ({ ...field, allowNull: false })
export const preset = (field: FieldJson, defaultValue: unknown): FieldJson => ({ ...field, defaultValue })
export const oneOf = (values: string[], more: FieldJson = {}): FieldJson => ({ type: 'ENUM', values, ...more })
export const belongsTo = (target: string, foreignKey: string, more: FieldJson = {}): FieldJson => ({
  relType: 'BelongsTo',
  target,
  foreignKey,
  ...more,
})
export const hasMany = (target: string, foreignKey: string): FieldJson => ({ relType: 'HasMany', target, foreignKey })
export const cascade = { onDelete: 'CASCADE' }
export const index = (name: string, fields: string[], more: Partial<IndexJson> = {}): IndexJson => ({
  name,
  fields,
  ...more,
})
export const unique = { unique: true }

export function define(collectionName: string, schema: SchemaJson): CollectionDefinition {
  const fields = Object.fromEntries(
    Object.entries(schema.fields).map(([name, field]) => [name, { ...field, SystemGenerated: 'true' }]),
  )
  return { collectionName, schema: { timestamps: true, ...schema, fields } }
}
