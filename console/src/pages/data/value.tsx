import { Link } from '@tanstack/react-router'
import { Check, Minus } from 'lucide-react'
import { useState } from 'react'
import type { Catalog, Field } from '../../app/catalog.ts'
import { client } from '../../app/client.ts'
import type { FieldKind } from '../../app/definition.ts'
import { Badge } from '../../ui/table.tsx'
import type { Row } from './query.ts'
import styles from './value.module.css'
import { isStructured, shortText } from './values.ts'

type ValueProps = { readonly field: Field; readonly row: Row; readonly catalog: Catalog }

/** A value in one line. What a row holds is shown as text, whatever it is. */
export function Value({ field, row, catalog }: ValueProps) {
  const value = row[field.name]
  if (value === null || value === undefined || value === '')
    return <span className={styles.none}>{shortText(field, value)}</span>
  if (field.relation !== undefined) return <Related field={field} row={row} catalog={catalog} />
  if (field.kind === 'boolean')
    return value === true ? (
      <Check className={styles.yes} size={16} aria-label="yes" />
    ) : (
      <Minus className={styles.none} size={16} aria-label="no" />
    )
  if (field.kind === 'enum') return <Badge>{String(value)}</Badge>
  if (field.element !== undefined && Array.isArray(value) && value.length > 0)
    return <Members kind={field.element} members={value} />
  const text = shortText(field, value)
  const isCode = isStructured(field) || field.kind === 'uuid'
  return (
    <span className={isCode ? styles.code : undefined} title={field.kind === 'datetime' ? String(value) : text}>
      {text.length > 300 ? `${text.slice(0, 300)}…` : text}
    </span>
  )
}

const shownMembers = 20

function Members({ kind, members }: { readonly kind: FieldKind; readonly members: readonly unknown[] }) {
  return (
    <span className={styles.members}>
      {members.slice(0, shownMembers).map((member, place) => (
        <Badge key={place}>{shortText({ kind }, member).slice(0, 300)}</Badge>
      ))}
      {members.length > shownMembers && <span>and {(members.length - shownMembers).toLocaleString()} more</span>}
    </span>
  )
}

function Related({ field, row, catalog }: ValueProps) {
  const { name, target } = field.relation!
  const id = String(row[field.name])
  if (target === 'svc_File') return <Thumbnail id={id} name={titleOf(row[name], catalog, target)} />
  return (
    <Link
      to="/data/$collection/$id"
      params={{ collection: target, id }}
      className={styles.chip}
      tabIndex={-1}
      onDoubleClick={(event) => event.stopPropagation()}
    >
      {titleOf(row[name], catalog, target) ?? id}
    </Link>
  )
}

/** The name of a related row for people. */
export function titleOf(related: unknown, catalog: Catalog, target: string): string | undefined {
  const collection = catalog.get(target)
  if (collection === undefined || typeof related !== 'object' || related === null) return undefined
  const title = (related as Row)[collection.titleField]
  return title === null || title === undefined || title === '' ? undefined : String(title)
}

/** A file, small; what is no image has its name alone. */
export function Thumbnail({ id, name }: { readonly id: string; readonly name: string | undefined }) {
  return (
    <Link to="/data/$collection/$id" params={{ collection: 'svc_File', id }} className={styles.thumb} tabIndex={-1}>
      <FileImage id={id} />
      <span>{name ?? id}</span>
    </Link>
  )
}

/** The content of a file beside its name, where it is an image. */
export function FileImage({ id }: { readonly id: string }) {
  const [isImage, setImage] = useState(true)
  if (!isImage) return null
  return (
    <img
      className={styles.image}
      src={client.files.address(id, { width: 96, height: 96, fit: 'cover' })}
      alt=""
      loading="lazy"
      onError={() => setImage(false)}
    />
  )
}
