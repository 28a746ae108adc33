import type { FastifySchemaCompiler } from 'fastify'
import type { Static, TObject, TSchema } from 'typebox'
import { compiled, fits, problemsOf } from '../adapters/typebox.ts'
import { AppError } from '../errors.ts'

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
export type ReadingAnnotations = {
  refusal?: Refusals
  /** A value that does not fit counts as absent. */
  lenient?: true
  /** A value that does not fit is the handler's to judge. */
  unchecked?: true
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
 * not fit is left out, and the first member that does not fit refuses the request in the words of its `refusal`. A body
 * that is no object counts as an empty one, unless the shape itself has a `refusal`; an absent one does wherever no member
 * is required. A shape without `additionalProperties` refuses members that it does not name.
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
  return (fits(shape, value) ? value : readSlowly(shape, value, 'body')) as Static<Shape>
}

type Members = Readonly<Record<string, unknown>>

function readSlowly(shape: TSchema, value: unknown, part: string): unknown {
  if (!isObjectShape(shape)) throw refused(shape, value, part)
  const members = membersOf(shape, value, part)
  const read = readMembers(shape, members, part)
  if ((shape as AnnotatedShape).additionalProperties === false) refuseUnknown(shape, members)
  return read
}

function refuseUnknown({ properties }: TObject, members: Members): void {
  const unknown = Object.keys(members).find((name) => !Object.hasOwn(properties, name))
  if (unknown !== undefined)
    throw new AppError(400, `Request body has no member ${JSON.stringify(unknown.slice(0, 64))}`)
}

function membersOf(shape: TObject, value: unknown, part: string): Members {
  if (value !== null && typeof value === 'object' && !Array.isArray(value)) return value as Members
  const isOptional = (value === undefined || value === null) && requiredOf(shape).size === 0
  if (isOptional || (shape as AnnotatedShape).refusal === undefined) return {}
  throw refused(shape, value, part)
}

const requiredOf = (shape: TSchema): ReadonlySet<string> => new Set((shape as AnnotatedShape).required)

function readMembers(shape: TObject, members: Members, part: string): Members {
  const read: Record<string, unknown> = { ...members }
  const required = requiredOf(shape)
  for (const [name, member] of Object.entries(shape.properties) as [string, AnnotatedShape][]) {
    const given = part === 'body' ? members[name] : converted(member, members[name])
    read[name] = given
    const isGiven = given !== undefined && given !== null
    if (given !== undefined && (fits(member, given) || (isGiven && member.unchecked === true))) continue
    if (isGiven && member.lenient !== true) throw refused(member, given, `${part}/${name}`)
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

function refused(shape: TSchema, value: unknown, place: string): AppError {
  const problems = problemsOf(shape, value)
  const { refusal } = shape as AnnotatedShape
  if (refusal !== undefined) return inWords(refusal, value, new Set(problems.map(({ keyword }) => keyword as string)))
  const problem = problems.at(-1)
  return new AppError(400, `${place}${problem?.instancePath ?? ''} ${problem?.message ?? 'is not valid'}`)
}

function missing({ refusal }: AnnotatedShape, name: string, part: string): AppError {
  if (refusal === undefined) return new AppError(400, `${part} must have required property '${name}'`)
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
