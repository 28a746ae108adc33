import { Type } from 'typebox'

/** What the endpoints answer; `key` by creation only. */

const text = Type.String()
const nullableText = Type.Unsafe<string | null>({ type: ['string', 'null'] })

export const ApiKeyShape = Type.Object({
  id: text,
  name: text,
  hint: text,
  role_Id: nullableText,
  tenant_Id: nullableText,
  expiresAt: nullableText,
  lastUsedAt: nullableText,
  createdAt: text,
})

export const CreatedKeyShape = Type.Object({ key: text, apiKey: ApiKeyShape })

export const KeysShape = Type.Object({ keys: Type.Array(ApiKeyShape) })

export const DeletedShape = Type.Object({ deleted: Type.Literal(true) })
