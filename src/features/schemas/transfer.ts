import { isDeepStrictEqual } from 'node:util'
import type { Catalog, CollectionDefinition, IndexJson, SchemaJson } from '../../catalog/catalog.ts'
import { checkShape, definitionProblems } from '../../catalog/compile.ts'
import { type Definitions, definitionsOf, fromStored, listOf, withSchema } from '../../catalog/definitions.ts'
import { withMissingJunctions } from '../../catalog/junctions.ts'
import type { CollectionChange } from '../../catalog/manager.ts'
import type { Config } from '../../config.ts'
import { sql } from '../../db/sql.ts'
import { AppError } from '../../errors.ts'
import type { Actor } from '../../events/types.ts'
import type { Runtime } from '../../runtime.ts'
import { applyChanges, reasonOf } from './change.ts'
import { differences, type SchemaSummary, summary } from './differences.ts'
import { checkChange, isOwn } from './guards.ts'

/** Definitions on their way from one installation to another (spec/schemas.md §1). */

export type SchemaImport = {
  readonly version?: unknown
  readonly timestamp?: unknown
  readonly schemas: readonly CollectionDefinition[]
}

/** Every definition as it was declared. */
export async function exportSchemas(rt: Runtime) {
  const schemas = await rt.db.any<CollectionDefinition & { createdAt: Date; updatedAt: Date }>(sql.unsafe`
    select "collectionName", schema, "createdAt", "updatedAt" from "svc_SchemaDefinition" order by "collectionName"`)
  const declared = schemas.map((row) => ({ ...row, schema: fromStored(row.schema) }))
  return { version: '1.0', timestamp: rt.clock().toISOString(), schemas: declared }
}

/** 400 for JSON that is no export: a list of definitions under `schemas`, each collection once. */
export function readImport(json: unknown): SchemaImport {
  const { version, timestamp, schemas } = Object(json) as Record<string, unknown>
  if (!Array.isArray(schemas) || !schemas.every(isDefinition)) throw new AppError(400, 'Invalid import data format')
  const names = new Set(schemas.map(({ collectionName }) => collectionName))
  if (names.size < schemas.length) throw new AppError(400, 'Invalid import data format')
  const definitions = schemas.map(({ collectionName, schema }) => ({ collectionName, schema }))
  return { version, timestamp, schemas: definitions }
}

/** What an import would do. Collections that it does not name stay, so nothing is ever listed as deleted. */
export function previewImport(rt: Runtime, { version, timestamp, schemas }: SchemaImport) {
  const catalog = rt.catalog.current()
  const added: { collectionName: string; details: SchemaSummary }[] = []
  const modified: { collectionName: string; differences: string[] }[] = []
  const unchanged: string[] = []
  for (const { collectionName, schema } of schemas) {
    const before = catalog.collections.get(collectionName)?.definition.schema
    const after = before === undefined ? schema : importedSchema(catalog, collectionName, schema)
    if (before === undefined) added.push({ collectionName, details: summary(schema) })
    else if (isDeepStrictEqual(before, after)) unchanged.push(collectionName)
    else modified.push({ collectionName, differences: differences(before, after) })
  }
  return {
    importVersion: version ?? null,
    importTimestamp: timestamp ?? null,
    changes: { new: added, modified, deleted: [], unchanged },
  }
}

type ImportError = { collectionName: string | null; error: string }
type ImportChanges = {
  created: string[]
  updated: string[]
  unchanged: string[]
  deleted: string[]
  errors: readonly ImportError[]
}

/**
 * Brings every named collection to the imported schema, in one transaction: all of them or none. 400 with the list of
 * what is wrong in `details.errors`.
 */
export async function importSchemas(rt: Runtime, actor: Actor, { schemas }: SchemaImport) {
  try {
    const changes = await applyChanges(rt, actor, (catalog) => importedDefinitions(rt.config, catalog, schemas))
    return { message: 'Schema import completed', changes: changesOf(changes, schemas) }
  } catch (error) {
    const isRefused = error instanceof AppError && error.status < 500 && error.message !== importFailed
    throw isRefused ? failed([{ collectionName: null, error: reasonOf(error) }]) : error
  }
}

const importFailed = 'Schema import failed'

function failed(errors: readonly ImportError[]): AppError {
  const changes: ImportChanges = { created: [], updated: [], unchanged: [], deleted: [], errors }
  return new AppError(400, importFailed, { details: changes })
}

function changesOf(changes: readonly CollectionChange[], schemas: readonly CollectionDefinition[]): ImportChanges {
  const namesOf = (change: CollectionChange['change']) =>
    changes.filter((entry) => entry.change === change).map(({ collection }) => collection)
  const touched = new Set(changes.map(({ collection }) => collection))
  return {
    created: namesOf('create'),
    updated: namesOf('update'),
    unchanged: schemas.map(({ collectionName }) => collectionName).filter((name) => !touched.has(name)),
    deleted: namesOf('delete'),
    errors: [],
  }
}

/** Throws the list of everything that is wrong, not the first of it. */
function importedDefinitions(config: Config, catalog: Catalog, schemas: readonly CollectionDefinition[]): Definitions {
  const errors: ImportError[] = []
  let next = definitionsOf(catalog)
  for (const { collectionName, schema } of schemas) {
    const error = problemOf(() => checkShape(collectionName, schema))
    if (error !== undefined) {
      errors.push({ collectionName, error })
      continue
    }
    const target = importedSchema(catalog, collectionName, schema)
    const refusal = problemOf(() => checkChange(config, catalog, collectionName, target))
    if (refusal !== undefined) errors.push({ collectionName, error: refusal })
    next = withSchema(next, collectionName, target)
  }
  if (errors.length > 0) throw failed(errors)
  const problems = definitionProblems(listOf(withMissingJunctions(next)), { multiTenant: config.tenancy.enabled })
  if (problems.length > 0) throw failed(problems)
  return next
}

function problemOf(check: () => void): string | undefined {
  try {
    check()
    return undefined
  } catch (error) {
    if (error instanceof AppError) return reasonOf(error)
    throw error
  }
}

/**
 * The schema a collection gets. Of a system collection only what an installation has added is taken over: its own
 * fields and indexes are those of this version, whatever version the export is from.
 */
function importedSchema(catalog: Catalog, name: string, schema: SchemaJson): SchemaJson {
  const collection = catalog.collections.get(name)
  if (collection?.system !== true) return schema
  const own = collection.definition.schema
  if (!collection.writable) return own
  const added = Object.entries(schema.fields).filter(([, field]) => !isOwn(field))
  const fields = Object.fromEntries([...Object.entries(own.fields).filter(([, field]) => isOwn(field)), ...added])
  const names = new Set(own.indexes?.map((index) => index.name))
  const isUsable = (index: IndexJson) =>
    !names.has(index.name) && index.fields.every((field) => Object.hasOwn(fields, field))
  const indexes = [...(own.indexes ?? []), ...(schema.indexes ?? []).filter(isUsable)]
  return { ...own, fields, ...(indexes.length > 0 && { indexes }) }
}

function isDefinition(value: unknown): value is CollectionDefinition {
  const { collectionName, schema } = Object(value) as Partial<CollectionDefinition>
  return typeof collectionName === 'string' && schema !== null && typeof schema === 'object' && !Array.isArray(schema)
}
