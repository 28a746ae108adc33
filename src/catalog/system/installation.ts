import {
  belongsTo,
  cascade,
  dateTime,
  define,
  hiddenString,
  id,
  index,
  integer,
  json,
  oneOf,
  preset,
  required,
  serial,
  string,
  text,
  unique,
  uuid,
} from './fields.ts'

/* The installation itself: its collections, migrations, log and settings. */

const fileFields = [
  'project_logo_light',
  'project_logo_dark',
  'project_logo_full',
  'project_logo_transparent',
  'project_favicon',
  'project_icon',
  'email_icon',
]

export const schemaDefinition = define('svc_SchemaDefinition', {
  fields: { collectionName: { type: 'String', primaryKey: true }, schema: required(json) },
})

export const migration = define('svc_Migration', {
  fields: {
    id,
    version: required(string),
    name: required(string),
    description: text,
    type: oneOf(['upgrade', 'hotfix', 'schema', 'data', 'rollback'], { allowNull: false, defaultValue: 'upgrade' }),
    status: oneOf(['pending', 'running', 'completed', 'failed', 'rolled_back', 'skipped'], {
      allowNull: false,
      defaultValue: 'pending',
    }),
    batch: integer,
    executedAt: dateTime,
    executionTimeMs: integer,
    errorMessage: text,
    errorStack: text,
    metadata: preset(json, {}),
    checksum: string,
    canRollback: preset({ type: 'Boolean' }, false),
    rolledBackAt: dateTime,
  },
  indexes: [
    index('svc_Migration_version_unique', ['version'], unique),
    index('svc_Migration_status_idx', ['status']),
    index('svc_Migration_batch_idx', ['batch']),
    index('svc_Migration_executedAt_idx', ['executedAt']),
  ],
})

export const auditLog = define('svc_AuditLog', {
  timestamps: false,
  fields: {
    id,
    type: preset(required(string), 'data'),
    entity: required(string),
    entityId: string,
    action: required(string),
    changes: json,
    ipaddress: string,
    userId: uuid,
    tenant_Id: uuid,
    createdAt: required(dateTime),
    updatedAt: required(dateTime),
    user: belongsTo('svc_User', 'userId', { constraints: false }),
    tenant: belongsTo('svc_Tenant', 'tenant_Id', { constraints: false }),
  },
})

export const settings = define('svc_Settings', {
  fields: {
    id: serial,
    tenant_Id: uuid,
    project_name: string,
    title: string,
    project_url: string,
    app_url: string,
    project_color: string,
    secondary_color: preset(string, '#f0f0f0'),
    description: text,
    keywords: string,
    ...Object.fromEntries(fileFields.map((name) => [`${name}_Id`, uuid])),
    email_signature: text,
    from_email_name: string,
    smtp_enabled: { type: 'Boolean', defaultValue: false },
    smtp_host: string,
    smtp_port: preset(integer, 587),
    smtp_secure: { type: 'Boolean', defaultValue: false },
    smtp_user: string,
    smtp_pass: hiddenString,
    smtp_from_address: string,
    timezone: preset(string, 'UTC'),
    language: preset(string, 'en'),
    date_format: preset(string, 'YYYY-MM-DD'),
    currency: preset(string, 'USD'),
    session_limits: json,
    metadata: json,
    modules: json,
    tenant: belongsTo('svc_Tenant', 'tenant_Id', cascade),
    ...Object.fromEntries(
      fileFields.map((name) => [name, belongsTo('svc_File', `${name}_Id`, { onDelete: 'RESTRICT' })]),
    ),
  },
  indexes: [index('svc_Settings_tenant_Id', ['tenant_Id'], { unique: true, nullsNotDistinct: true })],
})
