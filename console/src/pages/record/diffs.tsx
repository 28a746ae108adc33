import { RotateCcw } from 'lucide-react'
import type { Collection } from '../../app/catalog.ts'
import { IconButton } from '../../ui/button.tsx'
import { sameValue, shortText } from '../data/values.ts'
import type { HistoryEntry } from './history.ts'
import type { Wanted } from './restore.tsx'
import styles from './timeline.module.css'

type DiffsProps = {
  readonly entry: HistoryEntry
  readonly collection: Collection
  /** Brings one field back; undefined where that makes no sense. */
  readonly onWant: ((wanted: Wanted) => void) | undefined
}

const silent = new Set(['updatedAt', 'userUpdated_Id', 'createdAt', 'userCreated_Id'])

/** The change of each field. */
export function Diffs({ entry, collection, onWant }: DiffsProps) {
  const { changes, action } = entry
  const fieldNamed = (name: string) => collection.fields.find((field) => field.name === name)
  const diffs = Object.entries(changes ?? {})
    .filter(([name, { before, after }]) => !silent.has(name) && name !== collection.key && !sameValue(before, after))
    .sort(([a], [b]) => placeOf(collection, a) - placeOf(collection, b))
  if (diffs.length === 0) return null
  return (
    <ul className={styles.diffs}>
      {diffs.map(([name, { before, after }]) => {
        const field = fieldNamed(name)
        const text = (value: unknown) => clipped(shortText(field ?? { kind: 'text' }, value))
        return (
          <li key={name} className={styles.diff}>
            <span className={styles.field}>{name}</span>
            <span className={styles.values}>
              {action !== 'create' && <del className={styles.before}>{text(before)}</del>}{' '}
              {action !== 'delete' && <ins className={styles.after}>{text(after)}</ins>}
            </span>
            {action === 'update' && field !== undefined && field.isChangeable && onWant !== undefined && (
              <IconButton
                label={`Bring ${name} back`}
                size="s"
                onClick={() => onWant({ field: name, value: before, entry })}
              >
                <RotateCcw />
              </IconButton>
            )}
          </li>
        )
      })}
    </ul>
  )
}

const placeOf = ({ fields }: Collection, name: string) => fields.findIndex((field) => field.name === name)

const clipped = (text: string) => (text.length > 160 ? `${text.slice(0, 160)}…` : text)
