/** The system collections of tasks, workflows, webhooks, saved views and pages. */
import type { CollectionDefinition, FieldJson, IndexJson, SchemaJson } from './catalog.ts'

// Fields, indexes and defaults that the definitions of system collections share.

export const uuid: FieldJson = { type: 'UUID' }
export const id: FieldJson = { type: 'UUID', primaryKey: true, defaultValue: { type: 'UUIDV4' } }
export const serial: FieldJson = { type: 'Integer', primaryKey: true, defaultValue: { type: 'AUTOINCREMENT' } }
export const string: FieldJson = { type: 'String' }
export const text: FieldJson = { type: 'Text' }
export const integer: FieldJson = { type: 'Integer' }
export const dateTime: FieldJson = { type: 'DateTime' }
export const json: FieldJson = { type: 'JSON' }
export const no: FieldJson = { type: 'Boolean', allowNull: false, defaultValue: false }
export const yes: FieldJson = { type: 'Boolean', allowNull: false, defaultValue: true }
export const hiddenString: FieldJson = { type: 'String', hidden: true }
export const hiddenText: FieldJson = { type: 'Text', hidden: true }
export const required = (field: FieldJson): FieldJson => ({ ...field, allowNull: false })
export const preset = (field: FieldJson, defaultValue: unknown): FieldJson => ({ ...field, defaultValue })
export const oneOf = (values: string[], more: FieldJson = {}): FieldJson => ({ type: 'ENUM', values, ...more })
export const belongsTo = (target: string, foreignKey: string, more: FieldJson = {}): FieldJson => ({
  relType: 'BelongsTo',
  target,
  foreignKey,
  ...more,
})
export const hasMany = (target: string, foreignKey: string): FieldJson => ({ relType: 'HasMany', target, foreignKey })
export const cascade = { onDelete: 'CASCADE' }
export const index = (name: string, fields: string[], more: Partial<IndexJson> = {}): IndexJson => ({
  name,
  fields,
  ...more,
})
export const unique = { unique: true }

export function define(collectionName: string, schema: SchemaJson): CollectionDefinition {
  const fields = Object.fromEntries(
    Object.entries(schema.fields).map(([name, field]) => [name, { ...field, SystemGenerated: 'true' }]),
  )
  return { collectionName, schema: { timestamps: true, ...schema, fields } }
}

/* Tasks. */

export const tasks = define('svc_Tasks', {
  usertrack: true,
  fields: {
    id: serial,
    status: oneOf(['published', 'draft', 'archived'], { defaultValue: 'draft' }),
    task_status: oneOf(['Not started', 'Running', 'Completed', 'Error'], {
      allowNull: false,
      defaultValue: 'Not started',
    }),
    type: required(string),
    scheduled_time: preset(required(dateTime), { type: 'NOW' }),
    attachment_id: uuid,
    task_data: json,
    result_data: json,
    error_data: json,
    max_retries: preset(required(integer), 0),
    retry_count: preset(required(integer), 0),
    started_at: dateTime,
    progress: { type: 'Float', unlogged: true },
    progress_message: { ...string, unlogged: true },
    // The claim of the attempt that runs (features/work/tasks/tasks.ts); retry_at is when the next one may begin.
    attempt_token: { type: 'UUID', hidden: true, unlogged: true },
    heartbeat_at: { type: 'DateTime', unlogged: true },
    retry_at: { type: 'DateTime', unlogged: true },
    tenant_Id: uuid,
    attachment: belongsTo('svc_File', 'attachment_id', { onDelete: 'SET NULL', onUpdate: 'SET NULL' }),
    tenant: belongsTo('svc_Tenant', 'tenant_Id', cascade),
  },
  indexes: [
    // With the id it is the order of claims: without, a claim sorts all that became due at the same time.
    index('svc_Tasks_status_scheduled_idx', ['task_status', 'scheduled_time', 'id']),
    index('svc_Tasks_status_started_idx', ['task_status', 'started_at']),
  ],
})

/* Workflows. */

const hookActions = ['read', 'read.one', 'create', 'update', 'delete'].flatMap((action) => [
  `items.${action}`,
  `items.${action}.after`,
])

export const workflow = define('svc_Workflow', {
  paranoid: true,
  usertrack: true,
  fields: {
    id: { type: 'String', primaryKey: true, values: { stringLength: 100 }, defaultValue: { type: 'UUIDV4' } },
    name: required(string),
    description: text,
    status: oneOf(['active', 'inactive', 'draft'], { defaultValue: 'draft' }),
    trigger_type: oneOf(['manual', 'webhook', 'schedule', 'hook'], { defaultValue: 'manual' }),
    trigger_cron: string,
    trigger_webhook_path: string,
    trigger_webhook_method: oneOf(['GET', 'POST', 'PUT', 'PATCH', 'DELETE']),
    trigger_hook_collection: string,
    trigger_hook_action: oneOf(hookActions),
    flow_data: preset(json, { nodes: [], edges: [] }),
    variables: preset(json, {}),
    options: preset(json, {}),
    allowed_roles: preset(json, []),
    // Counted by a trigger: another one for every change of what executions run by.
    version: preset(required(integer), 1),
    // The user as whom it acts (features/work/workflows/authority.ts): the one who saved what it does.
    authority_Id: uuid,
    tenant_Id: uuid,
    authority: belongsTo('svc_User', 'authority_Id', { onDelete: 'SET NULL' }),
    tenant: belongsTo('svc_Tenant', 'tenant_Id', cascade),
    executions: hasMany('svc_WorkflowExecution', 'workflow_Id'),
  },
  indexes: [
    index('svc_Workflow_webhook_idx', ['trigger_webhook_path', 'trigger_webhook_method']),
    index('svc_Workflow_hook_idx', ['trigger_hook_collection', 'trigger_hook_action']),
  ],
})

export const workflowExecution = define('svc_WorkflowExecution', {
  fields: {
    id,
    workflow_Id: required({ type: 'String', values: { stringLength: 100 } }),
    version: integer,
    status: oneOf(['queued', 'running', 'completed', 'failed', 'cancelled'], { defaultValue: 'queued' }),
    trigger: oneOf(['manual', 'webhook', 'schedule', 'hook', 'workflow', 'test'], { defaultValue: 'manual' }),
    // The data of an execution is kept beside the log: it may be large, and was never anybody's row.
    trigger_data: { ...preset(json, {}), unlogged: true },
    context_data: { ...preset(json, {}), unlogged: true },
    result_data: { ...preset(json, {}), unlogged: true },
    errorMessage: text,
    startedAt: dateTime,
    completedAt: dateTime,
    durationMs: integer,
    tenant_Id: uuid,
    triggered_by_Id: uuid,
    // The failed execution that this one goes on with, and the one whose node waits for it.
    retry_of_Id: uuid,
    parent_Id: uuid,
    // The caller, if another one than the user who triggered the first workflow of the chain; and the cause.
    caller_Id: { ...uuid, hidden: true, unlogged: true },
    // The scope of a program that acts in the caller's name.
    caller_scope: { ...string, allowNull: true, hidden: true, unlogged: true },
    cause: { ...json, hidden: true, unlogged: true },
    // The claim of the process that runs it, and when it is to go on; neither while it waits for another one.
    claim_token: { ...uuid, hidden: true, unlogged: true },
    heartbeat_at: { ...dateTime, unlogged: true },
    due_at: { ...preset(dateTime, { type: 'NOW' }), unlogged: true },
    attempts: { ...preset(integer, 0), unlogged: true },
    watched: { ...no, hidden: true, unlogged: true },
    workflow: belongsTo('svc_Workflow', 'workflow_Id', cascade),
    tenant: belongsTo('svc_Tenant', 'tenant_Id', cascade),
    triggered_by: belongsTo('svc_User', 'triggered_by_Id'),
    logs: hasMany('svc_WorkflowExecutionLog', 'execution_Id'),
  },
  indexes: [
    index('svc_WorkflowExecution_workflow_status_idx', ['workflow_Id', 'status']),
    index('svc_WorkflowExecution_tenant_created_idx', ['tenant_Id', 'createdAt']),
  ],
})

export const workflowExecutionLog = define('svc_WorkflowExecutionLog', {
  fields: {
    id,
    execution_Id: required(uuid),
    nodeId: required(string),
    nodeType: required(string),
    nodeLabel: string,
    status: oneOf(['pending', 'running', 'success', 'failed', 'skipped'], { defaultValue: 'pending' }),
    inputData: preset(json, {}),
    outputData: preset(json, {}),
    errorMessage: text,
    durationMs: integer,
    // Its place in the execution, and the node with the iterations of the loops around it.
    seq: integer,
    step: text,
    execution: belongsTo('svc_WorkflowExecution', 'execution_Id', cascade),
  },
  indexes: [index('svc_WorkflowExecutionLog_execution_seq_unique', ['execution_Id', 'seq'], unique)],
})

/** The values of `{{ secrets.name }}`. */
export const secret = define('svc_Secret', {
  fields: {
    id,
    name: required(string),
    value: required(hiddenText),
    hosts: preset(required(json), []),
    tenant_Id: uuid,
    tenant: belongsTo('svc_Tenant', 'tenant_Id', cascade),
  },
  indexes: [index('svc_Secret_tenant_name_unique', ['tenant_Id', 'name'], { unique: true, nullsNotDistinct: true })],
})

/* Webhooks, and their deliveries. */

export const webhook = define('svc_Webhook', {
  fields: {
    id,
    name: required(string),
    url: required(text),
    collections: required(json),
    actions: json,
    filter: json,
    fields: json,
    status: oneOf(['active', 'paused'], { defaultValue: 'active', allowNull: false }),
    reason: text,
    role_Id: required(uuid),
    tenant_Id: uuid,
    user_Id: required(uuid),
    secret: required(hiddenText),
    formerSecret: hiddenText,
    formerUntil: dateTime,
    role: belongsTo('svc_Role', 'role_Id', cascade),
    tenant: belongsTo('svc_Tenant', 'tenant_Id', cascade),
    user: belongsTo('svc_User', 'user_Id', cascade),
  },
  indexes: [index('svc_Webhook_user_idx', ['user_Id'])],
})

export const webhookDelivery = define('svc_WebhookDelivery', {
  fields: {
    id,
    webhook_Id: required(uuid),
    tenant_Id: uuid,
    position: required({ type: 'BigInt' }),
    collection: string,
    action: required(string),
    itemId: text,
    cursor: text,
    depth: preset(integer, 0),
    request: uuid,
    status: oneOf(['pending', 'delivered', 'withheld', 'dead'], { defaultValue: 'pending', allowNull: false }),
    attempts: preset(integer, 0),
    nextAt: required(dateTime),
    claimToken: { ...uuid, hidden: true },
    claimedUntil: dateTime,
    responseStatus: integer,
    response: text,
    error: text,
    durationMs: integer,
    webhook: belongsTo('svc_Webhook', 'webhook_Id', cascade),
  },
  indexes: [index('svc_WebhookDelivery_webhook_idx', ['webhook_Id', 'createdAt'])],
})

/** Saved settings of a page of the console. */
export const view = define('svc_View', {
  fields: {
    id,
    name: required(string),
    page: required(string),
    collection: string,
    query: required(json),
    user_Id: required(uuid),
    role_Id: uuid,
    tenant_Id: uuid,
    user: belongsTo('svc_User', 'user_Id', cascade),
    role: belongsTo('svc_Role', 'role_Id', cascade),
  },
  indexes: [index('svc_View_user_idx', ['user_Id']), index('svc_View_role_idx', ['role_Id'])],
})

/* Pages that a user interface builds of blocks; the server keeps them and decides who reads them. */

export const page = define('svc_Page', {
  usertrack: true,
  realtime: true,
  fields: {
    id,
    name: required(string),
    slug: required(string),
    icon: string,
    description: text,
    parent_Id: uuid,
    sort: preset(integer, 0),
    isPublic: no,
    enabled: yes,
    options: json,
    tenant_Id: uuid,
    parent: belongsTo('svc_Page', 'parent_Id', { onDelete: 'SET NULL' }),
    tenant: belongsTo('svc_Tenant', 'tenant_Id', cascade),
    blocks: hasMany('svc_Block', 'page_Id'),
  },
  indexes: [index('svc_Page_tenant_slug_unique', ['tenant_Id', 'slug'], { unique: true, nullsNotDistinct: true })],
})

export const block = define('svc_Block', {
  usertrack: true,
  realtime: true,
  fields: {
    id,
    page_Id: required(uuid),
    type: oneOf(['table', 'form', 'details', 'kanban', 'calendar', 'chart', 'cardlist', 'map', 'markdown', 'filter'], {
      allowNull: false,
    }),
    collection: string,
    position: json,
    config: json,
    configVersion: preset(integer, 1),
    page: belongsTo('svc_Page', 'page_Id', cascade),
  },
})
