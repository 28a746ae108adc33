import { administratorRole, type CallerVariable, variablesIn } from '../../../access/access.ts'
import type { AccessRules, CurrentAccess } from '../../../access/store.ts'
import { type AdmissionLanes, admitted } from '../../../admission/lane.ts'
import type { Catalog, Collection, Field } from '../../../catalog/catalog.ts'
import { logTable } from '../../../catalog/log-triggers.ts'
import { ofTodaysColumns } from '../../../catalog/past-columns.ts'
import type { CurrentCatalog } from '../../../catalog/store.ts'
import type { ParamValue, TypedValue } from '../../../catalog/values.ts'
import type { Configuration } from '../../../config/config.ts'
import type { Clock } from '../../../db/clock.ts'
import type { Database, Reads } from '../../../db/pools.ts'
import { type ReplicaReads, readFromNowOn } from '../../../db/replicas/replicas.ts'
import { type Reader, rawQuery, sql } from '../../../db/sql.ts'
import { errors } from '../../../errors.ts'
import { type Cursor, encodeCursor, parseCursor, parseSnapshot, type Round } from '../../../events/cursor.ts'
import { eventIdSql } from '../../../events/log.ts'
import { currentCursor, type LogEvent, oldestMoment, pullRound, unseenValues } from '../../../events/log-reader.ts'
import type { Access, VariableName } from '../../../query/access.ts'
import { compileConjuncts } from '../../../query/compile.ts'
import { projectionList, projectionSql } from '../../../query/compile-rows.ts'
import { MAX_LIST, quoted } from '../../../query/guards.ts'
import { collectParameters, type Filter, readInteger, readStrings } from '../../../query/parse.ts'
import { ofTodaySql } from '../../../query/past.ts'
import { relatedCollections } from '../../../query/plan.ts'
import {
  type ResolvedFilter,
  type ResolveEnv,
  readableFields,
  requestedFields,
  resolveCondition,
  resolveEnv,
} from '../../../query/resolve.ts'
import { type Images, ident, literal, misfitsSql, type Params, rowOfImage, ruledBySql } from '../../../query/sql.ts'
import { rowsOf } from '../../../query/variables.ts'
import { readImages } from '../items/items.ts'

/**
 * `GET /changes`: what happened after the cursor `since` to the rows that the caller may read, by position, as the text
 * `{"data":[…],"cursor":"…","hasMore":false,"resync":[…]}` (docs/changes.md). All pages of a round end at the same
 * snapshot, so nothing is missed and nothing comes twice however many write meanwhile. Without `since` the answer is the
 * cursor of now.
 *
 * Errors: those of {@link readRequest}; 410 with the oldest moment kept when the log no longer reaches back to `since`.
 */
export async function readChanges(deps: ChangesReads, access: Access, raw: Record<string, unknown>): Promise<string> {
  const request = readRequest(deps.catalog.current(), access, raw)
  const { since } = request
  if (since === undefined) return fromNow(deps, access)
  return admitted(deps.admission, { shape: 'changes', presumed: 'cheap' }, () =>
    readRound(deps, access, request, since),
  )
}

async function readRound(deps: ChangesReads, access: Access, request: ChangesRequest, since: Cursor): Promise<string> {
  const { followed, limit } = request
  const page = await pullRound(deps.db, since, { collections: [...followed.keys()], limit })
  if (page.resync) throw errors.historyGone(await oldestMoment(deps.db))
  const changes = await visibleChanges(deps, access, followed, page.events)
  const resync = beginsRound(since) ? await resyncOf(deps, access, request, since, page.cursor) : []
  if (resync.length > 0) await readFromNowOn(deps, access)
  return answer(changes, page.cursor, page.more, resync)
}

/** The lists that are read next must hold what came before the cursor. */
async function fromNow(deps: Reads & ReplicaReads, access: Access): Promise<string> {
  const cursor = await currentCursor(deps.db)
  await readFromNowOn(deps, access)
  return answer([], cursor, false, [])
}

/** The later pages of a round would find what the first one has told; a change on a socket has told nothing. */
const beginsRound = (cursor: Cursor): boolean => cursor.kind === 'event' || cursor.upTo === undefined

function resyncOf(deps: ChangesReads, access: Access, request: ChangesRequest, since: Cursor, reached: Cursor) {
  return disturbedCollections(deps, access, request, { from: since.snapshot, upTo: reached.upTo ?? reached.snapshot })
}

function answer(changes: readonly string[], cursor: Cursor, more: boolean, resync: readonly string[]): string {
  return `{"data":[${changes}],"cursor":"${encodeCursor(cursor)}","hasMore":${more},"resync":${JSON.stringify(resync)}}`
}

/** The events as JSON texts in their order, without those that the caller may not see. */
async function visibleChanges(
  deps: ChangesReads,
  access: Access,
  followed: ReadonlyMap<string, FollowedCollection>,
  events: readonly LogEvent[],
): Promise<readonly string[]> {
  const rowEvents = events.filter(({ type }) => type === 'data')
  const seen = new Map<string, VisibleChange>()
  for (const [name, ofIt] of Map.groupBy(rowEvents, ({ entity }) => entity))
    for (const row of await seenRows(deps, access, followed.get(name)!, ofIt)) seen.set(row.position, row)
  return rowEvents.flatMap((event) => changeText(event, seen.get(event.position)) ?? [])
}

function seenRows(
  deps: ChangesReads,
  access: Access,
  { collection, fields }: FollowedCollection,
  events: readonly LogEvent[],
) {
  const view = viewOf({
    catalog: deps.catalog.current(),
    access,
    collection,
    fields,
    env: resolveEnv(deps),
    scoped: true,
  })
  const positions = events.map(({ position }) => position)
  return changedRows(deps.db, view, viewersOf([view]), positions)
}

function changeText({ entity, position, createdAt }: LogEvent, row: VisibleChange | undefined): string | undefined {
  const action = row && seenAction(row)
  if (action === undefined) return undefined
  const data = action === 'create' || action === 'update' ? `,"data":${row!.data}` : ''
  const head = `"collection":${JSON.stringify(entity)},"action":"${action}","id":${row!.key}`
  return `{${head}${data},"timestamp":"${createdAt}","position":"${position}"}`
}

/** An event for a viewer who sees a part of the rows: an update may bring a row into it, or take it out. */
export function seenAction({ action, visible, was_visible: wasVisible }: VisibleChange): string | undefined {
  const [isSeen, wasSeen] = [visible.length > 0, wasVisible.length > 0]
  if (action === 'delete') return wasSeen ? 'delete' : undefined
  if (!isSeen) return wasSeen ? 'remove' : undefined
  return wasSeen ? 'update' : 'create'
}

/** One event as its viewers may see it. */
export type VisibleChange = {
  readonly position: string
  readonly action: string
  /** JSON text of the asked fields after the change; before it for a delete. */
  readonly data: string
  /** The viewers of the row after the change, for a delete of the row before it: their numbers, from 1. */
  readonly visible: readonly number[]
  /** The same for the row before the change; no one for a create. */
  readonly was_visible: readonly number[]
  /** JSON text of the primary key. */
  readonly key: string
}

type FollowedRows = {
  readonly catalog: Catalog
  readonly access: Access
  readonly collection: Collection
  readonly fields: readonly Field[]
  readonly env: ResolveEnv
  /** False: every row counts as visible. */
  readonly scoped: boolean
  /** The viewer's own filter, within the rule; only where `scoped`. */
  readonly filter?: Filter | undefined
}

/** How a user sees a collection: the shape of it as a statement, and the user's own values. */
export type ChangeView = {
  /** Equal for all who differ in their values only; they share one run of it. */
  readonly text: string
  /** The same with null for a value of then that does not fit its column of today. */
  readonly fittingText: () => string
  /** Each as a member of the text form of a PostgreSQL array. */
  readonly values: readonly string[]
}

/**
 * The statement that shows events of a collection, by position: their images become rows of today's table and go
 * through the projection and the condition of a read, so there is no second evaluator. The values of all viewers are
 * joined in as rows. Erased events are left out.
 */
export function viewOf({ catalog, access, collection, fields, env, scoped, filter }: FollowedRows): ChangeView {
  const members = fields.flatMap((field) => [literal(field.name), projectionSql(field, 't')])
  const rule = scoped ? resolveCondition(catalog, access, collection.name, 'read', env, { filter }) : undefined
  const after = conditionOn(rule, 't')
  const before = conditionOn(rule, 'old')
  const [imageAfter, imageBefore] = [afterSql, beforeSql].map((image) => inTodaysColumns(image, collection)) as [
    string,
    string,
  ]
  const textOf = (images: Images) => {
    const isFit = images === 'whole' || rule === undefined || rule.ruled.size === 0
    const isShown = (image: string) => ruledBySql(misfitsSql(collection.name, image), rule!.ruled)
    const shown = isFit ? '' : `, ${isShown(imageAfter)} as "afterShown", ${isShown(imageBefore)} as "beforeShown"`
    const [sees, saw] = isFit ? ['', ''] : [' and e."afterShown"', ' and e."beforeShown"']
    return `with "$viewers" as materialized (${viewersSql(after.values)}), "$changed" as materialized (
      select e.position, e.action, ${rowOfImage(collection.name, imageAfter, images)} as after,
        ${rowOfImage(collection.name, imageBefore, images)} as before${shown}
      from ${ident(logTable)} e
      where e.id = any(array(select ${eventIdSql('position')} from unnest($1::bigint[]) position)) and not e.changes ? 'erased'
        and ${collection.system ? 'true' : ofTodaySql(literal(collection.name))})
    select e.position::text as position, e.action, (${jsonObject(members)})::text as data,
      coalesce(sees.viewers, '{}') as visible, coalesce(saw.viewers, '{}') as was_visible,
      to_json(${projectionSql(collection.primaryKey, 't')})::text as key
    from "$changed" e cross join lateral (select (e.after).*) t
      left join (select e.position, ${after.viewers} from "$changed" e cross join lateral (select (e.after).*) t
        join "$viewers" v on ${after.join}${sees} group by e.position) sees on sees.position = e.position
      left join (select e.position, ${before.viewers} from "$changed" e cross join lateral (select (e.before).*) old
        join "$viewers" v on ${before.join}${saw} where e.action <> 'create' group by e.position) saw on saw.position = e.position
    order by e.position`
  }
  return { text: textOf('whole'), fittingText: () => textOf('fitting'), values: after.values.map(viewerValue) }
}

/** The row after an event `e`; of a deletion, before it. */
const afterSql = `coalesce(e.changes->'after', e.changes->'before')`

/** The whole row before an event `e`: of an update the log keeps what has changed. */
const beforeSql = `coalesce(e.changes->'after', '{}') || coalesce(e.changes->'before', '{}')`

/** Of one of the events at the positions `$1`. When they are the newest, as on a socket, no definition has to be read for it. */
const inTodaysColumns = (image: string, { name }: Collection): string =>
  ofTodaysColumns(image, literal(name), 'e', '(select min(position) from unnest($1::bigint[]) position)')

/** A row before and after an event, as a read shows it; null where there was none, or is none any more. */
export type RowImages = {
  readonly before: Readonly<Record<string, unknown>> | null
  readonly after: Readonly<Record<string, unknown>> | null
}

/** Both images of events of a collection, whatever anybody may see of them, by position. Erased events are left out. */
export async function rowImages(
  db: Database,
  collection: Collection,
  fields: readonly Field[],
  positions: readonly string[],
): Promise<ReadonlyMap<string, RowImages>> {
  const rows = await readImages((images) => {
    const shown = (image: string) =>
      `(select row_to_json(o.*) from (select ${projectionList(fields, 't')}
        from ${rowOfImage(collection.name, inTodaysColumns(image, collection), images)} t) o)`
    return db.any<RowImages & { position: string }>(
      rawQuery(
        `select e.position::text, case when e.action <> 'create' then ${shown(beforeSql)} end as before,
           case when e.changes ? 'after' then ${shown(`e.changes->'after'`)} end as after
         from ${ident(logTable)} e
         where e.id = any(array(select ${eventIdSql('position')} from unnest($1::bigint[]) position)) and not e.changes ? 'erased'`,
        [positions],
      ),
    )
  })
  return new Map(rows.map(({ position, before, after }) => [position, { before, after }]))
}

/** Runs what viewers have in common, for all of them. */
export function changedRows(
  db: Database,
  { text, fittingText }: ChangeView,
  viewers: Viewers,
  positions: readonly string[],
  signal?: AbortSignal,
): Promise<VisibleChange[]> {
  return readImages((images) =>
    db.run<VisibleChange>(images === 'whole' ? text : fittingText(), [positions, ...viewers], 'prepared', signal),
  )
}

type ViewerCondition = {
  /** The equalities, for which PostgreSQL hashes the viewers instead of trying each of them on each row. */
  readonly join: string
  /** `viewers`: the numbers of those for whom the rest holds as well; null for none. */
  readonly viewers: string
  readonly values: readonly TypedValue[]
}

/** Compiled once for the row before and once for the row after, the values come in the same order. */
function conditionOn(rule: ResolvedFilter | undefined, alias: string): ViewerCondition {
  const values: TypedValue[] = []
  const params: Params = { bind: (value, pgType) => `v.p${values.push({ value, pgType })}` }
  const { equalities, rest } = rule === undefined ? { equalities: [], rest: [] } : compileConjuncts(rule, alias, params)
  return {
    join: equalities.join(' and ') || 'true',
    viewers: `array_agg(v.n)${rest.length === 0 ? '' : ` filter (where ${rest.join(' and ')})`} as viewers`,
    values,
  }
}

/** Within PostgreSQL's limit of 100 arguments to a function. */
function jsonObject(members: readonly string[]): string {
  const parts: string[] = []
  for (let i = 0; i < members.length; i += 80) parts.push(`jsonb_build_object(${members.slice(i, i + 80)})`)
  return parts.length === 0 ? `'{}'::jsonb` : parts.join(' || ')
}

/**
 * A select of a row per viewer: `n`, from 1, and `p1`, `p2`, … of the types of the given values. Its parameters begin at
 * `$2` and are columns: see {@link viewersOf}. Without values of their own all are one viewer.
 */
function viewersSql(values: readonly TypedValue[]): string {
  if (values.length === 0) return 'select 1 as n'
  const columns = values.map(({ pgType }, i) => `unnest($${i + 2}::${isList(pgType) ? 'text' : pgType}[])`)
  const names = values.map((_value, i) => `p${i + 1}`)
  // unnest takes lists apart to their last member, so they come as text.
  const typed = values.map(({ pgType }, i) => `v.p${i + 1}${isList(pgType) ? `::${pgType}` : ''} as p${i + 1}`)
  // Of generate_subscripts the planner expects a thousand rows, of unnest ten, for which it would not hash.
  return `select v.n, ${typed} from rows from (${columns}, generate_subscripts($2, 1)) v(${names}, n)`
}

/** The viewers of a statement, as the texts of arrays of their first, second, … values. */
export type Viewers = readonly string[]

/** The viewers whose views these are, which differ in their values only; their numbers follow the order. */
export function viewersOf(views: readonly ChangeView[]): Viewers {
  return (views[0]?.values ?? []).map((_value, i) => `{${views.map(({ values }) => values[i]).join(',')}}`)
}

const viewerValue = ({ value, pgType }: TypedValue): string => memberText(isList(pgType) ? listText(value) : value)

const isList = (pgType: string): boolean => pgType.endsWith('[]')

/** PostgreSQL's text form of an array. */
function listText(value: ParamValue): string | null {
  return Array.isArray(value) ? `{${value.map(memberText).join(',')}}` : (value as string | null)
}

function memberText(value: ParamValue): string {
  if (Array.isArray(value)) return listText(value)!
  return value === null ? 'NULL' : `"${String(value).replace(/[\\"]/g, '\\$&')}"`
}

/** A request of `GET /changes`, checked against the rights of its caller. */
type ChangesRequest = {
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
function readRequest(catalog: Catalog, access: Access, raw: Readonly<Record<string, unknown>>): ChangesRequest {
  const given = collectParameters(raw, parameters, false)
  const since = given.get('since') || undefined
  const named = readStrings('collections', given.get('collections'))
  const fields = fieldsByCollection(readStrings('fields', given.get('fields')) ?? [])
  const limit = readInteger('limit', given.get('limit'), 1, largestLimit) ?? defaultLimit
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

/*
 * Decides when a follower of changes must read again (`resync`), beside the rows with events of their own, for
 * `/changes`, subscribers of the socket channel and webhooks alike.
 */

/** Where something has changed: collections, and rows as {@link placeOf} names them. */
export type EventScope = { readonly collections: ReadonlySet<string>; readonly rows: ReadonlySet<string> }

export const placeOf = (collection: string, id: string | null): string => `${collection} ${id}`

export const definitions = 'svc_SchemaDefinition'

/** The row that holds the definition of a collection. */
export const definitionOf = (name: string): SourceRow => ({ collection: definitions, id: name })

/** Nothing but the definition of the collection says which of its rows and fields are seen. */
export const unscoped: RuleSources = { collections: new Set(), rows: [], filtered: new Set() }

/** Whether changes there may move rows in or out of the sight that these sources decide on. */
export function movesSight({ collections, rows }: RuleSources, touched: EventScope): boolean {
  for (const name of collections) if (touched.collections.has(name)) return true
  return rows.some(({ collection, id }) => touched.rows.has(placeOf(collection, id)))
}

/**
 * The collections of which a caller may see other rows or columns after the round than before, beside the rows with
 * events: a related row, a permission, the caller's role, the collection's definition has changed, or an event was
 * erased. In order of their names; of those that the request names, if it does. Who sees every row, which `scoped` denies,
 * is concerned by the last two only.
 */
export async function disturbedCollections(
  deps: ChangesReads,
  access: Access,
  { followed, named, scoped = true }: Pick<ChangesRequest, 'followed' | 'named'> & { readonly scoped?: boolean },
  round: Round,
): Promise<readonly string[]> {
  const catalog = deps.catalog.current()
  const rules = deps.access.current()
  const sources = new Map(
    [...followed.values()].map(({ collection, filter }) => [
      collection.name,
      scoped ? ruleSources(catalog, rules, access, collection, resolveEnv(deps), filter) : unscoped,
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
    ...found
      .filter(({ source }) => scoped || source === 'schema' || source === 'erased')
      .flatMap((one) => disturbedBy(one, { catalog, rules, access, sources })),
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
export const accessCollections = [definitions, 'svc_Permission', 'svc_Role', 'svc_UserRole']

/** The different things in a round that may have changed what a caller sees, beyond the rows that changed. */
function disturbancesIn(db: Reader, { from, upTo }: Round, watched: WatchedSources): Promise<readonly Disturbance[]> {
  const [later, running] = unseenValues(parseSnapshot(from)!)
  const texts = (values: readonly string[]) => sql.array(values, 'text')
  const owners = watched.rows.map(({ collection }) => collection)
  const ids = watched.rows.map(({ id }) => id)
  const sources = [...accessCollections, ...watched.collections, ...owners]
  return db.any<Disturbance>(sql`
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
      ...(rule?.predicate.kind === 'never' ? [definitions] : []),
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

/** Rows that tie the caller to its role and tenant are watched for every collection, see {@link disturbedCollections}. */
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
