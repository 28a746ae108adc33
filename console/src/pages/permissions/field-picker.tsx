import { Plus, X } from 'lucide-react'
import { type FormEvent, useId, useState } from 'react'
import { type Collection, type Field, useCatalog } from '../../app/catalog.ts'
import { Button, IconButton } from '../../ui/button.tsx'
import { Checkbox, Input } from '../../ui/field.tsx'
import {
  actingEntries,
  furtherEntries,
  isInAll,
  isKnownEntry,
  isOpen,
  isSilent,
  throughRelations,
  type Use,
  withAll,
  withField,
} from './fields.ts'
import styles from './permissions.module.css'

type FieldPickerProps = {
  readonly collection: Collection
  readonly use: Use
  /** As they are stored; nothing is said of them until something is touched. */
  readonly initial: unknown
  /** Undefined while the choice cannot be stored. */
  readonly onChange: (fields: readonly string[] | null | undefined) => void
}

/** The fields that a rule opens: all, one by one, all but some, and those of related rows. */
export function FieldPicker({ collection, use, initial, onChange }: FieldPickerProps) {
  const [entries, setEntries] = useState(() => actingEntries(initial, use))
  const [wanted, setWanted] = useState('')
  const change = (next: readonly string[]) => {
    setEntries(next)
    onChange(use === 'read' && isSilent(next) ? undefined : next.length === 0 ? null : next)
  }
  const isAlwaysShown = ({ isKey, name }: Field) => use === 'read' && isKey && !entries.includes(`-${name}`)
  const shown = collection.fields
    .filter((field) => use === 'create' || use === 'update' || !field.isHidden || entries.includes(field.name))
    .filter(({ name }) => name.toLowerCase().includes(wanted.trim().toLowerCase()))
  return (
    <fieldset className={styles.fields}>
      <legend>Fields</legend>
      <div className={styles.every}>
        <Checkbox
          label="Every field"
          checked={entries.includes('*')}
          onChange={({ target }) => change(withAll(entries, target.checked))}
        />
        {collection.fields.length > 12 && (
          <Input
            size="s"
            type="search"
            aria-label="Find a field"
            placeholder="Find a field"
            value={wanted}
            onChange={({ target }) => setWanted(target.value)}
          />
        )}
      </div>
      <div className={styles.choices}>
        {shown.map((field) => (
          <Checkbox
            key={field.name}
            label={
              <>
                {field.name}
                {entries.includes('*') && !isInAll(field, use) && <small> only by its name</small>}
              </>
            }
            // Every reader of an item sees its key.
            disabled={isAlwaysShown(field)}
            checked={isAlwaysShown(field) || isOpen(entries, field, use)}
            onChange={({ target }) => change(withField(entries, field, target.checked, use))}
          />
        ))}
      </div>
      <Saying entries={entries} use={use} />
      <Further collection={collection} entries={entries} use={use} onChange={change} />
    </fieldset>
  )
}

type EntriesProps = { readonly entries: readonly string[]; readonly use: Use }

/** The effects of the choice that may surprise. */
function Saying({ entries, use }: EntriesProps) {
  if (!isSilent(entries)) return null
  if (use === 'read')
    return (
      <p className={styles.wrong} role="alert">
        Choose a field. Who reads and is given none sees every field; to show nothing, take the permission away.
      </p>
    )
  if (use === 'any')
    return (
      <p className={styles.hint}>
        {entries.length === 0
          ? 'Nothing is said of fields: who reads sees all, who writes may set none.'
          : 'Fields are only taken away: who reads sees all others, who writes may set none.'}
      </p>
    )
  return <p className={styles.hint}>No field can be set but those that the server fills in.</p>
}

type FurtherProps = EntriesProps & {
  readonly collection: Collection
  readonly onChange: (entries: readonly string[]) => void
}

/** The entries that have no checkbox. */
function Further({ collection, entries, use, onChange }: FurtherProps) {
  const catalog = useCatalog()
  const list = useId()
  const [text, setText] = useState('')
  const name = text.trim()
  const add = (event: FormEvent) => {
    event.preventDefault()
    event.stopPropagation()
    if (name === '') return
    onChange(
      [...entries.filter((entry) => entry !== name), ...name.split(',').map((one) => one.trim())].filter(Boolean),
    )
    setText('')
  }
  const further = furtherEntries(entries, collection)
  return (
    <div className={styles.further}>
      {further.length > 0 && (
        <ul aria-label="Without, and through relations">
          {further.map((entry) => (
            <li key={entry} className={styles.entry}>
              <code>{entry}</code>
              {!isKnownEntry(entry, collection) && <small>not there yet</small>}
              <IconButton
                size="s"
                label={`Remove ${entry}`}
                onClick={() => onChange(entries.filter((one) => one !== entry))}
              >
                <X />
              </IconButton>
            </li>
          ))}
        </ul>
      )}
      <form className={styles.add} onSubmit={add}>
        <Input
          size="s"
          list={list}
          aria-label="Through a relation"
          placeholder={use === 'read' || use === 'any' ? 'author.name, members.*' : 'author'}
          value={text}
          onChange={({ target }) => setText(target.value)}
        />
        <datalist id={list}>
          {throughRelations(collection, catalog).map((entry) => (
            <option key={entry} value={entry} />
          ))}
        </datalist>
        <Button size="s" type="submit" disabled={name === ''}>
          <Plus aria-hidden="true" /> Through a relation
        </Button>
      </form>
    </div>
  )
}
