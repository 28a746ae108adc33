import { Download, Trash2 } from 'lucide-react'
import { useState } from 'react'
import { Button } from '../../ui/button.tsx'
import { Checkbox, Field, TextArea, TextField } from '../../ui/field.tsx'
import { useLeaveQuestion } from '../../ui/leaving.tsx'
import { deletion, download, patch } from './changes.ts'
import type { PartProps } from './collection.tsx'
import { declaredOf, isSystem, type Schema } from './definitions.ts'
import styles from './schema.module.css'

/** The settings that add columns, with their defaults. */
export const switches = {
  timestamps: { label: 'Times of creation and of the last change', isUsual: true },
  usertrack: { label: 'Who made it and who changed it last', isUsual: false },
  paranoid: { label: 'Deleted rows stay and can be brought back', isUsual: false },
  sortEnabled: { label: 'Rows can be arranged by hand', isUsual: false },
} as const

type Draft = Readonly<Record<string, unknown>>

const lost = 'The definition has changes that are not made. They are lost.'

/** The settings of a collection as a whole. */
export function Settings({ definition: { collectionName, schema }, onChange }: PartProps) {
  const [draft, setDraft] = useState<Draft>({})
  const now = (name: string): unknown => (Object.hasOwn(draft, name) ? draft[name] : schema[name])
  const set = (name: string, value: unknown) => setDraft({ ...draft, [name]: value })
  const changed = Object.fromEntries(
    Object.entries(draft).filter(([name, value]) => JSON.stringify(value) !== JSON.stringify(schema[name])),
  )
  const leaveQuestion = useLeaveQuestion(Object.keys(changed).length > 0, lost, ['part'])
  const text = (name: string) => (typeof now(name) === 'string' ? String(now(name)) : '')
  const words = (name: string) => (value: string) =>
    set(name, value === '' && schema[name] === undefined ? undefined : value)
  return (
    <div className={styles.settings}>
      {leaveQuestion}
      <div className={styles.form}>
        <TextField
          label="Name for people"
          hint={`Shown instead of ${collectionName}.`}
          value={text('name')}
          onChange={({ target }) => words('name')(target.value)}
        />
        <TextField
          label="Description"
          value={text('description')}
          onChange={({ target }) => words('description')(target.value)}
        />
        <Switches schema={{ ...schema, ...draft } as Schema} onChange={set} />
        <Checkbox
          label="Subscribers get changes as they happen"
          checked={now('realtime') !== false}
          onChange={({ target }) => set('realtime', target.checked ? schema.realtime || undefined : false)}
        />
        <div>
          <Button
            kind="primary"
            disabled={Object.keys(changed).length === 0}
            onClick={() => onChange(patch(collectionName, withNulls(changed)))}
          >
            Review…
          </Button>
        </div>
      </div>
      {!isSystem(collectionName) && (
        <section className={styles.part} aria-label="Delete the collection">
          <h3>Delete the collection</h3>
          <p>Its table goes with all rows, and so do junctions that link it and relations that lead to it.</p>
          <div>
            <Button kind="danger" onClick={() => onChange(deletion(collectionName))}>
              <Trash2 aria-hidden="true" /> Delete {collectionName}…
            </Button>
          </div>
        </section>
      )}
    </div>
  )
}

/** A member that is taken back to what it is by itself is null in a change. */
const withNulls = (draft: Draft): Draft =>
  Object.fromEntries(Object.entries(draft).map(([name, value]) => [name, value === undefined ? null : value]))

type SwitchesProps = { readonly schema: Draft; readonly onChange: (name: string, value: boolean) => void }

export function Switches({ schema, onChange }: SwitchesProps) {
  return (
    <div className={styles.checks}>
      {Object.entries(switches).map(([name, { label, isUsual }]) => (
        <Checkbox
          key={name}
          label={label}
          checked={(schema[name] ?? isUsual) === true}
          onChange={({ target }) => onChange(name, target.checked)}
        />
      ))}
    </div>
  )
}

/** The definition as it is stored, to be edited as a whole. */
export function AsJson({ definition: { collectionName, schema }, onChange }: PartProps) {
  const stored = JSON.stringify(declaredOf(schema), null, 2)
  const [text, setText] = useState(stored)
  const result = schemaIn(text)
  const isWhole = !isSystem(collectionName)
  const leaveQuestion = useLeaveQuestion(text !== stored, lost, ['part'])
  return (
    <div className={styles.form}>
      {leaveQuestion}
      <Field
        label="Definition"
        note="JSON"
        hint={isWhole ? 'What you leave out goes, and is named before.' : 'What you leave out stays.'}
        error={'problem' in result ? result.problem : undefined}
      >
        {(attributes) => (
          <TextArea {...attributes} isCode rows={24} value={text} onChange={({ target }) => setText(target.value)} />
        )}
      </Field>
      <div className={styles.tools}>
        <Button
          kind="primary"
          disabled={text === stored || 'problem' in result}
          onClick={() =>
            'schema' in result && onChange(patch(collectionName, result.schema, `Change ${collectionName}`, isWhole))
          }
        >
          Review…
        </Button>
        <Button
          onClick={() => download(`${collectionName}.json`, exported(collectionName, schema), 'application/json')}
        >
          <Download aria-hidden="true" /> Export
        </Button>
      </div>
    </div>
  )
}

/** As an import takes it. */
const exported = (collectionName: string, schema: Schema): string =>
  JSON.stringify(
    { version: '1.0', timestamp: new Date().toISOString(), schemas: [{ collectionName, schema: declaredOf(schema) }] },
    null,
    2,
  )

function schemaIn(text: string): { readonly schema: Draft } | { readonly problem: string } {
  try {
    const value: unknown = JSON.parse(text)
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return { schema: value as Draft }
    return { problem: 'A definition is a JSON object with fields' }
  } catch (error) {
    return { problem: (error as Error).message }
  }
}
