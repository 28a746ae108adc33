import { role, T1, U1 } from './access.ts'
import type { Asked } from './compiled.ts'

const author = role({
  userId: U1,
  grants: {
    notes: { fields: ['id', 'title', 'owner.*', 'comments.*'], conditions: { owner_Id: '$CURRENT_USER' } },
    users: { fields: ['id', 'name', 'team.name'], conditions: { age: { gte: 18 } } },
    comments: { fields: ['*'], conditions: { 'author.team.name': 'red' } },
  },
})

const scoped = role({
  tenantId: T1,
  tenantSpecific: true,
  grants: { orders: { fields: ['*', 'client.*'] }, clients: {}, svc_User: {}, svc_File: {} },
})
const tenants = { multiTenant: { enabled: true, strict: true, ignored: new Set<string>() } }

/** One plan for every way of building a statement. Their SQL is kept in test/golden/query and run on PostgreSQL. */
export const representative: Readonly<Record<string, Asked>> = {
  'list-all': {},
  'list-page': { query: { fields: ['id', 'title'], sort: '-stars', limit: 25 } },
  'list-second-page': { query: { fields: ['id'], page: 2, limit: 25 } },
  'list-large-limit': { query: { fields: ['id'], limit: 5000 } },
  'list-none-but-count': { query: { limit: 0 } },
  'list-without-count': { query: { fields: ['id'], limit: 10, count: 'false' } },
  'list-with-deleted': { query: { fields: ['id'], paranoid: 'false' } },
  'list-excluding-fields': { collection: 'comments', query: { fields: ['*', '-text', '-at'] } },
  'filter-comparison': {
    query: { fields: ['id'], filter: { stars: { gte: 1, lt: 5 }, status: 'draft', due: { ne: null } } },
  },
  'filter-lists': {
    query: {
      fields: ['id'],
      filter: { stars: { in: [1, 2] }, status: { notIn: ['draft'] }, price: { between: [1, 2] } },
    },
  },
  'filter-moments': {
    query: {
      fields: ['id'],
      filter: {
        published: { gt: '2024-05-01', ne: '2024-05-02T10:00:00.123456Z', in: ['2024-05-01', '2024-05-03'] },
        local: { between: ['2024-05-01', '2024-05-02'], notIn: ['2024-05-01T12:00'] },
      },
    },
  },
  'filter-text': { query: { fields: ['id'], filter: { title: { contains: '50%' }, body: { nstartsWiths: 'A_' } } } },
  'filter-logic': {
    query: { fields: ['id'], filter: { OR: [{ stars: 1 }, { NOT: { pinned: true } }], AND: [{ title: 'x' }] } },
  },
  'filter-json': {
    query: {
      fields: ['id'],
      filter: {
        meta: {
          jsonbContains: { k: 1 },
          jsonbKeyGt: { key: 'k', value: 0 },
          jsonbDeepValue: { path: ['a', 'b'], value: 7 },
        },
      },
    },
  },
  'filter-json-lengths': {
    query: {
      fields: ['id'],
      filter: {
        meta: {
          jsonbArrayLength: { path: 'list', op: 'gt', value: 2 },
          jsonbPathExists: '$.a',
          jsonbKeyNotIn: { key: 'k', values: [1] },
        },
      },
    },
  },
  'filter-arrays': {
    query: {
      fields: ['id'],
      filter: { tags: { arraycontains: ['a'], arraylength: { op: 'gt', value: 1 } }, amounts: { overlaps: [1.5] } },
    },
  },
  'filter-ranges': {
    query: {
      fields: ['id'],
      filter: { pages: { arraycontains: 3 }, period: { overlaps: { lower: '2024-01-01', upper: null } } },
    },
  },
  'filter-cast': {
    query: {
      fields: ['id'],
      filter: { published: { eq: '2024-05-01', cast: 'date' }, stars: { gt: '1', cast: 'text' } },
    },
  },
  'filter-columns': {
    query: {
      fields: ['id'],
      filter: {
        title: { ne: '$COL(body)' },
        stars: { lt: '$COL(comments.likes)' },
        'owner.age': { gt: '$COL(stars)' },
      },
    },
  },
  'filter-to-one-path': {
    query: { fields: ['id'], filter: { 'owner.team.name': 'red', 'owner.email': { isNull: true } } },
  },
  'filter-to-many-path': {
    query: {
      fields: ['id'],
      filter: { 'comments.likes': { gte: 1, lt: 9 }, 'labels.name': 'later', 'comments.id': null },
    },
  },
  'filter-nested-object': {
    query: { fields: ['id'], filter: { comments: { likes: 1, author: { name: 'Ann' } }, owner: null } },
  },
  'filter-many-to-any': { query: { fields: ['id'], filter: { 'blocks.images.url': { isNotNull: true } } } },
  'filter-variables': {
    query: {
      fields: ['id'],
      filter: { owner_Id: '$CURRENT_USER', published: { lt: '$NOW-DAYS_7' }, code: '$CURRENT_TENANT' },
    },
  },
  'sort-relation': { query: { fields: ['id'], sort: { 'owner.team.name': 'desc', 'owner.name': 'asc' }, limit: 5 } },
  'sort-to-many': { query: { fields: ['id'], sort: ['-comments.likes'], limit: 5 } },
  'nested-to-one': {
    query: { fields: ['id', 'owner.name', 'owner.team.*', 'owner.profile.motto', 'category.parent.name'] },
  },
  'nested-to-many': { query: { fields: ['id', 'comments.text', 'comments.author.name', 'labels'] } },
  'nested-sorted-by-hand': { collection: 'categories', query: { fields: ['id', 'children.name'] } },
  'nested-many-to-any': { query: { fields: ['id', 'blocks.*.*'] } },
  'nested-one-of-any': { query: { fields: ['id', 'blocks.images.url'] } },
  'nested-conditions': {
    query: {
      fields: ['id', 'comments.text'],
      relConditions: { comments: { likes: { gt: 5 }, author: { name: 'Bob' } } },
    },
  },
  'every-relation': { collection: 'users', query: { fields: ['*.*'] } },
  search: { query: { fields: ['id'], search: "quick o'fox" } },
  'search-by-relevance': {
    query: {
      fields: ['id'],
      search: 'fox',
      searchFields: 'title,owner.name,comments.text',
      sortByRelevance: 'true',
      limit: 5,
    },
  },
  'row-rules': {
    access: author,
    query: {
      fields: ['*', 'owner.*', 'comments.text'],
      filter: { OR: [{ title: 'x' }, { 'comments.likes': { gt: 1 } }] },
    },
  },
  'tenant-rows': { collection: 'orders', access: scoped, env: tenants, query: { fields: ['*', 'client.name'] } },
  'tenant-users': { collection: 'svc_User', access: scoped, env: tenants },
  'tenant-files': { collection: 'svc_File', access: scoped, env: tenants },
  'aggregate-all': {
    query: {
      aggregate: {
        n: { function: 'count', field: '*' },
        total: { function: 'sum', field: 'price' },
        mean: { function: 'avg', field: 'stars' },
        last: { function: 'max', field: 'published' },
        kinds: { function: 'distinct', field: 'status' },
        all: { function: 'array_agg', field: 'published' },
      },
    },
  },
  'group-by-column': {
    query: {
      aggregate: { n: { function: 'count', field: '*' } },
      groupBy: ['status'],
      sort: '-n',
      limit: 3,
      having: { n: { gt: 1 } },
    },
  },
  'group-by-date': {
    query: {
      aggregate: { n: { function: 'count', field: '*' } },
      groupBy: ['date:year:published', 'date:dow:due'],
      timezone: 'Asia/Tokyo',
    },
  },
  'group-by-relation': {
    query: {
      aggregate: { likes: { function: 'sum', field: 'comments.likes' } },
      groupBy: ['category.name'],
      fields: ['category.name', 'owner.name'],
    },
  },
  'group-by-key': {
    query: {
      aggregate: { total: { function: 'sum', field: 'price' }, most: { function: 'max', field: 'views' } },
      groupBy: ['category_Id', 'date:month:published'],
      fields: ['category_Id', 'category.name', 'category.parent.name'],
      sort: '-total',
    },
  },
  geometry: {
    collection: 'places',
    env: { postgis: true },
    query: {
      filter: {
        at: { dwithin: { geometry: { type: 'Point', coordinates: [1, 2] }, distance: 10 } },
        area: { intersects: { type: 'Point', coordinates: [1, 2] } },
      },
      sort: { _distance: { target: [1, 2], column: 'at', direction: 'ASC' } },
    },
  },
  vectors: {
    collection: 'places',
    env: { vector: true },
    query: {
      fields: ['id', 'embedding', 'sparse'],
      filter: { embedding: { vectorCosine: { vector: [1, 2, 3], threshold: 0.5 } } },
      sort: { _vectorDistance: { vector: [1, 2, 3], column: 'embedding', operator: 'l2' } },
    },
  },
}
