import { createSqlTag, type FragmentSqlToken, type QuerySqlToken } from 'slonik'

/** SQL as a value: every `${…}` becomes a bound parameter, identifiers only through `sql.identifier`. */
export const sql = createSqlTag()

export type Query = QuerySqlToken

/** A part of a query, with its own values. */
export type SqlFragment = FragmentSqlToken

/** Text whose parameters are already numbered (a compiled plan, a statement of a library) as a query value. */
export function rawQuery(text: string, values: readonly unknown[] = []): Query {
  return { ...sql.unsafe``, sql: text, values: values as Query['values'] }
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
