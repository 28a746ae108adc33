import { Type } from 'typebox'
import { Filled, Id, NullableText, Text } from '../../../http/shapes.ts'
import { SignIn } from '../auth/auth.ts'

/** What the endpoints take and answer. */

/** What an authenticator has said: any object, which the adapter judges. */
const ResponseShape = (refusal: string) =>
  Type.Object(
    {},
    {
      additionalProperties: true,
      description: 'As `navigator.credentials` gives it, by toJSON().',
      examples: [{ id: 'kQ7x', rawId: 'kQ7x', type: 'public-key', response: { clientDataJSON: 'eyJ0eXBlIjoi' } }],
      refusal,
    },
  )

const bothNeeded = 'challengeId and response are required'
export const AuthenticateBody = Type.Object({
  authMode: SignIn.authMode,
  challengeId: Filled('0f3a5d1f0c2b7e44', { refusal: bothNeeded }),
  response: ResponseShape(bothNeeded),
  authType: SignIn.authType,
  tenant_Id: SignIn.tenant_Id,
})

export const RegisterPasskeyBody = Type.Object({
  response: ResponseShape('response is required'),
  name: Type.Optional(Filled('My laptop', { lenient: true, description: 'At most 100 characters.' })),
})

/** Options are the browser's business and as the standard has them: nothing of ours is in there. */
export const OptionsShape = Type.Object({ challenge: Text('d0JqUlR2') }, { additionalProperties: true })

export const AuthenticationOptionsShape = Type.Object({ options: OptionsShape, challengeId: Text('0f3a5d1f0c2b7e44') })

export const RegisteredPasskeyShape = Type.Object({
  verified: Type.Literal(true),
  passkey: Type.Object({ id: Id(), name: Text('My laptop') }),
})

export const PasskeysShape = Type.Object({
  passkeys: Type.Array(
    Type.Object({
      id: Id(),
      name: Text('My laptop'),
      deviceType: NullableText('multiDevice'),
      backedUp: Type.Boolean(),
      createdAt: Text('2026-03-14T09:26:53.589Z'),
      lastUsedAt: NullableText('2026-03-14T09:26:53.589Z'),
    }),
  ),
})

export const DeletedShape = Type.Object({ deleted: Type.Literal(true) })
