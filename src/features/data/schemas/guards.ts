import { isDeepStrictEqual } from 'node:util'
import type { Catalog, Collection, SchemaJson } from '../../../catalog/catalog.ts'
import { checkShape } from '../../../catalog/compile.ts'
import type { Definitions } from '../../../catalog/definitions.ts'
import { type Extension, extensionOf, switchOf } from '../../../catalog/fields.ts'
import { isReservedName } from '../../../catalog/identifiers.ts'
import { systemCollections } from '../../../catalog/system-definitions.ts'
import type { Config } from '../../../config/config.ts'
import { AppError, errors } from '../../../errors.ts'

/**
 * What administrators may not do to definitions: touch what the system itself relies on (403), use reserved names or
 * types that are turned off (400). Looks only at collections that differ from the catalog's.
 */
export function checkChanges(config: Config, catalog: Catalog, next: Definitions): void {
  for (const [name, schema] of next) checkChange(config, catalog, name, schema)
}

/** The same for one collection. */
export function checkChange(config: Config, catalog: Catalog, name: string, schema: SchemaJson): void {
  const before = catalog.collections.get(name)
  if (before !== undefined && isDeepStrictEqual(before.definition.schema, schema)) return
  checkShape(name, schema)
  if (before?.system) checkSystemKept(before, schema)
  // A table of ours named like one of PostgreSQL's catalogs would never be found behind it.
  if (before === undefined && isReservedName(name))
    throw errors.badBody('Collection names starting with svc_ or pg_ are reserved')
  checkTypesAllowed(config, before, schema)
}

/** Whether a field of a system collection is its own: others may join it, it is never changed. */
export function isOwn(field: Readonly<Record<string, unknown>>): boolean {
  return field.SystemGenerated === true || field.SystemGenerated === 'true'
}

const switches = ['timestamps', 'paranoid', 'usertrack', 'sortEnabled', 'isJunction'] as const

function checkSystemKept(before: Collection, schema: SchemaJson): void {
  const { schema: own } = before.definition
  if (!before.writable) throw new AppError(403, `System collection ${before.name} cannot be changed`)
  for (const [name, field] of Object.entries(own.fields))
    if (isOwn(field) && !isDeepStrictEqual(schema.fields[name], field))
      throw new AppError(403, `System field ${name} cannot be changed or removed`)
  for (const index of systemIndexes(before.name))
    if (!schema.indexes?.some((other) => isDeepStrictEqual(other, index)))
      throw new AppError(403, `System index ${index.name} cannot be changed or removed`)
  for (const name of switches)
    if (own[name] !== schema[name]) throw new AppError(403, `${name} of a system collection cannot be changed`)
}

function systemIndexes(name: string) {
  return systemCollections.find(({ collectionName }) => collectionName === name)?.schema.indexes ?? []
}

/** Types of an extension that is turned off; fields that have such a type already may keep it. */
function checkTypesAllowed(config: Config, before: Collection | undefined, schema: SchemaJson): void {
  for (const [name, { type }] of Object.entries(schema.fields)) {
    const extension = typeof type === 'string' ? extensionOf(type) : undefined
    const isNew = before?.fields.get(name)?.type !== type
    if (extension !== undefined && isNew && !isAllowed(config, extension))
      throw errors.badBody(`Field ${name}: type ${type} needs ${switchOf[extension]}`)
  }
}

function isAllowed({ database }: Config, extension: Extension): boolean {
  if (extension === 'postgis') return database.postgis
  return extension === 'vector' ? database.vector : true
}
