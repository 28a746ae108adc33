import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { useState } from 'react'
import type { Catalog, Collection, Relation } from '../../app/catalog.ts'
import { client } from '../../app/client.ts'
import { Loading, Problem } from '../../ui/states.tsx'
import type { Filter } from '../data/filter.ts'
import type { Row } from '../data/query.ts'
import { columnsTo } from '../data/references.tsx'
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
  const many = collection.relations.flatMap((relation) => {
    const target = relation.kind === 'many' ? catalog.get(relation.target) : undefined
    const column = target && columnTo(relation, target, collection)
    const isShown = target?.fields.some(({ name, isHidden }) => name === column && !isHidden) === true
    return isShown ? [{ title: relation.name, target, column: column! }] : []
  })
  const between = new Set(collection.relations.map(({ through }) => through))
  const others = columnsTo(collection, catalog)
    .filter(({ collection: { name }, field }) => {
      const isDeclared = many.some(({ target, column }) => target.name === name && column === field.name)
      return !field.isHidden && !between.has(name) && !isDeclared
    })
    .map(({ collection: target, field }) => ({
      title: `${target.label} by ${field.name}`,
      target,
      column: field.name,
      isUndeclared: true,
    }))
  const any = collection.relations.filter(({ kind, target }) => kind === 'links to any' && catalog.has(target))
  const id = row[collection.key] as string | number
  return (
    <>
      {collection.name === 'svc_File' && <FileContent id={String(id)} />}
      {any.map((relation) => (
        <LinksToAny key={relation.name} {...{ relation, id, catalog, asOf }} junction={catalog.get(relation.target)!} />
      ))}
      {[...many, ...others].map((one) => (
        <Many key={one.title} {...one} {...{ id, asOf }} />
      ))}
    </>
  )
}

/** The column of the rows that refer to a record. */
const columnTo = ({ foreignKey }: Relation, target: Collection, owner: Collection): string =>
  foreignKey ?? target.fields.find((field) => field.relation?.target === owner.name)?.name ?? `${owner.name}_Id`

type ManyProps = {
  readonly title: string
  readonly target: Collection
  /** Of the target, with the key of the record. */
  readonly column: string
  /** Shown only where there are such rows. */
  readonly isUndeclared?: boolean
  readonly id: string | number
  readonly asOf: string | undefined
}

const shown = 10

function Many({ title, target, column, isUndeclared = false, id, asOf }: ManyProps) {
  const filter: Filter = { [column]: id }
  const { data, error } = useQuery({
    queryKey: ['related', target.name, column, id, asOf],
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
  if (isUndeclared && total === 0 && error === null) return null
  return (
    <section className={styles.card} aria-label={title}>
      <h2>
        {title} {data !== undefined && <small>({total.toLocaleString()})</small>}
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
