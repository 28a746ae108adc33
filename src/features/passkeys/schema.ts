import { Type } from 'typebox'

/** What the endpoints of auth facts §5 answer. */

const text = Type.String()
const nullableText = Type.Unsafe<string | null>({ type: ['string', 'null'] })

/** Options are the browser's business and as the standard has them: nothing of ours is in there. */
const OptionsShape = Type.Object({ challenge: text }, { additionalProperties: true })

export const RegistrationOptionsShape = OptionsShape

export const AuthenticationOptionsShape = Type.Object({ options: OptionsShape, challengeId: text })

export const RegisteredPasskeyShape = Type.Object({
  verified: Type.Literal(true),
  passkey: Type.Object({ id: text, name: text }),
})

export const PasskeysShape = Type.Object({
  passkeys: Type.Array(
    Type.Object({
      id: text,
      name: text,
      deviceType: nullableText,
      backedUp: Type.Boolean(),
      createdAt: text,
      lastUsedAt: nullableText,
    }),
  ),
})

export const DeletedShape = Type.Object({ deleted: Type.Literal(true) })
