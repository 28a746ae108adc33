import type { CurrentAccess } from '../../../access/store.ts'
import type { AdmissionLanes } from '../../../admission/lane.ts'
import type { Catalog, Collection, Field } from '../../../catalog/catalog.ts'
import type { CurrentCatalog } from '../../../catalog/store.ts'
import type { Configuration } from '../../../config/config.ts'
import type { Clock } from '../../../db/clock.ts'
import type { Reads } from '../../../db/pools.ts'
import type { ReplicaReads } from '../../../db/replicas/replicas.ts'
import { errors } from '../../../errors.ts'
import { type Cursor, parseCursor } from '../../../events/cursor.ts'
import type { Access } from '../../../query/access.ts'
import { MAX_LIST, quoted } from '../../../query/guards.ts'
import { collectParameters, type Filter, readInteger, readStrings } from '../../../query/parse.ts'
import { readableFields, requestedFields } from '../../../query/resolve.ts'

/** A request of `GET /changes`, checked against the rights of its caller. */
export type ChangesRequest = {
  /** Undefined: from now. */
  readonly since: Cursor | undefined
  /** Those that were named; undefined for all. */
  readonly named: readonly string[] | undefined
  /** The collections to follow, with the fields to show. */
  readonly followed: ReadonlyMap<string, FollowedCollection>
  /** Events to look at. */
  readonly limit: number
}

export type FollowedCollection = {
  readonly collection: Collection
  readonly fields: readonly Field[]
  /** The follower's own, within the rule. */
  readonly filter?: Filter | undefined
}

const parameters = new Set(['since', 'collections', 'fields', 'limit'])
const defaultLimit = 500
const largestLimit = 1000

/**
 * `since` is a cursor, `collections` a list of names, `fields` a list of `collection.field`, `limit` 1 to 1000. 404 for an
 * unknown collection, 403 for what the caller may not read, 400 for what makes no sense and for collections that keep
 * no history.
 */
export function readRequest(catalog: Catalog, access: Access, raw: Readonly<Record<string, unknown>>): ChangesRequest {
  const given = collectParameters(raw, parameters, false)
  const since = given.get('since') || undefined
  const named = readStrings('collections', given.get('collections'))
  const fields = fieldsByCollection(readStrings('fields', given.get('fields')) ?? [])
  const limit = readInteger('limit', given.get('limit'), 1) ?? defaultLimit
  if (limit > largestLimit) throw errors.badQuery(`limit: expected at most ${largestLimit}`)
  const collections = named === undefined ? readableCollections(catalog, access) : namedCollections(catalog, named)
  const followed = new Map(collections.map((one) => [one.name, follow(catalog, access, one, fields.get(one.name))]))
  const stray = [...fields.keys()].find((name) => !followed.has(name))
  if (stray !== undefined) throw errors.badQuery(`fields: ${quoted(stray)} is none of the collections`)
  return { since: since && parseCursor(since), named, followed, limit }
}

/** Every collection with a log that the caller may read. */
export function readableCollections(catalog: Catalog, access: Access): readonly Collection[] {
  const logged = [...catalog.collections.values()].filter((collection) => collection.logged)
  return access.admin ? logged : logged.filter(({ name }) => access.grant(name, 'read') !== undefined)
}

function namedCollections(catalog: Catalog, names: readonly string[]): readonly Collection[] {
  if (names.length > MAX_LIST) throw errors.badQuery('collections: too many')
  return [...new Set(names)].map((name) => {
    const collection = catalog.collections.get(name)
    if (collection === undefined) throw errors.unknownCollection(name)
    if (!collection.logged) throw errors.badQuery(`collections: changes of ${quoted(name)} are not recorded`)
    return collection
  })
}

function follow(
  catalog: Catalog,
  access: Access,
  collection: Collection,
  fields?: readonly string[],
): FollowedCollection {
  const { name } = collection
  return {
    collection,
    fields: fields ? requestedFields(catalog, access, name, fields) : readableFields(catalog, access, name),
  }
}

/** `["a.x", "-a.y", "b.*"]` as the fields of a and of b. */
function fieldsByCollection(entries: readonly string[]): ReadonlyMap<string, readonly string[]> {
  const parts = entries.map((entry) => /^(-?)([^.]+)\.(.+)$/.exec(entry) ?? refuse(entry))
  const grouped = Map.groupBy(parts, ([, , collection]) => collection!)
  return new Map([...grouped].map(([name, ofIt]) => [name, ofIt.map(([, minus, , field]) => `${minus}${field}`)]))
}

function refuse(entry: string): never {
  throw errors.badQuery(`fields: ${quoted(entry)} is not collection.field`)
}

/** The capabilities that reads of this folder need. */
export type ChangesReads = Reads &
  ReplicaReads &
  AdmissionLanes &
  Clock &
  Configuration &
  CurrentAccess &
  CurrentCatalog
