import { admitted } from '../../../admission/lane.ts'
import type { Catalog, Collection, Field } from '../../../catalog/catalog.ts'
import { logTable } from '../../../catalog/log-triggers.ts'
import type { ParamValue, TypedValue } from '../../../catalog/values.ts'
import type { Database, Reads } from '../../../db/pools.ts'
import { type ReplicaReads, readFromNowOn } from '../../../db/replicas/replicas.ts'
import { errors } from '../../../errors.ts'
import { type Cursor, encodeCursor } from '../../../events/cursor.ts'
import { eventIdSql } from '../../../events/log.ts'
import { currentCursor, type LogEvent, oldestMoment, pullRound } from '../../../events/log-reader.ts'
import type { Access } from '../../../query/access.ts'
import { compileConjuncts } from '../../../query/compile.ts'
import { projectionSql } from '../../../query/compile-rows.ts'
import type { Filter } from '../../../query/parse.ts'
import { type ResolvedFilter, type ResolveEnv, resolveCondition, resolveEnv } from '../../../query/resolve.ts'
import { ident, literal, type Params } from '../../../query/sql.ts'
import { disturbedCollections } from './disturbances.ts'
import { type ChangesReads, type ChangesRequest, type FollowedCollection, readRequest } from './request.ts'

export {
  accessCollections,
  disturbedCollections,
  type EventScope,
  movesSight,
  placeOf,
  type RuleSources,
  ruleSources,
} from './disturbances.ts'
export { type ChangesReads, type FollowedCollection, readableCollections } from './request.ts'

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
  const image = (value: string) => `jsonb_populate_record(null::public.${ident(collection.name)}, ${value})`
  const text = `with "$viewers" as materialized (${viewersSql(after.values)}), "$changed" as materialized (
      select e.position, e.action, ${image(`coalesce(e.changes->'after', e.changes->'before')`)} as after,
        ${image(`coalesce(e.changes->'after', '{}') || coalesce(e.changes->'before', '{}')`)} as before
      from ${ident(logTable)} e
      where e.id = any(array(select ${eventIdSql('position')} from unnest($1::bigint[]) position)) and not e.changes ? 'erased')
    select e.position::text as position, e.action, (${jsonObject(members)})::text as data,
      coalesce(sees.viewers, '{}') as visible, coalesce(saw.viewers, '{}') as was_visible,
      to_json(${projectionSql(collection.primaryKey, 't')})::text as key
    from "$changed" e cross join lateral (select (e.after).*) t
      left join (select e.position, ${after.viewers} from "$changed" e cross join lateral (select (e.after).*) t
        join "$viewers" v on ${after.join} group by e.position) sees using (position)
      left join (select e.position, ${before.viewers} from "$changed" e cross join lateral (select (e.before).*) old
        join "$viewers" v on ${before.join} where e.action <> 'create' group by e.position) saw using (position)
    order by e.position`
  return { text, values: after.values.map(viewerValue) }
}

/** Runs what viewers have in common, for all of them. */
export function changedRows(
  db: Database,
  { text }: ChangeView,
  viewers: Viewers,
  positions: readonly string[],
  signal?: AbortSignal,
): Promise<VisibleChange[]> {
  return db.run<VisibleChange>(text, [positions, ...viewers], 'prepared', signal)
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
  const parts = rule === undefined ? [] : compileConjuncts(rule, alias, params)
  const all = (isEquality: boolean) => parts.filter((part) => part.isEquality === isEquality).map(({ sql }) => sql)
  const [equalities, rest] = [all(true), all(false)]
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
