import { useEffect, useMemo, useSyncExternalStore } from 'react'
import type { Collection } from '../../app/catalog.ts'
import { client, queryClient } from '../../app/client.ts'
import { estimatesQuery } from './counts.ts'
import type { Filter } from './filter.ts'
import type { ListSearch, Row } from './query.ts'
import { pageSize, RowWindow } from './row-window.ts'

/** Counting longer than this is not waited for: the list then grows as it is scrolled. */
const countLimitMs = 4000

/** The rows of a list, as far as they are looked at, and as others change them. */
export function useRows(collection: Collection, search: ListSearch, fields: readonly string[]): RowWindow {
  const { filter, sort, search: text, asOf } = search
  const asked = JSON.stringify([filter, sort, text, asOf, fields])
  // `asked` is all of the others, by what they say.
  const rows = useMemo(() => {
    const items = client.items(collection.name)
    const query = {
      // The server checks the values of the address.
      ...(filter !== undefined && { filter: filter as never }),
      ...(text !== undefined && { search: text }),
      ...(asOf !== undefined && { asOf }),
    }
    return new RowWindow({
      keyOf: (row) => String(row[collection.key]),
      read: async (from, signal) => {
        const page = await items.list({
          ...query,
          ...from,
          ...(sort !== undefined && { sort: sort.split(',') }),
          fields,
          limit: pageSize,
          count: false,
          signal,
        })
        return { rows: page.data, nextCursor: page.nextCursor }
      },
      count: async (signal) => {
        // Of what is narrowed nobody has an estimate.
        const isWhole = filter === undefined && text === undefined && asOf === undefined
        const estimate = isWhole ? (await queryClient.fetchQuery(estimatesQuery)).get(collection.name) : undefined
        if (estimate !== undefined) return { count: estimate, isEstimate: true }
        const limit = AbortSignal.any([signal, AbortSignal.timeout(countLimitMs)])
        return { count: (await items.list({ ...query, limit: 0, signal: limit })).totalCount ?? 0, isEstimate: false }
      },
      countExactly: async (signal) => (await items.list({ ...query, limit: 0, signal })).totalCount ?? 0,
    })
  }, [collection, asked])
  useSyncExternalStore(rows.subscribe, () => rows.state)
  useEffect(() => {
    rows.begin()
    return () => rows.close()
  }, [rows])
  useEffect(() => {
    // The past does not change.
    if (asOf !== undefined) return
    return follow(rows, collection, filter, fields)
  }, [rows, collection])
  return rows
}

function follow(
  rows: RowWindow,
  { name, key }: Collection,
  filter: Filter | undefined,
  fields: readonly string[],
): () => void {
  const handle = client.realtime.subscribe<Row>(name, {
    ...(filter !== undefined && { filter }),
    fields,
    onChange: ({ action, data }) => {
      if (!rows.patch(data, Date.now()) && action === 'create') rows.add()
    },
    onRemove: ({ data }) => rows.remove(String(data[key])),
    onResync: () => rows.reload(),
    // Without live changes the list still shows what was read; the connection is tried again by the client.
    onError: () => undefined,
  })
  return () => handle.unsubscribe()
}
