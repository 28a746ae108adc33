import { Type } from '../../../../adapters/typebox.ts'
import { OneOf, Text } from '../../../../http/shapes.ts'
import {
  type CallRoute,
  Collection,
  Cursor,
  Fields,
  Filter,
  ItemId,
  Limit,
  listText,
  Members,
  optional,
  Page,
  paging,
  Refused,
  type RouteInput,
  SearchFields,
  Sort,
  sortText,
  type Tool,
  type ToolAnswer,
  tool,
} from '../tool.ts'

const Aggregate = Members('Aggregates by name, which may be that of a field.', {
  total: { function: 'sum', field: 'price' },
})
const GroupBy = Type.Union([Type.Array(Type.String()), Type.String()], {
  description: 'The fields that rows are grouped by.',
  examples: [['maker_id']],
})
const RelConditions = Members('Which nested rows there are: relation to filter.', { parts: { price: { gt: 5 } } })
const AsOf = Text('2026-03-14T09:26:53Z', { description: 'A time, or a cursor of the changes.' })
const Values = Members('Fields and nested relations by name. svc_get_schema has the fields of a collection.', {
  name: 'Analytical engine',
  price: 1200,
})

const chosen = {
  collection: Collection,
  filter: optional(Filter),
  fields: optional(Fields),
  sort: optional(Sort),
  page: Page,
  limit: Limit,
  cursor: optional(Cursor),
  search: optional(Text('analytical', { description: 'Words that a row must hold.' })),
  searchFields: optional(SearchFields),
}

type Chosen = {
  readonly filter?: object
  readonly fields?: readonly string[] | string
  readonly sort?: string
  readonly page: number
  readonly limit: number
  readonly cursor?: string
  readonly search?: string
  readonly searchFields?: readonly string[] | string
}

const listRoute = 'GET /items/:collection'

/** As the route of lists has it. */
const listQuery = ({ filter, fields, sort, search, searchFields, ...page }: Chosen) => ({
  filter,
  fields: listText(fields),
  sort: sortText(sort),
  search,
  searchFields: listText(searchFields),
  ...paging(page),
})

/**
 * The first page by cursor, so that the answer says how to go on; by number what cannot be read by cursor, such as an order by
 * long texts.
 */
async function firstPage(call: CallRoute, collection: string, query: RouteInput['query']): Promise<ToolAnswer> {
  const params = { collection }
  try {
    return await call(listRoute, { params, query: { ...query, page: undefined, cursor: '' } })
  } catch (error) {
    if (!(error instanceof Refused && error.status === 400)) throw error
    return call(listRoute, { params, query })
  }
}

const read = { action: 'read' } as const

const listing: readonly Tool[] = [
  tool({
    name: 'svc_list_items',
    title: 'List items',
    description:
      'Lists items of a collection that the caller may read, by filter, words and aggregates. `nextCursor` of the answer is the `cursor` of the next page.',
    group: 'read',
    needs: read,
    input: {
      ...chosen,
      aggregate: optional(Aggregate),
      groupBy: optional(GroupBy),
      relConditions: optional(RelConditions),
    },
    routes: [listRoute],
    run: async ({ collection, aggregate, groupBy, relConditions, ...rest }, call) => {
      const query = { ...listQuery(rest), aggregate, groupBy: listText(groupBy), relConditions }
      const isGrouped = aggregate !== undefined || groupBy !== undefined
      if (rest.page === 1 && rest.cursor === undefined && !isGrouped) return firstPage(call, collection, query)
      return call(listRoute, { params: { collection }, query })
    },
  }),
  tool({
    name: 'svc_get_item',
    title: 'Read an item',
    description: 'Reads one item by its id, with the fields and relations that are asked for.',
    group: 'read',
    needs: read,
    input: { collection: Collection, id: ItemId, fields: optional(Fields) },
    route: 'GET /items/:collection/:id',
    call: ({ collection, id, fields }) => ({ params: { collection, id }, query: { fields: listText(fields) } }),
  }),
  tool({
    name: 'svc_search',
    title: 'Search for words',
    description: 'Looks for words in several collections at once; the best matches of each come first.',
    group: 'read',
    needs: read,
    input: {
      search: Text('analytical', { minLength: 1, description: 'Words that a row must hold.' }),
      collections: Type.Array(Type.String({ minLength: 1 }), {
        minItems: 1,
        maxItems: 10,
        description: 'Where to look.',
        examples: [['product', 'maker']],
      }),
      fields: optional(Fields),
      limit: Type.Integer({ minimum: 1, maximum: 25, default: 5, description: 'How many of each collection.' }),
    },
    output: Type.Object({
      data: Type.Array(
        Type.Object({
          collection: Type.String(),
          totalCount: optional(Type.Integer()),
          items: Type.Array(Type.Record(Type.String(), Type.Unknown())),
        }),
      ),
    }),
    routes: [listRoute],
    run: async ({ search, collections, fields, limit }, call) => {
      const data: ToolAnswer[] = []
      for (const collection of new Set(collections)) {
        const query = { search, fields: listText(fields), limit, sortByRelevance: true }
        const found = await call(listRoute, { params: { collection }, query })
        data.push({ collection, totalCount: found.totalCount, items: found.data })
      }
      return { data }
    },
  }),
  tool({
    name: 'svc_as_of',
    title: 'Read the past',
    description: 'Reads items as they were at a time; one item where an id is given.',
    group: 'read',
    needs: read,
    input: { ...chosen, asOf: AsOf, id: optional(ItemId) },
    output: Type.Object({ data: Type.Unknown() }, { additionalProperties: true }),
    routes: [listRoute, 'GET /items/:collection/:id'],
    run: async ({ collection, id, asOf, ...rest }, call) => {
      if (id === undefined) {
        const query = { ...listQuery(rest), asOf }
        if (rest.page === 1 && rest.cursor === undefined) return firstPage(call, collection, query)
        return call(listRoute, { params: { collection }, query })
      }
      const query = { fields: listText(rest.fields), filter: rest.filter, asOf }
      return call('GET /items/:collection/:id', { params: { collection, id }, query })
    },
  }),
]

const changing: readonly Tool[] = [
  tool({
    name: 'svc_create_item',
    title: 'Create an item',
    description: 'Creates one item and answers its id.',
    group: 'create',
    needs: { action: 'create' },
    input: { collection: Collection, data: Values },
    route: 'POST /items/:collection',
    call: ({ collection, data }) => ({ params: { collection }, body: data }),
  }),
  tool({
    name: 'svc_update_item',
    title: 'Change an item',
    description: 'Changes fields of one item; what is not named stays.',
    group: 'update',
    needs: { action: 'update' },
    input: { collection: Collection, id: ItemId, data: Values },
    route: 'PATCH /items/:collection/:id',
    call: ({ collection, id, data }) => ({ params: { collection, id }, body: data }),
  }),
  tool({
    name: 'svc_delete_item',
    title: 'Delete an item',
    description: 'Deletes one item by its id. svc_undo brings it back.',
    group: 'delete',
    needs: { action: 'delete' },
    input: { collection: Collection, id: ItemId },
    route: 'DELETE /items/:collection/:id',
    call: ({ collection, id }) => ({ params: { collection, id } }),
  }),
  tool({
    name: 'svc_sort_items',
    title: 'Move an item',
    description: 'Moves an item before or after another one, in the manual order of a collection with `sortEnabled`.',
    group: 'update',
    needs: { action: 'update' },
    isDestructive: false,
    input: {
      collection: Collection,
      item: ItemId,
      to: ItemId,
      mode: OneOf(['before', 'after'], { default: 'before' }),
    },
    route: 'POST /utils/sort/:collection',
    call: ({ collection, ...body }) => ({ params: { collection }, body }),
  }),
]

const reporting: readonly Tool[] = [
  tool({
    name: 'svc_generate_report',
    title: 'Make a report',
    description: 'Aggregates the items of a collection, by groups where `groupBy` is given.',
    group: 'read',
    needs: read,
    input: {
      collection: Collection,
      filter: optional(Filter),
      fields: optional(Fields),
      aggregate: optional(Aggregate),
      groupBy: optional(GroupBy),
      having: optional(Members('Which groups.', { total: { gt: 100 } })),
      sort: optional(Sort),
      search: optional(Text('analytical', { description: 'Words that a row must hold.' })),
      searchFields: optional(SearchFields),
      relConditions: optional(RelConditions),
      timezone: optional(Text('Europe/Zurich', { description: 'Where days begin.' })),
      asOf: optional(AsOf),
      page: Page,
      limit: Type.Integer({ minimum: 1, maximum: 1000, default: 100, description: 'How many rows, up to 1,000.' }),
    },
    route: 'POST /reports/:collection',
    call: ({ collection, sort, ...body }) => ({ params: { collection }, body: { ...body, sort: sortText(sort) } }),
  }),
  tool({
    name: 'svc_collection_stats',
    title: 'Make several reports at once',
    description: 'Answers up to fifty reports by name.',
    group: 'read',
    needs: read,
    input: {
      stats: Type.Array(
        Type.Object({
          name: Text('revenue', { description: 'Its name in the answer.' }),
          collection: Collection,
          query: Members('As svc_generate_report, without the collection.', {
            aggregate: { total: { function: 'sum', field: 'price' } },
          }),
        }),
        { minItems: 1, maxItems: 50, description: 'The reports.' },
      ),
    },
    route: 'POST /reports/stats',
    call: ({ stats }) => ({ body: { stats } }),
  }),
]

export const itemTools: readonly Tool[] = [...listing, ...changing, ...reporting]

const cursor = optional(Text('4711', { description: 'The `nextCursor` of the page before.' }))
const limit = Type.Integer({ minimum: 1, maximum: 100, default: 25, description: 'How many at most, up to 100.' })

/** Tools for history and undo. */
export const historyTools: readonly Tool[] = [
  tool({
    name: 'svc_history',
    title: 'Read what happened to an item',
    description: 'Every change of an item, the newest first: who, when, and the values before and after.',
    group: 'read',
    needs: { action: 'read' },
    input: { collection: Collection, id: ItemId, limit, cursor },
    route: 'GET /items/:collection/:id/history',
    call: ({ collection, id, limit, cursor }) => ({ params: { collection, id }, query: { limit, cursor } }),
  }),
  tool({
    name: 'svc_undo',
    title: 'Undo a request',
    description:
      'Undoes all that a request or transaction changed. First without `plan`: nothing is written, and the answer says what would be, with a `plan`. Then with that plan: it is done, or refused where it would now do anything else. The id of a request is in its answer (`daybook/requestIds` of a tool) and in the history.',
    group: 'update',
    input: {
      requestId: optional(Text('0198c0de-7a11-7cc1-9f3a-5d1f0c2b7e44', { description: "The log's id of a request." })),
      position: optional(Text('4711', { description: 'Of an event, or its id: its transaction is undone.' })),
      include: optional(OneOf(['caused'], { description: 'Also what the request led to.' })),
      limit: Type.Integer({
        minimum: 1,
        maximum: 100,
        default: 25,
        description:
          'How many rows, conflicts and effects that stay are listed, up to 100. `counts` are of all rows, and `more` says how many the lists leave out.',
      }),
      plan: optional(Text('J3k…', { minLength: 1, description: 'Of the dry run. Without it nothing is written.' })),
      force: optional(
        Type.Array(Type.Object({ collection: Collection, id: ItemId }), {
          maxItems: 1000,
          description: 'Rows to be undone although others have changed them since.',
        }),
      ),
    },
    route: 'POST /log/undo',
    call: ({ plan, ...body }) => ({ body: plan === undefined ? { ...body, dryRun: true } : { ...body, plan } }),
  }),
]

const Definition = Members(
  'A definition: its fields, relationships and indexes by name (see svc_get_schema of another).',
  {
    fields: { name: { type: 'String', allowNull: false }, price: { type: 'Decimal' } },
  },
)
const Relationship = Members('A relationship: type, name, target and what belongs to it.', {
  type: 'M2O',
  name: 'maker',
  target: 'maker',
  alias: 'products',
})
const dryRun = optional(Type.Boolean({ description: 'Changes nothing and answers what would be done.' }))
const drop = optional(
  Type.Boolean({
    description:
      'Drops the parts that the definition leaves out, with their values. Without it such a change is refused.',
  }),
)
const alter = optional(
  Type.Boolean({
    description:
      'Agrees that another type rounds, cuts off, replaces or rewrites stored values, and that deleted rows come back without `paranoid`. Without it such a change is refused; a dry run counts them.',
  }),
)
const Source = Text('product', { minLength: 1, description: 'The collection that the relationship belongs to.' })

const definitions: readonly Tool[] = [
  tool({
    name: 'svc_list_schemas',
    title: 'List collections',
    description: 'The collections with their definitions: what there is to ask for.',
    group: 'read',
    input: {
      search: optional(Text('prod', { description: 'A part of the name.' })),
      brief: optional(Type.Boolean({ description: 'Only names and descriptions: begin with it.' })),
      page: Page,
      limit: Type.Integer({ minimum: 1, maximum: 100, default: 10, description: 'How many at most, up to 100.' }),
      sort: Text('collectionName:asc', { default: 'collectionName:asc', description: 'collectionName:asc or :desc.' }),
    },
    route: 'GET /schemas',
    call: (query) => ({ query }),
  }),
  tool({
    name: 'svc_get_schema',
    title: 'Read the definition of a collection',
    description: 'The fields, relationships and indexes of a collection.',
    group: 'read',
    input: { collection: Collection },
    route: 'GET /schemas/:collection',
    call: (params) => ({ params }),
  }),
  tool({
    name: 'svc_create_schema',
    title: 'Create a collection',
    description: 'Creates a collection, which is a table with its routes.',
    group: 'create',
    input: { collection: Collection, schema: Definition, dryRun },
    route: 'POST /schemas',
    call: ({ collection: collectionName, schema, dryRun }) => ({ body: { collectionName, schema }, query: { dryRun } }),
  }),
  tool({
    name: 'svc_update_schema',
    title: 'Change a collection',
    description:
      'Changes the definition of a collection. Entries that it leaves out stay; those that are null go, with `drop`.',
    group: 'update',
    input: { collection: Collection, schema: Definition, drop, alter, dryRun },
    route: 'PATCH /schemas/:collection',
    call: ({ collection, schema, ...query }) => ({ params: { collection }, body: { schema }, query }),
  }),
  tool({
    name: 'svc_delete_schema',
    title: 'Delete a collection',
    description: 'Deletes a collection with all its items. Ask for a dry run first.',
    group: 'delete',
    input: { collection: Collection, dryRun },
    route: 'DELETE /schemas/:collection',
    call: ({ collection, dryRun }) => ({ params: { collection }, query: { dryRun } }),
  }),
  tool({
    name: 'svc_export_schemas',
    title: 'Export all definitions',
    description: 'The definitions of all collections, as svc_import_schemas takes them.',
    group: 'read',
    input: {},
    route: 'GET /schemas/export',
    call: () => ({}),
  }),
  tool({
    name: 'svc_import_schemas',
    title: 'Import definitions',
    description: 'Creates and changes collections, all or none. Collections that are not named stay.',
    group: 'update',
    input: {
      schemas: Type.Array(
        Type.Object({ collectionName: Text('product'), schema: Definition }, { additionalProperties: true }),
        { minItems: 1, description: 'Definitions with their names.' },
      ),
      drop,
      alter,
      dryRun,
    },
    route: 'POST /schemas/import',
    call: ({ schemas, ...query }) => ({ body: { version: '1.0', schemas }, query }),
  }),
]

const parts: readonly Tool[] = [
  tool({
    name: 'svc_add_index',
    title: 'Add an index',
    description: 'Adds an index to a collection.',
    group: 'create',
    input: {
      collection: Collection,
      indexDefinition: Members('Its name, fields and options.', { name: 'product_name', fields: ['name'] }),
      dryRun,
    },
    route: 'POST /schemas/:collection/indexes',
    call: ({ collection, indexDefinition, dryRun }) => ({
      params: { collection },
      body: indexDefinition,
      query: { dryRun },
    }),
  }),
  tool({
    name: 'svc_remove_index',
    title: 'Remove an index',
    description: 'Removes an index of a collection by its name.',
    group: 'delete',
    input: { collection: Collection, indexName: Text('product_name', { minLength: 1 }), dryRun },
    route: 'DELETE /schemas/:collection/indexes/:name',
    call: ({ collection, indexName: name, dryRun }) => ({ params: { collection, name }, query: { dryRun } }),
  }),
  tool({
    name: 'svc_create_relationship',
    title: 'Create a relationship',
    description: 'Relates a collection to another one.',
    group: 'create',
    input: { sourceCollection: Source, relationshipData: Relationship, dryRun },
    route: 'POST /schemas/:collection/relationships',
    call: ({ sourceCollection: collection, relationshipData: body, dryRun }) => ({
      params: { collection },
      body,
      query: { dryRun },
    }),
  }),
  tool({
    name: 'svc_update_relationship',
    title: 'Change a relationship',
    description: 'Changes the alias, description, showAs, onDelete or onUpdate of a relationship.',
    group: 'update',
    input: {
      sourceCollection: Source,
      relationshipName: Text('maker', { minLength: 1 }),
      relationshipData: Relationship,
      dryRun,
    },
    route: 'PATCH /schemas/:collection/relationships/:field',
    call: ({ sourceCollection: collection, relationshipName: field, relationshipData: body, dryRun }) => ({
      params: { collection, field },
      body,
      query: { dryRun },
    }),
  }),
  tool({
    name: 'svc_delete_relationship',
    title: 'Delete a relationship',
    description: 'Deletes a relationship with the keys that it stores.',
    group: 'delete',
    input: { sourceCollection: Source, fieldName: Text('maker', { minLength: 1 }), dryRun },
    route: 'DELETE /schemas/:collection/relationships/:field',
    call: ({ sourceCollection: collection, fieldName: field, dryRun }) => ({
      params: { collection, field },
      query: { dryRun },
    }),
  }),
]

export const schemaTools: readonly Tool[] = [...definitions, ...parts]
