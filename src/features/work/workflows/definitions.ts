import { type Reader, rawQuery } from '../../../db/sql.ts'
import type { WorkflowDefinition, WorkflowWrites } from './capabilities.ts'
import { type Graph, graphOf, readFlow } from './flow.ts'
import type { ClaimedExecution } from './queries.ts'

/** The versions of workflows, which executions run by. */

async function definitionOf(db: Reader, workflowId: string, version: number): Promise<WorkflowDefinition | undefined> {
  const row = await db.maybeOne<{ definition: WorkflowDefinition }>(
    rawQuery(`select definition from "svc_WorkflowVersion" where "workflow_Id" = $1 and version = $2`, [
      workflowId,
      version,
    ]),
  )
  return row?.definition
}

const definitionsKept = 500

/** A version never changes: it is read, and made a graph, once. */
export function definitionFor(
  { reserved, workflows: { definitions } }: WorkflowWrites,
  { workflow_Id, version }: Pick<ClaimedExecution, 'workflow_Id' | 'version'>,
): Promise<WorkflowDefinition | undefined> {
  const key = `${version} ${workflow_Id}`
  const found = definitions.get(key)
  if (found !== undefined) return found
  if (definitions.size >= definitionsKept) definitions.clear()
  const read = definitionOf(reserved, workflow_Id, version)
  definitions.set(key, read)
  read.then(
    (definition) => definition ?? definitions.delete(key),
    () => definitions.delete(key),
  )
  return read
}

const graphs = new WeakMap<object, Graph>()

export function graphFor(definition: Pick<WorkflowDefinition, 'flow_data'>): Graph {
  const known = graphs.get(definition)
  if (known !== undefined) return known
  const graph = graphOf(readFlow(definition.flow_data, []))
  graphs.set(definition, graph)
  return graph
}
