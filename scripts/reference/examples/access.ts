import { type Example, plain, sent } from './example.ts'

/** Examples of permissions and accounts. */

export const permissions: readonly Example[] = [
  sent(
    'POST /items/{collection}',
    { name: 'editor', canInviteRoleIds: [] },
    { path: '/items/svc_Role', status: 201, keep: { role: 'data.id' } },
  ),
  sent(
    'POST /permissions',
    {
      role_Id: '{{role}}',
      collection: 'product',
      action: 'read',
      fields: ['*', 'maker.name'],
      conditions: { state: 'on sale' },
    },
    { status: 201, keep: { permission: 'id' } },
  ),
  plain('GET /permissions', '/permissions?filter={"role_Id":"{{role}}"}'),
  plain('GET /permissions/{id}', '/permissions/{{permission}}'),
  sent(
    'PATCH /permissions/{id}',
    { conditions: { OR: [{ state: 'on sale' }, { userCreated_Id: '$CURRENT_USER' }] } },
    { path: '/permissions/{{permission}}' },
  ),
  sent('POST /acls', { name: 'On sale', conditions: { state: 'on sale' } }, { status: 201, keep: { acl: 'id' } }),
  plain('GET /acls'),
  plain('GET /acls/{id}', '/acls/{{acl}}'),
  sent('PATCH /acls/{id}', { description: 'What customers see' }, { path: '/acls/{{acl}}' }),
  plain('GET /permissions/explain', '/permissions/explain?collection=product&action=read&role=editor&id={{product}}'),
  sent('POST /permissions/explain', {
    collection: 'product',
    action: 'create',
    role: 'editor',
    record: { name: 'Loom' },
    fields: ['price'],
  }),
  sent('POST /permissions/who', { collection: 'product', id: '{{product}}', action: 'read' }),
  sent('POST /permissions/impact', {
    changes: [
      { role: 'editor', collection: 'product', action: 'read', permission: { conditions: { price: { lt: 100 } } } },
    ],
  }),
  plain('POST /permissions/reload'),
  plain('GET /permissions-export'),
  {
    route: 'POST /permissions-preview-import',
    form: {
      rolesPermissions: [
        'roles.json',
        '{"roles":[{"name":"reader","permissions":[{"collection":"product","action":"read","fields":["name"]}]}]}',
      ],
    },
  },
  {
    route: 'POST /permissions-import',
    form: {
      rolesPermissions: [
        'roles.json',
        '{"roles":[{"name":"reader","permissions":[{"collection":"product","action":"read","fields":["name"]}]}]}',
      ],
    },
  },
  plain('DELETE /permissions/{id}', '/permissions/{{permission}}', { status: 204 }),
  plain('DELETE /acls/{id}', '/acls/{{acl}}', { status: 204 }),
]

const ada = { email: 'ada@example.com', password: 'correct horse battery' }

export const accounts: readonly Example[] = [
  plain('GET /items/{collection}', '/items/svc_Role?filter={"name":"user"}', { keep: { everybody: 'data.0.id' } }),
  sent(
    'POST /permissions',
    { role_Id: '{{everybody}}', collection: 'svc_User', action: 'read', conditions: { id: '$CURRENT_USER' } },
    { status: 201 },
  ),
  sent(
    'POST /auth/register',
    { ...ada, firstName: 'Ada', lastName: 'Lovelace' },
    { as: 'nobody', keep: { user: 'user.id' } },
  ),
  sent('POST /auth/login', ada, { as: 'nobody', keep: { ada: 'token' } }),
  plain('GET /auth/me', undefined, { as: 'ada' }),
  plain('GET /auth/check', undefined, { as: 'ada' }),
  sent('POST /auth/refresh', { authMode: 'jwt' }, { as: 'ada', keep: { ada: 'token' } }),
  sent('POST /auth/magiclink', { email: ada.email, mode: 'code' }, { as: 'nobody' }),
  sent('POST /auth/password/reset', { email: ada.email, link: 'http://localhost:3000' }, { as: 'nobody' }),
  sent('POST /auth/email/verify/resend', { email: ada.email, link: 'http://localhost:3000' }, { as: 'nobody' }),
  sent('POST /auth/email/change', { email: 'ada@example.org', currentPassword: ada.password }, { as: 'ada' }),
  sent(
    'POST /auth/password/change',
    { currentPassword: ada.password, newPassword: 'wrong donkey fuse' },
    { as: 'ada' },
  ),
  sent(
    'POST /auth/keys',
    { name: 'Nightly import', expiresAt: '2099-01-31T12:00:00Z' },
    { as: 'ada', keep: { key: 'apiKey.id' } },
  ),
  plain('GET /auth/keys', undefined, { as: 'ada' }),
  plain('DELETE /auth/keys/{id}', '/auth/keys/{{key}}', { as: 'ada' }),
  sent('POST /auth/preview', { user: '{{user}}' }),
  plain('GET /auth/preview'),
  plain('DELETE /auth/preview'),
  sent('POST /auth/login', { ...ada, password: 'wrong donkey fuse' }, { as: 'nobody', keep: { leaving: 'token' } }),
  plain('POST /auth/logout', undefined, { as: 'leaving' }),
  sent('POST /auth/login', { ...ada, password: 'wrong donkey fuse' }, { as: 'nobody', keep: { leaving: 'token' } }),
  plain('GET /auth/logout', undefined, { as: 'leaving' }),
  sent('POST /auth/login', { ...ada, password: 'wrong donkey fuse' }, { as: 'nobody', keep: { leaving: 'token' } }),
  plain('GET /auth/sessions', undefined, { as: 'leaving', keep: { own: 'sessions.0.id' } }),
  plain('DELETE /auth/sessions/{sessionId}', '/auth/sessions/{{own}}', { as: 'leaving' }),
  sent('POST /auth/login', { ...ada, password: 'wrong donkey fuse' }, { as: 'nobody', keep: { leaving: 'token' } }),
  plain('GET /auth/admin/users/{userId}/sessions', '/auth/admin/users/{{user}}/sessions', {
    keep: { session: 'sessions.0.id' },
  }),
  plain('DELETE /auth/admin/users/{userId}/sessions/{sessionId}', '/auth/admin/users/{{user}}/sessions/{{session}}'),
  plain('DELETE /auth/admin/users/{userId}/sessions', '/auth/admin/users/{{user}}/sessions'),
  sent('POST /auth/admin/password/change', { userId: '{{user}}', newPassword: ada.password }),
  sent('POST /auth/admin/change-password', { userId: '{{user}}', newPassword: ada.password }),
  sent('POST /auth/login', ada, { as: 'nobody', keep: { ada: 'token' } }),
  plain('GET /history/users/{id}/export', '/history/users/{{user}}/export'),
]
