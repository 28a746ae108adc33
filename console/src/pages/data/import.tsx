import { useQuery } from '@tanstack/react-query'
import { useEffect, useRef, useState } from 'react'
import type { Collection } from '../../app/catalog.ts'
import { queryClient } from '../../app/client.ts'
import { Button } from '../../ui/button.tsx'
import { Dialog } from '../../ui/dialog.tsx'
import { DropArea } from '../../ui/drop.tsx'
import { Field, Input, Select, takeFiles } from '../../ui/field.tsx'
import { Note, Problem } from '../../ui/states.tsx'
import { Table } from '../../ui/table.tsx'
import styles from './import.module.css'
import { type Draft, encodingOf, encodings, readStart, renamed } from './import-file.ts'
import { NotationChoices, usualNotation } from './import-notation.tsx'
import {
  type BrokenRow,
  type Findings,
  importRows,
  type RowsFile,
  rowsSoFar,
  tryRows,
  wasWritten,
} from './import-run.ts'
import { told } from './writes.ts'

type ImportProps = { readonly collection: Collection; readonly onClose: () => void; readonly onDone: () => void }

type Names = Readonly<Record<string, string>>

/** Rows from a file: which column is which field, what the server would do with them, then all of them or none. */
export function Import({ collection, onClose, onDone }: ImportProps) {
  const [names, setNames] = useState<Names>({})
  const [notation, setNotation] = useState(usualNotation)
  const run = useRun(onDone, onClose)
  const targets = [
    ...collection.fields
      .filter(({ isHidden, isGenerated, isCreatable }) => !isHidden && (isGenerated || isCreatable))
      .map(({ name }) => name),
    ...collection.relations.map(({ name }) => name),
  ]
  const { file, encoding, start, unreadable, choose, chooseEncoding } = useFile(run.forget, ({ columns }) =>
    setNames(Object.fromEntries(columns.map((column) => [column, nearest(column, targets)]))),
  )
  const used = Object.values(names).filter((name) => name !== '')
  const twice = used.find((name, place) => used.indexOf(name) !== place)
  const isReady = start !== undefined && used.length > 0 && twice === undefined
  const rows = async (): Promise<RowsFile> => ({
    collection: collection.name,
    format: start!.format,
    name: file!.name,
    content: await renamed(start!, names),
    notation,
  })
  const { work, findings } = run
  return (
    <Dialog
      isOpen
      // The running import is cancelled first, and its result is shown.
      onClose={() => (work === undefined ? onClose() : run.cancel())}
      size="l"
      title={`Import into ${collection.label}`}
      description="CSV with the names of columns in its first line, or a JSON list of objects. All rows are made, or none."
      footer={
        <>
          <Button onClick={() => (work === undefined ? onClose() : run.cancel())}>
            {work === undefined ? 'Close' : 'Cancel'}
          </Button>
          <Button
            isBusy={work?.kind === 'try'}
            disabled={!isReady || work !== undefined}
            onClick={() => void run.check(rows)}
          >
            Try it
          </Button>
          <Button
            kind="primary"
            isBusy={work?.kind === 'import'}
            disabled={!isReady || work !== undefined || findings === undefined || findings.failed > 0}
            onClick={() => void run.write(rows)}
          >
            {findings === undefined || findings.failed > 0
              ? 'Import'
              : `Import ${findings.rows.toLocaleString()} ${findings.rows === 1 ? 'row' : 'rows'}`}
          </Button>
        </>
      }
    >
      <DropArea label="Drop to choose the file" isDisabled={work !== undefined} onFiles={([chosen]) => choose(chosen)}>
        <div className={styles.form}>
          <Field label="File" hint={file?.name}>
            {(attributes) => (
              <Input
                {...attributes}
                type="file"
                accept=".csv,.json,text/csv,application/json"
                disabled={work !== undefined}
                onChange={({ target }) => choose(takeFiles(target)[0])}
              />
            )}
          </Field>
          {file !== undefined && (
            <Field label="Encoding" hint="Wrong letters in the first values? Choose another one.">
              {(attributes) => (
                <Select
                  {...attributes}
                  value={encoding}
                  disabled={work !== undefined}
                  options={encodings}
                  onChange={({ target }) => chooseEncoding(target.value)}
                />
              )}
            </Field>
          )}
          {unreadable !== undefined && <Problem error={unreadable} />}
          {start !== undefined && (
            <Mapping
              {...{ collection, start, names, targets }}
              isFixed={work !== undefined}
              onChange={(next) => {
                run.forget()
                setNames(next)
              }}
            />
          )}
          {start !== undefined && (
            <NotationChoices
              {...{ collection, used, notation }}
              isFixed={work !== undefined}
              onChange={(next) => {
                run.forget()
                setNotation(next)
              }}
            />
          )}
          {twice !== undefined && <Note kind="warning">Two columns go to {twice}.</Note>}
          <Run {...run} />
        </div>
      </DropArea>
    </Dialog>
  )
}

/** The file that was chosen, and its beginning. Of choices one after the other the last counts, however long each takes to read. */
function useFile(onChoose: () => void, onRead: (start: Draft) => void) {
  const [file, setFile] = useState<File>()
  const [encoding, setEncoding] = useState('utf-8')
  const [start, setStart] = useState<Draft>()
  const [unreadable, setUnreadable] = useState<unknown>()
  const last = useRef(0)
  const read = async (chosen: File | undefined, named?: string) => {
    last.current += 1
    const turn = last.current
    onChoose()
    setFile(chosen)
    setStart(undefined)
    setUnreadable(undefined)
    if (chosen === undefined) return
    try {
      const by = named ?? (await encodingOf(chosen))
      if (turn === last.current) setEncoding(by)
      const draft = await readStart(chosen, by)
      if (turn !== last.current) return
      setStart(draft)
      onRead(draft)
    } catch (error) {
      if (turn === last.current) setUnreadable(error)
    }
  }
  const choose = (chosen: File | undefined) => void read(chosen)
  const chooseEncoding = (named: string) => void read(file, named)
  return { file, encoding, start, unreadable, choose, chooseEncoding }
}

type Work = { readonly kind: 'try' | 'import'; readonly id: string; readonly stop: AbortController }

/** Trials and imports, one at a time, and their results. */
function useRun(onDone: () => void, onClose: () => void) {
  const [work, setWork] = useState<Work>()
  const [findings, setFindings] = useState<Findings>()
  const [outcome, setOutcome] = useState<string>()
  const [error, setError] = useState<unknown>()
  const [isCancelled, setCancelled] = useState(false)
  const stop = useRef<AbortController>(null)
  // Leaving the page ends what runs.
  useEffect(() => () => stop.current?.abort(), [])
  const forget = () => {
    setFindings(undefined)
    setOutcome(undefined)
    setError(undefined)
  }
  const begin = async (kind: Work['kind'], does: (work: Work) => Promise<void>) => {
    const begun: Work = { kind, id: crypto.randomUUID(), stop: new AbortController() }
    stop.current = begun.stop
    setWork(begun)
    setCancelled(false)
    setOutcome(undefined)
    setError(undefined)
    try {
      await does(begun)
    } catch (failure) {
      setError(failure)
    } finally {
      setWork(undefined)
    }
  }
  const check = (rows: () => Promise<RowsFile>) =>
    begin('try', async ({ stop }) => {
      try {
        setFindings(await tryRows(await rows(), stop.signal))
      } catch (failure) {
        if (!stop.signal.aborted) throw failure
      }
    })
  const write = (rows: () => Promise<RowsFile>) =>
    begin('import', async ({ id, stop }) => {
      const file = await rows()
      try {
        const answer = await importRows(file, id, stop.signal)
        told(`${answer.body.results.imported.toLocaleString()} rows imported`, answer)
        onDone()
        onClose()
      } catch (failure) {
        if (!stop.signal.aborted) throw failure
        const isWritten = await wasWritten(file, id)
        if (isWritten) onDone()
        void queryClient.invalidateQueries({ queryKey: ['count'] })
        setOutcome(
          isWritten
            ? 'It was too late to cancel: all rows had been imported. The log has the request, which undoes them.'
            : 'Cancelled. No row was imported.',
        )
      }
    })
  const cancel = () => {
    stop.current?.abort()
    setCancelled(true)
  }
  return { work, findings, outcome, error, isCancelled, forget, check, write, cancel }
}

type MappingProps = {
  readonly collection: Collection
  readonly start: Draft
  readonly names: Names
  readonly targets: readonly string[]
  readonly isFixed: boolean
  readonly onChange: (names: Names) => void
}

/** Which column is which field. */
function Mapping({ collection, start, names, targets, isFixed, onChange }: MappingProps) {
  const missing = collection.fields.filter(
    ({ name, isRequired, isGenerated }) => isRequired && !isGenerated && !Object.values(names).includes(name),
  )
  return (
    <>
      <Table
        label="Columns"
        keyOf={(column) => column}
        rows={start.columns}
        columns={[
          { title: 'Column of the file', cell: (column) => column },
          { title: 'First value', cell: (column) => firstValue(start, column) },
          {
            title: 'Field',
            cell: (column) => (
              <Select
                size="s"
                aria-label={`Field for ${column}`}
                disabled={isFixed}
                value={names[column] ?? ''}
                onChange={({ target }) => onChange({ ...names, [column]: target.value })}
                options={[{ value: '', label: 'leave out' }, ...targets]}
              />
            ),
          },
        ]}
      />
      {missing.map(({ name }) => (
        <Note key={name} kind="warning">
          No column goes to {name}, which is required.
        </Note>
      ))}
    </>
  )
}

/** Of the first rows: the first that is not empty, in one line. */
function firstValue({ rows }: Draft, column: string): string {
  const value = rows.map((row) => row[column]).find((one) => one !== undefined && one !== null && one !== '')
  return typeof value === 'object' ? JSON.stringify(value) : String(value ?? '')
}

type RunProps = Pick<ReturnType<typeof useRun>, 'work' | 'findings' | 'outcome' | 'error' | 'isCancelled'>

/** How far it is, or what became of it. */
function Run({ work, findings, outcome, error, isCancelled }: RunProps) {
  if (work !== undefined && isCancelled) return <Progress label="It is being cancelled" />
  if (work?.kind === 'try') return <Progress label="The server tries every row, and keeps none" />
  if (work !== undefined) return <ImportProgress work={work} of={findings?.rows} />
  return (
    <>
      {error !== undefined && <Problem error={error} />}
      {outcome !== undefined && (
        <div role="status">
          <Note kind="warning">{outcome}</Note>
        </div>
      )}
      {findings !== undefined && outcome === undefined && <Found findings={findings} />}
    </>
  )
}

function ImportProgress({ work, of }: { readonly work: Work; readonly of: number | undefined }) {
  const { data: rows } = useQuery({
    queryKey: ['import', work.id],
    queryFn: async () => (await rowsSoFar(work.id, work.stop.signal)) ?? 0,
    refetchInterval: 1000,
    gcTime: 0,
  })
  const all = of === undefined ? '' : ` of ${of.toLocaleString()}`
  const label = rows === undefined || rows === 0 ? 'The file is sent and read' : `${rows.toLocaleString()}${all} rows`
  return <Progress label={label} {...(rows && of !== undefined && { share: rows / of })} />
}

/** Without a share it moves until it ends. */
function Progress({ label, share }: { readonly label: string; readonly share?: number }) {
  return (
    <div className={styles.progress} role="status">
      <span>{label}</span>
      <progress aria-label="Progress" {...(share !== undefined && { value: Math.min(1, share) })} />
    </div>
  )
}

const mostShown = 100

/** The effects that an import would have, or the rows that it would refuse. */
function Found({ findings: { rows, complete, changes, skipsHooks, failed, errors } }: { readonly findings: Findings }) {
  return (
    <div className={styles.found} role="status">
      {failed === 0 ? (
        <Note>
          {rows.toLocaleString()} {rows === 1 ? 'row' : 'rows'} can be imported:{' '}
          {changes.map(({ collection, create, update }) => said(collection, create, update)).join('; ')}.
        </Note>
      ) : (
        <Note kind="warning">
          {complete ? '' : 'At least '}
          {failed.toLocaleString()} of {rows.toLocaleString()} rows cannot be imported, so none would be. Correct the
          file, or leave columns out, and try it again.
        </Note>
      )}
      {skipsHooks && (
        <Note kind="warning">
          Hooks of this installation were not called: they may change rows, or refuse them when they are imported.
        </Note>
      )}
      {errors.length > 0 && (
        <Table
          label="Rows with errors"
          keyOf={({ row, item, error }) => `${row ?? item ?? ''} ${error}`}
          rows={errors.slice(0, mostShown)}
          columns={[
            { title: 'Row', isNumber: true, cell: ({ row, item }) => row ?? item ?? '' },
            { title: 'Line', isNumber: true, cell: ({ row, line }) => (row === undefined ? '' : line) },
            { title: 'Field', cell: ({ fields }) => fields.map(({ field }) => field).join(', ') },
            { title: 'What is wrong', cell: wrongWith },
          ]}
        />
      )}
      {errors.length > mostShown && <p>and {(errors.length - mostShown).toLocaleString()} more</p>}
    </div>
  )
}

const wrongWith = ({ fields, error }: BrokenRow) =>
  fields.length === 0 ? error : fields.map(({ field, message }) => `${field}: ${message}`).join('; ')

function said(collection: string, create: number, update: number): string {
  const parts = [
    ...(create > 0 ? [`${create.toLocaleString()} new`] : []),
    ...(update > 0 ? [`${update.toLocaleString()} changed`] : []),
  ]
  return `${parts.join(' and ')} in ${collection}`
}

/** The field of the same name, whatever its case and dividers. */
function nearest(column: string, names: readonly string[]): string {
  const plain = (name: string) => name.toLowerCase().replaceAll(/[^\p{L}\p{N}]/gu, '')
  return names.find((name) => name === column) ?? names.find((name) => plain(name) === plain(column)) ?? ''
}
