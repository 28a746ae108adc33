import { parseCron } from '../../../adapters/cron.ts'
import { newId } from '../../../adapters/ids.ts'
import type { Collection } from '../../../catalog/catalog.ts'
import { type Reader, rawQuery } from '../../../db/sql.ts'
import { keepSchedules, takeTickSql } from '../../../db/unlogged/work.ts'
import type { Cause } from '../../../events/actor.ts'
import { commit } from '../../../events/commit.ts'
import type { Consumer, ConsumerPage } from '../../../events/consumer.ts'
import { eventIdSql } from '../../../events/log.ts'
import type { LogEvent } from '../../../events/log-reader.ts'
import { type RowImages, rowImages } from '../../data/changes/changes.ts'
import type { AccessScope } from './authority.ts'
import type { WorkflowWrites } from './capabilities.ts'
import { type ChangeSight, sightsOf } from './change-sight.ts'
import {
  insertExecutions,
  type NewExecution,
  queueRefusal,
  type Triggerable,
  triggerableColumns,
  workflowsActor,
} from './queries.ts'
import { causeOfNext, mayTrigger, refusedChain } from './starting.ts'
import { optionsOf } from './validate.ts'

/* Starts workflows without a caller: by changes in the log, and by the clock. */

const consumerName = 'workflows'
const definitions = 'svc_Workflow'

/** The consumer of the log, and `tick`, which starts what is due by the clock and gives how long until the next. */
export async function openTriggers(
  deps: WorkflowWrites,
): Promise<{ consumer: Consumer; tick(): Promise<number | undefined> }> {
  let hooked: readonly Triggerable[] = await hookedWorkflows(deps.reserved)
  const collections = () => [...new Set(hooked.map((one) => one.trigger_hook_collection!))].sort()
  const consumer: Consumer = {
    name: consumerName,
    onFailure: 'set-aside',
    wants: () => ({ collections: [definitions, ...collections()], actions: ['create', 'update', 'delete'] }),
    prepare: async (page) => {
      if (page.events.some(({ entity }) => entity === definitions)) {
        const before = String(collections())
        hooked = await hookedWorkflows(deps.reserved)
        // The rest of the page was read without the collections that are wanted now: read the page again.
        if (String(collections()) !== before && !page.isRetry) return 'read-again'
      }
      const executions = await withinLimits(deps, await executionsOf(deps, hooked, page))
      return async (tx) => {
        await insertExecutions(tx, executions)
        return undefined
      }
    },
  }
  return { consumer, tick: () => tick(deps) }
}

/** Those that changes trigger after they are made. */
function hookedWorkflows(db: Reader): Promise<readonly Triggerable[]> {
  return db.any<Triggerable>(
    rawQuery(
      `select ${triggerableColumns} from "svc_Workflow" w
       where w.status = 'active' and w."deletedAt" is null and w.trigger_type = 'hook'
         and w.trigger_hook_action in ('items.create.after', 'items.update.after', 'items.delete.after')
         and w.trigger_hook_collection is not null order by w.id`,
    ),
  )
}

/** An execution beyond the limit is refused and recorded: nothing that a change triggers is lost silently. */
async function withinLimits(
  deps: WorkflowWrites,
  executions: readonly NewExecution[],
): Promise<readonly NewExecution[]> {
  const full = new Map<string, string | undefined>()
  for (const { workflow_Id: id } of executions) if (!full.has(id)) full.set(id, await queueRefusal(deps, id))
  return executions.map((execution) => {
    const refusal = execution.refusal ?? full.get(execution.workflow_Id)
    return refusal === undefined ? execution : { ...execution, refusal }
  })
}

/** The facts about an event beyond those of the log's reader. */
type Origin = {
  readonly position: string
  readonly roleId: string | null
  readonly request: string | null
  readonly cause: Cause | null
  /** The scope of the program that made the change in the user's name. */
  readonly scope: AccessScope | null
}

async function executionsOf(
  deps: WorkflowWrites,
  hooked: readonly Triggerable[],
  { events }: ConsumerPage,
): Promise<readonly NewExecution[]> {
  const rows = events.filter(
    ({ type, entity }) => type === 'data' && hooked.some((one) => one.trigger_hook_collection === entity),
  )
  if (rows.length === 0) return []
  const positions = rows.map(({ position }) => position)
  // A definition, or a right, that was given or taken just now counts for the changes that follow it.
  await deps.catalog.reloadIfStale()
  await deps.access.reloadIfStale()
  const images = await imagesOf(deps, rows)
  const sightOf = await sightsOf(deps, hooked, rows)
  const origins = new Map(
    (await deps.db.any<Origin>(rawQuery(originsSql, [positions]))).map((one) => [one.position, one]),
  )
  return rows.flatMap((event) => {
    const image = images.get(event.position)
    const collection = deps.catalog.current().collections.get(event.entity)
    // Of one that was erased nothing may be told.
    if (image === undefined || collection === undefined) return []
    const change = changeIn(collection, event, image)
    return hooked
      .filter(
        (one) =>
          one.trigger_hook_collection === event.entity && one.trigger_hook_action === `items.${change.action}.after`,
      )
      .flatMap((one) => {
        const told = toldOf(change, sightOf(one, event))
        return told === undefined ? [] : executionOf(deps, one, event, told, origins.get(event.position)!)
      })
  })
}

const originsSql = `select position::text, "roleId"::text as "roleId", "logRequestId"::text as request, cause, agent->>'scope' as scope from "svc_AuditLog"
  where id = any(array(select ${eventIdSql('p')} from unnest($1::bigint[]) p))`

/** The images of events in their wire form, by position: what was erased, or is of no collection any more, has none. */
async function imagesOf(deps: WorkflowWrites, rows: readonly LogEvent[]): Promise<ReadonlyMap<string, RowImages>> {
  const images = new Map<string, RowImages>()
  for (const [name, ofIt] of Map.groupBy(rows, ({ entity }) => entity)) {
    const collection = deps.catalog.current().collections.get(name)
    if (collection === undefined) continue
    const fields = [...collection.fields.values()].filter((field) => !field.hidden || field.name === deletedAt)
    const positions = ofIt.map(({ position }) => position)
    for (const [position, image] of await rowImages(deps.db, collection, fields, positions)) images.set(position, image)
  }
  return images
}

const deletedAt = 'deletedAt'

type TriggeringChange = {
  readonly action: 'create' | 'update' | 'delete'
  readonly document: Readonly<Record<string, unknown>> | null
  readonly previousDocument: Readonly<Record<string, unknown>> | null
}

/** Followers see the marking of a row as deleted as a delete, and its restoration as a create. */
function changeIn(collection: Collection, { action }: LogEvent, { before, after }: RowImages): TriggeringChange {
  const shown = (row: Readonly<Record<string, unknown>>) =>
    Object.fromEntries(Object.entries(row).filter(([name]) => collection.fields.get(name)?.hidden === false))
  if (action === 'create') return { action, document: shown(after ?? {}), previousDocument: null }
  if (action === 'delete') return { action, document: shown(before ?? {}), previousDocument: null }
  const wasDeleted = collection.paranoid && before?.[deletedAt] != null
  const isDeleted = collection.paranoid && after?.[deletedAt] != null
  const kind = isDeleted && !wasDeleted ? 'delete' : wasDeleted && !isDeleted ? 'create' : 'update'
  return { action: kind, document: shown(after ?? {}), previousDocument: shown(before ?? {}) }
}

/** A change as the workflow's author may see it; undefined where they may not. */
function toldOf(change: TriggeringChange, sight: ChangeSight): TriggeringChange | undefined {
  if (sight === 'everything') return change
  if (sight === 'nobody') return { ...change, document: null, previousDocument: null }
  const { fields, isSeen, wasSeen } = sight
  if (!(change.action === 'delete' ? wasSeen : isSeen)) return undefined
  const shown = (row: TriggeringChange['document']) =>
    row && Object.fromEntries(Object.entries(row).filter(([name]) => fields.has(name)))
  return {
    ...change,
    document: shown(change.document),
    previousDocument: wasSeen ? shown(change.previousDocument) : null,
  }
}

function executionOf(
  { config, access }: WorkflowWrites,
  workflow: Triggerable,
  { entity, entityId, userId, tenantId, createdAt }: LogEvent,
  { action, document, previousDocument }: TriggeringChange,
  { roleId, request, cause: before, scope }: Origin,
): NewExecution[] {
  const { enabled } = config.tenancy
  // The log may be read later than a workflow is made: what was changed before that is none of its business.
  if (new Date(createdAt) < workflow.createdAt) return []
  // Workflows of a tenant see changes of its own rows.
  if (enabled && workflow.tenant_Id !== null && workflow.tenant_Id !== tenantId) return []
  const role = roleId === null ? undefined : access.current().roles.get(roleId)
  if (!mayTrigger(workflow, { admin: role?.name === 'administrator', roleId: roleId ?? undefined })) return []
  const cause = causeOfNext(
    { logRequestId: request ?? undefined, cause: before ?? undefined },
    workflow.id,
    `${entity} ${entityId}`,
  )
  const refusal = refusedChain(cause)
  return [
    {
      ...{ id: newId(), workflow_Id: workflow.id, version: workflow.version, trigger: 'hook', cause },
      trigger_data: {
        ...{ event: `items.${action}.after`, action, collection: entity, id: document?.id ?? entityId },
        ...{ document, data: document, previousDocument, userId, tenant: tenantId, timestamp: createdAt },
      },
      tenant_Id: workflow.tenant_Id ?? tenantId,
      triggered_by_Id: userId,
      caller_Id: before?.as === undefined ? userId : before.as,
      caller_scope: scope,
      ...(refusal !== undefined && { refusal }),
    },
  ]
}

type Scheduled = Triggerable & { readonly trigger_cron: string }

/** A tick that is later than this was missed: no process was running. */
const missedMs = 60_000

/** Starts the scheduled workflows that are due, each tick once; gives the milliseconds until the next is. */
async function tick(deps: WorkflowWrites): Promise<number | undefined> {
  const scheduled = await deps.reserved.any<Scheduled>(
    rawQuery(
      `select ${triggerableColumns}, w.trigger_cron from "svc_Workflow" w
       where w.status = 'active' and w."deletedAt" is null and w.trigger_type = 'schedule' and w.trigger_cron is not null`,
    ),
  )
  const now = deps.clock()
  const wanted = scheduled.flatMap((one) => {
    const { timezone } = optionsOf(one.options)
    const nextAt = nextTick(deps, one, now)
    return nextAt === undefined ? [] : [{ id: one.id, cron: one.trigger_cron, timezone, nextAt: nextAt.toISOString() }]
  })
  const slots = await keepSchedules(deps, wanted)
  let next: number | undefined
  for (const slot of slots) {
    const workflow = scheduled.find(({ id }) => id === slot.id)!
    const isDue = slot.nextAt <= slot.now
    const after = isDue ? await start(deps, workflow, slot) : slot.nextAt
    if (after !== undefined) next = Math.min(next ?? Number.POSITIVE_INFINITY, after.getTime() - slot.now.getTime())
  }
  return next === undefined ? undefined : Math.max(0, next)
}

function nextTick({ log }: WorkflowWrites, { id, trigger_cron, options }: Scheduled, after: Date): Date | undefined {
  try {
    return parseCron(trigger_cron, optionsOf(options).timezone).next(after)
  } catch (error) {
    log.warn({ err: error, workflow: id }, 'the schedule of a workflow cannot be read')
    return undefined
  }
}

/** Starts one due tick, unless another process has; gives the moment of the next. */
async function start(
  deps: WorkflowWrites,
  workflow: Scheduled,
  slot: { readonly nextAt: Date; readonly now: Date },
): Promise<Date | undefined> {
  const next = nextTick(deps, workflow, slot.now)
  const isMissed = slot.now.getTime() - slot.nextAt.getTime() > missedMs
  const isSkipped = isMissed && optionsOf(workflow.options).missedTicks === 'skip'
  await commit(deps, workflowsActor, async (tx) => {
    const taken = await tx.any(rawQuery(takeTickSql, [workflow.id, slot.nextAt, next ?? null]))
    if (taken.length === 0 || isSkipped) return { result: null }
    const execution: NewExecution = {
      ...{ id: newId(), workflow_Id: workflow.id, version: workflow.version, trigger: 'schedule' },
      trigger_data: { scheduledAt: slot.nextAt.toISOString(), timestamp: slot.now.toISOString() },
      tenant_Id: workflow.tenant_Id,
      triggered_by_Id: null,
      caller_Id: null,
      cause: causeOfNext({}, workflow.id),
    }
    await insertExecutions(tx, [execution])
    return { result: null }
  })
  return next
}
