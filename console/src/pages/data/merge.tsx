import { useState } from 'react'
import { type Field, useCatalog } from '../../app/catalog.ts'
import { FormDialog } from '../../ui/leaving.tsx'
import { type Conflict, conflicting } from './conflict.ts'
import styles from './merge.module.css'
import type { Row } from './query.ts'
import { titleOf } from './value.tsx'
import { shortText } from './values.ts'

type MergeProps = {
  /** Those whose values are not shown as plain text. */
  readonly fields?: readonly Pick<Field, 'name' | 'kind' | 'relation'>[]
  readonly conflict: Conflict
  /** One's own change is nowhere else. */
  readonly isEntered?: boolean
  readonly onClose: () => void
  readonly onMerged: (change: Row, etag: string | undefined) => Promise<void>
}

/** Shows both changes of a row, and has somebody choose field by field. */
export function Merge({ fields = [], conflict, isEntered = false, onClose, onMerged }: MergeProps) {
  const disputed = conflicting(conflict)
  const [kept, setKept] = useState<ReadonlySet<string>>(new Set(disputed))
  const catalog = useCatalog()
  const textOf = (name: string, row: Row) => {
    const field = fields.find((one) => one.name === name)
    const { relation } = field ?? {}
    const title = relation && row[name] !== null && titleOf(row[relation.name], catalog, relation.target)
    return title || shortText(field ?? { kind: 'text' }, row[name])
  }
  const merge = () => {
    const change = Object.entries(conflict.mine).filter(([name]) => !disputed.includes(name) || kept.has(name))
    return onMerged(Object.fromEntries(change), conflict.etag)
  }
  const choose = (name: string, isMine: boolean) => {
    const next = new Set(kept)
    if (isMine) next.add(name)
    else next.delete(name)
    setKept(next)
  }
  return (
    <FormDialog
      isEntered={isEntered}
      onClose={onClose}
      size="l"
      title="Somebody else has changed this meanwhile"
      description={
        disputed.length === 0
          ? 'They changed other fields: both changes fit together.'
          : 'Choose what each field shall be. Fields that only one of you changed keep that change.'
      }
      action="Save the result"
      onConfirm={merge}
    >
      {disputed.map((name) => (
        <fieldset key={name} className={styles.choice}>
          <legend>{name}</legend>
          {[
            { title: 'Yours', isMine: true, row: { ...conflict.mine, ...conflict.related } },
            { title: 'Theirs', isMine: false, row: conflict.theirs },
          ].map(({ title, isMine, row }) => (
            <label key={title}>
              <input
                type="radio"
                name={name}
                checked={kept.has(name) === isMine}
                onChange={() => choose(name, isMine)}
              />
              <span>
                <small>{title}</small>
                {textOf(name, row)}
              </span>
            </label>
          ))}
          <p>
            <small>It was</small> {textOf(name, conflict.base)}
          </p>
        </fieldset>
      ))}
    </FormDialog>
  )
}
