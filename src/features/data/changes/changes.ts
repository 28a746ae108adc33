import { admitted } from '../../../admission/lane.ts'
import type { Reads } from '../../../db/pools.ts'
import { readFromNowOn } from '../../../db/read-anywhere.ts'
import type { ReplicaReads } from '../../../db/replicas.ts'
import { errors } from '../../../errors.ts'
import { type Cursor, encodeCursor } from '../../../events/cursor.ts'
import { currentCursor, type LogEvent, oldestMoment, pullRound } from '../../../events/log-reader.ts'
import type { Access } from '../../../query/access.ts'
import { resolveEnv } from '../../../query/env.ts'
import type { ChangesReads } from './capabilities.ts'
import { type ChangedRow, changedRows, viewOf } from './changed-rows.ts'
import { disturbedCollections } from './disturbances.ts'
import { type ChangesRequest, type Followed, readRequest } from './request.ts'

export { type ChangedRow, changedRows, type View, viewOf } from './changed-rows.ts'
export { disturbedCollections } from './disturbances.ts'
export { type RuleSources, ruleSources } from './rule-sources.ts'

/**
 * `GET /changes`: what happened after the cursor `since` to the rows that the caller may read, by position, as the text
 * `{"data":[…],"cursor":"…","hasMore":false,"resync":[…]}` (docs/changes.md). All pages of a round end at the same
 * snapshot, so nothing is missed and nothing comes twice however many write meanwhile. Without `since` the answer is the
 * cursor of now.
 *
 * Errors: those of {@link readRequest}; 410 with the oldest moment kept when the log no longer reaches back to `since`.
 */
export async function readChanges(rt: ChangesReads, access: Access, raw: Record<string, unknown>): Promise<string> {
  const request = readRequest(rt.catalog.current(), access, raw)
  const { since } = request
  if (since === undefined) return fromNow(rt, access)
  return admitted(rt.admission, { shape: 'changes', presumed: 'cheap' }, () => readRound(rt, access, request, since))
}

async function readRound(rt: ChangesReads, access: Access, request: ChangesRequest, since: Cursor): Promise<string> {
  const { followed, limit } = request
  const page = await pullRound(rt.db, since, { collections: [...followed.keys()], limit })
  if (page.resync) throw errors.historyGone(await oldestMoment(rt.db))
  const changes = await visibleChanges(rt, access, followed, page.events)
  const resync = beginsRound(since) ? await resyncOf(rt, access, request, since, page.cursor) : []
  if (resync.length > 0) await readFromNowOn(rt, access)
  return answer(changes, page.cursor, page.more, resync)
}

/** The lists that are read next must hold what came before the cursor. */
async function fromNow(rt: Reads & ReplicaReads, access: Access): Promise<string> {
  const cursor = await currentCursor(rt.db)
  await readFromNowOn(rt, access)
  return answer([], cursor, false, [])
}

/** The later pages of a round would find what the first one has told; a change on a socket has told nothing. */
const beginsRound = (cursor: Cursor): boolean => cursor.kind === 'event' || cursor.upTo === undefined

function resyncOf(rt: ChangesReads, access: Access, request: ChangesRequest, since: Cursor, reached: Cursor) {
  return disturbedCollections(rt, access, request, { from: since.snapshot, upTo: reached.upTo ?? reached.snapshot })
}

function answer(changes: readonly string[], cursor: Cursor, more: boolean, resync: readonly string[]): string {
  return `{"data":[${changes}],"cursor":"${encodeCursor(cursor)}","hasMore":${more},"resync":${JSON.stringify(resync)}}`
}

/** The events as JSON texts in their order, without those that the caller may not see. */
async function visibleChanges(
  rt: ChangesReads,
  access: Access,
  followed: ReadonlyMap<string, Followed>,
  events: readonly LogEvent[],
): Promise<readonly string[]> {
  const rowEvents = events.filter(({ type }) => type === 'data')
  const seen = new Map<string, ChangedRow>()
  for (const [name, ofIt] of Map.groupBy(rowEvents, ({ entity }) => entity))
    for (const row of await seenRows(rt, access, followed.get(name)!, ofIt)) seen.set(row.position, row)
  return rowEvents.flatMap((event) => changeText(event, seen.get(event.position)) ?? [])
}

function seenRows(rt: ChangesReads, access: Access, { collection, fields }: Followed, events: readonly LogEvent[]) {
  const view = viewOf({ catalog: rt.catalog.current(), access, collection, fields, env: resolveEnv(rt), scoped: true })
  const positions = events.map(({ position }) => position)
  return changedRows(rt.db, view, [view.values], positions)
}

function changeText({ entity, position, createdAt }: LogEvent, row: ChangedRow | undefined): string | undefined {
  const action = row && actionOf(row)
  if (action === undefined) return undefined
  const data = action === 'create' || action === 'update' ? `,"data":${row!.data}` : ''
  const head = `"collection":${JSON.stringify(entity)},"action":"${action}","id":${row!.key}`
  return `{${head}${data},"timestamp":"${createdAt}","position":"${position}"}`
}

/** An event for a viewer who sees a part of the rows: an update may bring a row into it, or take it out. */
function actionOf({ action, visible, was_visible: wasVisible }: ChangedRow): string | undefined {
  const [isSeen, wasSeen] = [visible.length > 0, wasVisible.length > 0]
  if (action === 'delete') return wasSeen ? 'delete' : undefined
  if (!isSeen) return wasSeen ? 'remove' : undefined
  return wasSeen ? 'update' : 'create'
}
