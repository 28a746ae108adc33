import { queryOptions } from '@tanstack/react-query'
import { client } from '../../app/client.ts'
import { type Me, useMe } from '../../app/session.ts'
import { isMomentOf, momentOf, type Reach } from './moments.ts'

/** The subject of the steps through the past: collections that are shown together, or one record. */
export type Subject = { readonly collections: readonly string[]; readonly item?: string }

export const reachQuery = queryOptions({
  queryKey: ['reach'],
  queryFn: async ({ signal }): Promise<Reach> => {
    const { data } = await client.request<{ data: { time: string; oldest: string | null } }>('/history/now', { signal })
    const now = Date.parse(data.time)
    return { oldest: Math.min(data.oldest === null ? now : Date.parse(data.oldest), now - 60_000), now }
  },
  staleTime: 30_000,
})

/** The changes around a moment; a member is undefined where there is none. */
export type Steps = { readonly at?: string; readonly before?: string; readonly after?: string }

/** Looks for the changes around a moment; undefined where the log says nothing about the subject to whoever is signed in. */
export type FindSteps = (at: string, signal?: AbortSignal) => Promise<Steps>

/** How the changes of a subject are found: in the log, or in the history of a record. */
export function useSteps(subject: Subject): FindSteps | undefined {
  const me = useMe()
  const { collections, item } = subject
  if (mayReadLog(me)) return (at, signal) => stepsOfLog(subject, at, signal)
  if (item === undefined) return undefined
  return (at, signal) => stepsOfHistory(collections[0]!, item, at, signal)
}

const mayReadLog = ({ isAdmin, permissions }: Me): boolean =>
  isAdmin || permissions.some(({ collection, action }) => collection === 'svc_AuditLog' && action === 'read')

async function stepsOfLog({ collections, item }: Subject, at: string, signal?: AbortSignal): Promise<Steps> {
  const query = { collections: collections.join(','), at, ...(item !== undefined && { item }) }
  const { data } = await client.request<{ data: { readonly [Name in keyof Steps]-?: string | null } }>('/log/moments', {
    query,
    ...(signal && { signal }),
  })
  return Object.fromEntries(Object.entries(data).flatMap(([name, time]) => (time === null ? [] : [[name, time]])))
}

type HistoryPage = { data: readonly { readonly createdAt: string }[]; nextCursor: string | null }

/** From the newest event back to the moment. */
async function stepsOfHistory(collection: string, id: string, at: string, signal?: AbortSignal): Promise<Steps> {
  const path = `/items/${encodeURIComponent(collection)}/${encodeURIComponent(id)}/history`
  let cursor: string | null = null
  let after: string | undefined
  let present: string | undefined
  do {
    const query = { limit: 100, ...(cursor !== null && { cursor }) }
    const page: HistoryPage = await client.request(path, { query, ...(signal && { signal }) })
    for (const { createdAt } of page.data) {
      const moment = momentOf(createdAt)
      if (Date.parse(moment) > Date.parse(at)) after = moment
      else if (present === undefined) present = moment
      else if (moment !== present) return stepsBetween(at, { present, earlier: moment, after })
    }
    cursor = page.nextCursor
  } while (cursor !== null)
  return stepsBetween(at, { present, after })
}

function stepsBetween(
  at: string,
  { present, earlier, after }: { readonly present?: string; readonly earlier?: string; readonly after?: string },
): Steps {
  const before = present !== undefined && isMomentOf(at, present) ? earlier : present
  return { ...(present && { at: present }), ...(before && { before }), ...(after && { after }) }
}
