/** The few primitives of SQL text. Everything that reaches `ident` and `literal` comes from the catalog. */

import { logSchema } from '../catalog/log-triggers.ts'
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
  `jsonb_populate_record(${noRow(collection)}, ${json})`

/** The names of those values of a JSON object (SQL) that do not fit the columns of a collection's table of today, a `text[]`. */
export const misfitsSql = (collection: string, json: string): string =>
  `${logSchema}.misfits(${noRow(collection)}, ${json})`

const noRow = (collection: string): string =>
  `(select "svc$row" from public.${ident(collection)} "svc$row" where false)`

/**
 * Whether images of the log are read whole, which fails where a value of then does not fit its column of today, or as far as
 * they fit, which costs more.
 */
export type Images = 'whole' | 'fitting'

/**
 * Whether none of the columns that a rule names has a value of then that does not fit (`misfits` is SQL for the names of those): it
 * would be null to the rule, which might show the row for that.
 */
export const ruledBySql = (misfits: string, ruled: ReadonlySet<string>): string =>
  ruled.size === 0 ? 'true' : `not ${misfits} && array[${[...ruled].map(literal).join(', ')}]::text[]`

/** An image of the log (SQL) as a row of a collection's table of today, for a FROM. What does not fit is null. */
export const rowOfImage = (collection: string, image: string, images: Images): string =>
  rowOfJson(collection, images === 'whole' ? image : `(${image}) - ${misfitsSql(collection, image)}`)

export const statement = (text: string, values: readonly ParamValue[], dependsOn?: Dependencies): Statement => ({
  text,
  values,
  ...(dependsOn && { dependsOn }),
})
