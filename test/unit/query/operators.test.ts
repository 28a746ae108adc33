import { describe, expect, it } from 'vitest'
import { operatorNames } from '../../../src/query/operators.ts'
import { conditionOf, listOf, refusal } from './support/compiled.ts'

const POINT = { type: 'Point', coordinates: [16.37, 48.2] }
const UUID = '00000000-0000-4000-8000-0000000000b1'

/** field, operator, operand → condition and parameters. */
const TABLE: [string, string, unknown, string, unknown[]][] = [
  ['stars', 'eq', 5, 't."stars" = $1::integer', [5]],
  ['stars', 'eq', '5', 't."stars" = $1::integer', [5]],
  ['stars', 'eq', null, 't."stars" is null', []],
  ['stars', 'ne', 5, 't."stars" <> $1::integer', [5]],
  ['stars', 'neq', null, 't."stars" is not null', []],
  ['stars', 'not', 5, 't."stars" <> $1::integer', [5]],
  ['stars', 'gt', 5, 't."stars" > $1::integer', [5]],
  ['stars', 'gte', 5, 't."stars" >= $1::integer', [5]],
  ['stars', 'lt', 5, 't."stars" < $1::integer', [5]],
  ['stars', 'lte', 5, 't."stars" <= $1::integer', [5]],
  ['stars', 'in', [1, '2', null], 't."stars" = any($1::integer[])', [[1, 2]]],
  ['stars', 'in', [], 't."stars" = any($1::integer[])', [[]]],
  ['stars', 'in', 'not a list', 'false', []],
  ['stars', 'notIn', [1], 't."stars" <> all($1::integer[])', [[1]]],
  ['stars', 'nin', [], 't."stars" <> all($1::integer[])', [[]]],
  ['stars', 'between', [1, 2], 't."stars" between $1::integer and $2::integer', [1, 2]],
  ['stars', 'notBetween', [1, 2], 't."stars" not between $1::integer and $2::integer', [1, 2]],
  ['stars', 'nbetween', [1, 2], 't."stars" not between $1::integer and $2::integer', [1, 2]],
  ['pinned', 'is', true, 't."pinned" is true', []],
  ['pinned', 'is', 'false', 't."pinned" is false', []],
  ['stars', 'is', null, 't."stars" is null', []],
  ['stars', 'isNull', true, 't."stars" is null', []],
  ['stars', 'isNull', 'false', 't."stars" is not null', []],
  ['stars', 'isNotNull', 'true', 't."stars" is not null', []],
  ['stars', 'isNotNull', false, 't."stars" is null', []],
  ['title', 'like', '50%_\\', 't."title" like $1::text', ['%50\\%\\_\\\\%']],
  ['title', 'notLike', 'a', 't."title" not like $1::text', ['%a%']],
  ['title', 'iLike', 'a', 't."title" ilike $1::text', ['%a%']],
  ['title', 'ilike', 'a', 't."title" ilike $1::text', ['%a%']],
  ['title', 'contains', 'a', 't."title" ilike $1::text', ['%a%']],
  ['title', 'icontains', 'a', 't."title" ilike $1::text', ['%a%']],
  ['title', 'notILike', 'a', 't."title" not ilike $1::text', ['%a%']],
  ['title', 'ncontains', 'a', 't."title" not ilike $1::text', ['%a%']],
  ['title', 'startsWith', 'a', 't."title" ilike $1::text', ['a%']],
  ['title', 'endsWith', 'a', 't."title" ilike $1::text', ['%a']],
  ['title', 'startsWiths', 'a', 't."title" like $1::text', ['a%']],
  ['title', 'endsWiths', 'a', 't."title" like $1::text', ['%a']],
  ['title', 'nstartsWith', 'a', 't."title" not ilike $1::text', ['a%']],
  ['title', 'nendsWith', 'a', 't."title" not ilike $1::text', ['%a']],
  ['title', 'nstartsWiths', 'a', 't."title" not like $1::text', ['a%']],
  ['title', 'nendsWiths', 'a', 't."title" not like $1::text', ['%a']],
  ['title', 'regex', '^A', 't."title" ~ $1::text', ['^A']],
  ['title', 'empty', true, `(t."title" is null or t."title" = '')`, []],
  ['title', 'empty', false, `not (t."title" is null or t."title" = '')`, []],
  ['tags', 'empty', true, '(t."tags" is null or cardinality(t."tags") = 0)', []],
  ['meta', 'empty', true, `(t."meta" is null or t."meta" in ('[]', '{}', '""', 'null'))`, []],
  ['stars', 'empty', true, '(t."stars" is null)', []],
  ['tags', 'eq', ['a'], 't."tags" = $1::text[]', [['a']]],
  ['tags', 'arraycontains', ['a'], 't."tags" @> $1::text[]', [['a']]],
  ['tags', 'arraycontains', 'a', 't."tags" @> $1::text[]', [['a']]],
  ['tags', 'arraycontained', ['a'], 't."tags" <@ $1::text[]', [['a']]],
  ['tags', 'overlaps', ['a'], 't."tags" && $1::text[]', [['a']]],
  ['tags', 'arrayoverlap', ['a'], 't."tags" && $1::text[]', [['a']]],
  ['tags', 'arraycontainsany', ['a'], 't."tags" && $1::text[]', [['a']]],
  ['tags', 'arraylength', 2, 'cardinality(t."tags") = $1::integer', [2]],
  ['tags', 'arraylength', { op: 'gte', value: 2 }, 'cardinality(t."tags") >= $1::integer', [2]],
  ['tags', 'arrayempty', true, 'coalesce(cardinality(t."tags"), 0) = 0', []],
  ['tags', 'arrayempty', 'false', 'coalesce(cardinality(t."tags"), 0) <> 0', []],
  ['amounts', 'arraycontains', 1.5, 't."amounts" @> $1::numeric[]', [['1.5']]],
  ['pages', 'arraycontains', 3, 't."pages" @> $1::int4range', ['["3","3"]']],
  ['pages', 'overlaps', { lower: 1, upper: null }, 't."pages" && $1::int4range', ['["1",)']],
  [
    'pages',
    'eq',
    { lower: 1, upper: 5, lowerInclusive: false, upperInclusive: true },
    't."pages" = $1::int4range',
    ['("1","5"]'],
  ],
  ['pages', 'empty', true, '(t."pages" is null or isempty(t."pages"))', []],
  ['meta', 'eq', { a: 1 }, 't."meta" = $1::jsonb', ['{"a":1}']],
  ['meta', 'jsonbContains', { a: 1 }, 't."meta" @> $1::jsonb', ['{"a":1}']],
  ['meta', 'jsoncontains', [1], 't."meta" @> $1::jsonb', ['[1]']],
  ['meta', 'jsonbContainedBy', { a: 1 }, 't."meta" <@ $1::jsonb', ['{"a":1}']],
  ['meta', 'jsonbNotContains', { a: 1 }, 'not (t."meta" @> $1::jsonb)', ['{"a":1}']],
  ['meta', 'jsonbHasKey', `a'->>'b`, 't."meta" ? $1::text', [`a'->>'b`]],
  ['meta', 'jsonhaskey', 'a', 't."meta" ? $1::text', ['a']],
  ['meta', 'jsonbHasAnyKeys', ['a', 'b'], 't."meta" ?| $1::text[]', [['a', 'b']]],
  ['meta', 'jsonhasanykeys', ['a'], 't."meta" ?| $1::text[]', [['a']]],
  ['meta', 'jsonbHasAllKeys', ['a', 'b'], 't."meta" ?& $1::text[]', [['a', 'b']]],
  ['meta', 'jsonhasallkeys', ['a'], 't."meta" ?& $1::text[]', [['a']]],
  ['meta', 'jsonbPathExists', '$.a ? (@ == 1)', 't."meta" @? $1::jsonpath', ['$.a ? (@ == 1)']],
  ['meta', 'jsonpath', '$.a', 't."meta" @? $1::jsonpath', ['$.a']],
  ['meta', 'jsonbPathMatch', '$.a == 1', 't."meta" @@ $1::jsonpath', ['$.a == 1']],
  ['meta', 'jsonbKeyEquals', { key: 'a', value: 1 }, '(t."meta" -> $1::text) = $2::jsonb', ['a', '1']],
  ['meta', 'jsonbKeyEquals', { key: 'a', value: null }, '(t."meta" ->> $1::text) is null', ['a']],
  [
    'meta',
    'jsonbKeyNotEquals',
    { key: 'a', value: 'x' },
    '($2::jsonb is not null and (t."meta" -> $1::text) is distinct from $2::jsonb)',
    ['a', '"x"'],
  ],
  ['meta', 'jsonbKeyNotEquals', { key: 'a', value: null }, '(t."meta" ->> $1::text) is not null', ['a']],
  ...(['Gt', 'Gte', 'Lt', 'Lte'] as const).map((name, i): [string, string, unknown, string, unknown[]] => [
    'meta',
    `jsonbKey${name}`,
    { key: 'a', value: 1 },
    `(jsonb_typeof(t."meta" -> $1::text) = 'number' and (t."meta" -> $1::text) ${['>', '>=', '<', '<='][i]} $2::jsonb)`,
    ['a', '1'],
  ]),
  [
    'meta',
    'jsonbKeyIn',
    { key: 'a', values: [1, 'x'] },
    '(t."meta" -> $1::text) = any($2::jsonb[])',
    ['a', ['1', '"x"']],
  ],
  [
    'meta',
    'jsonbKeyNotIn',
    { key: 'a', values: [1] },
    '($2::jsonb[] is not null and ((t."meta" -> $1::text) = any($2::jsonb[])) is not true)',
    ['a', ['1']],
  ],
  ['meta', 'jsonbKeyLike', { key: 'a', pattern: 'x%' }, '(t."meta" ->> $1::text) ilike $2::text', ['a', 'x%']],
  ['meta', 'jsonbKeyIsNull', 'a', '(t."meta" ->> $1::text) is null', ['a']],
  ['meta', 'jsonbKeyIsNotNull', 'a', '(t."meta" ->> $1::text) is not null', ['a']],
  [
    'meta',
    'jsonbArrayLength',
    { path: 'a.b', op: 'gt', value: 2 },
    `case when jsonb_typeof(t."meta" #> $1::text[]) = 'array' then jsonb_array_length(t."meta" #> $1::text[]) > $2::numeric else false end`,
    [['a', 'b'], 2],
  ],
  [
    'meta',
    'jsonbTypeOf',
    { path: ['a'], type: 'array' },
    'jsonb_typeof(t."meta" #> $1::text[]) = $2::text',
    [['a'], 'array'],
  ],
  ['meta', 'jsonbTypeOf', 'object', 'jsonb_typeof(t."meta" #> $1::text[]) = $2::text', [[], 'object']],
  [
    'meta',
    'jsonbDeepValue',
    { path: ['a', 0], value: 'x' },
    '(t."meta" #> $1::text[]) = $2::jsonb',
    [['a', '0'], '"x"'],
  ],
  [
    'meta',
    'jsonbDeepValue',
    { path: ['a'], op: 'lte', value: 3 },
    '(jsonb_typeof((t."meta" #> $1::text[])) = jsonb_typeof($2::jsonb) and (t."meta" #> $1::text[]) <= $2::jsonb)',
    [['a'], '3'],
  ],
  [
    'meta',
    'jsonbDeepValue',
    { path: ['a'], op: 'like', value: 'x%' },
    '(t."meta" #>> $1::text[]) like $2::text',
    [['a'], 'x%'],
  ],
  ['meta', 'jsonbDeepValue', { path: ['a'], op: 'ne', value: null }, '(t."meta" #>> $1::text[]) is not null', [['a']]],
]

/** The same for columns that need an extension. */
const EXTENSIONS: [string, string, unknown, string, unknown[]][] = [
  ['at', 'within', POINT, 'ST_Within(t."at", ST_SetSRID(ST_GeomFromGeoJSON($1::text), 4326))', [JSON.stringify(POINT)]],
  [
    'at',
    'containsGEO',
    POINT,
    'ST_Contains(t."at", ST_SetSRID(ST_GeomFromGeoJSON($1::text), 4326))',
    [JSON.stringify(POINT)],
  ],
  [
    'spot',
    'intersects',
    POINT,
    'ST_Intersects(t."spot"::geometry, ST_SetSRID(ST_GeomFromGeoJSON($1::text), 4326))',
    [JSON.stringify(POINT)],
  ],
  [
    'area',
    'nIntersects',
    POINT,
    'not ST_Intersects(t."area", ST_Transform(ST_SetSRID(ST_GeomFromGeoJSON($1::text), 4326), 31287))',
    [JSON.stringify(POINT)],
  ],
  [
    'area',
    'dwithin',
    { geometry: POINT, distance: 5, not: true },
    'not ST_DWithin(ST_Transform(t."area", 4326)::geography, ST_SetSRID(ST_GeomFromGeoJSON($1::text), 4326)::geography, $2::double precision)',
    [JSON.stringify(POINT), 5],
  ],
  [
    'embedding',
    'vectorL2',
    { vector: [1, 2, 3], threshold: 1 },
    '(t."embedding" <-> $1::vector) < $2::double precision',
    ['[1,2,3]', 1],
  ],
  [
    'embedding',
    'vectorCosine',
    { vector: [1, 2, 3], threshold: 1 },
    '(t."embedding" <=> $1::vector) < $2::double precision',
    ['[1,2,3]', 1],
  ],
  [
    'embedding',
    'vectorInnerProduct',
    { vector: [1, 2, 3], threshold: 1 },
    '(t."embedding" <#> $1::vector) < $2::double precision',
    ['[1,2,3]', 1],
  ],
  [
    'sparse',
    'vectorL1',
    { vector: [1, 0, 3], threshold: 1 },
    '(t."sparse" <+> $1::vector::sparsevec) < $2::double precision',
    ['[1,0,3]', 1],
  ],
]

const extended = { collection: 'places', env: { postgis: true, vector: true } }

describe('operators', () => {
  it.each(TABLE)('%s %s %j', (field, operator, raw, sql, values) => {
    const filter = { [field]: { [operator]: raw } }
    expect(conditionOf(filter)).toBe(sql)
    expect(listOf({ query: { fields: ['id'], filter, paranoid: false } }).values).toEqual(values)
  })

  it.each(EXTENSIONS)('%s %s %j', (field, operator, raw, sql, values) => {
    const filter = { [field]: { [operator]: raw } }
    expect(conditionOf(filter, extended)).toBe(sql)
    expect(listOf({ ...extended, query: { fields: ['id'], filter } }).values).toEqual(values)
  })

  it('are all in these tables', () => {
    const shown = new Set([...TABLE, ...EXTENSIONS].map(([, operator]) => operator))
    expect(operatorNames().filter((name) => !shown.has(name))).toEqual([])
  })

  it.each(EXTENSIONS)('%s %s is refused without its extension', (field, operator, raw) => {
    const query = { filter: { [field]: { [operator]: raw } } }
    expect(refusal(() => listOf({ collection: 'places', query }))).toMatchObject({ status: 400 })
  })
})

describe('values', () => {
  it.each([
    ['views', '9007199254740993', '9007199254740993', 'bigint'],
    ['views', 42, '42', 'bigint'],
    ['price', '10.50', '10.50', 'numeric'],
    ['price', 10.5, '10.5', 'numeric'],
    ['rating', '1e2', 100, 'double precision'],
    ['weight', 0.1, Math.fround(0.1), 'real'],
    ['pinned', 'true', true, 'boolean'],
    ['due', '2024-05-01', '2024-05-01', 'date'],
    ['due', '2024-05-01T23:00:00Z', '2024-05-01', 'date'],
    ['alarm', '08:30', '08:30', 'time'],
    ['code', UUID, UUID, 'uuid'],
    ['title', 5, '5', 'text'],
    ['title', true, 'true', 'text'],
    ['status', 'no such status', 'no such status', 'text'],
    ['title', '007', '007', 'text'],
  ])('%s %j becomes %j', (field, raw, value, type) => {
    const { text, values } = listOf({ query: { fields: ['id'], filter: { [field]: raw } } })
    expect(values).toEqual([value])
    expect(text).toContain(`t."${field}" = $1::${type}`)
  })

  it.each([
    ['published', '2024-05-01', '2024-05-01T00:00:00.000', 'Z', 'timestamptz'],
    ['published', '2024-05-01 10:00', '2024-05-01T10:00:00.000', 'Z', 'timestamptz'],
    ['published', '2024-05-01T10:00:00.123456+02:00', '2024-05-01T10:00:00.123', '+02:00', 'timestamptz'],
    ['published', '2024-12-31T23:59:59.9999996Z', '2025-01-01T00:00:00.000', 'Z', 'timestamptz'],
    ['published', '0001-01-01T00:00:00.5+0530', '0001-01-01T00:00:00.500', '+0530', 'timestamptz'],
    ['local', '2024-05-01T10:00:00.000Z', '2024-05-01T10:00:00.000', '', 'timestamp'],
    ['published', '9999-12-31T23:59:59.9999999Z', '10000-01-01T00:00:00.000', 'Z', 'timestamptz'],
    ['published', '12024-05-01T10:00Z', '12024-05-01T10:00:00.000', 'Z', 'timestamptz'],
    ['published', '294276-02-28T23:59:59.9999999Z', '294276-02-29T00:00:00.000', 'Z', 'timestamptz'],
    ['local', '0001-12-31T23:59:59.9999999 BC', '0001-01-01T00:00:00.000', '', 'timestamp'],
    ['published', '0044-03-15 BC', '0044-03-15T00:00:00.000', 'Z BC', 'timestamptz'],
  ])('%s %j becomes the millisecond %j', (field, raw, first, zone, type) => {
    const { text, values } = listOf({ query: { fields: ['id'], filter: { [field]: raw } } })
    expect(values).toEqual([`${first}${zone}`, `${first}999${zone}`])
    expect(text).toContain(`t."${field}" between $1::${type} and $2::${type}`)
  })

  it('lists of moments of many lengths have few texts', () => {
    const textOf = (length: number) => {
      const moments = Array.from({ length }, (_, i) => `${1000 + ((i * 7) % 999)}-01-01`)
      return listOf({ query: { fields: ['id'], filter: { published: { in: moments } } } }).text
    }
    const texts = new Set(Array.from({ length: 200 }, (_, length) => textOf(length)))
    expect(texts.size).toBe(7)
  })

  it.each([
    ['stars', 'abc'],
    ['stars', 1.5],
    ['stars', '1.5'],
    ['stars', 2 ** 31],
    ['stars', ''],
    ['stars', true],
    ['stars', [1]],
    ['views', '99999999999999999999'],
    ['views', 2 ** 60],
    ['price', '1e999'],
    ['price', 'NaN'],
    ['price', '1,5'],
    ['rating', 'Infinity'],
    ['weight', 1e300],
    ['pinned', 'yes'],
    ['pinned', 1],
    ['due', '2024-02-30'],
    ['due', 'yesterday'],
    ['due', '0000-01-01'],
    ['published', '2024-05-01T25:00:00Z'],
    ['published', 1714557600000],
    ['published', '2024-05-01T10:00:00+99:00'],
    ['alarm', '24:00'],
    ['code', 'x'],
    ['code', `{${UUID}}`],
    ['title', ['a']],
    ['title', 'a\0b'],
    ['tags', ['a']],
  ])('%s does not take %j', (field, raw) => {
    expect(refusal(() => listOf({ query: { filter: { [field]: raw } } }))).toMatchObject({ status: 400 })
  })

  it.each([
    ['title', { gt: { toString: 1 } }],
    ['title', { eq: ['1) OR 1=1--'] }],
    ['owner.name', { eq: ['1) OR 1=1--'] }],
    ['title', { gt: null }],
    ['stars', { in: [['x']] }],
    ['stars', { in: [{}] }],
    ['stars', { notIn: 'x' }],
    ['stars', { between: [1] }],
    ['stars', { between: [1, 2, 3] }],
    ['stars', { between: [1, null] }],
    ['stars', { between: { 0: 1, 1: 2 } }],
    ['stars', { like: '1' }],
    ['stars', { is: true }],
    ['stars', { isNull: 'maybe' }],
    ['stars', { jsonbContains: {} }],
    ['stars', { arraycontains: [1] }],
    ['stars', { nope: 1 }],
    ['stars', { __proto__: 1, constructor: 1 }],
    ['stars', { toString: 1 }],
    ['title', { regex: 'a'.repeat(201) }],
    ['title', { within: POINT }],
    ['tags', { arraylength: 'x' }],
    ['tags', { arraylength: { op: '=', value: 1 } }],
    ['tags', { gt: ['a'] }],
    ['tags', { eq: 'a' }],
    ['pages', { eq: 5 }],
    ['pages', { overlaps: { lower: 5, upper: 1 } }],
    ['period', { overlaps: { lower: '2024-02-01', upper: '2024-01-01' } }],
    ['meta', { gt: 1 }],
    ['meta', { jsonbHasKey: ['a'] }],
    ['meta', { jsonbHasAnyKeys: 'a' }],
    ['meta', { jsonbKeyGt: { key: 'a', value: 'x' } }],
    ['meta', { jsonbKeyGt: { key: 'a' } }],
    ['meta', { jsonbKeyIn: { key: 'a', values: 1 } }],
    ['meta', { jsonbKeyLike: { key: 'a', pattern: 'x\\' } }],
    ['meta', { jsonbKeyLike: { key: 'a', pattern: '%'.repeat(201) } }],
    ['meta', { jsonbDeepValue: { path: 5, value: 1 } }],
    ['meta', { jsonbDeepValue: { path: ['a'], op: '; drop', value: 1 } }],
    ['meta', { jsonbDeepValue: { path: ['a'], op: 'gt', value: {} } }],
    ['meta', { jsonbTypeOf: 'regclass' }],
    ['meta', { jsonbPathExists: ' ' }],
    ['meta', { jsonbPathExists: '$'.repeat(1_001) }],
  ])('%s does not take %j', (field, raw) => {
    expect(refusal(() => listOf({ query: { filter: { [field]: raw } } }))).toMatchObject({
      status: 400,
      message: 'Invalid query parameters',
    })
  })

  it.each([
    ['at', { intersects: 'POINT(1 2)' }],
    ['at', { intersects: { type: 'Point', coordinates: ['1', 2] } }],
    ['at', { intersects: { type: 'Nope', coordinates: [1, 2] } }],
    ['at', { dwithin: { geometry: POINT, distance: 'far' } }],
    ['at', { eq: POINT }],
    ['embedding', { vectorL2: { vector: ['1'], threshold: 1 } }],
    ['embedding', { vectorL2: { vector: [], threshold: 1 } }],
    ['embedding', { vectorL2: [1] }],
  ])('%s does not take %j', (field, raw) => {
    expect(refusal(() => listOf({ ...extended, query: { filter: { [field]: raw } } }))).toMatchObject({ status: 400 })
  })

  it('never repeats a value in what it says', () => {
    const { details } = refusal(() => listOf({ query: { filter: { stars: { gt: 'canary-77' } } } }))
    expect(details).toBe('filter.stars.gt: expected an integer')
  })
})
