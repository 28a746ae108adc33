import { expect, it } from 'vitest'
import { type Api, startApi } from '../support/api.ts'
import { administrator } from '../support/prepare.ts'
import { mulberry } from '../support/random.ts'

/**
 * Every route of the description of the API gets requests that it allows, nearly allows and does not allow. No answer says that the
 * server has failed, and none shows SQL or code. Routes of system collections get `TEST_FUZZ` requests, all others five times as many.
 */

const seed = Number(process.env.TEST_SEED ?? Date.now() % 1_000_000)
const each = Number(process.env.TEST_FUZZ ?? 1)

const random = mulberry(seed)
const chance = (of: number) => random() < of
const upTo = (most: number) => Math.floor(random() * (most + 1))
const pick = <T>(from: readonly T[]): T => from[Math.floor(random() * from.length)]!

const nested = (depth: number): unknown => (depth === 0 ? 1 : { and: [nested(depth - 1)] })

const strangeTexts = [
  '',
  ' ',
  '\u0000',
  'a\u0000b',
  '\ud800',
  '😀'.repeat(200),
  "'; drop table thing; --",
  '"',
  '\\',
  '%',
  '../../../etc/passwd',
  '{{7*7}}',
  '<script>alert(1)</script>',
  'x'.repeat(5000),
  '$NOW',
  '$CURRENT_USER.role.name',
  '$nothing',
  '-1',
  '1e400',
  '99999999999999999999999',
  '0x10',
  'NaN',
  'null',
  'true',
  '[]',
  '{}',
  '{',
  '2024-02-30',
  '0000-00-00T00:00:00Z',
  '99999-01-01',
  'infinity',
  '24:00:00',
  '00000000-0000-0000-0000-000000000000',
  'id',
  '*',
  '*.*',
  '-id',
  'owner.owner.owner.id',
  '__proto__',
  'constructor',
  'https://127.0.0.1:1/',
  'a@b',
  'svc_User',
]
const strangeValues = [
  null,
  true,
  false,
  0,
  -1,
  1.5,
  -0,
  1e308,
  2 ** 53,
  2 ** 31,
  [],
  {},
  [[]],
  [null],
  [{}],
  { eq: null },
  { in: [] },
  { in: 'x' },
  { gt: {} },
  { '': 1 },
  { and: {} },
  { or: [[]] },
  { not: [] },
  { $gt: 1 },
  { length: 3 },
  JSON.parse('{"__proto__":{"admin":true},"constructor":{"prototype":1}}'),
  nested(30),
  nested(500),
]
const strange = (): unknown => (chance(0.5) ? pick(strangeTexts) : pick(strangeValues))

type Schema = any
type Operation = { readonly method: string; readonly path: string; readonly parameters: any[]; readonly bodies: any }

let api: Api
let document: any
/** Of rows that are there. */
let ids: string[]
const idsOf = new Map<string, readonly string[]>()
/** Rows that a path is about. */
const known = (path: string) => idsOf.get(/^\/items\/(\w+)/.exec(path)?.[1] ?? '') ?? ids

const resolved = (schema: Schema): Schema =>
  schema?.$ref === undefined
    ? schema
    : resolved(
        schema.$ref
          .slice(2)
          .split('/')
          .reduce((at: any, name: string) => at?.[name], document),
      )

const columns = ['id', 'text', 'long', 'count', 'big', 'price', 'yes', 'day', 'at', 'json', 'ref', 'kind', 'part_Id']
const paths = [
  ...columns,
  'part.text',
  'part.count',
  'part.part.id',
  'part',
  'createdAt',
  'deletedAt',
  'date:year:at',
  '*',
  'part.*',
]
const operators =
  `eq ne not gt gte lt lte between notBetween in notIn is isNull isNotNull empty like notLike iLike startsWith nendsWiths regex
  arraycontains overlaps arraylength arrayempty jsonbContains jsonbHasKey jsonbHasAnyKeys jsonbPathExists jsonbPathMatch jsonbKeyEquals
  jsonbKeyGt jsonbKeyIn jsonbKeyLike jsonbKeyIsNull jsonbArrayLength jsonbTypeOf jsonbDeepValue dwithin vectorL2`.split(
    /\s+/,
  )
const casts = [
  'text',
  'integer',
  'smallint',
  'bigint',
  'numeric',
  'real',
  'boolean',
  'date',
  'timestamptz',
  'time',
  'uuid',
  'jsonb',
  'text[]',
  'money',
]
const operand = (): unknown =>
  pick<() => unknown>([
    strange,
    () =>
      pick([
        0,
        1,
        -1,
        3e9,
        1e19,
        1e40,
        0.5,
        '2024-01-01',
        '10:00',
        'a',
        'true',
        '$.a ? (@ > 1)',
        '$.**',
        '(',
        'a{9999}',
        '$COL(text)',
        '$COL(count::uuid)',
        '$NOW-DAYS_99999999',
      ]),
    () => ({ key: pick(['a', '', 'a.b']), value: strange(), values: [strange()], pattern: pick(['%', '\\']) }),
    () => ({ op: pick(operators), value: strange(), path: pick(['a', '$.a', '{a,b}']), type: pick(['number', 'x']) }),
    () => [strange(), strange()],
    () => pick(ids),
  ])()
const filter = (depth = 0): unknown =>
  depth < 3 && chance(0.25)
    ? { [pick(['AND', 'OR', 'NOT', 'part'])]: chance(0.6) ? [filter(depth + 1), filter(depth + 1)] : filter(depth + 1) }
    : {
        [pick(paths)]: chance(0.8)
          ? { [pick(operators)]: operand(), ...(chance(0.15) && { cast: pick(casts) }) }
          : operand(),
      }
const several = (from: readonly string[]) => Array.from({ length: 1 + upTo(2) }, () => pick(from))

/** Values of the parameters of queries, by name: no schema says all that is meant by them. */
const queries: Readonly<Record<string, () => unknown>> = {
  filter,
  having: () => ({ n: { [pick(operators)]: operand() } }),
  fields: () => several(paths),
  sort: () => several(paths).map((one) => (chance(0.5) ? `-${one}` : one)),
  aggregate: () => ({
    n: { function: pick(['count', 'sum', 'avg', 'min', 'max', 'distinct', 'array_agg', 'stddev']), field: pick(paths) },
  }),
  groupBy: () => several([...paths, 'date:month:at', 'date:dow:day', 'date:hour:text', 'date:x:at']),
  relConditions: () => ({ part: filter() }),
  searchFields: () => several(paths),
  search: () => pick(['a', 'a b', "'", ':*', '&|!', '<->']),
  timezone: () => pick(['UTC', 'Europe/Berlin', 'Nowhere', '+25:00', "'"]),
  asOf: () =>
    pick([
      new Date().toISOString(),
      '1970-01-01',
      'x',
      '9999-12-31T23:59:59Z',
      new Date(Date.now() - 500).toISOString(),
    ]),
  limit: () => pick(['0', '1', '-1', '5', '10', '20', '30', '99999999999', 'x']),
  page: () => pick(['1', '2', '3', '4', '5', '0', '9999999999']),
  offset: () => pick(['0', '1', '2', '3', '5', '99999999999999999999']),
  paranoid: () => pick(['true', 'false']),
  sortByRelevance: () => pick(['true', 'false']),
  cursor: () => '',
  key: () => pick(['id', 'text', 'text,count']),
  collections: () => several(['thing', 'part', 'svc_User', 'nothing']),
  collection: () => pick(['thing', 'part', 'nothing']),
}

/** A value that fits a schema for the most part. */
function valueFor(given: Schema, depth = 0): unknown {
  const schema = resolved(given)
  if (typeof schema !== 'object' || depth > 5 || chance(0.02)) return strange()
  const { anyOf, oneOf, allOf, enum: values, properties, additionalProperties, items, required = [] } = schema
  if ('const' in schema) return schema.const
  if (values !== undefined) return pick(values)
  if (schema.example !== undefined && chance(0.3)) return schema.example
  if (anyOf ?? oneOf) return valueFor(pick(anyOf ?? oneOf), depth + 1)
  if (allOf) return Object.assign({}, ...allOf.map((one: Schema) => valueFor(one, depth + 1)))
  const type = Array.isArray(schema.type) ? pick<string>(schema.type) : schema.type
  switch (type) {
    case 'object': {
      const named = Object.entries<Schema>(properties ?? {}).filter(([name]) => required.includes(name) || chance(0.4))
      const object = Object.fromEntries(
        named.map(([name, of]) => [
          name,
          queries[name] !== undefined && chance(0.8) ? queries[name]() : valueFor(of, depth + 1),
        ]),
      )
      if (additionalProperties && chance(0.5)) object[pick(strangeTexts)] = valueFor(additionalProperties, depth + 1)
      return object
    }
    case 'array':
      return Array.from({ length: upTo(3) }, () => valueFor(items, depth + 1))
    case 'integer':
    case 'number':
      return pick([0, 1, 2, 25, -1, schema.maximum ?? 100, schema.minimum ?? 0, 1.5])
    case 'boolean':
      return chance(0.5)
    case 'null':
      return null
    default:
      if (schema.format === 'uuid') return pick(ids)
      if (schema.format === 'date-time') return new Date(random() * 2e12).toISOString()
      return chance(0.8)
        ? pick(['id', 'text', 'thing', 'part', 'abc', `name${upTo(99)}`, 'a@example.com'])
        : pick(strangeTexts)
  }
}

function operations(): Operation[] {
  return Object.entries<any>(document.paths).flatMap(([path, methods]) =>
    ['get', 'post', 'put', 'patch', 'delete']
      .filter((method) => methods[method] !== undefined)
      .map((method) => ({
        method: method.toUpperCase(),
        path,
        parameters: [...(methods.parameters ?? []), ...(methods[method].parameters ?? [])].map(resolved),
        bodies: resolved(methods[method].requestBody)?.content,
      })),
  )
}

const textOf = (value: unknown): string =>
  typeof value === 'string' ? value.replaceAll(/[\ud800-\udfff]/gu, '?') : JSON.stringify(value)

function requestFor({ method, path, parameters, bodies }: Operation) {
  const url = path.replaceAll(/\{(\w+)\}/g, (_, name: string) => {
    const declared = parameters.find((one) => one.in === 'path' && one.name === name)
    const value = chance(0.85) ? pick(known(path)) : textOf(chance(0.8) ? valueFor(declared?.schema) : strange())
    return encodeURIComponent(value).slice(0, 3000)
  })
  const query = parameters
    .filter((one) => one.in === 'query' && chance(0.15))
    .flatMap(({ name, schema, content }) => {
      const of = schema ?? content?.['application/json']?.schema
      const values = Array.from({ length: chance(0.03) ? 2 : 1 }, () =>
        textOf(queries[name] !== undefined && chance(0.9) ? queries[name]() : chance(0.8) ? valueFor(of) : strange()),
      )
      return values.map((value) => `${encodeURIComponent(name)}=${encodeURIComponent(value)}`)
    })
  if (chance(0.02)) query.push(pick(['%E0%A4%A', 'filter[a][b]=1', '&&&=', 'nothing=1', 'filter=%7B%22a%22']))
  const [type, body] = bodyOf(bodies)
  return {
    method: method as 'GET',
    url: `${url}${query.length === 0 ? '' : `?${query.join('&')}`}`.slice(0, 8000),
    ...(body !== undefined && { payload: body }),
    headers: {
      ...(type !== undefined && { 'content-type': type }),
      ...(chance(0.05) && { 'if-match': pick(['"1"', '*', 'x', '"99999999999-a"']) }),
      ...(chance(0.05) && { 'idempotency-key': pick(['a', 'x'.repeat(300), '"']) }),
      ...(chance(0.05) && { accept: pick(['text/csv', 'application/xml', '*', 'image/webp']) }),
    },
  }
}

function bodyOf(bodies: any): [type: string | undefined, body: string | undefined] {
  if (bodies === undefined)
    return chance(0.1) ? ['application/json', JSON.stringify(strange())] : [undefined, undefined]
  const [type, { schema }] = pick(Object.entries<any>(bodies))
  if (type !== 'application/json') return [type, chance(0.5) ? textOf(strange()) : textOf(valueFor(schema))]
  if (chance(0.05)) return [type, pick(['', '{', '[1,', '{"a":1e999}', 'undefined', '\ufeff{}', '{"a":1,"a":2}'])]
  if (chance(0.03)) return [pick(['text/plain', 'application/xml', 'multipart/form-data; boundary=x', 'x']), '{}']
  return [type, JSON.stringify(chance(0.95) ? valueFor(schema) : strange())]
}

/** They end what the others need, and have tests of their own. */
const excluded = [/^\/auth\/(logout|me$)/, /^\/server\/shutdown/]

/** Texts that no answer may contain. */
const inside =
  /node_modules|\bat \S+ \(|\.ts:\d+|\bselect\b.+\bfrom\b "|insert into "|syntax error at or near|violates \w+ constraint "|ECONNREFUSED.*\bat\b/

it(`answers every request, and tells nothing of its inside (seed ${seed})`, async () => {
  api = await startApi()
  const fields = {
    text: { type: 'String' },
    long: { type: 'Text' },
    count: { type: 'Integer' },
    big: { type: 'BigInt' },
    price: { type: 'Decimal', values: { precision: 10, scale: 2 } },
    yes: { type: 'Boolean' },
    day: { type: 'Date' },
    at: { type: 'DateTime' },
    json: { type: 'JSON' },
    ref: { type: 'UUID' },
    kind: { type: 'ENUM', values: ['a', 'b'] },
  }
  for (const collectionName of ['part', 'thing']) {
    const part = { part_Id: { type: 'UUID' }, part: { relType: 'BelongsTo', target: 'part', foreignKey: 'part_Id' } }
    const made = await api.admin('POST', '/schemas', {
      collectionName,
      schema: { paranoid: true, fields: collectionName === 'thing' ? { ...fields, ...part } : fields },
    })
    expect(made.status, made.text).toBe(201)
  }
  const rows = await api.admin('POST', '/items/thing/bulk', [{ text: 'a', count: 1 }, { text: 'b' }, { text: 'c' }])
  expect(rows.status, rows.text).toBe(201)
  ids = (await api.admin('GET', '/items/thing?fields=id')).body.data.map(({ id }: { id: string }) => id)
  expect(ids).toHaveLength(3)
  document = (await api.admin('GET', '/openapi')).body
  // Changes of accounts and their rights would end the caller's own.
  for (const collection of ['svc_Template', 'svc_Settings', 'svc_AuditLog']) {
    const { body } = await api.admin('GET', `/items/${collection}?fields=id&limit=5`)
    const found = body.data.map((row: { id: string }) => row.id)
    if (found.length > 0) idsOf.set(collection, found)
  }
  let token = ''
  const signIn = async () => {
    token = (await api.anonymous('POST', '/auth/login', administrator)).body.token
  }
  await signIn()
  const failures: string[] = []
  const statuses: Record<number, number> = {}
  for (const operation of operations()) {
    if (excluded.some((pattern) => pattern.test(operation.path))) continue
    const times = /^\/(items|reports)\/svc_/.test(operation.path) ? each : 5 * each
    for (let n = 0; n < times; n += 1) {
      const request = requestFor(operation)
      const answer = await api.app.inject({
        ...request,
        headers: { ...request.headers, authorization: `Bearer ${token}` },
      })
      statuses[answer.statusCode] = (statuses[answer.statusCode] ?? 0) + 1
      const text = answer.payload
      const told = answer.statusCode >= 400 ? inside.exec(text)?.[0] : undefined
      if (answer.statusCode >= 500 || told !== undefined)
        failures.push(
          `${answer.statusCode} ${told ?? ''} ${request.method} ${request.url.slice(0, 600)} ${String(request.payload).slice(0, 600)} => ${text.slice(0, 300)}`,
        )
      if (answer.statusCode === 401) await signIn()
    }
  }
  expect(failures).toEqual([])
  expect(statuses[200]).toBeGreaterThan(100)
  expect(statuses[400]).toBeGreaterThan(100)
  expect((await api.admin('GET', '/items/thing')).status).toBe(200)
})
