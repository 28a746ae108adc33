import { Type } from 'typebox'
import { Filled, Id, Moment, NullableId, NullableText, Text } from '../../../http/shapes.ts'
import { Proof } from '../auth/auth.ts'

/** What the endpoints take and answer; `key` by creation only. */

export const noEnd = 'expiresAt must be a time to come, e.g. 2030-01-31T12:00:00Z'

export const NewKeyBody = Type.Object(
  {
    name: Filled('Nightly import', { refusal: 'name is required', description: 'At most 100 characters.' }),
    expiresAt: Type.Optional(Moment({ refusal: noEnd, examples: ['2030-01-31T12:00:00Z'] })),
    role_Id: Type.Optional(
      Filled('0198c0de-7a11-7cc1-9f3a-5d1f0c2b7e44', {
        refusal: 'role_Id must be the id of a role',
        description: 'The key lives while you have just this role; without it the key has whichever you have.',
      }),
    ),
    ...Proof,
  },
  { examples: [{ name: 'Nightly import', expiresAt: '2030-01-31T12:00:00Z' }] },
)

const ApiKeyShape = Type.Object({
  id: Id(),
  name: Text('Nightly import'),
  hint: Text('dbk_…4f2a'),
  role_Id: NullableId(),
  tenant_Id: NullableId(),
  expiresAt: NullableText('2030-01-31T12:00:00Z'),
  lastUsedAt: NullableText('2026-03-14T09:26:53.589Z'),
  createdAt: Text('2026-03-14T09:26:53.589Z'),
})

export const CreatedKeyShape = Type.Object({ key: Text('dbk_5f1d7a84db00d2fce00b31a7fc73224f'), apiKey: ApiKeyShape })

export const KeysShape = Type.Object({ keys: Type.Array(ApiKeyShape) })

export const DeletedShape = Type.Object({ deleted: Type.Literal(true) })
