import { type Reader, rawQuery } from '../../../db/sql.ts'
import { type Problem, readFlow } from './flow.ts'

/** Of what a workflow names, what is not there: it may be saved all the same, and fails where it is named when it runs. */

/** Of which tenant whoever asks may know workflows; undefined: of every one. */
type Reach = { readonly tenantId: string | null } | undefined

type Named = { readonly nodeId: string; readonly kind: 'workflow' | 'user'; readonly of: string }

/** `coming`: workflows that are there as good as. */
export async function missingIn(
  db: Reader,
  flowData: unknown,
  reach: Reach,
  coming: ReadonlySet<string | undefined> = new Set(),
): Promise<readonly Problem[]> {
  const { nodes } = readFlow(flowData, [])
  const named = nodes.flatMap(({ id, type, data }): Named[] => {
    if (type === 'workflow') return textsOf(data.workflowId).map((of) => ({ nodeId: id, kind: 'workflow', of }))
    if (type !== 'notification') return []
    return textsOf(data.userId).map((of) => ({ nodeId: id, kind: 'user', of: of.toLowerCase() }))
  })
  if (named.length === 0) return []
  const idsOf = (kind: Named['kind']) => named.flatMap((one) => (one.kind === kind ? [one.of] : []))
  const { workflows, users } = await db.one<{ workflows: string[]; users: string[] }>(
    rawQuery(knownSql, [idsOf('workflow'), idsOf('user'), reach !== undefined, reach?.tenantId ?? null]),
  )
  const known = { workflow: new Set(workflows), user: new Set(users) }
  return named.flatMap(({ nodeId, kind, of }) =>
    known[kind].has(of) || (kind === 'workflow' && coming.has(of))
      ? []
      : [{ code: `unknown_${kind}`, message: `There is no ${kind} ${of}`, nodeId }],
  )
}

const knownSql = `select
  array(select id from "svc_Workflow" where id = any($1::text[]) and "deletedAt" is null
    and (not $3 or "tenant_Id" is null or "tenant_Id" = $4::uuid)) as workflows,
  array(select id::text from "svc_User" where id = any(array(select one::uuid from unnest($2::text[]) one
    where one ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$'))) as users`

/** Several may be named, with commas between; what a template stands for nobody knows yet. */
const textsOf = (value: unknown): readonly string[] =>
  (Array.isArray(value) ? value : [value])
    .flatMap((one) => (typeof one === 'string' ? one.split(',') : []))
    .map((one) => one.trim())
    .filter((one) => one !== '' && !one.includes('{{'))
