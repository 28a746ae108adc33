import fc from 'fast-check'
import { beforeAll, describe, expect, it } from 'vitest'
import type { Catalog } from '../../src/catalog/catalog.ts'
import { executeChange } from '../../src/catalog/change.ts'
import { definitionsOf, withSchema } from '../../src/catalog/definitions.ts'
import { systemActor } from '../../src/events/actor.ts'
import { commit } from '../../src/events/commit.ts'
import { type Answer, type Api, startApi } from '../support/api.ts'
import { declaredOf } from '../support/declared.ts'

let api: Api
beforeAll(async () => {
  api = await startApi({ EXPOSE_ERROR_DETAILS: 'false' })
})

let count = 0
const make = async (schema: object, word = 'merged'): Promise<string> => {
  count += 1
  const collectionName = `${word}${count}`
  const answer = await api.admin('POST', '/schemas', { collectionName, schema })
  if (answer.status !== 201) throw new Error(answer.text)
  return collectionName
}
const patch = (name: string, schema: object, query = ''): Promise<Answer> =>
  api.admin('PATCH', `/schemas/${name}${query}`, { schema })
const schemaOf = async (name: string) => (await api.admin('GET', `/schemas/${name}`)).body.data.schema
const declared = async (name: string) => Object.keys(declaredOf((await schemaOf(name)).fields))
const fill = async (name: string, ...items: object[]) => {
  for (const item of items) expect((await api.admin('POST', `/items/${name}`, item)).status).toBe(201)
}
const columns = async (name: string) =>
  (
    await api.sql(
      `select attname from pg_attribute where attrelid = $1::regclass and attnum > 0 and not attisdropped`,
      [`"${name}"`],
    )
  ).map((row) => row.attname)

const ab = { a: { type: 'String' }, b: { type: 'Integer' } }

describe('PATCH /schemas merges', () => {
  it('fields, switches, indexes and constraints that are left out stay', async () => {
    const constraints = [{ type: 'check', name: 'positive', expression: 'b > 0' }]
    const name = await make({ fields: ab, paranoid: true, indexes: [{ fields: ['a'] }], constraints })
    await fill(name, { a: 'x', b: 1 })
    const before = await schemaOf(name)
    const answer = await patch(name, { fields: { c: { type: 'Text' } }, indexes: [{ fields: ['b'] }], constraints: [] })
    expect(answer).toMatchObject({ status: 200, body: { message: 'Schema updated successfully', dropped: [] } })
    expect(await schemaOf(name)).toEqual({
      ...before,
      fields: { ...before.fields, c: { type: 'Text' } },
      indexes: [{ fields: ['a'] }, { fields: ['b'] }],
    })
    expect((await api.admin('GET', `/items/${name}`)).body.data).toMatchObject([{ a: 'x', b: 1, c: null }])
  })

  it('a collectionName is that of the path, or refused: collections keep their names', async () => {
    const name = await make({ fields: ab })
    const [before, position] = [await schemaOf(name), await api.position()]
    const named = (collectionName: unknown, schema: object) =>
      api.admin('PATCH', `/schemas/${name}`, { collectionName, schema })
    for (const other of ['renamed', null, 7]) {
      const answer = await named(other, { fields: { c: { type: 'Text' } } })
      expect(answer.status).toBe(400)
      expect(answer.body.error).toMatchObject({
        message: 'Error updating schema',
        details: `collectionName is not ${name}: collections cannot be renamed`,
      })
    }
    expect(await schemaOf(name)).toEqual(before)
    expect(await api.log(position)).toEqual([])
    expect((await named(name, { fields: { c: { type: 'Text' } } })).status).toBe(200)
    expect(await declared(name)).toEqual(['a', 'b', 'c'])
  })

  it('an entry that is given replaces the one of its name', async () => {
    const name = await make({ fields: { a: { type: 'String', allowNull: false, defaultValue: 'x' } } })
    expect(
      (await patch(name, { fields: { a: { type: 'Text' } }, indexes: [{ name: 'one_a', fields: ['a'] }] })).status,
    ).toBe(200)
    expect((await patch(name, { indexes: [{ name: 'one_a', fields: ['a'], unique: true }] })).status).toBe(200)
    expect(await schemaOf(name)).toMatchObject({
      fields: { a: { type: 'Text' } },
      indexes: [{ name: 'one_a', fields: ['a'], unique: true }],
    })
    expect((await schemaOf(name)).fields.a).toEqual({ type: 'Text' })
  })

  it('null removes, and the answer says what and how much', async () => {
    const name = await make({
      fields: { ...ab, of: { relType: 'BelongsTo', target: 'svc_Tenant' } },
      indexes: [{ fields: ['a'] }, { fields: ['b'] }],
      constraints: [{ type: 'check', name: 'positive', expression: 'b > 0' }],
    })
    await fill(name, { a: 'x', b: 1 }, { a: null, b: 2 }, { a: 'y' })
    const dropped = [
      { collection: name, field: 'b', values: 2 },
      { collection: name, field: 'of_Id', values: 0 },
      { collection: name, relation: 'of' },
      { collection: name, index: `${name}_b_idx` },
      { collection: name, constraint: 'positive' },
    ]
    const answer = await patch(name, { fields: { b: null, of: null }, constraints: { positive: null } })
    expect(answer.body).toEqual({ message: 'Schema updated successfully', dropped, altered: [] })
    expect(await columns(name)).toEqual(expect.arrayContaining(['id', 'a', 'createdAt', 'updatedAt']))
    expect(await columns(name)).toHaveLength(4)
    expect((await patch(name, { paranoid: true })).status).toBe(200)
    expect((await patch(name, { paranoid: null, indexes: null })).body.dropped).toEqual([
      { collection: name, field: 'deletedAt', values: 0 },
      { collection: name, index: `${name}_a_idx` },
    ])
  })

  it('?drop=true takes the schema as the whole', async () => {
    const name = await make({ fields: ab, indexes: [{ fields: ['a'] }], paranoid: true })
    await fill(name, { a: 'x', b: 1 })
    const before = await api.position()
    const answer = await patch(name, { fields: { a: ab.a } }, '?drop=true')
    expect(answer.body.dropped).toEqual([
      { collection: name, field: 'b', values: 1 },
      { collection: name, field: 'deletedAt', values: 0 },
      { collection: name, index: `${name}_a_idx` },
    ])
    expect((await api.log(before)).map(({ type, entityId }) => [type, entityId])).toEqual([
      ['data', name],
      ['schema', name],
    ])
    expect(await declared(name)).toEqual(['a'])
    expect((await patch(name, { fields: {} }, '?drop=yes')).status).toBe(400)
  })

  it('never loses a column that the request does not name: by another key, by a relation of its name', async () => {
    const name = await make({ fields: { b: ab.b, of: { relType: 'BelongsTo', target: 'svc_Tenant' } } })
    await fill(name, { b: 1 })
    const other = { of: { relType: 'BelongsTo', target: 'svc_Tenant', foreignKey: 'tenantKey' } }
    for (const fields of [other, { b: { relType: 'BelongsTo', target: 'svc_Tenant' } }]) {
      const answer = await patch(name, { fields })
      expect(answer).toMatchObject({ status: 400, body: { error: { code: 'WOULD_DROP' } } })
      expect(answer.body.error.details).toContain('?drop=true')
    }
    expect(await columns(name)).toEqual(expect.arrayContaining(['b', 'of_Id']))
    expect((await patch(name, { fields: { of: { relType: 'BelongsTo', target: 'svc_Tenant' } } })).status).toBe(200)
  })

  it.each([
    ['an unknown name', { nothing: null }, 'fields.nothing', 'has no field nothing'],
    ['a misspelt one', { titel: null }, 'fields.titel', 'did you mean title?'],
    ['what a switch adds', { createdAt: null }, 'fields.createdAt', 'is added by timestamps'],
    ['the key', { id: null }, 'fields.id', 'primary key'],
  ])('refuses null for %s', async (_what, fields, path, message) => {
    const name = await make({ fields: { title: { type: 'String' } } })
    const answer = await patch(name, { fields })
    expect(answer.status).toBe(400)
    expect(answer.body.error.details.errors).toEqual([{ path, message: expect.stringContaining(message) }])
  })

  it('loses nothing of changes at the same time', async () => {
    const name = await make({ fields: {} })
    const names = Array.from({ length: 6 }, (_, i) => `f${i}`)
    const answers = await Promise.all(names.map((field) => patch(name, { fields: { [field]: { type: 'Integer' } } })))
    expect(answers.map(({ status }) => status)).toEqual(names.map(() => 200))
    expect((await declared(name)).sort()).toEqual(names)
  })
})

describe('a required field that loses its default', () => {
  const bare = { id: { type: 'UUID', primaryKey: true } }
  const warnings = (collection: string, ...fields: string[]) =>
    fields.map((field) => ({
      collection,
      field,
      message: 'has no default any more, so every new item must have a value for it',
    }))

  it('is told by the dry run and by the answer, as is a key that makes its values no longer', async () => {
    const name = await make({ fields: { ...ab, c: { type: 'String', allowNull: false, defaultValue: 'x' } } })
    const fields = { ...bare, a: { type: 'Text' }, c: { type: 'String', allowNull: false } }
    const dry = await patch(name, { fields }, '?dryRun=true')
    expect(dry.body).toMatchObject({ dryRun: true, warnings: warnings(name, 'c', 'id') })
    await fill(name, { a: 'still made by the default' })
    const done = await patch(name, { fields })
    expect([done.status, done.body.warnings]).toEqual([200, warnings(name, 'c', 'id')])
    const refused = await api.admin('POST', `/items/${name}`, { a: 'x', c: 'y' })
    expect(refused.body.error.message).toBe('Validation failed: id: is required')
    // It has none to lose any more.
    expect((await patch(name, { fields: bare })).body).not.toHaveProperty('warnings')
  })

  it('is told by an import', async () => {
    const name = await make({ fields: ab })
    const file = (given: object) => ({
      version: '1.0',
      timestamp: '2026-01-01T00:00:00.000Z',
      schemas: [{ collectionName: name, schema: { fields: { ...ab, ...given } } }],
    })
    expect((await api.admin('POST', '/schemas/import', file({}))).body).not.toHaveProperty('warnings')
    const imported = await api.admin('POST', '/schemas/import', file(bare))
    expect([imported.status, imported.body.warnings]).toEqual([200, warnings(name, 'id')])
  })

  it('tells nothing of one that may be null, or that has another default', async () => {
    const c = { type: 'String', defaultValue: 'x' }
    const name = await make({ fields: { c, d: { ...c, allowNull: false } } })
    const fields = { c: { type: 'String' }, d: { ...c, allowNull: false, defaultValue: 'y' } }
    const { status, body } = await patch(name, { fields })
    expect([status, body]).toEqual([200, { message: 'Schema updated successfully', dropped: [], altered: [] }])
  })
})

describe('DELETE /schemas/{collection}/fields/{field}', () => {
  it('drops one field, with its values, its relation and an event', async () => {
    const fields = { ...ab, k: { type: 'UUID', relType: 'BelongsTo', target: 'svc_Tenant', as: 'of' } }
    const name = await make({ fields })
    await fill(name, { a: 'x', b: 1 })
    const remove = (field: string, query = '') => api.admin('DELETE', `/schemas/${name}/fields/${field}${query}`)
    const before = await api.position()
    expect(await remove('b')).toMatchObject({
      status: 200,
      body: { message: 'Field deleted successfully', dropped: [{ collection: name, field: 'b', values: 1 }] },
    })
    expect((await api.log(before)).map(({ type, action }) => [type, action])).toEqual([
      ['data', 'update'],
      ['schema', 'changed'],
    ])
    expect((await remove('k')).body.dropped).toEqual([
      { collection: name, field: 'k', values: 0 },
      { collection: name, relation: 'of' },
    ])
    expect(await declared(name)).toEqual(['a'])
    expect((await remove('b')).status).toBe(404)
    expect((await remove('createdAt')).status).toBe(400)
    expect((await api.admin('DELETE', '/schemas/nowhere/fields/a')).status).toBe(404)
    expect((await api.admin('DELETE', '/schemas/svc_User/fields/email')).status).toBe(403)
    const user = await api.user()
    expect((await user.call('DELETE', `/schemas/${name}/fields/a`)).status).toBe(403)
    expect((await api.anonymous('DELETE', `/schemas/${name}/fields/a`)).status).toBe(401)
  })

  it('refuses a column that a relation of another collection is read by', async () => {
    const parent = await make({ fields: {} }, 'parent')
    const child = await make({ fields: { up: { relType: 'BelongsTo', target: parent } } }, 'child')
    await patch(parent, { fields: { children: { relType: 'HasMany', target: child, foreignKey: 'up_Id' } } })
    const answer = await api.admin('DELETE', `/schemas/${child}/fields/up_Id`)
    expect(answer.status).toBe(400)
    expect(answer.body.error.details).toContain(`relation children: ${child} has no field up_Id`)
    expect(await columns(child)).toContain('up_Id')
  })
})

describe('?dryRun=true', () => {
  it('shows statements, findings and losses, and changes nothing', async () => {
    const name = await make({ fields: ab })
    await fill(name, { a: 'x', b: 1 })
    const [before, schema] = [await api.position(), await schemaOf(name)]
    const change = { fields: { b: null, a: { type: 'String', allowNull: false }, c: { type: 'Text' } } }
    const answer = await patch(name, change, '?dryRun=true')
    expect(answer).toMatchObject({
      status: 200,
      body: {
        message: 'Nothing was changed',
        dryRun: true,
        changes: [{ collection: name, change: 'update' }],
        dropped: [{ collection: name, field: 'b', values: 1 }],
      },
    })
    expect(answer.body.sql).toEqual(
      expect.arrayContaining([
        `alter table "${name}" drop column "b"`,
        expect.stringContaining(`alter table "${name}" add column "c" text`),
      ]),
    )
    expect(answer.body.findings.map(({ rule, object }: any) => [rule, object])).toEqual(
      expect.arrayContaining([
        ['drop-column', `${name}.b`],
        ['set-not-null', expect.stringContaining(name)],
      ]),
    )
    const requests: [string, string, object?][] = [
      ['POST', '/schemas?dryRun=true', { collectionName: 'never', schema: { fields: {} } }],
      ['DELETE', `/schemas/${name}?dryRun=true`],
      ['DELETE', `/schemas/${name}/fields/a?dryRun=true`],
      ['POST', `/schemas/${name}/indexes?dryRun=true`, { fields: ['a'] }],
      ['POST', `/schemas/${name}/relationships?dryRun=true`, { type: 'M2O', name: 'r', target: 'svc_Tenant' }],
      ['POST', '/schemas/import?dryRun=true', { schemas: [{ collectionName: 'never', schema: { fields: {} } }] }],
    ]
    for (const [method, path, body] of requests) {
      const dry = await api.admin(method, path, body)
      expect(dry).toMatchObject({ status: 200, body: { dryRun: true, message: 'Nothing was changed' } })
      expect(dry.body.sql.length).toBeGreaterThan(0)
    }
    expect(await api.log(before)).toEqual([])
    expect(await schemaOf(name)).toEqual(schema)
    expect((await patch(name, { fields: { x: { type: 'Strange' } } }, '?dryRun=true')).status).toBe(400)
  })

  it('refuses names that SQL has taken as the change does, with a way out, and lets those that it frees', async () => {
    const name = await make({ fields: ab, indexes: [{ name: 'freed_by_it', fields: ['a'] }] })
    await api.sql(`create table legacy_author (id int); create view legacy_view as select 1 as one;
      create type legacy_mood as enum ('fine'); create index legacy_index on legacy_author (id);
      alter table "${name}" add column legacy int`)
    const schema = { fields: { title: { type: 'String' } } }
    const outside = (what: string) =>
      `The schema cannot be applied: the database has ${what} that no definition describes: rename it by SQL, or give the`
    const refused: [string, string, object, number, string][] = [
      ['POST', '', { collectionName: 'legacy_author', schema }, 409, outside('a table legacy_author')],
      ['POST', '', { collectionName: 'legacy_view', schema }, 409, outside('a view legacy_view')],
      ['POST', '', { collectionName: 'legacy_mood', schema }, 409, outside('a type legacy_mood')],
      ['POST', `/${name}/indexes`, { name: 'legacy_index', fields: ['b'] }, 409, outside('an index legacy_index')],
      [
        'PATCH',
        `/${name}`,
        { schema: { fields: { legacy: { type: 'Integer' } } } },
        400,
        `The schema cannot be applied: the table ${name} has a column legacy that no field describes: rename or drop it by SQL, or give the field another name`,
      ],
    ]
    const position = await api.position()
    for (const [method, path, body, status, details] of refused)
      for (const query of ['?dryRun=true', '']) {
        const answer = await api.admin(method, `/schemas${path}${query}`, body)
        expect([path, query, answer.status, answer.body.error?.code]).toEqual([
          path,
          query,
          status,
          'SCHEMA_NOT_APPLICABLE',
        ])
        expect(answer.body.error.details).toContain(details)
      }
    expect(await api.log(position)).toEqual([])
    const both = { a: null, c: { type: 'Text' } }
    for (const query of ['?dryRun=true', '']) {
      const moved = { fields: both, indexes: [{ name: 'freed_by_it', fields: ['c'] }] }
      expect((await patch(name, moved, query)).status).toBe(200)
    }
    await api.sql('drop view legacy_view; drop type legacy_mood; drop table legacy_author')
  })

  it('counts the values that another type rounds, cuts off or cannot hold', async () => {
    const name = await make({
      fields: {
        title: { type: 'String' },
        price: { type: 'Decimal', values: { precision: 10, scale: 2 } },
        at: { type: 'DateTime' },
      },
    })
    await fill(name, { title: 'short', price: '12.50', at: '2026-03-14T09:26:53.000Z' })
    await fill(name, { title: 'a long title', price: '12.00' })
    await fill(name, {})
    const alteredBy = async (fields: object) => {
      const { status, body } = await patch(name, { fields }, '?dryRun=true')
      return status === 200 ? body.altered : [status, body.error.details]
    }
    const cut = { type: 'String', values: { stringLength: 5 } }
    expect(await alteredBy({ title: cut, price: { type: 'Integer' } })).toEqual([
      { collection: name, field: 'title', values: 1 },
      { collection: name, field: 'price', values: 1 },
    ])
    expect(await alteredBy({ title: { type: 'Text' }, price: { type: 'BigInt', description: 'x' } })).toEqual([
      { collection: name, field: 'price', values: 1 },
    ])
    expect(await alteredBy({ title: { type: 'Text' } })).toEqual([])
    // There is no way back from a time of day.
    expect(await alteredBy({ at: { type: 'Time' } })).toEqual([{ collection: name, field: 'at', values: 1 }])
    expect(await alteredBy({ title: { type: 'Integer' } })).toEqual([
      400,
      `The schema cannot be applied: ${name}.title: stored values cannot be converted to the new type`,
    ])
    expect((await patch(name, { fields: { title: cut } }, '?alter=true')).status).toBe(200)
    expect(
      (await api.sql(`select title from ${name} where title is not null order by 1`)).map((row) => row.title),
    ).toEqual(['a lon', 'short'])
  })
})

describe('stored values become others only with ?alter=true', () => {
  const price = { type: 'Decimal', values: { precision: 5, scale: 3 } }
  const [cut, rounded] = [{ type: 'String', values: { stringLength: 3 } }, { type: 'Integer' }]
  const filled = async () => {
    const name = await make({ fields: { name: { type: 'String' }, price } })
    await fill(name, { name: 'Xenia', price: '3.999' }, { name: 'Ann', price: '99.999' }, { name: 'Anna', price: '2' })
    return name
  }
  const rows = async (name: string) =>
    (await api.sql(`select name, price from ${name} order by name`)).map((row) => [row.name, row.price])
  const before = [
    ['Ann', '99.999'],
    ['Anna', '2.000'],
    ['Xenia', '3.999'],
  ]

  it('a change is refused with the number of values, and leaves everything as it was', async () => {
    const name = await filled()
    const [definition, position] = [await schemaOf(name), await api.position()]
    for (const query of ['', '?alter=false']) {
      const answer = await patch(name, { fields: { name: cut, price: rounded } }, query)
      expect(answer).toMatchObject({
        status: 400,
        body: { error: { message: 'Error updating schema', code: 'WOULD_ALTER' } },
      })
      expect(answer.body.error.details).toBe(
        `This would alter ${name}.name (2 values), ${name}.price (2 values): ` +
          'another type rounds, cuts off, rewrites or replaces them: add ?alter=true to agree to that',
      )
    }
    const whole = await patch(name, { fields: { name: { type: 'String' }, price: rounded } }, '?drop=true')
    expect(whole.body.error).toMatchObject({ code: 'WOULD_ALTER', details: expect.stringContaining('(2 values)') })
    expect(await rows(name)).toEqual(before)
    expect(await schemaOf(name)).toEqual(definition)
    expect(await api.log(position)).toEqual([])
  })

  it('the answer tells what was altered', async () => {
    const name = await filled()
    const position = await api.position()
    const answer = await patch(name, { fields: { name: cut, price: rounded } }, '?alter=true')
    expect(answer).toMatchObject({ status: 200 })
    expect(answer.body).toEqual({
      message: 'Schema updated successfully',
      dropped: [],
      altered: [
        { collection: name, field: 'name', values: 2 },
        { collection: name, field: 'price', values: 2 },
      ],
    })
    expect(await rows(name)).toEqual([
      ['Ann', 100],
      ['Ann', 2],
      ['Xen', 4],
    ])
    expect((await api.log(position)).map(({ type, entityId }) => [type, entityId])).toEqual([
      ['data', name],
      ['schema', name],
    ])
  })

  it('a change that alters none needs no agreement', async () => {
    const name = await filled()
    const fields = { name: { type: 'String', values: { stringLength: 5 } }, price: { type: 'Decimal' } }
    for (const change of [fields, { name: { type: 'Text' }, price: { type: 'Double' } }])
      expect(await patch(name, { fields: change })).toMatchObject({ status: 200, body: { dropped: [], altered: [] } })
  })

  it('counts what has no way back, or only for the values that are whole', async () => {
    const name = await make({ fields: { at: { type: 'DateTime' }, data: { type: 'JSON' } } })
    await fill(name, { at: '2026-03-14T09:26:53.000Z', data: { a: 1 } }, { data: 12 })
    const fields = { at: { type: 'Time' }, data: { type: 'String', values: { stringLength: 4 } } }
    expect((await patch(name, { fields })).body.error.details).toContain(`${name}.at (1 value), ${name}.data (1 value)`)
    expect((await patch(name, { fields }, '?alter=true')).body.altered).toEqual([
      { collection: name, field: 'at', values: 1 },
      { collection: name, field: 'data', values: 1 },
    ])
  })

  it('a column that becomes a calculated one, or is one no longer, loses what it shows', async () => {
    const name = await make({ fields: { a: { type: 'String' }, b: { type: 'String' } } })
    await fill(name, { a: 'x', b: 'y' }, { a: 'z' })
    const steps = [
      [{ type: 'VIRTUAL', calculated: 'upper(a)' }, 1],
      [{ type: 'VIRTUAL', calculated: 'lower(a)' }, undefined],
      [{ type: 'String' }, 2],
    ] as const
    for (const [b, values] of steps) {
      if (values !== undefined)
        expect((await patch(name, { fields: { b } })).body.error.details).toContain(
          `${name}.b (${values === 1 ? '1 value' : '2 values'})`,
        )
      const altered = values === undefined ? [] : [{ collection: name, field: 'b', values }]
      const query = values === undefined ? '' : '?alter=true'
      expect((await patch(name, { fields: { b } }, query)).body.altered).toEqual(altered)
    }
  })

  it('deleted rows come back with the switch only, and are counted too', async () => {
    const name = await make({ paranoid: true, fields: { name: { type: 'String' } } })
    await fill(name, { name: 'kept' }, { name: 'gone' })
    const off = { paranoid: false }
    expect((await patch(name, off, '?dryRun=true')).body.altered).toEqual([])
    const [{ id }] = await api.sql(`select id from ${name} where name = 'gone'`)
    expect((await api.admin('DELETE', `/items/${name}/${id}`)).status).toBe(200)
    const altered = [{ collection: name, restored: 1 }]
    expect((await patch(name, off, '?dryRun=true')).body).toMatchObject({ dryRun: true, altered })
    const position = await api.position()
    for (const [change, query] of [
      [off, ''],
      [{ paranoid: null }, ''],
      [{ fields: { name: { type: 'String' } } }, '?drop=true'],
      // The column alone is no trash.
      [{ ...off, fields: { deletedAt: { type: 'DateTime' } } }, ''],
    ] as const) {
      const refused = await patch(name, change, query)
      expect(refused).toMatchObject({ status: 400, body: { error: { code: 'WOULD_ALTER' } } })
      expect(refused.body.error.details).toBe(
        `This would bring back 1 deleted row of ${name}: without paranoid there is no trash: add ?alter=true to agree to that`,
      )
    }
    expect(await api.log(position)).toEqual([])
    const done = await patch(name, off, '?alter=true')
    expect(done.body).toMatchObject({ dropped: [{ collection: name, field: 'deletedAt', values: 1 }], altered })
    expect((await api.admin('GET', `/items/${name}`)).body.totalCount).toBe(2)
  })

  it('nobody writes between the count and the change', async () => {
    const name = await filled()
    const definition = await schemaOf(name)
    const others: unknown[] = []
    const tried = commit(api.runtime, systemActor, async (tx) => {
      const edit = (catalog: Catalog) =>
        withSchema(definitionsOf(catalog), name, { ...definition, fields: { name: cut, price: { type: 'Integer' } } })
      return {
        result: await executeChange(
          tx,
          edit,
          {},
          {
            before: async () => undefined,
            altering: async () => {
              others.push(
                await api
                  .sql(`do $$ begin lock table ${name} in row exclusive mode nowait; end $$`)
                  .catch((error) => error.code),
              )
              throw new Error('enough')
            },
            afterwards: async () => undefined,
          },
        ),
      }
    })
    await expect(tried).rejects.toThrow('enough')
    expect(others).toEqual(['55P03'])
    expect(await rows(name)).toEqual(before)
  })

  it('so do imports, which change nothing without', async () => {
    const name = await filled()
    const dump = { schemas: [{ collectionName: name, schema: { fields: { price: rounded } } }] }
    const refused = await api.admin('POST', '/schemas/import', dump)
    expect(refused.status).toBe(400)
    expect(refused.body.error.details.errors).toEqual([
      { collectionName: null, error: expect.stringContaining(`This would alter ${name}.price (2 values): `) },
    ])
    expect(await rows(name)).toEqual(before)
    const altered = [{ collection: name, field: 'price', values: 2 }]
    expect((await api.admin('POST', '/schemas/import?dryRun=true', dump)).body).toMatchObject({ dryRun: true, altered })
    const done = await api.admin('POST', '/schemas/import?alter=true', dump)
    expect(done.body).toMatchObject({ changes: { updated: [name] }, dropped: [], altered })
  })
})

describe('POST /schemas/import merges too', () => {
  it('drops what the file leaves out only with ?drop=true', async () => {
    const name = await make({ fields: ab, indexes: [{ fields: ['a'] }] })
    await fill(name, { a: 'x', b: 1 })
    const dump = { schemas: [{ collectionName: name, schema: { fields: { a: ab.a } } }] }
    const merging = await api.admin('POST', '/schemas/import', dump)
    expect(merging.body).toMatchObject({ changes: { unchanged: [name] }, dropped: [] })
    const replacing = await api.admin('POST', '/schemas/import?drop=true', dump)
    expect(replacing.body.dropped).toEqual([
      { collection: name, field: 'b', values: 1 },
      { collection: name, index: `${name}_a_idx` },
    ])
  })
})

describe('O2M without foreignKey', () => {
  const relate = (source: string, body: object) => api.admin('POST', `/schemas/${source}/relationships`, body)

  it('reads the BelongsTo that is there', async () => {
    const album = await make({ fields: {} }, 'album')
    const song = await make({ fields: { albumKey: { type: 'UUID', relType: 'BelongsTo', target: album, as: 'on' } } })
    const before = await columns(song)
    expect((await relate(album, { type: 'O2M', name: 'songs', target: song, onDelete: 'CASCADE' })).status).toBe(201)
    expect(await columns(song)).toEqual(before)
    expect((await schemaOf(album)).fields.songs).toMatchObject({ relType: 'HasMany', foreignKey: 'albumKey' })
    expect((await schemaOf(song)).fields.on).toMatchObject({ onDelete: 'CASCADE' })
    const [one] = (await api.admin('POST', `/items/${album}/bulk`, [{}])).body.data
    await fill(song, { albumKey: one })
    expect((await api.admin('GET', `/items/${album}/${one}?fields=songs.id`)).body.data.songs).toHaveLength(1)
    const inline = await patch(album, { fields: { list: { relType: 'HasMany', target: song } } })
    expect(inline.status).toBe(200)
    expect((await schemaOf(album)).fields.list).toMatchObject({ foreignKey: 'albumKey' })
  })

  it('names those that fit where there are several, and takes the one that is named', async () => {
    const author = await make({ fields: {} }, 'author')
    const book = await make({
      fields: {
        writer: { relType: 'BelongsTo', target: author },
        editor: { relType: 'BelongsTo', target: author },
      },
    })
    const answer = await relate(author, { type: 'O2M', name: 'books', target: book })
    expect(answer.status).toBe(400)
    expect(answer.body.error.details).toContain('writer_Id and editor_Id')
    const inline = await patch(author, { fields: { books: { relType: 'HasMany', target: book } } })
    expect(inline.body.error.details.errors[0].message).toContain('writer_Id and editor_Id')
    const named = { type: 'O2M', name: 'books', target: book, foreignKey: 'writer_Id' }
    expect((await relate(author, named)).status).toBe(201)
    expect((await relate(author, { type: 'O2M', name: 'edited', target: book, alias: 'editor' })).status).toBe(201)
    expect((await schemaOf(author)).fields.edited).toMatchObject({ foreignKey: 'editor_Id' })
    expect((await declared(book)).sort()).toEqual(['editor', 'writer'])
  })

  it('calls new columns {relation}_id, and takes one that differs in case only', async () => {
    const far = await make({ fields: {} }, 'far')
    const near = await make({ fields: { taken_Id: { type: 'UUID' } } }, 'near')
    for (const [type, name] of [
      ['M2O', 'one'],
      ['O2O', 'two'],
      ['M2O', 'taken'],
    ])
      expect((await relate(near, { type, name, target: far })).status).toBe(201)
    expect((await relate(near, { type: 'O2M', name: 'all', target: far })).status).toBe(201)
    expect(await columns(near)).toEqual(expect.arrayContaining(['one_id', 'two_id', 'taken_Id']))
    expect(await columns(near)).not.toContain('taken_id')
    expect(await columns(far)).toContain(`${near}_id`)
    const of = { type: 'O2M', name: 'others', target: far, alias: 'owner' }
    expect((await relate(near, of)).status).toBe(201)
    expect(await columns(far)).toContain('owner_id')
    const [one] = (await api.admin('POST', `/items/${far}/bulk`, [{}])).body.data
    expect((await api.admin('POST', `/items/${near}?fields=one_id,one.id`, { one_id: one })).body.data).toEqual({
      one_id: one,
      one: { id: one },
    })
  })

  it('relations that are there keep their columns, and inline ones are {relation}_Id', async () => {
    const far = await make({ fields: {} }, 'far')
    const near = await make({ fields: { inline: { relType: 'BelongsTo', target: far } } }, 'near')
    // As the route stored it when its default was {relation}_Id.
    expect((await relate(near, { type: 'M2O', name: 'old', target: far, foreignKey: 'old_Id' })).status).toBe(201)
    expect((await relate(near, { type: 'M2O', name: 'new', target: far })).status).toBe(201)
    expect((await schemaOf(near)).fields).toMatchObject({
      old: { foreignKey: 'old_Id' },
      new: { foreignKey: 'new_id' },
    })
    const before = await columns(near)
    expect(before).toEqual(expect.arrayContaining(['inline_Id', 'old_Id', 'new_id']))
    const kept = async () => expect(await columns(near)).toEqual(before)
    const { fields } = await schemaOf(near)
    const again = { relType: 'BelongsTo', target: far, description: 'changed' }
    for (const [schema, query] of [
      [{ fields: { old: again, new: again } }, ''],
      [{ fields }, ''],
      [{ fields }, '?drop=true'],
    ] as const) {
      expect(await patch(near, schema, query)).toMatchObject({ status: 200, body: { dropped: [] } })
      await kept()
    }
    const renamed = await api.admin('PATCH', `/schemas/${near}/relationships/old`, {
      alias: 'nears',
      onDelete: 'CASCADE',
    })
    expect(renamed.status).toBe(200)
    const dump = (await api.admin('GET', '/schemas/export')).body
    const schemas = dump.schemas.filter(({ collectionName }: any) => [far, near].includes(collectionName))
    expect((await api.admin('POST', '/schemas/import', { ...dump, schemas })).body.changes.updated).toEqual([])
    await kept()
  })

  it('HasOne reads a column that the target has', async () => {
    const person = await make({ fields: {} }, 'person')
    const card = await make({ fields: { of: { relType: 'BelongsTo', target: person } } }, 'card')
    expect((await relate(person, { type: 'HasOne', name: 'card', target: card })).status).toBe(201)
    expect((await schemaOf(person)).fields.card).toMatchObject({ relType: 'HasOne', foreignKey: 'of_Id' })
    expect(await columns(person)).not.toContain('card_Id')
  })
})

describe('any definition', () => {
  const column = fc.record(
    {
      type: fc.constantFrom('String', 'Integer', 'Boolean', 'JSON', 'DateTime', 'UUID', 'Array_String'),
      allowNull: fc.boolean(),
      description: fc.string({ maxLength: 5 }),
    },
    { requiredKeys: ['type'] },
  )
  const relation = fc.record(
    {
      relType: fc.constantFrom('BelongsTo', 'M2O', 'O2O'),
      target: fc.constant('svc_Tenant'),
      type: fc.constant('UUID'),
      as: fc.constantFrom('r1', 'r2'),
      allowNull: fc.boolean(),
      onUpdate: fc.constantFrom('CASCADE', 'NO ACTION'),
    },
    { requiredKeys: ['relType', 'target'] },
  )
  const schema = fc.record(
    {
      fields: fc.record({ a: column, b: column, cId: relation, d: relation }, { requiredKeys: [] }),
      timestamps: fc.boolean(),
      paranoid: fc.boolean(),
      usertrack: fc.boolean(),
      sortEnabled: fc.boolean(),
    },
    { requiredKeys: ['fields'] },
  )

  it('that is taken comes back as itself: shown, sent again, exported and imported elsewhere', async () => {
    const elsewhere = await startApi()
    let taken = 0
    await fc.assert(
      fc.asyncProperty(schema, async (definition) => {
        count += 1
        const collectionName = `any${count}`
        const made = await api.admin('POST', '/schemas', { collectionName, schema: definition })
        expect([201, 400]).toContain(made.status)
        if (made.status === 400) return
        taken += 1
        const shown = await schemaOf(collectionName)
        const before = await api.position()
        for (const [again, query] of [
          [shown, ''],
          [shown, '?drop=true'],
          [definition, ''],
          [definition, '?drop=true'],
        ] as const) {
          const answer = await patch(collectionName, again, query)
          expect([answer.status, answer.body.dropped]).toEqual([200, []])
        }
        expect(await api.log(before)).toEqual([])
        const { schemas } = (await api.admin('GET', '/schemas-export')).body
        const own = schemas.filter((each: any) => each.collectionName === collectionName)
        expect((await elsewhere.admin('POST', '/schemas/import', { schemas: own })).body.changes.created).toEqual([
          collectionName,
        ])
        const there = (await elsewhere.admin('GET', `/schemas/${collectionName}`)).body.data.schema
        expect(there).toEqual(shown)
      }),
      { numRuns: 12 },
    )
    expect(taken).toBeGreaterThan(0)
  })
})
