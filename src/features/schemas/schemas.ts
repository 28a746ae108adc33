import { isDeepStrictEqual } from 'node:util'
import type { Collection, CollectionDefinition, SchemaJson } from '../../catalog/catalog.ts'
import { checkIdentifier } from '../../catalog/identifiers.ts'
import { createCollections, deleteCollection, updateCollection } from '../../catalog/manager.ts'
import { sqlState } from '../../db/errors.ts'
import type { Tx } from '../../db/sql.ts'
import { AppError, errors } from '../../errors.ts'
import { commit, type Outcome } from '../../events/commit.ts'
import type { Actor } from '../../events/types.ts'
import type { Runtime } from '../../runtime.ts'

/** Creates a collection: table, definition row and event in one transaction. 400 for a bad schema, 409 for a known name. */
export async function createSchema(rt: Runtime, actor: Actor, body: unknown): Promise<void> {
  const { collectionName, schema } = definitionOf(body)
  checkNewName(collectionName)
  await changeCatalog(rt, actor, async (tx) => {
    await createCollections(tx, [{ collectionName, schema }])
    return {
      result: undefined,
      events: [{ type: 'schema.changed', data: { collection: collectionName, change: 'create' } }],
    }
  })
}

/** Brings a collection to a new schema: adds, alters (castable types only), drops. 404 for an unknown one. */
export async function updateSchema(rt: Runtime, actor: Actor, collectionName: string, body: unknown): Promise<void> {
  const current = collectionOf(rt, collectionName)
  const { schema } = definitionOf({ ...(isObject(body) ? body : {}), collectionName })
  if (current.system) checkSystemFieldsKept(current, schema)
  await changeCatalog(rt, actor, async (tx) => {
    await updateCollection(tx, { collectionName, schema })
    return {
      result: undefined,
      events: [{ type: 'schema.changed', data: { collection: collectionName, change: 'update' } }],
    }
  })
}

/** Drops a collection with its table. 403 for system collections, 409 while others point at it. */
export async function deleteSchema(rt: Runtime, actor: Actor, collectionName: string): Promise<void> {
  if (collectionOf(rt, collectionName).system) throw new AppError(403, 'System collections cannot be deleted')
  await changeCatalog(rt, actor, async (tx) => {
    await deleteCollection(tx, collectionName)
    return {
      result: undefined,
      events: [{ type: 'schema.changed', data: { collection: collectionName, change: 'delete' } }],
    }
  })
}

/**
 * A commit whose DDL may be refused by the database: a default that is no expression, values that cannot be cast, rows
 * that break a new constraint. All of them are answers to the schema, not faults of ours.
 */
async function changeCatalog(rt: Runtime, actor: Actor, work: (tx: Tx) => Promise<Outcome<undefined>>): Promise<void> {
  try {
    await commit(rt, actor, work)
  } catch (error) {
    const state = sqlState(error) ?? ''
    if (!/^(42|22|23|0A|2B)/.test(state)) throw error
    throw new AppError(400, 'The schema cannot be applied', {
      code: 'SCHEMA_NOT_APPLICABLE',
      details: refusals[state] ?? null,
      cause: error,
    })
  }
}

const refusals: Readonly<Record<string, string>> = {
  '22P02': 'stored values cannot be converted to the new type',
  '42804': 'stored values cannot be converted to the new type',
  '42846': 'stored values cannot be converted to the new type',
  '23502': 'stored rows have no value for a required field',
  '23503': 'stored rows refer to items that do not exist',
  '23505': 'stored rows have the same value in a unique field',
  '23514': 'stored values are not among the listed ones',
}

export type SchemaListQuery = { search?: string; page?: string; limit?: string; sort?: string }

/** Definitions by name, as `GET /schemas` answers them (spec/schemas.md §1). */
export function listSchemas(rt: Runtime, admin: boolean, { search, page, limit, sort }: SchemaListQuery) {
  const all = [...rt.catalog.current().collections.values()].map((collection) => visibleDefinition(collection, admin))
  const found = all.filter(
    ({ collectionName }) => search === undefined || collectionName.toLowerCase().includes(search.toLowerCase()),
  )
  found.sort((a, b) => (a.collectionName < b.collectionName ? -1 : 1))
  if (sortsDescending(sort)) found.reverse()
  if (page === undefined && limit === undefined) return { data: found, totalCount: found.length }
  return paged(found, positive(page, 1), positive(limit, 50))
}

export function oneSchema(rt: Runtime, admin: boolean, collectionName: string): CollectionDefinition {
  return visibleDefinition(collectionOf(rt, collectionName), admin)
}

function paged<T>(all: readonly T[], page: number, limit: number) {
  const totalPages = Math.max(1, Math.ceil(all.length / limit))
  const pagination = {
    currentPage: page,
    totalPages,
    limit,
    hasNextPage: page < totalPages,
    hasPrevPage: page > 1,
    nextPage: page < totalPages ? page + 1 : null,
    prevPage: page > 1 ? page - 1 : null,
  }
  return { data: all.slice((page - 1) * limit, page * limit), totalCount: all.length, pagination }
}

function positive(value: string | undefined, fallback: number): number {
  if (value === undefined) return fallback
  if (!/^[1-9]\d{0,8}$/.test(value)) throw errors.badQuery('page and limit are whole numbers from 1')
  return Number(value)
}

function sortsDescending(sort: string | undefined): boolean {
  if (sort === undefined) return false
  const match = /^(-)?collectionName(?::(asc|desc))?$/i.exec(sort)
  if (match === null) throw errors.badQuery('schemas are sorted by collectionName')
  return match[1] !== undefined || match[2]?.toLowerCase() === 'desc'
}

function collectionOf(rt: Runtime, name: string): Collection {
  const collection = rt.catalog.current().collections.get(name)
  if (collection === undefined) throw new AppError(404, 'Schema not found', { code: 'UNKNOWN_COLLECTION' })
  return collection
}

/** An administrator edits whole definitions; to everybody else hidden fields do not exist (quality P-21). */
function visibleDefinition({ definition }: Collection, admin: boolean): CollectionDefinition {
  if (admin) return definition
  const fields = Object.entries(definition.schema.fields).filter(([, field]) => field.hidden !== true)
  return {
    collectionName: definition.collectionName,
    schema: { ...definition.schema, fields: Object.fromEntries(fields) },
  }
}

function definitionOf(body: unknown): CollectionDefinition {
  if (!isObject(body)) throw errors.badBody('collectionName and schema are required')
  const { collectionName, schema } = body
  checkIdentifier('collection name', collectionName)
  if (!isObject(schema)) throw errors.badBody('schema must be an object')
  return { collectionName, schema: schema as SchemaJson }
}

function checkNewName(name: string): void {
  if (name.startsWith('svc_')) throw errors.badBody('Collection names starting with svc_ are reserved')
  if (name.endsWith('_junction')) throw errors.badBody('Collection names ending in _junction are reserved')
}

/** Fields of system collections may be joined by others, never changed or removed (spec/schemas.md §1). */
function checkSystemFieldsKept(current: Collection, schema: SchemaJson): void {
  const { schema: before } = current.definition
  const fields = isObject(schema.fields) ? schema.fields : {}
  const own = Object.entries(before.fields).filter(([, field]) => field.SystemGenerated !== undefined)
  for (const [name, field] of own)
    if (!isDeepStrictEqual(fields[name], field))
      throw new AppError(403, `System field ${name} cannot be changed or removed`)
}

function isObject(value: unknown): value is Record<string, unknown> {
  return value !== null && typeof value === 'object' && !Array.isArray(value)
}
