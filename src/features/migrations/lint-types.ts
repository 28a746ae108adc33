import type { Tree } from '../../adapters/sql-parser.ts'

/** Short names of the parser and of SQL for the names that PostgreSQL shows. */
const aliases: Readonly<Record<string, string>> = {
  int2: 'smallint',
  int4: 'integer',
  int: 'integer',
  int8: 'bigint',
  float4: 'real',
  float8: 'double precision',
  bool: 'boolean',
  varchar: 'character varying',
  bpchar: 'character',
  decimal: 'numeric',
  timestamptz: 'timestamp with time zone',
  timestamp: 'timestamp without time zone',
  timetz: 'time with time zone',
  time: 'time without time zone',
  varbit: 'bit varying',
}

/** A type of a parse tree in PostgreSQL's own words, as `format_type` writes it: `character varying(20)`, `integer[]`. */
export function typeText({ names, typmods = [], arrayBounds }: Tree): string {
  const name: string = names.at(-1).String.sval
  const numbers = typmods.map(({ A_Const: constant }: Tree) => String(constant?.ival?.ival ?? 0))
  const written = `${aliases[name] ?? name}${numbers.length === 0 ? '' : `(${numbers.join(',')})`}`
  return arrayBounds === undefined ? written : `${written}[]`
}

type Type = { readonly base: string; readonly numbers: readonly number[]; readonly isArray: boolean }

/** Whether changing a column from one type to the other makes PostgreSQL write the table anew. */
export function isRewritten(from: string, to: string): boolean {
  const [before, after] = [readType(from), readType(to)]
  if (before.isArray || after.isArray) return from !== to
  if (before.base === after.base)
    return before.base === 'numeric' ? !holdsNumeric(before, after) : !isWider(before, after)
  return !isSameStorage(before, after)
}

function readType(text: string): Type {
  const [, base = text, numbers = '', brackets = ''] =
    /^([^([]+?)(?:\(([\d,-]+)\))?(?: (?:with|without) time zone)?(\[\])?$/.exec(text) ?? []
  const zone = / (with|without) time zone/.exec(text)?.[0] ?? ''
  const plain = base.includes('time zone') || zone === '' ? base : `${base}${zone}`
  return { base: plain, numbers: numbers === '' ? [] : numbers.split(',').map(Number), isArray: brackets !== '' }
}

/** A length or precision may grow or be taken away. */
function isWider({ base, numbers: [before = fullOf(base)] }: Type, { numbers: [after] }: Type): boolean {
  return after === undefined || (before !== undefined && after >= before)
}

/** Times have six decimals unless it is said otherwise. */
const fullOf = (base: string): number | undefined => (/^time/.test(base) ? 6 : undefined)

function holdsNumeric({ numbers: [precision, scale = 0] }: Type, { numbers: [wider, newScale = 0] }: Type): boolean {
  if (wider === undefined) return true
  return precision !== undefined && wider >= precision && newScale === scale
}

/** Pairs that PostgreSQL stores alike; `text` has no length to check. */
function isSameStorage(before: Type, after: Type): boolean {
  if (before.base === 'character varying' && after.base === 'text') return true
  if (before.base === 'text' && after.base === 'character varying') return after.numbers.length === 0
  return before.base === 'cidr' && after.base === 'inet'
}
