/** `cast` of the filter language: an allow-list, and how one column type becomes another inside a statement. */
import type { Kind } from '../catalog/catalog.ts'
import { errors } from '../errors.ts'
import type { ValueType } from './values.ts'

/** Families of kinds that PostgreSQL compares with one another without a cast and without the session's time zone. */
const FAMILIES: Readonly<Partial<Record<Kind, string>>> = {
  text: 'text',
  enum: 'text',
  integer: 'number',
  bigint: 'number',
  decimal: 'number',
  float: 'number',
  boolean: 'boolean',
  uuid: 'uuid',
  datetime: 'instant',
  datetime_no_tz: 'local',
  date: 'local',
  time: 'time',
  time_no_tz: 'time_no_tz',
}

export const comparable = (a: Kind, b: Kind): boolean => FAMILIES[a] !== undefined && FAMILIES[a] === FAMILIES[b]

/** The type named by a `cast`; 400 for any other text. */
export function readCast(raw: unknown, label: string): ValueType {
  const type = typeof raw === 'string' ? CASTS.get(raw.toLowerCase()) : undefined
  if (type === undefined) throw errors.badQuery(`${label}: unknown cast`)
  return type
}

/** `sql`, an expression of type `from`, as an expression of type `to`. */
export function castSql(sql: string, from: ValueType, to: ValueType | undefined): string {
  if (to === undefined) return sql
  if (to.kind === 'text' || comparable(from.kind, to.kind)) return `(${sql})::${to.pgType}`
  if (from.kind === 'datetime' && FAMILIES[to.kind] === 'local') return `(${sql} at time zone 'UTC')::${to.pgType}`
  if (FAMILIES[from.kind] === 'local' && to.kind === 'datetime') return `((${sql})::timestamp at time zone 'UTC')`
  // Through text every cast exists; what a row cannot be cast to is then a data error (400), not a broken statement.
  return `(${sql})::text::${to.pgType}`
}

const scalar = (kind: Kind, pgType: string): ValueType => ({ kind, pgType, element: undefined })
const array = (element: Kind, pgType: string): ValueType => ({ kind: 'array', pgType, element })

const CASTS: ReadonlyMap<string, ValueType> = new Map([
  ['text', scalar('text', 'text')],
  ['varchar', scalar('text', 'varchar')],
  ['char', scalar('text', 'character(1)')],
  ['character', scalar('text', 'character(1)')],
  ['integer', scalar('integer', 'integer')],
  ['int', scalar('integer', 'integer')],
  ['smallint', scalar('integer', 'smallint')],
  ['bigint', scalar('bigint', 'bigint')],
  ['decimal', scalar('decimal', 'numeric')],
  ['numeric', scalar('decimal', 'numeric')],
  ['real', scalar('float', 'real')],
  ['double precision', scalar('float', 'double precision')],
  ['float', scalar('float', 'double precision')],
  ['boolean', scalar('boolean', 'boolean')],
  ['bool', scalar('boolean', 'boolean')],
  ['date', scalar('date', 'date')],
  ['timestamp', scalar('datetime_no_tz', 'timestamp')],
  ['timestamptz', scalar('datetime', 'timestamptz')],
  ['time', scalar('time_no_tz', 'time')],
  ['timetz', scalar('time', 'timetz')],
  ['uuid', scalar('uuid', 'uuid')],
  ['json', scalar('json', 'jsonb')],
  ['jsonb', scalar('json', 'jsonb')],
  ['text[]', array('text', 'text[]')],
  ['varchar[]', array('text', 'text[]')],
  ['integer[]', array('integer', 'integer[]')],
  ['bigint[]', array('bigint', 'bigint[]')],
  ['uuid[]', array('uuid', 'uuid[]')],
])
