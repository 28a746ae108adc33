import { AppError, errors } from '../errors.ts'

/** A problem of a value that does not fit its shape: what TypeBox and the validator of Fastify have in common. */
export type ShapeProblem = {
  readonly keyword: string
  /** The place in the value, as `/lines/1/name`. */
  readonly instancePath: string
  readonly schemaPath: string
  readonly params: object
}

/**
 * The refusal of a request where its shape has no words: the place and what may stand there are in its details,
 * `state: expected one of "failed", "waiting"`. Of a value that is no part of a request (`querystring`, `body`) they are the message.
 *
 * @param name of the member that the problems are of; absent where they are of the whole
 */
export function unfit(part: string | undefined, problems: readonly ShapeProblem[], name?: string): AppError {
  const { place, fault } = faultIn(problems, name)
  return unfitIn(part, `${place || (part ?? 'value')}: ${fault}`)
}

/** The same for a member that is not there. */
export const unfitMissing = (part: string | undefined, name: string): AppError => unfitIn(part, `${name}: ${missing}`)

/** Of a member that is required. */
export const missing = 'is missing'

function unfitIn(part: string | undefined, words: string): AppError {
  if (part === 'querystring') return errors.badQuery(words)
  return part === 'body' ? errors.badBody(unfitBody, words) : new AppError(400, words)
}

const unfitBody = 'Invalid request body'

/** Whether the reason of a refusal is in its details, for bodies that have no place for these. */
export const isUnfit = ({ code, message, details }: AppError): boolean =>
  typeof details === 'string' && (code === 'BAD_QUERY' || message === unfitBody)

/** A problem in plain words. `place`: empty for the whole. */
export type Fault = { readonly place: string; readonly fault: string }

/**
 * The problem that a caller is told of. The last one is that of the whole: its alternatives come before it.
 *
 * @param name of the member that the problems are of; absent where they are of the whole
 */
export function faultIn(problems: readonly ShapeProblem[], name?: string): Fault {
  const problem = chosen(problems)
  const { keyword, params, instancePath } = problem
  const place = placeOf(name, instancePath)
  const absent = firstOf(params, 'missingProperty', 'requiredProperties')
  if (keyword === 'required') return { place: placeOf(name, `${instancePath}/${absent}`), fault: missing }
  const stray = firstOf(params, 'additionalProperty', 'additionalProperties')
  if (keyword === 'additionalProperties') return { place, fault: `has no member ${JSON.stringify(stray)}` }
  const expected = expectedOf(problem, problems)
  return { place, fault: expected === undefined ? 'is not valid' : `expected ${expected}` }
}

/** Where the value has the form of an alternative, but not in all of its members, one of those is the problem. */
function chosen(problems: readonly ShapeProblem[]): ShapeProblem {
  const last = problems.at(-1)!
  if (!isOfAlternatives(last)) return last
  return problems.findLast(({ instancePath }) => instancePath.startsWith(`${last.instancePath}/`)) ?? last
}

const isOfAlternatives = ({ keyword }: ShapeProblem): boolean => keyword === 'anyOf' || keyword === 'oneOf'

/** As errors name a field: `lines.1.name`. */
const placeOf = (name: string | undefined, instancePath: string): string =>
  [...(name === undefined ? [] : [name]), ...instancePath.split('/').slice(1)].join('.')

function firstOf(params: object, ...names: readonly string[]): unknown {
  return names.flatMap((name) => (params as Readonly<Record<string, unknown>>)[name] ?? [])[0]
}

/** What may stand at the place of a problem; undefined where its keyword does not say. */
function expectedOf(problem: ShapeProblem, all: readonly ShapeProblem[]): string | undefined {
  const { keyword, params, instancePath } = problem
  if (isOfAlternatives(problem)) {
    const alternatives = all.filter((one) => one !== problem && one.instancePath === instancePath)
    const words = alternatives.map((one) => expectedOf(one, []))
    return words.length === 0 || words.includes(undefined) ? undefined : [...new Set(words)].join(' or ')
  }
  return Object.hasOwn(expectations, keyword) ? expectations[keyword]!(params as never) : undefined
}

type Params = {
  readonly type: string | readonly string[]
  readonly allowedValues: readonly unknown[]
  readonly allowedValue: unknown
  readonly limit: number
  readonly multipleOf: number
  readonly format: string
  readonly pattern: string
}

/** By keyword of JSON Schema. */
const expectations: Readonly<Record<string, (params: Params) => string>> = {
  type: ({ type }) => [type].flat().map(typeInWords).join(' or '),
  enum: ({ allowedValues }) => `one of ${allowedValues.map((value) => JSON.stringify(value)).join(', ')}`,
  const: ({ allowedValue }) => JSON.stringify(allowedValue),
  minimum: ({ limit }) => `at least ${limit}`,
  maximum: ({ limit }) => `at most ${limit}`,
  exclusiveMinimum: ({ limit }) => `more than ${limit}`,
  exclusiveMaximum: ({ limit }) => `less than ${limit}`,
  multipleOf: ({ multipleOf }) => `a multiple of ${multipleOf}`,
  minLength: ({ limit }) => `at least ${limit} ${limit === 1 ? 'character' : 'characters'}`,
  maxLength: ({ limit }) => `at most ${limit} ${limit === 1 ? 'character' : 'characters'}`,
  minItems: ({ limit }) => `at least ${limit} ${limit === 1 ? 'entry' : 'entries'}`,
  maxItems: ({ limit }) => `at most ${limit} ${limit === 1 ? 'entry' : 'entries'}`,
  uniqueItems: () => 'each entry once',
  format: ({ format }) => (Object.hasOwn(formats, format) ? formats[format]! : `a value of the format ${format}`),
  pattern: ({ pattern }) => (pattern === '\\S' ? 'text that is not blank' : `text that fits ${pattern}`),
}

const typeInWords = (type: string): string => types[type] ?? type

const types: Readonly<Record<string, string>> = {
  string: 'text',
  integer: 'a whole number',
  number: 'a number',
  boolean: 'true or false',
  array: 'a list',
  object: 'an object',
  null: 'null',
}

const formats: Readonly<Record<string, string>> = {
  uuid: 'a UUID',
  'date-time': 'a time such as 2026-03-14T09:26:53Z',
  date: 'a date such as 2026-03-14',
  unicode: 'valid Unicode without NUL',
  uri: 'an address such as https://example.com/path',
  email: 'an e-mail address',
}
