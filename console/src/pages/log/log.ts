import { client } from '../../app/client.ts'
import { type FacetName, facetNames, type LogSearch } from './routes.ts'

export type Facets = {
  readonly from: string
  readonly to: string
  readonly bucketMs: number
  readonly events: number
  readonly histogram: readonly { readonly at: string; readonly events: number }[]
  readonly facets: {
    readonly [Name in FacetName]?: readonly { readonly value: string | null; readonly events: number }[]
  }
  readonly complete: boolean
  readonly since: string
}

/** Without what comes from fields of the log that the caller may not read. */
export type RequestEntry = {
  readonly requestId?: string | null
  readonly position: string
  readonly at?: string
  readonly userId?: string | null
  readonly agent?: { readonly name: string; readonly tool?: string } | null
  readonly cause?: { readonly by: string } | null
  readonly events: number
  readonly counts?: readonly { readonly collection?: string; readonly action?: string; readonly events: number }[]
}

type Values = Readonly<Record<string, unknown>>

export type RequestTree = RequestEntry & {
  readonly eventList: readonly {
    readonly id: string
    readonly collection?: string
    readonly item?: string | null
    readonly action?: string
    readonly type?: string
    readonly changes?: { readonly before?: Values | null; readonly after?: Values | null }
  }[]
  readonly caused?: readonly RequestTree[]
  readonly undoneBy?: readonly string[]
}

export type Effects = {
  readonly mails: readonly {
    readonly id: string
    readonly email: string
    readonly template: string | null
    readonly status: string
  }[]
  readonly jobs: readonly {
    readonly id: string
    readonly queue: string
    readonly state: string
    readonly reason: string | null
  }[]
  readonly deliveries: readonly {
    readonly id: string
    readonly url: string
    readonly status: string
    readonly attempts: number
  }[]
}

export type UndoReport = {
  readonly plan: string
  readonly counts: readonly {
    readonly collection: string
    readonly create: number
    readonly update: number
    readonly delete: number
    readonly conflicts: number
  }[]
  readonly conflicts: readonly {
    readonly collection: string
    readonly id: string
    readonly reasons: readonly { readonly reason: string; readonly fields?: readonly string[] }[]
  }[]
  readonly notUndone: readonly unknown[]
}

/** The server's filters. */
export function filterOf(search: LogSearch): Record<string, string> {
  const names = [...facetNames, 'from', 'to'] as const
  return Object.fromEntries(names.flatMap((name) => (search[name] === undefined ? [] : [[name, search[name]]])))
}

export const readFacets = async (search: LogSearch): Promise<Facets> =>
  (await client.request<{ data: Facets }>('/log/facets', { query: { ...filterOf(search), buckets: 60 } })).data

export const readRequests = (search: LogSearch, cursor: string | undefined) =>
  client.request<{ data: readonly RequestEntry[]; nextCursor: string | null }>('/log/requests', {
    query: { ...filterOf(search), limit: 50, cursor },
  })

export const readRequest = async (id: string): Promise<RequestTree> =>
  (await client.request<{ data: RequestTree }>(`/log/requests/${id}`)).data

export const readEffects = async (id: string): Promise<Effects> =>
  (await client.request<{ data: Effects }>(`/log/requests/${id}/effects`)).data

export const undo = async (body: object): Promise<UndoReport> =>
  (await client.request<{ data: UndoReport }>('/log/undo', { method: 'POST', body })).data

/** E-mail addresses by id, as far as the caller may read them. */
export async function namesOf(ids: readonly string[]): Promise<ReadonlyMap<string, string>> {
  if (ids.length === 0) return new Map()
  const { data } = await client.request<{ data: readonly { readonly id: string; readonly email: string | null }[] }>(
    '/items/svc_User',
    { query: { filter: JSON.stringify({ id: { in: ids } }), fields: 'id,email', limit: ids.length } },
  )
  return new Map(data.map(({ id, email }) => [id, email ?? id]))
}
