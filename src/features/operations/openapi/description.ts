import { accessOfRole, type Caller, type SettingsInForce } from '../../../access/principal.ts'
import type { AccessRules } from '../../../access/store.ts'
import { openBoundedMemory } from '../../../adapters/bounded-memory.ts'
import type { Catalog } from '../../../catalog/catalog.ts'
import type { DeclaredRoute } from '../../../http/declared-routes.ts'
import { oncePer } from '../../../language/once.ts'
import { type ItemReads, rightsOf } from '../../data/items/items.ts'
import { type KeptText, keptText } from './kept-text.ts'
import { type CallerKind, describeApi } from './openapi.ts'

/** The capabilities to make a description. */
export type DescriptionReads = ItemReads & SettingsInForce

/** The description for a caller, kept for as long as collections, rules and routes are what they are. */
export function descriptionFor(deps: DescriptionReads, caller: Caller, routes: readonly DeclaredRoute[]): KeptText {
  const [catalog, rules] = [deps.catalog.current(), deps.access.current()]
  const kept = keptFor(routes)(catalog)(rules)
  const callerKind = callerKindOf(caller)
  const key = JSON.stringify([caller.role.id, callerKind, caller.tenantId !== undefined])
  const known = kept.get(key)
  if (known !== undefined) return known
  const made = keptText(Buffer.from(JSON.stringify(describe(deps, caller, { routes, catalog, rules, callerKind }))))
  kept.set(key, made, keptForMs)
  return made
}

/** Two hundred collections take seven megabytes for an administrator. */
const mostBytes = 32 * 1024 * 1024
const keptForMs = 3_600_000

/** By role and by what else the description depends on. */
const keptFor = oncePer((_routes: readonly DeclaredRoute[]) =>
  oncePer((_catalog: Catalog) =>
    oncePer((_rules: AccessRules) =>
      openBoundedMemory<KeptText>({
        maxBytes: mostBytes,
        maxEntryBytes: mostBytes,
        sizeOf: ({ plain }) => plain.length,
      }),
    ),
  ),
)

const callerKindOf = ({ keyId, client, userId, admin }: Caller): CallerKind => ({
  by: userId === undefined ? 'nothing' : keyId === undefined && client === undefined ? 'session' : 'key',
  admin,
})

type Current = {
  readonly routes: readonly DeclaredRoute[]
  readonly catalog: Catalog
  readonly rules: AccessRules
  readonly callerKind: CallerKind
}

/** By what the role may do now, whoever has it: the caller's own access may be a moment older than the rules. */
function describe(deps: DescriptionReads, { role, tenantId }: Caller, { routes, catalog, rules, callerKind }: Current) {
  const access = { ...accessOfRole(deps, rules, role, tenantId), byKey: callerKind.by === 'key' }
  return describeApi({
    routes,
    catalog,
    callerKind,
    rightsOf: (collection) => rightsOf(deps, access, collection),
    config: deps.config,
  })
}
