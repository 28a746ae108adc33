import type { TProperties, TSchema } from 'typebox'
import { Type } from '../../../adapters/typebox.ts'
import { route } from '../../../http/route.ts'
import { Count, Id, Names, Nothing, OneOf, type Representing, Row, type RowOf, Text } from '../../../http/shapes.ts'
import { dateFormats } from './file-notation.ts'

/**
 * Parameters and answers of the routes of items, for their declarations. Parameters have many spellings
 * (docs/query-language.md), and the query parser reads them: these shapes describe the plain one.
 */

const optional = <Shape extends TSchema>(shape: Shape) => Type.Optional(shape)
const described = (example: string, description: string) => optional(Text(example, { description }))
const flag = (example: boolean, description: string) => optional(Type.Boolean({ examples: [example], description }))
const whole = (example: number, minimum: number, description: string) =>
  optional(Count(example, { minimum, description }))
const names = (example: readonly string[], description: string) => optional(Names(example, { description }))

/* Objects of the language. */

const Filter = Type.Record(Type.String(), Type.Unknown(), {
  description: 'Paths to values or operators; `AND`, `OR` and `NOT` take filters.',
  examples: [{ price: { lt: 100 }, 'maker.name': { startsWith: 'A' } }],
})
const Conditions = Type.Record(Type.String(), Filter, { examples: [{ parts: { price: { gt: 5 } } }] })
const Aggregates = Type.Record(
  Type.String(),
  Type.Object({
    function: OneOf(['count', 'sum', 'avg', 'min', 'max', 'distinct', 'array_agg']),
    field: Text('price', { description: 'A field or a path; `*` to count rows.' }),
  }),
  { examples: [{ total: { function: 'sum', field: 'price' } }] },
)
const Having = Type.Record(Type.String(), Type.Unknown(), { examples: [{ total: { gt: 100 } }] })

/** Such an object in a query string: JSON text, which every client can send. */
const asText = (shape: TSchema & { examples?: unknown }, description: string) =>
  optional(
    Text(JSON.stringify((shape.examples as readonly unknown[])[0]), {
      description,
      contentMediaType: 'application/json',
      contentSchema: shape,
    }),
  )

/* The meaning of each member, in a query string and in a body. */

const words = {
  fields: 'The fields and relations of a row. All fields unless given.',
  relConditions: 'Which nested rows there are: relation to filter.',
  filter: 'Which rows.',
  sort: 'The order; `-` before a name for descending.',
  aggregate: 'Aggregates by name, which may be that of a field.',
  having: 'Which groups.',
} as const
const fields = names(['name', 'price', 'maker.name'], words.fields)
const sort = names(['-price', 'name'], words.sort)

/** Members with the same spelling in both. */
const common = {
  limit: whole(25, -1, 'How many rows at most; -1 for all, 0 for none but the count.'),
  page: whole(1, 1, 'The page, from 1.'),
  offset: whole(50, 0, 'How many rows are left out.'),
  search: described('analytical', 'Words that a row must hold.'),
  searchFields: names(['name', 'description'], 'Where they are looked for.'),
  sortByRelevance: flag(true, 'The best matches first.'),
  groupBy: names(
    ['maker_id', 'date:year:createdAt'],
    'The fields that rows are grouped by, and parts of dates: `date:{part}:{field}`.',
  ),
  paranoid: flag(false, '`false`: soft-deleted rows as well.'),
  count: flag(false, '`false`: without `totalCount`, which takes time to count.'),
  timezone: described('Europe/Zurich', 'Where days begin when rows are grouped by them.'),
  asOf: described('2026-03-14T09:26:53Z', 'Rows as they were: a time, or a cursor of `GET /changes`.'),
}

/** Which fields and relations a row has. */
const selection = { fields, relConditions: asText(Conditions, words.relConditions) }

/** Members that choose, order and page rows. */
const choice = {
  filter: asText(Filter, words.filter),
  sort,
  ...common,
  aggregate: asText(Aggregates, words.aggregate),
  having: asText(Having, words.having),
}

const cache = optional(
  Type.Union([Type.Boolean(), Type.Literal('reload'), Type.Integer({ minimum: 0 })], {
    description:
      'Whether the answer may come from memory; `reload` makes it anew; or for how many seconds it may be kept.',
    examples: [true],
  }),
)
const cursor = described('', 'Empty for the first page, then the `nextCursor` of the page before.')

/** Of lists. */
export const ListQuery = Type.Object({ ...selection, ...choice, cursor, cache })

/** Of one row. */
export const ReadQuery = Type.Object({
  ...selection,
  filter: choice.filter,
  paranoid: choice.paranoid,
  asOf: choice.asOf,
  cache,
})

/** Of writes: what the answer has besides the id. */
const AnswerQuery = Type.Object(selection)

/** Of reports, in a query string. */
export const ReportQuery = Type.Object({ ...selection, ...choice, cache })

const about = <Shape extends TSchema>(shape: Shape, description: string): Shape => ({ ...shape, description })

/** The same in a body, as plain JSON. */
export const ReportBody = Type.Object(
  {
    fields,
    relConditions: optional(about(Conditions, words.relConditions)),
    filter: optional(about(Filter, words.filter)),
    sort: optional(
      Type.Union([Type.Array(Type.String()), Type.Record(Type.String(), OneOf(['asc', 'desc']))], {
        description: 'The order: names, `-` before one for descending; or name to direction.',
        examples: [['-total']],
      }),
    ),
    ...common,
    aggregate: optional(about(Aggregates, words.aggregate)),
    having: optional(about(Having, words.having)),
  },
  {
    examples: [
      { aggregate: { total: { function: 'sum', field: 'price' } }, groupBy: ['maker_id'], sort: ['-total'], limit: 10 },
    ],
  },
)

export const CollectionParams = Type.Object({
  collection: Text('products', { description: 'The name of a collection.' }),
})

export const ItemParams = Type.Object({
  ...CollectionParams.properties,
  id: Text('0198c0de-7a11-7cc1-9f3a-5d1f0c2b7e44', { description: 'The primary key of an item.' }),
})

/** The primary key of an item: a UUID unless the collection has another. */
export const Key = Type.Union([Id(), Type.Integer(), Type.String()], { represents: 'key' })

/** The answer to a write: the id alone, or the requested fields. */
export const WrittenShape = Type.Object({
  data: Type.Record(Type.String(), Type.Unknown(), { represents: 'written row', examples: [{ id: 7 }] }),
})

/** The same of many. */
const AllWrittenShape = Type.Object({ data: Type.Array(Type.Union([Key, Row])) })

const ItemShape = Type.Object({ data: Row })

const page = {
  totalCount: optional(Count(42, { description: 'How many rows there are on all pages, where it is counted.' })),
  nextCursor: optional(
    Type.Union([Text('eyJ2IjoxfQ'), Type.Null()], { description: 'Where the list is read by cursor.' }),
  ),
  changesCursor: optional(Text('eyJ4IjoxfQ', { description: 'Where `?changesCursor` asks for one.' })),
}

export const ItemsShape = Type.Object({ data: Type.Array(Row), ...page })

/** A list of rows of one collection of the system. */
export const itemsOf = (row: ReturnType<typeof RowOf>) => Type.Object({ data: Type.Array(row), ...page })

const tag = 'Items'
const written = (represents: NonNullable<Representing['represents']>) =>
  Type.Record(Type.String(), Type.Unknown(), {
    represents,
    description: 'Fields and nested relations by name; the catalog checks them.',
    examples: [{ name: 'Analytical engine', price: 1200 }],
  })
const NewRow = written('new row')
const ChangedRow = written('changed row')
const someIds = ['0198c0de-7a11-7cc1-9f3a-5d1f0c2b7e44']

/** For routes whose rows the catalog reads, and whose answers are ready text. */
const dynamic = { tag, readElsewhere: 'all', sendsText: true } as const
/** The same with a body whose outline is checked. */
const outlined = { tag, readElsewhere: 'query', sendsText: true } as const

const list = (represents: NonNullable<Representing['represents']>, words: string, examples: readonly unknown[]) =>
  Type.Array(Type.Unknown({ represents }), { refusal: words, examples: [examples] })

export const listRoute = route({
  ...dynamic,
  summary: 'List items',
  scope: 'read',
  params: CollectionParams,
  query: Type.Object({
    ...ListQuery.properties,
    changesCursor: flag(true, 'The answer ends with the cursor from which `GET /changes` goes on.'),
  }),
  response: { 200: ItemsShape, 304: Nothing },
})
export const exportRoute = route({
  ...dynamic,
  summary: 'Download items as a file',
  scope: 'read',
  params: CollectionParams,
  query: Type.Object({ ...ListQuery.properties, format: optional(OneOf(['csv', 'json'], { default: 'csv' })) }),
  response: {
    200: Type.Unknown({
      content: {
        'text/csv': { schema: Text('id,name\n7,Analytical engine') },
        'application/json': { schema: Type.Array(Row) },
      },
    }),
  },
})
export const estimatesRoute = route({
  summary: 'Estimate how many items large collections have',
  scope: 'read',
  description:
    'By the statistics of the database, in no time. Only of collections with more than 100,000 items of which you may read every one; count others by a list.',
  tag,
  query: Type.Object({ collections: described('products,orders', 'Names by commas; all unless given.') }),
  response: {
    200: Type.Object({ data: Type.Array(Type.Object({ collection: Text('products'), rows: Count(1_234_000) })) }),
  },
})
export const readRoute = route({
  ...dynamic,
  summary: 'Read an item',
  scope: 'read',
  params: ItemParams,
  query: ReadQuery,
  response: { 200: ItemShape, 304: Nothing },
})
export const createRoute = route({
  ...dynamic,
  summary: 'Create an item',
  scope: 'write',
  params: CollectionParams,
  query: AnswerQuery,
  body: NewRow,
  response: { 201: WrittenShape },
})
export const updateRoute = route({
  ...dynamic,
  summary: 'Change an item',
  scope: 'write',
  description: 'With `If-Match` only the version that it names.',
  params: ItemParams,
  query: AnswerQuery,
  body: ChangedRow,
  response: { 200: WrittenShape },
})
export const deleteRoute = route({
  ...dynamic,
  summary: 'Delete an item',
  scope: 'write',
  description: 'With `If-Match` only the version that it names.',
  params: ItemParams,
  response: { 200: WrittenShape },
})
export const upsertRoute = route({
  ...outlined,
  summary: 'Create items, or change those with the same key',
  scope: 'write',
  description: 'An item that is there needs no more than its key and what changes, whatever is required of a new one.',
  params: CollectionParams,
  query: Type.Object({
    ...AnswerQuery.properties,
    key: names(['number'], 'The unique fields by which an item is found.'),
  }),
  body: Type.Union([Type.Array(Type.Unknown({ represents: 'new row' })), NewRow], {
    refusal: 'Request body must be an object or an array of objects',
    examples: [{ number: 7, name: 'Analytical engine' }],
  }),
  response: { 200: Type.Union([WrittenShape, AllWrittenShape]), 201: WrittenShape },
})
export const createAllRoute = route({
  ...outlined,
  summary: 'Create many items, all or none',
  scope: 'write',
  params: CollectionParams,
  query: AnswerQuery,
  body: list('new row', 'Request body must be an array', [{ name: 'Analytical engine', price: 1200 }]),
  response: { 201: AllWrittenShape },
})
export const updateAllRoute = route({
  ...outlined,
  summary: 'Change many items, all or none',
  scope: 'write',
  description:
    'Each element names its item by the primary key, beside the changes or beside `data`. One without a key is left out.',
  params: CollectionParams,
  query: AnswerQuery,
  body: list('named change', 'Request body must be an array', [{ id: someIds[0], price: 1100 }]),
  response: { 200: AllWrittenShape },
})
export const deleteAllRoute = route({
  ...outlined,
  summary: 'Delete many items, all or none',
  scope: 'write',
  params: CollectionParams,
  body: list('key', 'Request body must be an array of IDs', someIds),
  response: { 204: Nothing },
})
/** Any id; text that cannot be one is found to name no item. */
const named = (missing: string) =>
  Type.Unsafe<unknown>({ not: { enum: ['', null] }, examples: [1], description: 'An id.', refusal: missing })
export const SortBody = Type.Object({
  item: named('Missing item ID to sort'),
  to: named('Missing target ID to sort to'),
  mode: optional(OneOf(['before', 'after'], { default: 'before', refusal: 'mode must be before or after' })),
})
export const sortRoute = route({
  summary: 'Move an item before or after another one',
  scope: 'write',
  description: 'In the manual order of a collection with `sortEnabled`.',
  tag,
  params: CollectionParams,
  body: SortBody,
  response: { 200: Type.Object({ data: Type.Object({ item: Key, collection: Text('products'), newSort: Count(3) }) }) },
  // The permission to sort is checked first.
  readElsewhere: 'all',
  sendsText: true,
})

export const ImportedShape = Type.Object({
  success: Type.Boolean(),
  message: Text('Successfully imported 120 items'),
  results: Type.Object({
    imported: Count(120),
    failed: Count(0),
    errors: Type.Array(Type.Unknown(), { examples: [[]] }),
  }),
})

/** A form with a file. */
export const fileBody = (part: string, more: TProperties = {}) =>
  Type.Object({ [part]: Text('(a file)', { format: 'binary' }), ...more }, { contentMediaType: 'multipart/form-data' })

/** A row that cannot be imported. */
const BrokenRow = Type.Object({
  row: optional(Count(3, { description: 'Counted from 1, without the header; `item` for JSON.' })),
  item: optional(Count(3)),
  line: optional(Count(4, { description: 'In which it begins in the file.' })),
  data: optional(
    Type.Record(Type.String(), Type.Unknown(), { examples: [{ name: 'Analytical engine', price: 'many' }] }),
  ),
  error: Text('Validation failed: price: expected an integer'),
  fields: Type.Array(Type.Object({ field: Text('price'), message: Text('expected an integer') })),
})

export const TriedShape = Type.Object({
  success: Type.Boolean({ description: 'Whether an import would do it all.' }),
  dryRun: Type.Literal(true),
  message: Text('1 of 120 items have errors'),
  results: Type.Object({
    rows: Count(120, { description: 'How many were read.' }),
    complete: Type.Boolean({ description: 'False where it gave up after 1,000 broken rows.' }),
    wouldCreate: Count(119, { description: 'Rows of all collections.' }),
    wouldUpdate: Count(0, { description: 'Existing rows that nested ones change.' }),
    changes: Type.Array(Type.Object({ collection: Text('products'), create: Count(119), update: Count(0) })),
    skipsHooks: Type.Boolean({ description: 'Whether hooks were left out, which may refuse or change rows.' }),
    failed: Count(1),
    errors: Type.Array(BrokenRow),
  }),
})

/** How a file writes numbers, dates and times. */
export const notationShape = {
  timezone: described('Europe/Zurich', 'The time zone of times without an offset; UTC unless given.'),
  decimal: described(
    ',',
    'The decimal sign of numbers: `.` (the default), or `,` with digits before it grouped or not.',
  ),
  dateFormat: described('DD.MM.YYYY', `How dates are written: ${dateFormats.map((one) => `\`${one}\``).join(', ')}.`),
}

const notationInForm = {
  timezone: described('Europe/Zurich', 'The same in the form.'),
  decimal: described(',', 'The same in the form.'),
  dateFormat: described('DD.MM.YYYY', 'The same in the form.'),
}

const importRoute = <const Format extends 'CSV' | 'JSON'>(format: Format, part: string) =>
  route(
    {
      ...dynamic,
      summary: `Import items from a ${format} file`,
      scope: 'write',
      description: 'All or none.',
      params: CollectionParams,
      query: Type.Object({
        tenant: described(someIds[0]!, 'The tenant that the items are for.'),
        dryRun: flag(true, 'Writes nothing and answers what an import would do.'),
        encoding: described(
          'windows-1252',
          'The encoding of the file, where it is neither UTF-8 nor UTF-16 with a byte order mark.',
        ),
        ...notationShape,
      }),
      body: fileBody(part, {
        tenant: described(someIds[0]!, 'The same in the form.'),
        dryRun: flag(true, 'The same in the form.'),
        encoding: described('windows-1252', 'The same in the form.'),
        ...notationInForm,
      }),
      response: { 200: Type.Union([ImportedShape, TriedShape]) },
    },
    { config: { streamedBody: true } },
  )
export const importCsvRoute = importRoute('CSV', 'csvFile')
export const importJsonRoute = importRoute('JSON', 'jsonFile')
