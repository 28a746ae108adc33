import { Type } from '../../../adapters/typebox.ts'
import { type Declaration, type RouteOptions, route, type Tag } from '../../../http/route.ts'
import { Anything, Count, Id, NullableId, NullableText, OneOf, Row, Text } from '../../../http/shapes.ts'

/** A route under `/auth`: bodies are small here, and only what the shape of the answer names can leave. */
/** The same for the routes of one chapter. */
export const authRoutes =
  (tag: Tag) =>
  <const D extends Omit<Declaration, 'tag'>>(declaration: D, options: RouteOptions = {}) =>
    authRoute({ tag, ...declaration }, options)

export const authRoute = <const D extends Declaration>(declaration: D, options: RouteOptions = {}) =>
  route({ exact: true, errors: 'auth', ...declaration }, { bodyLimit: 16_384, ...options })

/**
 * The answers of the endpoints. They are serialised by these shapes, so a member that is not named here cannot leave.
 */

const PersonShape = Type.Object({
  id: Id(),
  email: NullableText('ada@example.com'),
  firstName: Text('Ada'),
  lastName: NullableText('Lovelace'),
})

const RoleShape = Type.Object({
  id: Id(),
  name: Text('user'),
  description: NullableText('Everybody who has registered'),
  isTenantSpecific: Type.Boolean(),
  canInviteRoleIds: Anything([]),
  app_access: Anything(null),
})

const PermissionShape = Type.Object({
  id: Id(),
  action: Text('read'),
  collection: Text('products'),
  role_Id: Id(),
  fields: Anything(['*']),
  conditions: Anything(null),
  relConditions: Anything(null),
  defaultValues: Anything(null),
  createdAt: Text('2026-03-14T09:26:53.589Z'),
  updatedAt: Text('2026-03-14T09:26:53.589Z'),
})

const token = Text('eyJhbGciOiJIUzI1NiJ9.e30.ZRrHA1JJJW8opsbCGfG_HACGpVUMN_a9IV7pAx_Zmeo')

const AuthModeShape = OneOf(['jwt', 'cookie'])

const SignedInMembers = {
  user: PersonShape,
  role: RoleShape,
  permissions: Type.Array(PermissionShape),
  tenant: Type.Union([Row, Type.Null()]),
}

/**
 * The common answer of everything that signs somebody in; `token` only in jwt mode. Or the challenge for
 * a second factor: then nothing but that.
 */
export const SignedInShape = Type.Object({
  message: Type.Optional(Text('Authentication successful')),
  token: Type.Optional(token),
  authMode: Type.Optional(AuthModeShape),
  ...Type.Partial(Type.Object(SignedInMembers)).properties,
  twoFactorRequired: Type.Optional(Type.Literal(true)),
  twoFactorToken: Type.Optional(Text('0f3a5d1f0c2b7e44')),
  code: Type.Optional(Type.Literal('TWO_FACTOR_REQUIRED')),
})

/** The same without a session: until the address is verified, or where no answer may tell whether it was known. */
export const RegisteredShape = Type.Object({
  message: Text('User registered successfully'),
  token: Type.Optional(token),
  authMode: Type.Optional(AuthModeShape),
  requiresEmailVerification: Type.Optional(Type.Boolean()),
  ...Type.Partial(Type.Object(SignedInMembers)).properties,
})

export const MeShape = Type.Object({
  user: Row,
  role: RoleShape,
  permissions: Type.Array(PermissionShape),
  tenant: NullableId(),
})

export const RefreshedShape = Type.Object({
  message: Type.Optional(Text('Authentication successful')),
  token: Type.Optional(token),
  authMode: AuthModeShape,
  expiresIn: Count(604800, { description: 'Seconds.' }),
})

export const CheckShape = Type.Object({
  valid: Type.Boolean(),
  user: Type.Object({ id: Id() }),
  tenant: Type.Optional(
    Type.Union([Type.Object({ id: Id() }), Type.Null()], {
      description: 'With MULTI_TENANT: the one the session is at.',
    }),
  ),
})

/** `lastUsedAt` is exact to five minutes. */
export const SessionsShape = Type.Object({
  sessions: Type.Array(
    Type.Object({
      id: Id(),
      type: Text('web'),
      ipAddress: NullableText('203.0.113.7'),
      userAgent: NullableText('Mozilla/5.0'),
      tenant_Id: NullableId(),
      createdAt: Text('2026-03-14T09:26:53.589Z'),
      lastUsedAt: Text('2026-03-14T09:26:53.589Z'),
      expiresAt: Text('2026-04-13T09:26:53.589Z'),
      current: Type.Boolean(),
      client: Type.Union(
        [
          Type.Object({ id: Text('dbc_47DEQpj8HBSa'), name: Text('Example app'), scopes: Type.Array(Text('read')) }),
          Type.Null(),
        ],
        { description: 'The program that a user has given access; null where users have signed in themselves.' },
      ),
    }),
  ),
})

export const EndedShape = Type.Object({ message: Text('Sessions ended successfully'), ended: Count(2) })
