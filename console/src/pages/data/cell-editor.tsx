import { type KeyboardEvent, useEffect, useRef, useState } from 'react'
import type { Catalog, Collection, Field } from '../../app/catalog.ts'
import { useLeaveQuestion } from '../../ui/leaving.tsx'
import { notifyError } from '../../ui/toast.tsx'
import styles from './cell-editor.module.css'
import { type Conflict, conflicting } from './conflict.ts'
import { type Draft, draftValue, hasLines } from './draft.ts'
import { chosenRow, Editor } from './editor.tsx'
import { fieldsToRead, type Row } from './query.ts'
import { attempt, sameValue, textOf } from './values.ts'
import { conflictOf, patchRow, readVersion, type Version } from './writes.ts'

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
  const fields = ['*', ...fieldsToRead(collection, [field], catalog)]
  const version = useVersion(collection.name, id, fields)
  const value = attempt(() => draftValue(field, draft))
  const failed = useRef(false)
  useEffect(() => {
    // A control that was disabled has lost the keyboard.
    if (!isBusy && failed.current) box.current?.querySelector<HTMLElement>('input, select, textarea')?.focus()
  }, [isBusy])
  const before = textOf(field, row[field.name])
  const isLong = hasLines(field, before)
  const isTyped = draft.text !== before || draft.isIncomplete === true
  const leaveQuestion = useLeaveQuestion(
    isTyped && !isBusy,
    `What was typed into ${field.name} is not saved. It is lost.`,
  )

  const save = async (current: Draft) => {
    if (ended.current) return
    const read = attempt(() => draftValue(field, current, row[field.name]))
    if ('error' in read) return
    const isSame = sameValue(read.value, row[field.name]) || current.text === before
    if (isSame) return close()
    ended.current = true
    setBusy(true)
    const change = { [field.name]: read.value }
    try {
      const related =
        field.relation === undefined ? {} : { [field.relation.name]: shownChoice(current, field, catalog) }
      const met = await write({ base: row, mine: change, related })
      if (met === undefined) onSaved({ ...live, ...change, ...related })
      else onConflict(met)
      onClose()
    } catch (error) {
      ended.current = false
      failed.current = true
      setBusy(false)
      notifyError(error)
    }
  }
  /** Writes it, or gives what it is in conflict with. */
  const write = async (meant: Pick<Conflict, 'base' | 'mine' | 'related'>): Promise<Conflict | undefined> => {
    const known = await version()
    // What was stored already when the editing began, but not shown, nobody has seen.
    const unseen = { ...meant, theirs: known.row, etag: known.etag }
    if (conflicting(unseen).length > 0) return unseen
    try {
      await patchRow(collection.name, id, meant.mine, known.etag)
      return undefined
    } catch (error) {
      const met = await conflictOf(error, collection.name, id, meant, fields)
      if (met === undefined) throw error
      return met
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
    <>
      {/* Outside of the box, whose keys would be its own. */}
      {leaveQuestion}
      {/* biome-ignore lint/a11y/noStaticElementInteractions: the keys of the control inside */}
      <div
        ref={box}
        className={styles.editor}
        data-long={isLong}
        aria-busy={isBusy}
        onKeyDown={onKeyDown}
        onDoubleClick={(event) => event.stopPropagation()}
        onBlur={({ relatedTarget }) => {
          // A list of choices is elsewhere in the page, and the question takes the keyboard.
          if (leaveQuestion === null && field.relation === undefined && !box.current?.contains(relatedTarget))
            void save(draft)
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
    </>
  )
}

/** The version of a row as the editing begins. Where reading it fails, the next use reads it again. */
function useVersion(collection: string, id: string, fields: readonly string[]): () => Promise<Version> {
  const reading = useRef<Promise<Version> | undefined>(undefined)
  const version = () => {
    if (reading.current === undefined) {
      const begun = readVersion(collection, id, fields)
      reading.current = begun
      begun.catch(() => {
        if (reading.current === begun) reading.current = undefined
      })
    }
    return reading.current
  }
  useEffect(() => {
    reading.current = undefined
    void version().catch(() => undefined)
  }, [collection, id])
  return version
}

function shownChoice({ choice }: Draft, field: Field, catalog: Catalog): Row | null {
  const target = catalog.get(field.relation?.target ?? '')
  return choice === null || choice === undefined || target === undefined
    ? null
    : { [target.key]: choice.id, [target.titleField]: choice.title }
}
