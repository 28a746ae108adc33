import fc from 'fast-check'
import { operatorNames } from '../../../../src/query/operators.ts'
import { catalog } from './catalog.ts'

/** Part of every string of a generated query that is not a name of the catalog. */
export const MARK = 'zqMARKqz'

const marked = fc.tuple(fc.string({ maxLength: 8 }), fc.string({ maxLength: 8 })).map(([a, b]) => `${a}${MARK}${b}`)
const hostile = fc.constantFrom(
  `${MARK}'); drop table notes; --`,
  `"${MARK}"`,
  `$1${MARK}`,
  `\\${MARK}\\`,
  `${MARK}%_`,
  `${MARK} & | ! ( ) :* <-> '`,
)
const text = fc.oneof(marked, hostile)

/** Mostly names that exist, so that most queries get past resolve. */
const often = <T>(good: fc.Arbitrary<T>, bad: fc.Arbitrary<T>) =>
  fc.oneof({ weight: 24, arbitrary: good }, { weight: 1, arbitrary: bad })

const textPath = often(
  fc.constantFrom('title', 'body', 'owner.name', 'comments.text', 'labels.name', 'category.parent.name'),
  text,
)
const numberPath = fc.constantFrom('stars', 'owner.age', 'comments.likes', 'id')
const jsonPath = fc.constant('meta')
const path = fc.oneof(textPath, numberPath)

const textOperator = often(
  fc.constantFrom('eq', 'ne', 'gt', 'like', 'iLike', 'startsWith', 'nendsWiths', 'regex', 'contains', 'neq'),
  text,
)
const json = fc.oneof(
  text,
  fc.integer(),
  fc.boolean(),
  fc.dictionary(text, text, { maxKeys: 3 }),
  fc.array(text, { maxLength: 3 }),
)
const entry = fc.oneof(
  fc.tuple(textPath, textOperator, text).map(([name, operator, value]) => ({ [name]: { [operator]: value } })),
  fc.tuple(textPath, text).map(([name, value]) => ({ [name]: value })),
  fc.tuple(textPath, fc.array(text, { maxLength: 4 })).map(([name, list]) => ({ [name]: { in: list } })),
  fc
    .tuple(numberPath, fc.oneof(fc.integer({ min: -5, max: 5 }), fc.constant(null)))
    .map(([name, n]) => ({ [name]: n })),
  fc.tuple(jsonPath, json).map(([name, value]) => ({ [name]: { jsonbContains: value } })),
  fc.tuple(jsonPath, text, json).map(([name, key, value]) => ({ [name]: { jsonbKeyNotEquals: { key, value } } })),
  fc
    .tuple(jsonPath, fc.array(text, { maxLength: 3 }), text)
    .map(([name, keys, value]) => ({ [name]: { jsonbDeepValue: { path: keys, value } } })),
  fc.array(text, { minLength: 1, maxLength: 3 }).map((list) => ({ tags: { arraycontains: list } })),
)

const column = fc.constantFrom(
  ...[...catalog.collections.get('notes')!.fields.keys()].filter((name) => name !== 'secret'),
)
const anyPath = fc.oneof(
  column,
  column.map((name) => `comments.note.${name}`),
  path,
)
const date = fc.constantFrom('2024-05-01', '2024-05-01T10:00:00.5+02:00', '10:30', '$NOW-DAYS_3', '$CURRENT_TENANT')
const scalar = fc.oneof(
  fc.integer({ min: -9, max: 9 }),
  fc.double({ noNaN: true }),
  fc.boolean(),
  date,
  fc.uuid(),
  text,
  fc.constant(null),
)
const comparison = fc.constantFrom('eq', 'ne', 'gt', 'gte', 'lt', 'lte', 'like', 'ilike')
const operand = fc.oneof(
  { weight: 3, arbitrary: scalar },
  fc.array(scalar, { maxLength: 3 }),
  fc.record({ lower: scalar, upper: scalar, lowerInclusive: fc.boolean() }),
  fc.record({ key: text, value: scalar, values: fc.array(scalar, { maxLength: 2 }), pattern: text }),
  fc.record({ path: fc.array(text, { maxLength: 2 }), op: comparison, value: scalar }),
  anyPath.map((name) => `$COL(${name})`),
)
const cast = fc.constantFrom(
  'text',
  'integer',
  'numeric',
  'date',
  'timestamptz',
  'timestamp',
  'time',
  'uuid',
  'jsonb',
  'text[]',
  'boolean',
)
/** Any operator on any column, with operands that often fit one of them. */
const blind = fc.oneof(
  fc.tuple(anyPath, fc.constantFrom(...operatorNames()), operand).map(([name, op, raw]) => ({ [name]: { [op]: raw } })),
  fc.tuple(anyPath, comparison, operand, cast).map(([name, op, raw, to]) => ({ [name]: { [op]: raw, cast: to } })),
)

const filter: fc.Arbitrary<Record<string, unknown>> = fc.letrec<{ filter: Record<string, unknown> }>((tie) => ({
  filter: fc.oneof(
    { maxDepth: 3, withCrossShrink: true },
    entry,
    fc.array(tie('filter'), { maxLength: 3 }).map((of) => ({ OR: of })),
    fc.array(tie('filter'), { maxLength: 3 }).map((of) => ({ AND: of })),
    tie('filter').map((of) => ({ NOT: of })),
  ),
})).filter

const field = often(
  fc.constantFrom('*', 'title', 'meta', 'tags', 'owner.*', 'comments.text', 'blocks.*.*', 'labels', '-title'),
  text,
)
const sort = fc.oneof(
  fc.array(anyPath, { maxLength: 3 }),
  fc.dictionary(anyPath, fc.constantFrom('asc', 'desc'), { maxKeys: 3 }),
  textPath.map((name) => `-${name}`),
)
const alias = often(fc.constantFrom('n', 'total', MARK, `${MARK}_2`), text)
const aggregateEntry = fc.record({
  function: often(fc.constantFrom('count', 'sum', 'avg', 'min', 'max', 'distinct', 'array_agg'), text),
  field: often(fc.oneof(anyPath, fc.constant('*')), text),
})

const list = fc.record(
  {
    fields: fc.array(field, { maxLength: 4 }),
    filter,
    sort,
    limit: fc.integer({ min: -1, max: 300 }),
    page: fc.integer({ min: 1, max: 5 }),
    search: text,
    searchFields: fc.array(textPath, { maxLength: 2 }),
    sortByRelevance: fc.boolean(),
    relConditions: fc.constant(undefined),
    paranoid: fc.boolean(),
    count: fc.boolean(),
  },
  { requiredKeys: [] },
)

const datePart = fc
  .tuple(fc.constantFrom('year', 'week', 'hour', 'isodow'), fc.constantFrom('published', 'due', 'local', 'comments.at'))
  .map(([part, name]) => `date:${part}:${name}`)

const grouped = fc.record(
  {
    filter,
    aggregate: fc.dictionary(alias, aggregateEntry, { minKeys: 1, maxKeys: 3 }),
    groupBy: fc.array(often(fc.oneof(path, datePart), text), { maxLength: 3 }),
    fields: fc.array(field, { maxLength: 2 }),
    limit: fc.integer({ min: -1, max: 300 }),
    having: fc.constantFrom({ n: { gt: 0 } }, { total: { ne: '1' } }, { n: null }, undefined),
    sort: fc.constantFrom('n', '-total', 'status', undefined),
    timezone: fc.constantFrom('Europe/Vienna', undefined),
  },
  { requiredKeys: ['aggregate'] },
)

/** One operator, sort key, aggregate or group of any column, so that many of them resolve. */
const single = fc.oneof(
  blind.map((test) => ({ fields: ['id'], filter: test })),
  anyPath.map((name) => ({ fields: ['id'], sort: `-${name}` })),
  anyPath.map((name) => ({ groupBy: [name] })),
  fc
    .tuple(aggregateEntry, fc.subarray(['status', 'meta', 'pages']))
    .map(([n, groupBy]) => ({ aggregate: { n }, groupBy })),
)

/** Queries over `notes` of the test catalog; the values in them are as bad as values get. */
export const hostileQueries: fc.Arbitrary<{ collection: string; query: Record<string, unknown> }> = fc
  .oneof(list, grouped, { weight: 2, arbitrary: single })
  .map((query) => ({ collection: 'notes', query: query as Record<string, unknown> }))
