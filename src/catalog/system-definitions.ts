/**
 * The system collections, declared like user collections. The first migration creates them; afterwards the stored
 * definition counts (an installation may add fields to some of them).
 */
import type { CollectionDefinition } from './catalog.ts'
import {
  belongsTo,
  block,
  cascade,
  dateTime,
  define,
  hasMany,
  hiddenString,
  hiddenText,
  id,
  index,
  integer,
  json,
  no,
  oneOf,
  page,
  preset,
  required,
  secret,
  serial,
  string,
  tasks,
  text,
  unique,
  uuid,
  view,
  webhook,
  webhookDelivery,
  workflow,
  workflowExecution,
  workflowExecutionLog,
  yes,
} from './system-work.ts'

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

const schemaDefinition = define('svc_SchemaDefinition', {
  fields: { collectionName: { type: 'String', primaryKey: true }, schema: required(json) },
})

const migration = define('svc_Migration', {
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

const auditLog = define('svc_AuditLog', {
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
    requestId: string,
    logRequestId: uuid,
    agent: json,
    cause: json,
    createdAt: required(dateTime),
    updatedAt: required(dateTime),
    user: belongsTo('svc_User', 'userId', { constraints: false }),
    tenant: belongsTo('svc_Tenant', 'tenant_Id', { constraints: false }),
  },
})

const settings = define('svc_Settings', {
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

/* Users, tenants, roles and permissions. */

const tenant = define('svc_Tenant', {
  fields: { id, name: required(string), userRoles: hasMany('svc_UserRole', 'tenant_Id') },
  indexes: [index('svc_Tenant_name_unique', ['name'], unique)],
})

const role = define('svc_Role', {
  fields: {
    id,
    name: required(string),
    description: string,
    isTenantSpecific: yes,
    canInviteRoleIds: preset(json, []),
    app_access: { type: 'Boolean' },
    permissions: hasMany('svc_Permission', 'role_Id'),
    userRoles: hasMany('svc_UserRole', 'role_Id'),
  },
  indexes: [index('svc_Role_name_unique', ['name'], unique)],
})

const permission = define('svc_Permission', {
  fields: {
    id,
    action: required(string),
    collection: required(string),
    role_Id: required(uuid),
    fields: json,
    defaultValues: json,
    conditions: json,
    relConditions: json,
    acl_Ids: json,
    role: belongsTo('svc_Role', 'role_Id', cascade),
  },
  indexes: [index('svc_Permission_action_unique', ['role_Id', 'collection', 'action'], unique)],
})

const acl = define('svc_ACL', {
  fields: {
    id,
    name: required(string),
    description: text,
    conditions: json,
    relConditions: json,
    fields: json,
    defaultValues: json,
    system: no,
  },
  indexes: [index('svc_ACL_name_unique', ['name'], unique)],
})

const user = define('svc_User', {
  fields: {
    id,
    firstName: required(string),
    lastName: string,
    fullName: { type: 'VIRTUAL', calculated: `coalesce("firstName", '') || ' ' || coalesce("lastName", '')` },
    phone: string,
    email: string,
    emailVerified: no,
    avatar_Id: uuid,
    password: hiddenString,
    lastAccess: { type: 'DateTime', unlogged: true },
    status: oneOf(['active', 'inactive', 'deleted', 'suspended', 'pending'], {
      allowNull: false,
      defaultValue: 'active',
    }),
    session_limits: json,
    userRoles: hasMany('svc_UserRole', 'user_Id'),
    avatar: belongsTo('svc_File', 'avatar_Id'),
  },
  indexes: [index('svc_User_email_unique', ['email'], unique), index('svc_User_phone_unique', ['phone'], unique)],
})

const userRole = define('svc_UserRole', {
  fields: {
    id,
    user_Id: required(uuid),
    role_Id: required(uuid),
    tenant_Id: uuid,
    user: belongsTo('svc_User', 'user_Id', cascade),
    role: belongsTo('svc_Role', 'role_Id', { onDelete: 'RESTRICT' }),
    tenant: belongsTo('svc_Tenant', 'tenant_Id', cascade),
  },
  indexes: [
    index('svc_UserRole_user_tenant_unique', ['user_Id', 'tenant_Id'], { unique: true, nullsNotDistinct: true }),
  ],
})

const invite = define('svc_Invite', {
  fields: {
    id,
    email: required(string),
    role_Id: required(uuid),
    tenant_Id: uuid,
    token: required(hiddenString),
    status: oneOf(['pending', 'accepted', 'expired', 'revoked'], { allowNull: false, defaultValue: 'pending' }),
    expiresAt: required(dateTime),
    invitedBy_Id: required(uuid),
    acceptedBy_Id: uuid,
    acceptedAt: dateTime,
    inviter: belongsTo('svc_User', 'invitedBy_Id', cascade),
    user: belongsTo('svc_User', 'acceptedBy_Id'),
    role: belongsTo('svc_Role', 'role_Id', cascade),
    tenant: belongsTo('svc_Tenant', 'tenant_Id', cascade),
  },
  indexes: [
    index('svc_Invite_token_unique', ['token'], unique),
    index('svc_Invite_email_tenant_status_idx', ['email', 'tenant_Id', 'status']),
  ],
})

const userPreference = define('svc_UserPreference', {
  usertrack: true,
  fields: {
    id,
    userId: uuid,
    collectionName: required({ type: 'String', values: { stringLength: 255 } }),
    preferenceType: oneOf(['columns', 'filters', 'sorting', 'pagination'], { allowNull: false }),
    preferenceData: required(json),
    isDefault: yes,
    name: { type: 'String', values: { stringLength: 100 } },
    user: belongsTo('svc_User', 'userId', cascade),
  },
})

/* Sessions, accounts and credentials. */

const sessions = define('svc_Sessions', {
  fields: {
    id,
    token: required(hiddenString),
    user_Id: required(uuid),
    role_Id: uuid,
    tenant_Id: uuid,
    expiresAt: required(dateTime),
    lastUsedAt: dateTime,
    ipAddress: string,
    userAgent: string,
    type: preset(string, 'default'),
    user: belongsTo('svc_User', 'user_Id', cascade),
    role: belongsTo('svc_Role', 'role_Id', cascade),
    tenant: belongsTo('svc_Tenant', 'tenant_Id', cascade),
  },
  indexes: [
    index('svc_Session_token_unique', ['token'], unique),
    index('svc_Session_user_idx', ['user_Id']),
    index('svc_Session_expiresAt_idx', ['expiresAt']),
  ],
})

const account = define('svc_Account', {
  fields: {
    id,
    user_Id: required(uuid),
    accountId: required(string),
    providerId: required(string),
    accessToken: hiddenText,
    refreshToken: hiddenText,
    accessTokenExpiresAt: dateTime,
    refreshTokenExpiresAt: dateTime,
    scope: string,
    idToken: hiddenText,
    password: hiddenString,
    user: belongsTo('svc_User', 'user_Id', cascade),
  },
  indexes: [
    index('svc_Account_user_provider', ['user_Id', 'providerId']),
    index('svc_Account_identity_unique', ['providerId', 'accountId'], unique),
  ],
})

const verification = define('svc_Verification', {
  fields: { id, identifier: required(string), value: required(hiddenString), expiresAt: required(dateTime) },
  indexes: [index('svc_Verification_identifier', ['identifier']), index('svc_Verification_value', ['value'])],
})

const twoFactor = define('svc_TwoFactor', {
  fields: {
    id,
    user_Id: required(uuid),
    secret: required(hiddenText),
    backupCodes: required({ type: 'JSON', hidden: true }),
    enabled: no,
    // Traces of wrong and used codes. The log has `auth.2fa_failed` instead.
    lastStep: { type: 'Integer', hidden: true, unlogged: true },
    failures: { type: 'Integer', allowNull: false, defaultValue: 0, hidden: true, unlogged: true },
    lockedUntil: { type: 'DateTime', hidden: true, unlogged: true },
    user: belongsTo('svc_User', 'user_Id', cascade),
  },
  indexes: [index('svc_TwoFactor_user_unique', ['user_Id'], unique)],
})

const passkey = define('svc_Passkey', {
  fields: {
    id,
    user_Id: required(uuid),
    name: required(string),
    credentialID: required(hiddenText),
    publicKey: required(hiddenText),
    counter: { type: 'BigInt', allowNull: false, defaultValue: 0, hidden: true, unlogged: true },
    deviceType: string,
    backedUp: no,
    transports: json,
    aaguid: string,
    lastUsedAt: { type: 'DateTime', unlogged: true },
    user: belongsTo('svc_User', 'user_Id', cascade),
  },
  indexes: [
    index('svc_Passkey_credentialID_unique', ['credentialID'], unique),
    index('svc_Passkey_user_idx', ['user_Id']),
  ],
})

const apiKey = define('svc_ApiKey', {
  fields: {
    id,
    name: required(string),
    user_Id: required(uuid),
    role_Id: uuid,
    tenant_Id: uuid,
    hash: required(hiddenString),
    hint: required(string),
    expiresAt: dateTime,
    lastUsedAt: { type: 'DateTime', unlogged: true },
    user: belongsTo('svc_User', 'user_Id', cascade),
    role: belongsTo('svc_Role', 'role_Id', cascade),
    tenant: belongsTo('svc_Tenant', 'tenant_Id', cascade),
  },
  indexes: [index('svc_ApiKey_hash_unique', ['hash'], unique), index('svc_ApiKey_user_idx', ['user_Id'])],
})

/* Mail and notifications. */

const emailLog = define('svc_EmailLog', {
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

const template = define('svc_Template', {
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

const notification = define('svc_Notification', {
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

/* Files. */

const file = define('svc_File', {
  usertrack: true,
  fields: {
    id,
    title: string,
    filename: required(string),
    originalFilename: required(string),
    type: required(string),
    folder: string,
    size: required({ type: 'BigInt' }),
    // The sha256 of the content; null for rows that were made before there was one.
    hash: string,
    // Whether the content itself says that it is of its type; otherwise only its sender did.
    typeProven: no,
    description: text,
    storage: required(string),
    storage_folder: string,
    width: integer,
    height: integer,
    metadata: json,
    tenant_Id: uuid,
    isPublic: no,
    tenant: belongsTo('svc_Tenant', 'tenant_Id'),
  },
})

export const systemCollections: readonly CollectionDefinition[] = [
  schemaDefinition,
  migration,
  auditLog,
  tenant,
  role,
  permission,
  user,
  userRole,
  sessions,
  account,
  verification,
  twoFactor,
  passkey,
  apiKey,
  file,
  tasks,
  emailLog,
  notification,
  webhook,
  webhookDelivery,
  view,
  settings,
  invite,
  userPreference,
  template,
  acl,
  workflow,
  workflowExecution,
  workflowExecutionLog,
  secret,
  page,
  block,
]
