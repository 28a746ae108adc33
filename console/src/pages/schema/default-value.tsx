import type { ComponentProps } from 'react'
import { type FieldKind, kindsOf, optionsOf } from '../../app/definition.ts'
import { Field, Select, TextArea, TextField } from '../../ui/field.tsx'
import { isStructured, parseValue, textOf } from '../data/values.ts'
import { type Entry, objectOf, withMember } from './definitions.ts'
import styles from './schema.module.css'

/** The default of a field as it is chosen and typed. */
export type StatedDefault = { readonly how: string; readonly text: string; readonly other?: unknown }

const made: Readonly<Record<string, string>> = {
  NOW: 'the time of writing',
  UUIDV4: 'a new UUID',
  AUTOINCREMENT: 'the next number',
  CURRENT_USER: 'whoever writes it',
  CURRENT_TENANT: 'the tenant',
  SUID: 'a short random id',
  TOKEN: 'a random token',
}

export function defaultOf(entry: Entry): StatedDefault {
  const { defaultValue: value, type } = entry
  const kinds = kindsOf(String(type ?? 'String'))
  const text = (literal: unknown) => ({ how: 'value', text: textOf(kinds, literal) })
  if (value === undefined) return { how: 'none', text: '' }
  // A type that makes its values itself has this for none.
  if (value === null) return { how: 'other', text: '', other: value }
  if (typeof value !== 'object' || Array.isArray(value)) return text(value)
  const { type: how, value: literal } = objectOf(value)
  if (how === 'SQL') return { how, text: String(literal ?? '') }
  if (typeof how === 'string' && Object.hasOwn(made, how)) return { how, text: '' }
  return Object.hasOwn(value, 'value') && how === undefined ? text(literal) : { how: 'other', text: '', other: value }
}

/**
 * A field with the default that was chosen for it.
 *
 * @throws {Error} for a text that is no value of its type, in words for whoever typed it
 */
export function withDefault(entry: Entry, { how, text, other }: StatedDefault): Entry {
  if (how === 'none') return withMember(entry, 'defaultValue', undefined)
  if (how === 'other') return { ...entry, defaultValue: other }
  if (how === 'SQL') return { ...entry, defaultValue: { type: 'SQL', value: text } }
  if (how !== 'value') return { ...entry, defaultValue: { type: how } }
  const kinds = kindsOf(String(entry.type))
  const value = parseValue(kinds, text)
  if (value === null) throw new Error('Type the value, or choose no default.')
  return { ...entry, defaultValue: isStructured(kinds) ? { value } : value }
}

type DefaultValueProps = {
  readonly entry: Entry
  readonly stated: StatedDefault
  readonly problem: string | undefined
  readonly onChange: (stated: StatedDefault) => void
}

/** The value of a row that brings none. */
export function DefaultValue({ entry, stated, problem, onChange }: DefaultValueProps) {
  const { kind, element } = kindsOf(String(entry.type))
  const isList = stated.how === 'value' && element !== undefined
  const options = kind === 'boolean' ? ['true', 'false'] : kind === 'enum' ? optionsOf(entry.values) : undefined
  const change = ({ target }: { readonly target: { readonly value: string } }) =>
    onChange({ ...stated, text: target.value })
  return (
    <div className={styles.pair}>
      <Field label="Default">
        {(attributes) => (
          <Select
            {...attributes}
            value={stated.how}
            onChange={({ target }) => onChange({ ...stated, how: target.value, text: options?.[0] ?? '' })}
            options={[
              { value: 'none', label: 'none' },
              { value: 'value', label: 'a value' },
              ...Object.entries(made).map(([value, label]) => ({ value, label })),
              { value: 'SQL', label: 'an SQL expression' },
              ...(stated.how === 'other' ? [{ value: 'other', label: 'as the JSON says' }] : []),
            ]}
          />
        )}
      </Field>
      {stated.how === 'value' && options !== undefined && (
        <Field label="Default value" error={problem}>
          {(attributes) => <Select {...attributes} value={stated.text} onChange={change} options={options} />}
        </Field>
      )}
      {isList && (
        <Field label="Default value" note="one per line" error={problem}>
          {(attributes) => <TextArea {...attributes} rows={2} value={stated.text} onChange={change} />}
        </Field>
      )}
      {((stated.how === 'value' && options === undefined && !isList) || stated.how === 'SQL') && (
        <TextField
          label={stated.how === 'SQL' ? 'Default expression' : 'Default value'}
          {...(stated.how === 'value' && controlOf(kind, stated.text))}
          error={problem}
          value={stated.text}
          onChange={change}
        />
      )}
    </div>
  )
}

/** A time is chosen, in the browser's zone, unless what is stored is none that its control could show. */
function controlOf(kind: FieldKind, text: string): Partial<ComponentProps<typeof TextField>> {
  if (kind !== 'datetime' && kind !== 'datetime without zone') return {}
  const note = kind === 'datetime' ? { note: Intl.DateTimeFormat().resolvedOptions().timeZone } : {}
  return text === '' || /^\d{4}-\d\d-\d\dT/.test(text) ? { type: 'datetime-local', step: 1, ...note } : note
}
