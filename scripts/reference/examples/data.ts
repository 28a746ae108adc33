import { type Example, plain, sent } from './example.ts'

/** Collections and what is in them. */

const maker = {
  collectionName: 'maker',
  schema: { fields: { name: { type: 'String', allowNull: false, unique: true } } },
}

const product = {
  collectionName: 'product',
  schema: {
    usertrack: true,
    paranoid: true,
    sortEnabled: true,
    fields: {
      name: { type: 'String', allowNull: false, values: { stringLength: 200 } },
      number: { type: 'Integer', unique: true },
      price: { type: 'Decimal', values: { precision: 10, scale: 2 }, validate: { min: 0 } },
      state: { type: 'ENUM', values: ['draft', 'on sale'], defaultValue: 'draft' },
      released: { type: 'DateTime' },
    },
  },
}

export const schemas: readonly Example[] = [
  sent('POST /schemas', maker, { status: 201 }),
  sent('POST /schemas', product, { status: 201 }),
  plain('GET /schemas', '/schemas?search=prod&sort=collectionName:asc'),
  plain('GET /schemas/{collection}', '/schemas/product'),
  sent(
    'PATCH /schemas/{collection}',
    { schema: { fields: { color: { type: 'String' } } } },
    { path: '/schemas/product' },
  ),
  sent(
    'PATCH /schemas/{collection}',
    { schema: { fields: { color: { type: 'String' } } } },
    { path: '/schemas/product?dryRun=true' },
  ),
  plain('DELETE /schemas/{collection}/fields/{field}', '/schemas/product/fields/color'),
  sent(
    'POST /schemas/{collection}/indexes',
    { name: 'product_by_price', fields: ['price'] },
    { path: '/schemas/product/indexes', status: 201 },
  ),
  plain('DELETE /schemas/{collection}/indexes/{name}', '/schemas/product/indexes/product_by_price'),
  plain('POST /schemas/indexes/migrate'),
  sent(
    'POST /schemas/{collection}/relationships',
    { type: 'M2O', name: 'maker', target: 'maker', alias: 'products' },
    { path: '/schemas/product/relationships', status: 201 },
  ),
  sent(
    'PATCH /schemas/{collection}/relationships/{field}',
    { type: 'M2O', name: 'maker', target: 'maker', onDelete: 'RESTRICT' },
    { path: '/schemas/product/relationships/maker' },
  ),
  sent(
    'POST /schemas/{collection}/relationships',
    { type: 'M2O', name: 'seller', target: 'maker' },
    { path: '/schemas/product/relationships', status: 201 },
  ),
  plain('DELETE /schemas/{collection}/relationships/{field}', '/schemas/product/relationships/seller'),
  plain('GET /schemas-export'),
  plain('GET /schemas/export'),
  plain('GET /schemas-types'),
  {
    route: 'POST /schemas-preview-import',
    form: { schema: ['schemas.json', JSON.stringify({ version: '1.0', schemas: [maker] })] },
  },
  {
    route: 'POST /schemas-import',
    form: { schema: ['schemas.json', JSON.stringify({ version: '1.0', schemas: [maker] })] },
  },
  sent('POST /schemas/import', { version: '1.0', schemas: [maker] }),
  sent('POST /schemas', { collectionName: 'draft', schema: { fields: { name: { type: 'String' } } } }, { status: 201 }),
  plain('DELETE /schemas/{collection}', '/schemas/draft'),
]

export const items: readonly Example[] = [
  sent(
    'POST /items/{collection}',
    { name: 'Babbage & Sons' },
    { path: '/items/maker', status: 201, keep: { maker: 'data.id' } },
  ),
  sent(
    'POST /items/{collection}',
    {
      number: 1,
      name: 'Difference engine',
      price: 900.5,
      state: 'on sale',
      maker: '{{maker}}',
      released: '2026-03-14T09:26:53Z',
    },
    { path: '/items/product?fields=id,name,maker.name', status: 201, keep: { product: 'data.id' } },
  ),
  sent(
    'PUT /items/{collection}',
    { number: 7, name: 'Analytical engine', price: 1200 },
    { path: '/items/product?key=number', status: 201, keep: { other: 'data.id' } },
  ),
  sent(
    'POST /items/{collection}/bulk',
    [
      { number: 8, name: 'Punched cards', price: 2.5 },
      { number: 9, name: 'Printer', price: 310 },
    ],
    { path: '/items/product/bulk', status: 201, keep: { cards: 'data.0', printer: 'data.1' } },
  ),
  plain(
    'GET /items/{collection}',
    '/items/product?filter={"price":{"lt":1000}}&fields=name,price,maker.name&sort=-price&limit=10',
  ),
  plain('GET /items/{collection}/{id}', '/items/product/{{product}}?fields=name,maker.name'),
  sent('PATCH /items/{collection}/{id}', { price: 950 }, { path: '/items/product/{{product}}?fields=name,price' }),
  sent(
    'PATCH /items/{collection}/bulk',
    [
      { id: '{{cards}}', price: 3 },
      { id: '{{printer}}', state: 'on sale' },
    ],
    { path: '/items/product/bulk' },
  ),
  sent(
    'POST /utils/sort/{collection}',
    { item: '{{printer}}', to: '{{product}}', mode: 'before' },
    { path: '/utils/sort/product' },
  ),
  plain('GET /items/{collection}/export', '/items/product/export?format=csv&fields=number,name,maker.name'),
  plain('GET /estimates', '/estimates?collections=product'),
  {
    route: 'POST /items/{collection}/import-csv',
    path: '/items/product/import-csv?dryRun=true',
    form: { csvFile: ['products.csv', 'number,name,price\r\n20,Abacus,12\r\n'] },
  },
  {
    route: 'POST /items/{collection}/import-json',
    path: '/items/product/import-json',
    form: { jsonFile: ['products.json', '[{"number":21,"name":"Slide rule","price":"15"}]'] },
  },
  plain('GET /history/now'),
  plain('GET /items/{collection}/{id}/history', '/items/product/{{product}}/history', { keep: { event: 'data.1.id' } }),
  sent('POST /items/{collection}/{id}/restore', { event: '{{event}}' }, { path: '/items/product/{{product}}/restore' }),
  plain('DELETE /items/{collection}/{id}', '/items/product/{{cards}}'),
  plain('GET /items/{collection}/deleted', '/items/product/deleted'),
  sent('DELETE /items/{collection}/bulk', ['{{printer}}'], { path: '/items/product/bulk', status: 204 }),
  plain('DELETE /items/{collection}/{id}/history', '/items/product/{{cards}}/history'),
  plain('GET /changes', '/changes?collections=product'),
  sent(
    'POST /reports/{collection}',
    { aggregate: { total: { function: 'sum', field: 'price' } }, groupBy: ['maker_id'], sort: ['-total'] },
    { path: '/reports/product' },
  ),
  plain(
    'GET /reports/{collection}',
    '/reports/product?aggregate={"count":{"function":"count","field":"*"}}&groupBy=state',
  ),
  sent('POST /reports/stats', { stats: [{ name: 'products', collection: 'product', query: { limit: 0 } }] }),
  plain('GET /reports/stats', '/reports/stats?stats=[{"name":"products","collection":"product","query":{"limit":0}}]'),
]

export const log: readonly Example[] = [
  plain('GET /log/requests', '/log/requests?collection=product&limit=2', { keep: { request: 'data.0.requestId' } }),
  plain('GET /log/requests/{id}', '/log/requests/{{request}}'),
  plain('GET /log/requests/{id}/effects', '/log/requests/{{request}}/effects'),
  plain('GET /log/facets'),
  plain('GET /log/moments', '/log/moments?collections=product'),
  sent('POST /log/undo', { requestId: '{{request}}', dryRun: true }),
  plain('GET /log/export'),
  plain('GET /.well-known/daybook-log-key', undefined, { as: 'nobody' }),
]
