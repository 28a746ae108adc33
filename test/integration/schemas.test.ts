import { beforeAll, describe, expect, it } from 'vitest'
import { type Api, startApi } from '../support/api.ts'
import { declaredOf } from '../support/declared.ts'
import { untilAdmitted, waitFor } from '../support/wait.ts'

let api: Api
beforeAll(async () => {
  api = await startApi()
})

const note = {
  fields: {
    title: { type: 'String', allowNull: false, values: { stringLength: 50 } },
    body: { type: 'Text' },
    stars: { type: 'Integer', defaultValue: 3 },
    views: { type: 'BigInt' },
    price: { type: 'Decimal', values: { precision: 10, scale: 2 } },
    ratio: { type: 'Double' },
    done: { type: 'Boolean', defaultValue: false },
    due: { type: 'DateTime' },
    day: { type: 'Date' },
    meta: { type: 'JSON', defaultValue: { a: 1 } },
    ref: { type: 'UUID' },
    level: { type: 'ENUM', values: ['low', 'high'], defaultValue: 'low' },
    slug: { type: 'String', unique: true },
  },
  indexes: [{ fields: ['stars', 'title'] }],
}

describe('POST /schemas', () => {
  it('creates table, definition and event together', async () => {
    const before = await api.position()
    const answer = await api.admin('POST', '/schemas', { collectionName: 'note', schema: note })
    expect(answer).toMatchObject({ status: 201, body: { message: 'Schema created successfully' } })
    const events = await api.log(before)
    expect(events.map(({ type, entity, entityId, action }) => [type, entity, entityId, action])).toEqual([
      ['data', 'svc_SchemaDefinition', 'note', 'create'],
      ['schema', 'svc_SchemaDefinition', 'note', 'changed'],
    ])
    const columns = await api.sql(
      `select column_name, data_type, is_nullable from information_schema.columns where table_name = 'note' order by ordinal_position`,
    )
    expect(columns).toContainEqual({ column_name: 'price', data_type: 'numeric', is_nullable: 'YES' })
    expect(columns).toContainEqual({
      column_name: 'createdAt',
      data_type: 'timestamp with time zone',
      is_nullable: 'NO',
    })
    const indexes = await api.sql(`select indexname from pg_indexes where tablename = 'note'`)
    expect(indexes.map((row) => row.indexname)).toEqual(
      expect.arrayContaining(['note_pkey', 'note_slug_key', 'note_stars_title_idx']),
    )
  })

  it('is listed in brief by its name and description', async () => {
    const told = {
      collectionName: 'told',
      schema: { description: 'What is told', fields: { name: { type: 'String' } } },
    }
    const untold = { collectionName: 'untold', schema: { fields: { name: { type: 'String' } } } }
    for (const body of [told, untold]) expect((await api.admin('POST', '/schemas', body)).status).toBe(201)
    for (const call of [api.admin, api.anonymous])
      expect((await call('GET', '/schemas?search=told&brief=true&sort=-collectionName')).body).toEqual({
        data: [
          { collectionName: 'untold', schema: {} },
          { collectionName: 'told', schema: { description: 'What is told' } },
        ],
        totalCount: 2,
      })
    expect((await api.admin('GET', '/schemas?search=untold&brief=false')).body.data[0].schema).toHaveProperty('fields')
    const refused = await api.admin('GET', '/schemas?brief=1')
    expect([refused.status, refused.body.error.details]).toEqual([400, 'brief is true or false'])
  })

  it('answers it to everybody, hidden fields to administrators only', async () => {
    await api.admin('POST', '/schemas', {
      collectionName: 'vault',
      schema: { fields: { name: { type: 'String' }, secret: { type: 'String', hidden: true } } },
    })
    const publicAnswer = await api.anonymous('GET', '/schemas/vault')
    expect(publicAnswer.status).toBe(200)
    expect(Object.keys(declaredOf(publicAnswer.body.data.schema.fields))).toEqual(['name'])
    expect(publicAnswer.text).not.toContain('secret')
    expect((await api.admin('GET', '/schemas/vault')).body.data.schema.fields.secret).toEqual({
      type: 'String',
      hidden: true,
    })
    const list = await api.anonymous('GET', '/schemas?search=svc_u&limit=2')
    expect(list.body).toMatchObject({
      totalCount: 3,
      pagination: { currentPage: 1, totalPages: 2, limit: 2, hasNextPage: true },
    })
  })

  it('pages, sorts and searches; neither indexes nor constraints tell of hidden fields', async () => {
    const fields = { open: { type: 'Integer' }, secret: { type: 'Integer', hidden: true } }
    const indexes = [{ fields: ['open'] }, { fields: ['secret', 'open'] }]
    const constraints = [{ type: 'check', name: 'secretly', expression: 'secret > 0' }]
    await api.admin('POST', '/schemas', { collectionName: 'safe', schema: { fields, indexes, constraints } })
    const { schema } = (await api.anonymous('GET', '/schemas/safe')).body.data
    expect({ ...schema, fields: declaredOf(schema.fields) }).toEqual({
      fields: { open: { type: 'Integer' } },
      indexes: [{ fields: ['open'] }],
    })
    const names = async (query: string) =>
      (await api.anonymous('GET', `/schemas?${query}`)).body.data.map((entry: any) => entry.collectionName)
    expect(await names('search=SVC_WORK&sort=collectionName:desc')).toEqual([
      'svc_WorkflowExecutionLog',
      'svc_WorkflowExecution',
      'svc_Workflow',
    ])
    expect(await names('search=svc_Work&page=2&limit=1')).toEqual(['svc_WorkflowExecution'])
    const last = await api.anonymous('GET', '/schemas?search=svc_Work&page=2')
    expect(last.body.pagination).toEqual({
      currentPage: 2,
      totalPages: 1,
      limit: 50,
      hasNextPage: false,
      hasPrevPage: true,
      nextPage: null,
      prevPage: 1,
    })
    const all = (await api.anonymous('GET', '/schemas')).body
    const unlimited = (await api.anonymous('GET', '/schemas?limit=-1&page=3')).body
    expect(unlimited.data).toEqual(all.data)
    expect(unlimited).toMatchObject({ totalCount: all.totalCount, pagination: { totalPages: 1, hasNextPage: false } })
    for (const query of ['page=0', 'limit=0', 'limit=-2', 'sort=name', 'sort=schema:asc', 'search=a&search=b'])
      expect((await api.anonymous('GET', `/schemas?${query}`)).status).toBe(400)
  })

  it('are listed in the order of their times, too', async () => {
    for (const collectionName of ['timed_b', 'timed_a', 'timed_c'])
      await api.admin('POST', '/schemas', { collectionName, schema: { fields: {} } })
    await api.admin('PATCH', '/schemas/timed_b', { schema: { fields: { later: { type: 'String' } } } })
    const names = async (sort: string) =>
      (await api.anonymous('GET', `/schemas?search=timed_&sort=${sort}`)).body.data.map(
        (entry: any) => entry.collectionName,
      )
    const created = ['timed_b', 'timed_a', 'timed_c']
    expect(await names('createdAt:asc')).toEqual(created)
    expect(await names('createdAt')).toEqual(created)
    expect(await names('createdAt:desc')).toEqual(created.toReversed())
    expect(await names('-createdAt')).toEqual(created.toReversed())
    expect(await names('updatedAt:desc')).toEqual(['timed_b', 'timed_c', 'timed_a'])
    expect(await names('collectionName:asc')).toEqual(created.toSorted())
  })

  it.each([
    ['a name with a quote', { collectionName: 'a"b', schema: { fields: {} } }],
    ['a name of 64 characters', { collectionName: 'x'.repeat(64), schema: { fields: {} } }],
    ['a reserved prefix', { collectionName: 'svc_mine', schema: { fields: {} } }],
    ["a prefix of PostgreSQL's", { collectionName: 'pg_authid', schema: { fields: {} } }],
    ['the name of the reports about all collections', { collectionName: 'stats', schema: { fields: {} } }],
    ['a field AND', { collectionName: 'ok', schema: { fields: { AND: { type: 'String' } } } }],
    ['a field or', { collectionName: 'ok', schema: { fields: { or: { type: 'String' } } } }],
    ['a reserved suffix', { collectionName: 'a_junction', schema: { fields: {} } }],
    ['a missing schema', { collectionName: 'ok' }],
    ['fields that are no object', { collectionName: 'ok', schema: { fields: [] } }],
    ['an unknown type', { collectionName: 'ok', schema: { fields: { a: { type: 'Strange' } } } }],
    ['an ENUM without values', { collectionName: 'ok', schema: { fields: { a: { type: 'ENUM' } } } }],
    [
      'a default of another type',
      { collectionName: 'ok', schema: { fields: { a: { type: 'Integer', defaultValue: 'x' } } } },
    ],
    [
      'a relation to nowhere',
      { collectionName: 'ok', schema: { fields: { a: { relType: 'BelongsTo', target: 'nowhere' } } } },
    ],
    ['an index on an unknown field', { collectionName: 'ok', schema: { fields: {}, indexes: [{ fields: ['x'] }] } }],
    [
      'two primary keys',
      {
        collectionName: 'ok',
        schema: { fields: { a: { type: 'UUID', primaryKey: true }, b: { type: 'UUID', primaryKey: true } } },
      },
    ],
    [
      'a field named __proto__',
      JSON.parse('{"collectionName":"ok","schema":{"fields":{"constructor":{"type":"Text"}}}}'),
    ],
    [
      'SQL that does not run as default',
      {
        collectionName: 'ok',
        schema: { fields: { a: { type: 'Integer', defaultValue: { type: 'SQL', value: 'no_such()' } } } },
      },
    ],
  ])('refuses %s and writes nothing', async (_what, body) => {
    const before = await api.position()
    const answer = await api.admin('POST', '/schemas', body)
    expect(answer.status).toBe(400)
    expect(answer.body.error.message).toMatch(/^Error creating schema$|^schema must be an object$/)
    expect(await api.log(before)).toEqual([])
    expect(await api.sql(`select to_regclass('ok') as t`)).toEqual([{ t: null }])
    expect((await api.anonymous('GET', '/schemas/ok')).status).toBe(404)
  })

  it('takes names of 63 characters', async () => {
    for (const length of [59, 62, 63]) {
      const collectionName = 'n'.repeat(length)
      const fields = { ['f'.repeat(63)]: { type: 'String', unique: true } }
      expect((await api.admin('POST', '/schemas', { collectionName, schema: { fields } })).text).toContain('success')
      expect((await api.admin('POST', `/items/${collectionName}`, {})).status).toBe(201)
      expect((await api.admin('DELETE', `/schemas/${collectionName}`)).status).toBe(200)
    }
  })

  it('answers 409 for a known name, 403 to others, 401-free', async () => {
    expect(await api.admin('POST', '/schemas', { collectionName: 'note', schema: note })).toMatchObject({
      status: 409,
      body: { error: { message: 'Error creating schema', details: 'Collection note already exists' } },
    })
    expect((await api.anonymous('POST', '/schemas', { collectionName: 'x', schema: note })).status).toBe(401)
    const user = await api.user()
    expect((await user.call('POST', '/schemas', { collectionName: 'x', schema: note })).status).toBe(403)
  })
})

it('no function of the log takes a name that a collection could have', async () => {
  const taken = await api.sql(
    `select proname from pg_proc where pronamespace = 'svc_log'::regnamespace and pronargs = 0 and proname not like '$%'
     and not exists (select from "svc_SchemaDefinition" where "collectionName" = proname)`,
  )
  expect(taken).toEqual([])
  for (const collectionName of ['lineage', 'unread_from', 'one_by_one', 'guard'])
    expect((await api.admin('POST', '/schemas', { collectionName, schema: { fields: {} } })).status).toBe(201)
})

describe('changes at the same time', () => {
  it('create a collection once, and lose none of several relations to it', async () => {
    const schema = { fields: { name: { type: 'String' } } }
    const create = () => api.admin('POST', '/schemas', { collectionName: 'hub', schema })
    const statuses = (await Promise.all([create(), create(), create()])).map(({ status }) => status)
    expect(statuses.sort()).toEqual([201, 409, 409])
    const names = ['spoke1', 'spoke2', 'spoke3']
    await Promise.all(names.map((collectionName) => api.admin('POST', '/schemas', { collectionName, schema })))
    const relate = (name: string) =>
      api.admin('POST', `/schemas/${name}/relationships`, {
        type: 'M2O',
        name: 'hub',
        target: 'hub',
        alias: `${name}s`,
      })
    const answers = await Promise.all(names.map(relate))
    expect(answers.map(({ status }) => status)).toEqual([201, 201, 201])
    const { fields } = (await api.admin('GET', '/schemas/hub')).body.data.schema
    expect(Object.keys(declaredOf(fields)).sort()).toEqual(['name', 'spoke1s', 'spoke2s', 'spoke3s'])
  })
})

describe('PATCH and DELETE /schemas', () => {
  it('adds, alters and drops columns; the log goes on with the new shape', async () => {
    await api.admin('POST', '/schemas', {
      collectionName: 'thing',
      schema: { fields: { a: { type: 'String' }, b: { type: 'Integer' } } },
    })
    const { body } = await api.admin('POST', '/items/thing', { a: '12', b: 1 })
    const { data } = (await api.admin('GET', '/schemas/thing')).body
    const schema = {
      ...data.schema,
      fields: { ...data.schema.fields, b: null, a: { type: 'Integer' }, c: { type: 'Text', defaultValue: 'new' } },
    }
    expect(await api.admin('PATCH', '/schemas/thing', { schema })).toMatchObject({
      status: 200,
      body: { message: 'Schema updated successfully' },
    })
    const item = await api.admin('GET', `/items/thing/${body.data.id}`)
    expect(item.body.data).toMatchObject({ a: 12, c: 'new' })
    const before = await api.position()
    await api.admin('PATCH', `/items/thing/${body.data.id}`, { c: 'changed' })
    const [event] = await api.log(before)
    expect(event?.changes.after).toMatchObject({ a: 12, c: 'changed' })
    expect(event?.changes.after).not.toHaveProperty('b')
  })

  it('leaves everything as it was when the change cannot be made', async () => {
    await api.admin('POST', '/schemas', { collectionName: 'stiff', schema: { fields: { a: { type: 'String' } } } })
    await api.admin('POST', '/items/stiff', { a: 'not a number' })
    const answer = await api.admin('PATCH', '/schemas/stiff', {
      schema: { fields: { a: { type: 'Integer' }, b: { type: 'Text' } } },
    })
    expect(answer.status).toBe(400)
    expect((await api.admin('GET', '/schemas/stiff')).body.data.schema.fields).not.toHaveProperty('b')
    expect((await api.admin('GET', '/items/stiff')).body.data[0].a).toBe('not a number')
  })

  it('drops a collection with its table, but none that others point at, and no system collection', async () => {
    await api.admin('POST', '/schemas', { collectionName: 'parent', schema: { fields: { name: { type: 'String' } } } })
    await api.admin('POST', '/schemas', {
      collectionName: 'child',
      schema: { fields: { parent: { relType: 'BelongsTo', target: 'parent' } } },
    })
    expect((await api.admin('DELETE', '/schemas/parent')).status).toBe(409)
    expect(await api.admin('DELETE', '/schemas/child')).toMatchObject({
      status: 200,
      body: { message: 'Schema deleted successfully' },
    })
    expect((await api.admin('DELETE', '/schemas/parent')).status).toBe(200)
    expect(await api.sql(`select to_regclass('parent') as p, to_regclass('child') as c`)).toEqual([
      { p: null, c: null },
    ])
    expect((await api.admin('GET', '/items/parent')).status).toBe(404)
    expect((await api.admin('DELETE', '/schemas/svc_User')).status).toBe(403)
    expect((await api.admin('DELETE', '/schemas/nowhere')).status).toBe(404)
  })

  it('lets an installation add fields to a system collection, not change its own', async () => {
    const { schema } = (await api.admin('GET', '/schemas/svc_Tenant')).body.data
    const more = { ...schema, fields: { ...schema.fields, plan: { type: 'String' } } }
    expect((await api.admin('PATCH', '/schemas/svc_Tenant', { schema: more })).status).toBe(200)
    expect((await api.admin('POST', '/items/svc_Tenant', { name: 'T', plan: 'gold' })).status).toBe(201)
    const { name: _name, ...without } = more.fields
    const whole = { schema: { ...more, fields: without } }
    expect((await api.admin('PATCH', '/schemas/svc_Tenant', whole)).status).toBe(200)
    expect((await api.admin('PATCH', '/schemas/svc_Tenant?drop=true', whole)).status).toBe(403)
    expect((await api.admin('PATCH', '/schemas/svc_Tenant', { schema: { fields: { name: null } } })).status).toBe(403)
    expect((await api.admin('DELETE', '/schemas/svc_Tenant/fields/name')).status).toBe(403)
  })
})

describe('the catalog of another process', () => {
  it('follows at once: a new collection, a new field, a dropped one', async () => {
    const other = await startApi({}, api.database)
    await api.admin('POST', '/schemas', { collectionName: 'shared', schema: { fields: { a: { type: 'String' } } } })
    expect((await other.admin('POST', '/items/shared', { a: 'x' })).status).toBe(201)
    await api.admin('PATCH', '/schemas/shared', {
      schema: { fields: { a: { type: 'String' }, b: { type: 'Integer' } } },
    })
    expect((await other.admin('GET', '/items/shared?fields=a,b&filter={"b":null}')).body.data).toEqual([
      { a: 'x', b: null },
    ])
    await api.admin('PATCH', '/schemas/shared?drop=true', { schema: { fields: { b: { type: 'Integer' } } } })
    await waitFor(async () => (await other.admin('GET', '/items/shared?fields=a')).status === 400)
    expect((await other.admin('GET', '/items/shared')).status).toBe(200)
    await api.admin('DELETE', '/schemas/shared')
    expect((await other.admin('GET', '/items/shared')).status).toBe(404)
  })

  it('never answers 500 while collections change under running requests', async () => {
    const other = await startApi({}, api.database)
    await api.admin('POST', '/schemas', { collectionName: 'moving', schema: { fields: { a: { type: 'String' } } } })
    await api.admin('POST', '/items/moving', { a: 'x' })
    const statuses = new Set<number>()
    let running = true
    const reader = (async () => {
      while (running) statuses.add((await other.admin('GET', '/items/moving')).status)
    })()
    const writer = (async () => {
      while (running) statuses.add((await other.admin('POST', '/items/moving', { a: 'y' })).status)
    })()
    for (let i = 0; i < 10; i += 1) {
      const fields = i % 2 === 0 ? { a: { type: 'String' }, b: { type: 'Integer' } } : { a: { type: 'Text' } }
      expect((await api.admin('PATCH', '/schemas/moving?drop=true', { schema: { fields } })).status).toBe(200)
    }
    running = false
    await Promise.all([reader, writer])
    expect([...statuses].sort()).toEqual([200, 201])
  })
})

describe('requests that run while a field gets another type', () => {
  const field = (type: string) => ({ schema: { fields: { n: { type } } } })

  it('are answered by the one or the other, never by 500', async () => {
    const other = await startApi({}, api.database)
    const child = {
      id: { type: 'Integer', primaryKey: true },
      parent: { relType: 'BelongsTo', target: 'retyped' },
    }
    for (const [collectionName, fields] of [
      ['retyped', { id: { type: 'Integer', primaryKey: true }, n: { type: 'Integer', allowNull: true } }],
      ['retypedchild', child],
    ] as const)
      expect((await api.admin('POST', '/schemas', { collectionName, schema: { fields } })).text).toContain('success')
    expect((await api.admin('POST', '/items/retyped', { id: 1, n: '5' })).status).toBe(201)
    expect((await api.admin('POST', '/items/retypedchild', { id: 1, parent: 1 })).text).toContain('id')
    const count = { groupBy: ['id'], aggregate: { rows: { function: 'count' } } }
    const ids = Array.from({ length: 10_000 }, (_, nth) => nth + 2)
    const asked = {
      list: () => other.admin('GET', '/items/retyped?limit=2&fields=id&filter={"n":{"gt":"1"}}'),
      related: () => other.admin('GET', '/items/retypedchild?filter={"parent.n":"5"}'),
      export: () => other.admin('GET', '/items/retyped/export?format=json&limit=2&fields=id&filter={"n":{"gt":"1"}}'),
      report: () => other.admin('POST', '/reports/retyped', { ...count, filter: { n: { gt: '1' } } }),
      create: () => other.admin('POST', '/items/retyped', { id: ids.pop(), n: '5' }),
      update: () => other.admin('PATCH', '/items/retyped/1', { n: '5' }),
      upsert: () => other.admin('PUT', '/items/retyped', { id: 1, n: '5' }),
    }
    const statuses = new Map<string, number[]>()
    let running = true
    const askers = Object.entries(asked).map(async ([name, ask]) => {
      const seen: number[] = []
      statuses.set(name, seen)
      while (running) seen.push((await untilAdmitted(ask)).status)
    })
    for (let turn = 0; turn < 10; turn += 1) {
      const change = field(turn % 2 ? 'Integer' : 'String')
      const { status, text } = await api.admin('PATCH', '/schemas/retyped?alter=true', change)
      expect(status, text).toBe(200)
      // A request follows a few changes, not one after the other without an end.
      const before = new Map([...statuses].map(([name, { length }]) => [name, length]))
      await waitFor(() => [...statuses].every(([name, { length }]) => length > before.get(name)! + 1))
    }
    running = false
    await Promise.all(askers)
    expect(Object.fromEntries([...statuses].map(([name, seen]) => [name, [...new Set(seen)]]))).toEqual({
      ...{ list: [200], related: [200], export: [200], report: [200], create: [201], update: [200], upsert: [200] },
    })
  })
})

describe('the order of fields', () => {
  const order = ['zeta', 'alpha', 'owner_Id', 'mid', 'be']
  const fields = Object.fromEntries(order.map((name) => [name, { type: 'String' }]))

  const shown = async () => {
    const { body } = await api.admin('GET', '/schemas/arranged')
    const item = await api.admin('GET', '/items/arranged?limit=1')
    const declared = declaredOf(body.data.schema.fields)
    return [Object.keys(declared), Object.keys(item.body.data[0]).filter((name) => name in declared)]
  }

  it('is the declared one in definitions, items and exports, also after a restart', async () => {
    await api.admin('POST', '/schemas', { collectionName: 'arranged', schema: { fields } })
    await api.admin('POST', '/items/arranged', { be: 'x' })
    expect(await shown()).toEqual([order, order])
    await api.runtime.catalog.reload()
    expect(await shown()).toEqual([order, order])
    const list = await api.admin('GET', '/schemas?search=arranged')
    expect(Object.keys(declaredOf(list.body.data[0].schema.fields))).toEqual(order)
    const exported = await api.admin('GET', '/schemas-export')
    const own = exported.body.schemas.find((each: { collectionName: string }) => each.collectionName === 'arranged')
    expect(Object.keys(declaredOf(own.schema.fields))).toEqual(order)
    expect(own.schema).not.toHaveProperty('fieldOrder')
  })

  it('follows an update that changes nothing else, and a new field comes last', async () => {
    const turned = [...order].reverse()
    const schema = { fields: Object.fromEntries([...turned, 'again'].map((name) => [name, { type: 'String' }])) }
    expect((await api.admin('PATCH', '/schemas/arranged', { schema })).status).toBe(200)
    await api.runtime.catalog.reload()
    expect(await shown()).toEqual([
      [...turned, 'again'],
      [...turned, 'again'],
    ])
  })
})
