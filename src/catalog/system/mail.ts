import {
  belongsTo,
  cascade,
  dateTime,
  define,
  id,
  index,
  json,
  preset,
  required,
  string,
  text,
  uuid,
  yes,
} from './fields.ts'

/* What people are sent and shown. */

export const emailLog = define('svc_EmailLog', {
  fields: {
    id,
    email: required(string),
    subject: required(string),
    templateName: string,
    sender: string,
    status: preset(string, 'queued'),
    messageId: string,
    errorMessage: text,
    context: json,
    attempts: { type: 'Integer', allowNull: false, defaultValue: 0, unlogged: true },
    claimToken: { type: 'UUID', hidden: true, unlogged: true },
    claimedAt: { type: 'DateTime', unlogged: true },
    sentAt: dateTime,
    user_Id: uuid,
    tenant_Id: uuid,
  },
  indexes: [
    index('svc_EmailLog_status_idx', ['status', 'createdAt']),
    index('svc_EmailLog_email_idx', ['email', 'createdAt']),
  ],
})

export const template = define('svc_Template', {
  fields: {
    id,
    type: required(string),
    subject: required(string),
    body: required({ type: 'HTML' }),
    tenant_Id: uuid,
    isActive: yes,
    description: text,
    tenant: belongsTo('svc_Tenant', 'tenant_Id', cascade),
  },
  indexes: [
    index('svc_Template_tenant_type_unique', ['tenant_Id', 'type'], { unique: true, nullsNotDistinct: true }),
    index('svc_Template_type_idx', ['type']),
  ],
})

export const notification = define('svc_Notification', {
  realtime: true,
  fields: {
    id,
    type: required(string),
    title: required(string),
    message: text,
    seen: preset({ type: 'Boolean' }, false),
    data: { type: 'JSONB' },
    userId: required(uuid),
    tenant_Id: uuid,
    user: belongsTo('svc_User', 'userId', cascade),
    tenant: belongsTo('svc_Tenant', 'tenant_Id', cascade),
  },
  indexes: [index('svc_Notification_user_idx', ['userId', 'createdAt'])],
})
