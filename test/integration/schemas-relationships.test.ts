import { beforeAll, describe, expect, it } from 'vitest'
import { type Api, startApi } from '../support/api.ts'
import { declaredOf } from '../support/declared.ts'

let api: Api
beforeAll(async () => {
  api = await startApi()
})

const named = { fields: { name: { type: 'String' } } }
const numbered = {
  fields: { id: { type: 'Integer', primaryKey: true, defaultValue: { type: 'AUTOINCREMENT' } }, ...named.fields },
}

const declare = async (collectionName: string, schema: object = named) => {
  const answer = await api.admin('POST', '/schemas', { collectionName, schema })
  if (answer.status !== 201) throw new Error(answer.text)
}
const relate = (source: string, body: object) => api.admin('POST', `/schemas/${source}/relationships`, body)
const create = async (collection: string, item: object): Promise<any> => {
  const answer = await api.admin('POST', `/items/${collection}`, item)
  if (answer.status !== 201) throw new Error(answer.text)
  return answer.body.data.id
}
const read = async (path: string) => (await api.admin('GET', `/items/${path}`)).body.data
const fieldsOf = async (collection: string) =>
  declaredOf((await api.admin('GET', `/schemas/${collection}`)).body.data.schema.fields)
const indexes = async (table: string) =>
  (await api.sql('select indexname, indexdef from pg_indexes where tablename = $1', [table])).map((row) => row.indexdef)
const changes = async (since: bigint) =>
  (await api.log(since))
    .filter(({ type }) => type === 'schema')
    .map(({ entityId, changes }) => [entityId, changes.change])

describe('M2O', () => {
  it('adds column, foreign key, index and both relations; removal takes them all away', async () => {
    await declare('continent', numbered)
    await declare('country')
    const before = await api.position()
    expect(
      await relate('country', { type: 'M2O', name: 'continent', target: 'continent', alias: 'countries' }),
    ).toMatchObject({
      status: 201,
      body: { message: 'Relationship created successfully' },
    })
    expect(await changes(before)).toEqual([
      ['continent', 'update'],
      ['country', 'update'],
    ])
    expect(await fieldsOf('country')).toMatchObject({
      continent_id: { type: 'Integer' },
      continent: { relType: 'BelongsTo', target: 'continent', foreignKey: 'continent_id', description: 'M2O' },
    })
    expect((await fieldsOf('continent')).countries).toMatchObject({ relType: 'HasMany', target: 'country' })
    expect(await indexes('country')).toContainEqual(expect.stringContaining('(continent_id)'))
    const europe = await create('continent', { name: 'Europe' })
    const austria = await create('country', { name: 'Austria', continent_id: europe })
    expect(await read(`country/${austria}?fields=name,continent.name`)).toEqual({
      name: 'Austria',
      continent: { id: europe, name: 'Europe' },
    })
    expect(await read(`continent/${europe}?fields=name,countries.name`)).toEqual({
      name: 'Europe',
      countries: [{ id: austria, name: 'Austria' }],
    })
    expect((await api.admin('POST', '/items/country', { continent_id: 99 })).status).toBe(409)
    expect(await api.admin('DELETE', '/schemas/country/relationships/continent')).toMatchObject({
      status: 200,
      body: { message: 'Relationship deleted successfully' },
    })
    expect(await fieldsOf('country')).not.toHaveProperty('continent_id')
    expect(await fieldsOf('country')).not.toHaveProperty('continent')
    expect(await fieldsOf('continent')).not.toHaveProperty('countries')
    expect(await read(`country/${austria}`)).not.toHaveProperty('continent_id')
  })

  it('takes a named column, an existing one, and actions of the database', async () => {
    await declare('team')
    await declare('player', { fields: { ...named.fields, club_Id: { type: 'UUID' } } })
    expect(
      (
        await relate('player', {
          type: 'M2O',
          name: 'club',
          target: 'team',
          foreignKey: 'club_Id',
          onDelete: 'CASCADE',
        })
      ).status,
    ).toBe(201)
    const team = await create('team', { name: 'T' })
    const player = await create('player', { name: 'P', club_Id: team })
    await api.admin('DELETE', `/items/team/${team}`)
    expect((await api.admin('GET', `/items/player/${player}`)).status).toBe(403)
  })

  it('can be changed: alias, description, actions', async () => {
    await declare('shelf')
    await declare('book')
    await relate('book', { type: 'M2O', name: 'shelf', target: 'shelf', alias: 'books' })
    const patch = (body: object) => api.admin('PATCH', '/schemas/book/relationships/shelf', body)
    expect(
      await patch({ alias: 'volumes', description: 'M2O where', onDelete: 'RESTRICT', showAs: ['name'] }),
    ).toMatchObject({
      status: 200,
      body: { message: 'Relationship updated successfully' },
    })
    expect((await fieldsOf('book')).shelf).toMatchObject({
      description: 'M2O where',
      onDelete: 'RESTRICT',
      showAs: ['name'],
    })
    const shelf = await create('shelf', { name: 'S' })
    const book = await create('book', { name: 'B', shelf_id: shelf })
    expect(await read(`shelf/${shelf}?fields=volumes.name`)).toEqual({ volumes: [{ id: book, name: 'B' }] })
    expect((await api.admin('DELETE', `/items/shelf/${shelf}`)).status).toBe(409)
    expect((await patch({ alias: null })).status).toBe(200)
    expect(await fieldsOf('shelf')).not.toHaveProperty('volumes')
    expect((await patch({ alias: 'again' })).status).toBe(200)
    expect((await fieldsOf('shelf')).again).toMatchObject({ relType: 'HasMany' })
    expect((await patch({ onDelete: 'EXPLODE' })).status).toBe(400)
    expect((await api.admin('PATCH', '/schemas/book/relationships/name', {})).status).toBe(404)
  })
})

describe('what happens to the rows of a HasMany or HasOne', () => {
  const parentOf = (child: string, json: object) => ({
    fields: { ...numbered.fields, rows: { relType: 'HasMany', target: child, foreignKey: 'parent_Id', ...json } },
  })
  const withColumn = { fields: { ...numbered.fields, parent_Id: { type: 'Integer' } } }
  /** Makes a row with one of the child, deletes it, and tells the status, what is left of the child, and the actions in the log. */
  const deletion = async (parent: string, child: string) => {
    const id = await create(parent, { name: 'parent', rows: [{ name: 'child' }] })
    const before = await api.position()
    const { status } = await api.admin('DELETE', `/items/${parent}/${id}`)
    const events = (await api.log(before)).map(({ entity, action }) => `${action} ${entity}`)
    expect(await api.jobs('mail')).toEqual([])
    const rows: { id: number; parent_Id: number | null }[] = await read(`${child}?fields=id,parent_Id`)
    await api.admin(
      'DELETE',
      `/items/${child}/bulk`,
      rows.map((row) => row.id),
    )
    return { status, left: rows.map(({ parent_Id }) => parent_Id && 'parent'), events: events.sort() }
  }

  it.each([
    ['CASCADE', 'voyage', 'stop', { status: 200, left: [], events: ['delete stop', 'delete voyage'] }],
    ['SET NULL', 'drawer', 'sock', { status: 200, left: [null], events: ['delete drawer', 'update sock'] }],
    ['RESTRICT', 'safe', 'ring', { status: 409, left: ['parent'], events: [] }],
  ])('is done by the database where the target has only the column: %s', async (onDelete, parent, child, expected) => {
    await declare(child, withColumn)
    const before = await api.position()
    await declare(parent, parentOf(child, { onDelete }))
    expect((await changes(before)).sort()).toEqual(
      [
        [child, 'update'],
        [parent, 'create'],
      ].sort(),
    )
    expect((await fieldsOf(child))[parent]).toEqual({
      relType: 'BelongsTo',
      target: parent,
      foreignKey: 'parent_Id',
      onDelete,
    })
    expect(await deletion(parent, child)).toEqual(expected)
  })

  it('goes to the BelongsTo that holds the column, and either of them changes both', async () => {
    const belongsTo = { relType: 'BelongsTo', target: 'owner', foreignKey: 'parent_Id' }
    await declare('owner', numbered)
    await declare('owned', { fields: { ...numbered.fields, owner: belongsTo } })
    const patch = (collection: string, fields: object) =>
      api.admin('PATCH', `/schemas/${collection}`, { schema: { fields } })
    const actions = async () => [(await fieldsOf('owner')).rows?.onDelete, (await fieldsOf('owned')).owner?.onDelete]
    const rows = { relType: 'HasMany', target: 'owned', foreignKey: 'parent_Id', onDelete: 'CASCADE' }
    expect((await patch('owner', { rows })).status).toBe(200)
    expect(await actions()).toEqual(['CASCADE', 'CASCADE'])
    expect((await patch('owned', { owner: { ...belongsTo, onDelete: 'RESTRICT' } })).status).toBe(200)
    expect(await actions()).toEqual(['RESTRICT', 'RESTRICT'])
    expect((await deletion('owner', 'owned')).status).toBe(409)
    expect((await patch('owner', { rows })).status).toBe(200)
    expect(await actions()).toEqual(['CASCADE', 'CASCADE'])
    expect((await deletion('owner', 'owned')).left).toEqual([])
    const route = '/schemas/owned/relationships/owner'
    expect((await api.admin('PATCH', route, { onDelete: 'SET NULL' })).status).toBe(200)
    expect(await actions()).toEqual(['SET NULL', 'SET NULL'])
    expect((await deletion('owner', 'owned')).left).toEqual([null])
  })

  it('takes a name that is free, and is refused where stored rows or the column do not allow it', async () => {
    await declare('taken_child', { fields: { ...withColumn.fields, taken: { type: 'String' } } })
    await declare('taken', parentOf('taken_child', { onDelete: 'CASCADE' }))
    expect((await fieldsOf('taken_child')).taken_rows).toMatchObject({ relType: 'BelongsTo', onDelete: 'CASCADE' })
    await declare('lost_child', withColumn)
    await create('lost_child', { parent_Id: 7 })
    const lost = await api.admin('POST', '/schemas', {
      collectionName: 'lost',
      schema: parentOf('lost_child', { onDelete: 'CASCADE' }),
    })
    expect(lost).toMatchObject({ status: 400, body: { error: { code: 'SCHEMA_NOT_APPLICABLE' } } })
    await declare('strict_child', { fields: { ...numbered.fields, parent_Id: { type: 'Integer', allowNull: false } } })
    const strict = await api.admin('POST', '/schemas', {
      collectionName: 'strict',
      schema: parentOf('strict_child', { onDelete: 'SET NULL' }),
    })
    expect(strict.status).toBe(400)
    expect(strict.text).toContain('SET NULL needs a foreign key that may be null')
    for (const missing of ['lost', 'strict']) expect((await api.admin('GET', `/schemas/${missing}`)).status).toBe(404)
  })
})

describe('O2O', () => {
  it('is one to one: the column is unique, the relation back is one row', async () => {
    await declare('person')
    await declare('passport')
    expect((await relate('passport', { type: 'O2O', name: 'owner', target: 'person', alias: 'passport' })).status).toBe(
      201,
    )
    const ann = await create('person', { name: 'Ann' })
    const passport = await create('passport', { name: 'X1', owner_id: ann })
    expect((await api.admin('POST', '/items/passport', { owner_id: ann })).status).toBe(409)
    expect(await read(`person/${ann}?fields=passport.name`)).toEqual({ passport: { id: passport, name: 'X1' } })
    expect(await read(`passport/${passport}?fields=owner.name`)).toEqual({ owner: { id: ann, name: 'Ann' } })
  })
})

describe('O2M', () => {
  it('declares the list on the source and the column on the target', async () => {
    await declare('album')
    await declare('song')
    expect(
      (
        await relate('album', {
          type: 'O2M',
          name: 'songs',
          target: 'song',
          foreignKey: 'album_Id',
          onDelete: 'CASCADE',
        })
      ).status,
    ).toBe(201)
    const album = await create('album', { name: 'A' })
    const song = await create('song', { name: 'S', album_Id: album })
    expect(await read(`album/${album}?fields=songs.name`)).toEqual({ songs: [{ id: song, name: 'S' }] })
    expect(await read(`song/${song}?fields=album.name`)).toEqual({ album: { id: album, name: 'A' } })
    expect((await fieldsOf('song')).album).toMatchObject({ relType: 'BelongsTo', onDelete: 'CASCADE' })
    await api.admin('DELETE', '/schemas/album/relationships/songs')
    expect(await fieldsOf('song')).not.toHaveProperty('album')
    expect(await fieldsOf('song')).not.toHaveProperty('album_Id')
  })

  it('works within one collection, and beside an existing relation', async () => {
    await declare('category')
    expect(
      (
        await relate('category', {
          type: 'O2M',
          name: 'children',
          target: 'category',
          foreignKey: 'parent_Id',
          alias: 'parent',
        })
      ).status,
    ).toBe(201)
    const root = await create('category', { name: 'root' })
    const leaf = await create('category', { name: 'leaf', parent_Id: root })
    expect(await read(`category/${root}?fields=children.name`)).toEqual({ children: [{ id: leaf, name: 'leaf' }] })
    expect(await read(`category/${leaf}?fields=parent.name`)).toEqual({ parent: { id: root, name: 'root' } })
    await declare('post', { fields: { writer: { relType: 'BelongsTo', target: 'category', foreignKey: 'writer_Id' } } })
    expect(
      (await relate('category', { type: 'O2M', name: 'posts', target: 'post', foreignKey: 'writer_Id' })).status,
    ).toBe(201)
    expect(Object.keys(await fieldsOf('post'))).toEqual(['writer'])
  })
})

describe('M2M', () => {
  it('goes through a junction that is read in nested form, refuses a pair twice, and goes with the relationship', async () => {
    await declare('article')
    await declare('tag', numbered)
    const before = await api.position()
    expect((await relate('article', { type: 'M2M', name: 'tags', target: 'tag', alias: 'articles' })).status).toBe(201)
    expect(await changes(before)).toEqual([
      ['article', 'update'],
      ['article_tag_tags_junction', 'create'],
      ['tag', 'update'],
    ])
    const article = await create('article', { name: 'A' })
    const red = await create('tag', { name: 'red' })
    const link = { article_id: article, tag_id: red }
    const row = await create('article_tag_tags_junction', link)
    expect((await api.admin('POST', '/items/article_tag_tags_junction', link)).status).toBe(409)
    expect(await read(`article/${article}?fields=tags.tag.name`)).toEqual({
      tags: [{ id: row, tag: { id: red, name: 'red' } }],
    })
    expect(await read(`tag/${red}?fields=articles.article.name`)).toEqual({
      articles: [{ id: row, article: { id: article, name: 'A' } }],
    })
    expect((await fieldsOf('article')).tags).toMatchObject({ relType: 'HasMany', description: 'M2M' })
    await api.admin('DELETE', `/items/tag/${red}`)
    expect(await read(`article/${article}?fields=tags.id`)).toEqual({ tags: [] })
    expect((await api.admin('DELETE', '/schemas/tag/relationships/articles')).status).toBe(200)
    expect(await fieldsOf('article')).not.toHaveProperty('tags')
    expect((await api.admin('GET', '/schemas/article_tag_tags_junction')).status).toBe(404)
    expect(await api.sql(`select to_regclass('article_tag_tags_junction') as t`)).toEqual([{ t: null }])
  })

  it('links a collection with itself, through a table of a chosen name, between collections called like SQL', async () => {
    await declare('friend')
    expect(
      (
        await relate('friend', {
          type: 'M2M',
          name: 'friends',
          target: 'friend',
          alias: 'friendOf',
          through: 'friendship',
        })
      ).status,
    ).toBe(201)
    const [ann, bob] = [await create('friend', { name: 'Ann' }), await create('friend', { name: 'Bob' })]
    await create('friendship', { friend_id: ann, friend_id_2: bob })
    expect(await read(`friend/${ann}?fields=friends.friend_2.name,friendOf.id`)).toMatchObject({
      friends: [{ friend_2: { name: 'Bob' } }],
      friendOf: [],
    })
    await declare('order')
    await declare('group')
    expect((await relate('order', { type: 'M2M', name: 'groups', target: 'group' })).status).toBe(201)
    const order = await create('order', { name: 'O' })
    const group = await create('group', { name: 'G' })
    await create('order_group_groups_junction', { order_id: order, group_id: group })
    expect(await read(`order/${order}?fields=groups.group.name`)).toMatchObject({ groups: [{ group: { name: 'G' } }] })
  })
})

describe('M2A', () => {
  const item = (collection: string, item_id: unknown) => ({ collection, item_id })

  it('points at items of several collections, each link once', async () => {
    for (const name of ['page', 'image', 'quote']) await declare(name)
    expect(
      (await relate('page', { type: 'M2A', name: 'blocks', tables: ['image', 'quote'], alias: 'pages' })).status,
    ).toBe(201)
    const page = await create('page', { name: 'P' })
    const image = await create('image', { name: 'I' })
    const quote = await create('quote', { name: 'Q' })
    const link = (target: object) => create('page_blocks_junction', { page_id: page, ...target })
    const [first, second] = [await link(item('image', image)), await link(item('quote', quote))]
    expect(
      (await api.admin('POST', '/items/page_blocks_junction', { page_id: page, ...item('image', image) })).status,
    ).toBe(409)
    expect(await read(`page/${page}?fields=blocks.collection,blocks.image.name,blocks.quote.name`)).toEqual({
      blocks: [
        { id: first, ...item('image', image), image: { id: image, name: 'I' }, quote: null },
        { id: second, ...item('quote', quote), image: null, quote: { id: quote, name: 'Q' } },
      ],
    })
    expect(await read(`image/${image}?fields=pages.page.name`)).toEqual({
      pages: [{ id: first, page: { id: page, name: 'P' } }],
    })
    expect((await fieldsOf('page')).blocks).toMatchObject({
      relType: 'HasMany',
      polymorphic: true,
      tables: ['image', 'quote'],
    })
    const before = await api.position()
    expect((await api.admin('DELETE', '/schemas/quote')).status).toBe(200)
    expect((await api.log(before)).map(({ entity, entityId, action }) => [entity, entityId, action])).toContainEqual([
      'page_blocks_junction',
      String(second),
      'delete',
    ])
    expect((await fieldsOf('page')).blocks.tables).toEqual(['image'])
    expect(await read(`page/${page}?fields=blocks.image.name`)).toMatchObject({ blocks: [{ image: { name: 'I' } }] })
    expect((await api.admin('DELETE', '/schemas/page/relationships/blocks')).status).toBe(200)
    expect(await fieldsOf('image')).not.toHaveProperty('pages')
    expect((await api.admin('GET', '/schemas/page_blocks_junction')).status).toBe(404)
  })

  it('needs targets with the same kind of key', async () => {
    await declare('uuidKey')
    await declare('integerKey', numbered)
    const refused = await relate('uuidKey', { type: 'M2A', name: 'any', tables: ['uuidKey', 'integerKey'] })
    expect(refused).toMatchObject({
      status: 400,
      body: { error: { message: 'Error creating relationship', details: 'Target tables must have the same id type' } },
    })
    expect((await relate('uuidKey', { type: 'M2A', name: 'any', tables: ['nowhere'] })).body.error.details).toBe(
      'Target table not found',
    )
    expect((await relate('uuidKey', { type: 'M2A', name: 'any', tables: ['uuidKey'] })).status).toBe(201)
  })
})

describe('refusals', () => {
  beforeAll(async () => {
    await declare('near')
    await declare('far')
  })
  const long = 'x'.repeat(50)

  it.each([
    [
      'an unknown type',
      { type: 'M2X', name: 'a', target: 'far' },
      400,
      'Invalid relationship type. Must be M2O, O2M, O2O, M2M, or M2A',
    ],
    ['no target', { type: 'M2O', name: 'a' }, 404, 'Source or target collection not found'],
    ['an unknown target', { type: 'M2M', name: 'a', target: 'nowhere' }, 404, 'Source or target collection not found'],
    ['a taken name', { type: 'M2O', name: 'name', target: 'far' }, 409, 'near has a field name already'],
    [
      'a taken alias',
      { type: 'M2O', name: 'a', target: 'far', alias: 'createdAt' },
      409,
      'far has a field createdAt already',
    ],
    ['the name of the collection', { type: 'M2O', name: 'near', target: 'far' }, 400, "it has the collection's name"],
    ['a reserved word', { type: 'M2O', name: 'order', target: 'far' }, 400, 'order is a reserved word'],
    ['a name with a quote', { type: 'M2O', name: 'a"b', target: 'far' }, 400, 'letters, digits and underscore only'],
    [
      'a column of another type',
      { type: 'M2O', name: 'a', target: 'far', foreignKey: 'name' },
      400,
      'Field name is String',
    ],
    ['generated names that are too long', { type: 'M2M', name: long, target: 'far' }, 400, `near_far_${long}_junction`],
    [
      'a bad action',
      { type: 'M2O', name: 'a', target: 'far', onDelete: 'SET DEFAULT' },
      400,
      'onDelete and onUpdate are',
    ],
    [
      'an action that cannot be',
      { type: 'M2O', name: 'a', target: 'far', onDelete: 5 },
      400,
      'onDelete must be a string',
    ],
    ['a system table as junction', { type: 'M2M', name: 'a', target: 'far', through: 'svc_mine' }, 400, 'svc_'],
    [
      'an existing table as junction',
      { type: 'M2M', name: 'a', target: 'far', through: 'far' },
      409,
      'Collection far already exists',
    ],
  ])('%s', async (_what, body, status, details) => {
    const before = await api.position()
    const answer = await relate('near', body)
    expect(answer.status).toBe(status)
    expect(answer.body.error).toMatchObject({
      message: 'Error creating relationship',
      details: expect.stringContaining(details),
    })
    expect(await api.log(before)).toEqual([])
    expect(Object.keys(await fieldsOf('near'))).toEqual(['name'])
  })

  it('of unknown sources and of what the system owns', async () => {
    expect((await relate('nowhere', { type: 'M2O', name: 'a', target: 'far' })).status).toBe(404)
    expect((await api.admin('DELETE', '/schemas/svc_UserRole/relationships/user')).status).toBe(403)
    expect((await api.admin('DELETE', '/schemas/near/relationships/nothing')).body.error.details).toBe(
      'Relationship field not found',
    )
    const user = await api.user()
    expect((await user.call('POST', '/schemas/near/relationships', {})).status).toBe(403)
    expect((await relate('near', { type: 'M2O', name: 'writer', target: 'svc_User', alias: 'nears' })).status).toBe(201)
    const me = (await api.admin('GET', '/auth/me')).body.user.id
    const item = await create('near', { name: 'N', writer_id: me })
    expect(await read(`svc_User/${me}?fields=nears.name`)).toEqual({ nears: [{ id: item, name: 'N' }] })
    expect((await api.admin('DELETE', '/schemas/near/relationships/writer')).status).toBe(200)
    expect(await fieldsOf('svc_User')).not.toHaveProperty('nears')
  })
})

describe('inline', () => {
  it('BelongsTo, HasOne, HasMany and BelongsToMany in schemas', async () => {
    await declare('maker')
    await declare('car', {
      fields: {
        ...named.fields,
        plate_Id: { type: 'UUID', unique: true },
        maker: { relType: 'BelongsTo', target: 'maker' },
        first: { relType: 'BelongsTo', target: 'maker', foreignKey: 'plate_Id' },
        sponsors: {
          relType: 'BelongsToMany',
          target: 'maker',
          through: 'car_sponsor',
          foreignKey: 'car_Id',
          otherKey: 'maker_Id',
        },
      },
    })
    const { schema } = (await api.admin('GET', '/schemas/maker')).body.data
    const fields = {
      ...schema.fields,
      cars: { relType: 'HasMany', target: 'car', foreignKey: 'maker_Id' },
      flagship: { relType: 'HasOne', target: 'car', foreignKey: 'plate_Id' },
      sponsored: {
        relType: 'BelongsToMany',
        target: 'car',
        through: 'car_sponsor',
        foreignKey: 'maker_Id',
        otherKey: 'car_Id',
      },
    }
    expect((await api.admin('PATCH', '/schemas/maker', { schema: { ...schema, fields } })).status).toBe(200)
    const maker = await create('maker', { name: 'M' })
    const car = await create('car', { name: 'C', maker_Id: maker, plate_Id: maker })
    await create('car_sponsor', { car_Id: car, maker_Id: maker })
    const short = { id: car, name: 'C' }
    expect(await read(`maker/${maker}?fields=cars.name,flagship.name,sponsored.name`)).toEqual({
      cars: [short],
      flagship: short,
      sponsored: [short],
    })
    expect(await read(`car/${car}?fields=maker.name,sponsors.name`)).toEqual({
      maker: { id: maker, name: 'M' },
      sponsors: [{ id: maker, name: 'M' }],
    })
    expect((await api.admin('POST', '/items/car_sponsor', { car_Id: car, maker_Id: maker })).status).toBe(409)
    expect((await api.admin('DELETE', '/schemas/maker')).body.error.details).toContain('car')
    expect((await api.admin('DELETE', '/schemas/car')).status).toBe(200)
    expect(Object.keys(await fieldsOf('maker'))).toEqual(['name'])
    expect((await api.admin('GET', '/schemas/car_sponsor')).status).toBe(404)
  })

  it.each([
    [
      'a HasMany without its column',
      { a: { relType: 'HasMany', target: 'svc_Tenant', foreignKey: 'nothing' } },
      'svc_Tenant has no field nothing',
    ],
    ['a BelongsToMany without through', { a: { relType: 'BelongsToMany', target: 'svc_Tenant' } }, 'needs through'],
    [
      'a foreign key of another type',
      { k: { type: 'Integer' }, a: { relType: 'BelongsTo', target: 'svc_Tenant', foreignKey: 'k' } },
      'k is Integer, svc_Tenant.id is UUID',
    ],
    [
      'a target key that is not unique',
      { a: { relType: 'BelongsTo', target: 'svc_File', targetKey: 'title' } },
      'svc_File.title is not unique',
    ],
    [
      'SET NULL on a required key',
      { a: { relType: 'BelongsTo', target: 'svc_Tenant', allowNull: false, onDelete: 'SET NULL' } },
      'SET NULL needs',
    ],
    [
      'an unknown table of a polymorphic one',
      { a: { relType: 'HasMany', polymorphic: true, target: 'svc_UserRole', foreignKey: 'user_Id', tables: ['x'] } },
      'unknown table "x"',
    ],
  ])('refuses %s', async (_what, fields, details) => {
    const answer = await api.admin('POST', '/schemas', { collectionName: 'inline', schema: { fields } })
    expect(answer.status).toBe(400)
    expect(answer.body.error).toMatchObject({
      message: 'Error creating schema',
      details: expect.stringContaining(details),
    })
  })
})

describe('the target of a stored key', () => {
  const keyTo = (target: string) => ({ relType: 'BelongsTo', target, foreignKey: 'owner_Id' })
  const tagsOf = (target: string) => ({
    relType: 'BelongsToMany',
    target,
    through: 'deed_witness',
    foreignKey: 'deed_Id',
    otherKey: 'human_Id',
  })
  const fixed = (path: string, was: string) => ({
    path: expect.stringContaining(path),
    message: `cannot be changed: stored keys are of ${was}; delete the relationship and create another`,
  })

  beforeAll(async () => {
    await declare('human', numbered)
    await declare('firm', numbered)
    await declare('deed', { fields: { ...numbered.fields, owner: keyTo('human'), witnesses: tagsOf('human') } })
    await create('deed', { name: 'D', owner: { name: 'P' } })
    await create('firm', { name: 'C' })
  })

  it.each([
    [{ owner: keyTo('firm') }, 'fields.owner.target'],
    [{ owner: null, holder: keyTo('firm') }, 'fields.holder.target'],
    [{ witnesses: tagsOf('firm') }, 'fields.witnesses.target'],
  ])('is not changed by %j', async (fields, path) => {
    const before = await api.position()
    for (const query of ['', '?alter=true', '?dryRun=true']) {
      const answer = await api.admin('PATCH', `/schemas/deed${query}`, { schema: { fields } })
      expect([answer.status, answer.body.error]).toMatchObject([
        400,
        { code: 'INVALID_SCHEMA', details: { errors: [fixed(path, 'human')] } },
      ])
    }
    expect(await api.log(before)).toEqual([])
    expect(await read('deed?fields=owner.name')).toMatchObject([{ owner: { name: 'P' } }])
  })

  it('is not changed at a junction, nor by an import', async () => {
    const before = await api.position()
    const human = { relType: 'BelongsTo', target: 'firm', foreignKey: 'human_Id', onDelete: 'CASCADE' }
    const junction = await api.admin('PATCH', '/schemas/deed_witness', { schema: { fields: { human } } })
    expect(junction.body.error.details.errors).toContainEqual(fixed('fields.human.target', 'human'))
    const { collectionName, schema } = (await api.admin('GET', '/schemas/deed')).body.data
    const fields = { ...declaredOf(schema.fields), owner: keyTo('firm') }
    const imported = await api.admin('POST', '/schemas/import', {
      schemas: [{ collectionName, schema: { ...schema, fields } }],
    })
    expect([imported.status, JSON.stringify(imported.body.error.details.errors)]).toEqual([
      400,
      expect.stringContaining('fields.owner.target: cannot be changed'),
    ])
    expect(await api.log(before)).toEqual([])
  })

  it('may be another one once the column is deleted', async () => {
    expect((await api.admin('DELETE', '/schemas/deed/relationships/owner')).status).toBe(200)
    const made = await api.admin('PATCH', '/schemas/deed', { schema: { fields: { owner: keyTo('firm') } } })
    expect(made.status).toBe(200)
    expect(await read('deed?fields=owner_Id')).toMatchObject([{ owner_Id: null }])
  })
})
