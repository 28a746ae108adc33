import { createHook } from 'node:async_hooks'
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { gunzipSync } from 'node:zlib'
import { createClient } from '@hey-api/openapi-ts'
import { Validator } from '@seriousme/openapi-schema-validator'
import { build } from 'esbuild'
import openapiTS, { astToString } from 'openapi-typescript'
import ts from 'typescript'
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { type Api, type Call, startApi } from '../support/api.ts'
import { storeKey } from '../support/api-keys.ts'
import { administrator } from '../support/prepare.ts'

const everything = {
  OPENAPI_INCLUDE_AUTH: 'true',
  OPENAPI_INCLUDE_SCHEMA: 'true',
  OPENAPI_INCLUDE_PERMISSIONS: 'true',
  OPENAPI_INCLUDE_SETTINGS: 'true',
  OPENAPI_INCLUDE_NOTIFICATIONS: 'true',
  OPENAPI_INCLUDE_MULTI_TENANT: 'true',
  OPENAPI_INCLUDE_UTILS: 'true',
}

let api: Api
/** With every family. */
let open: Api

beforeAll(async () => {
  api = await startApi()
  open = await startApi({ ...everything, SOCKET_ENABLED: 'true' }, api.database)
  const schemas = {
    maker: {
      fields: {
        name: { type: 'String', allowNull: false, description: 'As on the label' },
        secret: { type: 'String' },
      },
    },
    product: {
      description: 'What is sold',
      sortEnabled: true,
      fields: {
        number: { type: 'Integer', allowNull: false, unique: true, validate: { min: 1 } },
        name: { type: 'String', values: { stringLength: 40 } },
        state: { type: 'ENUM', values: ['new', 'old'], defaultValue: 'new' },
        price: { type: 'Decimal', values: { precision: 10, scale: 2 } },
        sold: { type: 'BigInt' },
        at: { type: 'DateTime' },
        day: { type: 'Date' },
        tags: { type: 'Array_String' },
        span: { type: 'Range_Integer' },
        extra: { type: 'JSON' },
        pin: { type: 'String', hidden: true },
        label: { type: 'VIRTUAL', calculated: "coalesce(name, '')" },
        maker: { relType: 'BelongsTo', target: 'maker' },
      },
    },
  }
  for (const [collectionName, schema] of Object.entries(schemas)) {
    const { status, text } = await api.admin('POST', '/schemas', { collectionName, schema })
    expect(text).toContain('created')
    expect(status).toBe(201)
  }
})

const documentOf = async (call: Call) => {
  const { status, body } = await call('GET', '/openapi')
  expect(status).toBe(200)
  return body
}

describe('GET /openapi', () => {
  it('describes the fields of a collection in their JSON form', async () => {
    const { paths, components } = await documentOf(api.admin)
    expect(unused({ paths, components })).toEqual([])
    expect(components.schemas.product).toMatchObject({
      description: 'What is sold',
      properties: {
        id: { type: 'string', format: 'uuid' },
        number: { type: 'integer' },
        name: { type: ['string', 'null'] },
        state: { enum: ['new', 'old', null] },
        price: { type: ['string', 'null'] },
        sold: { type: ['integer', 'string', 'null'] },
        at: { type: ['string', 'null'], format: 'date-time' },
        tags: { type: ['array', 'null'], items: { type: ['string', 'null'] } },
        span: {
          anyOf: [
            { properties: { lower: { type: ['integer', 'null'] }, lowerInclusive: { type: 'boolean' } } },
            { properties: { empty: { const: true } }, required: ['empty'] },
            { type: 'null' },
          ],
        },
        maker: { anyOf: [{ $ref: '#/components/schemas/maker' }, { type: 'null' }] },
      },
    })
    expect(components.schemas.product.properties).not.toHaveProperty('pin')
    expect(components.schemas['product.new']).toMatchObject({
      required: ['number'],
      properties: {
        number: { minimum: 1 },
        name: { maxLength: 40 },
        state: { default: 'new' },
        price: { type: ['string', 'number', 'null'] },
        pin: { writeOnly: true },
      },
    })
    expect(components.schemas['product.new'].properties).not.toHaveProperty('label')
    expect(components.schemas['product.change'].properties).not.toHaveProperty('id')
    expect(components.schemas.maker.properties.name.description).toBe('As on the label')
  })

  it('describes how many items are changed: each by its key, with its changes beside it or apart', async () => {
    const { paths } = await documentOf(api.admin)
    const { schema } = paths['/items/product/bulk'].patch.requestBody.content['application/json']
    const change = { $ref: '#/components/schemas/product.change' }
    const key = { type: 'string', format: 'uuid' }
    expect(schema.items).toEqual({
      anyOf: [
        { allOf: [{ type: 'object', properties: { id: key }, required: ['id'] }, change] },
        { type: 'object', properties: { id: key, data: change }, required: ['id', 'data'] },
      ],
    })
    const made = await api.admin('POST', '/items/maker/bulk', [{ name: 'one' }, { name: 'two' }])
    const ids = made.body.data
    const changes = [
      { id: ids[0], name: 'flat' },
      { id: ids[1], data: { name: 'apart' } },
    ]
    const after = await api.position()
    expect((await api.admin('PATCH', '/items/maker/bulk', changes)).body).toEqual({ data: ids })
    expect((await api.log(after)).map(({ changes }) => changes.after.name)).toEqual(['flat', 'apart'])
  })

  it('describes related rows as they are taken: a list, whose rows replace all others', async () => {
    const define = (collectionName: string, schema: object) => api.admin('POST', '/schemas', { collectionName, schema })
    const line = { fields: { text: { type: 'String' }, bill: { relType: 'BelongsTo', target: 'bill' } } }
    const bill = { fields: { lines: { relType: 'HasMany', target: 'line', foreignKey: 'bill_Id' } } }
    onTestFinished(async () => {
      for (const name of ['line', 'bill']) await api.admin('DELETE', `/schemas/${name}`)
    })
    expect((await define('bill', { fields: { number: { type: 'Integer' } } })).status).toBe(201)
    expect((await define('line', line)).status).toBe(201)
    expect((await api.admin('PATCH', '/schemas/bill', { schema: bill })).status).toBe(200)
    const { components } = await documentOf(api.admin)
    const lines = {
      type: 'array',
      items: {
        anyOf: [
          { type: 'string', format: 'uuid' },
          { type: 'object', additionalProperties: true },
        ],
      },
    }
    const description = 'Rows of line or their keys'
    expect(components.schemas['bill.new'].properties.lines).toEqual({ ...lines, description: `${description}.` })
    expect(components.schemas['bill.change'].properties.lines).toEqual({
      ...lines,
      description: `${description}: those of the list replace all.`,
    })
    const made = await api.admin('POST', '/items/bill?fields=id,lines.text', { lines: [{ text: 'a' }, { text: 'b' }] })
    expect(made.body.data.lines).toHaveLength(2)
    const changed = (value: unknown) =>
      api.admin('PATCH', `/items/bill/${made.body.data.id}?fields=lines.text`, { lines: value })
    for (const other of [null, { create: [{ text: 'c' }] }, { update: [] }, { delete: [] }])
      expect((await changed(other)).body.error.details).toMatchObject([{ field: 'lines', message: 'expected a list' }])
    expect((await changed([{ text: 'c' }])).body.data.lines).toMatchObject([{ text: 'c' }])
  })

  it('declares what operations answer besides rows and JSON', async () => {
    const described = await startApi({ ...everything, MCP_ENABLED: 'true' }, api.database)
    const { paths } = await documentOf(described.admin)
    const typesOf = ({ content }: any) => Object.keys(content)
    const file = paths['/items/maker/export'].get.responses[200].content
    expect(Object.keys(file)).toEqual(['text/csv', 'application/json'])
    expect(file['application/json'].schema.items).toEqual({ $ref: '#/components/schemas/maker' })
    const exported = await described.admin('GET', '/items/maker/export?format=json')
    expect([exported.status, exported.headers['content-type']]).toEqual([
      200,
      expect.stringContaining('application/json'),
    ])
    expect(Array.isArray(exported.body)).toBe(true)
    const stream = paths['/mcp'].get.responses
    expect(Object.keys(stream).filter((status) => /^[23]/.test(status))).toEqual([])
    expect(stream[405].content['application/json']).toBeDefined()
    for (const status of [400, 401, 403])
      expect(typesOf(paths['/oauth/authorize'].get.responses[status])).toEqual(['text/html', 'application/json'])
    const { schema } = paths['/workflows'].post.requestBody.content['application/json']
    expect(schema).toMatchObject({ required: ['name'] })
    const { password } = paths['/auth/register'].post.requestBody.content['application/json'].schema.properties
    expect(password.description).toBe('8 to 128 characters.')
    const missing = { $ref: '#/components/responses/general.404' }
    for (const path of ['/reports/stats', '/permissions/explain', '/changes'])
      expect([path, paths[path].get.responses[404]]).toEqual([path, missing])
  })

  it('shows no example of rows that the collection could not have, and answers as they come', async () => {
    const { paths } = await documentOf(api.admin)
    const bodies = Object.entries<any>(paths)
      .filter(([path]) => path.startsWith('/items/product'))
      .flatMap(([, operations]) => Object.values<any>(operations))
      .flatMap(({ requestBody }) =>
        requestBody === undefined ? [] : [Object.values<any>(requestBody.content)[0].schema],
      )
    expect(bodies.length).toBeGreaterThan(5)
    expect(bodies.filter(({ examples }) => examples !== undefined)).toEqual([])
    expect(Object.keys(paths['/webhook/{path}'].post.responses)).toContain('2XX')
    const types = (path: string) => Object.keys(paths[path].get.responses[200].content)
    expect(types('/assets/{id}')).toEqual(['*/*'])
    expect([types('/console/mail-view'), types('/console/mail-view.js')]).toEqual([['text/html'], ['text/javascript']])
  })

  it('shows a caller the collections, fields and routes that it may use, and nothing else', async () => {
    const { call, token } = await api.user([
      { collection: 'product', action: 'read', fields: ['name', 'maker.name'] },
      { collection: 'product', action: 'update', fields: ['name'] },
    ])
    const { paths, components } = await documentOf(call)
    expect(Object.keys(components.schemas.product.properties).sort()).toEqual(['id', 'maker', 'name'])
    expect(Object.keys(components.schemas.product.properties.maker.anyOf[0].properties).sort()).toEqual(['id', 'name'])
    expect(Object.keys(components.schemas['product.change'].properties)).toEqual(['name'])
    expect(components.schemas).not.toHaveProperty(['product.new'])
    expect(components.schemas).not.toHaveProperty('maker')
    expect(Object.keys(paths['/items/product'])).toEqual(['get', 'put'])
    expect(Object.keys(paths['/items/product/{id}'])).toEqual(['get', 'patch'])
    expect(paths).not.toHaveProperty(['/items/maker'])
    const { paths: ofStranger } = await documentOf(api.anonymous)
    expect(Object.keys(ofStranger).filter((path) => path.startsWith('/items/'))).toEqual([])
    // A grant is seen at once.
    const { roleId } = await api.user()
    await api.admin('POST', '/permissions', { role_Id: roleId, collection: 'maker', action: 'read' })
    expect((await documentOf(api.as(token))).paths).not.toHaveProperty(['/items/maker'])
  })

  it('says what each group of routes is about', async () => {
    const { tags, paths } = await documentOf(api.admin)
    const described = new Map<string, string>(
      tags.map((tag: { name: string; description: string }) => [tag.name, tag.description]),
    )
    const used = Object.values(paths).flatMap((path) => Object.values(path as object).flatMap((one) => one.tags ?? []))
    expect(used.filter((tag) => !described.get(tag))).toEqual([])
    expect(described.get('product')).toBe('What is sold')
    expect(described.get('Assets')).toBe('Stored images in another size or format.')
    expect([...described.values()]).not.toContain('Routes of an extension of this installation.')
  })

  it('types the parameters of the query language, with examples', async () => {
    const { paths, components } = await documentOf(api.admin)
    const asked = paths['/items/product'].get.parameters.map(({ $ref }: { $ref: string }) => $ref.split('/').at(-1))
    const typed = Object.fromEntries(asked.map((name: string) => [name, components.parameters[name]]))
    expect(typed).toMatchObject({
      fields: { in: 'query', style: 'form', explode: false, schema: { type: 'array', items: { type: 'string' } } },
      filter: { schema: { type: 'string', contentMediaType: 'application/json', contentSchema: { type: 'object' } } },
      limit: { schema: { type: 'integer', minimum: -1 } },
      page: { schema: { type: 'integer', minimum: 1 } },
      count: { schema: { type: 'boolean' } },
      cache: { schema: { anyOf: [{ type: 'boolean' }, { const: 'reload' }, { type: 'integer' }] } },
    })
    for (const { schema } of Object.values<any>(typed)) expect(schema.examples).toHaveLength(1)
  })

  it('names the families that are off with their variable, and shows those that are on', async () => {
    const { paths, 'x-hidden-families': hidden } = await documentOf(api.admin)
    expect(paths).not.toHaveProperty(['/auth/login'])
    expect(hidden).toContainEqual({
      name: 'Signing in, Account, Sessions, Passkeys, Two-factor, API keys, OAuth',
      variable: 'OPENAPI_INCLUDE_AUTH',
    })
    const all = await documentOf(open.admin)
    expect(all['x-hidden-families']).toEqual([])
    for (const path of ['/auth/login', '/schemas', '/permissions', '/settings', '/notifications', '/ops/jobs'])
      expect(all.paths).toHaveProperty([path])
    expect(all.paths['/auth/login'].post.responses).toMatchObject({
      200: { content: { 'application/json': {} } },
      401: { $ref: '#/components/responses/auth.401' },
    })
    const stranger = await documentOf(open.anonymous)
    expect(stranger.paths).toHaveProperty(['/auth/login'])
    expect(stranger.paths).not.toHaveProperty(['/ops/jobs'])
    const [{ id }] = await api.sql(`select id from "svc_User" where email = 'admin@example.com'`)
    const byKey = open.as(await storeKey(open, id))
    expect((await documentOf(byKey)).paths).not.toHaveProperty(['/auth/api-keys'])
  })

  it('hides collections from strangers with SCHEMAS_PUBLIC=false', async () => {
    const [publicRole] = await api.sql(`select id from "svc_Role" where name = 'public'`)
    await api.admin('POST', '/permissions', { role_Id: publicRole.id, collection: 'product', action: 'read' })
    expect((await documentOf(api.anonymous)).paths).toHaveProperty(['/items/product'])
    const closed = await startApi({ SCHEMAS_PUBLIC: 'false' }, api.database)
    const { paths, components } = await documentOf(closed.anonymous)
    expect(unused({ paths, components })).toEqual([])
    expect(Object.keys(paths).filter((path) => path.includes('product'))).toEqual([])
    expect(JSON.stringify(components)).not.toContain('product')
  })

  it('can be kept: equal texts, ETag, Vary, and 304 until something changes', async () => {
    const first = await api.admin('GET', '/openapi')
    const other = (await open.admin('GET', '/openapi')).body
    expect(JSON.stringify(other.components)).toContain(JSON.stringify(first.body.components.schemas.product))
    expect(JSON.stringify(other.paths['/items/product'])).toBe(JSON.stringify(first.body.paths['/items/product']))
    expect(Object.keys(other.paths).filter((path) => path in first.body.paths)).toEqual(Object.keys(first.body.paths))
    expect((await api.admin('GET', '/openapi')).text).toBe(first.text)
    const { etag, vary } = first.headers as Record<string, string>
    expect(vary).toMatch(/Authorization, Cookie, Accept-Encoding$/)
    const unchanged = await api.admin('GET', '/openapi', undefined, { 'if-none-match': etag! })
    expect(unchanged).toMatchObject({ status: 304, text: '' })
    const schema = { fields: { more: { type: 'String' } } }
    await api.admin('PATCH', '/schemas/maker', { schema })
    const changed = await api.admin('GET', '/openapi', undefined, { 'if-none-match': etag! })
    expect(changed.body.components.schemas.maker.properties).toHaveProperty('more')
  })

  it('describes the routes of extensions that declare a schema', async () => {
    const directory = await mkdtemp(join(tmpdir(), 'daybook-extensions-'))
    onTestFinished(() => rm(directory, { recursive: true }))
    await mkdir(join(directory, 'svc-endpoint-weather'))
    await writeFile(
      join(directory, 'svc-endpoint-weather/index.js'),
      `const querystring = { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] }
      const response = { 200: { type: 'object', properties: { degrees: { type: 'number' } } } }
      const handler = (app) => {
        app.get('/now/:station', { schema: { summary: 'The weather', querystring, response } }, async () => ({ degrees: 21 }))
        app.get('/hidden', async () => 'nothing is said of it')
      }
      export default { id: 'weather', handler }`,
    )
    const extended = await startApi({ EXTENSIONS_DIR: directory }, api.database)
    const { paths, tags } = await documentOf(extended.anonymous)
    expect(tags).toContainEqual({ name: 'weather', description: 'Routes of an extension of this installation.' })
    expect(Object.keys(paths).filter((path) => path.startsWith('/weather'))).toEqual(['/weather/now/{station}'])
    expect(paths['/weather/now/{station}'].get).toMatchObject({
      summary: 'The weather',
      tags: ['weather'],
      parameters: [
        { name: 'station', in: 'path', required: true },
        { name: 'city', in: 'query', required: true },
      ],
      responses: {
        200: { content: { 'application/json': { schema: { properties: { degrees: { type: 'number' } } } } } },
      },
    })
  })

  it('says of lists how they are taken: to fields by commas, to extensions by repetition', async () => {
    const directory = await mkdtemp(join(tmpdir(), 'daybook-extensions-'))
    onTestFinished(() => rm(directory, { recursive: true }))
    await mkdir(join(directory, 'svc-endpoint-count'))
    await writeFile(
      join(directory, 'svc-endpoint-count/index.js'),
      `const querystring = { type: 'object', properties: { day: { type: 'array', items: { type: 'string' } } } }
      export default { id: 'count', handler: (app) => app.get('/days', { schema: { querystring } }, async ({ query }) => query.day) }`,
    )
    const crates = await startApi({ EXTENSIONS_DIR: directory })
    const { paths } = await documentOf(crates.admin)
    const listed = ({ parameters }: any) => parameters.find(({ schema }: any) => schema?.type === 'array')
    expect(listed(paths['/count/days'].get)).toEqual({
      ...{ name: 'day', in: 'query', required: false },
      schema: { type: 'array', items: { type: 'string' } },
    })
    expect((await crates.anonymous('GET', '/count/days?day=a&day=b')).body).toEqual(['a', 'b'])
  })

  it('is answered from memory with two hundred collections, also compressed', async () => {
    const large = await startApi()
    const fields = { name: { type: 'String' }, number: { type: 'Integer' }, at: { type: 'DateTime' } }
    const before = { relType: 'BelongsTo', target: 'c0' }
    const schemas = Array.from({ length: 200 }, (_, n) => ({
      collectionName: `c${n}`,
      schema: { fields: n === 0 ? fields : { ...fields, before } },
    }))
    const imported = await large.admin('POST', '/schemas/import', {
      version: '1.0',
      timestamp: '2026-01-01T00:00:00.000Z',
      schemas,
    })
    expect(imported.text).toContain('completed')
    const first = await large.admin('GET', '/openapi')
    expect(Object.keys(first.body.components.schemas).length).toBeGreaterThan(600)
    const { body } = await large.anonymous('POST', '/auth/login', administrator)
    const asked = { authorization: `Bearer ${body.token}`, 'accept-encoding': 'gzip' }
    // A description that is made again would be compressed again: each compression is a resource of zlib.
    let compressions = 0
    const count = (_id: number, type: string) => {
      if (type === 'ZLIB') compressions += 1
    }
    const counting = createHook({ init: count }).enable()
    onTestFinished(() => void counting.disable())
    for (let n = 0; n < 5; n += 1) {
      const { rawPayload, statusCode, headers } = await large.app.inject({ url: '/openapi', headers: asked })
      expect(compressions).toBe(1)
      expect([statusCode, headers.etag, headers['content-encoding']]).toEqual([200, first.headers.etag, 'gzip'])
      expect(rawPayload.length).toBeLessThan(first.text.length / 10)
      counting.disable()
      expect(JSON.parse(gunzipSync(rawPayload).toString())).toEqual(first.body)
      counting.enable()
    }
  })

  it('is no route with OPENAPI_ENABLED=false', async () => {
    const off = await startApi({ OPENAPI_ENABLED: 'false' }, api.database)
    expect((await off.admin('GET', '/openapi')).status).toBe(404)
    expect((await off.admin('GET', '/docs')).status).toBe(404)
  })
})

describe('generators that read the document', () => {
  let document: any
  let directory: string
  beforeAll(async () => {
    document = await documentOf(open.admin)
    directory = await mkdtemp(join(tmpdir(), 'daybook-openapi-'))
  })
  afterAll(() => rm(directory, { recursive: true }))

  it('is valid OpenAPI 3.1', async () => {
    expect(await new Validator().validate(structuredClone(document))).toMatchObject({ valid: true })
    const ids = Object.values(document.paths).flatMap((path: any) =>
      Object.values(path).map((one: any) => one.operationId),
    )
    expect(new Set(ids).size).toBe(ids.length)
    const missing = [...JSON.stringify(document).matchAll(/"\$ref":"#\/components\/(\w+)\/([^"]+)"/g)].filter(
      ([, kind, name]) => document.components[kind!][name!] === undefined,
    )
    expect(missing).toEqual([])
  })

  it('gives types by openapi-typescript that compile', async () => {
    await writeFile(
      join(directory, 'api.ts'),
      astToString(await openapiTS(structuredClone(document), { defaultNonNullable: false })),
    )
    await writeFile(
      join(directory, 'use.ts'),
      `import type { components, paths } from './api.ts'
      type Product = components['schemas']['product']
      type List = paths['/items/product']['get']['responses'][200]['content']['application/json']
      export const row: Product = { number: 1, state: 'new', price: '1.20', maker: { name: 'A' } }
      export const names = (list: List): (string | null | undefined)[] => list.data.map(({ name }) => name)
      type Changes = paths['/items/product/bulk']['patch']['requestBody']['content']['application/json']
      export const changes: Changes = [{ id: '1', name: 'B' }, { id: '2', data: { name: 'C' } }]
      // @ts-expect-error: whose name
      export const nameless: Changes = [{ name: 'B' }]
      type NewProduct = components['schemas']['product.new']
      export const nested: NewProduct = { number: 1, maker: { name: 'A' } }
      // @ts-expect-error: no such state
      export const wrong: Product = { state: 'other' }
      // @ts-expect-error: the number is missing
      export const lacking: components['schemas']['product.new'] = {}`,
    )
    expect(compiled(join(directory, 'use.ts'))).toEqual([])
  })

  it('gives a client by openapi-ts that compiles and works', async () => {
    const extensions = join(directory, 'extensions')
    await mkdir(join(extensions, 'svc-endpoint-weather'), { recursive: true })
    await writeFile(join(extensions, 'svc-endpoint-weather/index.js'), weather)
    const live = await startApi({ EXTENSIONS_DIR: extensions, OPENAPI_INCLUDE_AUTH: 'true' }, api.database)
    const address = await live.app.listen({ host: '127.0.0.1', port: 0 })
    const all = ['create', 'read', 'update', 'delete']
    const { email, token } = await api.user([
      ...all.map((action) => ({ collection: 'product', action, fields: ['*', 'maker.*'] })),
      ...all.map((action) => ({ collection: 'svc_File', action, fields: '*' })),
      { collection: 'maker', action: 'read', fields: '*' },
    ])
    const call = live.as(token)
    // The document of a user with few rights is small, and generating takes its time by what there is.
    const input = await documentOf(call)
    await createClient({
      input,
      output: join(directory, 'client'),
      plugins: ['@hey-api/typescript', '@hey-api/sdk', '@hey-api/client-fetch'],
      logs: { level: 'silent', file: false },
    })
    await writeFile(join(directory, 'smoke.ts'), smoke)
    expect(compiled(join(directory, 'smoke.ts'))).toEqual([])
    const bundle = join(directory, 'smoke.mjs')
    await build({
      entryPoints: [join(directory, 'smoke.ts')],
      bundle: true,
      format: 'esm',
      platform: 'node',
      outfile: bundle,
    })
    const { run } = await import(bundle)
    const [maker] = await api.sql(`insert into maker (name) values ('Ada & Co') returning id`)
    expect(await run(address, email, 'password of a user', maker.id)).toEqual({
      list: [{ number: 7, name: 'Gear', maker: { id: maker.id, name: 'Ada & Co' } }],
      totalCount: 1,
      changed: { name: 'Wheel', state: 'old' },
      report: [{ state: 'old', pieces: 1 }],
      file: { title: 'Note', type: 'text/plain' },
      weather: { degrees: 21, city: 'Zürich' },
      missing: [403, 'FORBIDDEN'],
      wrong: [400, 'BAD_QUERY'],
      left: 0,
    })
    const [{ count }] = await api.sql(`select count(*)::int from "svc_AuditLog" where entity = 'product'`)
    expect(count).toBe(3)
  })
})

const weather = `
  const params = { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] }
  const body = { type: 'object', properties: { degrees: { type: 'number' } }, required: ['degrees'] }
  const answer = { type: 'object', properties: { degrees: { type: 'number' }, city: { type: 'string' } }, required: ['degrees', 'city'] }
  const schema = { summary: 'Say the weather', params, body, response: { 200: answer } }
  const handler = (app) => app.post('/say/:city', { schema }, async ({ params, body }) => ({ ...body, ...params }))
  export default { id: 'weather', handler }
`

/** The code of a user who has nothing but the generated client. */
const smoke = `
  import { client } from './client/client.gen'
  import * as api from './client/sdk.gen'
  import type { Product } from './client/types.gen'

  export async function run(baseUrl: string, email: string, password: string, maker: string) {
    client.setConfig({ baseUrl })
    const { data: session } = await api.postAuthLogin({ body: { email, password }, throwOnError: true })
    if (!('token' in session)) throw new Error('no token')
    client.setConfig({ auth: () => session.token as string })
    const made = await api.postItemsProduct({ body: { number: 7, name: 'Gear', maker_Id: maker }, throwOnError: true })
    const id = made.data.data.id as string
    const query = { filter: JSON.stringify({ number: { gte: 7 } }), fields: ['number', 'name', 'maker.name'], sort: ['-number'], limit: 10, count: true }
    const { data: list } = await api.getItemsProduct({ query, throwOnError: true })
    const rows: Product[] = list.data
    await api.patchItemsByIdProduct({ path: { id }, body: { name: 'Wheel', state: 'old' }, throwOnError: true })
    const { data: changed } = await api.getItemsByIdProduct({ path: { id }, query: { fields: ['name', 'state'] }, throwOnError: true })
    const { name, state } = changed.data
    const { data: report } = await api.postReportsProduct({
      body: { aggregate: { pieces: { function: 'count', field: '*' } }, groupBy: ['state'] },
      throwOnError: true,
    })
    const note = new File(['a note'], 'note.txt', { type: 'text/plain' })
    const { data: saved } = await api.postFiles({ body: { file: note, title: 'Note' }, throwOnError: true })
    const { data: file } = await api.getFilesById({ path: { id: saved.data }, query: { fields: ['title', 'type'] }, throwOnError: true })
    const { data: weather } = await api.postWeatherSayByCity({ path: { city: 'Zürich' }, body: { degrees: 21 }, throwOnError: true })
    await api.deleteItemsByIdProduct({ path: { id }, throwOnError: true })
    const missing = await api.getItemsByIdProduct({ path: { id } })
    const wrong = await api.getItemsProduct({ query: { filter: '{"nothing":1}' } })
    const { data: left } = await api.getItemsProduct({ query: { limit: 0 }, throwOnError: true })
    return {
      list: rows, totalCount: list.totalCount, changed: { name, state }, report: report.data,
      file: { title: file.data.title, type: file.data.type }, weather,
      missing: [missing.response?.status, missing.error?.error.code],
      wrong: [wrong.response?.status, wrong.error?.error.code],
      left: left.totalCount,
    }
  }
  // @ts-expect-error: the number is missing
  export const lacking = () => api.postItemsProduct({ body: { name: 'x' } })
  // @ts-expect-error: a limit is a number
  export const wrong = () => api.getItemsProduct({ query: { limit: 'many' } })
`

/** What the compiler says of a file and those that it imports. */
function compiled(file: string): string[] {
  const program = ts.createProgram([file], {
    noEmit: true,
    strict: true,
    skipLibCheck: true,
    types: [],
    target: ts.ScriptTarget.ES2022,
    lib: ['lib.es2022.d.ts', 'lib.dom.d.ts', 'lib.dom.iterable.d.ts'],
    module: ts.ModuleKind.ESNext,
    moduleResolution: ts.ModuleResolutionKind.Bundler,
    allowImportingTsExtensions: true,
  })
  return ts.getPreEmitDiagnostics(program).map(({ messageText }) => ts.flattenDiagnosticMessageText(messageText, ' '))
}

/** Components that nothing of the document names. */
function unused(document: { paths: object; components: Record<string, object> }): string[] {
  const text = JSON.stringify(document)
  const { securitySchemes: _schemes, ...others } = document.components
  return Object.entries(others).flatMap(([kind, components]) =>
    Object.keys(components).filter((name) => !text.includes(`"#/components/${kind}/${name}"`)),
  )
}
