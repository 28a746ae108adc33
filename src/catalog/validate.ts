import { isIP } from 'node:net'
import type { FieldProblem } from '../errors.ts'
import { oncePer, onFirstUse } from '../language/once.ts'
import type { Field, Kind } from './catalog.ts'
import { orderOf } from './moments.ts'

const re2js = onFirstUse<typeof import('re2js')>('re2js')

/**
 * The problems of a value of a payload beyond its type: the rules of `validate` and the limits a type
 * has by itself. `value` is as the client sent it; null and values of another type pass,
 * because whether a value is needed and readable at all is decided elsewhere.
 */
export function ruleProblems(field: Field, value: unknown): readonly FieldProblem[] {
  if (value === null || value === undefined) return none
  const own = brokenLimit(field, value)
  const declared = field.validate === undefined ? none : declaredRules(field, field.validate, value)
  if (own === undefined && declared.length === 0) return none
  const broken = own === undefined ? declared : [own, ...declared]
  return broken.map(({ rule, message }) => ({ field: field.name, message, value: shown(field, value), rule }))
}

/** For every value of a list that is sound, which is most of them. */
const none: readonly never[] = []

/** The problem with the declaration of a field's rules, if any. */
export function rulesProblem(field: Field): string | undefined {
  for (const [name, json] of Object.entries(field.validate ?? {})) {
    const rule = Object.hasOwn(rules, name) ? rules[name]! : undefined
    if (rule === undefined) return `unknown validate rule ${name} (known: ${Object.keys(rules).join(', ')})`
    if (!rule.appliesTo(field)) return `validate rule ${name} does not apply to ${field.type}`
    const { argument } = argumentOf(json)
    if (argument !== false && rule.read(argument) === undefined) return `validate rule ${name} needs ${rule.needs}`
  }
  return undefined
}

const maxPatternLength = 500
/** The longest value a pattern is run on, in UTF-16 units. */
const maxMatchedLength = 2000

type BrokenRule = { readonly rule: string; readonly message: string }
/** The failure text for a value, or undefined. */
type ArgumentTest = (value: unknown) => string | undefined

type ValidationRule = {
  readonly appliesTo: (field: Field) => boolean
  readonly needs: string
  /** The test for an argument; undefined when the argument is none of this rule's. */
  readonly read: (argument: unknown) => ArgumentTest | undefined
}

const numberKinds: ReadonlySet<Kind> = new Set(['integer', 'bigint', 'decimal', 'float'])
const isNumber = ({ kind }: Field) => numberKinds.has(kind)
const isText = ({ kind }: Field) => kind === 'text'
const holdsNumbers = ({ kind, element }: Field) => numberKinds.has(element ?? kind)

const rules: Readonly<Record<string, ValidationRule>> = {
  min: limit((value, least) => value < least, 'less than minimum'),
  max: limit((value, most) => value > most, 'greater than maximum'),
  isInt: flag(isNumber, (value) => {
    const number = numberOf(value)
    return number === undefined || Number.isInteger(number) ? undefined : 'must be an integer'
  }),
  notEmpty: textFlag((text) => text.trim() !== '', 'cannot be empty'),
  len: { appliesTo: isText, needs: '[min, max]', read: lengthTest },
  isEmail: textFlag(isEmail, 'Invalid email format'),
  isUrl: textFlag(isUrl, 'Invalid URL format'),
  isIP: textFlag((text) => isIP(text) !== 0, 'Invalid IP format'),
  isUUID: textFlag((text) => uuidForm.test(text), 'Invalid UUID format'),
  is: { appliesTo: isText, needs: patternNeeds(), read: patternTest },
  matches: { appliesTo: isText, needs: patternNeeds(), read: patternTest },
}

function limit(isBroken: (value: number, limit: number) => boolean, words: string): ValidationRule {
  return {
    appliesTo: holdsNumbers,
    needs: 'a number',
    read: (argument) => {
      const bound = numberOf(single(argument))
      if (bound === undefined) return undefined
      return (value) => {
        const number = numberOf(value)
        return number !== undefined && isBroken(number, bound) ? `Value ${value} is ${words} ${bound}` : undefined
      }
    },
  }
}

function flag(appliesTo: ValidationRule['appliesTo'], test: ArgumentTest): ValidationRule {
  return { appliesTo, needs: 'true or false', read: (argument) => (argument === true ? test : undefined) }
}

function textFlag(isGood: (text: string) => boolean, message: string): ValidationRule {
  return flag(isText, (value) => {
    const text = textOf(value)
    return text === undefined || isGood(text) ? undefined : message
  })
}

function lengthTest(argument: unknown): ArgumentTest | undefined {
  const [least, most] = Array.isArray(argument) && argument.length <= 2 ? argument : []
  if (!isCount(least) || !(most === undefined || isCount(most))) return undefined
  return (value) => {
    const text = textOf(value)
    if (text === undefined) return undefined
    const length = [...text].length
    if (length < least) return `must be at least ${least} characters long`
    return most !== undefined && length > most ? `must be at most ${most} characters long` : undefined
  }
}

function patternNeeds(): string {
  return `an RE2 pattern of at most ${maxPatternLength} characters (no look-around, no back-references)`
}

/** The pattern as text, or `[pattern, 'i']`. */
function patternTest(argument: unknown): ArgumentTest | undefined {
  const [source, flags] = Array.isArray(argument) ? argument : [argument]
  if (typeof source !== 'string' || !(flags === undefined || flags === '' || flags === 'i')) return undefined
  const matches = compilePattern(source, flags === 'i')
  if (matches === undefined) return undefined
  return (value) => {
    const text = textOf(value)
    if (text === undefined) return undefined
    if (text.length > maxMatchedLength) return `must be at most ${maxMatchedLength} characters long for its pattern`
    return matches(text) ? undefined : 'does not match required pattern'
  }
}

type DeclaredRule = { readonly rule: string; readonly test: ArgumentTest; readonly message: string | undefined }

/** The rules of a declaration, read once. */
const rulesOf = oncePer((validate: NonNullable<Field['validate']>) =>
  Object.entries(validate).flatMap(([rule, json]): DeclaredRule[] => {
    const { argument, message } = argumentOf(json)
    const test = rules[rule]?.read(argument)
    return test === undefined ? [] : [{ rule, test, message }]
  }),
)

function declaredRules(field: Field, validate: NonNullable<Field['validate']>, value: unknown): readonly BrokenRule[] {
  const subjects = subjectsOf(field, value)
  return rulesOf(validate).flatMap(({ rule, test, message }) =>
    subjects.flatMap(({ prefix, value: subject }): BrokenRule[] => {
      const problem = subject === null || subject === undefined ? undefined : test(subject)
      return problem === undefined ? [] : [{ rule, message: message ?? `${prefix}${problem}` }]
    }),
  )
}

/** The subjects of rules: the value itself, the elements of an array, the bounds of a range. */
function subjectsOf({ kind }: Field, value: unknown): { prefix: string; value: unknown }[] {
  if (kind === 'array')
    return Array.isArray(value) ? value.map((element, i) => ({ prefix: `Array element [${i}]: `, value: element })) : []
  if (kind !== 'range') return [{ prefix: '', value }]
  const { lower, upper } = boundsOf(value)
  return [
    { prefix: 'Lower bound: ', value: lower },
    { prefix: 'Upper bound: ', value: upper },
  ]
}

/** The limit of the column itself that a value breaks: what PostgreSQL would refuse is named here with its field. */
function brokenLimit(field: Field, value: unknown): BrokenRule | undefined {
  const text = textOf(value)
  if (text === undefined) return field.kind === 'range' ? rangeOrder(field, value) : undefined
  if (field.enumValues !== undefined && !field.enumValues.includes(text))
    return { rule: 'enum', message: `must be one of ${field.enumValues.join(', ')}` }
  const { most } = lengthOf(field)
  // A character is one or two units, so that most texts need not be counted.
  if (most !== undefined && text.length > most && [...text].length > most)
    return { rule: 'len', message: `must be at most ${most} characters long` }
  return undefined
}

/** How many characters the type of a text column holds; `most` is undefined where that is not limited. */
const lengthOf = oncePer(({ kind, pgType }: Field): { readonly most: number | undefined } => {
  const length = kind === 'text' ? /^varchar\((\d+)\)$/.exec(pgType)?.[1] : undefined
  return { most: length === undefined ? undefined : Number(length) }
})

function rangeOrder({ element = 'integer' }: Field, value: unknown): BrokenRule | undefined {
  const bounds = boundsOf(value)
  const [lower, upper] = [orderOf(bounds.lower, element), orderOf(bounds.upper, element)]
  if (lower === undefined || upper === undefined || lower <= upper) return undefined
  return { rule: 'range', message: 'Lower bound cannot exceed upper bound' }
}

function boundsOf(value: unknown): { lower?: unknown; upper?: unknown } {
  return value !== null && typeof value === 'object' && !Array.isArray(value) ? value : {}
}

/** `argument`, or `{ args: argument, msg: text }` with a failure text of its own. */
function argumentOf(json: unknown): { argument: unknown; message?: string | undefined } {
  if (json === null || typeof json !== 'object' || Array.isArray(json)) return { argument: json }
  const { args = true, msg } = json as { args?: unknown; msg?: unknown }
  return { argument: args, message: typeof msg === 'string' ? msg : undefined }
}

function single(argument: unknown): unknown {
  return Array.isArray(argument) && argument.length === 1 ? argument[0] : argument
}

function isCount(value: unknown): value is number {
  return typeof value === 'number' && Number.isInteger(value) && value >= 0
}

/** Numbers may come as text: BigInt beyond 2⁵³ and Decimal do. */
function numberOf(value: unknown): number | undefined {
  const isNumeric = typeof value === 'number' || (typeof value === 'string' && value.trim() !== '')
  const number = isNumeric ? Number(value) : Number.NaN
  return Number.isFinite(number) ? number : undefined
}

function textOf(value: unknown): string | undefined {
  if (typeof value === 'string') return value
  return typeof value === 'number' || typeof value === 'boolean' ? String(value) : undefined
}

/** RFC 5321's lengths and one @; only a mail shows whether mail arrives. */
function isEmail(text: string): boolean {
  const at = text.lastIndexOf('@')
  return at > 0 && at <= 64 && text.length <= 254 && /^[^\s@"(),:;<>[\\\]]+@(?:[^\s@.]+\.)+[^\s@.]+$/.test(text)
}

function isUrl(text: string): boolean {
  return text.length <= 2083 && /^(?:https?|ftp):\/\/[^\s/]/i.test(text) && URL.canParse(text)
}

const uuidForm = /^[\da-f]{8}-[\da-f]{4}-[\da-f]{4}-[\da-f]{4}-[\da-f]{12}$/i

function shown(field: Field, value: unknown): unknown {
  if (field.hidden) return undefined
  return typeof value === 'string' && value.length > 200 ? `${value.slice(0, 200)}…` : value
}

/*
 * Patterns of `validate` run on whatever a client sends. They are RE2: matching takes time in proportion to the input,
 * so none can hang the process. The price: no look-around, no back-references. With the limits above the worst pattern
 * takes some 80 ms.
 */

/** Reads a pattern in JavaScript's spelling; undefined when it is too long or no RE2 pattern. */
function compilePattern(source: string, ignoreCase: boolean): ((text: string) => boolean) | undefined {
  if (source.length > maxPatternLength) return undefined
  const { RE2JS, RE2JSException } = re2js()
  try {
    const pattern = RE2JS.compile(RE2JS.translateRegExp(source), ignoreCase ? RE2JS.CASE_INSENSITIVE : 0)
    return (text) => pattern.test(text)
  } catch (error) {
    if (error instanceof RE2JSException) return undefined
    throw error
  }
}
