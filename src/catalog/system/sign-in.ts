import {
  belongsTo,
  cascade,
  dateTime,
  define,
  hiddenString,
  hiddenText,
  id,
  index,
  json,
  no,
  preset,
  required,
  string,
  unique,
  uuid,
} from './fields.ts'

/* How they sign in, and what they are let in by. */

export const sessions = define('svc_Sessions', {
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

export const account = define('svc_Account', {
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

export const verification = define('svc_Verification', {
  fields: { id, identifier: required(string), value: required(hiddenString), expiresAt: required(dateTime) },
  indexes: [index('svc_Verification_identifier', ['identifier']), index('svc_Verification_value', ['value'])],
})

export const twoFactor = define('svc_TwoFactor', {
  fields: {
    id,
    user_Id: required(uuid),
    secret: required(hiddenText),
    backupCodes: required({ type: 'JSON', hidden: true }),
    enabled: no,
    // What wrong and used codes leave behind; not the log's business, `auth.2fa_failed` is.
    lastStep: { type: 'Integer', hidden: true, unlogged: true },
    failures: { type: 'Integer', allowNull: false, defaultValue: 0, hidden: true, unlogged: true },
    lockedUntil: { type: 'DateTime', hidden: true, unlogged: true },
    user: belongsTo('svc_User', 'user_Id', cascade),
  },
  indexes: [index('svc_TwoFactor_user_unique', ['user_Id'], unique)],
})

export const passkey = define('svc_Passkey', {
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

export const apiKey = define('svc_ApiKey', {
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
