import { useInfiniteQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { X } from 'lucide-react'
import { useState } from 'react'
import type { Catalog, Collection, Relation } from '../../app/catalog.ts'
import { client } from '../../app/client.ts'
import { Button, IconButton } from '../../ui/button.tsx'
import { Select } from '../../ui/field.tsx'
import { Loading, Problem } from '../../ui/states.tsx'
import { notifyError } from '../../ui/toast.tsx'
import type { Choice } from '../data/draft.ts'
import type { Row } from '../data/query.ts'
import { RelationPicker } from '../data/relation-picker.tsx'
import { createRow, deleteRows } from '../data/writes.ts'
import styles from './record.module.css'

type AnyProps = {
  /** Its rows are the links. */
  readonly junction: Collection
  readonly relation: Relation
  readonly id: string | number
  readonly catalog: Catalog
  readonly asOf: string | undefined
}

/** The records of several collections that a record is linked with. A link is a row of its own: it is made and removed at once. */
export function LinksToAny({ junction, relation, id, catalog, asOf }: AnyProps) {
  const column = relation.foreignKey ?? 'source_id'
  const { data, error, refetch, hasNextPage, isFetchingNextPage, fetchNextPage } = useInfiniteQuery({
    queryKey: ['related', relation.target, id, asOf],
    queryFn: async ({ pageParam, signal }) => {
      const past = asOf === undefined ? {} : { asOf }
      const query = { filter: { [column]: id }, limit: 100, cursor: pageParam, ...past, signal }
      const { data: links, totalCount, nextCursor } = await client.items(relation.target).list(query)
      return {
        links: links as readonly Row[],
        titles: await titlesOf(links, catalog, past, signal),
        totalCount,
        nextCursor,
      }
    },
    initialPageParam: '',
    getNextPageParam: ({ nextCursor }) => nextCursor,
  })
  const links = data?.pages.flatMap((page) => page.links)
  const titles = new Map(data?.pages.flatMap((page) => [...page.titles]))
  const total = data?.pages[0]?.totalCount ?? 0
  const [table, setTable] = useState(relation.tables[0] ?? '')
  const [turn, setTurn] = useState(0)
  const change = async (work: () => Promise<unknown>) => {
    try {
      await work()
      setTurn(turn + 1)
      await refetch()
    } catch (failure) {
      notifyError(failure)
    }
  }
  const add = (choice: Choice | null) => {
    if (choice === null) return
    void change(() => createRow(relation.target, { [column]: id, collection: table, item_id: choice.id }))
  }
  return (
    <section className={styles.card} aria-label={relation.name}>
      <h2>{relation.name}</h2>
      {error !== null && <Problem error={error} onRetry={() => void refetch()} />}
      {data === undefined && error === null && <Loading lines={2} />}
      <ul className={styles.related}>
        {links?.map((row) => {
          const { collection, item } = endOf(row)
          return (
            <li key={String(row.id)} className={styles.link}>
              <Link to="/data/$collection/$id" params={{ collection, id: item }}>
                {catalog.get(collection)?.label ?? collection}: {titles.get(nameOf(collection, item)) ?? item}
              </Link>
              {asOf === undefined && junction.mayDelete && (
                <IconButton
                  label="Remove the link"
                  size="s"
                  onClick={() => void change(() => deleteRows(relation.target, [String(row.id)]))}
                >
                  <X />
                </IconButton>
              )}
            </li>
          )
        })}
        {links?.length === 0 && <li>None</li>}
      </ul>
      {links !== undefined && hasNextPage && (
        <div className={styles.link}>
          <small>
            {links.length.toLocaleString()} of {total.toLocaleString()}
          </small>
          <Button size="s" isBusy={isFetchingNextPage} onClick={() => void fetchNextPage()}>
            More
          </Button>
        </div>
      )}
      {asOf === undefined && junction.mayCreate && (
        <div className={styles.add}>
          <Select
            aria-label={`Collection to add to ${relation.name}`}
            value={table}
            onChange={({ target }) => setTable(target.value)}
            options={relation.tables.map((name) => ({ value: name, label: catalog.get(name)?.label ?? name }))}
          />
          <RelationPicker
            key={`${table} ${String(turn)}`}
            collection={table}
            label={`Add to ${relation.name}`}
            value={null}
            onChange={add}
          />
        </div>
      )}
    </section>
  )
}

/** The record that a link leads to. */
const endOf = (link: Row) => ({ collection: String(link.collection), item: String(link.item_id) })

const nameOf = (collection: string, item: string): string => `${collection}/${item}`

/** The titles of the records that links lead to, in one request for each collection. */
async function titlesOf(
  links: readonly Row[],
  catalog: Catalog,
  past: { readonly asOf?: string },
  signal: AbortSignal,
): Promise<ReadonlyMap<string, string>> {
  const ends = Map.groupBy(links.map(endOf), ({ collection }) => collection)
  const found = await Promise.all(
    [...ends].map(async ([name, some]) => {
      const target = catalog.get(name)
      if (target === undefined) return []
      const { key, titleField } = target
      const filter = { [key]: { in: some.map(({ item }) => item) } } as never
      const fields = [...new Set([key, titleField])]
      const query = { fields, filter, limit: some.length, count: false as const, ...past, signal }
      // Where titles are refused, keys stand in their place.
      const { data: rows } = await client
        .items(name)
        .list(query)
        .catch(() => ({ data: [] as readonly Row[] }))
      return rows.map((row: Row) => [nameOf(name, String(row[key])), String(row[titleField] ?? row[key])] as const)
    }),
  )
  return new Map(found.flat())
}
