import type { Check, CollectionDefinition, Field, FieldJson, Index, IndexMethod } from './catalog.ts'
import { invalid, objectOrUndefined } from './compile-field.ts'
import { expressionProblem } from './expressions.ts'
import { checkIdentifier, shortened } from './identifiers.ts'

export type Fields = ReadonlyMap<string, Field>

/** The declared indexes and the unique constraints, which PostgreSQL keeps as indexes too. */
export function indexesOf({ collectionName: name, schema }: CollectionDefinition, fields: Fields): readonly Index[] {
  const list = schema.indexes ?? []
  if (!Array.isArray(list)) throw invalid(name, 'indexes must be a list')
  const uniques = constraintList(name, schema.constraints).filter((json) => json.type === 'unique')
  const indexes = [
    ...list.map((json) => indexOf(name, json, fields)),
    ...uniques.map((json) => uniqueOf(name, json, fields)),
  ]
  checkNamesDiffer(
    name,
    indexes.map((index) => index.name),
  )
  return indexes
}

/** The CHECK constraints that a definition declares. */
export function checksOf({ collectionName: name, schema }: CollectionDefinition): readonly Check[] {
  const checks = constraintList(name, schema.constraints).flatMap((json) =>
    json.type === 'check' ? [checkOf(name, json)] : [],
  )
  checkNamesDiffer(
    name,
    checks.map((check) => check.name),
  )
  return checks
}

/**
 * A unique index counts per tenant (spec/permissions.md §7). Rows without a tenant count together, hence nulls are not
 * distinct; a row without a value in the index's own fields stays out of it, as it would in the index as declared.
 */
export function perTenant(index: Index, fields: Fields): Index {
  if (!index.unique || index.fields.includes('tenant_Id')) return index
  return {
    ...index,
    fields: ['tenant_Id', ...index.fields],
    nullsNotDistinct: true,
    whereNotNull: index.nullsNotDistinct ? [] : index.fields.filter((field) => fields.get(field)?.nullable),
  }
}

/** What `unique: true` of a field means as an index. */
export function uniqueFieldIndex(collection: string, field: Field): Index {
  return plainIndex(shortened(`${collection}_${field.name}_key`), [field.name], true)
}

export function plainIndex(name: string, fields: readonly string[], unique: boolean): Index {
  return { name, fields, unique, nullsNotDistinct: false, whereNotNull: [], method: 'btree' }
}

const methods: ReadonlySet<unknown> = new Set(['btree', 'hash', 'gin', 'gist'])

function indexOf(collection: string, json: unknown, fields: Fields): Index {
  const index = objectOrUndefined(json) ?? {}
  const columns = columnsOf(collection, index.fields, fields)
  const name = index.name ?? `${collection}_${columns.join('_')}_idx`
  checkIdentifier(`index of ${collection}`, name)
  const method = index.type ?? 'btree'
  if (!methods.has(method)) throw invalid(collection, `index ${name}: type must be btree, hash, gin or gist`)
  return {
    ...plainIndex(name, columns, index.unique === true),
    nullsNotDistinct: index.unique === true && index.nullsNotDistinct === true,
    method: method as IndexMethod,
  }
}

function uniqueOf(collection: string, json: FieldJson, fields: Fields): Index {
  const columns = columnsOf(collection, json.fields, fields)
  const name = json.name ?? shortened(`${collection}_${columns.join('_')}_key`)
  checkIdentifier(`constraint of ${collection}`, name)
  return { ...plainIndex(name, columns, true), nullsNotDistinct: json.nullsNotDistinct === true }
}

function columnsOf(collection: string, columns: unknown, fields: Fields): readonly string[] {
  if (!Array.isArray(columns) || columns.length === 0) throw invalid(collection, 'an index needs fields')
  const unknown = columns.find((column) => !fields.has(column))
  if (unknown !== undefined) throw invalid(collection, `an index names the unknown field ${JSON.stringify(unknown)}`)
  return columns
}

function checkOf(collection: string, { name, expression }: FieldJson): Check {
  checkIdentifier(`constraint of ${collection}`, name)
  if (typeof expression !== 'string') throw invalid(collection, `constraint ${name} needs an expression`)
  const problem = expressionProblem(expression)
  if (problem !== undefined) throw invalid(collection, `constraint ${name}: ${problem}`)
  return { name, expression }
}

/** A list, or an object by name. */
function constraintList(collection: string, json: unknown): readonly FieldJson[] {
  if (json === undefined || json === null) return []
  const named = objectOrUndefined(json)
  const list = named === undefined ? json : Object.entries(named).map(([name, entry]) => ({ name, ...Object(entry) }))
  const isList = Array.isArray(list) && list.every((entry) => ['check', 'unique'].includes(entry?.type))
  if (!isList) throw invalid(collection, 'constraints must be a list of {type: "check" | "unique", …}')
  return list as FieldJson[]
}

function checkNamesDiffer(collection: string, names: readonly string[]): void {
  const twice = names.find((name, i) => names.indexOf(name) !== i)
  if (twice !== undefined) throw invalid(collection, `there are two indexes or constraints named ${twice}`)
}
