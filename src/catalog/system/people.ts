import {
  belongsTo,
  cascade,
  dateTime,
  define,
  hasMany,
  hiddenString,
  id,
  index,
  json,
  no,
  oneOf,
  preset,
  required,
  string,
  text,
  unique,
  uuid,
  yes,
} from './fields.ts'

/* Who there is, where they belong and what they may. */

export const tenant = define('svc_Tenant', {
  fields: { id, name: required(string), userRoles: hasMany('svc_UserRole', 'tenant_Id') },
  indexes: [index('svc_Tenant_name_unique', ['name'], unique)],
})

export const role = define('svc_Role', {
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

export const permission = define('svc_Permission', {
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

export const acl = define('svc_ACL', {
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

export const user = define('svc_User', {
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

export const userRole = define('svc_UserRole', {
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

export const invite = define('svc_Invite', {
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

export const userPreference = define('svc_UserPreference', {
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
