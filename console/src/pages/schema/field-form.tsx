import { useQuery } from '@tanstack/react-query'
import { type ReactNode, useState } from 'react'
import { kindOf as kindOfType } from '../../app/definition.ts'
import { extensionsQuery } from '../../extensions/extensions.ts'
import { Button } from '../../ui/button.tsx'
import { Checkbox, Field, Select, TextArea, TextField } from '../../ui/field.tsx'
import { FormDrawer } from '../../ui/leaving.tsx'
import { attempt } from '../data/values.ts'
import { DefaultValue, defaultOf, type StatedDefault, withDefault } from './default-value.tsx'
import { type Entry, objectOf, types, withMember, withPart } from './definitions.ts'
import { Rules } from './rules.tsx'
import styles from './schema.module.css'

type FieldFormProps = {
  readonly collection: string
  /** The field that is changed; undefined for a new one. */
  readonly name?: string | undefined
  readonly entry?: Entry | undefined
  /** Names that are taken. */
  readonly taken: readonly string[]
  /** The button's text. */
  readonly action: string
  readonly onDone: (name: string, entry: Entry) => void
  readonly onClose: () => void
}

/** One column: its type with what belongs to it, its default, its rules; or all of it as JSON. */
export function FieldForm({ collection, name: known, entry: before, taken, action, onDone, onClose }: FieldFormProps) {
  const [name, setName] = useState(known ?? '')
  const [entry, setEntry] = useState<Entry>(before ?? { type: 'String' })
  const [stated, setStated] = useState<StatedDefault>(defaultOf(before ?? {}))
  const [json, setJson] = useState<string>()
  const result = attempt(() => (json === undefined ? withDefault(entry, stated) : entryIn(json)))
  const value = 'value' in result ? result.value : undefined
  const problem = 'error' in result ? result.error.message : undefined
  const nameError =
    known === undefined && taken.includes(name.trim()) ? `${collection} has a ${name.trim()}` : undefined
  const toggle = () => {
    if (json === undefined) return setJson(JSON.stringify(value ?? entry, null, 2))
    if (value === undefined) return
    setEntry(value)
    setStated(defaultOf(value))
    setJson(undefined)
  }
  const now = JSON.stringify([name, entry, stated, json])
  const [initial] = useState(now)
  const isWhole = name.trim() !== '' && nameError === undefined && value !== undefined
  return (
    <FormDrawer
      isChanged={now !== initial}
      onClose={onClose}
      title={known === undefined ? 'New field' : `${collection}.${known}`}
      footer={
        <>
          <Button kind="ghost" disabled={value === undefined} onClick={toggle}>
            {json === undefined ? 'As JSON' : 'As a form'}
          </Button>
          <Button kind="primary" disabled={!isWhole} onClick={() => onDone(name.trim(), value!)}>
            {action}
          </Button>
        </>
      }
    >
      <div className={styles.form}>
        {known === undefined && (
          <TextField
            label="Name"
            hint="Letters, digits and _; the column has it too."
            error={nameError}
            value={name}
            onChange={({ target }) => setName(target.value)}
          />
        )}
        {json === undefined ? (
          <Members entry={entry} stated={stated} problem={problem} onChange={setEntry} onDefault={setStated} />
        ) : (
          <Field label="Definition" note="JSON" error={problem}>
            {(attributes) => (
              <TextArea
                {...attributes}
                isCode
                rows={16}
                value={json}
                onChange={({ target }) => setJson(target.value)}
              />
            )}
          </Field>
        )}
      </div>
    </FormDrawer>
  )
}

type MembersProps = {
  readonly entry: Entry
  readonly stated: StatedDefault
  readonly problem: string | undefined
  readonly onChange: (entry: Entry) => void
  readonly onDefault: (stated: StatedDefault) => void
}

function Members({ entry, stated, problem, onChange, onDefault }: MembersProps) {
  const type = String(entry.type)
  const known = Object.hasOwn(types, type) ? types : { [type]: type, ...types }
  const set = (name: string, value: unknown) => onChange(withMember(entry, name, value))
  const flag = (name: string, label: ReactNode, on: unknown = true) => (
    <Checkbox
      label={label}
      checked={entry[name] === on}
      onChange={({ target }) => set(name, target.checked ? on : undefined)}
    />
  )
  return (
    <>
      <Field label="Type">
        {(attributes) => (
          <Select
            {...attributes}
            value={type}
            onChange={({ target }) => {
              const { values: _, validate: _rules, calculated: _sql, ...kept } = entry
              onChange({ ...kept, type: target.value })
            }}
            options={Object.entries(known).map(([value, words]) => ({ value, label: `${words} · ${value}` }))}
          />
        )}
      </Field>
      <Parameters entry={entry} onChange={onChange} />
      {type !== 'VIRTUAL' && (
        <>
          <div className={styles.checks}>
            {flag('allowNull', 'A value is required', false)}
            {flag('unique', 'No two rows have the same value')}
            {flag('hidden', 'Hidden: nobody reads it, and the log has no values of it')}
            {flag('unlogged', 'A change of it alone leaves no event')}
          </div>
          <DefaultValue entry={entry} stated={stated} problem={problem} onChange={onDefault} />
          <Rules entry={entry} kind={kindOfType(type)} onChange={(validate) => set('validate', validate)} />
        </>
      )}
      <TextField
        label="Description"
        hint="For people; shown beside the field."
        value={typeof entry.description === 'string' ? entry.description : ''}
        onChange={({ target }) => set('description', target.value)}
      />
      <EditorChoice entry={entry} onChange={(editor) => set('editor', editor)} />
    </>
  )
}

type EditorChoiceProps = { readonly entry: Entry; readonly onChange: (editor: string | undefined) => void }

/** Which editor of an extension forms have for it, where there is any. */
function EditorChoice({ entry, onChange }: EditorChoiceProps) {
  const { data = [] } = useQuery(extensionsQuery)
  const chosen = typeof entry.editor === 'string' ? entry.editor : ''
  const known = data.flatMap(({ name, editors }) => editors.map((one) => `${name}/${one.name}`))
  const names = [...new Set([...known, chosen])].filter((name) => name !== '')
  if (names.length === 0) return null
  return (
    <Field label="Editor" hint="Of an extension; in the forms of records.">
      {(attributes) => (
        <Select
          {...attributes}
          value={chosen}
          onChange={({ target }) => onChange(target.value === '' ? undefined : target.value)}
          options={[{ value: '', label: 'that of the type' }, ...names.map((value) => ({ value, label: value }))]}
        />
      )}
    </Field>
  )
}

/** The settings of a type besides its name. */
function Parameters({ entry, onChange }: { readonly entry: Entry; readonly onChange: (entry: Entry) => void }) {
  const type = String(entry.type)
  const number = (name: string, label: string, hint?: string) => (
    <TextField
      key={name}
      label={label}
      {...(hint !== undefined && { hint })}
      type="number"
      min={0}
      value={String(objectOf(entry.values)[name] ?? '')}
      onChange={({ target }) =>
        onChange(withPart(entry, 'values', name, target.value === '' ? undefined : Number(target.value)))
      }
    />
  )
  if (type === 'VIRTUAL')
    return (
      <TextField
        label="SQL expression"
        hint={'Over the columns of the row, such as "firstName" || \' \' || "lastName".'}
        value={String(entry.calculated ?? '')}
        onChange={({ target }) => onChange(withMember(entry, 'calculated', target.value))}
      />
    )
  if (type === 'ENUM') return <Options entry={entry} onChange={onChange} />
  if (type === 'String') return number('stringLength', 'Longest text', 'In characters; empty for any.')
  if (type === 'Decimal')
    return (
      <div className={styles.pair}>
        {number('precision', 'Digits')}
        {number('scale', 'Digits after the point')}
      </div>
    )
  if (/Vec(tor)?$/.test(type)) return number('dimensions', 'Dimensions')
  if (kindOfType(type) === 'geometry') return number('srid', 'Coordinate system', 'SRID; 4326 unless given.')
  return null
}

/** The list of an ENUM, one value on each line. */
function Options({ entry, onChange }: { readonly entry: Entry; readonly onChange: (entry: Entry) => void }) {
  const { values } = entry
  const list: unknown = Array.isArray(values) ? values : objectOf(values).values
  const [text, setText] = useState(Array.isArray(list) ? list.join('\n') : '')
  return (
    <Field label="Values" hint="One on each line.">
      {(attributes) => (
        <TextArea
          {...attributes}
          rows={4}
          value={text}
          onChange={({ target }) => {
            setText(target.value)
            const lines = target.value.split('\n').map((line) => line.trim())
            onChange(withMember(entry, 'values', [...new Set(lines.filter((line) => line !== ''))]))
          }}
        />
      )}
    </Field>
  )
}

function entryIn(text: string): Entry {
  const value: unknown = JSON.parse(text)
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw new Error('A field is a JSON object, such as {"type": "String"}')
  return value as Entry
}
