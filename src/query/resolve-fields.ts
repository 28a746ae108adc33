/**
 * The output of a query: `fields` as a selection, or `aggregate`, `groupBy` and `having` as groups. Wildcards narrow to
 * granted columns; names must be granted.
 */
import type { Field, Kind, Relation } from '../catalog/catalog.ts'
import { isObject, member } from '../catalog/values.ts'
import { errors } from '../errors.ts'
import { nearName, plain } from '../language/text.ts'
import { MAX_NESTED, MAX_RELATION_DEPTH, meantName, quoted } from './guards.ts'
import { type AggregateEntry, type Filter, type ListQuery, parseFilter, type SortKey } from './parse.ts'
import {
  type Aggregate,
  type AggregateFunction,
  ALWAYS,
  allOf,
  type ColumnPath,
  type DatePart,
  type Grouping,
  type GroupKey,
  isTextPart,
  isToMany,
  type NestedSelection,
  type Predicate,
  type Selection,
  type SortTerm,
} from './plan.ts'
import { resolveFilter } from './resolve-filter.ts'
import { relConditionsAt, rowPart } from './resolve-view.ts'
import { enter, type RelationEntry, readableColumns, resolveColumn, unknownName, type View } from './view.ts'

type FieldsRequest = {
  readonly fields: readonly string[]
  /** The request's relConditions. */
  readonly relConditions: Readonly<Record<string, unknown>> | undefined
  /** Names that may stand among the fields without being one, such as aggregate aliases. */
  readonly ignored: ReadonlySet<string>
}

/** Throws 400 for unknown names and excessive expansion, 403 for named fields and relations that are not granted. */
export function resolveFields(request: FieldsRequest, view: View): Selection {
  const root: FieldNode = emptyNode(view)
  const budget = { nested: 0 }
  const entries = request.fields.filter((entry) => !request.ignored.has(entry) && !entry.startsWith('date:'))
  const included = entries.filter((entry) => !entry.startsWith('-'))
  for (const entry of included.length > 0 ? included : ['*']) include(root, entry, budget)
  for (const entry of entries.filter((entry) => entry.startsWith('-'))) exclude(root, entry.slice(1))
  requireKnownRelations(request.relConditions, view)
  return toSelection(root, request.relConditions ?? null)
}

/** The selection under construction. */
type FieldNode = {
  readonly view: View
  readonly columns: Map<string, Field>
  readonly nested: Map<
    string,
    { readonly relation: Relation; readonly entered: RelationEntry; readonly node: FieldNode }
  >
  /** Whether its rows are the links of a many-to-any relation. */
  readonly isOfLinks: boolean
  /** Of such rows: the collections that were asked for by name. */
  readonly named: Set<NonNullable<Relation['discriminator']>>
}

type NestingBudget = { nested: number }

const emptyNode = (view: View, isOfLinks = false): FieldNode => ({
  view,
  columns: new Map(),
  nested: new Map(),
  isOfLinks,
  named: new Set(),
})

function include(root: FieldNode, entry: string, budget: NestingBudget): void {
  const segments = entry.split('.')
  if (segments.length > MAX_RELATION_DEPTH + 1) throw errors.badQuery('fields: too many relations in a path')
  add(root, segments, entry, budget)
}

function add(node: FieldNode, [head, ...rest]: readonly string[], entry: string, budget: NestingBudget): void {
  const field = node.view.collection.fields.get(head!)
  if (head === '*') {
    addAll(node, rest, entry, budget)
  } else if (rest.length > 0) {
    add(namedNode(node, head!, entry, budget), rest, entry, budget)
  } else if (field === undefined) {
    addColumns(namedNode(node, head!, entry, budget))
  } else {
    if (!node.view.mayRead(field)) throw errors.fieldDenied('read', entry)
    node.columns.set(field.name, field)
  }
}

/** `*`, `*.*`, …: the columns here and of every relation that may be followed. */
function addAll(node: FieldNode, rest: readonly string[], entry: string, budget: NestingBudget): void {
  if (rest.some((segment) => segment !== '*')) throw errors.badQuery(`fields: ${quoted(entry)} has a name after *`)
  addColumns(node)
  if (rest.length === 0) return
  for (const relation of node.view.collection.relations.values()) {
    const child = openNested(node, relation, budget)
    if (child !== undefined) addAll(child, rest.slice(1), entry, budget)
  }
}

function addColumns(node: FieldNode): void {
  for (const field of readableColumns(node.view)) node.columns.set(field.name, field)
}

/** A relation that is asked for by its name. Links of a many-to-any relation then say which item they lead to. */
function namedNode(node: FieldNode, name: string, entry: string, budget: NestingBudget): FieldNode {
  const named = nestedNode(node, name, entry, budget)
  const { fields, relations } = node.view.collection
  const { foreignKey, discriminator } = relations.get(name)!
  if (!node.isOfLinks || discriminator === undefined) return named
  node.named.add(discriminator)
  for (const column of [foreignKey, discriminator.column].map((column) => fields.get(column)!)) {
    if (node.view.mayRead(column)) node.columns.set(column.name, column)
  }
  return named
}

function nestedNode(node: FieldNode, name: string, entry: string, budget: NestingBudget): FieldNode {
  const known = node.nested.get(name)
  if (known !== undefined) return known.node
  const entered = enter(node.view, name, entry, 'fields')
  return attach(node, entered.step.relation, entered, budget)
}

function openNested(node: FieldNode, relation: Relation, budget: NestingBudget): FieldNode | undefined {
  const known = node.nested.get(relation.name)
  if (known !== undefined) return known.node
  const entered = node.view.enter(relation)
  return entered && attach(node, relation, entered, budget)
}

function attach(node: FieldNode, relation: Relation, entered: RelationEntry, budget: NestingBudget): FieldNode {
  budget.nested += 1
  if (budget.nested > MAX_NESTED) throw errors.badQuery('fields: too many relations')
  const child = emptyNode(entered.view, relation.kind === 'polymorphic')
  // A nested object always carries its id.
  const { primaryKey } = entered.view.collection
  if (entered.view.mayRead(primaryKey)) child.columns.set(primaryKey.name, primaryKey)
  node.nested.set(relation.name, { relation, entered, node: child })
  return child
}

function exclude(root: FieldNode, entry: string): void {
  const segments = entry.split('.')
  let node: FieldNode | undefined = root
  let view: View | undefined = root.view
  for (const segment of segments.slice(0, -1)) {
    view = enter(view, segment, entry, 'fields').view
    node = node?.nested.get(segment)?.node
  }
  const last = segments.at(-1)!
  const { fields, relations } = view.collection
  if (!fields.has(last) && !relations.has(last)) throw unknownName('fields', entry, view, last)
  node?.nested.delete(last)
  const keepsId = node !== root && last === view.collection.primaryKey.name
  if (!keepsId) node?.columns.delete(last)
}

function toSelection(node: FieldNode, conditions: unknown): Selection {
  return {
    collection: node.view.collection,
    columns: [...node.columns.values()],
    nested: [...node.nested.values()].map((child) => {
      const related = relConditionsAt(conditions, child.relation.name)
      return {
        step: child.entered.step,
        selection: toSelection(child.node, related),
        where: allOf([requestedRows(related, child.node.view)]),
        only: onlyNamed(child.node),
      }
    }),
  }
}

function requestedRows(conditions: unknown, view: View): Predicate {
  const own = rowPart(conditions, view.collection)
  return own === null ? ALWAYS : resolveFilter(parseFilter(own), view, 'relConditions')
}

/** `blocks.image.*` returns the junction rows that point at images only. */
function onlyNamed({ named }: FieldNode): NestedSelection['only'] {
  const [first] = named
  return first && { column: first.column, values: [...named].map(({ value }) => value) }
}

/** Every relation named in relConditions exists and may be read, also where it is not selected. */
function requireKnownRelations(conditions: unknown, view: View): void {
  if (!isObject(conditions)) return
  for (const name of Object.keys(conditions)) {
    const { view: target } = enter(view, name, name, 'relConditions')
    requireKnownNested(member(conditions, name), target)
  }
}

function requireKnownNested(conditions: unknown, view: View): void {
  if (!isObject(conditions)) throw errors.badQuery('relConditions: expected { relation: filter }')
  for (const [name, nested] of Object.entries(conditions)) {
    if (!view.collection.relations.has(name) || !isObject(nested)) continue
    requireKnownNested(nested, enter(view, name, name, 'relConditions').view)
  }
}

/* Groups. */

/** Undefined for a query that neither aggregates nor groups. */
export function resolveGrouping(query: ListQuery, view: View): Grouping | undefined {
  if (query.aggregate.length === 0 && query.groupBy.length === 0) {
    if (query.having !== undefined) throw errors.badQuery('having: needs aggregate or groupBy')
    return undefined
  }
  const keys = query.groupBy.map((entry, i) => resolveKey(entry, `k${i + 1}`, view))
  const aggregates = query.aggregate.map((entry, i) => resolveAggregate(entry, `a${i + 1}`, view))
  requireOneBranch([...keys.map(({ path }) => path), ...aggregates.flatMap(({ path }) => path ?? [])])
  const detail = resolveDetail(query, keys, view)
  requireDistinctNames(aggregates, keys, detail)
  return {
    keys,
    aggregates,
    having: resolveHaving(query.having, keys, aggregates, view),
    timezone: readTimezone(query.timezone),
    detail,
  }
}

/** Sort terms over aggregate aliases (but lists) and group keys; the keys themselves break ties. */
export function resolveGroupSort(sort: readonly SortKey[], { keys, aggregates }: Grouping): readonly SortTerm[] {
  const asked = sort.map((key): SortTerm => {
    const path = key.kind === 'path' ? key.path : `_${key.kind}`
    const sortable = aggregates.filter(({ fn }) => fn !== 'array_agg')
    const output = sortable.find(({ alias }) => alias === path) ?? keys.find((group) => group.keys.includes(path))
    if (output === undefined) throw errors.badQuery(`sort: ${quoted(path)} is neither an aggregate nor a group`)
    return { by: { kind: 'output', name: output.name }, direction: key.direction }
  })
  const rest = keys.filter(({ name }) => !asked.some(({ by }) => by.kind === 'output' && by.name === name))
  return [...asked, ...rest.map(({ name }): SortTerm => ({ by: { kind: 'output', name }, direction: 'asc' }))]
}

const PARTS: ReadonlySet<string> = new Set<DatePart>([
  'year',
  'yearmonth',
  'yearweek',
  'month',
  'day',
  'hour',
  'minute',
  'week',
  'dow',
  'isodow',
])
const DATED: ReadonlySet<Kind> = new Set(['datetime', 'datetime_no_tz', 'date'])
const TIMED: ReadonlySet<Kind> = new Set(['time', 'time_no_tz'])
const UNGROUPABLE: ReadonlySet<Kind> = new Set(['geometry', 'geography', 'vector'])

function resolveKey(entry: string, name: string, view: View): GroupKey {
  const bucket = /^date:([^:]*):(.*)$/.exec(entry)
  const { steps, column, field } = resolveColumn(bucket?.[2] ?? entry, view, 'groupBy')
  const path = [...steps.map((step) => step.relation.name), field.name]
  const part = bucket === null ? undefined : readPart(bucket[1]!, field)
  if (UNGROUPABLE.has(field.kind)) throw errors.badQuery(`groupBy: ${quoted(entry)} cannot be grouped`)
  const spellings = part === undefined ? [path.join('.'), path.join('_')] : bucketKeys(part, path)
  return { name, path: { steps, column }, part, keys: [...new Set(spellings)] }
}

const bucketKeys = (part: DatePart, path: readonly string[]) => [
  `date:${part}:${path.join('.')}`,
  `${part}_${path.join('_')}`,
]

/** The other order of the words in a part's name. */
const TURNED: ReadonlyMap<string, DatePart> = new Map([
  ['monthyear', 'yearmonth'],
  ['weekyear', 'yearweek'],
])

function readPart(part: string, field: Field): DatePart {
  const fits = DATED.has(field.kind) || (TIMED.has(field.kind) && (part === 'hour' || part === 'minute'))
  if (!PARTS.has(part) || !fits) {
    const meant = nearName(part, PARTS) ?? TURNED.get(plain(part))
    const right = meant === undefined || meant === part ? '' : `, did you mean ${meant}?`
    throw errors.badQuery(`groupBy: no date part ${quoted(part)} of this field${right}`)
  }
  return part as DatePart
}

const ALIAS = /^[A-Za-z_][A-Za-z0-9_]{0,62}$/
const INHERITED = new Set(['__proto__', 'constructor', 'prototype'])

function resolveAggregate({ alias, fn, field }: AggregateEntry, name: string, view: View): Aggregate {
  if (!ALIAS.test(alias) || INHERITED.has(alias)) {
    throw errors.badQuery(`aggregate: ${quoted(alias)} must be letters, digits and underscores, at most 63`)
  }
  const applies = FUNCTIONS.get(fn)
  if (applies === undefined)
    throw errors.badQuery(`aggregate: unknown function ${quoted(fn)}${meantName(fn, FUNCTIONS.keys())}`)
  if (field === '*') {
    if (fn !== 'count') throw errors.badQuery(`aggregate: only count takes *, not ${fn}`)
    return { name, alias, fn: 'count', path: undefined }
  }
  const { steps, column } = resolveColumn(field, view, 'aggregate')
  if (!applies(column.kind)) throw errors.badQuery(`aggregate: ${fn} does not apply to ${quoted(field)}`)
  return { name, alias, fn: fn as AggregateFunction, path: { steps, column } }
}

const isNumeric = (kind: Kind) => kind === 'integer' || kind === 'bigint' || kind === 'decimal' || kind === 'float'
const hasOrder = (kind: Kind) =>
  isNumeric(kind) || kind === 'text' || kind === 'enum' || DATED.has(kind) || TIMED.has(kind)

const FUNCTIONS: ReadonlyMap<string, (kind: Kind) => boolean> = new Map([
  ['count', () => true],
  ['sum', isNumeric],
  ['avg', isNumeric],
  ['min', hasOrder],
  ['max', hasOrder],
  ['distinct', (kind: Kind) => !UNGROUPABLE.has(kind)],
  ['array_agg', () => true],
])

/**
 * An alias must not be the name of anything else in the answer. Columns beside the groups give way to it (resolveDetail): a
 * report keeps its meaning when the collection gets a field of that name.
 */
function requireDistinctNames(
  aggregates: readonly Aggregate[],
  keys: readonly GroupKey[],
  detail: Grouping['detail'],
): void {
  const groups = new Set(keys.flatMap((key) => key.keys))
  const relations = new Set(detail?.nested.map(({ step }) => step.relation.name))
  for (const { alias } of aggregates) {
    const other = groups.has(alias) ? 'group' : relations.has(alias) ? 'relation' : undefined
    if (other !== undefined) throw errors.badQuery(`aggregate: ${quoted(alias)} is already the name of a ${other}`)
  }
}

/** Rows of two to-many relations would multiply each other, and every sum with them. */
function requireOneBranch(paths: readonly ColumnPath[]): void {
  const branches = new Set(paths.map(toManyBranch).filter((branch) => branch !== ''))
  const isOneLine = [...branches].every((a) => [...branches].every((b) => a.startsWith(b) || b.startsWith(a)))
  if (!isOneLine) throw errors.badQuery('aggregate: only one to-many relation can be aggregated at a time')
}

/** The relations up to the last to-many one, each ended by a dot. */
function toManyBranch({ steps }: ColumnPath): string {
  const last = steps.findLastIndex((step) => isToMany(step.relation))
  return steps
    .slice(0, last + 1)
    .map((step) => `${step.relation.name}.`)
    .join('')
}

/** The IANA name of a time zone; undefined for UTC. 400 for what is none. */
export function readTimezone(timezone: string | undefined): string | undefined {
  if (timezone === undefined || timezone === 'UTC') return undefined
  // Names only: PostgreSQL reads the sign of a bare offset the other way round.
  if (!/^[A-Za-z][A-Za-z0-9_+\-/]{1,63}$/.test(timezone) || !isTimezone(timezone)) {
    throw errors.badQuery('timezone: expected a name such as Europe/Vienna')
  }
  return timezone
}

function isTimezone(name: string): boolean {
  try {
    return new Intl.DateTimeFormat('en', { timeZone: name }) !== undefined
  } catch (error) {
    if (error instanceof RangeError) return false
    throw error
  }
}

/** having is a filter whose fields are the aliases and the group keys in their underscore form. */
function resolveHaving(
  having: Filter | undefined,
  keys: readonly GroupKey[],
  aggregates: readonly Aggregate[],
  view: View,
): Predicate {
  if (having === undefined) return ALWAYS
  const fields = new Map<string, Field>()
  for (const { keys: spellings, name, part, path } of keys) {
    for (const key of spellings)
      fields.set(key.replaceAll('.', '_'), part ? partOutput(name, part) : outputOf(name, path))
  }
  for (const aggregate of aggregates) {
    if (aggregate.fn !== 'array_agg') fields.set(aggregate.alias, aggregateOutput(aggregate))
  }
  const collection = { ...view.collection, fields, relations: new Map() }
  return resolveFilter(having, { ...view, collection, mayRead: () => true, enter: () => undefined }, 'having')
}

function aggregateOutput({ name, fn, path }: Aggregate): Field {
  switch (fn) {
    case 'count':
    case 'distinct':
      return output(name, 'bigint')
    case 'sum':
      return output(name, 'decimal')
    case 'avg':
      return output(name, 'float')
    default:
      return outputOf(name, path!)
  }
}

const partOutput = (name: string, part: DatePart): Field => output(name, isTextPart(part) ? 'text' : 'integer')

const outputOf = (name: string, { column }: ColumnPath): Field => ({ ...output(name, column.kind), ...column, name })

const OUTPUT_TYPES: Partial<Record<Kind, string>> = { decimal: 'numeric', float: 'double precision' }

function output(name: string, kind: Kind): Field {
  return {
    name,
    type: kind,
    kind,
    pgType: OUTPUT_TYPES[kind] ?? kind,
    element: undefined,
    nullable: true,
    primaryKey: false,
    unique: false,
    default: undefined,
    generated: undefined,
    enumValues: undefined,
    hidden: false,
    unlogged: false,
    validate: undefined,
    systemGenerated: false,
  }
}

/**
 * A report with dotted names shows, beside each group, those fields of the group's first row: `category.name` comes
 * with `category: { id, name }`. Without dotted names what is not grouped is left out.
 */
function resolveDetail(query: ListQuery, keys: readonly GroupKey[], view: View): Grouping['detail'] {
  const taken = new Set([...keys.flatMap((key) => key.keys), ...query.aggregate.map(({ alias }) => alias)])
  const fields = (query.fields ?? []).filter((entry) => !entry.startsWith('date:'))
  const grouped = keys.filter(isRelatedColumn).map((key) => key.keys[0]!)
  const named = fields.some((entry) => entry.includes('.')) ? fields.filter((entry) => !isOwn(entry, taken)) : []
  const wanted = [...grouped, ...named]
  if (keys.length === 0 || wanted.length === 0) return undefined
  const { collection, columns, nested } = resolveFields(
    { fields: wanted, relConditions: query.relConditions, ignored: new Set() },
    view,
  )
  const beside = columns.filter(({ name }) => !taken.has(name))
  // PostgreSQL functions, json_build_object among them, take 100 arguments: 50 members.
  if (taken.size + beside.length + nested.length > 50) throw errors.badQuery('fields: too many for a grouped report')
  return { collection, columns: beside, nested }
}

const isOwn = (entry: string, taken: ReadonlySet<string>) => !entry.includes('.') && taken.has(entry)

const isRelatedColumn = ({ path, part }: GroupKey) =>
  part === undefined && path.steps.length > 0 && path.steps.every((step) => !isToMany(step.relation))
