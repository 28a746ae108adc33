import { Type } from 'typebox'
import { SignedInShape } from '../auth/schema.ts'

const text = Type.String()
const named = Type.Object({ id: text, name: text })

export const InvitedShape = Type.Object({
  message: text,
  invite: Type.Object({ id: text, email: text, status: text, expiresAt: text }),
})

export const InviteShape = Type.Object({
  valid: Type.Boolean(),
  email: text,
  userExists: Type.Boolean(),
  tenant: named,
  role: named,
  acceptUrl: Type.Optional(text),
})

/** A tenant's row with what the caller is there; its hidden fields were left out where it was read. */
const TenantShape = Type.Object(
  {
    id: text,
    name: text,
    userRole_Id: text,
    role: Type.Object({ id: text, name: text, app_access: Type.Unknown() }),
  },
  { additionalProperties: true },
)

export const TenantsShape = Type.Object({ tenants: Type.Array(TenantShape) })

/** The common answer, and which of the caller's roles it is for. */
export const SwitchedShape = Type.Object({ ...SignedInShape.properties, userRole_Id: text })
