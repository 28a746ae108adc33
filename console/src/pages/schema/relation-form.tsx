import { useState } from 'react'
import { useCatalog } from '../../app/catalog.ts'
import { Button } from '../../ui/button.tsx'
import { Checkbox, Field, Select, TextField } from '../../ui/field.tsx'
import { FormDrawer } from '../../ui/leaving.tsx'
import { type Entry, isSystem } from './definitions.ts'
import styles from './schema.module.css'

type Kind = 'M2O' | 'O2O' | 'O2M' | 'M2M' | 'M2A'

const kinds: Readonly<Record<Kind, string>> = {
  M2O: 'Many to one: a row here has one there',
  O2M: 'One to many: rows there each have one here',
  O2O: 'One to one',
  M2M: 'Many to many, by a junction',
  M2A: 'Many to any of several collections',
}

/** Of a collection that is about to be made: nothing on the other side can be named yet. */
const inlineKinds: readonly Kind[] = ['M2O', 'O2O', 'M2M']

const actions = ['SET NULL', 'RESTRICT', 'CASCADE', 'NO ACTION']

type NewRelation = {
  readonly name: string
  readonly kind: Kind
  readonly target: string
  readonly isRequired: boolean
  readonly alias: string
  readonly onDelete: string
  readonly description: string
  readonly tables: readonly string[]
}

/** As the route for relationships takes it. */
export function relationshipOf({ name, kind, target, alias, onDelete, description, tables }: NewRelation): Entry {
  return given({
    type: kind,
    name,
    ...(kind === 'M2A' ? { tables } : { target }),
    alias,
    onDelete: kind === 'M2A' ? '' : onDelete,
    description,
  })
}

/** As an entry of a definition has it. */
export function entryOf(
  collection: string,
  { name, kind, target, isRequired, onDelete, description }: NewRelation,
): Entry {
  if (kind === 'M2M') return given({ relType: kind, target, through: `${collection}_${name}`, description })
  return given({ relType: kind, target, ...(isRequired && { allowNull: false }), onDelete, description })
}

const given = (entry: Entry): Entry => Object.fromEntries(Object.entries(entry).filter(([, value]) => value !== ''))

type RelationFormProps = {
  readonly collection: string
  readonly taken: readonly string[]
  /** Whether it is an entry of a new collection. */
  readonly isInline?: boolean
  readonly action: string
  readonly onDone: (relation: NewRelation) => void
  readonly onClose: () => void
}

/** A new relation. */
export function RelationForm({ collection, taken, isInline = false, action, onDone, onClose }: RelationFormProps) {
  const own = [...useCatalog().values()].filter(({ isJunction }) => !isJunction)
  const names = [...new Set([...own.map(({ name }) => name), collection])]
    .filter((name) => name !== '')
    .sort((a, b) => Number(isSystem(a)) - Number(isSystem(b)) || a.localeCompare(b))
  const [initial] = useState<NewRelation>({
    name: '',
    kind: 'M2O',
    target: names.find((name) => name !== collection) ?? collection,
    isRequired: false,
    alias: '',
    onDelete: '',
    description: '',
    tables: [],
  })
  const [relation, setRelation] = useState(initial)
  const { name, kind, target, alias, tables } = relation
  const set = (change: Partial<NewRelation>) => setRelation({ ...relation, ...change })
  const nameError = taken.includes(name.trim()) ? `${collection || 'It'} has a ${name.trim()}` : undefined
  const isWhole = name.trim() !== '' && nameError === undefined && (kind === 'M2A' ? tables.length > 0 : target !== '')
  return (
    <FormDrawer
      isChanged={relation !== initial}
      onClose={onClose}
      title="New relation"
      footer={
        <Button kind="primary" disabled={!isWhole} onClick={() => onDone({ ...relation, name: name.trim() })}>
          {action}
        </Button>
      }
    >
      <div className={styles.form}>
        <TextField
          label="Name"
          hint="As rows show it, such as author."
          error={nameError}
          value={name}
          onChange={({ target }) => set({ name: target.value })}
        />
        <Field label="Kind">
          {(attributes) => (
            <Select
              {...attributes}
              value={kind}
              onChange={({ target }) => set({ kind: target.value as Kind })}
              options={Object.entries(kinds)
                .filter(([value]) => !isInline || inlineKinds.includes(value as Kind))
                .map(([value, label]) => ({ value, label }))}
            />
          )}
        </Field>
        {kind === 'M2A' ? (
          <Targets names={names} chosen={tables} onChange={(tables) => set({ tables })} />
        ) : (
          <Field label="Leads to">
            {(attributes) => (
              <Select
                {...attributes}
                value={target}
                onChange={({ target }) => set({ target: target.value })}
                options={names}
              />
            )}
          </Field>
        )}
        {isInline && kind !== 'M2M' && (
          <Checkbox
            label="Every row has one"
            checked={relation.isRequired}
            onChange={({ target }) => set({ isRequired: target.checked })}
          />
        )}
        {!isInline && (
          <TextField
            label="Name on the other side"
            hint="Adds a relation of this name to the other collection. Leave empty for none."
            value={alias}
            onChange={({ target }) => set({ alias: target.value })}
          />
        )}
        {(kind === 'M2O' || kind === 'O2M' || kind === 'O2O') && (
          <OnDelete value={relation.onDelete} onChange={(onDelete) => set({ onDelete })} />
        )}
        <TextField
          label="Description"
          value={relation.description}
          onChange={({ target }) => set({ description: target.value })}
        />
      </div>
    </FormDrawer>
  )
}

type TargetsProps = {
  readonly names: readonly string[]
  readonly chosen: readonly string[]
  readonly onChange: (chosen: readonly string[]) => void
}

function Targets({ names, chosen, onChange }: TargetsProps) {
  return (
    <fieldset className={styles.choices}>
      <legend>Leads to</legend>
      {names.map((name) => (
        <Checkbox
          key={name}
          label={name}
          checked={chosen.includes(name)}
          onChange={({ target }) =>
            onChange(target.checked ? [...chosen, name] : chosen.filter((other) => other !== name))
          }
        />
      ))}
    </fieldset>
  )
}

function OnDelete({ value, onChange }: { readonly value: string; readonly onChange: (value: string) => void }) {
  return (
    <Field label="When the row it leads to is deleted">
      {(attributes) => (
        <Select
          {...attributes}
          value={value}
          onChange={({ target }) => onChange(target.value)}
          options={[{ value: '', label: 'as usual' }, ...actions]}
        />
      )}
    </Field>
  )
}

const textOf = (value: unknown): string => (typeof value === 'string' ? value : '')

type RelationChangeProps = {
  readonly title: string
  readonly entry: Entry
  readonly onDone: (body: Entry) => void
  readonly onClose: () => void
}

/** The members of an existing relation that can be changed; its ends cannot. */
export function RelationChange({ title, entry, onDone, onClose }: RelationChangeProps) {
  const before = { description: textOf(entry.description), onDelete: textOf(entry.onDelete) }
  const [description, setDescription] = useState(before.description)
  const [onDelete, setOnDelete] = useState(before.onDelete)
  const [alias, setAlias] = useState('')
  return (
    <FormDrawer
      isChanged={description !== before.description || onDelete !== before.onDelete || alias !== ''}
      onClose={onClose}
      title={title}
      description="Where it leads cannot be changed: remove it and add another."
      footer={
        <Button kind="primary" onClick={() => onDone(given({ description, onDelete, alias }))}>
          Review…
        </Button>
      }
    >
      <div className={styles.form}>
        <OnDelete value={onDelete} onChange={setOnDelete} />
        <TextField
          label="New name on the other side"
          hint="Empty leaves it as it is."
          value={alias}
          onChange={({ target }) => setAlias(target.value)}
        />
        <TextField label="Description" value={description} onChange={({ target }) => setDescription(target.value)} />
      </div>
    </FormDrawer>
  )
}
