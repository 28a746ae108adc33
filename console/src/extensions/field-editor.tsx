import type { Collection, Field } from '../app/catalog.ts'
import type { Draft } from '../pages/data/draft.ts'
import type { Row } from '../pages/data/query.ts'
import { textOf } from '../pages/data/values.ts'
import type { Extension } from './extensions.ts'
import { ExtensionFrame } from './frame.tsx'

type FieldEditorProps = {
  readonly extension: Extension
  readonly file: string
  readonly collection: Collection
  readonly field: Field
  /** Undefined of a new one. */
  readonly row: Row | undefined
  readonly draft: Draft
  readonly onChange: (draft: Draft) => void
}

/** An extension's editor in a form: what it says is what the field will hold; whether it may, the server says. */
export function FieldEditor({ extension, file, collection, field, row, draft, onChange }: FieldEditorProps) {
  const { name, type, isRequired, description = null } = field
  return (
    <ExtensionFrame
      extension={extension}
      file={file}
      title={name}
      place={{
        kind: 'editor',
        collection: collection.name,
        field: { name, type, isRequired, description },
        value: draft.exact?.value ?? null,
        record: row === undefined ? null : recordFor(extension, collection, row),
      }}
      onValue={(value) => onChange({ text: textOf(field, value), exact: { value } })}
    />
  )
}

/** The columns alone: what the form has read of related rows is of other collections. */
function recordFor({ collections }: Extension, { name, fields }: Collection, row: Row): Row | null {
  if (!collections.read.includes(name)) return null
  const shown = fields.filter((field) => !field.isHidden && row[field.name] !== undefined)
  return Object.fromEntries(shown.map((field) => [field.name, row[field.name]]))
}
