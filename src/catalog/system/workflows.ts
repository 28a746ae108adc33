import {
  belongsTo,
  cascade,
  dateTime,
  define,
  hasMany,
  id,
  index,
  integer,
  json,
  oneOf,
  preset,
  required,
  string,
  text,
  uuid,
} from './fields.ts'

const hookActions = ['read', 'read.one', 'create', 'update', 'delete'].flatMap((action) => [
  `items.${action}`,
  `items.${action}.after`,
])

export const workflow = define('svc_Workflow', {
  paranoid: true,
  usertrack: true,
  fields: {
    id: { type: 'String', primaryKey: true, values: { stringLength: 100 } },
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
    status: oneOf(['queued', 'running', 'completed', 'failed', 'cancelled'], { defaultValue: 'queued' }),
    trigger_data: preset(json, {}),
    context_data: preset(json, {}),
    result_data: preset(json, {}),
    errorMessage: text,
    startedAt: dateTime,
    completedAt: dateTime,
    durationMs: integer,
    tenant_Id: uuid,
    triggered_by_Id: uuid,
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
    execution: belongsTo('svc_WorkflowExecution', 'execution_Id', cascade),
  },
  indexes: [index('svc_WorkflowExecutionLog_execution_Id_idx', ['execution_Id'])],
})
