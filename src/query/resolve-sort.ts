/** Full-text search, the order of rows, and cursors: places in that order. */
import type { Collection, Field, Kind } from '../catalog/catalog.ts'
import { isObject, parameterType, type TypedValue } from '../catalog/values.ts'
import { errors } from '../errors.ts'
import { MAX_CURSOR_TEXT, quoted } from './guards.ts'
import { VECTOR_METRICS, vectorValue } from './operators.ts'
import type { ListQuery, SortKey } from './parse.ts'
import type { Column, ColumnPath, Search, SortTerm } from './plan.ts'
import { mayNameUuid, searchWords } from './search-words.ts'
import { readableColumns, resolveColumn, type View } from './view.ts'

const UNSORTABLE: ReadonlySet<Kind> = new Set(['json', 'geometry', 'geography', 'vector'])
const SEARCHABLE: ReadonlySet<Kind> = new Set(['text', 'enum', 'uuid'])

/** The sort terms with the primary key last, so that pages never overlap. */
export function resolveSort(query: ListQuery, search: Search | undefined, view: View): readonly SortTerm[] {
  const { primaryKey } = view.collection
  const asked = query.sort.map((key) => resolveKey(key, view))
  const terms = asked.length > 0 ? asked : byRelevance(query, search)
  const isTotal = terms.some(
    ({ by }) => by.kind === 'path' && by.path.steps.length === 0 && by.path.column === primaryKey,
  )
  // In the direction of the key before it, so that one index can serve both.
  const direction = terms.at(-1)?.direction ?? 'asc'
  return isTotal ? terms : [...terms, { by: { kind: 'path', path: ownColumn(primaryKey) }, direction }]
}

/**
 * The words of `search` over the named columns, or over every text column that may be read. A UUID is made of beginnings of
 * words that nobody has written: short numbers would find rows at random, so UUIDs are looked at where a word is part of one.
 */
export function resolveSearch(query: ListQuery, view: View): Search | undefined {
  if (query.search === undefined) return undefined
  const columns = query.searchFields?.map((path) => searchColumn(path, view)) ?? defaultColumns(query.search, view)
  return { columns, words: searchWords(query.search) }
}

function byRelevance({ sortByRelevance }: ListQuery, search: Search | undefined): SortTerm[] {
  return sortByRelevance && search !== undefined ? [{ by: { kind: 'relevance', search }, direction: 'desc' }] : []
}

function resolveKey(key: SortKey, view: View): SortTerm {
  switch (key.kind) {
    case 'path':
      return { by: { kind: 'path', path: sortPath(key.path, view) }, direction: key.direction }
    case 'distance':
      return distanceTerm(key, view)
    case 'vectorDistance':
      return vectorTerm(key, view)
  }
}

function sortPath(path: string, view: View): ColumnPath {
  const { steps, column } = resolveColumn(path, view, 'sort')
  if (UNSORTABLE.has(column.kind)) throw errors.badQuery(`sort: ${quoted(path)} has no order`)
  return { steps, column }
}

function distanceTerm({ column: name, target, direction }: SortKey & { kind: 'distance' }, view: View): SortTerm {
  const column = ownField(name, view, ['geometry', 'geography'])
  if (!view.hasExtension('postgis')) throw errors.badQuery('sort: _distance needs a database extension')
  const [longitude, latitude] = Array.isArray(target) ? target.map(Number) : []
  if (!Number.isFinite(longitude) || !Number.isFinite(latitude)) {
    throw errors.badQuery('sort: _distance needs target [longitude, latitude]')
  }
  return { by: { kind: 'distance', column, longitude: longitude!, latitude: latitude! }, direction }
}

function vectorTerm(key: SortKey & { kind: 'vectorDistance' }, view: View): SortTerm {
  const column = ownField(key.column, view, ['vector'])
  if (!view.hasExtension('vector')) throw errors.badQuery('sort: _vectorDistance needs a database extension')
  const operator = VECTOR_METRICS.get(key.metric)
  if (operator === undefined) throw errors.badQuery('sort: _vectorDistance operator is unknown')
  const vector = vectorValue(key.vector, column, 'sort._vectorDistance')
  return { by: { kind: 'vectorDistance', column, operator, vector }, direction: key.direction }
}

function ownField(name: string, view: View, kinds: readonly Kind[]): Field {
  const { steps, field } = resolveColumn(name, view, 'sort')
  if (steps.length > 0 || !kinds.includes(field.kind)) throw errors.badQuery(`sort: ${quoted(name)} has no distance`)
  return field
}

function searchColumn(path: string, view: View): ColumnPath {
  const { steps, column, field, view: last } = resolveColumn(path, view, 'searchFields')
  if (!last.maySearch(field)) throw errors.searchDenied(path)
  if (!SEARCHABLE.has(column.kind)) throw errors.badQuery(`searchFields: ${quoted(path)} is not text`)
  return { steps, column }
}

function defaultColumns(search: string, view: View): ColumnPath[] {
  const hasUuid = mayNameUuid(search)
  return readableColumns(view)
    .filter(({ kind }) => SEARCHABLE.has(kind) && (kind !== 'uuid' || hasUuid))
    .map(ownColumn)
}

const ownColumn = (column: Field): ColumnPath => ({ steps: [], column })

/*
 * Cursors of lists: the place after a row in the order of one sort, as text for the client to hand back. A cursor holds
 * what the row is sorted by and no rights: grants and rules are applied to every page anew, so a forged one is only
 * another place in what its user may read anyway.
 */

/** Raised when the meaning of the content changes; other versions are refused. */
const VERSION = 1

/** Ordered by columns only, each with a value that can be written down. */
type KeyTerm = SortTerm & { readonly by: { readonly kind: 'path' } }

export const isKeyTerm = (term: SortTerm): term is KeyTerm => term.by.kind === 'path'

type CursorContent = { readonly v: number; readonly of: string; readonly after: readonly (string | null)[] }

/** `after`: the text forms of the row's sort values. 400 when they do not fit a query string. */
export function writePageCursor(
  collection: Collection,
  sort: readonly SortTerm[],
  after: readonly (string | null)[],
): string {
  const content: CursorContent = { v: VERSION, of: orderOf(collection, sort), after }
  const text = Buffer.from(JSON.stringify(content)).toString('base64url')
  if (text.length > MAX_CURSOR_TEXT) throw errors.badQuery('cursor: the values of the sort are too long for a cursor')
  return text
}

/** The sort values after which the next page begins. 400 for anything but a cursor of this collection and sort. */
export function readPageCursor(text: string, collection: Collection, sort: readonly KeyTerm[]): readonly TypedValue[] {
  const content = text.length > MAX_CURSOR_TEXT ? undefined : contentOf(text)
  if (content === undefined || content.after.length !== sort.length) throw errors.badQuery('cursor: malformed')
  if (content.of !== orderOf(collection, sort))
    throw errors.badQuery('cursor: belongs to another collection or another sort')
  return sort.map(({ by }, i) => ({ value: content.after[i]!, pgType: keyType(by.path.column) }))
}

/** `country: name asc, id asc` */
function orderOf({ name }: Collection, sort: readonly SortTerm[]): string {
  const terms = sort.filter(isKeyTerm).map(({ by: { path }, direction }) => {
    const names = [...path.steps.map((step) => step.relation.name), path.column.name]
    return `${names.join('.')} ${direction}`
  })
  return `${name}: ${terms.join(', ')}`
}

/** Arrays compare with their own type only. */
const keyType = (column: Column): string => (column.kind === 'array' ? column.pgType : parameterType(column))

function contentOf(text: string): CursorContent | undefined {
  const json = parsed(Buffer.from(text, 'base64url').toString())
  if (!isObject(json) || json.v !== VERSION || typeof json.of !== 'string' || !Array.isArray(json.after))
    return undefined
  return json.after.every(isKeyText) ? (json as CursorContent) : undefined
}

const isKeyText = (value: unknown): boolean => value === null || (typeof value === 'string' && !value.includes('\0'))

function parsed(json: string): unknown {
  try {
    return JSON.parse(json)
  } catch (error) {
    if (error instanceof SyntaxError) return undefined
    throw error
  }
}
