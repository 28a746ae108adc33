import { queryOptions, useSuspenseQuery } from '@tanstack/react-query'
import { DaybookError } from '../../../clients/client.ts'
import { client, queryClient } from './client.ts'
import { type Catalog, type Collection, collectionOf, type Definition, type Description } from './definition.ts'
import { meQuery } from './session.ts'

export type { Catalog, Collection, Field, FieldKind, Relation } from './definition.ts'

/** The collections that the caller may know of. */
export const catalogQuery = queryOptions({
  queryKey: ['catalog'],
  queryFn: async (): Promise<Catalog> => {
    const [{ data }, isReadable] = await Promise.all([
      client.request<{ data: readonly Definition[] }>('/schemas', { query: { limit: -1 } }),
      readable(),
    ])
    const shown = data.filter(({ collectionName }) => isReadable(collectionName))
    return new Map(shown.map((definition) => [definition.collectionName, collectionOf(definition)]))
  },
  staleTime: 60_000,
})

/** What the server describes to the caller; null where it describes nothing (OPENAPI_ENABLED). */
export const descriptionQuery = queryOptions({
  queryKey: ['description'],
  queryFn: async (): Promise<Description | null> => {
    try {
      return await client.request<Description>('/openapi')
    } catch (error) {
      if (error instanceof DaybookError && error.status === 404) return null
      throw error
    }
  },
  staleTime: 60_000,
})

/** Definitions are for everybody; rows are not. What the caller may read is what the server describes to them. */
async function readable(): Promise<(collection: string) => boolean> {
  const me = await queryClient.ensureQueryData(meQuery)
  if (me?.isAdmin === true) return () => true
  const description = await queryClient.fetchQuery(descriptionQuery)
  if (description !== null) return (collection) => `/items/${collection}` in description.paths
  // Then by the grants, as far as the role may know them.
  const granted = new Set(me?.permissions.filter(({ action }) => action === 'read').map(({ collection }) => collection))
  return (collection) => granted.has(collection)
}

export function useCatalog(): Catalog {
  return useSuspenseQuery(catalogQuery).data
}

export function useCollection(name: string): Collection | undefined {
  return useCatalog().get(name)
}
