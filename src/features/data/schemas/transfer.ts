import { isDeepStrictEqual } from 'node:util'
import { Type } from '../../../adapters/typebox.ts'
import type { Catalog, Collection, CollectionDefinition, IndexJson, SchemaJson } from '../../../catalog/catalog.ts'
import type { CollectionChange, Loss } from '../../../catalog/change.ts'
import { checkShape, compileCatalog, definitionProblems } from '../../../catalog/compile.ts'
import { type Door, declaredSchema, type MergedSchema, merged, shownSchema } from '../../../catalog/declared.ts'
import {
  type Definitions,
  definitionsOf,
  fromStored,
  listOf,
  withMissingJunctions,
  withSchema,
} from '../../../catalog/definitions.ts'
import { withoutCollections } from '../../../catalog/relationships.ts'
import type { CurrentCatalog } from '../../../catalog/store.ts'
import { systemCollections } from '../../../catalog/system-definitions.ts'
import type { Config, Configuration } from '../../../config/config.ts'
import type { Clock } from '../../../db/clock.ts'
import type { Reads } from '../../../db/pools.ts'
import { sql, type Tx } from '../../../db/sql.ts'
import { AppError } from '../../../errors.ts'
import type { Writes } from '../../../events/commit.ts'
import type { Actor } from '../../../events/types.ts'
import { readAs } from '../../../http/shapes.ts'
import {
  applyChange,
  applyWithin,
  type ChangeOptions,
  changed,
  checkChange,
  isOwn,
  previewChange,
  reasonOf,
  refusal,
  refusedCollection,
  warningsOf,
} from './change.ts'

/** Definitions on their way from one installation to another. */

const badFormat = 'Invalid import data format'

/** A file of definitions; the catalog judges what they say. */
const ImportShape = Type.Object(
  {
    version: Type.Optional(Type.Unknown()),
    timestamp: Type.Optional(Type.Unknown()),
    schemas: Type.Array(Type.Object({ collectionName: Type.String(), schema: Type.Object({}) }), {
      refusal: badFormat,
    }),
  },
  { refusal: badFormat },
)

type SchemaImport = {
  readonly version?: unknown
  readonly timestamp?: unknown
  readonly schemas: readonly CollectionDefinition[]
}

/** Every definition with what the server adds, as everywhere; an import leaves that out again. */
export async function exportSchemas(deps: Reads & Clock & CurrentCatalog) {
  const catalog = await deps.catalog.reloadIfStale()
  const schemas = await deps.db.any<CollectionDefinition & { createdAt: Date; updatedAt: Date }>(sql`
    select "collectionName", schema, "createdAt", "updatedAt" from "svc_SchemaDefinition" order by "collectionName"`)
  const shown = schemas.map((row) => {
    const collection = catalog.collections.get(row.collectionName)
    return { ...row, schema: collection === undefined ? fromStored(row.schema) : shownSchema(catalog, collection) }
  })
  return { version: '1.0', timestamp: deps.clock().toISOString(), schemas: shown }
}

/** 400 for JSON that is no export: a list of definitions under `schemas`, each collection once. */
export function readImport(json: unknown): SchemaImport {
  const { version, timestamp, schemas } = readAs(ImportShape, json)
  const names = new Set(schemas.map(({ collectionName }) => collectionName))
  if (names.size < schemas.length) throw new AppError(400, badFormat)
  const definitions = schemas.map(({ collectionName, schema }) => ({ collectionName, schema: schema as SchemaJson }))
  return { version, timestamp, schemas: definitions }
}

/** The effects of an import. Collections that it does not name stay, so nothing is ever listed as deleted. */
export function previewImport(
  catalog: Catalog,
  { version, timestamp, schemas }: SchemaImport,
  { drop }: Pick<ChangeOptions, 'drop'>,
) {
  const added: { collectionName: string; details: SchemaSummary }[] = []
  const modified: { collectionName: string; differences: string[] }[] = []
  const unchanged: string[] = []
  const errors: ImportError[] = []
  for (const { collectionName, schema } of schemas) {
    const before = catalog.collections.get(collectionName)?.definition.schema
    const door = { catalog, collection: collectionName, beside: besides(schemas) }
    const imported = attempt(() => importedSchema(door, schema, drop))
    if ('problem' in imported) errors.push({ collectionName, error: imported.problem })
    else if (before === undefined) added.push({ collectionName, details: summary(imported.result.schema) })
    else if (isDeepStrictEqual(before, imported.result.schema)) unchanged.push(collectionName)
    else modified.push({ collectionName, differences: differences(before, imported.result.schema) })
  }
  return {
    importVersion: version ?? null,
    importTimestamp: timestamp ?? null,
    changes: { new: added, modified, deleted: [], unchanged, ...(errors.length > 0 && { errors }) },
  }
}

const besides = (schemas: readonly CollectionDefinition[]) =>
  new Map(schemas.map(({ collectionName, schema }) => [collectionName, schema]))

type ImportError = { collectionName: string | null; error: string }
type ImportChanges = {
  created: string[]
  updated: string[]
  unchanged: string[]
  deleted: string[]
  errors: readonly ImportError[]
}

/**
 * Brings every named collection to the imported schema, in one transaction: all of them or none. Entries that a schema
 * leaves out stay; with `drop` they go. 400 with the list of what is wrong in `details.errors`; without `alter` it is wrong to
 * alter stored values.
 */
export async function importSchemas(
  deps: Reads & Writes,
  actor: Actor,
  { schemas }: SchemaImport,
  { drop, alter, dryRun }: ChangeOptions,
) {
  try {
    const change = changeOf(deps.config, { schemas, removed: [], drop, alter })
    const done = await (dryRun ? previewChange(deps, change) : applyChange(deps, actor, change))
    const { changes, dropped, altered, preview } = done
    const answered = { changes: changesOf(changes, schemas), dropped, altered, ...warningsOf(done) }
    if (preview === undefined) return { message: 'Schema import completed', ...answered }
    const { sql, findings } = preview
    return { message: 'Nothing was changed', dryRun: true, ...answered, sql, findings }
  } catch (error) {
    const isRefused = error instanceof AppError && error.status < 500 && error.message !== importFailed
    throw isRefused ? failed([{ collectionName: refusedCollection(error) ?? null, error: reasonOf(error) }]) : error
  }
}

/** Definitions to bring in, collections to drop beside them, and what its sender agrees to. */
export type SchemaMove = Pick<ChangeOptions, 'drop' | 'alter'> & {
  readonly schemas: readonly CollectionDefinition[]
  readonly removed: readonly string[]
}

function changeOf(config: Config, { schemas, removed, drop, alter }: SchemaMove) {
  const givenUp = new Set<string>()
  const edit = (catalog: Catalog) =>
    withoutCollections(importedDefinitions(config, catalog, schemas, { drop, givenUp }), removed)
  const means = ({ collection, field }: Loss) => drop || givenUp.has(`${collection}.${field}`)
  return { edit, means, keepsValues: !alter }
}

/**
 * An import as a part of a transaction that {@link beginDdl} has prepared; its events are the caller's to append. Without a
 * transaction it only tells, as a dry run does.
 *
 * @throws {MoveRefused} with all that is wrong, by collection
 */
export async function moveSchemas(deps: Reads & Configuration, tx: Tx | undefined, move: SchemaMove) {
  const change = changeOf(deps.config, move)
  try {
    const done = await (tx === undefined ? previewChange(deps, change) : applyWithin(deps, tx, change))
    return { ...done, ...warningsOf(done), events: done.changes.map(changed) }
  } catch (error) {
    const refused = tx === undefined ? error : refusal(error)
    if (!(refused instanceof AppError) || refused.status >= 500) throw refused
    if (refused.message === importFailed) throw new MoveRefused((refused.details as ImportChanges).errors, refused)
    throw new MoveRefused([{ collectionName: refusedCollection(refused) ?? null, error: reasonOf(refused) }], refused)
  }
}

/** Definitions that cannot be brought in. */
export class MoveRefused extends Error {
  override readonly name = 'MoveRefused'
  readonly errors: readonly ImportError[]
  readonly code: string
  constructor(errors: readonly ImportError[], cause: AppError) {
    super(importFailed, { cause })
    this.errors = errors
    this.code = cause.code
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

/** The catalog that an import of this JSON would make of an empty installation. 400 as {@link importSchemas}. */
export function catalogOfImport(config: Config, json: unknown): Catalog {
  const options = { multiTenant: config.tenancy.enabled }
  const empty = compileCatalog(systemCollections, options)
  const { schemas } = readImport(json)
  const definitions = importedDefinitions(config, empty, schemas, { drop: false, givenUp: new Set() })
  return compileCatalog(listOf(withMissingJunctions(definitions)), options)
}

type ImportMode = { readonly drop: boolean; readonly givenUp: Set<string> }

/** Throws the list of everything that is wrong, not the first of it. */
function importedDefinitions(
  config: Config,
  catalog: Catalog,
  schemas: readonly CollectionDefinition[],
  { drop, givenUp }: ImportMode,
): Definitions {
  const errors: ImportError[] = []
  let next = definitionsOf(catalog)
  for (const { collectionName, schema } of schemas) {
    const door = { catalog, collection: collectionName, beside: besides(schemas) }
    const imported = attempt(() => {
      const { schema: target, givenUp: columns } = importedSchema(door, schema, drop)
      checkChange(config, catalog, collectionName, target)
      for (const column of columns) givenUp.add(`${collectionName}.${column}`)
      return target
    })
    if ('problem' in imported) errors.push({ collectionName, error: imported.problem })
    else next = withSchema(next, collectionName, imported.result)
  }
  if (errors.length > 0) throw failed(errors)
  const problems = definitionProblems(listOf(withMissingJunctions(next)), { multiTenant: config.tenancy.enabled })
  if (problems.length > 0) throw failed(problems)
  return next
}

function attempt<T>(work: () => T): { readonly result: T } | { readonly problem: string } {
  try {
    return { result: work() }
  } catch (error) {
    if (error instanceof AppError) return { problem: reasonOf(error) }
    throw error
  }
}

/**
 * The schema a collection gets. Of a system collection only what an installation has added is taken over: its own
 * fields and indexes are those of this version, whatever version the export is from.
 */
function importedSchema(door: Door, schema: SchemaJson, drop: boolean): MergedSchema {
  const collection = door.catalog.collections.get(door.collection)
  if (collection?.system === true) return { schema: importedSystem(door, collection, schema, drop), givenUp: new Set() }
  const declared = declaredSchema(door, schema)
  return collection === undefined || drop ? { schema: declared, givenUp: new Set() } : merged(collection, declared)
}

function importedSystem(door: Door, collection: Collection, schema: SchemaJson, drop: boolean): SchemaJson {
  const own = collection.definition.schema
  checkShape(door.collection, schema)
  if (!collection.writable) return own
  const entries = Object.entries(schema.fields).filter(([, field]) => !isOwn(field))
  const added = declaredSchema(door, { fields: Object.fromEntries(entries) }).fields
  const kept = Object.entries(own.fields).filter(([, field]) => !drop || isOwn(field))
  const fields = { ...Object.fromEntries(kept), ...added }
  const names = new Set(own.indexes?.map((index) => index.name))
  const isUsable = (index: IndexJson) =>
    !names.has(index.name) && index.fields.every((field) => Object.hasOwn(fields, field))
  const indexes = [...(own.indexes ?? []), ...(schema.indexes ?? []).filter(isUsable)]
  return { ...own, fields, ...(indexes.length > 0 && { indexes }) }
}

/** Summary of a new schema, for the preview of an import. */
type SchemaSummary = { fields: string[]; relations: string[]; indexes: number }

function summary({ fields, indexes }: SchemaJson): SchemaSummary {
  const names = (isRelation: boolean) =>
    Object.entries(Object(fields) as SchemaJson['fields'])
      .filter(([, field]) => (Object(field).relType !== undefined) === isRelation)
      .map(([name]) => name)
  return { fields: names(false), relations: names(true), indexes: Array.isArray(indexes) ? indexes.length : 0 }
}

/** From one schema to the next in words: `field price added`, `timestamps changed`. */
function differences(before: SchemaJson, after: SchemaJson): string[] {
  const { fields, ...others } = before
  const { fields: nextFields, ...nextOthers } = after
  return [
    ...compared(fields, Object(nextFields)).map((difference) => `field ${difference}`),
    ...compared(others, nextOthers),
  ]
}

function compared(before: Readonly<Record<string, unknown>>, after: Readonly<Record<string, unknown>>): string[] {
  const names = [...new Set([...Object.keys(before), ...Object.keys(after)])].sort()
  return names.flatMap((name) => {
    if (!Object.hasOwn(before, name)) return [`${name} added`]
    if (!Object.hasOwn(after, name)) return [`${name} removed`]
    return isDeepStrictEqual(before[name], after[name]) ? [] : [`${name} changed`]
  })
}
