import { useEffect, useMemo, useState, useSyncExternalStore } from 'react'
import { DaybookError } from '../../../../clients/client.ts'
import type { Catalog, Collection, Field } from '../../app/catalog.ts'
import { checkSession, client, queryClient } from '../../app/client.ts'
import { estimatesQuery } from './counts.ts'
import { changedRow, fieldsToFollow, reasonOf } from './live.ts'
import { fieldsToRead, type ListSearch, type Row } from './query.ts'
import { pageSize, RowWindow } from './row-window.ts'
import { readVersion } from './writes.ts'

/** Counting longer than this is not waited for: the list then grows as it is scrolled. */
const countLimitMs = 4000

/** The rows of a list, as far as they are looked at, and as others change them. */
export function useRows(
  collection: Collection,
  search: ListSearch,
  columns: readonly Field[],
  catalog: Catalog,
  /** How many rows the list that is begun with had when it was left. */
  countBefore = 0,
): RowWindow {
  const { filter, sort, search: text, asOf } = search
  const fields = fieldsToRead(collection, columns, catalog)
  const asked = JSON.stringify([filter, sort, text, asOf, fields])
  const [askedFirst] = useState(asked)
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
      countBefore: asked === askedFirst ? countBefore : 0,
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
    return follow(rows, { collection, search, columns, fields })
  }, [rows, collection])
  return rows
}

type Followed = {
  readonly collection: Collection
  readonly search: ListSearch
  readonly columns: readonly Field[]
  /** What a row is read with. */
  readonly fields: readonly string[]
}

/** Why the connection is down: a list that begins meanwhile is not told of it again. */
let broken: string | undefined

function follow(rows: RowWindow, { collection, search, columns, fields }: Followed): () => void {
  const { name, key } = collection
  const announce = announcer(rows, collection, search)
  const readAgain = rowReader(rows, name, fields)
  rows.setLive(broken)
  let isFollowed = false
  const handle = client.realtime.subscribe<Row>(name, {
    ...(search.filter !== undefined && { filter: search.filter }),
    fields: fieldsToFollow(collection, columns),
    onChange: ({ action, data }) => {
      const id = String(data[key])
      const before = rows.rowOf(id)
      if (before === undefined) {
        if (action === 'create') announce(id)
        return
      }
      const { row, isIncomplete } = changedRow(before, data, columns)
      rows.patch(row, Date.now())
      if (isIncomplete || readAgain.isReading(id)) void readAgain.read(id)
    },
    onRemove: ({ data }) => {
      readAgain.forget(String(data[key]))
      rows.remove(String(data[key]))
    },
    onResync: () => rows.reload(),
    onBegun: () => {
      broken = undefined
      rows.setLive()
      // What was written after the rows were read, and before this, is not told. A connection that comes back tells all.
      if (!isFollowed) rows.reload()
      isFollowed = true
    },
    // The list still shows what was read, and says that it does not follow; the client tries a lost connection again.
    onError: (error) => {
      if (!error.final) broken = reasonOf(error)
      // It may be final because nobody is signed in any more.
      else void checkSession()
      rows.setLive(reasonOf(error))
    },
  })
  return () => handle.unsubscribe()
}

/**
 * Tells of new rows. What is followed matches the filter; whether it matches the words as well, only the server can say. It is
 * asked about one batch at a time, however many rows come.
 */
function announcer(rows: RowWindow, { name, key }: Collection, { filter, search }: ListSearch): (id: string) => void {
  let waiting: string[] = []
  let isAsking = false
  const ask = async () => {
    isAsking = true
    try {
      while (waiting.length > 0) {
        const batch = waiting.slice(0, pageSize)
        waiting = waiting.slice(pageSize)
        const isNew = { [key]: { in: batch } }
        const matching = { filter: (filter === undefined ? isNew : { AND: [filter, isNew] }) as never, limit: 0 }
        rows.add(
          (await client.items(name).list({ ...matching, ...(search !== undefined && { search }) })).totalCount ?? 0,
        )
      }
    } catch (error) {
      waiting = []
      rows.fail(error)
    } finally {
      isAsking = false
    }
  }
  return (id) => {
    if (search === undefined) return rows.add(1)
    waiting.push(id)
    if (!isAsking) void ask()
  }
}

/** Reads single rows of a list again. What was read before a later change of the same row is not shown. */
function rowReader(rows: RowWindow, collection: string, fields: readonly string[]) {
  const newest = new Map<string, symbol>()
  return {
    isReading: (id: string) => newest.has(id),
    forget: (id: string) => void newest.delete(id),
    async read(id: string): Promise<void> {
      const turn = Symbol(id)
      newest.set(id, turn)
      try {
        const { row } = await readVersion(collection, id, fields)
        if (newest.get(id) === turn) rows.patch(row, Date.now())
      } catch (error) {
        // What is gone by now is told as removed.
        const isGone = error instanceof DaybookError && (error.status === 403 || error.status === 404)
        if (newest.get(id) === turn && !isGone) rows.fail(error)
      } finally {
        if (newest.get(id) === turn) newest.delete(id)
      }
    },
  }
}
