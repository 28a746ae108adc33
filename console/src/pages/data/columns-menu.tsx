import { Columns3 } from 'lucide-react'
import type { Collection } from '../../app/catalog.ts'
import { Button } from '../../ui/button.tsx'
import { Checkbox } from '../../ui/field.tsx'
import { Popover } from '../../ui/menu.tsx'
import styles from './collection.module.css'
import { columnsOf, type ListSearch } from './query.ts'

type ColumnsMenuProps = {
  readonly collection: Collection
  readonly search: ListSearch
  readonly onChange: (next: Partial<ListSearch>) => void
}

/** Chooses the columns that are shown. */
export function ColumnsMenu({ collection, search, onChange }: ColumnsMenuProps) {
  const all = collection.fields.filter(({ isHidden }) => !isHidden).map(({ name }) => name)
  const shown = columnsOf(collection, search).map(({ name }) => name)
  const toggle = (name: string) => {
    const next = shown.includes(name)
      ? shown.filter((one) => one !== name)
      : all.filter((one) => one === name || shown.includes(one))
    if (next.length > 0) onChange({ columns: next.length === all.length ? undefined : next.join(',') })
  }
  return (
    <Popover
      title="Columns"
      trigger={
        <Button size="s" aria-pressed={search.columns !== undefined}>
          <Columns3 aria-hidden="true" /> Columns
        </Button>
      }
    >
      <div className={styles.columns}>
        {all.map((name) => (
          <Checkbox key={name} label={name} checked={shown.includes(name)} onChange={() => toggle(name)} />
        ))}
        <Button size="s" onClick={() => onChange({ columns: undefined })}>
          Show all
        </Button>
      </div>
    </Popover>
  )
}
