import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { useState } from 'react'
import type { Catalog, Collection, Relation } from '../../app/catalog.ts'
import { client } from '../../app/client.ts'
import { Loading, Problem } from '../../ui/states.tsx'
import type { Filter } from '../data/filter.ts'
import type { Row } from '../data/query.ts'
import { LinksToAny } from './any.tsx'
import styles from './record.module.css'

type RelatedProps = {
  readonly catalog: Catalog
  readonly collection: Collection
  readonly row: Row
  readonly asOf: string | undefined
}

/** The content of a file, and the rows that refer to a record. */
export function Related({ catalog, collection, row, asOf }: RelatedProps) {
  const many = collection.relations.filter((relation) => {
    const target = relation.kind === 'many' ? catalog.get(relation.target) : undefined
    const column = target && columnTo(relation, target, collection)
    return target?.fields.some(({ name, isHidden }) => name === column && !isHidden) === true
  })
  const any = collection.relations.filter(({ kind, target }) => kind === 'links to any' && catalog.has(target))
  const id = row[collection.key] as string | number
  return (
    <>
      {collection.name === 'svc_File' && <FileContent id={String(id)} />}
      {any.map((relation) => (
        <LinksToAny key={relation.name} {...{ relation, id, catalog, asOf }} junction={catalog.get(relation.target)!} />
      ))}
      {many.map((relation) => (
        <Many
          key={relation.name}
          {...{ relation, id, asOf, target: catalog.get(relation.target)!, owner: collection }}
        />
      ))}
    </>
  )
}

/** The column of the rows that refer to a record. */
const columnTo = ({ foreignKey }: Relation, target: Collection, owner: Collection): string =>
  foreignKey ?? target.fields.find((field) => field.relation?.target === owner.name)?.name ?? `${owner.name}_Id`

type ManyProps = {
  readonly relation: Relation
  readonly owner: Collection
  readonly target: Collection
  readonly id: string | number
  readonly asOf: string | undefined
}

const shown = 10

function Many({ relation, owner, target, id, asOf }: ManyProps) {
  const filter: Filter = { [columnTo(relation, target, owner)]: id }
  const { data, error } = useQuery({
    queryKey: ['related', owner.name, id, relation.name, asOf],
    queryFn: ({ signal }) =>
      client.items(target.name).list({
        fields: [...new Set([target.key, target.titleField])],
        filter: filter as never,
        limit: shown,
        ...(asOf !== undefined && { asOf }),
        signal,
      }),
  })
  const total = data?.totalCount ?? 0
  return (
    <section className={styles.card} aria-label={relation.name}>
      <h2>
        {relation.name} {data !== undefined && <small>({total.toLocaleString()})</small>}
      </h2>
      {error !== null && <Problem error={error} />}
      {data === undefined && error === null && <Loading lines={2} />}
      {data !== undefined && (
        <ul className={styles.related}>
          {data.data.map((row: Row) => (
            <li key={String(row[target.key])}>
              <Link to="/data/$collection/$id" params={{ collection: target.name, id: String(row[target.key]) }}>
                {String(row[target.titleField] ?? row[target.key])}
              </Link>
            </li>
          ))}
          {total > shown && (
            <li>
              <Link to="/data/$collection" params={{ collection: target.name }} search={{ filter }}>
                All {total.toLocaleString()}
              </Link>
            </li>
          )}
          {total === 0 && <li>None</li>}
        </ul>
      )}
    </section>
  )
}

function FileContent({ id }: { readonly id: string }) {
  const [isImage, setImage] = useState(true)
  const address = client.files.address(id)
  return (
    <section className={styles.card} aria-label="Content">
      {isImage && (
        <img
          className={styles.image}
          src={client.files.address(id, { width: 1200, fit: 'inside' })}
          alt="Its content"
          onError={() => setImage(false)}
        />
      )}
      <a href={address} target="_blank" rel="noreferrer">
        Open the content
      </a>
    </section>
  )
}
