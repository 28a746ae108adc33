import { type KeyboardEvent, useEffect, useRef, useState } from 'react'
import type { Catalog, Collection, Field } from '../../app/catalog.ts'
import { notifyError } from '../../ui/toast.tsx'
import styles from './cell-editor.module.css'
import { chosenRow, type Draft, Editor } from './editor.tsx'
import type { Conflict } from './merge.tsx'
import type { Row } from './query.ts'
import { attempt, isStructured, parseValue, sameValue, textOf } from './values.ts'
import { conflictOf, patchRow, readVersion } from './writes.ts'

type CellEditorProps = {
  readonly collection: Collection
  readonly catalog: Catalog
  readonly field: Field
  readonly row: Row
  readonly onClose: () => void
  readonly onSaved: (row: Row) => void
  readonly onConflict: (conflict: Conflict) => void
}

/** Edits a cell where it stands. Enter saves, Escape does not; what somebody else wrote meanwhile is not overwritten. */
export function CellEditor({ collection, catalog, field, row: live, onClose, onSaved, onConflict }: CellEditorProps) {
  // As it was when the editing began: the grid's own row changes as others write.
  const [row] = useState(live)
  const [draft, setDraft] = useState<Draft>({
    text: textOf(field, row[field.name]),
    choice: chosenRow(field, row, catalog),
  })
  const [isBusy, setBusy] = useState(false)
  const box = useRef<HTMLDivElement>(null)
  const ended = useRef(false)
  const id = String(row[collection.key])
  const version = useRef<ReturnType<typeof readVersion> | undefined>(undefined)
  useEffect(() => {
    version.current = readVersion(collection.name, id)
    version.current.catch(() => undefined)
  }, [collection.name, id])
  const value = attempt(() => parseValue(field, draft.text))
  const isLong = field.kind === 'long text' || isStructured(field)

  const save = async (current: Draft) => {
    if (ended.current) return
    const read = attempt(() => parseValue(field, current.text))
    if ('error' in read) return
    const isSame = sameValue(read.value, row[field.name]) || current.text === textOf(field, row[field.name])
    if (isSame) return close()
    ended.current = true
    setBusy(true)
    const change = { [field.name]: read.value }
    try {
      const known = await version.current
      await patchRow(collection.name, id, change, known?.etag)
      onSaved({
        ...live,
        ...change,
        ...(field.relation !== undefined && { [field.relation.name]: shownChoice(current, field, catalog) }),
      })
      onClose()
    } catch (error) {
      const met = await conflictOf(error, collection.name, id, { base: row, mine: change })
      if (met !== undefined) {
        onConflict(met)
        return onClose()
      }
      ended.current = false
      setBusy(false)
      notifyError(error)
    }
  }
  const close = () => {
    ended.current = true
    onClose()
  }
  const onKeyDown = (event: KeyboardEvent) => {
    event.stopPropagation()
    if (event.key === 'Escape') close()
    else if (event.key === 'Enter' && field.relation === undefined && (!isLong || event.ctrlKey || event.metaKey)) {
      event.preventDefault()
      void save(draft)
    }
  }
  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: the keys of the control inside
    <div
      ref={box}
      className={styles.editor}
      data-long={isLong}
      aria-busy={isBusy}
      onKeyDown={onKeyDown}
      onDoubleClick={(event) => event.stopPropagation()}
      onBlur={({ relatedTarget }) => {
        // A list of choices is elsewhere in the page.
        if (field.relation === undefined && !box.current?.contains(relatedTarget)) void save(draft)
      }}
    >
      <Editor
        field={field}
        draft={draft}
        onChange={(next) => {
          setDraft(next)
          if (next.choice !== undefined) void save(next)
        }}
        attributes={{ 'aria-label': field.name, 'aria-invalid': 'error' in value ? true : undefined }}
        isDisabled={isBusy}
        autoFocus
      />
      {'error' in value && <p role="alert">{value.error.message}</p>}
      {isLong && (
        <p className={styles.hint}>{field.element !== undefined && 'One per line. '}Ctrl Enter saves, Esc does not</p>
      )}
    </div>
  )
}

function shownChoice({ choice }: Draft, field: Field, catalog: Catalog): Row | null {
  const target = catalog.get(field.relation?.target ?? '')
  return choice === null || choice === undefined || target === undefined
    ? null
    : { [target.key]: choice.id, [target.titleField]: choice.title }
}
