import type { Collection } from '../../../catalog/catalog.ts'
import { AppError } from '../../../errors.ts'
import type { LogEvent } from '../../../events/log-reader.ts'
import type { Access } from '../../../query/access.ts'
import { readableFields, resolveEnv } from '../../../query/resolve.ts'
import { changedRows, viewersOf, viewOf } from '../../data/changes/changes.ts'
import { partyOf } from './authority.ts'
import type { WorkflowWrites } from './capabilities.ts'
import type { Triggerable } from './queries.ts'

/*
 * The visible part of a triggering change. An administrator's workflow sees everything except hidden fields; another
 * author's sees no more than its author may read, as a subscriber on the socket would.
 */

/**
 * The part of a change that an author may see; `nobody`: there is no author who may act, so the execution says only
 * that.
 */
export type ChangeSight = 'everything' | 'nobody' | Seen

type Seen = {
  /** The fields that the author may read. */
  readonly fields: ReadonlySet<string>
  /** Whether the author sees the row as it is after the change, and as it was before. */
  readonly isSeen: boolean
  readonly wasSeen: boolean
}

type SightOf = (workflow: Triggerable, event: LogEvent) => ChangeSight

/** Asks the database once for each author and collection. */
export async function sightsOf(
  deps: WorkflowWrites,
  workflows: readonly Triggerable[],
  events: readonly LogEvent[],
): Promise<SightOf> {
  const byCollection = Map.groupBy(events, ({ entity }) => entity)
  const known = new Map<string, Promise<(event: LogEvent) => ChangeSight>>()
  const keyOf = ({ authority_Id, tenant_Id, trigger_hook_collection }: Triggerable) =>
    `${authority_Id} ${tenant_Id} ${trigger_hook_collection}`
  for (const workflow of workflows) {
    const ofIt = byCollection.get(workflow.trigger_hook_collection!)
    if (ofIt !== undefined && !known.has(keyOf(workflow))) known.set(keyOf(workflow), sightOf(deps, workflow, ofIt))
  }
  const sights = new Map(await Promise.all([...known].map(async ([key, sight]) => [key, await sight] as const)))
  return (workflow, event) => sights.get(keyOf(workflow))!(event)
}

async function sightOf(
  deps: WorkflowWrites,
  { authority_Id, tenant_Id, trigger_hook_collection: name }: Triggerable,
  events: readonly LogEvent[],
): Promise<(event: LogEvent) => ChangeSight> {
  const author = authority_Id === null ? undefined : await partyOf(deps, authority_Id, tenant_Id)
  if (author === undefined) return () => 'nobody'
  if (author.access.admin) return () => 'everything'
  const collection = deps.catalog.current().collections.get(name!)
  const seen = collection === undefined ? undefined : await seenBy(deps, author.access, collection, events)
  return ({ position }) => seen?.get(position) ?? { fields: new Set(), isSeen: false, wasSeen: false }
}

/** By position; nothing where the author may not read the collection at all. */
async function seenBy(
  deps: WorkflowWrites,
  access: Access,
  collection: Collection,
  events: readonly LogEvent[],
): Promise<ReadonlyMap<string, Seen> | undefined> {
  const catalog = deps.catalog.current()
  try {
    const fields = new Set(readableFields(catalog, access, collection.name).map(({ name }) => name))
    const view = viewOf({ catalog, access, collection, fields: [], env: resolveEnv(deps), scoped: true })
    const positions = events.map(({ position }) => position)
    const rows = await changedRows(deps.db, view, viewersOf([view]), positions)
    return new Map(
      rows.map(({ position, visible: now, was_visible: before }) => [
        position,
        { fields, isSeen: now.length > 0, wasSeen: before.length > 0 },
      ]),
    )
  } catch (error) {
    // The right is gone, or names what is gone.
    if (error instanceof AppError && error.status < 500) return undefined
    throw error
  }
}
