import pg from 'pg'
import { beforeAll, describe, expect, it } from 'vitest'
import { type Api, startApi } from '../support/api.ts'
import { declaredOf } from '../support/declared.ts'

let api: Api
beforeAll(async () => {
  api = await startApi({ EXPOSE_ERROR_DETAILS: 'false' })
})

let count = 0
const declare = async (schema: object): Promise<string> => {
  count += 1
  const collectionName = `thing${count}`
  const answer = await api.admin('POST', '/schemas', { collectionName, schema })
  if (answer.status !== 201) throw new Error(answer.text)
  return collectionName
}
const patch = (collection: string, schema: object) => api.admin('PATCH', `/schemas/${collection}`, { schema })
/** With the schema as the whole: what it leaves out goes. */
const replace = (collection: string, schema: object) =>
  api.admin('PATCH', `/schemas/${collection}?drop=true`, { schema })
const create = async (collection: string, item: object): Promise<string> =>
  (await api.admin('POST', `/items/${collection}`, item)).body.data.id
const column = async (table: string, name: string) =>
  (
    await api.sql(
      `select data_type as type, is_nullable as nullable, column_default as "default" from information_schema.columns where table_name = $1 and column_name = $2`,
      [table, name],
    )
  )[0]
const indexes = async (table: string): Promise<string[]> =>
  (await api.sql('select indexdef from pg_indexes where tablename = $1', [table])).map((row) => row.indexdef)
/** Everything that a failed change must leave alone. */
const state = async (name: string) => ({
  definition: (await api.admin('GET', `/schemas/${name}`)).text,
  table: await api.sql(
    `select attname, atttypid, attnotnull from pg_attribute where attrelid = $1::regclass and attnum > 0 order by attnum`,
    [name],
  ),
  constraints: await api.sql(
    'select conname, pg_get_constraintdef(oid) as def from pg_constraint where conrelid = $1::regclass order by 1',
    [name],
  ),
  indexes: (await indexes(name)).sort(),
  rows: (await api.admin('GET', `/items/${name}?sort=id`)).text,
})

describe('PATCH /schemas', () => {
  it.each<[what: string, before: object, after: object, check: (name: string) => Promise<void>]>([
    [
      'a new field with a default',
      {},
      { b: { type: 'Integer', allowNull: false, defaultValue: 7 } },
      async (name) => {
        expect((await api.admin('GET', `/items/${name}`)).body.data[0].b).toBe(7)
      },
    ],
    [
      'a dropped field',
      { b: { type: 'Integer' } },
      { b: null },
      async (name) => expect(await column(name, 'b')).toBeUndefined(),
    ],
    [
      'another type',
      { b: { type: 'Integer', defaultValue: 5 } },
      { b: { type: 'String', defaultValue: 'five' } },
      async (name) => {
        expect(await column(name, 'b')).toEqual({ type: 'text', nullable: 'YES', default: "'five'::text" })
        expect((await api.admin('GET', `/items/${name}`)).body.data[0].b).toBe('5')
      },
    ],
    [
      'a longer type',
      { b: { type: 'String', values: { stringLength: 3 } } },
      { b: { type: 'String', values: { stringLength: 9 } } },
      async (name) => {
        await create(name, { b: 'ninechars' })
      },
    ],
    [
      'no default any more',
      { b: { type: 'Integer', defaultValue: 5 } },
      { b: { type: 'Integer' } },
      async (name) => {
        expect((await column(name, 'b')).default).toBeNull()
      },
    ],
    [
      'a required field',
      { b: { type: 'Integer', defaultValue: 5 } },
      { b: { type: 'Integer', defaultValue: 5, allowNull: false } },
      async (name) => {
        expect((await column(name, 'b')).nullable).toBe('NO')
      },
    ],
    [
      'an optional field',
      { b: { type: 'Integer', defaultValue: 5, allowNull: false } },
      { b: { type: 'Integer', defaultValue: 5 } },
      async (name) => {
        expect((await column(name, 'b')).nullable).toBe('YES')
      },
    ],
    [
      'a unique field',
      { b: { type: 'Integer' } },
      { b: { type: 'Integer', unique: true } },
      async (name) => {
        await create(name, { b: 1 })
        expect((await api.admin('POST', `/items/${name}`, { b: 1 })).status).toBe(409)
      },
    ],
    [
      'a field that is no longer unique',
      { b: { type: 'Integer', unique: true } },
      { b: { type: 'Integer' } },
      async (name) => {
        await create(name, { b: 1 })
        await create(name, { b: 1 })
      },
    ],
    [
      'other ENUM values',
      { b: { type: 'ENUM', values: ['x', 'y'], defaultValue: 'x' } },
      { b: { type: 'ENUM', values: ['x', 'z'], defaultValue: 'z' } },
      async (name) => {
        await create(name, { b: 'z' })
        await expect(api.sql(`update ${name} set b = 'y'`)).rejects.toThrow('thing')
      },
    ],
    [
      'an ENUM that becomes text',
      { b: { type: 'ENUM', values: ['x', 'y'] } },
      { b: { type: 'Text' } },
      async (name) => {
        await create(name, { b: 'anything' })
      },
    ],
    [
      'a calculation',
      { b: { type: 'VIRTUAL', calculated: `a || '!'` } },
      { b: { type: 'VIRTUAL', calculated: `upper(a)` } },
      async (name) => {
        expect((await api.admin('GET', `/items/${name}`)).body.data[0].b).toBe('FIRST')
      },
    ],
    [
      'a calculation over a new field',
      {},
      { b: { type: 'VIRTUAL', calculated: 'c * 2' }, c: { type: 'Integer', defaultValue: 4 } },
      async (name) => {
        expect((await api.admin('GET', `/items/${name}`)).body.data[0].b).toBe('8')
      },
    ],
    [
      'a bigger AUTOINCREMENT',
      { b: { type: 'Integer', defaultValue: { type: 'AUTOINCREMENT' } } },
      { b: { type: 'BigInt', defaultValue: { type: 'AUTOINCREMENT' } } },
      async (name) => {
        const id = await create(name, {})
        expect((await api.admin('GET', `/items/${name}/${id}`)).body.data.b).toBe(2)
      },
    ],
  ])('%s', async (_what, before, after, check) => {
    const a = { type: 'String' }
    const name = await declare({ fields: { a, ...before } })
    await create(name, { a: 'first' })
    const answer = await patch(name, { fields: { a, ...after } })
    expect(answer.text).toContain('Schema updated successfully')
    await check(name)
    const position = await api.position()
    await create(name, { a: 'logged' })
    expect((await api.log(position))[0]?.changes.after).toMatchObject({ a: 'logged' })
  })

  it('switches: paranoid, usertrack, sortEnabled and timestamps come and go with their columns', async () => {
    const name = await declare({ fields: {}, timestamps: false })
    const on = { fields: {}, timestamps: true, paranoid: true, usertrack: true, sortEnabled: true }
    expect((await patch(name, on)).status).toBe(200)
    const id = await create(name, {})
    const { data } = (await api.admin('GET', `/items/${name}/${id}?fields=*,userCreated.email`)).body
    expect(data).toMatchObject({ deletedAt: null, userCreated: { email: 'admin@example.com' } })
    expect(Object.keys(data)).toEqual(expect.arrayContaining(['sort', 'createdAt', 'updatedAt', 'userUpdated_Id']))
    await api.admin('DELETE', `/items/${name}/${id}`)
    expect(await api.sql(`select "deletedAt" is not null as marked from ${name}`)).toEqual([{ marked: true }])
    const off = { schema: { fields: {}, timestamps: false } }
    expect((await api.admin('PATCH', `/schemas/${name}?drop=true&alter=true`, off)).status).toBe(200)
    expect(await api.sql(`select * from ${name}`)).toEqual([{ id }])
  })

  it('paranoid: what comes back without it is an update of each row, and the past and the trash stay true', async () => {
    const name = await declare({ paranoid: true, fields: { a: { type: 'String' } } })
    const [back, alive] = [await create(name, { a: 'deleted' }), await create(name, { a: 'alive' })]
    await api.admin('DELETE', `/items/${name}/${back}`)
    const { cursor } = (await api.admin('GET', '/history/now')).body.data
    const rows = async (asOf = '') =>
      (await api.admin('GET', `/items/${name}?fields=a&sort=a${asOf}`)).body.data.map(({ a }: { a: string }) => a)
    const trash = async () => (await api.admin('GET', `/items/${name}/deleted`)).body.data.map(({ id }: any) => id)
    expect([await rows(), await rows(`&asOf=${cursor}`), await trash()]).toEqual([['alive'], ['alive'], [back]])
    const position = await api.position()
    expect(
      (await api.admin('PATCH', `/schemas/${name}?alter=true`, { schema: { paranoid: false } })).body,
    ).toMatchObject({
      altered: [{ collection: name, restored: 1 }],
    })
    const written = (await api.log(position)).filter(({ entity }) => entity === name)
    expect(written).toMatchObject([
      { action: 'update', entityId: back, changes: { before: { deletedAt: expect.any(String) } } },
    ])
    expect(written[0]!.changes.after).toMatchObject({ deletedAt: null })
    expect([await rows(), await rows(`&asOf=${cursor}`), await trash()]).toEqual([['alive', 'deleted'], ['alive'], []])
    // Its deletion is nothing any more that could be undone.
    const [deletion] = await api.sql(
      `select position::text from "svc_AuditLog" where entity = $1 and "entityId" = $2 and action = 'update' order by position`,
      [name, back],
    )
    const undone = await api.admin('POST', '/log/undo', { position: deletion.position })
    expect(undone).toMatchObject({ status: 409, body: { error: { code: 'NOTHING_TO_UNDO' } } })
    await api.admin('PATCH', `/items/${name}/${back}`, { a: 'edited since' })
    await patch(name, { paranoid: true })
    expect([await rows(), await rows(`&asOf=${cursor}`), await trash()]).toEqual([
      ['alive', 'edited since'],
      ['alive'],
      [],
    ])
    await api.admin('DELETE', `/items/${name}/${alive}`)
    expect(await trash()).toEqual([alive])
  })

  it('a field of the name deletedAt that was never a mark hides no row of the past', async () => {
    const name = await declare({ fields: { a: { type: 'String' }, deletedAt: { type: 'DateTime' } } })
    const id = await create(name, { a: 'before', deletedAt: '2026-01-01T00:00:00Z' })
    const { cursor } = (await api.admin('GET', '/history/now')).body.data
    await api.admin('PATCH', `/items/${name}/${id}`, { a: 'after' })
    expect((await api.admin('DELETE', `/schemas/${name}/fields/deletedAt`)).status).toBe(200)
    expect((await api.admin('GET', `/items/${name}?fields=a&asOf=${cursor}`)).body.data).toEqual([{ a: 'before' }])
  })

  it('hidden: the field leaves the API and the log, and can come back', async () => {
    const name = await declare({ fields: { a: { type: 'String' } } })
    const id = await create(name, { a: 'canary' })
    await patch(name, { fields: { a: { type: 'String', hidden: true } } })
    expect((await api.admin('GET', `/items/${name}/${id}`)).body.data).not.toHaveProperty('a')
    const before = await api.position()
    await api.admin('PATCH', `/items/${name}/${id}`, { a: 'another canary' })
    expect(JSON.stringify(await api.log(before))).not.toContain('canary')
    await patch(name, { fields: { a: { type: 'String' } } })
    expect((await api.admin('GET', `/items/${name}/${id}`)).body.data.a).toBe('another canary')
  })

  it('unlogged: its changes leave no event', async () => {
    const name = await declare({ fields: { a: { type: 'String' }, seen: { type: 'Integer', unlogged: true } } })
    const id = await create(name, { a: 'x' })
    const before = await api.position()
    await api.sql(`update ${name} set seen = 1`)
    expect(await api.log(before)).toEqual([])
    await patch(name, { fields: { a: { type: 'String' }, seen: { type: 'Integer' } } })
    await api.sql(`update ${name} set seen = 2`)
    expect((await api.log(before)).filter(({ entity }) => entity === name)).toMatchObject([
      { entityId: id, action: 'update' },
    ])
  })

  it('indexes and constraints follow the definition', async () => {
    const fields = { a: { type: 'String' }, b: { type: 'JSON' }, low: { type: 'Integer' }, high: { type: 'Integer' } }
    const name = await declare({ fields, indexes: [{ fields: ['a'] }] })
    const schema = {
      fields,
      indexes: [
        { fields: ['a', 'low'], unique: true, nullsNotDistinct: true },
        { name: `${name}_gin`, fields: ['b'], type: 'gin' },
      ],
      constraints: [
        { type: 'check', name: `${name}_order`, expression: 'low <= high' },
        { type: 'unique', fields: ['low', 'high'] },
      ],
    }
    expect((await replace(name, schema)).text).toContain('successfully')
    expect(await indexes(name)).toEqual(
      expect.arrayContaining([
        expect.stringContaining('(a, low) NULLS NOT DISTINCT'),
        expect.stringContaining('USING gin (b)'),
        expect.stringContaining(`UNIQUE INDEX ${name}_low_high_key`),
      ]),
    )
    expect((await indexes(name)).join()).not.toContain(`${name}_a_idx`)
    await create(name, { low: 1, high: 2 })
    expect((await api.admin('POST', `/items/${name}`, { low: 2, high: 1 })).status).toBe(400)
    expect((await replace(name, { fields })).status).toBe(200)
    await create(name, { low: 2, high: 1 })
    expect((await patch(name, schema)).body.error.details).toContain('stored values break a constraint')
  })

  it('a CHECK survives the loss of another column, and is refused when its own goes', async () => {
    const [a, b, c] = [{ type: 'Integer' }, { type: 'Integer' }, { type: 'Integer' }]
    const constraints = [{ type: 'check', name: 'ordered', expression: 'a < b' }]
    const name = await declare({ fields: { a, b, c }, constraints })
    expect((await replace(name, { fields: { a, b }, constraints })).status).toBe(200)
    expect((await api.admin('POST', `/items/${name}`, { a: 2, b: 1 })).status).toBe(400)
    expect((await replace(name, { fields: { a }, constraints })).body.error.details).toContain('names an unknown field')
  })

  it('a CHECK is named to who may write the collection, by every route', async () => {
    const fields = { a: { type: 'Integer' }, b: { type: 'Integer' } }
    const name = await declare({ fields })
    // A name of the form that ENUM fields have is one of the collection's all the same.
    for (const constraint of ['ordered', `${name}_order_check`]) {
      const constraints = [{ type: 'check', name: constraint, expression: 'a < b' }]
      expect((await replace(name, { fields, constraints })).status).toBe(200)
      const message = `Validation failed: ${name}: breaks a rule of the collection`
      const problem = { field: name, message: 'breaks a rule of the collection', rule: 'check', constraint }
      const details = { code: 'VALIDATION_ERROR', errors: [problem] }
      const broken = { status: 400, body: { error: { message, code: 'VALIDATION_ERROR', details } } }
      const { call } = await api.user([{ collection: name, action: 'create', fields: ['*'] }])
      const [bad, good] = [
        { a: 2, b: 1 },
        { a: 1, b: 2 },
      ]
      for (const asked of [api.admin, call]) {
        expect(await asked('POST', `/items/${name}`, bad)).toMatchObject(broken)
        expect(await asked('POST', `/items/${name}/bulk`, [good, bad])).toMatchObject(broken)
      }
      const { body } = await api.admin('POST', `/items/${name}`, good)
      expect(await api.admin('PATCH', `/items/${name}/${body.data.id}`, { b: 0 })).toMatchObject(broken)
      expect(await api.admin('PUT', `/items/${name}?key=id`, { ...bad, id: body.data.id })).toMatchObject(broken)
    }
  })

  it('a CHECK that a deletion would break is not named to who may not write its collection', async () => {
    const parent = await declare({ fields: { name: { type: 'String' } } })
    const constraints = [{ type: 'check', name: 'has_parent', expression: '"parent_Id" is not null' }]
    const fields = { parent: { relType: 'BelongsTo', target: parent } }
    const child = await declare({ fields })
    expect((await patch(child, { fields, constraints })).status).toBe(200)
    const { id } = (await api.admin('POST', `/items/${parent}`, { name: 'p' })).body.data
    expect((await api.admin('POST', `/items/${child}`, { parent: id })).status).toBe(201)
    const remover = await api.user([{ collection: parent, action: 'delete' }])
    const told = { field: child, message: 'breaks a rule of the collection', rule: 'check' }
    const refusal = await remover.call('DELETE', `/items/${parent}/${id}`)
    expect([refusal.status, refusal.body.error.details.errors]).toEqual([400, [told]])
    const known = await api.admin('DELETE', `/items/${parent}/${id}`)
    expect([known.status, known.body.error.details.errors]).toEqual([400, [{ ...told, constraint: 'has_parent' }]])
  })

  it('the same schema again changes nothing and is no event', async () => {
    const name = await declare({ fields: { a: { type: 'String' } } })
    const before = await api.position()
    expect((await patch(name, { fields: { a: { type: 'String' } } })).status).toBe(200)
    expect(await api.log(before)).toEqual([])
  })

  it.each<[what: string, fields: object, more?: object]>([
    ['a type that stored values have no cast to', { a: { type: 'Integer' } }],
    ['a type without a cast', { n: { type: 'UUID' } }],
    ['required, with rows that lack it', { n: { type: 'Integer', allowNull: false } }],
    ['a new required field without a default', { x: { type: 'Integer', allowNull: false } }],
    ['unique, with equal values', { a: { type: 'String', unique: true } }],
    ['values that rows do not have', { a: { type: 'ENUM', values: ['other'] } }],
    ['a default that fails', { x: { type: 'Integer', defaultValue: { type: 'SQL', value: `'x'::integer` } } }],
    ['a default of another type', { x: { type: 'Date', defaultValue: { type: 'SQL', value: '5' } } }],
    ['a subquery as default', { x: { type: 'Integer', defaultValue: { type: 'SQL', value: '(select 1)' } } }],
    [
      'two expressions as default',
      { x: { type: 'Integer', defaultValue: { type: 'SQL', value: '1), y int default (2' } } },
    ],
    ['a calculation that is not immutable', { x: { type: 'VIRTUAL', calculated: 'now()::text' } }],
    ['a calculation over nothing', { x: { type: 'VIRTUAL', calculated: 'nothing' } }],
    ['an index that cannot be', {}, { indexes: [{ fields: ['a'], type: 'gin' }] }],
    ['AUTOINCREMENT for an existing field', { n: { type: 'Integer', defaultValue: { type: 'AUTOINCREMENT' } } }],
    ['another primary key', { id: { type: 'Integer', primaryKey: true } }],
    ['a relation to an item that is not there', { r: { relType: 'BelongsTo', target: 'svc_Role', foreignKey: 'u' } }],
  ])('%s is refused and leaves everything as it was', async (_what, fields, more) => {
    const a = { type: 'String' }
    const n = { type: 'Integer' }
    const u = { type: 'UUID', defaultValue: { type: 'UUIDV4' } }
    const name = await declare({ fields: { a, n, u } })
    await create(name, { a: 'same' })
    await create(name, { a: 'same' })
    const before = await state(name)
    const position = await api.position()
    const answer = await patch(name, { fields: { first: { type: 'Text' }, a, n, u, ...fields }, ...more })
    expect(answer.status).toBe(400)
    expect(answer.body.error.message).toBe('Error updating schema')
    expect(await state(name)).toEqual(before)
    expect(await api.log(position)).toEqual([])
  })

  it('a refusal names the field or the constraint that stored values are refused for', async () => {
    const fields = {
      a: { type: 'String' },
      e: { type: 'ENUM', values: ['x', 'y'] },
      m: { type: 'Decimal', values: { precision: 8, scale: 2 } },
    }
    const name = await declare({ fields })
    for (const m of ['12.00', '13.00']) await create(name, { a: 'same', e: 'x', m })
    const refused = async (more: object, rest: object = {}) =>
      (await patch(name, { fields: { first: { type: 'Text' }, ...fields, ...more }, ...rest })).body.error.details
    const because = (place: string, why: string) => `The schema cannot be applied: ${name}${place}: ${why}`
    const unique = 'stored rows have the same value in a unique field'
    const broken = 'stored values break a constraint or are not among the listed ones'
    expect(await refused({ a: { type: 'Integer' } })).toBe(
      because('.a', 'stored values cannot be converted to the new type'),
    )
    expect(await refused({ m: { type: 'Decimal', values: { precision: 2, scale: 2 } } })).toBe(
      because('.m', 'stored values do not fit the new type'),
    )
    expect(await refused({ a: { type: 'String', unique: true } })).toBe(because('.a', unique))
    expect(await refused({ e: { type: 'ENUM', values: ['y'] } })).toBe(because('.e', broken))
    expect(await refused({}, { indexes: [{ fields: ['a', 'e'], unique: true }] })).toBe(
      because(`, ${name}_a_e_idx`, unique),
    )
    expect(await refused({}, { constraints: [{ type: 'check', name: 'large', expression: 'm > 12' }] })).toBe(
      because(', large', broken),
    )
  })

  it('waits a second for a table in use, then answers 503 with Retry-After', async () => {
    const name = await declare({ fields: { a: { type: 'String' } } })
    const before = await state(name)
    const reader = new pg.Client({ connectionString: api.database.url })
    await reader.connect()
    await reader.query(`begin; select * from ${name}`)
    const answer = await patch(name, { fields: { a: { type: 'String' }, b: { type: 'String' } } })
    expect(answer.status).toBe(503)
    expect(answer.headers['retry-after']).toBe('1')
    expect((await api.admin('GET', `/items/${name}`)).status).toBe(200)
    await reader.query('commit')
    await reader.end()
    expect(await state(name)).toEqual(before)
    expect((await patch(name, { fields: { a: { type: 'String' }, b: { type: 'String' } } })).status).toBe(200)
  })
})

describe('DELETE /schemas', () => {
  it('takes junctions and relations of others with it, but not collections that hold a key to it', async () => {
    const [one, two, three] = [
      await declare({ fields: {} }),
      await declare({ fields: {} }),
      await declare({ fields: {} }),
    ]
    const relate = (source: string, body: object) => api.admin('POST', `/schemas/${source}/relationships`, body)
    expect((await relate(one, { type: 'M2M', name: 'others', target: two, alias: 'ones' })).status).toBe(201)
    expect((await relate(three, { type: 'M2O', name: 'one', target: one, alias: 'threes' })).status).toBe(201)
    const refused = await api.admin('DELETE', `/schemas/${one}`)
    expect(refused.status).toBe(409)
    expect(refused.body.error).toMatchObject({
      message: 'Error deleting schema',
      details: expect.stringContaining(three),
    })
    expect((await api.admin('DELETE', `/schemas/${three}`)).status).toBe(200)
    const before = await api.position()
    expect((await api.admin('DELETE', `/schemas/${one}`)).status).toBe(200)
    const events = (await api.log(before)).filter(({ type }) => type === 'schema')
    expect(events.map(({ entityId, changes }) => [entityId, changes.change])).toEqual([
      [one, 'delete'],
      [`${one}_${two}_others_junction`, 'delete'],
      [two, 'update'],
    ])
    expect(declaredOf((await api.admin('GET', `/schemas/${two}`)).body.data.schema.fields)).toEqual({})
  })
})

describe('indexes', () => {
  it('are added and removed one by one', async () => {
    const name = await declare({ fields: { a: { type: 'String' }, b: { type: 'Integer' } } })
    const add = (body: object) => api.admin('POST', `/schemas/${name}/indexes`, body)
    const before = await api.position()
    expect(await add({ fields: ['a', 'b'] })).toMatchObject({
      status: 201,
      body: { message: 'Index added successfully' },
    })
    expect((await api.log(before)).at(-1)).toMatchObject({ type: 'schema', entityId: name, action: 'changed' })
    expect(await add({ name: `${name}_hashed`, fields: ['a'], type: 'hash' })).toMatchObject({ status: 201 })
    expect(await indexes(name)).toEqual(
      expect.arrayContaining([expect.stringContaining(`${name}_a_b_idx`), expect.stringContaining('USING hash')]),
    )
    expect((await add({ fields: ['a', 'b'] })).status).toBe(409)
    expect((await add({ name: 'svc_User_email_unique', fields: ['a'] })).status).toBe(409)
    expect((await add({ fields: ['nothing'] })).status).toBe(400)
    expect((await add({ fields: [] })).status).toBe(400)
    expect((await add({ fields: ['a'], type: 'magic' })).body.error.message).toBe('Error adding index')
    expect((await api.admin('POST', '/schemas/nowhere/indexes', { fields: ['a'] })).body.error.message).toBe(
      'Schema not found',
    )
    expect(await api.admin('DELETE', `/schemas/${name}/indexes/${name}_a_b_idx`)).toMatchObject({
      status: 200,
      body: { message: 'Index removed successfully' },
    })
    expect((await indexes(name)).join()).not.toContain('_a_b_idx')
    expect((await api.admin('DELETE', `/schemas/${name}/indexes/nothing`)).status).toBe(404)
    expect((await api.admin('DELETE', '/schemas/svc_User/indexes/svc_User_email_unique')).status).toBe(403)
  })

  it('that are missing are made again, and what stands in the way is told', async () => {
    const name = await declare({
      fields: { a: { type: 'Integer' }, tenant: { relType: 'BelongsTo', target: 'svc_Tenant' } },
      indexes: [{ name: `${name_()}_u`, fields: ['a'], unique: true }],
    })
    await api.sql(`drop index ${name}_u; drop index "${name}_tenant_Id_fk"; insert into ${name} (a) values (1), (1)`)
    const answer = await api.admin('POST', '/schemas/indexes/migrate')
    expect(answer).toMatchObject({
      status: 200,
      body: { message: 'Foreign key index migration completed', summary: { created: 1, errors: 1 } },
    })
    expect(answer.body.summary.skipped).toBeGreaterThan(20)
    const own = answer.body.details.filter(({ collection }: any) => collection === name)
    expect(own).toEqual([
      { collection: name, index: `${name}_u`, status: 'error', error: expect.stringContaining('same value') },
      { collection: name, index: `${name}_tenant_Id_fk`, status: 'created' },
    ])
    expect((await indexes(name)).join()).toContain('("tenant_Id")')
  })
  const name_ = () => `thing${count + 1}`
})

describe('definitions that the system owns', () => {
  const edit = async (name: string, change: (schema: any) => object) => {
    const { schema } = (await api.admin('GET', `/schemas/${name}`)).body.data
    return api.admin('PATCH', `/schemas/${name}`, { schema: change(schema) })
  }

  it('can be joined, not changed', async () => {
    const extra = (schema: any) => ({ ...schema, fields: { ...schema.fields, nick: { type: 'String', unique: true } } })
    expect((await edit('svc_User', extra)).status).toBe(200)
    const withIndex = (schema: any) => ({
      ...schema,
      indexes: [...schema.indexes, { name: 'nicks', fields: ['nick'] }],
    })
    expect((await edit('svc_User', withIndex)).status).toBe(200)
    expect((await edit('svc_User', ({ indexes, ...schema }) => schema)).status).toBe(200)
    expect((await edit('svc_User', (schema) => ({ ...schema, indexes: null }))).status).toBe(403)
    expect((await edit('svc_User', (schema) => ({ ...schema, paranoid: true }))).status).toBe(403)
    expect(
      (await edit('svc_User', (schema) => ({ ...schema, fields: { ...schema.fields, password: { type: 'String' } } })))
        .status,
    ).toBe(403)
    for (const name of ['svc_AuditLog', 'svc_SchemaDefinition', 'svc_Sessions'])
      expect(
        (await edit(name, (schema) => ({ ...schema, fields: { ...schema.fields, x: { type: 'String' } } }))).status,
      ).toBe(403)
  })
})
