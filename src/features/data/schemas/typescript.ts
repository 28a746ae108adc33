import { createHash } from 'node:crypto'
import type { Catalog, Collection, Field, Kind, Relation } from '../../../catalog/catalog.ts'
import {
  createdElsewhere,
  identityCollections,
  platformColumns,
  writersOf,
} from '../../../catalog/system-collections.ts'
import { isToMany } from '../../../query/plan.ts'

/**
 * The collections of a catalog as TypeScript, for the client: rows as they are answered, what a new and a changed row may
 * hold, and relations. Collections and fields come in a stable order, and the first line names the version.
 */
export function typescriptOf({ collections }: Catalog): string {
  const shown = [...collections.values()]
    .filter(({ name }) => !identityCollections.has(name))
    .sort((a, b) => (a.name < b.name ? -1 : 1))
  const names = new Set(shown.map(({ name }) => name))
  const body = `${helpers}
export type Schema = {
${shown.map((collection) => collectionText(collection, names, collections)).join('\n')}
}

/** A row of a collection: \`Row<'task'>\`. */
export type Row<Name extends keyof Schema> = Schema[Name]['row']
`
  const version = createHash('sha256').update(body).digest('hex').slice(0, 16)
  return `// Written by \`npx daybook types\`; do not edit. Version ${version}\n\n${body}`
}

const helpers = `export type Json = null | boolean | number | string | readonly Json[] | { readonly [member: string]: Json }
export type Range<Bound> =
  | {
      readonly empty?: false
      readonly lower: Bound | null
      readonly upper: Bound | null
      readonly lowerInclusive: boolean
      readonly upperInclusive: boolean
    }
  | { readonly empty: true }
export type GeoJson = { readonly type: string; readonly [member: string]: Json }
/** A related row in a payload: its key, a new row, or changes of the row with the key. */
export type Related<Key, Create, Update, Name extends string> = Key | Create | ({ readonly [Member in Name]: Key } & Update)
/** The rows of a to-many relation: a list replaces all of them. */
export type Many<Key, Create, Update, Name extends string> = readonly Related<Key, Create, Update, Name>[]
/** A new row that is made under another one, which is what these members would name. */
export type Under<Create, Members extends string> = Create extends unknown ? Omit<Create, Members> : never
`

function collectionText(
  collection: Collection,
  names: ReadonlySet<string>,
  collections: Catalog['collections'],
): string {
  const { name, primaryKey, fields } = collection
  const own = [...fields.values()]
  const relations = [...collection.relations.values()].filter(({ target }) => names.has(target))
  const lines = [
    `key: ${typeOf(primaryKey, 'answered')}`,
    `keyName: ${JSON.stringify(primaryKey.name)}`,
    ...block(
      'row',
      own
        .filter(({ hidden }) => !hidden)
        .map((field) => member(field.name, orNull(typeOf(field, 'answered'), field.nullable), { isReadonly: true })),
    ),
    ...createText(collection, relations, collections),
    ...(isWritten(name, 'update')
      ? block('update', written(collection, relations, collections, false))
      : [`update: never`]),
    ...block(
      'relations',
      relations.map((relation) => member(relation.name, relationText(relation))),
    ),
  ]
  return [`  ${quoted(name)}: {`, ...lines.map((line) => `    ${line}`), '  }'].join('\n')
}

const block = (name: string, members: readonly string[]): readonly string[] =>
  members.length === 0 ? [`${name}: {}`] : [`${name}: {`, ...members.map((line) => `  ${line}`), '}']

/** A related row may be in the trash, or hidden from the reader, also where its key is needed. */
function relationText(relation: Relation): string {
  const isMany = isToMany(relation)
  return `{ to: ${JSON.stringify(relation.target)}; many: ${isMany}; nullable: ${!isMany} }`
}

/** Whether anybody writes the rows of a collection so, as an item. */
const isWritten = (name: string, action: 'create' | 'update'): boolean =>
  writersOf(name, action) !== 'nobody' && !(action === 'create' && createdElsewhere.has(name))

/** A new row: of each related row that it needs, the key or the row. */
function createText(
  collection: Collection,
  relations: readonly Relation[],
  collections: Catalog['collections'],
): readonly string[] {
  if (!isWritten(collection.name, 'create')) return ['create: never']
  const lines = block('create', written(collection, relations, collections, true))
  const needed = Map.groupBy(
    relations.filter((relation) => isSettable(collection, relation, true) && isNeeded(collection, relation)),
    ({ foreignKey }) => foreignKey,
  )
  const either = [...needed].map(([key, ways]) => {
    const ofKey = member(key, typeOf(collection.fields.get(key)!, 'taken'))
    const ofRows = ways.map((relation) => member(relation.name, relatedText(relation, collections)))
    return ` & (${[ofKey, ...ofRows].map((one) => `{ ${one} }`).join(' | ')})`
  })
  return [...lines.slice(0, -1), lines.at(-1)! + either.join('')]
}

/** Whether a new row cannot be without the related one. */
function isNeeded({ fields }: Collection, { name, kind, foreignKey }: Relation): boolean {
  const field = fields.get(foreignKey)
  if (kind !== 'belongsTo' || field === undefined || fields.has(name)) return false
  return !field.nullable && field.default === undefined && field.generated === undefined
}

/** A related row in a payload. One that has the foreign key itself gets it from the row around it. */
function relatedText(relation: Relation, collections: Catalog['collections']): string {
  const { target, kind, foreignKey } = relation
  const { primaryKey, relations } = collections.get(target)!
  const to = `Schema[${JSON.stringify(target)}]`
  const back = [...relations.values()].filter((one) => one.kind === 'belongsTo' && one.foreignKey === foreignKey)
  const members = [foreignKey, ...back.map(({ name }) => name)].map((name) => JSON.stringify(name)).join(' | ')
  const create = kind === 'hasOne' || kind === 'hasMany' ? `Under<${to}['create'], ${members}>` : `${to}['create']`
  const row = `<${to}['key'], ${create}, ${to}['update'], ${JSON.stringify(primaryKey.name)}>`
  return isToMany(relation) ? `Many${row}` : `Related${row}`
}

/**
 * Whether a payload may set a relation. Who changed a row last can be said only of a new one; the rows of a relation whose
 * key they hold are changed by it.
 */
function isSettable({ name, usertrack }: Collection, { kind, target, foreignKey }: Relation, isNew: boolean): boolean {
  if (kind === 'hasOne' || kind === 'hasMany') return isWritten(target, 'update')
  if (kind !== 'belongsTo') return true
  return !platformColumns(name).includes(foreignKey) && (isNew || !usertrack || foreignKey !== 'userUpdated_Id')
}

/** Whether a payload may set a field. Of what switches add only a key whose relation can be set: who has created a row may be said. */
function isTaken({ name, system, definition }: Collection, field: Field, keys: ReadonlySet<string>): boolean {
  if (field.generated !== undefined || platformColumns(name).includes(field.name)) return false
  // All that a system collection declares is marked as the system's.
  const isDeclared = !field.systemGenerated || (system && Object.hasOwn(definition.schema.fields, field.name))
  return isDeclared || keys.has(field.name)
}

/** The members of a payload: fields, and relations beside or instead of their keys. */
function written(
  collection: Collection,
  relations: readonly Relation[],
  collections: Catalog['collections'],
  isNew: boolean,
): string[] {
  const { fields } = collection
  const settable = relations.filter((relation) => isSettable(collection, relation, isNew))
  const owned = new Set(settable.filter(({ kind }) => kind === 'belongsTo').map(({ foreignKey }) => foreignKey))
  const columns = [...fields.values()]
    .filter((field) => isTaken(collection, field, owned) && (isNew || !field.primaryKey))
    .map((field) => {
      const isNeeded = isNew && !field.nullable && field.default === undefined && !owned.has(field.name)
      return member(field.name, orNull(typeOf(field, 'taken'), field.nullable), { isOptional: !isNeeded })
    })
  const nested = settable
    .filter(({ name }) => !fields.has(name))
    .map((relation) => {
      const related = relatedText(relation, collections)
      return member(relation.name, isToMany(relation) ? related : `${related} | null`, { isOptional: true })
    })
  return [...columns, ...nested]
}

/** Rows that the API answers, or those that it takes. */
export type RowDirection = 'answered' | 'taken'

function typeOf({ kind, element, enumValues }: Field, direction: RowDirection): string {
  if (kind === 'enum') return (enumValues ?? []).map((word) => JSON.stringify(word)).join(' | ') || 'never'
  const inner = scalar(element ?? (kind === 'range' ? 'integer' : 'text'), direction)
  if (kind === 'array') return `readonly (${inner} | null)[]`
  if (kind === 'range')
    return direction === 'answered'
      ? `Range<${inner}>`
      : `Range<${inner}> | readonly [${inner} | null, ${inner} | null]`
  return scalar(kind, direction)
}

function scalar(kind: Kind, direction: RowDirection): string {
  switch (kind) {
    case 'integer':
    case 'float':
      return 'number'
    case 'bigint':
      return 'number | string'
    case 'decimal':
      return direction === 'answered' ? 'string' : 'string | number'
    case 'boolean':
      return 'boolean'
    case 'json':
      return 'Json'
    case 'geometry':
    case 'geography':
      return 'GeoJson'
    case 'vector':
      return 'readonly number[]'
    default:
      return 'string'
  }
}

const orNull = (type: string, isNullable: boolean): string => (isNullable ? `${type} | null` : type)

const identifier = /^[A-Za-z_$][\w$]*$/

const quoted = (name: string): string => (identifier.test(name) ? name : JSON.stringify(name))

function member(name: string, type: string, { isOptional = false, isReadonly = false } = {}): string {
  return `${isReadonly ? 'readonly ' : ''}${quoted(name)}${isOptional ? '?' : ''}: ${type}`
}
