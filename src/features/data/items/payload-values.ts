import type { Catalog, Collection, Field, Relation } from '../../../catalog/catalog.ts'
import { isObject, member } from '../../../query/guards.ts'
import { relationOfColumn } from './foreign-keys.ts'

/** Payloads with some of their values in another form: those of their own fields and those of the rows nested in them. */

export type Place = { readonly catalog: Catalog; readonly collection: Collection }

/** How the values of a payload are read. Objects that hold nothing for it stay as they are. */
export type Reading = {
  readonly concerns: (value: unknown) => boolean
  /** The value of a field; `path` is the name of the field after those of the relations that lead to it. */
  readonly field: (holder: object, key: string, field: Field, path: string) => unknown
  /** An id of a related row. */
  readonly id: (holder: object, key: string | number) => unknown
  /** Called for every copy of an object or a list. */
  readonly copied: <Copy extends object>(copy: Copy, source: object) => Copy
}

/** A payload as `reading` has it. */
export function mapPayload(place: Place, payload: unknown, reading: Reading, prefix = ''): unknown {
  if (!reading.concerns(payload) || !isObject(payload)) return payload
  const members = Object.keys(payload).map((key) => [key, memberOf({ ...place, reading, prefix }, payload, key)])
  return reading.copied(Object.fromEntries(members), payload)
}

type Members = Readonly<Record<string, unknown>>

type ReadingPlace = Place & { readonly reading: Reading; readonly prefix: string }

function memberOf(place: ReadingPlace, payload: Members, key: string): unknown {
  const { collection, reading, prefix } = place
  const field = collection.fields.get(key)
  const relation = field === undefined ? collection.relations.get(key) : relationNamed(collection, field, payload)
  if (relation !== undefined) return related(place, relation, payload, key)
  return field === undefined ? payload[key] : reading.field(payload, key, field, `${prefix}${key}`)
}

/** `author_Id: {…}` means the relation. */
const relationNamed = (collection: Collection, field: Field, payload: Members): Relation | undefined =>
  isObject(payload[field.name]) && field.kind !== 'json' ? relationOfColumn(collection, field.name, payload) : undefined

/** An id, a row, or a list of both. */
function related(place: ReadingPlace, relation: Relation, holder: object, key: string | number): unknown {
  const { catalog, reading, prefix } = place
  const value = (holder as Members)[key]
  if (typeof value !== 'object' || value === null) return reading.id(holder, key)
  if (!reading.concerns(value)) return value
  if (Array.isArray(value))
    return reading.copied(
      value.map((_, at) => related(place, relation, value, at)),
      value,
    )
  const target = catalog.collections.get(relation.target)
  if (target === undefined) return value
  const inTarget = { ...place, collection: target, prefix: `${prefix}${relation.name}.` }
  return relation.kind === 'polymorphic'
    ? pointing(inTarget, value as Members)
    : mapPayload(inTarget, value, reading, inTarget.prefix)
}

/** A member of a many-to-any relation, which has the id or the row that it points at under other names than its junction. */
function pointing(place: ReadingPlace, element: Members): unknown {
  const { collection } = place
  const ways = [...collection.relations.values()].filter(({ discriminator }) => discriminator !== undefined)
  const names = ['collection', 'type', ...ways.map(({ discriminator }) => discriminator!.column)]
  const way = ways.find(({ discriminator }) => names.some((name) => member(element, name) === discriminator!.value))
  const members = Object.keys(element).map((key) => {
    const isJunctions = way === undefined || collection.fields.has(key) || collection.relations.has(key)
    return [key, isJunctions ? memberOf(place, element, key) : related(place, way, element, key)]
  })
  return place.reading.copied(Object.fromEntries(members), element)
}
