import { useState } from 'react'
import type { Catalog, Collection } from '../../app/catalog.ts'
import { ConfirmDialog } from '../../ui/dialog.tsx'
import { Field, Select } from '../../ui/field.tsx'
import { FormDialog } from '../../ui/leaving.tsx'
import { Table } from '../../ui/table.tsx'
import { bulkValue, type Way, waysOf } from './bulk-value.ts'
import type { Draft } from './draft.ts'
import { Editor, noteOf, relatedOf } from './editor.tsx'
import type { Row } from './query.ts'
import { References } from './references.tsx'
import { Value } from './value.tsx'
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
  const [name, setName] = useState('')
  const [way, setWay] = useState<Way>('value')
  const [draft, setDraft] = useState<Draft>({ text: '' })
  const field = fields.find((one) => one.name === name)
  const after = field === undefined ? undefined : bulkValue(field, way, draft)
  const problem = after !== undefined && 'error' in after ? after.error.message : undefined
  const related = field === undefined ? {} : relatedOf({ [field.name]: draft }, [field], catalog)
  const key = (row: Row) => String(row[collection.key])
  return (
    <FormDialog
      onClose={onClose}
      size="l"
      title={`Change ${rows.length.toLocaleString()} rows of ${collection.label}`}
      action={`Change ${rows.length.toLocaleString()} rows`}
      isDisabled={after === undefined || 'error' in after}
      onConfirm={async () => {
        if (field === undefined || after === undefined || 'error' in after) return
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
                setWay('value')
                setDraft({ text: '' })
              }}
              options={[{ value: '', label: 'Choose a field' }, ...fields.map((one) => one.name)]}
            />
          )}
        </Field>
        {field !== undefined && (
          <>
            <Field label="Set it to">
              {(attributes) => (
                <Select
                  {...attributes}
                  value={way}
                  onChange={({ target }) => setWay(target.value as Way)}
                  options={waysOf(field)}
                />
              )}
            </Field>
            {way === 'value' && (
              <Field label="New value" note={noteOf(field)} error={problem}>
                {(attributes) => (
                  <Editor key={name} field={field} draft={draft} onChange={setDraft} attributes={attributes} />
                )}
              </Field>
            )}
            <Table
              label="What changes"
              keyOf={key}
              rows={rows.slice(0, previewed)}
              columns={[
                { title: collection.titleField, cell: (row: Row) => String(row[collection.titleField] ?? key(row)) },
                { title: 'Before', cell: (row: Row) => <Value field={field} row={row} catalog={catalog} /> },
                {
                  title: 'After',
                  cell: () =>
                    after !== undefined &&
                    'value' in after && (
                      <Value field={field} row={{ [field.name]: after.value, ...related }} catalog={catalog} />
                    ),
                },
              ]}
            />
          </>
        )}
        {rows.length > previewed && <p>and {(rows.length - previewed).toLocaleString()} more</p>}
      </div>
    </FormDialog>
  )
}
