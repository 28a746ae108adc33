import { newId } from '../../../../adapters/ids.ts'
import { Type } from '../../../../adapters/typebox.ts'
import { AppError } from '../../../../errors.ts'
import { OneOf, Text } from '../../../../http/shapes.ts'
import { isUuid } from '../../../../language/text.ts'
import {
  type CallRoute,
  Collection,
  Cursor,
  Fields,
  filtered,
  filteredQuery,
  listText,
  Members,
  optional,
  RowId,
  type Tool,
  tool,
} from '../tool.ts'

const Email = Text('ada@example.com', { minLength: 3 })
const Link = Text('https://app.example.com/welcome', {
  description: 'Where the mailed link leads: a trusted frontend.',
})

const own: readonly Tool[] = [
  tool({
    name: 'svc_auth_status',
    title: 'Check who is signed in',
    description: 'Whether the credential of this connection is valid.',
    group: 'read',
    input: {},
    route: 'GET /auth/check',
    call: () => ({}),
  }),
  tool({
    name: 'svc_get_current_user',
    title: 'Read your account',
    description: 'The account, role and permissions of the caller.',
    group: 'read',
    needs: { action: 'read', collection: 'svc_User' },
    input: { fields: optional(Fields) },
    output: Type.Object({ user: Type.Record(Type.String(), Type.Unknown()) }, { additionalProperties: true }),
    route: 'GET /auth/me',
    call: () => ({}),
    answer: (answer, { fields }) => {
      const wanted = listText(fields)
        ?.split(',')
        .map((name) => name.trim())
      if (wanted === undefined) return answer
      const user = Object.entries(answer.user as object).filter(([name]) => wanted.includes(name))
      return { ...answer, user: Object.fromEntries(user) }
    },
  }),
  tool({
    name: 'svc_get_user_tenants',
    title: 'List your tenants',
    description: 'The tenants that the caller belongs to.',
    group: 'read',
    needsTenants: true,
    input: {},
    route: 'GET /auth/tenants',
    call: () => ({}),
  }),
  tool({
    name: 'svc_logout',
    title: 'Sign out',
    description: 'Ends the session of this connection.',
    group: 'update',
    input: {},
    route: 'POST /auth/logout',
    call: () => ({}),
  }),
]

const others: readonly Tool[] = [
  tool({
    name: 'svc_send_invite',
    title: 'Invite somebody',
    description: 'Mails an invitation to a tenant.',
    group: 'create',
    needsTenants: true,
    input: { email: Email, role_Id: RowId('role'), tenant_Id: optional(RowId('tenant')), link: Link },
    route: 'POST /auth/invite',
    call: (body) => ({ body }),
  }),
  tool({
    name: 'svc_verify_invite',
    title: 'Read an invitation',
    description: 'The invited address, role and tenant of an invitation.',
    group: 'read',
    needsTenants: true,
    input: { token: Text('5f1d7a84db00d2fc', { minLength: 1 }), link: optional(Link) },
    route: 'GET /auth/verify-invite/:token',
    call: ({ token, link }) => ({ params: { token }, query: { link } }),
  }),
  tool({
    name: 'svc_send_magic_link',
    title: 'Mail a link to sign in',
    description: 'Mails a link or code to sign in with.',
    group: 'create',
    input: { email: Email, link: optional(Link), mode: OneOf(['link', 'code'], { default: 'link' }) },
    route: 'POST /auth/magiclink',
    call: (body) => ({ body }),
  }),
]

/** A tool that answers a token puts it into the context of a model. */
const signingIn: readonly Tool[] = [
  tool({
    name: 'svc_register_user',
    title: 'Register',
    description: 'Makes an account, where registration is open.',
    group: 'create',
    isLogin: true,
    input: {
      email: Email,
      password: Text('correct horse battery', { minLength: 1 }),
      firstName: optional(Text('Ada')),
      lastName: optional(Text('Lovelace')),
      roleName: optional(Text('user')),
    },
    route: 'POST /auth/register',
    call: (body) => ({ body }),
  }),
  tool({
    name: 'svc_login',
    title: 'Sign in',
    description: 'Opens a session and answers its token. This connection goes on with its own credential.',
    group: 'create',
    isLogin: true,
    input: { email: Email, password: Text('correct horse battery', { minLength: 1 }) },
    route: 'POST /auth/login',
    call: (body) => ({ body }),
  }),
  tool({
    name: 'svc_refresh_auth',
    title: 'Renew the token',
    description: 'Ends a token and answers another one for its session: that of this connection unless one is given.',
    group: 'update',
    isLogin: true,
    input: { refreshToken: optional(Text('eyJhbGciOiJIUzI1NiJ9…', { minLength: 1 })) },
    route: 'POST /auth/refresh',
    call: ({ refreshToken: token }) => ({ body: {}, ...(token !== undefined && { token }) }),
  }),
  tool({
    name: 'svc_switch_tenant',
    title: 'Go on at another tenant',
    description: 'Ends the session of this connection and answers the token of one at another tenant.',
    group: 'update',
    needsTenants: true,
    isLogin: true,
    input: { tenant_Id: RowId('tenant') },
    route: 'POST /auth/switch-tenant',
    call: (body) => ({ body }),
  }),
]

/** The caller's own account, invitations and signing in. */
export const accountTools: readonly Tool[] = [...own, ...others, ...signingIn]

const PermissionId = RowId('permission')
const RoleName = Text('user', { minLength: 1, description: 'The id or the name of a role.' })
const ActionName = OneOf(['create', 'read', 'update', 'delete', 'sort'])
const rule = {
  fields: optional(
    Type.Array(Type.String(), { description: 'The fields, e.g. ["name", "maker.*"].', examples: [['name', 'price']] }),
  ),
  conditions: optional(Members('Which rows.', { userCreated_Id: '$CURRENT_USER' })),
  defaultValues: optional(Members('Values that new and changed rows get.', { status: 'draft' })),
  relConditions: optional(Members('Which nested rows.', { parts: { price: { gt: 5 } } })),
}
const reads = (collection: string) => ({ action: 'read', collection }) as const

const lists: readonly Tool[] = [
  tool({
    name: 'svc_list_roles',
    title: 'List roles',
    description: 'The roles that users can have.',
    group: 'read',
    needs: reads('svc_Role'),
    input: {},
    route: 'GET /items/:collection',
    call: () => ({ params: { collection: 'svc_Role' }, query: { sort: 'name', limit: 1000 } }),
  }),
  tool({
    name: 'svc_list_permissions',
    title: 'List permissions',
    description: 'The permissions of roles, by filter.',
    group: 'read',
    needs: reads('svc_Permission'),
    input: { ...filtered, cursor: optional(Cursor) },
    route: 'GET /permissions',
    call: (asked) => ({ query: filteredQuery(asked) }),
  }),
  tool({
    name: 'svc_get_permission',
    title: 'Read a permission',
    description: 'One permission by its id.',
    group: 'read',
    needs: reads('svc_Permission'),
    input: { id: PermissionId },
    route: 'GET /permissions/:id',
    call: (params) => ({ params }),
  }),
  tool({
    name: 'svc_get_permissions',
    title: 'Read what a role may do',
    description: 'All permissions of a role.',
    group: 'read',
    needs: reads('svc_Permission'),
    input: { role: RoleName },
    route: 'GET /permissions',
    call: ({ role }) => ({
      query: {
        filter: isUuid(role) ? { role_Id: role } : { 'role.name': role },
        sort: 'collection,action',
        limit: 1000,
      },
    }),
  }),
  tool({
    name: 'svc_explain',
    title: 'Explain a permission',
    description: 'Whether a user or role may do something, and what decides it: "why can Ada not see this?"',
    group: 'read',
    input: {
      collection: Collection,
      action: OneOf(['create', 'read', 'update', 'delete']),
      role: optional(Text('user', { description: 'By id or name; either this or `user`.' })),
      user: optional(Text('0198c0de-7a11-7cc1-9f3a-5d1f0c2b7e44', { description: 'By id.' })),
      tenant: optional(Text('0198c0de-7a11-7cc1-9f3a-5d1f0c2b7e44', { description: 'Where the role is held.' })),
      id: optional(Text('7', { description: 'An item.' })),
      field: optional(Text('price', { description: 'A field of it.' })),
      record: optional(
        Type.Record(Type.String(), Type.Unknown(), {
          description: 'A row that is not there, by its fields, instead of an item.',
          examples: [{ status: 'draft' }],
        }),
      ),
      fields: optional(
        Type.Array(Text('price'), {
          maxItems: 200,
          description: 'Fields that are each told whether they are allowed.',
        }),
      ),
    },
    route: 'POST /permissions/explain',
    call: (body) => ({ body }),
  }),
]

const changes: readonly Tool[] = [
  tool({
    name: 'svc_create_permission',
    title: 'Create a permission',
    description: 'Lets a role do one action on one collection, as far as fields and conditions go.',
    group: 'create',
    input: { role_Id: RowId('role'), collection: Collection, action: ActionName, ...rule },
    route: 'POST /permissions',
    call: (body) => ({ body }),
  }),
  tool({
    name: 'svc_update_permission',
    title: 'Change a permission',
    description: 'Changes members of one permission; what is not named stays.',
    group: 'update',
    input: {
      id: PermissionId,
      role_Id: optional(RowId('role')),
      collection: optional(Collection),
      action: optional(ActionName),
      ...rule,
    },
    route: 'PATCH /permissions/:id',
    call: ({ id, ...body }) => ({ params: { id }, body }),
  }),
  tool({
    name: 'svc_update_permissions',
    title: 'Set permissions of a role',
    description: 'Creates or changes the permissions of a role by collection and action, all or none. Others stay.',
    group: 'update',
    input: {
      role: RoleName,
      permissions: Type.Array(
        Type.Object({ collection: Collection, action: ActionName, ...rule }, { additionalProperties: false }),
        { minItems: 1, maxItems: 200, description: 'One for each collection and action.' },
      ),
    },
    output: Type.Object({ data: Type.Array(Type.Unknown()) }),
    routes: ['PUT /items/:collection', 'GET /items/:collection', 'GET /permissions', 'POST /permissions/reload'],
    run: async ({ role, permissions }, call) => {
      const role_Id = await roleId(role, call)
      const filter = { role_Id, collection: { in: permissions.map(({ collection }) => collection) } }
      const { data } = await call('GET /permissions', { query: { filter, fields: 'id,collection,action', limit: -1 } })
      const known = new Map(
        (data as readonly HeldPermission[]).map((one) => [`${one.action} ${one.collection}`, one.id]),
      )
      // By ids, known or new, so that all of them are one change.
      const rows = permissions.map((permission) => ({
        ...permission,
        role_Id,
        id: known.get(`${permission.action} ${permission.collection}`) ?? newId(),
      }))
      const params = { collection: 'svc_Permission' }
      const saved = await call('PUT /items/:collection', { params, query: { key: 'id' }, body: rows })
      await call('POST /permissions/reload', {})
      return saved
    },
  }),
  tool({
    name: 'svc_delete_permission',
    title: 'Delete a permission',
    description: 'Takes one permission back.',
    group: 'delete',
    input: { id: PermissionId },
    route: 'DELETE /permissions/:id',
    call: (params) => ({ params }),
  }),
  tool({
    name: 'svc_reload_permissions',
    title: 'Read the permissions anew',
    description: 'Reads the permissions from the database, after they were changed by other means.',
    group: 'update',
    isDestructive: false,
    input: {},
    route: 'POST /permissions/reload',
    call: () => ({}),
  }),
]

type HeldPermission = { readonly id: string; readonly collection: string; readonly action: string }

async function roleId(role: string, call: CallRoute): Promise<string> {
  if (isUuid(role)) return role
  const query = { filter: { name: role }, fields: 'id', limit: 1 }
  const { data } = await call('GET /items/:collection', { params: { collection: 'svc_Role' }, query })
  const [found] = data as readonly { readonly id: string }[]
  if (found === undefined) throw new AppError(404, `Role ${role} not found`)
  return found.id
}

export const accessTools: readonly Tool[] = [...lists, ...changes]
