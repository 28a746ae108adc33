import { Type } from '../../../adapters/typebox.ts'
import { type Declaration, route } from '../../../http/route.ts'
import { Anything, Count, closed, Id, Nothing, NullableText, OneOf, RowOf, Text } from '../../../http/shapes.ts'
import { itemsOf, ListQuery, ReadQuery, WrittenShape } from '../../data/items/items.ts'

/** Parameters and answers of the routes of workflows. */

const tag = 'Workflows'

/** For routes whose rows the catalog reads, and whose answers are ready text. */
const dynamic = { tag, readElsewhere: 'all', sendsText: true } as const
const declared = <const D extends Omit<Declaration, 'tag'>>(declaration: D) =>
  route({ tag, ...declaration }, { bodyLimit: 2_097_152 })

const WorkflowId = Text('orders-approve', { description: 'The id of a workflow: its own word, or a UUID.' })
const ofOne = Type.Object({ id: WorkflowId })
const ofExecution = Type.Object({ id: WorkflowId, execution: Id() })
const ofNode = Type.Object({ id: WorkflowId, node: Text('node-1') })

const workflowColumns = {
  description:
    'Columns of svc_Workflow: name, status, trigger_type and what belongs to it, flow_data, variables, options.',
  examples: [
    {
      name: 'Approve orders',
      status: 'draft',
      trigger_type: 'manual',
      flow_data: { nodes: [{ id: 'start', type: 'trigger', data: {} }], edges: [] },
    },
  ],
}
const NewWorkflow = Type.Object({ name: Text('Approve orders') }, { additionalProperties: true, ...workflowColumns })
const WorkflowRow = Type.Record(Type.String(), Type.Unknown(), workflowColumns)
const StoredWorkflow = RowOf({ id: 'orders-approve', name: 'Approve orders', status: 'draft', trigger_type: 'manual' })
const Execution = RowOf({
  ...{ id: '0198c0de-7a11-7cc1-9f3a-5d1f0c2b7e44', workflow_Id: 'orders-approve', status: 'completed' },
  ...{ startedAt: '2026-03-14T09:26:53.589Z', completedAt: '2026-03-14T09:26:54.012Z' },
})
const ExecutedNode = RowOf({ nodeId: 'node-1', nodeType: 'condition', status: 'success', durationMs: 3 })

export const listRoute = route({
  ...dynamic,
  summary: 'List workflows',
  scope: 'read',
  query: ListQuery,
  response: { 200: itemsOf(StoredWorkflow), 304: Nothing },
})
export const readRoute = route({
  ...dynamic,
  summary: 'Read a workflow',
  scope: 'read',
  params: ofOne,
  query: ReadQuery,
  response: { 200: Type.Object({ data: StoredWorkflow }), 304: Nothing },
})
export const createRoute = route({
  ...dynamic,
  summary: 'Create a workflow',
  scope: 'admin',
  description: 'A draft may be anything of the right shape; an active workflow keeps every rule.',
  body: NewWorkflow,
  response: { 201: WrittenShape },
})
export const updateRoute = route({
  ...dynamic,
  summary: 'Change a workflow',
  scope: 'admin',
  description: 'With `If-Match` only the version that it names. Executions that run keep what they began with.',
  params: ofOne,
  body: WorkflowRow,
  response: { 200: WrittenShape },
})
export const deleteRoute = route({
  ...dynamic,
  summary: 'Delete a workflow',
  scope: 'admin',
  description: 'Cancels its executions that are not over; they stay readable.',
  params: ofOne,
  response: { 200: WrittenShape },
})

const Problems = Type.Array(
  Type.Object({
    code: Text('config'),
    message: Text('url is missing'),
    nodeId: Type.Optional(Text('node-2')),
  }),
)
const FlowData = Type.Record(Type.String(), Type.Unknown(), {
  description: 'Nodes and edges.',
  refusal: 'Invalid workflow data',
  examples: [{ nodes: [{ id: 'start', type: 'trigger', data: {} }], edges: [] }],
})

export const validateRoute = declared({
  summary: 'Check a workflow',
  scope: 'read',
  description: 'Every rule that an active workflow keeps. Answers 200 also where it is not valid.',
  body: Type.Object({ flow_data: FlowData }),
  response: { 200: Type.Object({ valid: Type.Boolean(), errors: Problems, warnings: Problems }) },
})

const WorkflowFile = Type.Object({
  message: Text('Exported 1 workflow(s)'),
  version: Text('1.0'),
  exportedAt: Text('2026-03-14T09:26:53.589Z'),
  workflows: Type.Array(StoredWorkflow),
})
export const exportRoute = declared({
  summary: 'Export workflows',
  scope: 'admin',
  description: 'For administrators. Secrets are named in it and never part of it.',
  body: Type.Object({
    workflowIds: Type.Array(Type.String(), {
      ...{ minItems: 1, examples: [['orders-approve']], refusal: 'workflowIds array is required' },
    }),
  }),
  response: { 200: WorkflowFile },
})
export const exportOneRoute = declared({
  summary: 'Export a workflow',
  scope: 'admin',
  params: ofOne,
  response: { 200: WorkflowFile },
})

const ImportQuery = Type.Object({
  overwrite: Type.Optional(Text('true', { description: 'Changes those that there are already.' })),
})
const ImportBody = Type.Object({
  workflows: Type.Array(StoredWorkflow, {
    examples: [[{ id: 'orders-approve', name: 'Approve orders' }]],
    description: 'As an export has them; those with a known id are changed with `overwrite` only.',
  }),
  overwrite: Type.Optional(Type.Boolean()),
})
const importing = { query: ImportQuery, body: ImportBody, readElsewhere: 'all', sendsText: true } as const
export const importRoute = declared({
  summary: 'Import workflows',
  scope: 'admin',
  description: 'As JSON, or as the part `file` of a form. You are the author of what you import.',
  ...importing,
  response: {
    200: Type.Object({
      message: Text('Import completed'),
      summary: Type.Object({
        total: Count(1),
        created: Count(1),
        updated: Count(0),
        skipped: Count(0),
        errors: Count(0),
      }),
      results: Type.Array(
        Type.Object({
          id: NullableText('orders-approve'),
          name: NullableText('Approve orders'),
          status: OneOf(['created', 'updated', 'skipped', 'error']),
          message: NullableText('There is one already'),
        }),
      ),
    }),
  },
})
export const previewRoute = declared({
  summary: 'Show what an import of workflows would do',
  scope: 'admin',
  ...importing,
  response: {
    200: Type.Object({
      workflows: Type.Array(
        Type.Object({
          id: NullableText('orders-approve'),
          name: NullableText('Approve orders'),
          action: OneOf(['create', 'update', 'skip']),
          errors: Problems,
          warnings: Problems,
        }),
      ),
    }),
  },
})

/* Executions. */

const Started = Type.Object({
  id: Id(),
  status: Text('queued'),
  workflow_Id: WorkflowId,
})
const Data = (example: object, description: string) =>
  Type.Record(Type.String(), Type.Unknown(), { description, examples: [example] })
const triggerData = Data({ orderId: 42 }, 'The value of `trigger` for the nodes.')

export const executeRoute = declared({
  summary: 'Execute a workflow',
  reachesOutside: true,
  scope: 'write',
  description: 'It is queued, and begins after half a second, or as soon as a socket joins `execution:{id}`.',
  params: ofOne,
  body: Type.Unknown({ description: 'The value of `trigger` for the nodes.', examples: [{ orderId: 42 }] }),
  response: { 200: Type.Object({ message: Text('Workflow execution started'), execution: Started }) },
  readElsewhere: 'body',
})
export const testRoute = declared({
  summary: 'Execute a workflow and wait for it',
  scope: 'write',
  description:
    'At most 30 seconds, with all its effects; also one that is not active. `message` says whether it completed, failed, was cancelled or still runs.',
  params: ofOne,
  body: Type.Object({ triggerData: Type.Optional(triggerData), saveExecution: Type.Optional(Type.Boolean()) }),
  response: {
    200: Type.Object({ message: Text('Workflow test completed'), execution: Execution, result: Anything({}) }),
  },
})
export const nodeRoute = declared({
  summary: 'Execute one node',
  scope: 'write',
  description: 'With its effects. `inputData` stands for the context: `trigger`, `outputs`, `variables`, `loop`.',
  params: ofNode,
  body: Type.Object({ inputData: Type.Optional(Data({ trigger: { orderId: 42 } }, 'The context.')) }),
  response: { 200: Type.Object({ message: Text('Node executed successfully'), result: Anything({ result: 3 }) }) },
})
export const executionsRoute = route({
  ...dynamic,
  summary: 'List the executions of a workflow',
  scope: 'read',
  description: 'The newest first.',
  params: ofOne,
  query: ListQuery,
  response: { 200: itemsOf(Execution) },
})
export const executionRoute = route({
  ...dynamic,
  summary: 'Read an execution with its nodes',
  scope: 'read',
  params: ofExecution,
  response: { 200: Type.Object({ data: Execution }) },
})
export const logsRoute = route({
  ...dynamic,
  summary: 'List the nodes of an execution',
  scope: 'read',
  params: ofExecution,
  query: ListQuery,
  response: { 200: itemsOf(ExecutedNode) },
})
export const cancelRoute = declared({
  summary: 'Cancel an execution',
  scope: 'write',
  description: 'It ends before its next node.',
  params: ofExecution,
  response: { 200: Type.Object({ message: Text('Workflow execution cancelled'), execution: Started }) },
})
const RetryVersion = OneOf(['failed', 'current'], {
  description: '`failed`: the version that failed; `current`: the version that the workflow has now.',
  default: 'failed',
  examples: ['current'],
})
export const retryRoute = declared({
  summary: 'Go on with a failed execution',
  reachesOutside: true,
  scope: 'write',
  description:
    'A new execution with the results of the old one, from the node that ended it. Each is continued once: 409 beyond. 409 also where the current version does not come to that node by the nodes that have run.',
  params: ofExecution,
  body: Type.Object({ version: Type.Optional(RetryVersion) }, closed),
  response: { 200: Type.Object({ message: Text('Workflow execution started'), execution: Started }) },
})
const Milliseconds = Type.Unsafe<number | null>({ type: ['number', 'null'], examples: [120] })
export const statsRoute = declared({
  summary: 'Count the executions of a workflow',
  scope: 'read',
  params: ofOne,
  response: {
    200: Type.Object({
      total: Count(12),
      byStatus: Type.Object({
        queued: Count(0),
        running: Count(1),
        completed: Count(10),
        failed: Count(1),
        cancelled: Count(0),
      }),
      avgDuration: Milliseconds,
      totalDuration: Milliseconds,
      lastExecution: NullableText('2026-03-14T09:26:53.589Z'),
    }),
  },
})

const webhook = {
  tag,
  description: 'The answer of the workflow’s node `respond`, or the execution that was started.',
  body: Type.Unknown({
    description:
      'Anything of at most 1 MB. A form has at most 10,000 fields, CSV 50,000 records of 10,000 fields and 8 MB as JSON: 413 beyond.',
    examples: [{ orderId: 42 }],
  }),
  response: {
    200: Type.Object({
      message: Text('Workflow triggered successfully'),
      execution: Type.Object({ id: Id(), status: Text('queued') }),
    }),
    '2xx': Type.Unknown({ description: 'Or another status, as the workflow answers.', examples: [{ imported: 2 }] }),
    202: Type.Object({
      message: Text('Workflow triggered successfully'),
      execution: Type.Object({ id: Id(), status: Text('running') }),
    }),
  },
  readElsewhere: 'all',
  sendsText: true,
} as const
// Senders authorize themselves by secrets of their own, which are none of the API's.
const webhookOptions = { exposeHeadRoute: false, config: { toleratesFaults: true } } as const
export const webhookRoute = route({ ...webhook, summary: 'Trigger a workflow', scope: 'write' }, webhookOptions)
export const webhookReadRoute = route(
  { ...webhook, summary: 'Trigger a workflow', scope: 'read', body: undefined as never },
  webhookOptions,
)
