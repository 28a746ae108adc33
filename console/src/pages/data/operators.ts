import type { Field, FieldKind } from '../../app/definition.ts'

/** The operands of an operator. */
export type Operand = 'value' | 'list' | 'pair' | 'flag' | 'json'

export type Operator = {
  readonly name: string
  /** As it reads between a field and a value. */
  readonly label: string
  readonly operand: Operand
  /** An operand to begin with, as JSON. */
  readonly example?: string
}

const operator = (name: string, label: string, operand: Operand = 'value', example?: string): Operator => ({
  name,
  label,
  operand,
  ...(example !== undefined && { example }),
})

const equal = [operator('eq', 'is'), operator('ne', 'is not')]
const anyOf = [operator('in', 'is one of', 'list'), operator('notIn', 'is none of', 'list')]
const missing = [
  operator('isNull', 'is missing', 'flag'),
  operator('isNotNull', 'is there', 'flag'),
  operator('empty', 'is empty', 'flag'),
]
const ordered = [
  operator('gt', 'is more than'),
  operator('gte', 'is at least'),
  operator('lt', 'is less than'),
  operator('lte', 'is at most'),
  operator('between', 'is between', 'pair'),
  operator('notBetween', 'is not between', 'pair'),
]
const text = [
  operator('iLike', 'contains'),
  operator('notILike', 'does not contain'),
  operator('startsWith', 'begins with'),
  operator('endsWith', 'ends with'),
  operator('nstartsWith', 'does not begin with'),
  operator('nendsWith', 'does not end with'),
  operator('like', 'contains (Aa)'),
  operator('notLike', 'does not contain (Aa)'),
  operator('startsWiths', 'begins with (Aa)'),
  operator('endsWiths', 'ends with (Aa)'),
  operator('nstartsWiths', 'does not begin with (Aa)'),
  operator('nendsWiths', 'does not end with (Aa)'),
  operator('regex', 'matches'),
]
const lists = [
  operator('arraycontains', 'contains all of', 'list'),
  operator('arraycontained', 'has nothing but', 'list'),
  operator('overlaps', 'contains any of', 'list'),
]
const json = [
  operator('jsonbContains', 'contains', 'json', '{"color": "red"}'),
  operator('jsonbNotContains', 'does not contain', 'json', '{"color": "red"}'),
  operator('jsonbContainedBy', 'is contained by', 'json', '{"color": "red", "size": 5}'),
  operator('jsonbHasKey', 'has the key'),
  operator('jsonbHasAnyKeys', 'has a key of', 'list'),
  operator('jsonbHasAllKeys', 'has the keys', 'list'),
  operator('jsonbKeyEquals', 'key equals', 'json', '{"key": "color", "value": "red"}'),
  operator('jsonbKeyNotEquals', 'key does not equal', 'json', '{"key": "color", "value": "red"}'),
  operator('jsonbKeyGt', 'key is more than', 'json', '{"key": "size", "value": 5}'),
  operator('jsonbKeyGte', 'key is at least', 'json', '{"key": "size", "value": 5}'),
  operator('jsonbKeyLt', 'key is less than', 'json', '{"key": "size", "value": 5}'),
  operator('jsonbKeyLte', 'key is at most', 'json', '{"key": "size", "value": 5}'),
  operator('jsonbKeyIn', 'key is one of', 'json', '{"key": "color", "values": ["red", "blue"]}'),
  operator('jsonbKeyNotIn', 'key is none of', 'json', '{"key": "color", "values": ["red", "blue"]}'),
  operator('jsonbKeyLike', 'key is like', 'json', '{"key": "color", "pattern": "r%"}'),
  operator('jsonbKeyIsNull', 'key is missing'),
  operator('jsonbKeyIsNotNull', 'key is there'),
  operator('jsonbPathExists', 'has the path'),
  operator('jsonbPathMatch', 'path is true'),
  operator('jsonbArrayLength', 'list has the length', 'json', '{"path": "parts", "op": "gte", "value": 2}'),
  operator('jsonbTypeOf', 'type is', 'json', '{"path": "size", "type": "number"}'),
  operator('jsonbDeepValue', 'value at path', 'json', '{"path": "maker.name", "value": "Babbage"}'),
]
const shapes = [
  operator(
    'within',
    'lies within',
    'json',
    '{"type": "Polygon", "coordinates": [[[8, 47], [9, 47], [9, 48], [8, 47]]]}',
  ),
  operator('containsGEO', 'contains', 'json', '{"type": "Point", "coordinates": [8.5, 47.4]}'),
  operator('intersects', 'meets', 'json', '{"type": "Point", "coordinates": [8.5, 47.4]}'),
  operator('nIntersects', 'does not meet', 'json', '{"type": "Point", "coordinates": [8.5, 47.4]}'),
  operator(
    'dwithin',
    'is near',
    'json',
    '{"geometry": {"type": "Point", "coordinates": [8.5, 47.4]}, "distance": 1000}',
  ),
]
const vectors = ['L2', 'Cosine', 'InnerProduct', 'L1'].map((measure) =>
  operator(`vector${measure}`, `is close to (${measure})`, 'json', '{"vector": [0.1, 0.2], "threshold": 0.5}'),
)

const value = [...equal, ...ordered, ...anyOf, ...missing]

const byKind: Readonly<Record<FieldKind, readonly Operator[]>> = {
  text: [...equal, ...text, ...anyOf, ...ordered, ...missing],
  'long text': [...text, ...equal, ...missing],
  enum: [...equal, ...anyOf, ...text, ...missing],
  integer: value,
  decimal: value,
  float: value,
  datetime: value,
  'datetime without zone': value,
  date: value,
  time: value,
  boolean: [...equal, ...missing],
  uuid: [...equal, ...anyOf, ...ordered, ...missing],
  json: [...json, ...anyOf, ...equal, ...missing],
  array: [
    ...lists,
    operator('arraylength', 'has the length', 'json', '{"op": "gte", "value": 2}'),
    operator('arrayempty', 'has no members', 'flag'),
    ...missing,
  ],
  range: [...lists, ...equal, ...missing],
  geometry: [...shapes, ...missing],
  vector: [...vectors, ...missing],
}

/** The operators of a field, the usual first. */
export const operatorsOf = ({ kind }: Pick<Field, 'kind'>): readonly Operator[] => byKind[kind]

const all = new Map(Object.values(byKind).flatMap((list) => list.map((one) => [one.name, one] as const)))

/** By its name; one that only the address knows takes JSON. */
export const operatorNamed = (name: string): Operator => all.get(name) ?? operator(name, name, 'json')

export const operatorNames = (): readonly string[] => [...all.keys()]
