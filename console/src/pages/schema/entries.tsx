import { Link } from '@tanstack/react-router'
import { ArrowDown, ArrowUp, Plus, Trash2 } from 'lucide-react'
import type { ReactNode } from 'react'
import { Button, IconButton } from '../../ui/button.tsx'
import { Empty } from '../../ui/states.tsx'
import { Badge, Table } from '../../ui/table.tsx'
import { fieldRemoval, patch, relationRemoval } from './changes.ts'
import type { PartProps } from './collection.tsx'
import {
  columnsOf,
  declaredOf,
  type Entry,
  isAdded,
  isRelation,
  kindOf,
  objectOf,
  relationsOf,
  type Schema,
  types,
} from './definitions.ts'
import type { Part } from './routes.ts'
import styles from './schema.module.css'

/** The columns, with what the server has added among them. */
export function Fields({ definition: { collectionName, schema }, onChange, onOpen }: PartProps) {
  const own = columnsOf(declaredOf(schema)).map(({ name }) => name)
  const move = (name: string, by: -1 | 1) => {
    const fields = moved(declaredOf(schema).fields, name, own[own.indexOf(name) + by]!)
    onChange(patch(collectionName, { fields }, `Move ${collectionName}.${name}`))
  }
  return (
    <div className={styles.list}>
      <Tools>
        <Button kind="primary" onClick={() => onOpen({ add: true })}>
          <Plus aria-hidden="true" /> Add a field
        </Button>
      </Tools>
      <Table
        label="Fields"
        rows={columnsOf(schema)}
        keyOf={({ name }) => name}
        columns={[
          { title: 'Name', cell: (row) => <Name collection={collectionName} part="fields" {...row} /> },
          { title: 'Type', cell: ({ entry }) => typeInWords(entry) },
          { title: 'Rules', cell: ({ entry }) => <Marks entry={entry} /> },
          { title: 'Description', cell: ({ entry }) => textOf(entry.description) },
          {
            title: <span className="visually-hidden">Change</span>,
            cell: ({ name, entry }) =>
              isAdded(entry) ? null : (
                <span className={styles.acts}>
                  <IconButton
                    size="s"
                    label={`Move ${name} up`}
                    disabled={own[0] === name}
                    onClick={() => move(name, -1)}
                  >
                    <ArrowUp aria-hidden="true" />
                  </IconButton>
                  <IconButton
                    size="s"
                    label={`Move ${name} down`}
                    disabled={own.at(-1) === name}
                    onClick={() => move(name, 1)}
                  >
                    <ArrowDown aria-hidden="true" />
                  </IconButton>
                  <IconButton
                    size="s"
                    label={`Drop ${name}`}
                    onClick={() => onChange(fieldRemoval(collectionName, name))}
                  >
                    <Trash2 aria-hidden="true" />
                  </IconButton>
                </span>
              ),
          },
        ]}
      />
    </div>
  )
}

/** All entries, of which two have changed places. */
function moved(fields: Schema['fields'], one: string, other: string): Schema['fields'] {
  const places = new Map([
    [one, other],
    [other, one],
  ])
  return Object.fromEntries(
    Object.keys(fields).map((name) => [places.get(name) ?? name, fields[places.get(name) ?? name]!]),
  )
}

/** The relations that lead elsewhere, and those that lead back from there. */
export function Relations({ definition: { collectionName, schema }, onChange, onOpen }: PartProps) {
  const rows = relationsOf(schema)
  return (
    <div className={styles.list}>
      <Tools>
        <Button kind="primary" onClick={() => onOpen({ add: true })}>
          <Plus aria-hidden="true" /> Add a relation
        </Button>
      </Tools>
      {rows.length === 0 ? (
        <Empty title="No relations">
          <p>A relation leads from the rows here to rows of another collection.</p>
        </Empty>
      ) : (
        <Table
          label="Relations"
          rows={rows}
          keyOf={({ name }) => name}
          columns={[
            { title: 'Name', cell: (row) => <Name collection={collectionName} part="relations" {...row} /> },
            { title: 'Kind', cell: ({ entry }) => kindOf(schema, entry) },
            { title: 'Leads to', cell: ({ entry }) => <Target entry={entry} /> },
            { title: 'By', cell: ({ entry }) => <code>{textOf(entry.through) || textOf(entry.foreignKey)}</code> },
            { title: 'When that is deleted', cell: ({ entry }) => textOf(entry.onDelete) || 'as usual' },
            {
              title: <span className="visually-hidden">Change</span>,
              cell: ({ name, entry }) =>
                isAdded(entry) ? null : (
                  <IconButton
                    size="s"
                    label={`Remove ${name}`}
                    onClick={() => onChange(relationRemoval(collectionName, name))}
                  >
                    <Trash2 aria-hidden="true" />
                  </IconButton>
                ),
            },
          ]}
        />
      )}
    </div>
  )
}

function Target({ entry: { target, tables } }: { readonly entry: Entry }) {
  const names = Array.isArray(tables) && tables.length > 0 ? tables.map(String) : [String(target ?? '')]
  return names.map((name, place) => (
    <span key={name}>
      {place > 0 && ', '}
      <Link to="/schema/$collection" params={{ collection: name }}>
        {name}
      </Link>
    </span>
  ))
}

type NameProps = {
  readonly collection: string
  readonly part: Part
  readonly name: string
  readonly entry: Entry
}

function Name({ collection, part, name, entry }: NameProps) {
  if (isAdded(entry)) return <code>{name}</code>
  return (
    <Link to="/schema/$collection" params={{ collection }} search={{ part, edit: name }}>
      <code>{name}</code>
    </Link>
  )
}

export function Tools({ children }: { readonly children: ReactNode }) {
  return <div className={styles.tools}>{children}</div>
}

const textOf = (value: unknown): string => (typeof value === 'string' ? value : '')

export function typeInWords(entry: Entry): string {
  const type = String(entry.type)
  const { stringLength, precision, scale, dimensions } = objectOf(entry.values)
  const size = stringLength ?? dimensions ?? (precision === undefined ? undefined : `${precision}, ${scale ?? 0}`)
  return `${types[type] ?? type}${size === undefined ? '' : ` (${String(size)})`}`
}

/** The special traits of a column, a word each. */
export function Marks({ entry }: { readonly entry: Entry }) {
  const { primaryKey, allowNull, unique, hidden, unlogged, defaultValue, validate, values } = entry
  const rules = Object.keys(objectOf(validate))
  const words = [
    ...(primaryKey === true ? ['key'] : []),
    ...(allowNull === false && primaryKey !== true ? ['required'] : []),
    ...(unique === true ? ['unique'] : []),
    ...(hidden === true ? ['hidden'] : []),
    ...(unlogged === true ? ['not logged'] : []),
    ...(defaultValue === undefined || isRelation(entry) ? [] : ['default']),
    ...(Array.isArray(values) ? [`${values.length} values`] : []),
    ...rules,
  ]
  return (
    <span className={styles.marks}>
      {words.map((word) => (
        <Badge key={word}>{word}</Badge>
      ))}
      {isAdded(entry) && <Badge tone="info">by the server</Badge>}
    </span>
  )
}
