import { useState } from 'react'
import type { Catalog, Collection } from '../../app/catalog.ts'
import { ConfirmDialog } from '../../ui/dialog.tsx'
import { Field, Select } from '../../ui/field.tsx'
import { Table } from '../../ui/table.tsx'
import { type Draft, draftValue } from './draft.ts'
import { Editor, noteOf } from './editor.tsx'
import type { Row } from './query.ts'
import { References } from './references.tsx'
import { Value } from './value.tsx'
import { attempt } from './values.ts'
import { changeRows, deleteRows } from './writes.ts'

type BulkProps = {
  readonly collection: Collection
  readonly catalog: Catalog
  readonly rows: readonly Row[]
  readonly onClose: () => void
  readonly onDone: () => void
}

const previewed = 8

/** Deletes rows, after showing which and what refers to them. */
export function DeleteRows({ collection, rows, onClose, onDone }: BulkProps) {
  const ids = rows.map((row) => String(row[collection.key]))
  const what = rows.length === 1 ? '1 row' : `${rows.length.toLocaleString()} rows`
  return (
    <ConfirmDialog
      isOpen
      onClose={onClose}
      title={`Delete ${what} of ${collection.label}?`}
      description="You can undo it afterwards, and find what was deleted in the history."
      action={`Delete ${what}`}
      isDangerous
      onConfirm={async () => {
        await deleteRows(collection.name, ids)
        onDone()
      }}
    >
      <ul style={{ marginBottom: 'var(--s3)' }}>
        {rows.slice(0, previewed).map((row) => (
          <li key={String(row[collection.key])}>{String(row[collection.titleField] ?? row[collection.key])}</li>
        ))}
        {rows.length > previewed && <li>and {(rows.length - previewed).toLocaleString()} more</li>}
      </ul>
      <References collection={collection} ids={ids} />
    </ConfirmDialog>
  )
}

/** Sets one field of many rows, after showing what changes. */
export function EditRows({ collection, catalog, rows, onClose, onDone }: BulkProps) {
  const fields = collection.fields.filter(({ isChangeable, isHidden }) => isChangeable && !isHidden)
  const [name, setName] = useState(fields[0]?.name ?? '')
  const [draft, setDraft] = useState<Draft>({ text: '' })
  const field = fields.find((one) => one.name === name)
  if (field === undefined) return null
  const after = attempt(() => draftValue(field, draft))
  const key = (row: Row) => String(row[collection.key])
  return (
    <ConfirmDialog
      isOpen
      onClose={onClose}
      size="l"
      title={`Change ${rows.length.toLocaleString()} rows of ${collection.label}`}
      action={`Change ${rows.length.toLocaleString()} rows`}
      isDisabled={'error' in after}
      onConfirm={async () => {
        if ('error' in after) throw after.error
        await changeRows(
          collection.name,
          rows.map((row) => ({ [collection.key]: row[collection.key], [field.name]: after.value })),
        )
        onDone()
      }}
    >
      <div style={{ display: 'grid', gap: 'var(--s3)' }}>
        <Field label="Field">
          {(attributes) => (
            <Select
              {...attributes}
              value={name}
              onChange={({ target }) => {
                setName(target.value)
                setDraft({ text: '' })
              }}
              options={fields.map((one) => one.name)}
            />
          )}
        </Field>
        <Field label="New value" note={noteOf(field)} {...('error' in after && { error: after.error.message })}>
          {(attributes) => (
            <Editor key={name} field={field} draft={draft} onChange={setDraft} attributes={attributes} />
          )}
        </Field>
        <Table
          label="What changes"
          keyOf={key}
          rows={rows.slice(0, previewed)}
          columns={[
            { title: collection.titleField, cell: (row: Row) => String(row[collection.titleField] ?? key(row)) },
            { title: 'Before', cell: (row: Row) => <Value field={field} row={row} catalog={catalog} /> },
            { title: 'After', cell: () => draft.choice?.title ?? (draft.text === '' ? '—' : draft.text) },
          ]}
        />
        {rows.length > previewed && <p>and {(rows.length - previewed).toLocaleString()} more</p>}
      </div>
    </ConfirmDialog>
  )
}
