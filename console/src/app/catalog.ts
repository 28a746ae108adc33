import { queryOptions, useSuspenseQuery } from '@tanstack/react-query'
import { DaybookError } from '../../../clients/client.ts'
import { type Access, describedAccess, everything, grantedAccess } from './access.ts'
import { checkSession, client, queryClient } from './client.ts'
import { type Catalog, type Collection, collectionOf, type Definition, type Description } from './definition.ts'
import { meQuery } from './session.ts'

export type { Catalog, Collection, Field, FieldKind, Relation } from './definition.ts'

/** The collections that the caller may know of. */
export const catalogQuery = queryOptions({
  queryKey: ['catalog'],
  queryFn: async (): Promise<Catalog> => {
    const [{ data }, accessTo] = await Promise.all([
      client.request<{ data: readonly Definition[] }>('/schemas', { query: { limit: -1 } }),
      accesses(),
    ])
    return new Map(
      data.flatMap((definition) => {
        const access = accessTo(definition.collectionName)
        return access === undefined ? [] : [[definition.collectionName, collectionOf(definition, access)]]
      }),
    )
  },
  staleTime: 60_000,
})

/** The server's description for the caller; null where it describes nothing (OPENAPI_ENABLED). */
export const descriptionQuery = queryOptions({
  queryKey: ['description'],
  queryFn: async (): Promise<Description | null> => {
    try {
      const [description, isStranger] = await Promise.all([client.request<Description>('/openapi'), checkSession()])
      // Strangers get a description too, of what they may do: the page would lose what it shows.
      if (isStranger) throw new Error('Your session has ended')
      return description
    } catch (error) {
      if (error instanceof DaybookError && error.status === 404) return null
      throw error
    }
  },
  staleTime: 60_000,
})

/** Definitions are for everybody; rows are not. What the caller may read and write is what the server describes to them. */
async function accesses(): Promise<(collection: string) => Access | undefined> {
  const me = await queryClient.ensureQueryData(meQuery)
  if (me?.isAdmin === true) return () => everything
  const description = await queryClient.fetchQuery(descriptionQuery)
  if (description !== null) return (collection) => describedAccess(description, collection)
  // Then by the grants, as far as the role may know them.
  return (collection) => grantedAccess(me?.permissions ?? [], collection)
}

export function useCatalog(): Catalog {
  return useSuspenseQuery(catalogQuery).data
}

export function useCollection(name: string): Collection | undefined {
  return useCatalog().get(name)
}
