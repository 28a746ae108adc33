import template, { raw, type Sql } from 'sql-template-tag'

/** A statement with numbered parameters, and their values. */
export type Query = { readonly text: string; readonly values: readonly unknown[] }

/** A statement or a part of one, which can be put into others. */
export type SqlFragment = Omit<Sql, 'sql' | 'statement'>

type Value = string | number | bigint | boolean | null
type Json = object | string | number | boolean | null

/**
 * SQL as a value: every `${…}` becomes a bound parameter, or is a fragment that has its own. What is neither a value that has one
 * form in SQL nor a fragment is given by `array`, `json` and `jsonb`; names only by `identifier`.
 */
export const sql = Object.assign(
  (texts: TemplateStringsArray, ...values: readonly (Value | SqlFragment)[]): SqlFragment => {
    // PostgreSQL would be sent NULL, and a condition that was forgotten would look like one that holds for nothing.
    if (values.includes(undefined as never)) throw new Error(`a value of a statement is undefined: ${texts.join('…')}`)
    return template(texts, ...values)
  },
  {
    /** A list as one parameter; `type` is that of its members. */
    array: (values: readonly Value[], type: string): SqlFragment => template`${values}::${raw(quoteName(type))}[]`,
    json: (value: Json): SqlFragment => template`${JSON.stringify(value)}::json`,
    jsonb: (value: Json): SqlFragment => template`${JSON.stringify(value)}::jsonb`,
    /** A name, or several of which each contains the next. */
    identifier: (names: readonly string[]): SqlFragment => raw(names.map(quoteName).join('.')),
  },
)

/** Text whose parameters are already numbered (a compiled plan, a statement of a library) as a query value. */
export function rawQuery(text: string, values: readonly unknown[] = []): Query {
  return { text, values }
}

/** Quotes a catalog name for SQL that is generated as text (DDL, triggers). Names are checked when they are declared. */
export function quoteName(name: string): string {
  return `"${name.replaceAll('"', '""')}"`
}

/** Quotes a string constant for generated DDL, where parameters are impossible. */
export function quoteText(value: string): string {
  const doubled = value.replaceAll("'", "''")
  return value.includes('\\') ? ` E'${doubled.replaceAll('\\', '\\\\')}'` : `'${doubled}'`
}

/** A runner of queries: the read pool and an open transaction both are one. */
export type Reader = {
  /** All rows. */
  any<Row>(query: Query): Promise<readonly Row[]>
  /** The only row; undefined when there is none, an error when there are several. */
  maybeOne<Row>(query: Query): Promise<Row | undefined>
  /** The only row; an error when there is not exactly one. */
  one<Row>(query: Query): Promise<Row>
}

/** An open transaction of the write pool. Statements run in the order they are awaited. */
export type Tx = Reader & { readonly isTransaction: true }

/** Stands for a pool that writes, without showing it to those who hold the key (write-pool.ts). */
export type WriteKey = { readonly opens: 'the write pool' }

/** The key of the write pool, for statements that are no event (`db/unlogged/`). */
export type UnloggedWrites = { readonly writes: WriteKey }
