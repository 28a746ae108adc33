import { isDeepStrictEqual } from 'node:util'
import { nearName } from '../language/text.ts'
import type { Collection, FieldJson, IndexJson, SchemaJson } from './catalog.ts'
import { switchColumns } from './compile.ts'
import { refused, type SchemaPatch } from './declared.ts'
import { withoutFields } from './definitions.ts'
import type { DefinitionProblem } from './shape.ts'

/**
 * A change of a definition put on what is stored: what the change leaves out stays, what it gives replaces the entry of
 * that name, null removes. Pure.
 */

export type MergedSchema = {
  readonly schema: SchemaJson
  /** Columns that the change itself gives up; the loss of any other is a mistake. */
  readonly givenUp: ReadonlySet<string>
}

/** 400 for a null that names nothing, or what only a switch removes. */
export function merged(collection: Collection, patch: SchemaPatch): MergedSchema {
  const stored = collection.definition.schema
  const { fields = {}, indexes, constraints, ...others } = patch
  const nulls = Object.keys(fields).filter((name) => fields[name] === null)
  const problems = nulls.flatMap((name) => nullProblems(collection, name))
  if (problems.length > 0) throw refused(collection.name, problems)
  const entries = [...nulls, ...relationsOn(collection, nulls, fields)]
  const gone = [...entries, ...derivedColumns(collection, entries, fields)]
  const kept = without(collection, gone)
  const schema = {
    ...kept,
    ...others,
    fields: mergedFields(kept.fields, fields),
    ...(Object.hasOwn(patch, 'indexes') && { indexes: mergedIndexes(collection.name, kept.indexes, indexes) }),
    ...(Object.hasOwn(patch, 'constraints') && { constraints: mergedConstraints(collection.name, kept, constraints) }),
  }
  return { schema: settled(stored, schema), givenUp: givenUp(gone, patch) }
}

/** The whole definition that a change without its nulls makes. */
export function whole(patch: SchemaPatch): SchemaJson {
  const fields = Object.entries(patch.fields ?? {}).filter(([, json]) => json !== null)
  const others = Object.entries(patch).filter(([, value]) => value !== null)
  return { ...Object.fromEntries(others), fields: Object.fromEntries(fields) } as SchemaJson
}

function nullProblems(
  { name: collection, definition, fields, relations }: Collection,
  name: string,
): DefinitionProblem[] {
  if (Object.hasOwn(definition.schema.fields, name)) return []
  const path = `fields.${name}`
  const adding = Object.entries(switchColumns).find(([, columns]) => columns.includes(name))?.[0]
  if (adding !== undefined && fields.has(name))
    return [{ path, message: `is added by ${adding}: set that to false to remove it` }]
  if (fields.get(name)?.primaryKey) return [{ path, message: 'is the primary key and cannot be removed' }]
  if ([...relations.values()].some(({ kind, foreignKey }) => kind === 'belongsTo' && foreignKey === name)) return []
  const near = nearName(name, Object.keys(definition.schema.fields))
  const meant = near === undefined ? '' : `, did you mean ${near}?`
  return [{ path, message: `${collection} has no field ${name}${meant}` }]
}

/** A relation without its column would only make it again. */
function relationsOn({ definition, relations }: Collection, columns: readonly string[], fields: FieldJson): string[] {
  return [...relations.values()]
    .filter(({ kind, foreignKey }) => kind === 'belongsTo' && columns.includes(foreignKey))
    .map(({ name }) => name)
    .filter((name) => Object.hasOwn(definition.schema.fields, name) && !Object.hasOwn(fields, name))
}

/** Columns that only relations which are removed had brought. */
function derivedColumns({ definition, relations }: Collection, gone: readonly string[], fields: FieldJson): string[] {
  const holders = [...relations.values()].filter(({ kind }) => kind === 'belongsTo')
  const isHeld = (column: string) =>
    holders.some(({ name, foreignKey }) => foreignKey === column && !gone.includes(name)) ||
    Object.hasOwn(definition.schema.fields, column) ||
    Object.hasOwn(fields, column)
  return holders
    .filter(({ name, foreignKey }) => gone.includes(name) && !isHeld(foreignKey))
    .map(({ foreignKey }) => foreignKey)
}

function without({ name, definition }: Collection, gone: readonly string[]): SchemaJson {
  return withoutFields(new Map([[name, definition.schema]]), name, gone).get(name)!
}

/** In the order of the change where it names them all, else of what is stored. */
function mergedFields(kept: SchemaJson['fields'], given: NonNullable<SchemaPatch['fields']>): SchemaJson['fields'] {
  const present = Object.entries(given).filter((entry): entry is [string, FieldJson] => entry[1] !== null)
  const isWhole = Object.keys(kept).every((name) => Object.hasOwn(given, name))
  return isWhole ? Object.fromEntries(present) : { ...kept, ...Object.fromEntries(present) }
}

function mergedIndexes(collection: string, kept: SchemaJson['indexes'], given: unknown): SchemaJson['indexes'] {
  if (given === null) return undefined
  const nameOf = ({ name, fields }: IndexJson) => name ?? `${collection}_${[fields].flat().join('_')}_idx`
  return mergedByName(kept ?? [], given as readonly IndexJson[], nameOf)
}

type ConstraintEntry = Readonly<Record<string, unknown>>

function mergedConstraints(collection: string, { constraints: kept }: SchemaJson, given: unknown) {
  if (given === null) return undefined
  const removed = Object.entries(Array.isArray(given) ? {} : Object(given)).flatMap(([name, json]) =>
    json === null ? [name] : [],
  )
  const nameOf = ({ name, fields }: ConstraintEntry) => String(name ?? `${collection}_${[fields].flat().join('_')}_key`)
  const list = mergedByName(constraintList(kept), constraintList(given), nameOf)
  return list.filter((constraint) => !removed.includes(nameOf(constraint))) as unknown as SchemaJson['constraints']
}

function constraintList(json: unknown): readonly ConstraintEntry[] {
  if (json === undefined || json === null) return []
  if (Array.isArray(json)) return json
  return Object.entries(Object(json)).flatMap(([name, entry]) => (entry === null ? [] : [{ name, ...Object(entry) }]))
}

function mergedByName<T>(kept: readonly T[], given: readonly T[], nameOf: (entry: T) => string): readonly T[] {
  const replacement = new Map(given.map((entry) => [nameOf(entry), entry]))
  const names = new Set(kept.map(nameOf))
  return [
    ...kept.map((entry) => replacement.get(nameOf(entry)) ?? entry),
    ...given.filter((entry) => !names.has(nameOf(entry))),
  ]
}

/** Members that null removed are gone; one that says the same in other words is as it was stored. */
function settled(stored: SchemaJson, schema: Readonly<Record<string, unknown>>): SchemaJson {
  const entries = Object.entries(schema).filter(([, value]) => value !== null && value !== undefined)
  const { constraints } = stored
  return Object.fromEntries(
    entries.map(([word, value]) => {
      const isSame = word === 'constraints' && isDeepStrictEqual(value, constraintList(constraints))
      return [word, isSame ? constraints : value]
    }),
  ) as unknown as SchemaJson
}

/** Columns removed by name, and those of switches that the change sets. */
function givenUp(gone: readonly string[], patch: SchemaPatch): ReadonlySet<string> {
  const set = Object.entries(switchColumns).filter(([word]) => Object.hasOwn(patch, word))
  return new Set([...gone, ...set.flatMap(([, columns]) => columns)])
}
