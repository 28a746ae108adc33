import { Text } from '../../../../http/shapes.ts'
import {
  Fields,
  Filter,
  Limit,
  listText,
  Members,
  optional,
  Page,
  paging,
  Sort,
  sortText,
  type Tool,
  tool,
} from '../tool.ts'

const WorkflowId = Text('orders-approve', {
  minLength: 1,
  description: 'The id of the workflow: its own word, or a UUID.',
})
const ExecutionId = Text('0198c0de-7a11-7cc1-9f3a-5d1f0c2b7e44', {
  minLength: 1,
  description: 'The id of the execution.',
})
const Flow = Members(
  'Nodes `{id, type, data}` and edges `{source, target, sourceHandle}`; one node is of the type `trigger`.',
  {
    nodes: [{ id: 'start', type: 'trigger', data: {} }],
    edges: [],
  },
)
const Columns = Members(
  'Columns of svc_Workflow: name, status (draft, active, inactive), trigger_type and what belongs to it, flow_data, variables, options.',
  { name: 'Approve orders', status: 'draft', trigger_type: 'manual' },
)
const paged = { filter: optional(Filter), sort: optional(Sort), page: Page, limit: Limit }
type Paged = { readonly filter?: object; readonly sort?: string; readonly page: number; readonly limit: number }
const listQuery = ({ filter, sort, ...page }: Paged) => ({ filter, sort: sortText(sort), ...paging(page) })
const needs = (action: 'create' | 'read' | 'update' | 'delete') => ({ action, collection: 'svc_Workflow' })
const ofExecution = { id: WorkflowId, execution: ExecutionId }

const defining: readonly Tool[] = [
  tool({
    name: 'svc_list_workflows',
    title: 'List workflows',
    description: 'Workflows that the caller may read: what starts them, and whether they are active.',
    group: 'read',
    needs: needs('read'),
    input: { ...paged, fields: optional(Fields) },
    route: 'GET /workflows',
    call: ({ fields, ...rest }) => ({
      query: {
        ...listQuery(rest),
        fields: listText(fields ?? 'id,name,description,status,trigger_type,version,updatedAt'),
      },
    }),
  }),
  tool({
    name: 'svc_get_workflow',
    title: 'Read a workflow',
    description: 'One workflow with its graph, variables and options.',
    group: 'read',
    needs: needs('read'),
    input: { id: WorkflowId },
    route: 'GET /workflows/:id',
    call: ({ id }) => ({ params: { id } }),
  }),
  tool({
    name: 'svc_validate_workflow',
    title: 'Check a workflow',
    description:
      'Checks a graph by every rule that an active workflow keeps, and saves nothing. Answers all problems, each with its node.',
    group: 'read',
    input: { flow_data: Flow },
    route: 'POST /workflows/validate',
    call: (body) => ({ body }),
  }),
  tool({
    name: 'svc_create_workflow',
    title: 'Create a workflow',
    description:
      'Saves a new workflow and answers its id. A draft may be anything of the right shape; an active one keeps every rule.',
    group: 'create',
    needs: needs('create'),
    input: { workflow: Columns },
    route: 'POST /workflows',
    call: ({ workflow: body }) => ({ body }),
  }),
  tool({
    name: 'svc_update_workflow',
    title: 'Change a workflow',
    description:
      'Saves columns of one workflow; what is not named stays. Executions that run keep what they began with.',
    group: 'update',
    needs: needs('update'),
    input: { id: WorkflowId, workflow: Columns },
    route: 'PATCH /workflows/:id',
    call: ({ id, workflow: body }) => ({ params: { id }, body }),
  }),
  tool({
    name: 'svc_delete_workflow',
    title: 'Delete a workflow',
    description: 'Marks one workflow as deleted: nothing starts it any more.',
    group: 'delete',
    needs: needs('delete'),
    input: { id: WorkflowId },
    route: 'DELETE /workflows/:id',
    call: ({ id }) => ({ params: { id } }),
  }),
]

const executing: readonly Tool[] = [
  tool({
    name: 'svc_execute_workflow',
    title: 'Execute a workflow',
    description:
      'Starts an active workflow and answers the id of its execution, with all the effects that its nodes have.',
    group: 'create',
    isDestructive: true,
    input: { id: WorkflowId, data: optional(Members('The value of `trigger` for the nodes.', { orderId: 42 })) },
    route: 'POST /workflows/:id/execute',
    call: ({ id, data = {} }) => ({ params: { id }, body: data }),
  }),
  tool({
    name: 'svc_list_workflow_executions',
    title: 'List executions of a workflow',
    description: 'Executions of one workflow, the newest first: how they stand, and why they failed.',
    group: 'read',
    needs: { action: 'read', collection: 'svc_WorkflowExecution' },
    input: { id: WorkflowId, ...paged },
    route: 'GET /workflows/:id/executions',
    call: ({ id, ...rest }) => ({ params: { id }, query: listQuery(rest) }),
  }),
  tool({
    name: 'svc_get_workflow_execution',
    title: 'Read an execution',
    description: 'One execution with its nodes: what each was given, and what it gave.',
    group: 'read',
    needs: { action: 'read', collection: 'svc_WorkflowExecution' },
    input: ofExecution,
    route: 'GET /workflows/:id/executions/:execution',
    call: (params) => ({ params }),
  }),
  tool({
    name: 'svc_cancel_workflow_execution',
    title: 'Cancel an execution',
    description: 'Ends an execution before its next node. The effects of its nodes stay.',
    group: 'update',
    input: ofExecution,
    route: 'POST /workflows/:id/executions/:execution/cancel',
    call: (params) => ({ params }),
  }),
  tool({
    name: 'svc_retry_workflow_execution',
    title: 'Go on with a failed execution',
    description:
      'Starts another execution that goes on from the node that failed, with the outputs of the nodes before it.',
    group: 'create',
    isDestructive: true,
    input: ofExecution,
    route: 'POST /workflows/:id/executions/:execution/retry',
    call: (params) => ({ params }),
  }),
]

/** Workflows and their executions. */
export const workflowTools: readonly Tool[] = [...defining, ...executing]
