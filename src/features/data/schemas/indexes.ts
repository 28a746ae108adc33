import type { Catalog, Collection, Index, IndexJson } from '../../../catalog/catalog.ts'
import { createIndexSql, tableIndexes } from '../../../catalog/ddl.ts'
import { knownDefinitions, withSchema } from '../../../catalog/definitions.ts'
import { memberProblems } from '../../../catalog/shape.ts'
import type { CurrentCatalog } from '../../../catalog/store.ts'
import type { Reads } from '../../../db/pools.ts'
import { rawQuery, sql } from '../../../db/sql.ts'
import { AppError, errors } from '../../../errors.ts'
import type { Writes } from '../../../events/commit.ts'
import type { Actor } from '../../../events/types.ts'
import type { ChangeOptions } from './change.ts'
import { changed, changeSchemas, commitDdl, reasonOf, type SchemaChanged } from './change.ts'

/** Adds an index to a collection. 409 when it has one of that name. */
export function addIndex(
  deps: Reads & Writes,
  actor: Actor,
  { collectionName, body }: { collectionName: string; body: Readonly<Record<string, unknown>> },
  options: ChangeOptions,
): Promise<SchemaChanged> {
  const index = readIndex(collectionName, body)
  const edit = (catalog: Catalog) => {
    const definitions = knownDefinitions(catalog, collectionName)
    const isTaken = catalog.collections.get(collectionName)!.indexes.some(({ name }) => name === index.name)
    if (isTaken) throw new AppError(409, `${collectionName} has an index ${index.name} already`)
    const schema = definitions.get(collectionName)!
    return withSchema(definitions, collectionName, { ...schema, indexes: [...(schema.indexes ?? []), index] })
  }
  return changeSchemas(deps, actor, { message: 'Error adding index', edit }, options)
}

/** Removes a declared index. 404 for an unknown one, 403 for those of the system. */
export function removeIndex(
  deps: Reads & Writes,
  actor: Actor,
  { collectionName, name }: { collectionName: string; name: string },
  options: ChangeOptions,
): Promise<SchemaChanged> {
  const edit = (catalog: Catalog) => {
    const definitions = knownDefinitions(catalog, collectionName)
    const schema = definitions.get(collectionName)!
    const indexes = schema.indexes ?? []
    const kept = indexes.filter((index) => (index.name ?? defaultName(collectionName, index.fields)) !== name)
    if (kept.length === indexes.length) throw new AppError(404, `Index ${name} not found`)
    return withSchema(definitions, collectionName, { ...schema, indexes: kept })
  }
  return changeSchemas(deps, actor, { message: 'Error removing index', edit }, options)
}

type IndexMigration = { collection: string; index: string; status: 'created' | 'skipped' | 'error'; error?: string }

/** Creates the indexes that definitions imply and tables lack, each in a transaction of its own. */
export async function migrateIndexes(deps: Reads & Writes & CurrentCatalog, actor: Actor) {
  const present = await presentIndexes(deps)
  const details: IndexMigration[] = []
  for (const collection of deps.catalog.current().collections.values())
    for (const index of tableIndexes(collection))
      details.push(
        present.has(index.name)
          ? { collection: collection.name, index: index.name, status: 'skipped' }
          : await createMissing(deps, actor, collection, index),
      )
  const count = (status: IndexMigration['status']) => details.filter((entry) => entry.status === status).length
  return {
    message: 'Foreign key index migration completed',
    summary: { created: count('created'), skipped: count('skipped'), errors: count('error') },
    details,
  }
}

async function presentIndexes({ db }: Reads): Promise<ReadonlySet<string>> {
  const rows = await db.any<{ name: string }>(
    sql.unsafe`select indexname as name from pg_indexes where schemaname = 'public'`,
  )
  return new Set(rows.map(({ name }) => name))
}

async function createMissing(
  deps: Writes,
  actor: Actor,
  collection: Collection,
  index: Index,
): Promise<IndexMigration> {
  const entry = { collection: collection.name, index: index.name }
  try {
    await commitDdl(deps, actor, async (tx) => {
      await tx.any(rawQuery(createIndexSql(collection, index)))
      return { result: undefined, events: [changed({ collection: collection.name, change: 'update' })] }
    })
    return { ...entry, status: 'created' }
  } catch (error) {
    if (!(error instanceof AppError)) throw error
    return { ...entry, status: 'error', error: reasonOf(error) }
  }
}

function readIndex(collectionName: string, body: Readonly<Record<string, unknown>>): IndexJson & { name: string } {
  const problems = memberProblems(['index'], body, '')
  if (problems.length > 0)
    throw new AppError(400, 'Error adding index', { code: 'INVALID_SCHEMA', details: { errors: problems } })
  const { name, fields, unique, nullsNotDistinct, type } = body
  if (!Array.isArray(fields) || fields.length === 0 || !fields.every((field) => typeof field === 'string'))
    throw errors.badBody('fields must be a list of field names')
  return {
    name: typeof name === 'string' && name !== '' ? name : defaultName(collectionName, fields),
    fields,
    ...(unique === true && { unique }),
    ...(nullsNotDistinct === true && { nullsNotDistinct }),
    ...(typeof type === 'string' && { type: type as NonNullable<IndexJson['type']> }),
  }
}

function defaultName(collectionName: string, fields: readonly string[]): string {
  return `${collectionName}_${fields.join('_')}_idx`
}
