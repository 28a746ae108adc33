import type { TSchemaOptions } from 'typebox'
import { Type } from '../adapters/typebox.ts'
import type { ReadingAnnotations } from './reading.ts'

/** The shapes that many routes share. Each has an example, so that the example of a whole is made from its parts. */

type ShapeOptions = TSchemaOptions & ReadingAnnotations & Representing

/** An annotation: what the shape stands for where the description of the API is about one collection. */
export type Representing = { represents?: 'row' | 'written row' | 'key' | 'new row' | 'changed row' }

/** An id of a row, user, role or tenant. */
export const Id = (options: ShapeOptions = {}) =>
  Type.String({ format: 'uuid', examples: ['0198c0de-7a11-7cc1-9f3a-5d1f0c2b7e44'], ...options })

/** The id in a path: what is no UUID is not found. */
export const IdParams = Type.Object({
  id: Type.String({ examples: ['0198c0de-7a11-7cc1-9f3a-5d1f0c2b7e44'] }),
})

/** A point in time: ISO 8601 in UTC. */
export const Moment = (options: ShapeOptions = {}) =>
  Type.String({ format: 'date-time', examples: ['2026-03-14T09:26:53.589Z'], ...options })

/** Text as an answer has it. */
export const Text = (example: string, options: ShapeOptions = {}) => Type.String({ examples: [example], ...options })

/** Text that a request must hold something in. */
export const Filled = (example: string, options: ShapeOptions = {}) =>
  Type.String({ pattern: '\\S', examples: [example], ...options })

/** The same, or null. */
export const NullableText = (example: string, options: ShapeOptions = {}) =>
  Type.Unsafe<string | null>({ type: ['string', 'null'], examples: [example], ...options })

export const NullableId = (options: ShapeOptions = {}) =>
  NullableText('0198c0de-7a11-7cc1-9f3a-5d1f0c2b7e44', { format: 'uuid', ...options })

export const NullableMoment = (options: ShapeOptions = {}) =>
  NullableText('2026-03-14T09:26:53.589Z', { format: 'date-time', ...options })

export const Count = (example: number, options: ShapeOptions = {}) => Type.Integer({ examples: [example], ...options })

/** Names; in a query string by commas. */
export const Names = (example: readonly string[], options: ShapeOptions = {}) =>
  Type.Array(Type.String(), { examples: [example], ...options })

/** One of some words. */
export const OneOf = <const Words extends readonly string[]>(words: Words, options: ShapeOptions = {}) =>
  Type.Unsafe<Words[number]>({ type: 'string', enum: [...words], ...options })

/** The message about something done, e.g. `{ "message": "Session ended successfully" }`. */
export const Said = (message: string) => Type.Object({ message: Text(message) })

/** A row of a collection in the form of the API: its readable fields by name. */
export const Row = Type.Record(Type.String(), Type.Unknown(), {
  represents: 'row' satisfies Representing['represents'],
  examples: [{ id: '0198c0de-7a11-7cc1-9f3a-5d1f0c2b7e44', name: 'Analytical engine', price: 1200 }],
})

/** The answer about something that is gone. */
export const Deleted = Type.Object({ deleted: Type.Literal(true) })

/** Nothing is answered besides the status. */
export const Nothing = Type.Null({ description: 'No content', examples: [null] })

/** JSON of any kind. */
export const Anything = (example: unknown, options: ShapeOptions = {}) =>
  Type.Unknown({ examples: [example], ...options })

/** Refusals outside `/auth`. */
export const GeneralError = Type.Object({
  error: Type.Object({
    message: Text('Model books not found', { description: 'For people; may change.' }),
    code: Text('UNKNOWN_COLLECTION', { description: 'For programs; stable.' }),
    details: Type.Unknown({ description: 'The exact problem, if the message does not say it.', examples: [null] }),
    statusCode: Count(404),
  }),
})

/** Refusals under `/auth`; some have further members, e.g. `requiresEmailVerification`. */
export const AuthError = Type.Object(
  { message: Text('Incorrect password.'), code: Text('BAD_REQUEST') },
  { additionalProperties: true },
)

/** Refusals of the OAuth server (RFC 6749 §5.2). */
export const OAuthError = Type.Object({
  error: Text('invalid_grant', { description: 'For programs; a word of the standards.' }),
  error_description: Text('The code has been used', { description: 'For people; may change.' }),
})

/** Refusals of requests under `/realtime` that are not valid. */
export const RealtimeError = Type.Object({
  error: Text('actions is required and must be an array'),
  code: Text('BAD_REQUEST'),
})
