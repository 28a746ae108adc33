/** The few primitives of SQL text. Everything that reaches `ident` and `literal` comes from the catalog. */

import type { ParamValue } from '../catalog/values.ts'

/** Takes a value, gives the SQL that stands for it. Realtime supplies its own, whose values are joined in as rows. */
export type Params = { bind(value: ParamValue, pgType: string): string }

/** The tables and columns that a statement reads: its result changes with them. */
export type Dependencies = {
  readonly collections: ReadonlySet<string>
  /** Columns whose changes are no events of the collections, and what is computed from other tables: `svc_User.lastAccess`. */
  readonly unlogged: ReadonlySet<string>
}

/** A statement as the drivers want it. */
export type Statement = {
  readonly text: string
  readonly values: readonly ParamValue[]
  /** Of what compile.ts has made. */
  readonly dependsOn?: Dependencies | undefined
}

/** Numbered placeholders: `$1::uuid`. `values` grows with every `bind`; the first number follows those given. */
export function createParams(values: ParamValue[] = []): Params & { readonly values: ParamValue[] } {
  return {
    values,
    bind(value, pgType) {
      values.push(value)
      return `$${values.length}::${pgType}`
    },
  }
}

/** A quoted identifier. Looked at before it is replaced: a statement has fifty, and hardly any has a quote. */
export const ident = (name: string): string => `"${name.includes('"') ? name.replaceAll('"', '""') : name}"`

/** A quoted string constant; for names of the catalog only, values are bound. */
export const literal = (text: string): string => `'${text.replaceAll("'", "''")}'`

/**
 * A row of a collection's table of today with the values of a JSON object (SQL), for a FROM. It names the table and not only the type of its
 * rows: PostgreSQL makes the plan of a prepared statement anew when a table in it has changed. With a plan for columns of other types
 * it takes a number for an address: it answers with what it finds in its memory, or ends.
 */
export const rowOfJson = (collection: string, json: string): string =>
  `jsonb_populate_record((select "svc$row" from public.${ident(collection)} "svc$row" where false), ${json})`

export const statement = (text: string, values: readonly ParamValue[], dependsOn?: Dependencies): Statement => ({
  text,
  values,
  ...(dependsOn && { dependsOn }),
})
