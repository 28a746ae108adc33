import { useInfiniteQuery } from '@tanstack/react-query'
import { Link, useParams } from '@tanstack/react-router'
import { Trash2 } from 'lucide-react'
import { useState } from 'react'
import { type Collection, useCatalog } from '../../app/catalog.ts'
import { client } from '../../app/client.ts'
import { Page } from '../../shell/page.tsx'
import { NoCollection } from '../../shell/route-problem.tsx'
import { Button } from '../../ui/button.tsx'
import { Empty, Loading, Problem } from '../../ui/states.tsx'
import { Table } from '../../ui/table.tsx'
import { notify, notifyError } from '../../ui/toast.tsx'
import type { Row } from '../data/query.ts'
import { timeText } from '../data/values.ts'

type Deleted = { readonly id: string | number; readonly event: string; readonly deletedAt: string; readonly item: Row }

/** The deleted rows of a collection that can come back. */
export function Trash() {
  const { collection: name } = useParams({ from: '/shell/trash/$collection' })
  const collection = useCatalog().get(name)
  return collection === undefined ? <NoCollection name={name} /> : <Deletions key={name} collection={collection} />
}

function Deletions({ collection }: { readonly collection: Collection }) {
  const { name } = collection
  const [busy, setBusy] = useState<string>()
  const { data, error, refetch, hasNextPage, fetchNextPage } = useInfiniteQuery({
    queryKey: ['deleted', name],
    queryFn: ({ pageParam, signal }) =>
      client.request<{ data: readonly Deleted[]; nextCursor: string | null }>(
        `/items/${encodeURIComponent(name)}/deleted`,
        {
          query: { limit: 50, ...(pageParam !== null && { cursor: pageParam }) },
          signal,
        },
      ),
    initialPageParam: null as string | null,
    getNextPageParam: ({ nextCursor }) => nextCursor,
  })
  const restore = async ({ id, event }: Deleted) => {
    setBusy(event)
    try {
      await client.items(name).restore(String(id), { before: event })
      notify('Brought back')
      await refetch()
    } catch (failure) {
      notifyError(failure)
    } finally {
      setBusy(undefined)
    }
  }
  const rows = data?.pages.flatMap((page) => page.data) ?? []
  return (
    <Page
      title={`Trash of ${collection.label}`}
      description="Deleted rows, the last first. They come back with their keys."
      crumbs={
        <>
          <Link to="/data">Data</Link> /{' '}
          <Link to="/data/$collection" params={{ collection: name }}>
            {collection.label}
          </Link>
        </>
      }
    >
      {error !== null && <Problem error={error} onRetry={() => void refetch()} />}
      {data === undefined && error === null && <Loading />}
      {data !== undefined && rows.length === 0 && <Empty icon={<Trash2 />} title="Nothing was deleted" />}
      {rows.length > 0 && (
        <Table
          label="Deleted rows"
          rows={rows}
          keyOf={({ event }) => event}
          columns={[
            {
              title: collection.titleField,
              cell: ({ id, item }) => (
                <Link to="/data/$collection/$id" params={{ collection: name, id: String(id) }}>
                  {String(item[collection.titleField] ?? id)}
                </Link>
              ),
            },
            { title: 'Deleted', cell: ({ deletedAt }) => timeText(deletedAt) },
            {
              title: <span className="visually-hidden">What can be done</span>,
              cell: (row) => (
                <Button size="s" isBusy={busy === row.event} onClick={() => void restore(row)}>
                  Bring it back
                </Button>
              ),
            },
          ]}
        />
      )}
      {hasNextPage && <Button onClick={() => void fetchNextPage()}>Older</Button>}
    </Page>
  )
}
