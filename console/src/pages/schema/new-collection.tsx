import { Link, useNavigate } from '@tanstack/react-router'
import { Plus, Trash2 } from 'lucide-react'
import { useState } from 'react'
import { Page } from '../../shell/page.tsx'
import { Button, IconButton } from '../../ui/button.tsx'
import { Field, Select, TextField } from '../../ui/field.tsx'
import { useLeaveQuestion } from '../../ui/leaving.tsx'
import { Table } from '../../ui/table.tsx'
import { type Change, creation } from './changes.ts'
import { type Entry, isRelation, type Schema } from './definitions.ts'
import { Marks, typeInWords } from './entries.tsx'
import { FieldForm } from './field-form.tsx'
import { entryOf, RelationForm } from './relation-form.tsx'
import { Review } from './review.tsx'
import styles from './schema.module.css'
import { Switches } from './settings.tsx'

/** Keys that the server makes, or people type. */
const keys: Readonly<Record<string, { readonly label: string; readonly entry?: Entry }>> = {
  uuid: { label: 'A UUID' },
  number: {
    label: 'Numbers that count up',
    entry: { type: 'Integer', primaryKey: true, defaultValue: { type: 'AUTOINCREMENT' } },
  },
  text: { label: 'A text that people choose', entry: { type: 'String', primaryKey: true } },
}

/** A collection with its first fields and relations, made at once. */
export function NewCollection() {
  const navigate = useNavigate()
  const [name, setName] = useState('')
  const [label, setLabel] = useState('')
  const [key, setKey] = useState('uuid')
  const [settings, setSettings] = useState<Readonly<Record<string, boolean>>>({})
  const [entries, setEntries] = useState<Readonly<Record<string, Entry>>>({})
  const [adding, setAdding] = useState<'field' | 'relation'>()
  const [change, setChange] = useState<Change>()
  const isChanged =
    name !== '' || label !== '' || key !== 'uuid' || [...Object.keys(settings), ...Object.keys(entries)].length > 0
  const leaveQuestion = useLeaveQuestion(
    isChanged,
    'The new collection is not made yet. What was entered is lost.',
    'all',
  )
  const keyEntry = keys[key]!.entry
  const schema: Schema = {
    ...(label.trim() !== '' && { name: label.trim() }),
    ...settings,
    fields: { ...(keyEntry !== undefined && { id: keyEntry }), ...entries },
  }
  const add = (entry: string, json: Entry) => {
    setEntries({ ...entries, [entry]: json })
    setAdding(undefined)
  }
  const taken = ['id', ...Object.keys(entries)]
  return (
    <Page title="New collection" crumbs={<Link to="/schema">Schema</Link>}>
      <div className={styles.settings}>
        <div className={styles.form}>
          <div className={styles.pair}>
            <TextField
              label="Name"
              hint="Letters, digits and _; the table and the addresses have it too."
              value={name}
              onChange={({ target }) => setName(target.value)}
            />
            <TextField
              label="Name for people"
              hint="Empty for the same."
              value={label}
              onChange={({ target }) => setLabel(target.value)}
            />
          </div>
          <Field label="Key of a row">
            {(attributes) => (
              <Select
                {...attributes}
                value={key}
                onChange={({ target }) => setKey(target.value)}
                options={Object.entries(keys).map(([value, one]) => ({ value, label: one.label }))}
              />
            )}
          </Field>
          <Switches schema={settings} onChange={(one, value) => setSettings({ ...settings, [one]: value })} />
        </div>
        <Entries
          entries={entries}
          onAdd={setAdding}
          onRemove={(gone) => setEntries(Object.fromEntries(Object.entries(entries).filter(([one]) => one !== gone)))}
        />
        <div className={styles.tools}>
          <Button kind="primary" disabled={name.trim() === ''} onClick={() => setChange(creation(name.trim(), schema))}>
            Review…
          </Button>
        </div>
      </div>
      {adding === 'field' && (
        <FieldForm
          collection={name.trim() || 'the collection'}
          taken={taken}
          action="Add"
          onDone={add}
          onClose={() => setAdding(undefined)}
        />
      )}
      {adding === 'relation' && (
        <RelationForm
          collection={name.trim()}
          taken={taken}
          isInline
          action="Add"
          onDone={(relation) => add(relation.name, entryOf(name.trim(), relation))}
          onClose={() => setAdding(undefined)}
        />
      )}
      {leaveQuestion}
      {change !== undefined && (
        <Review
          change={change}
          onClose={() => setChange(undefined)}
          onDone={() =>
            void navigate({ to: '/schema/$collection', params: { collection: name.trim() }, ignoreBlocker: true })
          }
        />
      )}
    </Page>
  )
}

type EntriesProps = {
  readonly entries: Readonly<Record<string, Entry>>
  readonly onAdd: (what: 'field' | 'relation') => void
  readonly onRemove: (name: string) => void
}

function Entries({ entries, onAdd, onRemove }: EntriesProps) {
  const rows = Object.entries(entries)
  return (
    <section className={styles.part} aria-label="Fields and relations">
      <h2>Fields and relations</h2>
      {rows.length > 0 && (
        <Table
          label="Fields and relations of the new collection"
          rows={rows}
          keyOf={([name]) => name}
          columns={[
            { title: 'Name', cell: ([name]) => <code>{name}</code> },
            {
              title: 'Type',
              cell: ([, entry]) => (isRelation(entry) ? `leads to ${String(entry.target)}` : typeInWords(entry)),
            },
            { title: 'Rules', cell: ([, entry]) => <Marks entry={entry} /> },
            {
              title: <span className="visually-hidden">Change</span>,
              cell: ([name]) => (
                <IconButton size="s" label={`Leave out ${name}`} onClick={() => onRemove(name)}>
                  <Trash2 aria-hidden="true" />
                </IconButton>
              ),
            },
          ]}
        />
      )}
      <div className={styles.tools}>
        <Button onClick={() => onAdd('field')}>
          <Plus aria-hidden="true" /> Add a field
        </Button>
        <Button onClick={() => onAdd('relation')}>
          <Plus aria-hidden="true" /> Add a relation
        </Button>
      </div>
    </section>
  )
}
