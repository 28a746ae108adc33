import { Type } from '../../../adapters/typebox.ts'
import { Anything, Filled, Id, Text } from '../../../http/shapes.ts'
import { authRoutes, Link, SignedInShape, SignIn, TokenParams } from '../auth/auth.ts'

/* Shapes of bodies and answers. */

const declared = authRoutes('Tenants')
const someId = '0198c0de-7a11-7cc1-9f3a-5d1f0c2b7e44'
const named = (name: string) => Type.Object({ id: Id(), name: Text(name) })

/** Said of a link that leads elsewhere. */
export const untrusted = 'Invalid application URL'

const bothNeeded = 'Email and role_Id are required'
export const InviteBody = Type.Object({
  email: Filled('ada@example.com', { refusal: bothNeeded }),
  role_Id: Filled(someId, { refusal: bothNeeded }),
  tenant_Id: Type.Optional(Filled(someId, { lenient: true, description: 'Your own tenant unless given.' })),
  link: Link(undefined, untrusted),
})

export const SwitchBody = Type.Object({
  authMode: SignIn.authMode,
  authType: SignIn.authType,
  tenant_Id: Type.Optional(Filled(someId, { lenient: true, description: 'This or userRole_Id is needed.' })),
  userRole_Id: Type.Optional(Filled(someId, { lenient: true })),
})

const AcceptBody = Type.Object({
  authMode: SignIn.authMode,
  inviteToken: Type.Optional(
    Text('5f1d7a84db00d2fce00b31a7fc73224f5f1d7a84db00d2fce00b31a7fc73224f', { lenient: true }),
  ),
})

/** A tenant's row with what the caller is there; its hidden fields were left out where it was read. */
const TenantShape = Type.Object(
  {
    id: Id(),
    name: Text('Analytical Engines'),
    userRole_Id: Id(),
    role: Type.Object({ id: Id(), name: Text('user'), app_access: Anything(null) }),
  },
  { additionalProperties: true },
)

export const describeRoute = declared({
  summary: 'Read what an invitation says',
  scope: 'none',
  params: TokenParams,
  query: Type.Object({ link: Link('Needed for `acceptUrl`.', untrusted) }),
  response: {
    200: Type.Object({
      valid: Type.Boolean(),
      email: Text('ada@example.com'),
      userExists: Type.Boolean(),
      tenant: named('Analytical Engines'),
      role: named('user'),
      acceptUrl: Type.Optional(Text('https://app.example.com/login?inviteToken=5f1d7a84db00d2fc')),
    }),
  },
})
export const inviteRoute = declared({
  summary: 'Invite an address to a tenant',
  scope: 'none',
  body: InviteBody,
  response: {
    200: Type.Object({
      message: Text('Invitation sent successfully'),
      invite: Type.Object({
        id: Id(),
        email: Text('ada@example.com'),
        status: Text('pending'),
        expiresAt: Text('2026-03-21T09:26:53.589Z'),
      }),
    }),
  },
})
export const acceptRoute = declared({
  summary: 'Accept an invitation',
  scope: 'none',
  description: 'The session goes on at the tenant.',
  body: AcceptBody,
  response: { 200: SignedInShape },
})
export const listRoute = declared({
  summary: 'List your tenants',
  scope: 'none',
  response: { 200: Type.Object({ tenants: Type.Array(TenantShape) }) },
})
export const switchRoute = declared({
  summary: 'Go on at another tenant',
  scope: 'none',
  body: SwitchBody,
  response: { 200: Type.Object({ ...SignedInShape.properties, userRole_Id: Id() }) },
})
