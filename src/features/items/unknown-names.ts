import type { Catalog, Collection } from '../../catalog/catalog.ts'
import { isObject } from '../../query/guards.ts'
import type { Runtime } from '../../runtime.ts'

/**
 * To be awaited before payloads for a collection are read. Members that no process knows are dropped (spec/items.md §1), so
 * a value for a field that another process has just added would be lost without a word: whoever is sent an unknown one
 * asks first whether it knows the newest collections.
 */
export async function learnNames(
  { catalog: store }: Runtime,
  name: string,
  payloads: readonly unknown[],
): Promise<void> {
  const catalog = store.current()
  const collection = catalog.collections.get(name)
  if (collection !== undefined && isUnknownIn(catalog, collection, payloads)) await store.reloadIfStale()
}

/** Also in the rows of its relations; those of many-to-any relations are looked at no further. */
function isUnknownIn(catalog: Catalog, collection: Collection, payload: unknown): boolean {
  if (Array.isArray(payload)) return payload.some((row) => isUnknownIn(catalog, collection, row))
  if (!isObject(payload)) return false
  for (const [key, value] of Object.entries(payload)) {
    const relation = collection.relations.get(key)
    if (relation === undefined && !collection.fields.has(key)) return true
    const target = relation?.kind === 'polymorphic' ? undefined : catalog.collections.get(relation?.target ?? '')
    if (target !== undefined && isUnknownIn(catalog, target, value)) return true
  }
  return false
}
