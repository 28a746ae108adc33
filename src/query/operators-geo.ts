/** Operators on geometry (PostGIS) and vectors (pgvector). Without the extension they answer 400. */
import { errors } from '../errors.ts'
import { isObject, member } from './guards.ts'
import { kinds, type Operand, type Operator, operand } from './operator.ts'
import type { TypedValue } from './sql.ts'
import { baseType, readValue, readVector, type ValueType } from './values.ts'
import { UNRESOLVED } from './variables.ts'

const GEO = kinds('geometry', 'geography')
const VECTOR = kinds('vector')

export const GEO_OPERATORS = {
  within: geo((c, v) => `ST_Within(${c}, ${v})`),
  containsGEO: geo((c, v) => `ST_Contains(${c}, ${v})`),
  intersects: geo((c, v) => `ST_Intersects(${c}, ${v})`),
  nIntersects: geo((c, v) => `not ST_Intersects(${c}, ${v})`),
  dwithin: { kinds: GEO, needs: 'postgis', read: readDistance, sql: distanceSql },
  vectorL2: vector('<->'),
  vectorCosine: vector('<=>'),
  vectorInnerProduct: vector('<#>'),
  vectorL1: vector('<+>'),
} satisfies Record<string, Operator>

/** pgvector's distance operators by the metric names of `_vectorDistance`. */
export const VECTOR_METRICS: ReadonlyMap<string, string> = new Map([
  ['cosine', '<=>'],
  ['l2', '<->'],
  ['innerProduct', '<#>'],
  ['l1', '<+>'],
])

/** A vector parameter of the column's own type. SparseVec has another text form, so it goes through vector. */
export function vectorValue(raw: unknown, type: ValueType, label: string): TypedValue {
  const own = baseType(type.pgType)
  const pgType = own === 'sparsevec' ? 'vector::sparsevec' : own
  return { value: raw === UNRESOLVED ? null : readVector(raw, label), pgType }
}

function geo(sql: (column: string, value: string) => string): Operator {
  return {
    kinds: GEO,
    needs: 'postgis',
    read: (raw, type, label) => operand([geoText(raw, type, label)]),
    // ST_Within and ST_Contains exist for geometry only.
    sql: (c, [v], _variant, type) => sql(type.kind === 'geography' ? `${c}::geometry` : c, inReferenceSystem(v!, type)),
  }
}

const geoText = (raw: unknown, type: ValueType, label: string): TypedValue => ({
  value: readValue(raw, type, label).value,
  pgType: 'text',
})

/** GeoJSON is WGS 84 (4326) by definition; a column in another system is met in its own. */
function inReferenceSystem(placeholder: string, type: ValueType): string {
  const geometry = `ST_SetSRID(ST_GeomFromGeoJSON(${placeholder}), 4326)`
  const srid = /,\s*(\d+)\s*\)/.exec(type.pgType)?.[1] ?? '4326'
  return srid === '4326' || type.kind === 'geography' ? geometry : `ST_Transform(${geometry}, ${srid})`
}

/** `{ geometry, distance, not? }`, metres. */
function readDistance(raw: unknown, type: ValueType, label: string): Operand {
  if (!isObject(raw)) throw errors.badQuery(`${label}: expected { geometry, distance }`)
  const distance: ValueType = { kind: 'float', pgType: 'double precision', element: undefined }
  const values = [geoText(member(raw, 'geometry'), type, label), readValue(member(raw, 'distance'), distance, label)]
  return operand(values, member(raw, 'not') === true || member(raw, 'not') === 'true' ? 'not ' : '')
}

function distanceSql(column: string, [geometry, metres]: readonly string[], not: string, type: ValueType): string {
  const wgs84 = /,\s*(?!4326\b)\d+\s*\)/.test(type.pgType) ? `ST_Transform(${column}, 4326)` : column
  return `${not}ST_DWithin(${wgs84}::geography, ST_SetSRID(ST_GeomFromGeoJSON(${geometry}), 4326)::geography, ${metres})`
}

/** `{ vector, threshold }`: nearer than the threshold. */
function vector(operator: string): Operator {
  return {
    kinds: VECTOR,
    needs: 'vector',
    read: (raw, type, label) => {
      if (!isObject(raw)) throw errors.badQuery(`${label}: expected { vector, threshold }`)
      const threshold: ValueType = { kind: 'float', pgType: 'double precision', element: undefined }
      return operand([
        vectorValue(member(raw, 'vector'), type, label),
        readValue(member(raw, 'threshold'), threshold, label),
      ])
    },
    sql: (c, [v, threshold]) => `(${c} ${operator} ${v}) < ${threshold}`,
  }
}
