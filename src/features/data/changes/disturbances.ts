import { administratorRole, type CallerVariable, variablesIn } from '../../../access/access.ts'
import type { AccessRules } from '../../../access/store.ts'
import type { Catalog, Collection } from '../../../catalog/catalog.ts'
import { type Reader, sql } from '../../../db/sql.ts'
import { parseSnapshot, type Round } from '../../../events/cursor.ts'
import { unseenValues } from '../../../events/log-reader.ts'
import type { Access, VariableName } from '../../../query/access.ts'
import type { Filter } from '../../../query/parse.ts'
import { relatedCollections } from '../../../query/plan.ts'
import { type ResolveEnv, resolveCondition, resolveEnv } from '../../../query/resolve.ts'
import { rowsOf } from '../../../query/variables.ts'
import { type ChangesReads, type ChangesRequest, readableCollections } from './request.ts'

/*
 * Decides when a follower of changes must read again (`resync`), beside the rows with events of their own, for
 * `/changes`, subscribers of the socket channel and webhooks alike.
 */

/** Where something has changed: collections, and rows as {@link placeOf} names them. */
export type EventScope = { readonly collections: ReadonlySet<string>; readonly rows: ReadonlySet<string> }

export const placeOf = (collection: string, id: string | null): string => `${collection} ${id}`

/** Whether changes there may move rows in or out of the sight that these sources decide on. */
export function movesSight({ collections, rows }: RuleSources, touched: EventScope): boolean {
  for (const name of collections) if (touched.collections.has(name)) return true
  return touched.rows.size > 0 && rows.some(({ collection, id }) => touched.rows.has(placeOf(collection, id)))
}

/**
 * The collections of which a caller may see other rows or columns after the round than before, beside the rows with
 * events: a related row, a permission, the caller's role, the collection's definition has changed, or an event was
 * erased. In order of their names; of those that the request names, if it does.
 */
export async function disturbedCollections(
  deps: ChangesReads,
  access: Access,
  { followed, named }: Pick<ChangesRequest, 'followed' | 'named'>,
  round: Round,
): Promise<readonly string[]> {
  const catalog = deps.catalog.current()
  const rules = deps.access.current()
  const sources = new Map(
    [...followed.values()].map(({ collection, filter }) => [
      collection.name,
      ruleSources(catalog, rules, access, collection, resolveEnv(deps), filter),
    ]),
  )
  const found = await disturbancesIn(deps.db, round, {
    collections: [...new Set([...sources.values()].flatMap((source) => [...source.collections]))],
    rows: [...sources.values()].flatMap((source) => source.rows),
    followed: [...followed.keys()],
    roleId: access.roleId,
    userId: access.userId,
  })
  const touched: EventScope = {
    collections: new Set(found.flatMap(({ source, collection }) => (source === 'collection' ? [collection] : []))),
    rows: new Set(
      found.flatMap(({ source, collection, subject }) => (source === 'row' ? placeOf(collection, subject) : [])),
    ),
  }
  const disturbed = new Set([
    ...[...sources].flatMap(([name, own]) => (movesSight(own, touched) ? [name] : [])),
    ...found.flatMap((one) => disturbedBy(one, { catalog, rules, access, sources })),
  ])
  return [...disturbed].filter((name) => named === undefined || named.includes(name)).sort()
}

type RuleKnowledge = {
  readonly catalog: Catalog
  readonly rules: AccessRules
  readonly access: Access
  readonly sources: ReadonlyMap<string, RuleSources>
}

function disturbedBy({ source, collection, subject }: Disturbance, known: RuleKnowledge): string[] {
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
    case 'row':
      return []
    case 'schema': {
      const mayRead = subject !== null && (access.admin || access.grant(subject, 'read') !== undefined)
      return [...(mayRead ? [subject] : []), ...depending(({ collections }) => collections.has(subject ?? ''))]
    }
  }
}

/** Collections of which a caller who had another role may hold copies. */
function readableBy(roleId: string | null, { catalog, rules, access }: RuleKnowledge): string[] {
  const admin = rules.roles.get(roleId ?? '')?.name === administratorRole
  if (admin) return readableCollections(catalog, { ...access, admin }).map(({ name }) => name)
  const rows = rules.permissions.get(roleId ?? '') ?? []
  return rows.filter(({ action }) => action === 'read').map(({ collection }) => collection)
}

type WatchedSources = {
  /** Collections of which every change counts. */
  readonly collections: readonly string[]
  readonly rows: readonly SourceRow[]
  /** Collections whose erased events count. */
  readonly followed: readonly string[]
  readonly roleId: string
  readonly userId: string | undefined
}

type Disturbance = {
  readonly source: 'collection' | 'row' | 'erased' | 'schema' | 'permission' | 'role'
  readonly collection: string
  /** The row of `source` row; the collection that a schema or permission is about; the role that a user had or got. */
  readonly subject: string | null
}

/** Collections that decide on rights, and on which columns there are. */
export const accessCollections = ['svc_SchemaDefinition', 'svc_Permission', 'svc_Role', 'svc_UserRole']

/** The different things in a round that may have changed what a caller sees, beyond the rows that changed. */
function disturbancesIn(db: Reader, { from, upTo }: Round, watched: WatchedSources): Promise<readonly Disturbance[]> {
  const [later, running] = unseenValues(parseSnapshot(from)!)
  const texts = (values: readonly string[]) => sql.array([...values], 'text')
  const owners = watched.rows.map(({ collection }) => collection)
  const ids = watched.rows.map(({ id }) => id)
  const sources = [...accessCollections, ...watched.collections, ...owners]
  return db.any<Disturbance>(sql.unsafe`
    select distinct found.source, e.entity as collection, found.subject
    from "svc_AuditLog" e
    cross join lateral (values (coalesce(e.changes->'after', '{}') || coalesce(e.changes->'before', '{}')), (e.changes->'after')) image (of)
    cross join lateral (
      select 'collection' as source, null as subject where e.entity = any(${texts(watched.collections)})
      union all
      select 'row', e."entityId" where (e.entity, e."entityId") in (select * from unnest(${texts(owners)}, ${texts(ids)}))
      union all
      select 'erased', null where e.changes ? 'erased' and e.entity = any(${texts(watched.followed)})
      union all
      select 'schema', image.of->>'collectionName' where e.entity = 'svc_SchemaDefinition'
      union all
      select 'permission', image.of->>'collection' where e.entity = 'svc_Permission' and image.of->>'action' = 'read'
        and image.of->>'role_Id' = ${watched.roleId}
      union all
      select 'role', e."entityId" where e.entity = 'svc_Role' and e."entityId" = ${watched.roleId}
      union all
      select 'role', image.of->>'role_Id' where e.entity = 'svc_UserRole' and image.of->>'user_Id' = ${watched.userId ?? null}
    ) found
    where (e.xid >= ${later}::xid8 or e.xid = any(${texts(running)}::xid8[]))
      and pg_visible_in_snapshot(e.xid, ${upTo}::pg_snapshot) and e.type = 'data'
      -- Most of a large round is none of this: its images need not be taken apart.
      and (e.entity = any(${texts(sources)}) or e.changes ? 'erased')`)
}

/**
 * The rows and values, beside a row itself, that decide whether a caller may see it. A change of them may show or hide
 * rows that have no event of their own.
 */
export type RuleSources = {
  /** Collections of which any row may decide. */
  readonly collections: ReadonlySet<string>
  /** Single rows. */
  readonly rows: readonly SourceRow[]
  /** Collections whose own permission decides which of their rows a filter of the caller looks at. */
  readonly filtered: ReadonlySet<string>
}

type SourceRow = { readonly collection: string; readonly id: string }

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
function collectionsBehind(catalog: Catalog, { name, path }: CallerVariable): string[] {
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
function ownRow({ userId, tenantId }: Access, name: VariableName): SourceRow[] {
  if (name === 'CURRENT_USER' && userId !== undefined) return [{ collection: 'svc_User', id: userId }]
  return name === 'CURRENT_TENANT' && tenantId !== undefined ? [{ collection: 'svc_Tenant', id: tenantId }] : []
}

function namedRules(rules: AccessRules, { roleId }: Access, name: string): SourceRow[] {
  const rows = rules.permissions.get(roleId) ?? []
  const reading = rows.filter(({ action, collection }) => action === 'read' && collection === name)
  const ids = reading.flatMap(({ acl_Ids: given }) => (Array.isArray(given) ? given.map(String) : []))
  return ids.map((id) => ({ collection: 'svc_ACL', id }))
}
