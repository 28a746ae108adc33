import type { Catalog, Collection, Field, Relation } from '../../../catalog/catalog.ts'
import { exactMember, type ValueType } from '../../../catalog/values.ts'
import { hasLongNumbers, longNumber } from '../../../language/exact-json.ts'
import { isObject, member } from '../../../query/guards.ts'
import { relationOfColumn } from './foreign-keys.ts'

/*
 * A payload of JSON with the texts of its long numbers in place of the doubles, wherever a field or an id takes them. Hooks copy
 * payloads, and a copy has the doubles alone: so this comes before hooks.
 */

type Place = { readonly catalog: Catalog; readonly collection: Collection }

/** Most payloads have no long numbers, and are answered as they are. */
export function exactPayload(place: Place, payload: unknown): unknown {
  if (!hasLongNumbers(payload) || !isObject(payload)) return payload
  return Object.fromEntries(Object.keys(payload).map((key) => [key, memberOf(place, payload, key)]))
}

/** Ids in a list of JSON. */
export const exactIds = (ids: readonly unknown[]): readonly unknown[] =>
  hasLongNumbers(ids) ? ids.map((id, at) => longNumber(ids, at) ?? id) : ids

type Members = Readonly<Record<string, unknown>>

function memberOf(place: Place, payload: Members, key: string): unknown {
  const { collection } = place
  const field = collection.fields.get(key)
  const value = payload[key]
  const relation = field === undefined ? collection.relations.get(key) : relationNamed(collection, field, payload)
  if (relation !== undefined) return related(place, relation, payload, key)
  if (field?.primaryKey) return longNumber(payload, key) ?? value
  return field === undefined ? value : exactMember(payload, key, field as ValueType)
}

/** `author_Id: {…}` means the relation. */
const relationNamed = (collection: Collection, field: Field, payload: Members): Relation | undefined =>
  isObject(payload[field.name]) && field.kind !== 'json' ? relationOfColumn(collection, field.name, payload) : undefined

/** An id, a row, or a list of both. */
function related(place: Place, relation: Relation, holder: object, key: string | number): unknown {
  const value = (holder as Members)[key]
  if (typeof value === 'number') return longNumber(holder, key) ?? value
  if (!hasLongNumbers(value)) return value
  if (Array.isArray(value)) return value.map((_, at) => related(place, relation, value, at))
  const target = place.catalog.collections.get(relation.target)
  if (target === undefined) return value
  const inTarget = { ...place, collection: target }
  return relation.kind === 'polymorphic' ? pointing(inTarget, value as Members) : exactPayload(inTarget, value)
}

/** A member of a many-to-any relation, which has the id or the row that it points at under other names than its junction. */
function pointing(place: Place, element: Members): unknown {
  const { catalog, collection } = place
  const ways = [...collection.relations.values()].filter(({ discriminator }) => discriminator !== undefined)
  const names = ['collection', 'type', ...ways.map(({ discriminator }) => discriminator!.column)]
  const way = ways.find(({ discriminator }) => names.some((name) => member(element, name) === discriminator!.value))
  return Object.fromEntries(
    Object.keys(element).map((key) => {
      const isJunctions = way === undefined || collection.fields.has(key) || collection.relations.has(key)
      return [key, isJunctions ? memberOf(place, element, key) : related({ catalog, collection }, way, element, key)]
    }),
  )
}
