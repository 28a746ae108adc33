import type { Collection, CollectionDefinition } from '../../catalog/catalog.ts'
import { AppError, errors } from '../../errors.ts'
import type { Runtime } from '../../runtime.ts'

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
  const collection = rt.catalog.current().collections.get(collectionName)
  if (collection === undefined) throw new AppError(404, 'Schema not found', { code: 'UNKNOWN_COLLECTION' })
  return visibleDefinition(collection, admin)
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

/** An administrator edits whole definitions; to everybody else hidden fields do not exist (quality P-21). */
function visibleDefinition({ definition, fields }: Collection, admin: boolean): CollectionDefinition {
  if (admin) return definition
  const { collectionName, schema } = definition
  const { constraints: _, ...shown } = schema
  const isVisible = (name: string) => fields.get(name)?.hidden !== true
  return {
    collectionName,
    schema: {
      ...shown,
      fields: Object.fromEntries(Object.entries(schema.fields).filter(([name]) => isVisible(name))),
      ...(schema.indexes !== undefined && { indexes: schema.indexes.filter((index) => index.fields.every(isVisible)) }),
    },
  }
}
