import { Type } from '../../../../adapters/typebox.ts'
import { OneOf, Text } from '../../../../http/shapes.ts'
import {
  Fields,
  filtered,
  filteredQuery,
  ItemId,
  Limit,
  listText,
  Members,
  optional,
  Page,
  paging,
  RowId,
  type Tool,
  tool,
} from '../tool.ts'

const read = (collection: string) => ({ action: 'read', collection }) as const

const settings: readonly Tool[] = [
  tool({
    name: 'svc_server_info',
    title: 'Read about the server',
    description: 'Name, version and ways to sign in.',
    group: 'read',
    input: {},
    route: 'GET /',
    call: () => ({}),
  }),
  tool({
    name: 'svc_get_settings',
    title: 'Read the settings',
    description: 'The settings that the caller may see, or one of them.',
    group: 'read',
    input: { key: optional(Text('project_name', { minLength: 1, description: 'One setting.' })) },
    output: Type.Object({ data: Type.Record(Type.String(), Type.Unknown()) }),
    route: 'GET /settings',
    call: () => ({}),
    answer: ({ data }, { key }) =>
      key === undefined ? { data } : { data: { [key]: (data as Readonly<Record<string, unknown>>)[key] ?? null } },
  }),
  tool({
    name: 'svc_update_settings',
    title: 'Change settings',
    description: 'Changes the settings that are named.',
    group: 'update',
    input: { settings: Members('Settings by name.', { project_name: 'Acme' }) },
    route: 'PATCH /settings',
    call: ({ settings: body }) => ({ body }),
  }),
  tool({
    name: 'svc_list_templates',
    title: 'List mail templates',
    description: 'The stored mail templates.',
    group: 'read',
    needs: read('svc_Template'),
    input: filtered,
    route: 'GET /items/:collection',
    call: (asked) => ({ params: { collection: 'svc_Template' }, query: filteredQuery(asked) }),
  }),
  tool({
    name: 'svc_get_template',
    title: 'Read a mail template',
    description: 'One stored mail template.',
    group: 'read',
    needs: read('svc_Template'),
    input: { id: RowId('template') },
    route: 'GET /items/:collection/:id',
    call: ({ id }) => ({ params: { collection: 'svc_Template', id } }),
  }),
  tool({
    name: 'svc_update_template',
    title: 'Change a mail template',
    description: 'Changes the subject, body or description of a stored mail template, or switches it off.',
    group: 'update',
    needs: { action: 'update', collection: 'svc_Template' },
    input: {
      id: RowId('template'),
      subject: optional(Text('Join {{ tenant.name }}')),
      description: optional(Text('For new members')),
      body: optional(Text('<p>Join {{ tenant.name }}</p>', { description: 'HTML with variables.' })),
      isActive: optional(Type.Boolean()),
    },
    route: 'PATCH /items/:collection/:id',
    call: ({ id, ...body }) => ({ params: { collection: 'svc_Template', id }, body }),
  }),
]

const notifications: readonly Tool[] = [
  tool({
    name: 'svc_list_notifications',
    title: 'List your notifications',
    description: 'The caller’s own notifications, the newest first.',
    group: 'read',
    input: {
      page: Page,
      limit: Limit,
      seen: optional(Type.Boolean({ description: 'Only seen or only unseen ones.' })),
    },
    route: 'GET /notifications',
    call: ({ seen, ...page }) => ({ query: { ...(seen !== undefined && { filter: { seen } }), ...paging(page) } }),
  }),
  tool({
    name: 'svc_mark_notification_seen',
    title: 'Mark a notification as seen',
    description: 'Marks one notification of the caller as seen.',
    group: 'update',
    isDestructive: false,
    input: { id: RowId('notification') },
    route: 'POST /notifications/mark-seen',
    call: ({ id }) => ({ body: { notificationIds: [id] } }),
  }),
  tool({
    name: 'svc_send_notification',
    title: 'Send a notification',
    description: 'Sends a notification to users.',
    group: 'create',
    input: {
      recipients: Type.Array(Type.String({ minLength: 1 }), {
        minItems: 1,
        maxItems: 1000,
        description: 'Ids of users.',
        examples: [['0198c0de-7a11-7cc1-9f3a-5d1f0c2b7e44']],
      }),
      title: Text('Your export is ready', { minLength: 1 }),
      message: Text('You can download it for seven days.', { minLength: 1 }),
      type: Text('info', { minLength: 1, default: 'info' }),
    },
    route: 'POST /notifications/send',
    call: ({ recipients: userIds, ...body }) => ({ body: { ...body, userIds } }),
  }),
]

const collection = 'svc_Tasks'

const tasks: readonly Tool[] = [
  tool({
    name: 'svc_list_tasks',
    title: 'List tasks',
    description: 'Background tasks: what waits, runs, has ended or failed.',
    group: 'read',
    needs: read(collection),
    input: filtered,
    route: 'GET /items/:collection',
    call: ({ sort = 'scheduled_time:desc', ...rest }) => ({
      params: { collection },
      query: filteredQuery({ sort, ...rest }),
    }),
  }),
  tool({
    name: 'svc_get_task',
    title: 'Read a task',
    description: 'The state, progress and outcome of one task.',
    group: 'read',
    needs: read(collection),
    input: { id: ItemId },
    route: 'GET /items/:collection/:id',
    call: ({ id }) => ({ params: { collection, id } }),
  }),
  tool({
    name: 'svc_create_task',
    title: 'Create a task',
    description: 'Has work done in the background, now or later.',
    group: 'create',
    needs: { action: 'create', collection },
    input: {
      type: Text('report', { minLength: 1, description: 'The handler of an extension.' }),
      task_data: optional(Members('The input of the handler.', { year: 2026 })),
      scheduled_time: optional(Text('2026-03-14T09:26:53Z', { description: 'When it starts; now unless given.' })),
      max_retries: optional(Type.Integer({ minimum: 0, description: 'How often a broken attempt is repeated.' })),
    },
    route: 'POST /items/:collection',
    call: (body) => ({ params: { collection }, body }),
  }),
  tool({
    name: 'svc_cancel_task',
    title: 'Cancel a task',
    description: 'Keeps one task from being started.',
    group: 'update',
    needs: { action: 'update', collection },
    input: { id: ItemId },
    route: 'PATCH /items/:collection/:id',
    call: ({ id }) => ({ params: { collection, id }, body: { status: 'archived' } }),
  }),
]

/** Settings, mail templates, notifications and tasks. */
export const workTools: readonly Tool[] = [...settings, ...notifications, ...tasks]

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
const needs = (action: 'create' | 'read' | 'update' | 'delete') => ({ action, collection: 'svc_Workflow' })
const ofExecution = { id: WorkflowId, execution: ExecutionId }

const defining: readonly Tool[] = [
  tool({
    name: 'svc_list_workflows',
    title: 'List workflows',
    description: 'Workflows that the caller may read: what starts them, and whether they are active.',
    group: 'read',
    needs: needs('read'),
    input: { ...filtered, fields: optional(Fields) },
    route: 'GET /workflows',
    call: ({ fields, ...rest }) => ({
      query: {
        ...filteredQuery(rest),
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
    input: { id: WorkflowId, ...filtered },
    route: 'GET /workflows/:id/executions',
    call: ({ id, ...rest }) => ({ params: { id }, query: filteredQuery(rest) }),
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
      'Starts another execution that goes on from the node that failed, with the outputs of the nodes before it. `version: current` goes on with the workflow as it has been fixed since.',
    group: 'create',
    isDestructive: true,
    input: {
      ...ofExecution,
      version: OneOf(['failed', 'current'], {
        description: 'The version of the workflow that goes on: the one that failed, or the current one.',
        default: 'failed',
      }),
    },
    route: 'POST /workflows/:id/executions/:execution/retry',
    call: ({ version, ...params }) => ({ params, body: { version } }),
  }),
]

/** Workflows and their executions. */
export const workflowTools: readonly Tool[] = [...defining, ...executing]
