import { type Static, Type } from 'typebox'

/** What the endpoints answer. Serialised by these shapes, so a member that is not named here can't leave. */

const text = Type.String()
const nullableText = Type.Unsafe<string | null>({ type: ['string', 'null'] })
const anything = Type.Unknown()

export const PersonShape = Type.Object({ id: text, email: nullableText, firstName: text, lastName: nullableText })

/** spec/permissions.md §6. */
export const RoleShape = Type.Object({
  id: text,
  name: text,
  description: nullableText,
  isTenantSpecific: Type.Boolean(),
  canInviteRoleIds: anything,
  app_access: anything,
})

export const PermissionShape = Type.Object({
  id: text,
  action: text,
  collection: text,
  role_Id: text,
  fields: anything,
  conditions: anything,
  relConditions: anything,
  defaultValues: anything,
  createdAt: text,
  updatedAt: text,
})

/** A row in wire form; its hidden fields were left out where it was read. */
export const RowShape = Type.Record(Type.String(), Type.Unknown())

export const AuthModeShape = Type.Union([Type.Literal('jwt'), Type.Literal('cookie')])

const Standing = {
  user: PersonShape,
  role: RoleShape,
  permissions: Type.Array(PermissionShape),
  tenant: Type.Union([RowShape, Type.Null()]),
}

/**
 * The common answer of everything that signs somebody in (auth facts §2); `token` only in jwt mode. Or the challenge for
 * a second factor (auth facts §4): then nothing but that.
 */
export const SignedInShape = Type.Object({
  message: Type.Optional(text),
  token: Type.Optional(text),
  authMode: Type.Optional(AuthModeShape),
  ...Type.Partial(Type.Object(Standing)).properties,
  twoFactorRequired: Type.Optional(Type.Literal(true)),
  twoFactorToken: Type.Optional(text),
  code: Type.Optional(Type.Literal('TWO_FACTOR_REQUIRED')),
})

/** The same without a session: until the address is verified, or where no answer may tell whether it was known. */
export const RegisteredShape = Type.Object({
  message: text,
  token: Type.Optional(text),
  authMode: Type.Optional(AuthModeShape),
  requiresEmailVerification: Type.Optional(Type.Boolean()),
  ...Type.Partial(Type.Object(Standing)).properties,
})

export const MeShape = Type.Object({
  user: RowShape,
  role: RoleShape,
  permissions: Type.Array(PermissionShape),
  tenant: nullableText,
})

export const RefreshedShape = Type.Object({
  message: Type.Optional(text),
  token: Type.Optional(text),
  authMode: AuthModeShape,
  expiresIn: Type.Integer(),
})

export const CheckShape = Type.Object({ valid: Type.Boolean(), user: Type.Object({ id: text }) })

/** `lastUsedAt` is exact to five minutes. */
export const SessionsShape = Type.Object({
  sessions: Type.Array(
    Type.Object({
      id: text,
      type: text,
      ipAddress: nullableText,
      userAgent: nullableText,
      tenant_Id: nullableText,
      createdAt: text,
      lastUsedAt: text,
      expiresAt: text,
      current: Type.Boolean(),
    }),
  ),
})

export const EndedShape = Type.Object({ message: text, ended: Type.Integer() })

export const MessageShape = Type.Object({ message: text })

export type SignedIn = Static<typeof SignedInShape>
export type Registered = Static<typeof RegisteredShape>
export type Me = Static<typeof MeShape>
export type Refreshed = Static<typeof RefreshedShape>
