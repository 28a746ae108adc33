import { exactMember, type ValueType } from '../../../catalog/values.ts'
import { hasLongNumbers, longNumber } from '../../../language/exact-json.ts'
import { mapPayload, type Place, type Reading } from './payload-values.ts'

/*
 * A payload of JSON with the texts of its long numbers in place of the doubles, wherever a field or an id takes them. Hooks copy
 * payloads, and a copy has the doubles alone: so this comes before hooks.
 */

/** Most payloads have no long numbers, and are answered as they are. */
export const exactPayload = (place: Place, payload: unknown): unknown => mapPayload(place, payload, exact)

/** Ids in a list of JSON. */
export const exactIds = (ids: readonly unknown[]): readonly unknown[] =>
  hasLongNumbers(ids) ? ids.map((id, at) => longNumber(ids, at) ?? id) : ids

const exactId = (holder: object, key: string | number): unknown =>
  longNumber(holder, key) ?? (holder as Readonly<Record<string, unknown>>)[key]

const exact: Reading = {
  concerns: hasLongNumbers,
  field: (holder, key, field) =>
    field.primaryKey ? exactId(holder, key) : exactMember(holder, key, field as ValueType),
  id: exactId,
  copied: (copy) => copy,
}
