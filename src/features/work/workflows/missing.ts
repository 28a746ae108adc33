import { text } from 'node:stream/consumers'
import { rawQuery } from '../../../db/sql.ts'
import { isUuid } from '../../../language/uuid.ts'
import { listItems, type Requester } from '../../data/items/items.ts'
import type { WorkflowWrites } from './capabilities.ts'
import { readFlow, type WorkflowProblem } from './flow.ts'

/** Of what a workflow names, what is not there: it may be saved all the same, and fails where it is named when it runs. */

/** The asking party. `tenantId`: the tenant whose workflows they may know; undefined: every tenant. */
type Asking = { readonly reader: Requester; readonly tenantId?: string | null | undefined }

type Named = { readonly nodeId: string; readonly kind: 'workflow' | 'user'; readonly of: string }

/** `coming`: workflows that are there as good as. */
export async function missingIn(
  deps: WorkflowWrites,
  { reader, tenantId }: Asking,
  flowData: unknown,
  coming: ReadonlySet<string | undefined> = new Set(),
): Promise<readonly WorkflowProblem[]> {
  const { nodes } = readFlow(flowData, [])
  const named = nodes.flatMap(({ id, type, data }): Named[] => {
    if (type === 'workflow') return textsOf(data.workflowId).map((of) => ({ nodeId: id, kind: 'workflow', of }))
    if (type !== 'notification') return []
    return textsOf(data.userId).map((of) => ({ nodeId: id, kind: 'user', of: of.toLowerCase() }))
  })
  const idsOf = (kind: Named['kind']) => named.flatMap((one) => (one.kind === kind ? [one.of] : []))
  const known = {
    workflow: await workflowsKnown(deps, idsOf('workflow'), tenantId),
    user: await usersKnown(deps, reader, idsOf('user')),
  }
  return named.flatMap(({ nodeId, kind, of }) => {
    const isThere = known[kind]?.has(of) ?? true
    return isThere || (kind === 'workflow' && coming.has(of))
      ? []
      : [{ code: `unknown_${kind}`, message: `There is no ${kind} ${of}`, nodeId }]
  })
}

async function workflowsKnown(
  { db }: WorkflowWrites,
  ids: readonly string[],
  tenantId: string | null | undefined,
): Promise<ReadonlySet<string>> {
  if (ids.length === 0) return new Set()
  const rows = await db.any<{ id: string }>(
    rawQuery(
      `select id from "svc_Workflow" where id = any($1::text[]) and "deletedAt" is null
         and (not $2 or "tenant_Id" is null or "tenant_Id" = $3::uuid)`,
      [ids, tenantId !== undefined, tenantId ?? null],
    ),
  )
  return new Set(rows.map(({ id }) => id))
}

/** Of users the reader hears no more than `/items/svc_User` would say; undefined: nothing. */
async function usersKnown(
  deps: WorkflowWrites,
  reader: Requester,
  ids: readonly string[],
): Promise<ReadonlySet<string> | undefined> {
  if (!reader.access.admin && reader.access.grant('svc_User', 'read') === undefined) return undefined
  const asked = [...new Set(ids.filter(isUuid))]
  if (asked.length === 0) return new Set()
  const list = await listItems(deps, reader, 'svc_User', { filter: { id: { in: asked } }, fields: ['id'], limit: -1 })
  const { data } = JSON.parse(typeof list === 'string' ? list : await text(list))
  return new Set(data.map(({ id }: { readonly id: string }) => id))
}

/** Several may be named, with commas between; what a template stands for nobody knows yet. */
const textsOf = (value: unknown): readonly string[] =>
  (Array.isArray(value) ? value : [value])
    .flatMap((one) => (typeof one === 'string' ? one.split(',') : []))
    .map((one) => one.trim())
    .filter((one) => one !== '' && !one.includes('{{'))
