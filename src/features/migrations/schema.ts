import { Type } from 'typebox'
import { migrationTypes } from './scripts.ts'

const version = Type.String({ minLength: 1, maxLength: 100 })
const states = ['pending', 'running', 'completed', 'failed', 'rolled_back', 'skipped'] as const

export const RunBody = Type.Object(
  {
    version: Type.Optional(version),
    toVersion: Type.Optional(version),
    dryRun: Type.Optional(Type.Boolean()),
    sql: Type.Optional(Type.Boolean()),
  },
  { additionalProperties: false },
)

export const CreateBody = Type.Object(
  {
    name: Type.String({ maxLength: 1000 }),
    type: Type.Optional(Type.Enum([...migrationTypes])),
    description: Type.Optional(Type.String({ maxLength: 2000 })),
  },
  { additionalProperties: false },
)

export const RollbackBody = Type.Object(
  { reason: Type.Optional(Type.String({ maxLength: 2000 })) },
  { additionalProperties: false },
)

export const MarkBody = Type.Object(
  { metadata: Type.Optional(Type.Record(Type.String(), Type.Unknown())) },
  { additionalProperties: false },
)

export const MarkAllBody = Type.Object({ toVersion: Type.Optional(version) }, { additionalProperties: false })

export const ListQuery = Type.Object({
  status: Type.Optional(Type.Enum([...states])),
  type: Type.Optional(Type.Enum([...migrationTypes])),
  /** -1 for all. */
  limit: Type.Optional(Type.Integer({ minimum: -1, not: { const: 0 } })),
})
