import { createHash } from 'node:crypto'
import { AppError } from '../errors.ts'
import { shown } from '../language/text.ts'

const grammar = /^[A-Za-z_][A-Za-z0-9_]*$/
/** PostgreSQL's limit in bytes; the grammar allows one-byte characters only. */
export const maxNameLength = 63

const reserved = new Set(
  'user group order limit offset where select insert update delete table from join left right inner outer cross natural using on'.split(
    ' ',
  ),
)

/** Names that no object of ours can take: dangerous in any JavaScript object that ever holds them, or columns of every table. */
const reservedBy: ReadonlyMap<string, string> = new Map([
  ...['__proto__', 'constructor', 'prototype'].map((name) => [name, 'JavaScript'] as const),
  ...['tableoid', 'ctid', 'xmin', 'xmax', 'cmin', 'cmax'].map((name) => [name, 'PostgreSQL'] as const),
])

/**
 * The identifier grammar of collections, fields, foreign keys and indexes: letters, digits and underscore, at most 63
 * bytes. Enforced when a name is declared, so no later place has to fear a quote in one.
 */
export function checkIdentifier(what: string, name: unknown): asserts name is string {
  const owner = typeof name === 'string' ? reservedBy.get(name) : undefined
  if (owner !== undefined)
    throw new AppError(400, `Invalid ${what}: ${owner} reserves the name ${name}`, {
      code: 'INVALID_IDENTIFIER',
      details: [name],
    })
  if (typeof name !== 'string' || !grammar.test(name))
    throw new AppError(400, `Invalid ${what}: letters, digits and underscore only, not starting with a digit`, {
      code: 'INVALID_IDENTIFIER',
      details: [shown(name).slice(0, 80)],
    })
  if (name.length > maxNameLength)
    throw new AppError(400, `Invalid ${what}: more than ${maxNameLength} characters`, {
      code: 'INVALID_IDENTIFIER',
      details: [name.slice(0, 80)],
    })
}

/** Names of fields that a filter takes for its own words, so no filter could ever name them. */
const filterWords = new Set(['and', 'AND', 'or', 'OR', 'not', 'NOT'])

/** As {@link checkIdentifier}, for a field or relation that is declared now. */
export function checkMemberName(what: string, name: unknown): asserts name is string {
  checkIdentifier(what, name)
  if (filterWords.has(name))
    throw new AppError(400, `Invalid ${what}: ${name} is a word of filters`, {
      code: 'INVALID_IDENTIFIER',
      details: [name],
    })
}

/** Names of collections of the platform itself and of the database's own tables; clients may not declare one. */
export const isReservedName = (name: string): boolean => /^(svc_|pg_)/i.test(name)

/** Whether a collection of this name could be declared, now or later. */
export function isCollectionName(name: unknown): name is string {
  if (typeof name !== 'string' || isReservedName(name)) return false
  try {
    checkIdentifier('collection name', name)
    return true
  } catch (error) {
    if (error instanceof AppError) return false
    throw error
  }
}

/** As {@link checkIdentifier}; a relation may besides not have its collection's name. */
export function checkRelationName(collection: string, name: string): void {
  checkIdentifier(`relation of ${collection}`, name)
  if (name === collection)
    throw new AppError(400, `Invalid relation of ${collection}: it has the collection's name`, {
      code: 'INVALID_IDENTIFIER',
      details: [name],
    })
}

/** Names that the relationships route refuses for relations of the installation's collections; inline they may be. */
export function checkUnreserved(collection: string, name: string): void {
  if (reserved.has(name.toLowerCase()) && !collection.startsWith('svc_'))
    throw new AppError(400, `Invalid relation of ${collection}: ${name} is a reserved word`, {
      code: 'INVALID_IDENTIFIER',
      details: [name],
    })
}

/** Whether an entry is called like the column of a relation: `categoryId`, `category_id`, `category_Id` of `category`. */
export function isColumnOf(entry: string, relation: string): boolean {
  const isPrefixed = entry.toLowerCase().startsWith(relation.toLowerCase())
  return isPrefixed && /^_?id$/i.test(entry.slice(relation.length))
}

/** Whether a relation of the collection could have this name, as far as the name itself goes. */
export function isRelationName(collection: string, name: string): boolean {
  return name !== collection && !reserved.has(name.toLowerCase())
}

/** PostgreSQL cuts names at 63 bytes and two may become one; a hash of the whole keeps generated names apart. */
export function shortened(name: string): string {
  if (name.length <= maxNameLength) return name
  const hash = createHash('sha256').update(name).digest('hex').slice(0, 8)
  const suffix = name.slice(name.lastIndexOf('_'))
  return `${name.slice(0, maxNameLength - suffix.length - 9)}_${hash}${suffix}`
}
