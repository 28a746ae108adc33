import { accessOfRole, type Caller, type SettingsInForce } from '../../../access/principal.ts'
import type { AccessRules } from '../../../access/store.ts'
import { openBoundedMemory } from '../../../adapters/bounded-memory.ts'
import type { Catalog } from '../../../catalog/catalog.ts'
import type { DeclaredRoute } from '../../../http/declared-routes.ts'
import { oncePer } from '../../../language/once.ts'
import { type ItemReads, listTag, rightsOf } from '../../data/items/items.ts'
import { describeApi, type Standing } from './openapi.ts'

/** What a description is made of. */
export type DescriptionReads = ItemReads & SettingsInForce

type Description = { readonly body: Buffer; readonly tag: string }

/** The description for a caller, kept for as long as collections, rules and routes are what they are. */
export function descriptionFor(rt: DescriptionReads, caller: Caller, routes: readonly DeclaredRoute[]): Description {
  const [catalog, rules] = [rt.catalog.current(), rt.access.current()]
  const kept = keptFor(routes)(catalog)(rules)
  const standing = standingOf(caller)
  const key = JSON.stringify([caller.role.id, standing, caller.tenantId !== undefined])
  const known = kept.get(key)
  if (known !== undefined) return known
  const text = JSON.stringify(describe(rt, caller, { routes, catalog, rules, standing }))
  const made = { body: Buffer.from(text), tag: listTag(text) }
  kept.set(key, made, keptForMs)
  return made
}

/** Two hundred collections take five megabytes for an administrator. */
const mostBytes = 32 * 1024 * 1024
const keptForMs = 3_600_000

/** By role and by what else the description depends on. */
const keptFor = oncePer((_routes: readonly DeclaredRoute[]) =>
  oncePer((_catalog: Catalog) =>
    oncePer((_rules: AccessRules) =>
      openBoundedMemory<Description>({
        maxBytes: mostBytes,
        maxEntryBytes: mostBytes,
        sizeOf: ({ body }) => body.length,
      }),
    ),
  ),
)

const standingOf = ({ keyId, client, userId, admin }: Caller): Standing => ({
  by: userId === undefined ? 'nothing' : keyId === undefined && client === undefined ? 'session' : 'key',
  admin,
})

type Current = {
  readonly routes: readonly DeclaredRoute[]
  readonly catalog: Catalog
  readonly rules: AccessRules
  readonly standing: Standing
}

/** By what the role may do now, whoever has it: the caller's own access may be a moment older than the rules. */
function describe(rt: DescriptionReads, { role, tenantId }: Caller, { routes, catalog, rules, standing }: Current) {
  const access = { ...accessOfRole(rt, rules, role, tenantId), byKey: standing.by === 'key' }
  return describeApi({
    routes,
    catalog,
    standing,
    rightsOf: (collection) => rightsOf(rt, access, collection),
    config: rt.config,
  })
}
