import { infiniteQueryOptions, queryOptions } from '@tanstack/react-query'
import { client } from '../../app/client.ts'

/** An event of a record, as its history tells it. */
export type HistoryEntry = {
  readonly id: string
  readonly action: string
  readonly createdAt: string
  readonly userId: string | null
  readonly requestId: string | null
  readonly agent: { readonly name: string; readonly tool?: string } | null
  readonly cause: { readonly request: string; readonly depth: number; readonly by: string } | null
  readonly erased: boolean
  readonly changes: Readonly<Record<string, { readonly before: unknown; readonly after: unknown }>> | null
}

const pathOf = (collection: string, id: string) => `/items/${encodeURIComponent(collection)}/${encodeURIComponent(id)}`

export const historyQuery = (collection: string, id: string) =>
  infiniteQueryOptions({
    queryKey: ['history', collection, id],
    queryFn: ({ pageParam, signal }) =>
      client.request<{ data: readonly HistoryEntry[]; nextCursor: string | null }>(
        `${pathOf(collection, id)}/history`,
        {
          query: { limit: 25, ...(pageParam !== null && { cursor: pageParam }) },
          signal,
        },
      ),
    initialPageParam: null as string | null,
    getNextPageParam: ({ nextCursor }) => nextCursor,
  })

/** The changes of a request, and their consequences: without what comes from fields of the log that the caller may not read. */
export type LoggedRequest = {
  readonly requestId?: string | null
  readonly position: string
  readonly counts?: readonly { readonly collection?: string; readonly action?: string; readonly events: number }[]
  readonly eventList?: readonly RequestEvent[]
  readonly caused?: readonly LoggedRequest[]
  readonly cause?: { readonly by: string } | null
  readonly undoneBy?: readonly { readonly requestId: string }[]
}

export type RequestEvent = {
  readonly id: string
  readonly type?: string
  readonly collection?: string | null
  readonly item?: string | null
  readonly action?: string
}

/** For those who may read the log. */
export const requestQuery = (id: string) =>
  queryOptions({
    queryKey: ['request', id],
    queryFn: async ({ signal }) =>
      (await client.request<{ data: LoggedRequest }>(`/log/requests/${encodeURIComponent(id)}`, { signal })).data,
  })

/** The names of people, for those who may read accounts; ids for everybody else. */
export const peopleQuery = (ids: readonly string[]) =>
  queryOptions({
    queryKey: ['people', ids],
    queryFn: async ({ signal }): Promise<ReadonlyMap<string, string>> => {
      const { data } = await client.items('svc_User').list({
        fields: ['id', 'firstName', 'lastName', 'email'],
        filter: { id: { in: ids } },
        limit: 100,
        count: false,
        signal,
      })
      return new Map(
        data.map(({ id, firstName, lastName, email }) => [
          String(id),
          [firstName, lastName].filter(Boolean).join(' ') || String(email),
        ]),
      )
    },
    enabled: ids.length > 0,
    staleTime: 300_000,
  })
