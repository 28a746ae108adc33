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

export type Environment = 'development' | 'production' | 'test'

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
