import { Type } from '../../../../adapters/typebox.ts'
import { OneOf, Text } from '../../../../http/shapes.ts'
import { Fields, listText, optional, RowId, type Tool, tool } from '../tool.ts'

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
    input: { email: Email, role_Id: RowId('role'), tenant_Id: optional(RowId('tenant')), link: Link },
    route: 'POST /auth/invite',
    call: (body) => ({ body }),
  }),
  tool({
    name: 'svc_verify_invite',
    title: 'Read an invitation',
    description: 'The invited address, role and tenant of an invitation.',
    group: 'read',
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
    isLogin: true,
    input: { tenant_Id: RowId('tenant') },
    route: 'POST /auth/switch-tenant',
    call: (body) => ({ body }),
  }),
]

/** The caller's own account, invitations and signing in. */
export const accountTools: readonly Tool[] = [...own, ...others, ...signingIn]
