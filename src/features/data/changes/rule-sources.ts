import { type Variable, variablesIn } from '../../../access/access.ts'
import type { AccessRules } from '../../../access/store.ts'
import type { Catalog, Collection } from '../../../catalog/catalog.ts'
import type { Access, VariableName } from '../../../query/access.ts'
import type { Filter } from '../../../query/parse.ts'
import { relatedCollections } from '../../../query/plan.ts'
import { type ResolveEnv, resolveCondition } from '../../../query/resolve.ts'
import { rowsOf } from '../../../query/variables.ts'

/**
 * What decides, beside a row of the collection itself, whether a caller may see that row. A change there may move rows
 * in or out of sight that have no event of their own.
 */
export type RuleSources = {
  /** Collections of which any row may decide. */
  readonly collections: ReadonlySet<string>
  /** Single rows. */
  readonly rows: readonly RuleRow[]
  /** Collections whose own permission decides which of their rows a filter of the caller looks at. */
  readonly filtered: ReadonlySet<string>
}

export type RuleRow = { readonly collection: string; readonly id: string }

/** The sources of the read rule of a collection that the caller may read, and of a filter of its own within it. */
export function ruleSources(
  catalog: Catalog,
  rules: AccessRules,
  access: Access,
  { name }: Collection,
  env: ResolveEnv,
  filter?: Filter | undefined,
): RuleSources {
  const rule = resolveCondition(catalog, access, name, 'read', env, { filter })
  const related = rule === undefined ? new Set<string>() : relatedCollections(rule)
  // A stored rule looks past the other permissions, a filter through them.
  const filtered = filter === undefined || access.admin ? new Set<string>() : related
  const grants = access.admin ? [] : [name, ...filtered].flatMap((one) => access.grant(one, 'read') ?? [])
  const limits = grants.map(({ conditions, relConditions }) => [
    conditions,
    filter === undefined ? null : relConditions,
  ])
  const variables = variablesIn([limits, filter], catalog).filter(({ path }) => path.length > 0)
  return {
    collections: new Set([
      ...related,
      ...variables.flatMap((variable) => collectionsBehind(catalog, variable)),
      // A rule that names what does not exist lets nothing through, until some collection gets it.
      ...(rule?.predicate.kind === 'never' ? ['svc_SchemaDefinition'] : []),
      ...(variables.some((variable) => variable.name === 'CURRENT_SETTINGS') ? ['svc_Settings'] : []),
    ]),
    rows: [
      ...variables.flatMap((variable) => ownRow(access, variable.name)),
      ...[name, ...filtered].flatMap((one) => namedRules(rules, access, one)),
    ],
    filtered,
  }
}

/** The related rows that a variable such as `$CURRENT_USER.team.name` reads. */
function collectionsBehind(catalog: Catalog, { name, path }: Variable): string[] {
  const found: string[] = []
  let collection = catalog.collections.get(rowsOf[name])
  for (const segment of path) {
    const relation = collection?.relations.get(segment)
    if (relation === undefined) break
    found.push(relation.target, ...(relation.through === undefined ? [] : [relation.through]))
    collection = catalog.collections.get(relation.target)
  }
  return found
}

/** Rows that tie the caller to its role and tenant are watched for every collection, see disturbances.ts. */
function ownRow({ userId, tenantId }: Access, name: VariableName): RuleRow[] {
  if (name === 'CURRENT_USER' && userId !== undefined) return [{ collection: 'svc_User', id: userId }]
  return name === 'CURRENT_TENANT' && tenantId !== undefined ? [{ collection: 'svc_Tenant', id: tenantId }] : []
}

function namedRules(rules: AccessRules, { roleId }: Access, name: string): RuleRow[] {
  const rows = rules.permissions.get(roleId) ?? []
  const reading = rows.filter(({ action, collection }) => action === 'read' && collection === name)
  const ids = reading.flatMap(({ acl_Ids: given }) => (Array.isArray(given) ? given.map(String) : []))
  return ids.map((id) => ({ collection: 'svc_ACL', id }))
}
