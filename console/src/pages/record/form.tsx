import { type FormEvent, Suspense, useState } from 'react'
import type { Catalog, Collection, Field as FieldOf, Relation } from '../../app/catalog.ts'
import { lazyComponent } from '../../app/lazy.ts'
import { type FoundEditor, useEditors } from '../../extensions/extensions.ts'
import { Button } from '../../ui/button.tsx'
import { Field, type FieldAttributes } from '../../ui/field.tsx'
import { useLeaveQuestion } from '../../ui/leaving.tsx'
import { useRefusal } from '../../ui/refusal.ts'
import { bar } from '../../ui/room.ts'
import { Loading, Problem } from '../../ui/states.tsx'
import type { Conflict } from '../data/conflict.ts'
import { type Choice, type Draft, mayBeNone, noValue } from '../data/draft.ts'
import { chosenRow, Editor, noteOf, relatedOf } from '../data/editor.tsx'
import { Merge } from '../data/merge.tsx'
import { fieldsOfRecord, type Row } from '../data/query.ts'
import { choiceOf, RelationsPicker } from '../data/relation-picker.tsx'
import { Upload } from '../data/upload.tsx'
import { Value } from '../data/value.tsx'
import { textOf } from '../data/values.ts'
import { conflictOf, patchRow, typedSince, useBegun, type Version } from '../data/writes.ts'
import { chosenLinks, type Drafts, errorsOf, type Links, linksToWrite, valuesOf } from './drafts.ts'
import { writeLinkRows } from './link-rows.ts'
import styles from './record.module.css'

const FieldEditor = lazyComponent(() => import('../../extensions/field-editor.tsx'), 'FieldEditor')

type FormProps = {
  readonly catalog: Catalog
  readonly collection: Collection
  /** Without one it is made by `onCreate`. */
  readonly row?: Row
  readonly etag?: string | undefined
  /** Of the past: shown, not changed. */
  readonly isFixed?: boolean
  /** Gives the record as it is now. */
  readonly onSaved?: () => Promise<Version | undefined>
  readonly onCreate?: (row: Row) => Promise<void>
}

/** The fields of a record. Only what was changed is sent, and only where nobody else has changed it meanwhile. */
export function RecordForm({
  catalog,
  collection,
  row: live = {},
  etag: liveEtag,
  isFixed = false,
  onSaved,
  onCreate,
}: FormProps) {
  const [drafts, setDrafts] = useState<Drafts>({})
  const [links, setLinks] = useState<Links>({})
  const count = Object.keys(drafts).length + Object.keys(links).length
  const { row, etag, begin, beginAt } = useBegun({ row: live, etag: liveEtag }, count > 0)
  const [isBusy, setBusy] = useState(false)
  const [conflict, setConflict] = useState<Conflict>()
  const shown = collection.fields.filter(({ isHidden }) => !isHidden)
  const isNew = onCreate !== undefined
  const editable = isFixed
    ? []
    : shown
        .filter((field) => (isNew ? field.isCreatable : field.isChangeable))
        // The server makes a UUID: the last thing that somebody would want to write.
        .sort((a, b) => Number(isMade(a)) - Number(isMade(b)))
  const fixed = shown.filter((field) => !editable.includes(field))
  const junctions = collection.relations.filter(
    ({ kind, reads, isCreatable, isChangeable }) =>
      kind === 'links' && reads(collection.key) && (isNew ? isCreatable : isChangeable || isFixed),
  )
  const errors = errorsOf(editable, drafts)
  const names = [...editable, ...junctions].map(({ name }) => name)
  const refusal = useRefusal<HTMLFormElement>(names)
  const id = String(row[collection.key])
  const linked = () =>
    linksToWrite(
      chosenLinks(junctions, links, catalog),
      isNew ? undefined : { name: collection.name, id, row },
      catalog,
    )
  const write = async (change: Row, version: string | undefined) => {
    const { lists, rows } = await linked()
    const all = { ...change, ...lists }
    if (Object.keys(all).length > 0) await patchRow(collection.name, id, all, version)
    for (const one of rows) await writeLinkRows(one)
  }
  /** Writes it, or gives what it is in conflict with. */
  const writeOrMeet = async (change: Row): Promise<Conflict | undefined> => {
    try {
      await write(change, etag)
      return undefined
    } catch (failure) {
      const meant = { base: row, mine: change, related: relatedOf(drafts, editable, catalog) }
      const met = await conflictOf(failure, collection.name, id, meant, fieldsOfRecord(collection, catalog))
      if (met === undefined) throw failure
      return met
    }
  }
  const editors = useEditors()
  const leaveQuestion = useLeaveQuestion(count > 0, 'The record has changes that are not saved. They are lost.', [
    'asOf',
  ])
  // What is typed while it is saved stays, as a change of what was saved.
  const settle = async (sent: { readonly drafts: Drafts; readonly links: Links }) => {
    setDrafts((typed) => typedSince(typed, sent.drafts))
    setLinks((chosen) => typedSince(chosen, sent.links))
    const now = await onSaved?.()
    if (now !== undefined) beginAt(now)
  }
  const save = async (event?: FormEvent) => {
    event?.preventDefault()
    setBusy(true)
    refusal.clear()
    try {
      if (onCreate !== undefined)
        return await onCreate({ ...valuesOf(editable, drafts, row), ...(await linked()).lists })
      const met = await writeOrMeet(valuesOf(editable, drafts, row))
      if (met === undefined) await settle({ drafts, links })
      else setConflict(met)
    } catch (failure) {
      refusal.set(failure)
    } finally {
      setBusy(false)
    }
  }
  const discard = () => {
    setDrafts({})
    setLinks({})
    refusal.clear()
  }
  const change = (field: FieldOf, draft: Draft) => {
    begin()
    refusal.forget(field.name)
    setDrafts((before) => ({ ...before, [field.name]: draft }))
  }
  return (
    <form ref={refusal.form} className={styles.form} onSubmit={(event) => void save(event)} aria-label="Fields">
      {editable.length > 0 && (
        <div className={styles.card}>
          {editable.map((field) => (
            <Field
              key={field.name}
              label={field.name}
              note={noteOf(field)}
              hint={hintOf(field, editors(field), isNew)}
              error={errors[field.name] ?? refusal.fields[field.name]}
            >
              {(attributes) => (
                <>
                  {controlOf(field, attributes, {
                    collection,
                    row: onCreate === undefined ? row : undefined,
                    editor: editors(field),
                    draft: drafts[field.name] ?? {
                      text: textOf(field, row[field.name]),
                      choice: chosenRow(field, row, catalog),
                      ...(row[field.name] !== undefined && { exact: { value: row[field.name] } }),
                    },
                    onChange: (draft) => change(field, draft),
                  })}
                  {mayBeNone(field, valueNow(drafts[field.name], row[field.name])) && (
                    <NoValue field={field} control={attributes.id} onChoose={() => change(field, noValue)} />
                  )}
                </>
              )}
            </Field>
          ))}
          {junctions.map((relation) => (
            <Linked
              key={relation.name}
              {...{ relation, row, catalog }}
              error={refusal.fields[relation.name]}
              choices={links[relation.name]}
              onChange={(change) => {
                begin()
                refusal.forget(relation.name)
                setLinks((before) => ({ ...before, [relation.name]: change(before[relation.name]) }))
              }}
            />
          ))}
        </div>
      )}
      {(count > 0 || isNew) && (
        <div className={styles.saveBar} {...bar}>
          {refusal.error !== undefined && <Problem error={refusal.error} shownAt={names} />}
          <span>{!isNew && (count === 1 ? '1 change' : `${count} changes`)}</span>
          {!isNew && <Button onClick={discard}>Discard</Button>}
          <Button kind="primary" type="submit" isBusy={isBusy} disabled={Object.keys(errors).length > 0}>
            {isNew ? 'Create' : 'Save'}
          </Button>
        </div>
      )}
      {fixed.length > 0 && onCreate === undefined && <Facts fields={fixed} row={row} catalog={catalog} />}
      {leaveQuestion}
      {conflict !== undefined && (
        <Merge
          fields={collection.fields}
          conflict={conflict}
          onClose={() => setConflict(undefined)}
          onMerged={async (merged, version) => {
            await write(merged, version)
            await settle({ drafts, links })
          }}
        />
      )}
    </form>
  )
}

type Control = {
  readonly collection: Collection
  readonly row: Row | undefined
  readonly editor: FoundEditor | undefined
  readonly draft: Draft
  readonly onChange: (draft: Draft) => void
}

/** The control of a field: that of its kind, or the editor of an extension that its definition names. */
function controlOf(field: FieldOf, attributes: FieldAttributes, { collection, row, editor, draft, onChange }: Control) {
  if (editor === 'loading') return <Loading lines={1} label={`The editor of ${field.name} is loading`} />
  if (editor === undefined || editor === 'missing')
    return <Editor field={field} draft={draft} onChange={onChange} attributes={attributes} />
  return (
    <Suspense fallback={<Loading lines={1} />}>
      <FieldEditor key={String(row?.[collection.key])} {...{ ...editor, collection, field, row, draft, onChange }} />
    </Suspense>
  )
}

const valueNow = (draft: Draft | undefined, stored: unknown): unknown =>
  draft === undefined ? stored : draft.exact === undefined ? draft.text : draft.exact.value

type NoValueProps = { readonly field: FieldOf; readonly control: string; readonly onChoose: () => void }

/** Below an empty text: no value (null) instead. */
function NoValue({ field: { name }, control, onChoose }: NoValueProps) {
  return (
    <span>
      <Button
        size="s"
        aria-label={`No value (null) instead of an empty text for ${name}`}
        onClick={() => {
          // It goes away, and the keyboard with it.
          document.getElementById(control)?.focus()
          onChoose()
        }}
      >
        No value (null) instead of an empty text
      </Button>
    </span>
  )
}

const isMade = ({ isKey, kind }: FieldOf): boolean => isKey && kind === 'uuid'

function hintOf(field: FieldOf, editor: FoundEditor | undefined, isNew: boolean): string | undefined {
  const { editor: name, unlessGiven } = field
  const parts = [
    field.description ?? (isMade(field) ? 'Empty for a new one.' : undefined),
    isNew && unlessGiven !== undefined && `${unlessGiven} unless given`,
    editor === 'missing' && `Its editor ${name} is not installed here, or not for you.`,
  ].filter((part) => typeof part === 'string')
  return parts.length > 0 ? parts.join(' · ') : undefined
}

function Facts({
  fields,
  row,
  catalog,
}: {
  readonly fields: readonly FieldOf[]
  readonly row: Row
  readonly catalog: Catalog
}) {
  return (
    <div className={styles.card}>
      <dl className={styles.facts}>
        {fields.map((field) => (
          <FactRow key={field.name} field={field} row={row} catalog={catalog} />
        ))}
      </dl>
    </div>
  )
}

function FactRow({ field, row, catalog }: { readonly field: FieldOf; readonly row: Row; readonly catalog: Catalog }) {
  return (
    <>
      <dt>{field.name}</dt>
      <dd>
        <Value field={field} row={row} catalog={catalog} />
      </dd>
    </>
  )
}

type LinkedProps = {
  readonly relation: Relation
  readonly row: Row
  readonly catalog: Catalog
  readonly error: string | undefined
  readonly choices: readonly Choice[] | undefined
  /** Undefined: as it is stored. */
  readonly onChange: (change: (choices: readonly Choice[] | undefined) => readonly Choice[]) => void
}

/** The records that are linked with a record over a junction. */
function Linked({ relation, row, catalog, error, choices, onChange }: LinkedProps) {
  const target = catalog.get(relation.target)
  if (target === undefined) return null
  const stored = row[relation.name]
  const now = Array.isArray(stored) ? stored.map((one: Row) => choiceOf(target, one)) : []
  return (
    <Field label={relation.name} note={`any number of ${target.label}`} error={error}>
      {(attributes) => {
        const picker = (
          <RelationsPicker
            attributes={attributes}
            collection={relation.target}
            label={relation.name}
            values={choices ?? now}
            onChange={(chosen) => onChange(() => chosen)}
          />
        )
        if (relation.target !== 'svc_File') return picker
        return (
          <Upload isMany onEach={(file) => onChange((before = now) => [...before, file])}>
            {picker}
          </Upload>
        )
      }}
    </Field>
  )
}
