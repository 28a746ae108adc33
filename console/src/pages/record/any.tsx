import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { X } from 'lucide-react'
import { useState } from 'react'
import type { Catalog, Collection, Relation } from '../../app/catalog.ts'
import { client } from '../../app/client.ts'
import { IconButton } from '../../ui/button.tsx'
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
  const { data, error, refetch } = useQuery({
    queryKey: ['related', relation.target, id, asOf],
    queryFn: ({ signal }) =>
      client.items(relation.target).list({
        filter: { [column]: id },
        limit: 100,
        ...(asOf !== undefined && { asOf }),
        signal,
      }),
  })
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
        {data?.data.map((row: Row) => {
          const [collection, item] = [String(row.collection), String(row.item_id)]
          return (
            <li key={String(row.id)} className={styles.link}>
              <Linked {...{ collection, item, catalog, asOf }} />
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
        {data?.data.length === 0 && <li>None</li>}
      </ul>
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

type LinkedProps = {
  readonly collection: string
  readonly item: string
  readonly catalog: Catalog
  readonly asOf: string | undefined
}

function Linked({ collection, item, catalog, asOf }: LinkedProps) {
  const target = catalog.get(collection)
  const { data } = useQuery({
    queryKey: ['title', collection, item, asOf],
    queryFn: ({ signal }) =>
      client.items(collection).read(item, {
        fields: [target?.titleField ?? 'id'],
        ...(asOf !== undefined && { asOf }),
        signal,
      }),
    enabled: target !== undefined,
  })
  const title = (data as Row | undefined)?.[target?.titleField ?? '']
  return (
    <Link to="/data/$collection/$id" params={{ collection, id: item }}>
      {target?.label ?? collection}: {String(title ?? item)}
    </Link>
  )
}
