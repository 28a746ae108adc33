import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Validator } from '@seriousme/openapi-schema-validator'
import openapiTS, { astToString } from 'openapi-typescript'
import ts from 'typescript'
import { beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { type Api, type Call, startApi } from '../support/api.ts'
import { storeKey } from '../support/api-keys.ts'

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
}, 60_000)

const documentOf = async (call: Call) => {
  const { status, body } = await call('GET', '/openapi')
  expect(status).toBe(200)
  return body
}

describe('GET /openapi', () => {
  it('describes the fields of a collection in their JSON form', async () => {
    const { components } = await documentOf(api.admin)
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
    expect(vary).toMatch(/Authorization, Cookie$/)
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
    const { paths } = await documentOf(extended.anonymous)
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

  it('is no route with OPENAPI_ENABLED=false', async () => {
    const off = await startApi({ OPENAPI_ENABLED: 'false' }, api.database)
    expect((await off.admin('GET', '/openapi')).status).toBe(404)
    expect((await off.admin('GET', '/docs')).status).toBe(404)
  })
})

describe('what others make of the document', () => {
  let document: any
  beforeAll(async () => {
    document = await documentOf(open.admin)
  })

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
    const directory = await mkdtemp(join(tmpdir(), 'daybook-openapi-'))
    onTestFinished(() => rm(directory, { recursive: true }))
    await writeFile(join(directory, 'api.ts'), astToString(await openapiTS(structuredClone(document))))
    await writeFile(
      join(directory, 'use.ts'),
      `import type { components, paths } from './api.ts'
      type Product = components['schemas']['product']
      type List = paths['/items/product']['get']['responses'][200]['content']['application/json']
      export const row: Product = { number: 1, state: 'new', price: '1.20', maker: { name: 'A' } }
      export const names = (list: List): (string | null | undefined)[] => list.data.map(({ name }) => name)
      // @ts-expect-error: no such state
      export const wrong: Product = { state: 'other' }
      // @ts-expect-error: the number is missing
      export const lacking: components['schemas']['product.new'] = {}`,
    )
    const program = ts.createProgram([join(directory, 'use.ts')], {
      noEmit: true,
      strict: true,
      skipLibCheck: true,
      types: [],
      target: ts.ScriptTarget.ES2022,
      module: ts.ModuleKind.NodeNext,
      moduleResolution: ts.ModuleResolutionKind.NodeNext,
      allowImportingTsExtensions: true,
    })
    const messages = ts
      .getPreEmitDiagnostics(program)
      .map(({ messageText }) => ts.flattenDiagnosticMessageText(messageText, ' '))
    expect(messages).toEqual([])
  }, 90_000)
})
