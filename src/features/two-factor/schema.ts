import { Type } from 'typebox'

/** What the endpoints of auth facts §4 answer. */

export const SetupShape = Type.Object({
  secret: Type.String(),
  otpauthUrl: Type.String(),
  backupCodes: Type.Array(Type.String()),
})

export const EnabledShape = Type.Object({ enabled: Type.Literal(true) })

export const DisabledShape = Type.Object({ disabled: Type.Literal(true) })
