import { Combobox } from '@base-ui/react/combobox'
import { keepPreviousData, useQuery } from '@tanstack/react-query'
import { X } from 'lucide-react'
import { useDeferredValue, useState } from 'react'
import { type Collection, useCollection } from '../../app/catalog.ts'
import { client } from '../../app/client.ts'
import { Button } from '../../ui/button.tsx'
import field from '../../ui/field.module.css'
import type { FieldAttributes } from '../../ui/field.tsx'
import overlay from '../../ui/overlay.module.css'
import type { Choice } from './draft.ts'
import type { Row } from './query.ts'
import styles from './relation-picker.module.css'
import { FileImage } from './value.tsx'

type PickerProps = {
  readonly collection: string
  /** Of the field around it; without one it is named by its label. */
  readonly attributes?: Partial<FieldAttributes>
  readonly label: string
  readonly value: Choice | null
  readonly onChange: (choice: Choice | null) => void
  readonly autoFocus?: boolean
}

/** Chooses a row of a collection by what people call it. */
export function RelationPicker({ collection: name, attributes = {}, label, value, onChange, autoFocus }: PickerProps) {
  const [text, setText] = useState('')
  const [isOpen, setOpen] = useState(autoFocus === true)
  const target = useCollection(name)
  const asked = useDeferredValue(text === value?.title ? '' : text.trim())
  const { data = [], isFetching } = useQuery({
    queryKey: ['choices', name, asked],
    queryFn: ({ signal }) => readChoices(target!, asked, signal),
    enabled: isOpen && target !== undefined,
    placeholderData: keepPreviousData,
  })
  return (
    <Combobox.Root
      items={data}
      filter={null}
      value={value}
      open={isOpen}
      onOpenChange={(open) => setOpen(open)}
      onInputValueChange={setText}
      onValueChange={(choice: Choice | null) => onChange(choice)}
      itemToStringLabel={({ title }: Choice) => title}
      isItemEqualToValue={(a: Choice, b: Choice) => a.id === b.id}
    >
      <div className={styles.group}>
        <Combobox.Input
          {...attributes}
          aria-label={attributes.id === undefined ? label : undefined}
          className={field.input}
          placeholder={`Choose ${target?.label ?? name}`}
          autoFocus={autoFocus}
        />
        <Combobox.Clear className={styles.clear} aria-label={`Clear ${label}`}>
          <X size={14} aria-hidden="true" />
        </Combobox.Clear>
      </div>
      <Combobox.Portal>
        <Combobox.Positioner className={overlay.positioner} sideOffset={4}>
          <Combobox.Popup className={overlay.menu} aria-label={label}>
            <Combobox.Empty className={styles.none}>{isFetching ? 'Looking…' : 'Nothing found'}</Combobox.Empty>
            <Combobox.List className={styles.list}>
              {(choice: Choice) => (
                <Combobox.Item key={String(choice.id)} value={choice} className={overlay.menuItem}>
                  {choice.title}
                </Combobox.Item>
              )}
            </Combobox.List>
          </Combobox.Popup>
        </Combobox.Positioner>
      </Combobox.Portal>
    </Combobox.Root>
  )
}

type ManyProps = {
  readonly collection: string
  readonly attributes?: FieldAttributes
  readonly label: string
  readonly values: readonly Choice[]
  readonly onChange: (choices: readonly Choice[]) => void
}

/** Rows that are linked are shown by so many. */
const chipsShown = 100

/** Chooses any number of rows of a collection: what is linked. */
export function RelationsPicker({ collection, attributes, label, values, onChange }: ManyProps) {
  const [turn, setTurn] = useState(0)
  const [most, setMost] = useState(chipsShown)
  // What was linked since is last, and in view.
  const [known] = useState(() => new Set(values.map(({ id }) => id)))
  const old = values.filter(({ id }) => known.has(id))
  const shown = [...old.slice(0, most), ...values.filter(({ id }) => !known.has(id))]
  return (
    <div className={styles.picker}>
      {shown.length > 0 && (
        <div className={styles.chips}>
          {shown.map((choice) => (
            <span key={String(choice.id)} className={styles.chip}>
              {collection === 'svc_File' && <FileImage id={String(choice.id)} />}
              {choice.title}
              <button
                type="button"
                aria-label={`Remove ${choice.title}`}
                onClick={() => onChange(values.filter(({ id: other }) => other !== choice.id))}
              >
                <X size={12} aria-hidden="true" />
              </button>
            </span>
          ))}
        </div>
      )}
      {shown.length < values.length && (
        <div>
          <small>
            {shown.length.toLocaleString()} of {values.length.toLocaleString()}
          </small>{' '}
          <Button size="s" aria-label={`More of ${label}`} onClick={() => setMost(most + chipsShown)}>
            More
          </Button>
        </div>
      )}
      <RelationPicker
        // Made anew after each choice, so that its text is empty for the next one.
        key={turn}
        collection={collection}
        {...(attributes !== undefined && { attributes })}
        label={`Add to ${label}`}
        value={null}
        onChange={(choice) => {
          if (choice === null) return
          setTurn(turn + 1)
          if (values.every(({ id: other }) => other !== choice.id)) onChange([...values, choice])
        }}
      />
    </div>
  )
}

export const choiceOf = ({ key, titleField }: Collection, row: Row): Choice => ({
  id: row[key] as string | number,
  title: String(row[titleField] ?? row[key]),
})

/** Whether somebody has put in the key of a row, as they have copied it from elsewhere. */
function isKey({ key, fields }: Collection, text: string): boolean {
  const kind = fields.find(({ name }) => name === key)?.kind
  return kind === 'uuid' && /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i.test(text)
}

async function readChoices(collection: Collection, text: string, signal: AbortSignal): Promise<readonly Choice[]> {
  const { key, titleField } = collection
  const isText = collection.fields.some(({ name, kind }) => name === titleField && /text|enum/.test(kind))
  const { data } = await client.items(collection.name).list({
    fields: [...new Set([key, titleField])],
    ...(text !== '' && isKey(collection, text)
      ? { filter: { [key]: text } }
      : text !== '' && (isText ? { filter: { [titleField]: { iLike: text } } } : { search: text })),
    sort: [titleField],
    limit: 20,
    count: false,
    signal,
  })
  return data.map((row) => choiceOf(collection, row))
}
