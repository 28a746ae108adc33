import {
  belongsTo,
  cascade,
  dateTime,
  define,
  index,
  integer,
  json,
  oneOf,
  preset,
  required,
  serial,
  string,
  uuid,
} from './fields.ts'

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
    // The claim of the attempt that runs (features/tasks/queries.ts); retry_at is when the next one may begin.
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
