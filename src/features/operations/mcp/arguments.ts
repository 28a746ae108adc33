import type { TObject, TSchema } from 'typebox'
import { fits, problemsOf } from '../../../adapters/typebox.ts'
import { AppError } from '../../../errors.ts'
import { nearName } from '../../../language/text.ts'
import { isObject } from '../../../query/guards.ts'

type Shape = TSchema & { readonly default?: unknown; readonly type?: unknown }
type Problem = { readonly argument: string; readonly message: string }

/**
 * The arguments of a tool by its shape, with its defaults. Null counts as absent, and JSON as text for what it says: some models
 * send both. Every problem at once, each with the name of its argument.
 *
 * @throws {AppError} 400
 */
export function readArguments(shape: TObject, given: unknown): Readonly<Record<string, unknown>> {
  if (given !== undefined && !isObject(given)) throw refusal([{ argument: 'arguments', message: 'must be an object' }])
  const members = (given ?? {}) as Readonly<Record<string, unknown>>
  const shapes = Object.entries(shape.properties) as [string, Shape][]
  const names = shapes.map(([name]) => name)
  const problems = Object.keys(members)
    .filter((name) => !names.includes(name))
    .map((name) => ({ argument: name, message: unknownIn(names, name) }))
  const required = new Set((shape as { required?: readonly string[] }).required)
  const read: Record<string, unknown> = {}
  for (const [name, member] of shapes) {
    const value = meant(member, members[name])
    if (value === undefined) {
      if (member.default !== undefined) read[name] = member.default
      else if (required.has(name)) problems.push({ argument: name, message: 'is required' })
    } else if (fits(member, value)) read[name] = value
    else problems.push({ argument: name, message: faultOf(member, value) })
  }
  if (problems.length > 0) throw refusal(problems)
  return read
}

function refusal(problems: readonly Problem[]): AppError {
  const words = problems.map(({ argument, message }) => `${shown(argument)} ${message}`).join('; ')
  return new AppError(400, `Invalid arguments: ${words}`, { code: 'INVALID_ARGUMENTS', details: problems })
}

/** Of what a client made up, no more than can be read. */
const shown = (name: string): string => (/^[\w.-]{1,64}$/.test(name) ? name : JSON.stringify(name.slice(0, 64)))

function unknownIn(names: readonly string[], name: string): string {
  const near = nearName(name, names)
  return near === undefined
    ? `is unknown; there are ${names.join(', ') || 'none'}`
    : `is unknown: did you mean ${near}?`
}

function meant({ type }: Shape, value: unknown): unknown {
  if (value === null) return undefined
  if (typeof value !== 'string') return value
  if ((type === 'integer' || type === 'number') && /^-?\d+(\.\d+)?$/.test(value)) return Number(value)
  if (type === 'boolean' && (value === 'true' || value === 'false')) return value === 'true'
  return type === 'object' || type === 'array' ? jsonOf(value) : value
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch (error) {
    // It is judged as the text that it is.
    if (error instanceof SyntaxError) return text
    throw error
  }
}

function faultOf(shape: Shape, value: unknown): string {
  const problem = problemsOf(shape, value).at(-1)
  return `${problem?.instancePath ?? ''} ${problem?.message ?? 'is not valid'}`.trim()
}
