import { useQuery } from '@tanstack/react-query'
import { Plus, Trash2 } from 'lucide-react'
import { type ReactNode, useState } from 'react'
import { type Catalog, type Collection, descriptionQuery, useCatalog } from '../../app/catalog.ts'
import { useMe } from '../../app/session.ts'
import { Button, IconButton } from '../../ui/button.tsx'
import { Field, Input, Select, TextField } from '../../ui/field.tsx'
import { Popover } from '../../ui/menu.tsx'
import { countConditions, type Filter, readFilter } from '../data/filter.ts'
import { FilterBuilder } from '../data/filter-builder.tsx'
import { functions, type Measure, type Report } from './question.ts'
import {
  fieldAt,
  keyOf,
  nameFor,
  parts,
  partsOf,
  pathsOf,
  readGroup,
  renamed,
  resultCollection,
  titleOf,
  writeGroup,
} from './report.ts'
import styles from './reports.module.css'

type FormProps = {
  readonly report: Report
  readonly collection: Collection
  /** The paths that the caller may read. */
  readonly paths: readonly string[]
  readonly onChange: (change: Partial<Report>) => void
}

/** Everything that a report can ask. */
export function ReportForm(given: Omit<FormProps, 'paths'>) {
  const { report, collection, onChange } = given
  const catalog = useCatalog()
  const { isAdmin } = useMe()
  const { data: description = null } = useQuery({ ...descriptionQuery, enabled: !isAdmin })
  const props = { ...given, paths: pathsOf(collection, catalog, description) }
  const result = resultCollection(report, collection, catalog)
  const columns = [...report.groupBy.map(keyOf), ...Object.keys(report.aggregate)]
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone
  return (
    <div className={styles.form}>
      <Measures {...props} />
      <Groups {...props} />
      <Details {...props} />
      <section className={styles.part} aria-label="Conditions">
        <h2>Conditions</h2>
        <div className={styles.line}>
          <Condition
            label="Rows"
            {...{ collection, catalog, filter: report.filter }}
            onApply={(filter) => onChange({ filter })}
          />
          <Condition
            label="Groups"
            {...{ collection: result, catalog: none, filter: report.having }}
            onApply={(having) => onChange({ having })}
          />
        </div>
      </section>
      <section className={styles.part} aria-label="Order">
        <h2>Order</h2>
        <Field label="Sort by">
          {(attributes) => (
            <Select
              {...attributes}
              value={report.sort?.join(',') ?? ''}
              onChange={({ target }) => onChange({ sort: target.value === '' ? undefined : target.value.split(',') })}
              options={sortOptions(columns, report.sort?.join(','))}
            />
          )}
        </Field>
        <Committed
          key={`limit ${report.limit ?? ''}`}
          label="Most groups"
          inputMode="numeric"
          initial={String(report.limit ?? '')}
          onCommit={(text) => onChange({ limit: /^[1-9]\d{0,8}$/.test(text) ? Number(text) : undefined })}
        />
        <Field label="Days begin in">
          {(attributes) => (
            <Select
              {...attributes}
              value={report.timezone ?? ''}
              onChange={({ target }) => onChange({ timezone: target.value || undefined })}
              options={[
                { value: '', label: 'UTC' },
                ...new Set([zone, report.timezone ?? zone].filter((one) => one !== 'UTC')),
              ]}
            />
          )}
        </Field>
      </section>
    </div>
  )
}

const none: Catalog = new Map()

function sortOptions(columns: readonly string[], current: string | undefined) {
  const options = [
    { value: '', label: 'the groups themselves' },
    ...columns.flatMap((name) => [
      { value: name, label: `${name}, the least first` },
      { value: `-${name}`, label: `${name}, the most first` },
    ]),
  ]
  const isListed = current === undefined || options.some(({ value }) => value === current)
  return isListed ? options : [...options, { value: current, label: current }]
}

function Measures({ report, collection, paths, onChange }: FormProps) {
  const catalog = useCatalog()
  const { aggregate } = report
  const names = Object.keys(aggregate)
  const set = (name: string, measure: Measure) => {
    const others = names.filter((one) => one !== name)
    const isOwnName = name !== nameFor(aggregate[name]!, collection, others)
    const next = isOwnName ? name : nameFor(measure, collection, others)
    onChange(renamed({ ...report, aggregate: { ...aggregate, [name]: measure } }, name, next))
  }
  const add = () => {
    const number = paths.find((path) => ['integer', 'decimal', 'float'].includes(kindAt(path)) && !path.includes('.'))
    const measure: Measure =
      number === undefined ? { function: 'count', field: '*' } : { function: 'sum', field: number }
    onChange({ aggregate: { ...aggregate, [nameFor(measure, collection, names)]: measure } })
  }
  const kindAt = (path: string) => fieldAt(path, collection, catalog)?.kind ?? 'text'
  return (
    <section className={styles.part} aria-label="Measures">
      <h2>Measure</h2>
      {Object.entries(aggregate).map(([name, measure]) => (
        <div key={name} className={styles.measure}>
          <Select
            aria-label={`Function of ${name}`}
            value={measure.function}
            options={functions.map((one) => ({ value: one, label: functionNames[one] }))}
            onChange={({ target }) => {
              const chosen = functions.find((one) => one === target.value)!
              const field = chosen === 'count' ? measure.field : measure.field === '*' ? paths[0]! : measure.field
              set(name, { function: chosen, field })
            }}
          />
          <PathSelect
            label={`Field of ${name}`}
            paths={measure.function === 'count' ? ['*', ...paths] : paths}
            value={measure.field}
            onChange={(field) => set(name, { ...measure, field })}
          />
          <Committed
            label={`Name of ${name}`}
            isBare
            initial={name}
            onCommit={(text) => {
              if (/^[A-Za-z_]\w{0,62}$/.test(text) && !names.includes(text)) onChange(renamed(report, name, text))
            }}
          />
          <IconButton
            label={`Remove ${name}`}
            disabled={names.length + report.groupBy.length < 2}
            onClick={() => onChange(without(report, name))}
          >
            <Trash2 />
          </IconButton>
        </div>
      ))}
      <Add onClick={add}>Measure</Add>
    </section>
  )
}

/** Without a measure, and without what names it. */
function without({ aggregate, sort, having }: Report, name: string): Partial<Report> {
  const { [name]: _gone, ...rest } = aggregate
  return {
    aggregate: rest,
    sort: sort?.filter((key) => key.replace(/^-/, '') !== name),
    having: having !== undefined && JSON.stringify(having).includes(JSON.stringify(name)) ? undefined : having,
  }
}

const functionNames: Readonly<Record<Measure['function'], string>> = {
  count: 'count',
  sum: 'sum',
  avg: 'average',
  min: 'least',
  max: 'most',
  distinct: 'different values',
  array_agg: 'list of values',
}

function Groups({ report, collection, paths, onChange }: FormProps) {
  const catalog = useCatalog()
  const { groupBy } = report
  const set = (place: number, text: string | undefined) => {
    const next = text === undefined ? groupBy.toSpliced(place, 1) : groupBy.with(place, text)
    const gone = keyOf(groupBy[place]!)
    onChange({ groupBy: next, sort: report.sort?.filter((key) => key.replace(/^-/, '') !== gone) })
  }
  const free = paths.find((path) => !groupBy.some((text) => readGroup(text).path === path))
  return (
    <section className={styles.part} aria-label="Groups">
      <h2>Group by</h2>
      {groupBy.map((text, place) => {
        const group = readGroup(text)
        const possible = partsOf(fieldAt(group.path, collection, catalog))
        return (
          <div key={text} className={styles.group}>
            <PathSelect
              label={`Group ${place + 1}`}
              paths={paths}
              value={group.path}
              onChange={(path) => set(place, writeGroup({ path, part: partFor(path, collection, catalog) }))}
            />
            {possible.length > 0 && (
              <Select
                aria-label={`Part of ${titleOf(text)}`}
                value={group.part ?? ''}
                options={[
                  { value: '', label: 'each value' },
                  ...possible.map((part) => ({ value: part, label: parts[part]! })),
                ]}
                onChange={({ target }) => set(place, writeGroup({ ...group, part: target.value || undefined }))}
              />
            )}
            <IconButton
              label={`Remove the group ${titleOf(text)}`}
              disabled={groupBy.length + Object.keys(report.aggregate).length < 2}
              onClick={() => set(place, undefined)}
            >
              <Trash2 />
            </IconButton>
          </div>
        )
      })}
      {free !== undefined && (
        <Add
          onClick={() =>
            onChange({ groupBy: [...groupBy, writeGroup({ path: free, part: partFor(free, collection, catalog) })] })
          }
        >
          Group
        </Add>
      )}
    </section>
  )
}

/** Times are grouped by month at first, because each of them is another. */
function partFor(path: string, collection: Collection, catalog: Catalog): string | undefined {
  const possible = partsOf(fieldAt(path, collection, catalog))
  return possible.length > 2 ? 'yearmonth' : undefined
}

/** The other fields of each group's first row: those of related rows. */
function Details({ report, paths: all, onChange }: FormProps) {
  const paths = all.filter((path) => path.includes('.'))
  const { fields = [] } = report
  const free = paths.find((path) => !fields.includes(path))
  if (report.groupBy.length === 0 || (free === undefined && fields.length === 0)) return null
  return (
    <section className={styles.part} aria-label="Also shown">
      <h2>Also show</h2>
      {fields.map((path, place) => (
        <div key={path} className={styles.group}>
          <PathSelect
            label={`Also show ${place + 1}`}
            paths={paths}
            value={path}
            onChange={(next) => onChange({ fields: [...new Set(fields.with(place, next))] })}
          />
          <IconButton label={`Don't show ${path}`} onClick={() => onChange({ fields: fields.toSpliced(place, 1) })}>
            <Trash2 />
          </IconButton>
        </div>
      ))}
      {free !== undefined && <Add onClick={() => onChange({ fields: [...fields, free] })}>Related field</Add>}
    </section>
  )
}

type ConditionProps = {
  readonly label: string
  readonly collection: Collection
  readonly catalog: Catalog
  readonly filter: Filter | undefined
  readonly onApply: (filter: Filter | undefined) => void
}

function Condition({ label, onApply, ...builder }: ConditionProps) {
  const [isOpen, setOpen] = useState(false)
  const count = builder.filter === undefined ? 0 : countConditions(readFilter(builder.filter, () => false))
  return (
    <Popover
      title={label}
      isOpen={isOpen}
      onOpenChange={setOpen}
      trigger={
        <Button size="s" aria-pressed={count > 0}>
          {count === 0 ? `${label}…` : `${label} (${count})`}
        </Button>
      }
    >
      <FilterBuilder
        {...builder}
        onApply={(filter) => {
          setOpen(false)
          onApply(filter)
        }}
      />
    </Popover>
  )
}

const typed = '\u0000typed'

type PathSelectProps = {
  readonly label: string
  readonly paths: readonly string[]
  readonly value: string
  readonly onChange: (path: string) => void
}

/** A field of the collection or of what it is related to; a longer way is typed. */
function PathSelect({ label, paths, value, onChange }: PathSelectProps) {
  const [isTyped, setTyped] = useState(!paths.includes(value))
  if (isTyped)
    return <Committed label={label} isBare placeholder="maker.country.name" initial={value} onCommit={onChange} />
  return (
    <Select
      aria-label={label}
      value={value}
      onChange={({ target }) => (target.value === typed ? setTyped(true) : onChange(target.value))}
      options={[
        ...paths.map((path) => ({ value: path, label: path === '*' ? 'rows' : path })),
        { value: typed, label: 'another path…' },
      ]}
    />
  )
}

type CommittedProps = {
  readonly label: string
  readonly initial: string
  readonly placeholder?: string
  readonly inputMode?: 'numeric'
  readonly isBare?: boolean
  readonly onCommit: (text: string) => void
}

/** Takes what was typed when it is left or by Enter: half a name would be asked otherwise. */
function Committed({ label, initial, isBare = false, onCommit, ...input }: CommittedProps) {
  const [text, setText] = useState(initial)
  const commit = () => text.trim() !== initial && onCommit(text.trim())
  const control = {
    ...input,
    value: text,
    onChange: ({ target }: { readonly target: HTMLInputElement }) => setText(target.value),
    onBlur: commit,
    onKeyDown: ({ key }: { readonly key: string }) => key === 'Enter' && commit(),
  }
  return isBare ? <Input aria-label={label} {...control} /> : <TextField label={label} {...control} />
}

function Add({ onClick, children }: { readonly onClick: () => void; readonly children: ReactNode }) {
  return (
    <Button size="s" kind="ghost" className={styles.add} onClick={onClick}>
      <Plus aria-hidden="true" /> {children}
    </Button>
  )
}
