import type { FastifySchemaCompiler } from 'fastify'
import type { Static, TObject, TSchema, TSchemaOptions } from 'typebox'
import { compiled, fits, problemsOf, Type } from '../adapters/typebox.ts'
import { AppError } from '../errors.ts'
import { unfit, unfitMissing } from './unfit.ts'

/** The words of a refusal, which may quote what was given; without a status it is 400. */
type RefusalWords =
  | string
  | ((given: unknown) => string)
  | { readonly message: string; readonly status: number; readonly code?: string; readonly details?: unknown }

/**
 * The words of a shape for a value that does not fit, under `refusal`: the same words for every fault, or by the
 * keyword that failed (`required`, `type`, `maxLength` …) with `otherwise` for the rest.
 */
type Refusals = RefusalWords | { readonly otherwise: RefusalWords; readonly [keyword: string]: RefusalWords }

/** The refusal of a parameter, in the words that every malformed query is refused with. */
export const badQuery = (details: string) => ({
  status: 400,
  message: 'Invalid query parameters',
  code: 'BAD_QUERY',
  details,
})

/** Annotations that the reader of requests knows besides JSON Schema. */
type ReadingAnnotations = {
  refusal?: Refusals
  /** A value that does not fit counts as absent. */
  lenient?: true
  /** A value that does not fit is the handler's to judge. */
  unchecked?: true
  /** What is added to the refusal of a member that the shape does not name. */
  unknown?: string
}

type AnnotatedShape = TSchema &
  ReadingAnnotations & {
    readonly type?: unknown
    readonly required?: readonly string[]
    readonly additionalProperties?: unknown
  }

type ReadResult = true | { readonly value: unknown } | { readonly error: AppError }

/**
 * Reads a part of a request by its shape; a validator compiler of Fastify. A shape is compiled when the first request is
 * read by it. A value that fits is left as it is. Otherwise the members are read one by one, in the order of the shape:
 * null counts as absent, text of a query becomes a number or boolean where one is declared, a `lenient` member that does
 * not fit is left out, and the first member that does not fit refuses the request in the words of its `refusal`, or else in
 * those of `unfit`. A body
 * that is no object counts as an empty one where a member is required, unless the shape itself has a `refusal`; an absent one
 * does wherever none is. A shape without `additionalProperties` refuses members that it does not name.
 */
export const readerOf: FastifySchemaCompiler<TSchema> = ({ schema, httpPart = 'body' }) => {
  let check: ((value: unknown) => boolean) | undefined
  return (value: unknown): ReadResult => {
    check ??= compiled(schema)
    if (check(value)) return true
    try {
      return { value: readSlowly(schema, value, httpPart) }
    } catch (error) {
      if (error instanceof AppError) return { error }
      throw error
    }
  }
}

/** The same for what comes from elsewhere, e.g. an extension. 400 where it does not fit. */
export function readAs<Shape extends TSchema>(shape: Shape, value: unknown): Static<Shape> {
  return (fits(shape, value) ? value : readSlowly(shape, value, 'value')) as Static<Shape>
}

type Members = Readonly<Record<string, unknown>>

function readSlowly(shape: TSchema, value: unknown, part: string): unknown {
  if (!isObjectShape(shape)) throw refused(shape, value, part)
  const members = membersOf(shape, value, part)
  const read = readMembers(shape, members, part)
  if (isWithoutMore(shape)) refuseUnknown(shape, members)
  return read
}

function refuseUnknown(shape: TObject, members: Members): void {
  const unknown = Object.keys(members).find((name) => !Object.hasOwn(shape.properties, name))
  if (unknown === undefined) return
  const { unknown: more } = shape as AnnotatedShape
  const words = `Request body has no member ${JSON.stringify(unknown.slice(0, 64))}`
  throw new AppError(400, more === undefined ? words : `${words}: ${more}`)
}

function membersOf(shape: TObject, value: unknown, part: string): Members {
  if (value !== null && typeof value === 'object' && !Array.isArray(value)) return value as Members
  const { refusal, lenient } = shape as AnnotatedShape
  const isAbsent = value === undefined || value === null
  if (requiredOf(shape).size === 0 ? isAbsent || lenient === true : refusal === undefined) return {}
  if (refusal !== undefined) throw refused(shape, value, part)
  // Taken for an empty one it would ask for everything: nothing else is left to refuse it.
  throw new AppError(400, notAnObject)
}

const notAnObject = 'Request body must be an object'

const requiredOf = (shape: TSchema): ReadonlySet<string> => new Set((shape as AnnotatedShape).required)

function readMembers(shape: TObject, members: Members, part: string): Members {
  const read: Record<string, unknown> = { ...members }
  const required = requiredOf(shape)
  for (const [name, member] of Object.entries(shape.properties) as [string, AnnotatedShape][]) {
    const given = part === 'querystring' ? converted(member, members[name]) : members[name]
    read[name] = given
    const isGiven = given !== undefined && given !== null
    if (given !== undefined && (fits(member, given) || (isGiven && member.unchecked === true))) continue
    if (isGiven && member.lenient !== true) throw refused(member, given, part, name)
    if (required.has(name)) throw missing(member, name, part)
    delete read[name]
  }
  return read
}

/** Parameters arrive as text. */
function converted({ type }: AnnotatedShape, given: unknown): unknown {
  if (typeof given !== 'string') return given
  if ((type === 'integer' || type === 'number') && /^-?\d+(\.\d+)?$/.test(given)) return Number(given)
  if (type === 'boolean' && (given === 'true' || given === 'false')) return given === 'true'
  return given
}

function refused(shape: TSchema, value: unknown, part: string, name?: string): AppError {
  const problems = problemsOf(shape, value)
  const { refusal } = shape as AnnotatedShape
  if (refusal !== undefined) return inWords(refusal, value, new Set(problems.map(({ keyword }) => keyword as string)))
  return unfit(part, problems, name)
}

function missing({ refusal }: AnnotatedShape, name: string, part: string): AppError {
  if (refusal === undefined) return unfitMissing(part, name)
  return inWords(refusal, undefined, new Set(['required']))
}

/** Of a table of words the first whose keyword failed. */
function inWords(refusal: Refusals, given: unknown, failed: ReadonlySet<string>): AppError {
  if (typeof refusal === 'string') return new AppError(400, refusal)
  if (typeof refusal === 'function') return new AppError(400, refusal(given))
  if (isTable(refusal)) {
    const keyword = Object.keys(refusal).find((name) => failed.has(name)) ?? 'otherwise'
    return inWords(refusal[keyword]!, given, failed)
  }
  const { message, status, ...more } = refusal
  return new AppError(status, message, more)
}

const isTable = (refusal: Refusals): refusal is Extract<Refusals, { readonly otherwise: RefusalWords }> =>
  typeof refusal === 'object' && 'otherwise' in refusal

const isObjectShape = (shape: TSchema): shape is TObject => 'properties' in shape

/**
 * Options of a shape without required members, of a route that acts on everything unless they say otherwise: a body that
 * cannot be read, or a misspelt member, must not be taken for that.
 */
export const closed = { additionalProperties: false, refusal: notAnObject } as const

/** Whether a shape has these options. */
export const isClosed = (shape: TSchema): boolean => requiredOf(shape).size === 0 && isWithoutMore(shape)

const isWithoutMore = (shape: TSchema): boolean => (shape as AnnotatedShape).additionalProperties === false

/** The shapes that many routes share. Each has an example, so that the example of a whole is made from its parts. */

type ShapeOptions = TSchemaOptions & ReadingAnnotations & Representing

/** An annotation: what the shape stands for where the description of the API is about one collection. */
export type Representing = { represents?: 'row' | 'written row' | 'key' | 'new row' | 'changed row' | 'named change' }

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

/** A row of one collection of the system, as the example shows it. */
export const RowOf = (example: Readonly<Record<string, unknown>>) =>
  Type.Record(Type.String(), Type.Unknown(), { examples: [example] })

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
