/**
 * Cursors of lists: the place after a row in the order of one sort, as text for the client to hand back. It holds what
 * the row is sorted by and no rights: grants and rules are applied to every page anew, so a cursor that somebody made up
 * is only another place in what its user may read anyway.
 */
import type { Collection } from '../catalog/catalog.ts'
import { errors } from '../errors.ts'
import { isObject, MAX_CURSOR_TEXT } from './guards.ts'
import type { Column, SortTerm } from './plan.ts'
import type { TypedValue } from './sql.ts'
import { parameterType } from './values.ts'

/** Raised when the meaning of the content changes; other versions are refused. */
const VERSION = 1

/** Ordered by columns only, each with a value that can be written down. */
export type KeyTerm = SortTerm & { readonly by: { readonly kind: 'path' } }

export const isKeyTerm = (term: SortTerm): term is KeyTerm => term.by.kind === 'path'

type Content = { readonly v: number; readonly of: string; readonly after: readonly (string | null)[] }

/** `after`: the text forms of the row's sort values. 400 when they do not fit a query string. */
export function writePageCursor(
  collection: Collection,
  sort: readonly SortTerm[],
  after: readonly (string | null)[],
): string {
  const content: Content = { v: VERSION, of: orderOf(collection, sort), after }
  const text = Buffer.from(JSON.stringify(content)).toString('base64url')
  if (text.length > MAX_CURSOR_TEXT) throw errors.badQuery('cursor: the values of the sort are too long for a cursor')
  return text
}

/** The sort values behind which the next page begins. 400 for anything but a cursor of this collection and sort. */
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

function contentOf(text: string): Content | undefined {
  const json = parsed(Buffer.from(text, 'base64url').toString())
  if (!isObject(json) || json.v !== VERSION || typeof json.of !== 'string' || !Array.isArray(json.after))
    return undefined
  return json.after.every(isKeyText) ? (json as Content) : undefined
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
