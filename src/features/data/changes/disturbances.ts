import { administratorRole } from '../../../access/roles.ts'
import type { AccessRules } from '../../../access/store.ts'
import type { Catalog } from '../../../catalog/catalog.ts'
import type { Access } from '../../../query/access.ts'
import { resolveEnv } from '../../../query/env.ts'
import type { ChangesReads } from './capabilities.ts'
import { type Disturbance, disturbancesIn, type Round } from './queries.ts'
import { type ChangesRequest, readableCollections } from './request.ts'
import { type RuleSources, ruleSources } from './rule-sources.ts'

/**
 * The collections of which a caller may see other rows or columns after the round than before, beside the rows with
 * events: a related row, a permission, the caller's role, the collection's definition has changed, or an event was
 * erased. In order of their names; of those that the request names, if it does.
 */
export async function disturbedCollections(
  rt: ChangesReads,
  access: Access,
  { followed, named }: Pick<ChangesRequest, 'followed' | 'named'>,
  round: Round,
): Promise<readonly string[]> {
  const catalog = rt.catalog.current()
  const rules = rt.access.current()
  const sources = new Map(
    [...followed.values()].map(({ collection, filter }) => [
      collection.name,
      ruleSources(catalog, rules, access, collection, resolveEnv(rt), filter),
    ]),
  )
  const found = await disturbancesIn(rt.db, round, {
    collections: [...new Set([...sources.values()].flatMap((source) => [...source.collections]))],
    rows: [...sources.values()].flatMap((source) => source.rows),
    followed: [...followed.keys()],
    roleId: access.roleId,
    userId: access.userId,
  })
  const disturbed = new Set(found.flatMap((one) => disturbedBy(one, { catalog, rules, access, sources })))
  return [...disturbed].filter((name) => named === undefined || named.includes(name)).sort()
}

type Known = {
  readonly catalog: Catalog
  readonly rules: AccessRules
  readonly access: Access
  readonly sources: ReadonlyMap<string, RuleSources>
}

function disturbedBy({ source, collection, subject }: Disturbance, known: Known): string[] {
  const { access, sources } = known
  const depending = (on: (sources: RuleSources) => boolean) =>
    [...sources].filter(([, source]) => on(source)).map(([name]) => name)
  switch (source) {
    case 'erased':
      return [collection]
    case 'permission':
      return subject === null ? [] : [subject, ...depending(({ filtered }) => filtered.has(subject))]
    case 'role':
      return [...sources.keys(), ...readableBy(subject, known)]
    case 'collection':
      return depending(({ collections }) => collections.has(collection))
    case 'row':
      return depending(({ rows }) => rows.some((row) => row.collection === collection && row.id === subject))
    case 'schema': {
      const mayRead = subject !== null && (access.admin || access.grant(subject, 'read') !== undefined)
      return [...(mayRead ? [subject] : []), ...depending(({ collections }) => collections.has(subject ?? ''))]
    }
  }
}

/** Collections of which a caller who had another role may hold copies. */
function readableBy(roleId: string | null, { catalog, rules, access }: Known): string[] {
  const admin = rules.roles.get(roleId ?? '')?.name === administratorRole
  if (admin) return readableCollections(catalog, { ...access, admin }).map(({ name }) => name)
  const rows = rules.permissions.get(roleId ?? '') ?? []
  return rows.filter(({ action }) => action === 'read').map(({ collection }) => collection)
}
