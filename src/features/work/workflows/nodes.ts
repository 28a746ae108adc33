import { isObject } from '../../../query/guards.ts'
import {
  type Condition,
  type ExpansionRoom,
  evaluate,
  fill,
  isOperator,
  meets,
  openRoom,
  parsePath,
  pathsIn,
  resolve,
  resolveFilter,
  setAt,
  type TemplateScope,
  textOf,
  valueAt,
} from './expressions.ts'

/**
 * THE table of node types: their needs, whether they change anything, and the outputs of those that change nothing.
 * effects.ts has the others.
 */

export type NodeData = Readonly<Record<string, unknown>>

/** Notes what is wrong with a node. */
type ReportProblem = (message: string) => void

type Doubt = { readonly code: string; readonly message: string }

type NodeType = {
  /**
   * `none`: its output follows from the context alone. `structure`: it has a body. `database`: what it does is part of the
   * transaction that keeps its output, so exactly once. `outside`: at least once, under one key. `wait`: it goes on later.
   */
  readonly effect: 'none' | 'structure' | 'database' | 'outside' | 'wait'
  /** The members of its data; others mean nothing. */
  readonly members: readonly string[]
  /** Whether saving it takes an administrator. */
  readonly needsAdmin?: (data: NodeData) => string | undefined
  /** Why it cannot be part of a change that is still being made, and what to do instead. */
  readonly notBefore?: (data: NodeData) => string | undefined
  /** Its `filter` is one of a query. */
  readonly filters?: true
  /** The list that it asks for, as far as that is known before templates are replaced. */
  readonly list?: (data: NodeData) => AskedList | undefined
  /** Members in which templates mean nothing yet, or ever. */
  readonly raw?: readonly string[]
  /** Members that people read: null is empty there. */
  readonly texts?: readonly string[]
  readonly check: (data: NodeData, report: ReportProblem) => void
  /** Harmless but useless data, which saves with a warning. */
  readonly doubts?: (data: NodeData) => readonly Doubt[]
  /** Throws `NodeError` for what cannot be done. Only of `none`. */
  readonly give?: (data: NodeData, scope: TemplateScope, room: ExpansionRoom) => unknown
}

/** A list of the rows of a collection; `query` as in a query string. */
export type AskedList = { readonly collection: string; readonly query: Readonly<Record<string, unknown>> }

/** Why a node failed, in words for the people who made or watch the workflow. */
export class NodeError extends Error {
  override readonly name = 'NodeError'
  /** The status of the answer when a before-hook refuses. */
  readonly status: number | undefined
  constructor(message: string, status?: number, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause })
    this.status = status
  }
}

/** The message of a script's failure, with the place in the script for those who maintain it. */
export const placed = (message: string, place: string | undefined): string =>
  place === undefined ? message : `${message} (${place})`

/** The message alone, for those who are refused by it. */
export const withoutPlace = (message: string): string => message.replace(/ \(script\.js:\d+(:\d+)?\)$/, '')

export const isTemplate = (value: unknown): boolean => typeof value === 'string' && value.includes('{{')
export const isFilled = (value: unknown): boolean => (typeof value === 'string' ? value.trim() !== '' : value != null)

const needs =
  (...names: readonly string[]) =>
  (data: NodeData, report: ReportProblem) => {
    for (const name of names) if (!isFilled(data[name])) report(`${name} is missing`)
  }

const oneOf = (data: NodeData, name: string, words: readonly string[], report: ReportProblem) => {
  const value = data[name]
  if (value !== undefined && value !== null && !isTemplate(value) && !words.includes(String(value)))
    report(`${name} must be one of ${words.join(', ')}`)
}

const within = (data: NodeData, name: string, [least, most]: readonly [number, number], report: ReportProblem) => {
  const value = data[name]
  if (value === undefined || value === null || value === '' || isTemplate(value)) return
  const number = Number(value)
  if (typeof value === 'boolean' || !Number.isFinite(number) || number < least || number > most)
    report(`${name} must be a number from ${least} to ${most}`)
}

const isText = (value: unknown): value is string => typeof value === 'string' && value !== ''

/** The members of a query, without the empty ones, which ask for nothing. */
const asked = (query: NodeData): NodeData =>
  Object.fromEntries(Object.entries(query).filter(([, value]) => value != null && value !== ''))

/** The list of a `stats` node: one row, or one for each group. */
export const statsQuery = ({ operation, field, groupBy, filter }: NodeData) => ({
  aggregate: {
    result: {
      function: operation === 'average' ? 'avg' : operation,
      field: field == null || field === '' ? '*' : field,
    },
  },
  ...asked({ groupBy, filter }),
})

const ofRights = ['executeAsAnonymous', 'bypassPermissions']
const always = (reason: string) => () => reason
const scripts = always('scripts')
const bypass = (data: NodeData) => (data.bypassPermissions === true ? 'bypassPermissions' : undefined)

export const longestDelayMs = 366 * 86_400_000
const mostIterations = 10_000

export const nodeTypes: Readonly<Record<string, NodeType>> = {
  trigger: { members: [], effect: 'none', check: () => undefined },
  condition: {
    members: ['conditions', 'operator'],
    effect: 'structure',
    raw: ['conditions'],
    check: checkConditions,
    doubts: unknownOperators,
  },
  loop: {
    members: ['loopType', 'arraySource', 'startIndex', 'endIndex', 'maxIterations'],
    effect: 'structure',
    raw: ['arraySource'],
    check: checkLoop,
  },
  try: { members: [], effect: 'structure', check: () => undefined },
  transform: {
    members: ['transformType', 'mapping', 'script'],
    effect: 'none',
    needsAdmin: ({ transformType }) => (transformType === 'script' ? 'scripts' : undefined),
    raw: ['script', 'mapping'],
    check(data, report) {
      oneOf(data, 'transformType', ['script', 'mapping'], report)
      if (data.transformType === 'script') return needs('script')(data, report)
      if (!isObject(data.mapping) || Object.keys(data.mapping).length === 0) return report('mapping is missing')
      for (const target of Object.keys(data.mapping))
        if (parsePath(target) === undefined) report(`mapping: ${target} is no path`)
    },
    give: ({ mapping }, scope, room) => mapped(mapping as NodeData, scope, room),
  },
  variable: {
    members: ['variables'],
    effect: 'none',
    check: ({ variables }, report) => {
      if (variables != null && !isObject(variables)) report('variables must be an object')
    },
    doubts: ({ variables }) =>
      Object.keys((variables as object | null) ?? {}).length > 0
        ? []
        : [{ code: 'no_variables', message: 'The node sets no variables' }],
    give: ({ variables }) => ({ success: true, variables: variables ?? {} }),
  },
  filter: {
    members: ['arraySource', 'conditions', 'operator'],
    effect: 'none',
    raw: ['arraySource', 'conditions'],
    check(data, report) {
      needs('arraySource')(data, report)
      checkConditions(data, report)
    },
    doubts: unknownOperators,
    give(data, scope, room) {
      const items = arrayOf(data.arraySource, scope)
      const kept = items.filter((current) => holds(data, { ...scope, current }, { current, room }))
      return { items: kept, count: kept.length }
    },
  },
  aggregate: {
    members: ['arraySource', 'operation', 'field'],
    effect: 'none',
    raw: ['arraySource'],
    check(data, report) {
      needs('arraySource', 'operation')(data, report)
      oneOf(data, 'operation', Object.keys(aggregates), report)
      if (
        ['sum', 'average', 'min', 'max'].includes(String(data.operation)) &&
        data.field != null &&
        typeof data.field !== 'string'
      )
        report('field must be a path')
    },
    give: (data, scope) => ({ result: aggregated(data, arrayOf(data.arraySource, scope)) }),
  },
  respond: {
    members: ['status', 'body', 'headers'],
    effect: 'none',
    notBefore: always('there is nobody to respond to: the change is answered'),
    check: (data, report) => within(data, 'status', [200, 599], report),
    give: ({ status = 200, body = null, headers = {} }) => ({ status: Number(status), body, headers }),
  },
  service: {
    members: [
      'operation',
      'collection',
      'itemId',
      'data',
      'filter',
      'sort',
      'limit',
      'page',
      'search',
      'fields',
      ...ofRights,
    ],
    effect: 'database',
    filters: true,
    needsAdmin: bypass,
    check(data, report) {
      needs('operation', 'collection')(data, report)
      oneOf(data, 'operation', ['create', 'read', 'update', 'delete'], report)
      if (data.operation === 'create' && data.data == null) report('data is missing')
      if (data.operation === 'update' && data.data == null) report('data is missing')
      if ((data.operation === 'update' || data.operation === 'delete') && !isFilled(data.itemId))
        report('itemId is missing')
    },
    list({ operation, collection, itemId, fields, filter, sort, limit, page, search }) {
      if (operation !== 'read' || !isText(collection)) return undefined
      return { collection, query: asked({ fields, ...(!isFilled(itemId) && { filter, sort, limit, page, search }) }) }
    },
  },
  notification: {
    members: ['userId', 'title', 'message', 'type', 'data', ...ofRights],
    effect: 'database',
    needsAdmin: bypass,
    check: needs('userId', 'title'),
  },
  // Values in the body, which is HTML, are escaped.
  email: {
    members: ['to', 'from', 'subject', 'body', 'escape'],
    effect: 'database',
    raw: ['body'],
    texts: ['subject'],
    check: needs('to', 'subject', 'body'),
  },
  stats: {
    members: ['collection', 'operation', 'field', 'groupBy', 'filter', ...ofRights],
    effect: 'database',
    filters: true,
    needsAdmin: bypass,
    check(data, report) {
      needs('collection', 'operation')(data, report)
      oneOf(data, 'operation', statsOperations, report)
      if (data.operation !== 'count' && !isTemplate(data.operation) && !isFilled(data.field)) report('field is missing')
    },
    list(data) {
      const { operation, field, groupBy, collection, filter } = data
      if (!isText(collection)) return undefined
      const isKnown = ![operation, field, groupBy].some(isTemplate)
      return { collection, query: isKnown ? statsQuery(data) : asked({ filter }) }
    },
  },
  file: {
    members: ['operation', 'fileId', 'filter', 'limit', ...ofRights],
    effect: 'database',
    filters: true,
    needsAdmin: bypass,
    notBefore: ({ operation }) =>
      operation === 'delete' ? 'files cannot be deleted before the change is made: use the .after action' : undefined,
    check(data, report) {
      needs('operation')(data, report)
      oneOf(data, 'operation', ['info', 'delete', 'list'], report)
      if (data.operation !== 'list' && !isFilled(data.fileId)) report('fileId is missing')
      within(data, 'limit', [1, 1000], report)
    },
    list: ({ operation, filter }) =>
      operation === 'list' ? { collection: 'svc_File', query: asked({ filter }) } : undefined,
  },
  http: {
    members: ['url', 'method', 'headers', 'body', 'timeout', 'retries', 'retryDelay'],
    effect: 'outside',
    notBefore: always('nothing outside can be called before the change is made: use the .after action'),
    needsAdmin: (data) => (pathsIn(data).some((path) => parsePath(path)?.[0] === 'secrets') ? 'secrets' : undefined),
    check(data, report) {
      needs('url')(data, report)
      oneOf(data, 'method', ['GET', 'POST', 'PUT', 'PATCH', 'DELETE', 'HEAD', 'OPTIONS'], report)
      if (data.headers != null && !isObject(data.headers) && !isTemplate(data.headers))
        report('headers must be an object')
      if (typeof data.url === 'string' && !isTemplate(data.url) && !/^https?:\/\//i.test(data.url))
        report('url must be an http or https address')
      within(data, 'timeout', [1, 120_000], report)
      within(data, 'retries', [0, 10], report)
      within(data, 'retryDelay', [0, 86_400_000], report)
    },
  },
  script: { members: ['script'], effect: 'outside', needsAdmin: scripts, raw: ['script'], check: needs('script') },
  delay: {
    members: ['delay'],
    effect: 'wait',
    notBefore: always('the change cannot wait: use the .after action'),
    check(data, report) {
      needs('delay')(data, report)
      within(data, 'delay', [0, longestDelayMs], report)
    },
  },
  workflow: {
    members: ['workflowId', 'passData', 'dataMapping', 'waitForCompletion', 'timeout'],
    effect: 'wait',
    notBefore: ({ waitForCompletion }) =>
      waitForCompletion === false ? 'a workflow that is not waited for belongs in the .after action' : undefined,
    raw: ['dataMapping'],
    check(data, report) {
      needs('workflowId')(data, report)
      if (data.dataMapping != null && !isObject(data.dataMapping)) report('dataMapping must be an object')
      within(data, 'timeout', [1, 86_400_000], report)
    },
  },
}

export const statsOperations = ['count', 'sum', 'avg', 'average', 'min', 'max']

/** Whether a script runs in the node. */
export const isScript = (type: string, data: NodeData): boolean =>
  type === 'script' || (type === 'transform' && data.transformType === 'script')

/** The data of a node with its templates replaced, as it is shown and done. */
export function inputOf(type: string, data: NodeData, scope: TemplateScope, room = openRoom()): NodeData {
  const { raw = [], texts = [], filters = false } = nodeTypes[type] ?? {}
  const given = (name: string, value: unknown) => {
    if (texts.includes(name) && typeof value === 'string') return fill(value, scope, undefined, room)
    return filters && name === 'filter' ? resolveFilter(value, scope, room) : resolve(value, scope, room)
  }
  const entries = Object.entries(data).filter(([name]) => name !== 'label')
  return Object.fromEntries(entries.map(([name, value]) => [name, raw.includes(name) ? value : given(name, value)]))
}

/** Whether the conditions of a node hold; bare names mean members of `current`, where there is one. */
export function holds(
  { conditions, operator }: NodeData,
  scope: TemplateScope,
  { current, room = openRoom() }: { readonly current?: unknown; readonly room?: ExpansionRoom } = {},
): boolean {
  const list = Array.isArray(conditions) ? (conditions as Condition[]) : []
  const values = ({ field, value }: Condition) => ({
    left: fieldOf(field, scope, current),
    right: resolve(value, scope, room),
  })
  return meets(list, operator, values, room)
}

function fieldOf(field: unknown, scope: TemplateScope, current: unknown): unknown {
  if (typeof field !== 'string' || field.includes('{{')) return evaluate(field, scope)
  const names = parsePath(field)
  if (names === undefined) return undefined
  const own = current === undefined ? undefined : valueAt(current, names)
  return own === undefined ? valueAt(scope, names) : own
}

/** @throws {NodeError} for what is no list */
function arrayOf(source: unknown, scope: TemplateScope): readonly unknown[] {
  const value = evaluate(source, scope)
  if (!Array.isArray(value)) throw new NodeError(`arraySource ${textOf(source ?? null)} is not an array`)
  return value
}

/** An object of what paths and templates name. */
export function mapped(mapping: NodeData, scope: TemplateScope, room = openRoom()): Record<string, unknown> {
  const made: Record<string, unknown> = {}
  for (const [target, source] of Object.entries(mapping)) {
    const names = parsePath(target)
    if (names === undefined) throw new NodeError(`mapping: ${target} is no path`)
    const found = evaluate(source, scope, room)
    // A text that is no path into the context is meant as it is.
    const value = found === undefined && typeof source === 'string' && !isKnownPath(source) ? source : found
    setAt(made, names, value ?? null)
  }
  return made
}

const roots: ReadonlySet<string> = new Set(['trigger', 'outputs', 'variables', 'loop', 'current', 'error', 'execution'])
const isKnownPath = (text: string) => text.includes('{{') || roots.has(parsePath(text)?.[0] ?? '')

function checkConditions({ conditions, operator }: NodeData, report: ReportProblem): void {
  if (!Array.isArray(conditions) || conditions.length === 0) {
    report('conditions are missing')
    return
  }
  if (operator != null && operator !== 'AND' && operator !== 'OR') report('operator must be AND or OR')
  for (const [i, condition] of conditions.entries()) {
    if (!isObject(condition)) report(`condition ${i} must be an object`)
    else if (!isFilled(condition.field)) report(`condition ${i} has no field`)
    else if (!isFilled(condition.operator)) report(`condition ${i} has no operator`)
  }
}

function unknownOperators({ conditions }: NodeData): readonly Doubt[] {
  return (Array.isArray(conditions) ? conditions : []).flatMap((condition, i) =>
    isObject(condition) && isFilled(condition.operator) && !isOperator(condition.operator)
      ? [{ code: 'unknown_operator', message: `condition ${i} has an unknown operator: it never holds` }]
      : [],
  )
}

function checkLoop(data: NodeData, report: ReportProblem): void {
  oneOf(data, 'loopType', ['array', 'count'], report)
  within(data, 'maxIterations', [1, mostIterations], report)
  needs(data.loopType === 'count' ? 'endIndex' : 'arraySource')(data, report)
}

/** The iterations of a loop: items, or numbers from `startIndex` up to, but not including, `endIndex`. */
export function iterationsOf(
  data: NodeData,
  scope: TemplateScope,
): { readonly items: readonly unknown[] | undefined; readonly first: number; readonly total: number } {
  const most = Number(data.maxIterations ?? 1000)
  const counted = data.loopType === 'count'
  const items = counted ? undefined : arrayOf(data.arraySource, scope)
  const first = counted ? Number(data.startIndex ?? 0) : 0
  const total = items?.length ?? Math.max(0, Math.ceil(Number(data.endIndex) - first))
  if (Number.isNaN(total)) throw new NodeError('startIndex and endIndex must be numbers')
  if (!(total <= Math.min(most, mostIterations)))
    throw new NodeError(`${total} iterations are more than maxIterations (${most})`)
  return { items, first, total }
}

const filledIn = (items: readonly unknown[], field: unknown): readonly unknown[] =>
  items.map((item) => memberOf(item, field)).filter((value) => value != null && value !== '')

/** A total without what is no number would be wrong, and nobody would see it. */
const numbersIn = (items: readonly unknown[], field: unknown): readonly number[] =>
  filledIn(items, field).map((value) => {
    const number = isNumeric(value) ? Number(value) : Number.NaN
    if (Number.isNaN(number)) throw new NodeError(`${JSON.stringify(value).slice(0, 100)} is no number`)
    return number
  })

const isNumeric = (value: unknown): boolean =>
  typeof value === 'number' || (typeof value === 'string' && value.trim() !== '' && !Number.isNaN(Number(value)))

function memberOf(item: unknown, field: unknown): unknown {
  if (!isFilled(field)) return item
  const names = parsePath(String(field))
  return names === undefined ? undefined : valueAt(item, names)
}

/** The value that comes first or last: numbers by value, texts such as dates by their characters. */
function extreme(items: readonly unknown[], field: unknown, which: 'min' | 'max'): unknown {
  const values = filledIn(items, field)
  if (values.length === 0) return null
  const areTexts = values.every((value) => typeof value === 'string') && !values.every(isNumeric)
  if (!areTexts) return numbersIn(items, field).reduce((a, b) => Math[which](a, b))
  return values.reduce((a, b) => ((which === 'min' ? a! <= b! : a! >= b!) ? a : b))
}

const sum = (items: readonly unknown[], field: unknown) => numbersIn(items, field).reduce((a, b) => a + b, 0)

const aggregates: Readonly<Record<string, (items: readonly unknown[], field: unknown) => unknown>> = {
  count: (items) => items.length,
  sum,
  average: (items, field) => {
    const { length } = numbersIn(items, field)
    return length === 0 ? null : sum(items, field) / length
  },
  min: (items, field) => extreme(items, field, 'min'),
  max: (items, field) => extreme(items, field, 'max'),
  first: (items, field) => (items.length === 0 ? null : (memberOf(items[0], field) ?? null)),
  last: (items, field) => (items.length === 0 ? null : (memberOf(items.at(-1), field) ?? null)),
}

function aggregated({ operation, field }: NodeData, items: readonly unknown[]): unknown {
  const name = String(operation)
  if (!Object.hasOwn(aggregates, name)) throw new NodeError(`there is no operation ${name}`)
  return aggregates[name]!(items, field)
}
