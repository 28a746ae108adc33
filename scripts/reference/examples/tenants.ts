import { type Example, plain, sent } from './example.ts'

/** With MULTI_TENANT, and second factors and passkeys on. */

const ada = { email: 'ada@example.com', password: 'correct horse battery' }

export const tenants: readonly Example[] = [
  sent(
    'POST /items/{collection}',
    { name: 'member' },
    { path: '/items/svc_Role', status: 201, keep: { member: 'data.id' } },
  ),
  sent(
    'POST /items/{collection}',
    { name: 'owner', canInviteRoleIds: ['{{member}}'] },
    { path: '/items/svc_Role', status: 201, keep: { owner: 'data.id' } },
  ),
  sent(
    'POST /permissions',
    { role_Id: '{{owner}}', collection: 'svc_User', action: 'read', fields: ['id', 'firstName'] },
    { status: 201 },
  ),
  sent(
    'POST /auth/register',
    { ...ada, firstName: 'Ada', lastName: 'Lovelace', roleName: 'owner', tenant: { name: 'Analytical Engines' } },
    { as: 'nobody' },
  ),
  sent('POST /auth/login', ada, { as: 'nobody', keep: { ada: 'token' } }),
  plain('GET /auth/tenants', undefined, { as: 'ada', keep: { tenant: 'tenants.0.id' } }),
  sent('POST /auth/switch-tenant', { tenant_Id: '{{tenant}}' }, { as: 'ada', keep: { ada: 'token' } }),
  sent('POST /auth/invite', { email: 'charles@example.com', role_Id: '{{member}}' }, { as: 'ada' }),
  sent('PATCH /settings', { project_name: 'Analytical Engines' }, { path: '/settings?tenant_id={{tenant}}' }),
  plain('GET /settings/branding', '/settings/branding?tenant_id={{tenant}}', { as: 'nobody' }),
  plain('DELETE /settings/tenant', '/settings/tenant?tenant_id={{tenant}}'),
  plain('GET /auth/2fa', undefined, { as: 'ada' }),
  sent('POST /auth/2fa/enable', { currentPassword: ada.password }, { as: 'ada' }),
  plain('POST /auth/passkey/authenticate/options', undefined, { as: 'nobody' }),
  sent('POST /auth/passkey/register/options', { currentPassword: ada.password }, { as: 'ada' }),
  plain('GET /auth/passkey', undefined, { as: 'ada' }),
]
