import type { Static } from 'typebox'
import type { Catalog, Collection, CollectionDefinition } from '../../../catalog/catalog.ts'
import { shownSchema } from '../../../catalog/declared.ts'
import type { CurrentCatalog } from '../../../catalog/store.ts'
import { AppError, errors } from '../../../errors.ts'
import type { SchemaListQuery } from './declarations.ts'

/**
 * Definitions by name, as `GET /schemas` answers them, with what the server adds. `limit=-1` is
 * all of them on one page.
 */
export function listSchemas(
  rt: CurrentCatalog,
  admin: boolean,
  { search, page, limit, sort }: Static<typeof SchemaListQuery>,
) {
  const catalog = rt.catalog.current()
  const all = [...catalog.collections.values()].map((collection) => visibleDefinition(catalog, collection, admin))
  const found = all.filter(
    ({ collectionName }) => search === undefined || collectionName.toLowerCase().includes(search.toLowerCase()),
  )
  found.sort((a, b) => (a.collectionName < b.collectionName ? -1 : 1))
  if (sortsDescending(sort)) found.reverse()
  if (page === undefined && limit === undefined) return { data: found, totalCount: found.length }
  return limit === -1 ? paged(found, 1, -1) : paged(found, page ?? 1, limit ?? 50)
}

export function oneSchema(rt: CurrentCatalog, admin: boolean, collectionName: string): CollectionDefinition {
  const catalog = rt.catalog.current()
  const collection = catalog.collections.get(collectionName)
  if (collection === undefined) throw new AppError(404, 'Schema not found', { code: 'UNKNOWN_COLLECTION' })
  return visibleDefinition(catalog, collection, admin)
}

function paged<T>(all: readonly T[], page: number, limit: number) {
  const totalPages = limit === -1 ? 1 : Math.max(1, Math.ceil(all.length / limit))
  const pagination = {
    currentPage: page,
    totalPages,
    limit,
    hasNextPage: page < totalPages,
    hasPrevPage: page > 1,
    nextPage: page < totalPages ? page + 1 : null,
    prevPage: page > 1 ? page - 1 : null,
  }
  const data = limit === -1 ? all : all.slice((page - 1) * limit, page * limit)
  return { data, totalCount: all.length, pagination }
}

function sortsDescending(sort: string | undefined): boolean {
  if (sort === undefined) return false
  const match = /^(-)?collectionName(?::(asc|desc))?$/i.exec(sort)
  if (match === null) throw errors.badQuery('schemas are sorted by collectionName')
  return match[1] !== undefined || match[2]?.toLowerCase() === 'desc'
}

/** An administrator edits whole definitions; to everybody else hidden fields do not exist. */
function visibleDefinition(catalog: Catalog, collection: Collection, admin: boolean): CollectionDefinition {
  const { name: collectionName, fields } = collection
  const schema = shownSchema(catalog, collection)
  if (admin) return { collectionName, schema }
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
