import { queryOptions } from '@tanstack/react-query'
import { client } from '../../app/client.ts'

/** How many rows the caller may read in a collection. */
export const countQuery = (collection: string) =>
  queryOptions({
    queryKey: ['count', collection],
    queryFn: ({ signal }) =>
      inTurn(async () => {
        signal.throwIfAborted()
        const { totalCount } = await client.items(collection).list({ limit: 0, signal })
        return totalCount ?? 0
      }),
    staleTime: 60_000,
  })

/** About how many rows large collections have, by name; the others are counted in no time. */
export const estimatesQuery = queryOptions({
  queryKey: ['count', 'estimates'],
  queryFn: async ({ signal }): Promise<ReadonlyMap<string, number>> => {
    type Estimate = { readonly collection: string; readonly rows: number }
    const { data } = await client.request<{ data: readonly Estimate[] }>('/estimates', { signal })
    return new Map(data.map(({ collection, rows }) => [collection, rows]))
  },
  staleTime: 60_000,
})

/** `~1,234,000`: three digits of it, since no more are known. */
export function estimateText(rows: number): string {
  const unit = 10 ** Math.max(0, Math.floor(Math.log10(rows)) - 2)
  return `~${(Math.round(rows / unit) * unit).toLocaleString()}`
}

const atOnce = 3
const waiting: (() => void)[] = []
let running = 0

/** Counting is work for the server: some at a time, in the order in which they were asked for. */
async function inTurn<T>(work: () => Promise<T>): Promise<T> {
  if (running >= atOnce) await new Promise<void>((resolve) => waiting.push(resolve))
  running += 1
  try {
    return await work()
  } finally {
    running -= 1
    waiting.shift()?.()
  }
}
