import { useRef } from 'react'
import type { Catalog, Field } from '../../app/catalog.ts'
import { client } from '../../app/client.ts'
import { Button } from '../../ui/button.tsx'
import { Input, Select, TextArea } from '../../ui/field.tsx'
import { notifyError } from '../../ui/toast.tsx'
import type { Row } from './query.ts'
import { type Choice, RelationPicker } from './relation-picker.tsx'
import { titleOf } from './value.tsx'
import { isNumeric, isStructured, parseValue } from './values.ts'

/** The edited value: a text that stands for it, and of a relation also the row that it names. */
export type Draft = {
  readonly text: string
  readonly choice?: Choice | null
  /** The value itself, where an editor of an extension has said it. */
  readonly exact?: { readonly value: unknown }
}

/** The value that a draft stands for. @throws {Error} in words for whoever typed it */
export const draftValue = (field: Field, { text, exact }: Draft): unknown =>
  exact === undefined ? parseValue(field, text) : exact.value

type EditorProps = {
  readonly field: Field
  readonly draft: Draft
  readonly onChange: (draft: Draft) => void
  readonly attributes: {
    readonly id?: string
    readonly 'aria-label'?: string
    readonly 'aria-describedby'?: string | undefined
    readonly 'aria-invalid'?: boolean | undefined
  }
  readonly isDisabled?: boolean
  readonly autoFocus?: boolean
}

/** The control of a field's kind. */
export function Editor({ field, draft, onChange, attributes, isDisabled, autoFocus }: EditorProps) {
  const { text } = draft
  const change = ({ target }: { readonly target: { readonly value: string } }) => onChange({ text: target.value })
  const common = { ...attributes, value: text, onChange: change, disabled: isDisabled, autoFocus }
  if (field.relation !== undefined)
    return (
      <>
        <RelationPicker
          collection={field.relation.target}
          {...(attributes.id !== undefined && { id: attributes.id })}
          label={attributes['aria-label'] ?? field.relation.name}
          value={draft.choice ?? (text === '' ? null : { id: text, title: text })}
          onChange={(choice) => onChange({ text: choice === null ? '' : String(choice.id), choice })}
          autoFocus={autoFocus === true}
        />
        {field.relation.target === 'svc_File' && (
          <Upload onDone={(choice) => onChange({ text: String(choice.id), choice })} />
        )}
      </>
    )
  if (field.kind === 'boolean')
    return (
      <Select
        {...common}
        options={[
          { value: '', label: '—' },
          { value: 'true', label: 'yes' },
          { value: 'false', label: 'no' },
        ]}
      />
    )
  if (field.kind === 'enum')
    return (
      <Select
        {...common}
        options={[{ value: '', label: '—' }, ...field.options.map((value) => ({ value, label: value }))]}
      />
    )
  if (field.kind === 'long text' || isStructured(field))
    return (
      <TextArea
        {...common}
        isCode={isStructured(field) && field.element === undefined}
        rows={field.kind === 'json' || field.kind === 'long text' ? 6 : 2}
      />
    )
  if (field.kind === 'datetime' || field.kind === 'datetime without zone')
    return <Input {...common} type="datetime-local" step={1} />
  if (field.kind === 'date') return <Input {...common} type="date" />
  return (
    <Input
      {...common}
      type="text"
      {...(isNumeric(field) && { inputMode: 'decimal' as const })}
      {...(field.maxLength !== undefined && { maxLength: field.maxLength })}
    />
  )
}

/** Uploads a file, and gives its row. */
export function Upload({ onDone }: { readonly onDone: (choice: Choice) => void }) {
  const input = useRef<HTMLInputElement>(null)
  const upload = async (file: File | undefined) => {
    if (file === undefined) return
    try {
      onDone({ id: await client.files.upload(file), title: file.name })
    } catch (error) {
      notifyError(error)
    }
  }
  return (
    <>
      <input
        ref={input}
        type="file"
        hidden
        aria-hidden="true"
        tabIndex={-1}
        onChange={({ target }) => void upload(target.files?.[0])}
      />
      <Button size="s" onClick={() => input.current?.click()}>
        Upload a file
      </Button>
    </>
  )
}

/** The row that a relation's value names, where it was read with the row. */
export function chosenRow({ relation, name }: Field, row: Row, catalog: Catalog): Choice | null {
  const id = row[name]
  if (relation === undefined || id === null || id === undefined) return null
  return { id: id as string | number, title: titleOf(row[relation.name], catalog, relation.target) ?? String(id) }
}

/** The notes on a field beside its name. */
export const noteOf = ({ type, isRequired, kind, element }: Field): string =>
  [
    type,
    element !== undefined && 'one per line',
    (kind === 'datetime' || element === 'datetime') && Intl.DateTimeFormat().resolvedOptions().timeZone,
    isRequired && 'required',
  ]
    .filter(Boolean)
    .join(' · ')
