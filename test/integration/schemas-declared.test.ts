import { beforeAll, describe, expect, it } from 'vitest'
import { type Api, startApi } from '../support/api.ts'
import { declaredOf } from '../support/declared.ts'

let api: Api
beforeAll(async () => {
  api = await startApi({ EXPOSE_ERROR_DETAILS: 'false' })
  await make('category', { fields: { id: serial, name: { type: 'String' } } })
  await make('person', named)
})

const serial = { type: 'Integer', primaryKey: true, defaultValue: { type: 'AUTOINCREMENT' } }
const named = { fields: { name: { type: 'String' } } }

let count = 0
const fresh = (word: string) => {
  count += 1
  return `${word}${count}`
}
const declare = (collectionName: string, schema: object) => api.admin('POST', '/schemas', { collectionName, schema })
const make = async (collectionName: string, schema: object) => {
  const answer = await declare(collectionName, schema)
  if (answer.status !== 201) throw new Error(answer.text)
}
const create = async (collection: string, item: object): Promise<any> => {
  const answer = await api.admin('POST', `/items/${collection}`, item)
  if (answer.status !== 201) throw new Error(answer.text)
  return answer.body.data.id
}
const read = async (path: string) => (await api.admin('GET', `/items/${path}`)).body.data
const schemaOf = async (name: string) => (await api.admin('GET', `/schemas/${name}`)).body.data.schema
const problemsOf = async (schema: object): Promise<Record<string, string>> => {
  const answer = await declare('refused', schema)
  expect(answer).toMatchObject({ status: 400, body: { error: { message: 'Error creating schema' } } })
  return Object.fromEntries(answer.body.error.details.errors.map(({ path, message }: any) => [path, message]))
}

describe('a relation and its column in one entry', () => {
  it('makes both, and is read, written and constrained as two entries are', async () => {
    await make('product', {
      fields: {
        id: serial,
        name: { type: 'String', allowNull: false },
        categoryId: {
          type: 'Integer',
          allowNull: false,
          relType: 'BelongsTo',
          target: 'category',
          foreignKey: 'categoryId',
          as: 'category',
          onDelete: 'CASCADE',
          description: 'M2O',
        },
      },
    })
    const { fields } = await schemaOf('product')
    expect(fields.categoryId).toEqual({ type: 'Integer', allowNull: false })
    expect(fields.category).toMatchObject({ relType: 'BelongsTo', target: 'category', foreignKey: 'categoryId' })
    const category = await create('category', { name: 'C' })
    const product = await create('product', { name: 'P', categoryId: category })
    expect(await read(`product/${product}?fields=name,categoryId,category.name`)).toEqual({
      name: 'P',
      categoryId: category,
      category: { id: category, name: 'C' },
    })
    expect((await api.admin('POST', '/items/product', { name: 'Q' })).status).toBe(400)
    expect((await api.admin('POST', '/items/product', { name: 'Q', categoryId: 999 })).status).toBe(409)
    await api.admin('DELETE', `/items/category/${category}`)
    expect(await read('product')).toEqual([])
  })

  it.each<[what: string, entry: object, column: string]>([
    ['without foreignKey', { type: 'Integer', relType: 'BelongsTo', target: 'category', as: 'category' }, 'categoryId'],
    ['without type', { relType: 'BelongsTo', target: 'category', as: 'category' }, 'categoryId'],
    ['in the short word', { type: 'Integer', relType: 'M2O', target: 'category', as: 'category' }, 'categoryId'],
    ['of another column', { relType: 'BelongsTo', target: 'category', foreignKey: 'cat', as: 'category' }, 'cat'],
  ])('%s', async (_what, entry, column) => {
    const name = fresh('thing')
    await make(name, { fields: { categoryId: entry } })
    const category = await create('category', { name: 'C' })
    const id = await create(name, { [column]: category })
    expect(await read(`${name}/${id}?fields=${column},category.name`)).toEqual({
      [column]: category,
      category: { id: category, name: 'C' },
    })
  })

  it('is the same change again, whole or alone, and again what it was', async () => {
    const name = fresh('thing')
    const entry = { type: 'Integer', relType: 'BelongsTo', target: 'category', foreignKey: 'catId', as: 'cat' }
    const schema = { fields: { name: { type: 'String' }, catId: entry } }
    await make(name, schema)
    const before = await api.position()
    for (const again of [schema, { fields: { catId: entry } }, await schemaOf(name)]) {
      const answer = await api.admin('PATCH', `/schemas/${name}`, { schema: again })
      expect(answer.body).toEqual({ message: 'Schema updated successfully', dropped: [], altered: [] })
    }
    expect(await api.log(before)).toEqual([])
  })

  it('comes by an import as well, between collections that come together, and again as nothing new', async () => {
    const entry = {
      type: 'Integer',
      relType: 'BelongsTo',
      target: 'imported_group',
      foreignKey: 'groupId',
      as: 'group',
    }
    const user = { type: 'UUID', relType: 'BelongsTo', target: 'svc_User', foreignKey: 'userId', as: 'user' }
    const schemas = [
      { collectionName: 'imported_member', schema: { fields: { groupId: entry, userId: user } } },
      { collectionName: 'imported_group', schema: { fields: { id: serial, name: { type: 'String' } } } },
    ]
    const first = await api.admin('POST', '/schemas/import', { schemas })
    expect(first.body.changes).toMatchObject({ created: ['imported_group', 'imported_member'], errors: [] })
    const group = await create('imported_group', { name: 'G' })
    await create('imported_member', { groupId: group })
    expect(await read('imported_member?fields=group.name,user.email')).toMatchObject([
      { group: { name: 'G' }, user: null },
    ])
    const before = await api.position()
    expect((await api.admin('POST', '/schemas/import', { schemas })).body.changes).toMatchObject({
      updated: [],
      unchanged: ['imported_member', 'imported_group'],
    })
    expect(await api.log(before)).toEqual([])
  })

  it('gives the column a default, such as the user who creates the row, although only the relation is declared', async () => {
    const owner = { relType: 'BelongsTo', target: 'svc_User', defaultValue: { type: 'CURRENT_USER' } }
    await make('parcel', { fields: { title: { type: 'String' }, owner: { ...owner, allowNull: false } } })
    const schema = await schemaOf('parcel')
    expect(schema.fields.owner).toEqual({ relType: 'BelongsTo', target: 'svc_User', foreignKey: 'owner_Id' })
    expect(schema.fields.owner_Id).toEqual({ type: 'UUID', allowNull: false, defaultValue: { type: 'CURRENT_USER' } })
    const again = await api.admin('PATCH', '/schemas/parcel', {
      schema: { fields: { owner: { ...owner, allowNull: false } } },
    })
    expect(again.body).toMatchObject({ dropped: [], altered: [] })
    expect(await schemaOf('parcel')).toEqual(schema)

    const customer = await api.user([
      { collection: 'parcel', action: 'create', fields: ['title'] },
      { collection: 'parcel', action: 'read', fields: ['*'], conditions: { owner_Id: '$CURRENT_USER' } },
    ])
    await create('parcel', { title: 'of others' })
    expect((await customer.call('POST', '/items/parcel', { title: 'own' })).status).toBe(201)
    expect((await customer.call('POST', '/items/parcel', { title: 'x', owner_Id: customer.id })).status).toBe(403)
    expect((await customer.call('GET', '/items/parcel?fields=title,owner_Id')).body.data).toEqual([
      { title: 'own', owner_Id: customer.id },
    ])

    const beside = { owner, owner_Id: { type: 'UUID' } }
    expect(await problemsOf({ fields: beside })).toEqual({
      'fields.owner.defaultValue': 'fields.owner_Id declares the column: say it there',
    })
    const many = { relType: 'HasMany', target: 'person', defaultValue: { type: 'CURRENT_USER' } }
    expect(await problemsOf({ fields: { many } })).toMatchObject({
      'fields.many.defaultValue': expect.stringContaining('has no effect'),
    })
  })

  it('says what makes a default where only its name is given', async () => {
    const message = async (type: string, defaultValue: unknown) =>
      (await problemsOf({ fields: { f: { type, defaultValue } } }))['fields.f']
    expect(await message('UUID', 'CURRENT_USER')).toMatch(/expected a UUID, did you mean {"type": "CURRENT_USER"}\?$/)
    expect(await message('UUID', '$CURRENT_TENANT')).toMatch(/, did you mean {"type": "CURRENT_TENANT"}\?$/)
    expect(await message('Integer', 'autoincrement')).toMatch(/, did you mean {"type": "AUTOINCREMENT"}\?$/)
    expect(await message('UUID', 'nobody')).toMatch(/expected a UUID$/)
  })

  it('says what is wrong where the two cannot be told apart or contradict each other', async () => {
    const entry = { type: 'Integer', relType: 'BelongsTo', target: 'category', foreignKey: 'categoryId' }
    expect(await problemsOf({ fields: { categoryId: entry } })).toEqual({
      'fields.categoryId': expect.stringContaining('as: "category"'),
    })
    const twice = { categoryId: { type: 'Integer' }, category: { ...entry, unique: true } }
    expect(await problemsOf({ fields: twice })).toEqual({
      'fields.category.unique': expect.stringContaining('fields.categoryId declares the column'),
    })
    const elsewhere = { one: { ...entry, as: 'same' }, two: { ...entry, foreignKey: 'b', as: 'same' } }
    expect(await problemsOf({ fields: elsewhere })).toEqual({ 'fields.same': 'is declared by two entries' })
  })
})

describe('as', () => {
  it('names the relation in every inline form', async () => {
    await make('writer', named)
    await make('novel', {
      fields: {
        name: { type: 'String' },
        author: { relType: 'BelongsTo', target: 'writer', foreignKey: 'writer_Id', as: 'wroteIt' },
        labels: {
          relType: 'BelongsToMany',
          target: 'category',
          through: 'novel_category',
          foreignKey: 'novel_Id',
          otherKey: 'category_Id',
          as: 'tagged',
        },
      },
    })
    const { schema } = (await api.admin('GET', '/schemas/writer')).body.data
    const more = {
      list: { relType: 'HasMany', target: 'novel', foreignKey: 'writer_Id', as: 'novels' },
      one: { relType: 'HasOne', target: 'novel', foreignKey: 'writer_Id', as: 'best' },
    }
    const fields = { ...schema.fields, ...more }
    expect((await api.admin('PATCH', '/schemas/writer', { schema: { ...schema, fields } })).status).toBe(200)
    const writer = await create('writer', { name: 'W' })
    const novel = await create('novel', { name: 'N', writer_Id: writer })
    const category = await create('category', { name: 'C' })
    await create('novel_category', { novel_Id: novel, category_Id: category })
    expect(await read(`novel/${novel}?fields=wroteIt.name,tagged.name`)).toEqual({
      wroteIt: { id: writer, name: 'W' },
      tagged: [{ id: category, name: 'C' }],
    })
    expect(await read(`writer/${writer}?fields=novels.name,best.name`)).toEqual({
      novels: [{ id: novel, name: 'N' }],
      best: { id: novel, name: 'N' },
    })
    expect(Object.keys(declaredOf((await schemaOf('novel')).fields))).toEqual(['name', 'wroteIt', 'tagged'])
  })

  it('names it by the relationships route too', async () => {
    const relate = (source: string, body: object) => api.admin('POST', `/schemas/${source}/relationships`, body)
    const bodies: object[] = [
      { type: 'M2O', name: 'mainId', target: 'category', as: 'main' },
      { type: 'O2O', as: 'card', target: 'category' },
      { type: 'O2M', name: 'x', as: 'rows', target: 'row' },
      { type: 'M2M', name: 'x', as: 'people', target: 'person' },
      { type: 'M2A', name: 'x', as: 'parts', tables: ['row'] },
    ]
    await make('row', named)
    await make('sheet', named)
    for (const body of bodies) expect((await relate('sheet', body)).text).toContain('created successfully')
    const { fields } = await schemaOf('sheet')
    expect(Object.keys(declaredOf(fields))).toEqual(
      expect.arrayContaining(['mainId', 'main', 'card_id', 'card', 'rows', 'people', 'parts']),
    )
    expect(fields).not.toHaveProperty('x')
    expect(await schemaOf('sheet_person_people_junction')).toMatchObject({ isJunction: true })
  })

  it('may be a word of SQL inline', async () => {
    await make('desk', {
      fields: {
        user: { relType: 'BelongsTo', target: 'svc_User', foreignKey: 'user_Id' },
        order: { relType: 'BelongsTo', target: 'person' },
        groupId: { type: 'UUID', relType: 'BelongsTo', target: 'person', as: 'group' },
      },
    })
    const me = (await api.admin('GET', '/auth/me')).body.user.id
    const person = await create('person', { name: 'P' })
    const desk = await create('desk', { user_Id: me, order_Id: person, groupId: person })
    const path = `desk/${desk}?fields=user.email,order.name,group.name&filter={"user.email":"admin@example.com"}`
    expect(await read(path)).toMatchObject({
      user: { email: 'admin@example.com' },
      order: { name: 'P' },
      group: { name: 'P' },
    })
    expect(await read('desk?sort=order.name&filter={"group.name":"P"}&fields=id')).toEqual([{ id: desk }])
  })
})

describe('words for relations', () => {
  it.each([
    ['M2O', 'BelongsTo'],
    ['BelongsTo', 'BelongsTo'],
    ['O2M', 'HasMany'],
    ['HasMany', 'HasMany'],
    ['M2M', 'BelongsToMany'],
    ['BelongsToMany', 'BelongsToMany'],
    ['O2O', 'BelongsTo'],
  ])('%s is known as relType and as type', async (word, relType) => {
    const [far, near] = [fresh('far'), fresh('near')]
    await make(far, { fields: { to: { relType: 'BelongsTo', target: 'person', foreignKey: `${near}_Id` } } })
    const more = word === 'M2M' || word === 'BelongsToMany' ? { through: `${near}_links` } : {}
    const fields = {
      one: { relType: word, target: far, ...more },
      two: { type: word, target: far, ...more },
    }
    await make(near, { fields })
    const shown = (await schemaOf(near)).fields
    expect([shown.one.relType, shown.two.relType]).toEqual([relType, relType])
    expect(shown.one_Id?.unique).toBe(word === 'O2O' ? true : undefined)
  })

  it.each(['M2O', 'BelongsTo', 'O2M', 'HasMany', 'O2O', 'HasOne', 'M2M', 'BelongsToMany'])(
    '%s is known by the relationships route as type and as relType',
    async (word) => {
      const [far, near] = [fresh('far'), fresh('near')]
      for (const name of [far, near]) await make(name, named)
      for (const member of ['type', 'relType']) {
        const body = { [member]: word, name: `by_${member}`, target: far, ...(word === 'O2M' && { alias: member }) }
        const alias = word === 'HasMany' ? { alias: `of_${member}` } : {}
        expect((await api.admin('POST', `/schemas/${near}/relationships`, { ...body, ...alias })).text).toContain(
          'created successfully',
        )
      }
      expect(Object.keys(declaredOf((await schemaOf(near)).fields))).toEqual(
        expect.arrayContaining(['by_type', 'by_relType']),
      )
    },
  )

  it('of other products are named', async () => {
    expect(
      await problemsOf({
        fields: {
          a: { relType: 'belongsTo', target: 'person' },
          b: { relType: 'manyToOne', target: 'person' },
          c: { relType: 'BelongsToSome', target: 'person' },
          d: { relType: 'M2O', target: 'persn' },
        },
      }),
    ).toEqual({
      'fields.a.relType': expect.stringContaining('did you mean "BelongsTo"?'),
      'fields.b.relType': expect.stringContaining('did you mean "BelongsTo"?'),
      'fields.c.relType': 'must be BelongsTo, HasMany, HasOne or BelongsToMany',
      'fields.d.target': 'unknown collection "persn"',
    })
  })
})

describe('parts that the server adds', () => {
  const every = { timestamps: true, paranoid: true, usertrack: true, sortEnabled: true }

  it('is shown with SystemGenerated in one schema, the list and the export', async () => {
    const name = fresh('thing')
    await make(name, { ...every, fields: { of: { relType: 'BelongsTo', target: 'category', allowNull: false } } })
    const schema = await schemaOf(name)
    expect(schema.fields).toEqual({
      id: { type: 'UUID', primaryKey: true, defaultValue: { type: 'UUIDV4' }, SystemGenerated: 'true' },
      of: { relType: 'BelongsTo', target: 'category', allowNull: false },
      of_Id: { type: 'Integer', allowNull: false, SystemGenerated: 'true' },
      userCreated_Id: { type: 'UUID', SystemGenerated: 'true' },
      userUpdated_Id: { type: 'UUID', SystemGenerated: 'true' },
      userCreated: expect.objectContaining({ relType: 'BelongsTo', target: 'svc_User', SystemGenerated: 'true' }),
      userUpdated: expect.objectContaining({ relType: 'BelongsTo', target: 'svc_User', SystemGenerated: 'true' }),
      sort: { type: 'Integer', SystemGenerated: 'true' },
      createdAt: expect.objectContaining({ type: 'DateTime', SystemGenerated: 'true' }),
      updatedAt: expect.objectContaining({ type: 'DateTime', SystemGenerated: 'true' }),
      deletedAt: { type: 'DateTime', SystemGenerated: 'true' },
    })
    const [listed] = (await api.admin('GET', `/schemas?search=${name}`)).body.data
    expect(listed.schema).toEqual(schema)
    const exported = (await api.admin('GET', '/schemas-export')).body.schemas
    expect(exported.find((each: any) => each.collectionName === name).schema).toEqual(schema)
  })

  it('is ignored where it comes back: every collection is a no-op as PATCH, as a whole and as import', async () => {
    const before = await api.position()
    const dump = (await api.admin('GET', '/schemas-export')).body
    const some = ['svc_User', 'svc_Tasks', 'svc_UserRole', 'svc_AuditLog', 'product', 'novel', 'desk', 'sheet']
    for (const collectionName of some)
      for (const query of ['', '?drop=true']) {
        const { schema } = dump.schemas.find((each: any) => each.collectionName === collectionName)
        const answer = await api.admin('PATCH', `/schemas/${collectionName}${query}`, { schema })
        expect([collectionName, answer.status, answer.body.dropped]).toEqual([collectionName, 200, []])
      }
    for (const query of ['', '?drop=true']) {
      const answer = await api.admin('POST', `/schemas/import${query}`, dump)
      expect(answer.body.changes).toMatchObject({ created: [], updated: [], deleted: [], errors: [] })
    }
    expect(await api.log(before)).toEqual([])
  })

  it('may be declared by itself, and turned off with its switch although it comes along', async () => {
    const name = fresh('thing')
    await make(name, { fields: { a: { type: 'String' } } })
    const shown = await schemaOf(name)
    const off = await api.admin('PATCH', `/schemas/${name}`, { schema: { ...shown, timestamps: false } })
    expect(off.body.dropped).toEqual([
      { collection: name, field: 'createdAt', values: 0 },
      { collection: name, field: 'updatedAt', values: 0 },
    ])
    expect((await schemaOf(name)).fields).not.toHaveProperty('createdAt')
  })

  it('of an old export keeps what is not the same here: keys of another type, columns that are required', async () => {
    const mark = { SystemGenerated: 'true' }
    await make('old_links', {
      isJunction: true,
      fields: {
        id: { ...serial, ...mark },
        person_id: { type: 'UUID', allowNull: false, ...mark },
        person: { relType: 'BelongsTo', target: 'person', foreignKey: 'person_id', ...mark },
        createdAt: { type: 'DateTime', ...mark },
      },
    })
    const { fields } = await schemaOf('old_links')
    expect(fields.id).toMatchObject({ type: 'Integer' })
    expect(fields.person_id).toMatchObject({ type: 'UUID', allowNull: false })
  })

  it('is a time although it was declared as a date', async () => {
    const name = fresh('thing')
    await make(name, { fields: { createdAt: { type: 'Date' }, updatedAt: { type: 'Date', SystemGenerated: 'true' } } })
    const id = await create(name, {})
    expect(await read(`${name}/${id}`)).toMatchObject({
      createdAt: expect.stringMatching(/T.*Z$/),
      updatedAt: expect.stringMatching(/T.*Z$/),
    })
    const shown = await schemaOf(name)
    expect([shown.fields.createdAt.type, shown.fields.updatedAt.type]).toEqual(['DateTime', 'DateTime'])
    const before = await api.position()
    expect((await api.admin('PATCH', `/schemas/${name}`, { schema: shown })).status).toBe(200)
    expect((await api.log(before)).filter(({ type }) => type === 'data')).toHaveLength(1)
    await make(fresh('thing'), { timestamps: false, fields: { createdAt: { type: 'Date' } } })
  })
})

describe('the closed shape', () => {
  it('refuses every unknown member at once, each with its path and what is right', async () => {
    const problems = await problemsOf({
      softDelete: true,
      colums: {},
      realtime: { events: ['insert'] },
      cache: { seconds: 5 },
      fields: {
        a: { type: 'String', required: true, bogus: 1, maxlenght: 5 },
        b: { type: 'String', nullable: false },
        c: { type: 'String', allownull: false },
        d: { type: 'Integer', autoIncrement: true, min: 3, default: 7 },
        e: { type: 'string', options: ['x'] },
        f: { type: 'varchar(30)' },
        g: { type: 'String', length: 30, ref: 'person', index: true, pk: true },
        h: { type: 'UUID', target: 'person' },
        i: 'String',
        j: { type: 'Decimal', values: { size: 3 } },
        k: { relType: 'BelongsTo', target: 'person', alias: 'x', onDelet: 'CASCADE' },
        l: { relType: 'BelongsTo', target: 'person', unique: true },
        m: { type: 'String', calculated: 'a' },
        n: { type: 'Integer', unique: 'yes', defaultValue: 'x' },
      },
      indexes: [{ columns: ['a'] }],
      constraints: [{ type: 'unique', columns: ['a'] }],
    })
    const has = (text: string) => expect.stringContaining(text)
    expect(problems).toEqual({
      softDelete: has('did you mean paranoid: true?'),
      colums: 'unknown member',
      'realtime.events': has('did you mean actions?'),
      'cache.seconds': has('did you mean ttl?'),
      'fields.a.required': 'unknown member, did you mean allowNull: false?',
      'fields.a.bogus': 'unknown member',
      'fields.a.maxlenght': has('did you mean maxLength: 5?'),
      'fields.b.nullable': has('did you mean allowNull: false?'),
      'fields.c.allownull': has('did you mean allowNull: false?'),
      'fields.d.autoIncrement': has('did you mean defaultValue: {"type": "AUTOINCREMENT"}?'),
      'fields.d.min': has('did you mean validate: {"min": 3}?'),
      'fields.d.default': has('did you mean defaultValue: 7?'),
      'fields.e.type': 'unknown type "string", did you mean "String"?',
      'fields.e.options': has('did you mean type: "ENUM", values: ["x"]?'),
      'fields.f.type': has('did you mean "String"?'),
      'fields.g.length': has('did you mean values: {"stringLength": 30}?'),
      'fields.g.ref': has('did you mean relType: "BelongsTo", target: "person"?'),
      'fields.g.index': has('indexes: [{"fields"'),
      'fields.g.pk': has('did you mean primaryKey: true?'),
      'fields.h.target': has('belongs to a relation'),
      'fields.i': has('must be an object'),
      'fields.j.values.size': has('did you mean stringLength?'),
      'fields.k.alias': has('did you mean as?'),
      'fields.k.onDelet': has('did you mean onDelete: "CASCADE"?'),
      'fields.l.unique': has('has no effect'),
      'fields.m.calculated': has('it needs type "VIRTUAL"'),
      'fields.n.unique': 'must be true or false',
      'fields.n': has('needs true or false as unique'),
      'indexes[0].columns': has('did you mean fields?'),
      'constraints[0].columns': has('did you mean fields?'),
    })
  })

  it('holds for changes, imports, indexes, relationships and migration scripts alike', async () => {
    const name = fresh('thing')
    await make(name, named)
    const bad = { fields: { name: { type: 'String', required: true } } }
    const changed = await api.admin('PATCH', `/schemas/${name}`, { schema: bad })
    expect(changed.body.error).toMatchObject({
      message: 'Error updating schema',
      code: 'INVALID_SCHEMA',
      details: { errors: [{ path: 'fields.name.required', message: expect.stringContaining('allowNull: false') }] },
    })
    const dump = { schemas: [{ collectionName: name, schema: bad }] }
    const imported = await api.admin('POST', '/schemas/import', dump)
    expect(imported.body.error.details.errors).toEqual([
      { collectionName: name, error: expect.stringContaining('fields.name.required: unknown member') },
    ])
    const index = await api.admin('POST', `/schemas/${name}/indexes`, { fields: ['name'], uniqe: true })
    expect(index.body.error.details.errors).toEqual([
      { path: 'uniqe', message: expect.stringContaining('did you mean unique: true?') },
    ])
    const body = { type: 'M2O', name: 'p', target: 'person', foreignkey: 'x', required: true }
    const relationship = await api.admin('POST', `/schemas/${name}/relationships`, body)
    expect(relationship.body.error.details.errors.map(({ path }: any) => path)).toEqual(['foreignkey', 'required'])
    expect(await schemaOf(name)).toMatchObject(named)
  })

  it('knows every member of docs/schema-members.md, also those without effect here', async () => {
    const hints = {
      description: 'd',
      comment: 'c',
      displayFormat: { a: 1 },
      showAs: ['a'],
      maxLength: 5,
    }
    const schema = {
      name: 'Thing',
      timestamps: true,
      paranoid: false,
      usertrack: false,
      sortEnabled: false,
      isJunction: false,
      realtime: { enabled: true, actions: ['insert'], replicaIdentityFull: true },
      fields: {
        a: {
          type: 'String',
          primaryKey: false,
          allowNull: true,
          unique: false,
          values: { stringLength: 9 },
          ...hints,
          editor: 'x/y',
        },
        b: { type: 'Decimal', values: { precision: 5, scale: 2 }, hidden: false, validate: {}, defaultValue: null },
        c: { type: 'Array', values: { type: 'Integer' }, calculated: '' },
        d: { type: 'ENUM', values: { values: ['x'] } },
        e: { relType: 'BelongsTo', target: 'person', as: 'e', foreignKey: 'e_Id', targetKey: 'id', ...hints },
        f: { relType: 'HasMany', target: 'category', foreignKey: 'id', through: '', tables: [], constraints: false },
        g: { relType: 'BelongsTo', target: 'person', allowNull: true, unique: false, defaultValue: null },
      },
      indexes: [{ name: 'known_a', fields: ['a'], unique: false, nullsNotDistinct: false, type: 'btree' }],
      constraints: [],
    }
    const { f: _, ...fields } = schema.fields
    await make('known', { ...schema, fields })
    const shown = await schemaOf('known')
    expect(shown.fields.a).toEqual(fields.a)
    expect(shown.realtime).toEqual(schema.realtime)
  })

  it('lets what older versions stored come back as it is', async () => {
    const name = fresh('thing')
    await make(name, named)
    const old = { type: 'String', required: true, bogus: 1 }
    await api.sql(
      `update "svc_SchemaDefinition" set schema = jsonb_set(schema || '{"strange": 1}', '{fields,name}', $2) where "collectionName" = $1`,
      [name, JSON.stringify(old)],
    )
    await api.runtime.catalog.reload()
    const schema = await schemaOf(name)
    expect(schema).toMatchObject({ strange: 1, fields: { name: old } })
    expect((await api.admin('PATCH', `/schemas/${name}`, { schema })).status).toBe(200)
    const changed = { ...schema, fields: { ...schema.fields, name: { ...old, description: 'new' } } }
    expect((await api.admin('PATCH', `/schemas/${name}`, { schema: changed })).status).toBe(200)
    const worse = { ...schema, fields: { ...schema.fields, name: { ...old, worse: 1 } } }
    expect((await api.admin('PATCH', `/schemas/${name}`, { schema: worse })).status).toBe(400)
  })
})
