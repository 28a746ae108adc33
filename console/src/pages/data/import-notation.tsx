import type { Collection, FieldKind } from '../../app/catalog.ts'
import { Field, Select } from '../../ui/field.tsx'
import type { Notation } from './import-run.ts'

const browserZone = () => Intl.DateTimeFormat().resolvedOptions().timeZone

/** Until somebody chooses: times are of the browser's zone, as everywhere in the console. */
export const usualNotation = (): Notation => ({ timezone: browserZone(), decimal: '.', dateFormat: 'YYYY-MM-DD' })

const decimals = [
  { value: '.', label: '1234.5' },
  { value: ',', label: '1234,5 or 1.234,5' },
]
const dateFormats = [
  { value: 'YYYY-MM-DD', label: '2026-01-31' },
  { value: 'YYYY/MM/DD', label: '2026/01/31' },
  { value: 'DD.MM.YYYY', label: '31.01.2026' },
  { value: 'DD/MM/YYYY', label: '31/01/2026' },
  { value: 'DD-MM-YYYY', label: '31-01-2026' },
  { value: 'MM/DD/YYYY', label: '01/31/2026' },
]

type ChoicesProps = {
  readonly collection: Collection
  /** The fields and relations that the file fills. */
  readonly used: readonly string[]
  readonly notation: Notation
  readonly isFixed: boolean
  readonly onChange: (notation: Notation) => void
}

/** How the file writes numbers, dates and times, where it has some; ranges and rows of a relation may have any of them. */
export function NotationChoices({ collection, used, notation, isFixed, onChange }: ChoicesProps) {
  const kinds = collection.fields.flatMap(({ name, kind, element }) => (used.includes(name) ? [element ?? kind] : []))
  const hasAny = kinds.includes('range') || collection.relations.some(({ name }) => used.includes(name))
  const has = (...some: readonly FieldKind[]) => hasAny || some.some((kind) => kinds.includes(kind))
  const choice = (
    parameter: keyof Notation,
    label: string,
    options: Parameters<typeof Select>[0]['options'],
    hint: string,
  ) => (
    <Field label={label} hint={hint}>
      {(attributes) => (
        <Select
          {...attributes}
          value={notation[parameter]}
          disabled={isFixed}
          options={options}
          onChange={({ target }) => onChange({ ...notation, [parameter]: target.value })}
        />
      )}
    </Field>
  )
  return (
    <>
      {has('integer', 'decimal', 'float') && choice('decimal', 'Numbers', decimals, 'As the file writes them.')}
      {has('date', 'datetime', 'datetime without zone') &&
        choice('dateFormat', 'Dates', dateFormats, 'A time of 24 hours may follow.')}
      {has('datetime') &&
        choice(
          'timezone',
          'Times without an offset',
          [...new Set([browserZone(), 'UTC'])],
          'Times with one, as in 2026-01-31T09:00+01:00 or with a Z, need no zone.',
        )}
    </>
  )
}
