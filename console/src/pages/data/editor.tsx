import { useState } from 'react'
import type { Catalog, Field } from '../../app/catalog.ts'
import { type FieldAttributes, Input, Select, TextArea } from '../../ui/field.tsx'
import { type Choice, type Draft, draftOf, hasLines, withBreaksOf } from './draft.ts'
import type { Row } from './query.ts'
import { RelationPicker } from './relation-picker.tsx'
import { Upload } from './upload.tsx'
import { FileImage, titleOf } from './value.tsx'
import { isNumeric, isStructured } from './values.ts'

type EditorProps = {
  readonly field: Field
  readonly draft: Draft
  readonly onChange: (draft: Draft) => void
  readonly attributes: Partial<FieldAttributes> & { readonly 'aria-label'?: string }
  readonly isDisabled?: boolean
  readonly autoFocus?: boolean
}

/** The control of a field's kind. */
export function Editor({ field, draft, onChange, attributes, isDisabled, autoFocus }: EditorProps) {
  const { text } = draft
  const change = ({ target }: { readonly target: { readonly value: string } }) => onChange({ text: target.value })
  // It stays: a control that changed under the hand would lose the keyboard.
  const [isLong, setLong] = useState(false)
  if (!isLong && hasLines(field, text)) setLong(true)
  const common = { ...attributes, value: text, onChange: change, disabled: isDisabled, autoFocus }
  if (field.relation !== undefined) {
    const picker = (
      <RelationPicker
        collection={field.relation.target}
        attributes={attributes}
        label={attributes['aria-label'] ?? field.relation.name}
        value={draft.choice ?? (text === '' ? null : { id: text, title: text })}
        onChange={(choice) => onChange({ text: choice === null ? '' : String(choice.id), choice })}
        autoFocus={autoFocus === true}
      />
    )
    if (field.relation.target !== 'svc_File') return picker
    return (
      <Upload onEach={(choice) => onChange({ text: String(choice.id), choice })}>
        {picker}
        {text !== '' && <FileImage key={text} id={text} />}
      </Upload>
    )
  }
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
  if (isLong)
    return (
      <TextArea
        {...common}
        value={text.replaceAll('\r\n', '\n')}
        onChange={({ target }) => onChange({ text: withBreaksOf(text, target.value) })}
        isCode={isStructured(field) && field.element === undefined}
        rows={field.kind === 'json' || field.kind === 'long text' ? 6 : 2}
      />
    )
  const isTime = field.kind === 'datetime' || field.kind === 'datetime without zone'
  if (isTime || field.kind === 'date') {
    // A browser tells of a first lacking part as a change to nothing, and of the others not at all.
    const look = ({ currentTarget }: { readonly currentTarget: HTMLInputElement }) => {
      const next = draftOf(currentTarget)
      if (next.text !== text || (next.isIncomplete === true) !== (draft.isIncomplete === true)) onChange(next)
    }
    const looks = { onChange: look, onInput: look, onKeyUp: look, onBlur: look }
    return <Input {...common} {...looks} {...(isTime ? { type: 'datetime-local', step: 1 } : { type: 'date' })} />
  }
  return <Input {...common} type="text" {...(isNumeric(field) && { inputMode: 'decimal' as const })} />
}

/** The row that a relation's value names, where it was read with the row. */
export function chosenRow({ relation, name }: Field, row: Row, catalog: Catalog): Choice | null {
  const id = row[name]
  if (relation === undefined || id === null || id === undefined) return null
  return { id: id as string | number, title: titleOf(row[relation.name], catalog, relation.target) ?? String(id) }
}

/** The rows that are chosen in the drafts, by their relations. */
export const relatedOf = (drafts: Readonly<Record<string, Draft>>, fields: readonly Field[], catalog: Catalog): Row =>
  Object.fromEntries(
    fields.flatMap(({ name, relation }) => {
      const [choice, target] = [drafts[name]?.choice, catalog.get(relation?.target ?? '')]
      return relation === undefined || target === undefined || !choice
        ? []
        : [[relation.name, { [target.titleField]: choice.title }]]
    }),
  )

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
