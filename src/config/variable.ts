import type { Parser } from './parsers.ts'

/** One environment variable. `fallback` is written as an operator would write it and goes through the same parser. */
export type Variable<T> = Readonly<{
  name: string
  parser: Parser<T>
  fallback: Fallback | undefined
  /** The effect of the variable, in one line; ends up in docs/config.md and in messages. */
  doc: string
  /** The value must never be printed. */
  secret: boolean
  /** A second accepted spelling, read when `name` is unset. */
  alias?: string
}>

/** A default; an object where it depends on NODE_ENV. */
export type Fallback = string | Readonly<{ production?: string; test?: string; otherwise: string }>

type Environment = 'development' | 'production' | 'test'

/** A section of docs/config.md and a member of Config. */
export type Group = Readonly<{ title: string; variables: Readonly<Record<string, Variable<unknown>>> }>

/** The values of a set of variables. */
export type Values<V> = { readonly [K in keyof V]: V[K] extends Variable<infer T> ? T : never }

/** A variable with a default; the empty default stands for an empty list or text. */
export function variable<T>(name: string, parser: Parser<T>, fallback: Fallback, doc: string): Variable<T> {
  return { name, parser, fallback, doc, secret: false }
}

export function optional<T>(name: string, parser: Parser<T>, doc: string): Variable<T | undefined> {
  return { name, parser, fallback: undefined, doc, secret: false }
}

export function optionalSecret<T>(name: string, parser: Parser<T>, doc: string): Variable<T | undefined> {
  return secret(optional(name, parser, doc))
}

export function secret<T>(open: Variable<T>): Variable<T> {
  return { ...open, secret: true }
}

export function group<V extends Group['variables']>(title: string, variables: V) {
  return { title, variables }
}

/** Environment variables as they come: unset or empty ones count as absent. */
export type Env = Readonly<Record<string, string | undefined>>

/** The variables of the process, for migration scripts; everything else reads `Configuration`. */
export type ProcessVariables = { readonly env: Env }

/** A problem of one variable; `message` follows its name. */
export type VariableProblem = Readonly<{ variable: string; message: string; doc: string }>

/** Findings of reading and checking; filled as the parts are read. */
export type Findings = { problems: VariableProblem[]; warnings: string[] }

/** One reading of an environment: where values come from, and what has been asked and found so far. */
export type ConfigReading = Readonly<{ env: Env; environment: Environment; findings: Findings; asked: Set<string> }>

export function openReading(env: Env): ConfigReading {
  const environment = present(env.NODE_ENV)?.trim().toLowerCase()
  return {
    env,
    environment: environment === 'production' || environment === 'test' ? environment : 'development',
    findings: { problems: [], warnings: [] },
    asked: new Set(),
  }
}

/**
 * The values of a set of variables whose names all begin with `prefix` (that of a family, else empty).
 * A bad value is noted and its default stands in, so that every problem of a reading is found.
 */
export function readVariables<V extends Record<string, Variable<unknown>>>(
  variables: V,
  reading: ConfigReading,
  prefix = '',
): Values<V> {
  const entries = Object.entries(variables).map(([key, variable]) => [key, readVariable(variable, reading, prefix)])
  return Object.fromEntries(entries) as Values<V>
}

/** The text of a variable's default in an environment. */
export function fallbackIn(environment: Environment, fallback: Fallback | undefined): string | undefined {
  if (fallback === undefined || typeof fallback === 'string') return fallback
  return (environment === 'development' ? undefined : fallback[environment]) ?? fallback.otherwise
}

/** Whether the operator set the variable. */
export function isSet(reading: ConfigReading, name: string): boolean {
  return present(reading.env[name]) !== undefined
}

/** Notes a problem; the first one of a variable stands. */
export function addProblem(findings: Findings, problem: VariableProblem): void {
  if (!findings.problems.some(({ variable }) => variable === problem.variable)) findings.problems.push(problem)
}

function readVariable<T>(variable: Variable<T>, reading: ConfigReading, prefix: string): T {
  const names = [variable.name, variable.alias].filter((name) => name !== undefined).map((name) => prefix + name)
  for (const name of names) reading.asked.add(name)
  const name = names.find((candidate) => isSet(reading, candidate))
  if (name === undefined) return fallbackValue(variable, reading.environment)
  const given = reading.env[name] ?? ''
  const text = variable.parser.raw ? given : given.trim()
  const outcome = variable.parser.parse(text)
  if ('value' in outcome) {
    if (outcome.doubt !== undefined) reading.findings.warnings.push(`${name}: ${quote(text)} ${outcome.doubt}`)
    return outcome.value
  }
  const shown = variable.secret ? 'the value (not shown)' : quote(outcome.culprit ?? text)
  addProblem(reading.findings, { variable: name, message: `${shown} ${outcome.problem}`, doc: variable.doc })
  return fallbackValue(variable, reading.environment)
}

/** An absent default is undefined: `optional` gives such variables a type that says so. */
function fallbackValue<T>(variable: Variable<T>, environment: Environment): T {
  const text = fallbackIn(environment, variable.fallback)
  if (text === undefined) return undefined as T
  const outcome = variable.parser.parse(text)
  if ('value' in outcome) return outcome.value
  throw new Error(`The default of ${variable.name} ${outcome.problem}`)
}

function present(text: string | undefined): string | undefined {
  return text === undefined || text.trim() === '' ? undefined : text
}

/** For messages: shortened, and without the user name and password of a URL. */
function quote(text: string): string {
  const open = text.replaceAll(/\/\/[^/]*@/g, '//********@')
  return JSON.stringify(open.length > 100 ? `${open.slice(0, 100)}…` : open)
}
