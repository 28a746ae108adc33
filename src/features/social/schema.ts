import { Type } from 'typebox'
import { SignedInShape } from '../auth/schema.ts'

/** Where to send the browser; or, for an ID token, the answer of signing in. */
export const StartedShape = Type.Object({
  redirect: Type.Boolean(),
  url: Type.Optional(Type.String()),
  ...SignedInShape.properties,
})
