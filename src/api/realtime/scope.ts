import type { Catalog } from '../../catalog/catalog.ts'
import type { LogEvent } from '../../events/log-reader.ts'
import { type RuleSources, ruleSources } from '../../features/changes/rule-sources.ts'
import type { Access } from '../../query/access.ts'
import { resolveEnv } from '../../query/env.ts'
import type { Runtime } from '../../runtime.ts'
import { scopesRows, type Wish } from './wish.ts'

/** Where a batch of events happened. */
export type Touched = { readonly collections: ReadonlySet<string>; readonly rows: ReadonlySet<string> }

export function touchedBy(batch: readonly LogEvent[]): Touched {
  const changes = batch.filter(({ type }) => type === 'data')
  return {
    collections: new Set(changes.map(({ entity }) => entity)),
    rows: new Set(changes.map(({ entity, entityId }) => `${entity} ${entityId}`)),
  }
}

/** Tells whether a batch may have moved rows of a collection in or out of a subscriber's sight without an event of them. */
export type ScopeWatch = (touched: Touched) => boolean

/**
 * Watches what the subscriber's row rule and filter read elsewhere (design §5). They are resolved once per catalog; for
 * another access make another watch. Undefined where nothing scopes the rows.
 */
export function watchScope(rt: Runtime, access: Access, wish: Wish): ScopeWatch | undefined {
  if (!scopesRows(rt, wish)) return undefined
  let known: { catalog: Catalog; sources: RuleSources } | undefined
  return ({ collections, rows }) => {
    const catalog = rt.catalog.current()
    const collection = catalog.collections.get(wish.collection)
    if (collection === undefined) return true
    if (known?.catalog !== catalog)
      known = {
        catalog,
        sources: ruleSources(catalog, rt.access.current(), access, collection, resolveEnv(rt), wish.filter),
      }
    const { sources } = known
    if (sources.rows.some((row) => rows.has(`${row.collection} ${row.id}`))) return true
    return sources.collections.size > 0 && !isDisjoint(sources.collections, collections)
  }
}

const isDisjoint = (some: ReadonlySet<string>, others: ReadonlySet<string>): boolean =>
  ![...some].some((one) => others.has(one))
