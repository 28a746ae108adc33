/** The difference between two versions of definitions, made on a third one: what a migration of collections does. Pure. */
import { isDeepStrictEqual } from 'node:util'
import type { SchemaJson } from './catalog.ts'
import type { Definitions } from './definitions.ts'

/** Schemas by collection; null for a collection that is not there. */
export type SchemaVersions = Readonly<Record<string, object | null>>

/** A change of definitions by its two ends. */
export type DefinitionChange = { readonly before: SchemaVersions; readonly after: SchemaVersions }

/** A member of a definition that is neither as before the change nor as after it. Absent values are undefined. */
export type MergeConflict = {
  readonly collection: string
  /** E.g. `fields.title.type`; empty for the whole collection. */
  readonly member: string
  /** The value that the change starts from; where it adds the member, the one that it sets. */
  readonly expected: unknown
  readonly found: unknown
}

type Merged =
  | { readonly next: Definitions; readonly conflicts?: undefined }
  | { readonly next?: undefined; readonly conflicts: readonly MergeConflict[] }

/**
 * Makes the change on the present definitions: what it adds, alters or removes becomes so, and everything else stays as it
 * is. A member that is already as it is to be stays too. One that the change concerns and that is otherwise than before it
 * is a conflict, and then there are no next definitions.
 */
export function mergeDefinitions({ before, after }: DefinitionChange, now: Definitions): Merged {
  const next = new Map(now)
  const conflicts: MergeConflict[] = []
  for (const collection of new Set([...Object.keys(before), ...Object.keys(after)])) {
    const [old, wanted] = [memberOf(before, collection) ?? undefined, memberOf(after, collection) ?? undefined]
    const merged = merge({ collection, path: [] }, { before: old, after: wanted, now: now.get(collection) })
    conflicts.push(...merged.conflicts)
    if (merged.value === undefined) next.delete(collection)
    else if (!isDeepStrictEqual(merged.value, now.get(collection))) next.set(collection, merged.value as SchemaJson)
  }
  return conflicts.length > 0 ? { conflicts } : { next }
}

/** `team.fields.motto is {"type":"Text"} and not {"type":"String"}` */
export function conflictText({ collection, member, expected, found }: MergeConflict): string {
  const place = member === '' ? collection : `${collection}.${member}`
  if (found === undefined) return `${place} is not there, and should be ${shown(expected)}`
  return expected === undefined
    ? `${place} is ${shown(found)}, and should not be there`
    : `${place} is ${shown(found)} and not ${shown(expected)}`
}

const longestValue = 200

function shown(value: unknown): string {
  const text = JSON.stringify(value)
  return text.length <= longestValue ? text : `${text.slice(0, longestValue)}…`
}

type Place = { readonly collection: string; readonly path: readonly string[] }
type Three = Readonly<Record<'before' | 'after' | 'now', unknown>>
type MergedValue = { readonly value: unknown; readonly conflicts: readonly MergeConflict[] }

function merge(place: Place, three: Three): MergedValue {
  const { before, after, now } = three
  const isListed = place.path.length === 1 && listsByKey.has(place.path[0]!)
  if (isDeepStrictEqual(before, after) || isDeepStrictEqual(now, after)) return { value: now, conflicts: [] }
  if (isDeepStrictEqual(now, before)) return { value: after, conflicts: [] }
  if (isListed && [before, after, now].every(isKeyedList)) return mergeLists(place, three)
  if (isObject(before) && isObject(after) && isObject(now)) return mergeMembers(place, { before, after, now })
  return { value: now, conflicts: differences(place, before ?? after, now) }
}

function mergeMembers(place: Place, { before, after, now }: Record<'before' | 'after' | 'now', Members>): MergedValue {
  const names = new Set([now, after, before].flatMap(Object.keys))
  const merged = [...names].map((name) => {
    const three = { before: memberOf(before, name), after: memberOf(after, name), now: memberOf(now, name) }
    return { name, ...merge(inside(place, name), three) }
  })
  return {
    value: Object.fromEntries(merged.flatMap(({ name, value }) => (value === undefined ? [] : [[name, value]]))),
    conflicts: merged.flatMap(({ conflicts }) => conflicts),
  }
}

/* Indexes and constraints: lists whose entries have names, or else their fields. */

const listsByKey: ReadonlySet<string> = new Set(['indexes', 'constraints'])

function mergeLists(place: Place, { before, after, now }: Three): MergedValue {
  const merged = mergeMembers(place, { before: byKey(before), after: byKey(after), now: byKey(now) })
  const entries = Object.values(merged.value as Members)
  return { ...merged, value: entries.length === 0 && after === undefined ? undefined : entries }
}

const byKey = (list: unknown): Members => Object.fromEntries((list as Members[] | undefined)?.map(keyed) ?? [])

const keyed = (entry: Members) => [keyOf(entry), entry] as const

/** Digits alone would change their place among the members of an object. */
const keyOf = ({ name, fields }: Members): string => (typeof name === 'string' ? `"${name}"` : JSON.stringify(fields))

/** Whether it is a list of entries that differ by their keys; an absent one is an empty one. */
function isKeyedList(list: unknown): boolean {
  if (list === undefined) return true
  if (!Array.isArray(list) || !list.every(isObject)) return false
  const keys = list.map(keyOf)
  return keys.every((key) => key !== undefined) && new Set(keys).size === keys.length
}

/* Conflicts. */

/** The innermost members that differ. */
function differences(place: Place, expected: unknown, found: unknown): MergeConflict[] {
  if (isDeepStrictEqual(expected, found)) return []
  if (isObject(expected) && isObject(found))
    return [...new Set([...Object.keys(expected), ...Object.keys(found)])].flatMap((name) =>
      differences(inside(place, name), memberOf(expected, name), memberOf(found, name)),
    )
  return [{ collection: place.collection, member: place.path.join('.'), expected, found }]
}

type Members = Readonly<Record<string, unknown>>

const inside = ({ collection, path }: Place, name: string): Place => ({ collection, path: [...path, name] })

const isObject = (value: unknown): value is Members =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

/** What an object inherits is no member. */
const memberOf = (object: object, name: string): unknown =>
  Object.hasOwn(object, name) ? (object as Members)[name] : undefined
