import type { Kind } from './catalog.ts'

/** The `values` member of a field definition, as far as types read it. */
export type TypeValues = {
  readonly length: number | undefined
  readonly precision: number | undefined
  readonly scale: number | undefined
}

export type FieldType = {
  readonly kind: Kind
  readonly pgType: (values: TypeValues) => string
  readonly element?: Kind
}

/** Types of the specification that this release can store, by the names of `spec/schemas.md` §2. */
export const fieldTypes: Readonly<Record<string, FieldType>> = {
  String: { kind: 'text', pgType: ({ length }) => (length === undefined ? 'text' : `varchar(${length})`) },
  Text: { kind: 'text', pgType: () => 'text' },
  TEXT: { kind: 'text', pgType: () => 'text' },
  HTML: { kind: 'text', pgType: () => 'text' },
  Integer: { kind: 'integer', pgType: () => 'integer' },
  BigInt: { kind: 'bigint', pgType: () => 'bigint' },
  Decimal: { kind: 'decimal', pgType: numericType },
  Real: { kind: 'float', pgType: () => 'real' },
  Float: { kind: 'float', pgType: () => 'real' },
  Double: { kind: 'float', pgType: () => 'double precision' },
  DOUBLE: { kind: 'float', pgType: () => 'double precision' },
  Boolean: { kind: 'boolean', pgType: () => 'boolean' },
  DateTime: { kind: 'datetime', pgType: () => 'timestamptz' },
  Date: { kind: 'date', pgType: () => 'date' },
  JSON: { kind: 'json', pgType: () => 'jsonb' },
  JSONB: { kind: 'json', pgType: () => 'jsonb' },
  UUID: { kind: 'uuid', pgType: () => 'uuid' },
  ENUM: { kind: 'enum', pgType: () => 'text' },
  VIRTUAL: { kind: 'text', pgType: () => 'text' },
}

function numericType({ precision, scale }: TypeValues): string {
  if (precision === undefined) return 'numeric'
  return scale === undefined ? `numeric(${precision})` : `numeric(${precision},${scale})`
}
