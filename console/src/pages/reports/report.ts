import { rowShape } from '../../app/access.ts'
import type { Catalog, Collection, Description, Field } from '../../app/definition.ts'
import type { Filter } from '../data/filter.ts'
import type { Row } from '../data/query.ts'
import { type BuilderSearch, type Form, isObject, type Measure, type Report } from './question.ts'

/** A report that says everything: where nothing is measured and grouped, rows are counted. */
export function reportOf(search: BuilderSearch, collection: Collection): Report {
  const { asOf: _asOf, live: _live, saved: _saved, dashboard: _dashboard, panel: _panel, ...rest } = search
  const { aggregate = {}, groupBy = [], form = 'table' } = rest
  const asksNothing = isEmpty(aggregate) && groupBy.length === 0
  const count: Measure = { function: 'count', field: '*' }
  return {
    ...rest,
    collection: collection.name,
    aggregate: asksNothing ? { [nameFor(count, collection, [])]: count } : aggregate,
    groupBy,
    form,
  }
}

/** A change of a report, with the measure that is only implied as long as nothing is grouped. */
export const withMeasures = ({ aggregate }: Report, change: Partial<Report>): Partial<Report> =>
  change.groupBy === undefined ? change : { aggregate, ...change }

/** The body of the request. */
export function bodyOf({
  collection: _collection,
  form: _form,
  ...question
}: Report): Readonly<Record<string, unknown>> {
  const isSaid = (value: unknown) => value !== undefined && !(Object(value) === value && isEmpty(value as object))
  return Object.fromEntries(Object.entries(question).filter(([, value]) => isSaid(value)))
}

const isEmpty = (value: object): boolean => Object.keys(value).length === 0

/** A name that no field, relation or other measure has. */
export function nameFor(measure: Measure, collection: Collection, others: readonly string[]): string {
  const { function: called, field } = measure
  const wanted = (field === '*' ? called : `${called}_${field}`).replaceAll(/\W/g, '_').slice(0, 55)
  const taken = new Set([...others, ...collection.fields.map(({ name }) => name)])
  for (const { name } of collection.relations) taken.add(name)
  let name = wanted
  for (let turn = 2; taken.has(name); turn += 1) name = `${wanted}_${turn}`
  return name
}

/** A group: a path, and the part of a time that is taken of it. */
export type Group = { readonly path: string; readonly part: string | undefined }

export function readGroup(text: string): Group {
  const [, part, path] = /^date:(\w+):(.+)$/.exec(text) ?? []
  return path === undefined ? { path: text, part: undefined } : { path, part }
}

export const writeGroup = ({ path, part }: Group): string => (part === undefined ? path : `date:${part}:${path}`)

export const parts: Readonly<Record<string, string>> = {
  year: 'year',
  yearmonth: 'year and month',
  yearweek: 'year and week',
  month: 'month of the year',
  week: 'week of the year',
  day: 'day of the month',
  dow: 'day of the week (0: Sunday)',
  isodow: 'day of the week (1: Monday)',
  hour: 'hour',
  minute: 'minute',
}

/** Those that name the year, too; the others are numbers. */
const textParts: ReadonlySet<string> = new Set(['yearmonth', 'yearweek'])

/** The parts that a field has. */
export function partsOf(field: Field | undefined): readonly string[] {
  if (field === undefined) return Object.keys(parts)
  if (field.kind === 'time') return ['hour', 'minute']
  if (field.kind === 'date') return Object.keys(parts).filter((part) => part !== 'hour' && part !== 'minute')
  return field.kind === 'datetime' || field.kind === 'datetime without zone' ? Object.keys(parts) : []
}

/** As `sort` and `having` call a group. */
export function keyOf(text: string): string {
  const { path, part } = readGroup(text)
  const name = path.replaceAll('.', '_')
  return part === undefined ? name : `${part}_${name}`
}

export function titleOf(text: string): string {
  const { path, part } = readGroup(text)
  return part === undefined ? path : `${path} (${parts[part] ?? part})`
}

type ReportColumn = {
  readonly title: string
  readonly isMeasure: boolean
  readonly read: (row: Row) => unknown
  readonly text: (row: Row) => string
}

/** What is at the end of a path, where somebody knows. */
export type KindOf = (path: string) => Field['kind'] | undefined

/** The columns of a row of the answer, in the order in which it is read. Times are shown in the report's zone. */
export function columnsOf(report: Report, kindOf: KindOf = () => undefined): readonly ReportColumn[] {
  const { groupBy, fields = [], aggregate, timezone = 'UTC' } = report
  const column = (title: string, isMeasure: boolean, path: string | undefined, read: ReportColumn['read']) => {
    const other = isMeasure ? measureText : valueText
    const toText = timeIn(timezone, path === undefined ? undefined : kindOf(path)) ?? other
    return { title, isMeasure, read, text: (row: Row) => toText(read(row)) }
  }
  return [
    ...groupBy.map((text) => {
      const { path, part } = readGroup(text)
      return column(titleOf(text), false, part === undefined ? path : undefined, (row) => row[text] ?? row[keyOf(text)])
    }),
    ...fields.map((path) => column(path, false, path, (row) => valueAt(row, path))),
    ...Object.entries(aggregate).map(([name, { function: called, field }]) =>
      column(name, true, called === 'min' || called === 'max' ? field : undefined, (row) => row[name]),
    ),
  ]
}

/** How times of a kind read, `2026-03-14 09:26:53`; undefined for what is none. */
function timeIn(zone: string, kind: Field['kind'] | undefined): ((value: unknown) => string) | undefined {
  if (kind !== 'datetime' && kind !== 'datetime without zone') return undefined
  const format = kind === 'datetime' ? formatOf(zone) : undefined
  return (value) => {
    // Infinity, and years that have more digits or an era, stay as they are.
    if (typeof value !== 'string' || !/^\d{4}-\d\d-\d\dT[\d:.]+Z?$/.test(value)) return valueText(value)
    if (kind === 'datetime without zone') return value.slice(0, 19).replace('T', ' ')
    return format === undefined ? value : format.format(new Date(value))
  }
}

/** Undefined for a zone that only the database knows. */
function formatOf(timeZone: string): Intl.DateTimeFormat | undefined {
  try {
    // Swedish dates and times are those of ISO 8601.
    return new Intl.DateTimeFormat('sv-SE', { timeZone, dateStyle: 'short', timeStyle: 'medium' })
  } catch (error) {
    if (error instanceof RangeError) return undefined
    throw error
  }
}

function valueAt(row: Row, path: string): unknown {
  const steps = path.split('.')
  return steps.reduce<unknown>((value, name) => (isObject(value) ? value[name] : undefined), row)
}

/** A value in one line. Exact numbers come as text and stay as they are; others are rounded. */
export function valueText(value: unknown): string {
  if (value === null || value === undefined) return '—'
  if (typeof value === 'object') return JSON.stringify(value)
  return String(value)
}

/** A measure with all its digits. */
export const measureText = (value: unknown): string => numberText(value, { maximumSignificantDigits: 17 })

/** A measure beside a drawing, which shows no more digits either. */
export const roundedText = (value: unknown): string => numberText(value, { maximumSignificantDigits: 6 })

function numberText(value: unknown, options: Intl.NumberFormatOptions): string {
  return typeof value === 'number' ? value.toLocaleString(undefined, options) : valueText(value)
}

export type Chart = {
  /** One for each place along the axis. */
  readonly labels: readonly string[]
  readonly series: readonly { readonly name: string; readonly values: readonly (number | null)[] }[]
  /** Series that are left out, because nobody could tell so many apart. */
  readonly more: number
}

export const mostSeries = 8

/**
 * What is drawn of a result: the first group goes along the axis, every combination of the others is a series of each measure
 * that is a number.
 */
export function chartOf(report: Report, rows: readonly Row[], kindOf?: KindOf): Chart {
  const { groupBy, aggregate } = report
  const [first, ...rest] = groupBy
  const columns = columnsOf({ ...report, fields: [] }, kindOf)
  const of = (row: Row, text: string) => columns[groupBy.indexOf(text)]?.read(row)
  const textOf = (row: Row, text: string) => columns[groupBy.indexOf(text)]?.text(row) ?? ''
  const measures = Object.keys(aggregate).filter((name) => rows.some((row) => numberOf(row[name]) !== null))
  const labels: string[] = []
  const places = new Map<string, number>()
  const series = new Map<string, { readonly name: string; readonly values: (number | null)[] }>()
  for (const [index, row] of rows.entries()) {
    const value = first === undefined ? undefined : of(row, first)
    // Two groups may read the same, such as a text and the sign for no value.
    const key = rest.length === 0 ? String(index) : JSON.stringify(value ?? null)
    const place = places.get(key) ?? labels.push(first === undefined ? '' : textOf(row, first)) - 1
    places.set(key, place)
    const kinds = rest.map((text) => of(row, text))
    const kind = rest.map((text) => textOf(row, text)).join(' · ')
    for (const measure of measures) {
      const name = rest.length === 0 ? measure : measures.length === 1 ? kind : `${kind} · ${measure}`
      const seriesKey = JSON.stringify([kinds.map((one) => one ?? null), measure])
      const { values } = series.get(seriesKey) ?? { values: [] }
      series.set(seriesKey, { name, values })
      values[place] = numberOf(row[measure])
    }
  }
  const all = [...series.values()].map(({ name, values }) => ({
    name,
    values: Array.from(labels, (_, place) => values[place] ?? null),
  }))
  return { labels, series: all.slice(0, mostSeries), more: Math.max(0, all.length - mostSeries) }
}

/** Null for what is no number. Text is one where the server sent more digits than a number has. */
function numberOf(value: unknown): number | null {
  if (typeof value === 'number') return value
  return typeof value === 'string' && /^-?\d+(\.\d+)?$/.test(value) ? Number(value) : null
}

/** The drawing in words, for those who don't see it. */
export function describe({ labels, series }: Chart, form: Form): string {
  const names = series.map(({ name }) => name).join(', ')
  const ends = labels.length > 1 ? ` from ${labels[0]} to ${labels.at(-1)}` : ''
  return `${form} of ${names} over ${labels.length} ${labels.length === 1 ? 'group' : 'groups'}${ends}. The same as a table is below.`
}

/** The same question as somebody else would ask it. */
export function waysToAsk(
  report: Report,
  { asOf, origin }: { readonly asOf: string | undefined; readonly origin: string },
): Readonly<Record<string, string>> {
  const { collection } = report
  const body = { ...bodyOf(report), ...(asOf !== undefined && { asOf }) }
  const path = `${origin}/reports/${encodeURIComponent(collection)}`
  const json = JSON.stringify(body)
  const { asOf: _asOf, ...live } = body as Record<string, unknown>
  const literal = JSON.stringify(collection)
  return {
    Address: `${path}?${parametersOf(body)}`,
    curl: `curl -H "authorization: Bearer $TOKEN" -H 'content-type: application/json' '${path}' -d '${json.replaceAll("'", "'\\''")}'`,
    Client: `await client.items(${literal}).report(${JSON.stringify(body, null, 2)})`,
    ...(asOf === undefined && { Live: `client.liveReport(${JSON.stringify({ collection, ...live }, null, 2)})` }),
  }
}

/** The address of the same as a file. */
export function exportAddress(report: Report, asOf: string | undefined): string {
  const query = { format: 'csv', ...bodyOf(report), ...(asOf !== undefined && { asOf }) }
  return `/items/${encodeURIComponent(report.collection)}/export?${parametersOf(query)}`
}

function parametersOf(query: object): string {
  const text = (value: unknown) => (typeof value === 'object' ? JSON.stringify(value) : String(value))
  const entries = Object.entries(query).map(([name, value]): [string, string] => [name, text(value)])
  return new URLSearchParams(entries).toString()
}

/** The field at the end of a path. */
export function fieldAt(path: string, collection: Collection, catalog: Catalog): Field | undefined {
  const steps = path.split('.')
  const name = steps.pop()
  let place: Collection | undefined = collection
  for (const step of steps) {
    const target: string | undefined = place?.relations.find((one) => one.name === step)?.target
    place = target === undefined ? undefined : catalog.get(target)
  }
  return place?.fields.find((field) => field.name === name)
}

/**
 * Own fields and those of related rows, by what the server describes to the caller; all of them where it describes nothing,
 * as to administrators, who may read all.
 */
export function pathsOf(
  { name, fields, relations }: Collection,
  catalog: Catalog,
  description: Description | null,
): readonly string[] {
  const schemas = description?.components.schemas
  const row = schemas?.[name]
  const own = shownNames(fields).filter((field) => row === undefined || row.properties?.[field] !== undefined)
  const related = relations.flatMap((relation) => {
    const all = shownNames(catalog.get(relation.target)?.fields ?? [])
    if (schemas === undefined || row === undefined) return all.map((field) => `${relation.name}.${field}`)
    const shape = rowShape(row.properties?.[relation.name], schemas)
    return Object.keys(shape?.properties ?? {})
      .filter((field) => catalog.get(relation.target) === undefined || all.includes(field))
      .map((field) => `${relation.name}.${field}`)
  })
  return [...own, ...related]
}

const shownNames = (fields: readonly Field[]) => fields.filter(({ isHidden }) => !isHidden).map(({ name }) => name)

/** A collection whose fields are what a report gives: `having` is a filter of it. */
export function resultCollection(report: Report, collection: Collection, catalog: Catalog): Collection {
  const field = (name: string, kind: Field['kind']): Field => ({
    name,
    kind,
    element: undefined,
    type: 'String',
    isKey: false,
    isRequired: false,
    isHidden: false,
    isGenerated: false,
    isCreatable: false,
    isChangeable: false,
    options: [],
    maxLength: undefined,
    unlessGiven: undefined,
    description: undefined,
    editor: undefined,
    relation: undefined,
  })
  const kindOf = (path: string) => fieldAt(path, collection, catalog)?.kind ?? 'text'
  const measures = Object.entries(report.aggregate).flatMap(([name, measure]) => {
    if (measure.function === 'array_agg') return []
    const isExtreme = measure.function === 'min' || measure.function === 'max'
    return [field(name, isExtreme ? kindOf(measure.field) : 'float')]
  })
  const groups = report.groupBy.map((text) => {
    const { path, part } = readGroup(text)
    return field(keyOf(text), part === undefined ? kindOf(path) : textParts.has(part) ? 'text' : 'integer')
  })
  const fields = [...measures, ...groups]
  return { ...collection, fields, relations: [], titleField: fields[0]?.name ?? '' }
}

/** The report with a measure under another name, wherever it is named. */
export function renamed(report: Report, from: string, to: string): Partial<Report> {
  const { aggregate, sort, having } = report
  const name = (one: string) => (one === from ? to : one)
  return {
    aggregate: Object.fromEntries(Object.entries(aggregate).map(([key, measure]) => [name(key), measure])),
    ...(sort !== undefined && { sort: sort.map((key) => (key === `-${from}` ? `-${to}` : name(key))) }),
    ...(having !== undefined && { having: renamedKeys(having, name) as Filter }),
  }
}

function renamedKeys(value: unknown, name: (key: string) => string): unknown {
  if (Array.isArray(value)) return value.map((one) => renamedKeys(one, name))
  if (!isObject(value)) return value
  return Object.fromEntries(
    Object.entries(value).map(([key, inner]) => [
      name(key),
      /^(and|or|not)$/i.test(key) ? renamedKeys(inner, name) : inner,
    ]),
  )
}

/** The collections that a report reads: its own, and those that its paths lead to. */
export function collectionsOf(report: Report, collection: Collection, catalog: Catalog): readonly string[] {
  const found = new Set([collection.name])
  const follow = (path: string, from: Collection | undefined) =>
    path.split('.').reduce<Collection | undefined>((at, name) => {
      const relation = at?.relations.find((one) => one.name === name)
      if (relation !== undefined) found.add(relation.target)
      return relation && catalog.get(relation.target)
    }, from)
  const followFilter = (filter: unknown, from: Collection | undefined): void => {
    if (Array.isArray(filter)) for (const one of filter) followFilter(one, from)
    else if (isObject(filter))
      for (const [name, value] of Object.entries(filter))
        followFilter(value, ['AND', 'OR', 'NOT'].includes(name) ? from : follow(name, from))
  }
  const { aggregate, groupBy, fields = [], filter } = report
  for (const { field } of Object.values(aggregate)) follow(field, collection)
  for (const text of groupBy) follow(readGroup(text).path, collection)
  for (const path of fields) follow(path, collection)
  followFilter(filter, collection)
  return [...found]
}
