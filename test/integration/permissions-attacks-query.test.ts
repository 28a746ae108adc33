import { afterEach, beforeAll, describe, expect, it } from 'vitest'
import { type Attacked, startAttacked } from '../support/canary.ts'

/** Asking for what one may not read, in every place of a query. */

let on: Attacked
beforeAll(async () => {
  on = await startAttacked()
})

afterEach(() => {
  expect(on.watched.leaks()).toEqual([])
})

type Parameters = Readonly<Record<string, unknown>>

const path = (collection: string, parameters: Parameters) =>
  `/items/${collection}?${new URLSearchParams(
    Object.entries(parameters).map(([key, value]): [string, string] => [
      key,
      typeof value === 'string' ? value : JSON.stringify(value),
    ]),
  )}`

const ask = (parameters: Parameters, collection = 'note') => on.attack('GET', path(collection, parameters))

/** The answer to a right and to a wrong guess must be the same, and must not be the rows. */
async function refusedAlike(query: (guess: string) => Parameters, right: string): Promise<void> {
  const [yes, no] = [await ask(query(right)), await ask(query('nothing like it'))]
  expect([400, 403]).toContain(yes.status)
  expect(yes.text.replaceAll(right, '')).toBe(no.text.replaceAll('nothing like it', ''))
  expect(yes.body.data).toBeUndefined()
}

describe('P-01 filters by what cannot be read', () => {
  const secret = (guess: string) => ({ secret: { startsWith: guess } })

  it.each<[string, (guess: string) => object]>([
    ['plainly', secret],
    ['under AND', (guess) => ({ AND: [{ title: 'mine' }, secret(guess)] })],
    ['under OR', (guess) => ({ OR: [{ title: 'nothing' }, secret(guess)] })],
    ['under NOT', (guess) => ({ NOT: secret(guess) })],
    ['under lower-case or', (guess) => ({ or: [secret(guess)] })],
    ['twice removed', (guess) => ({ AND: [{ OR: [{ NOT: [secret(guess)] }] }] })],
    ['wrapped', (guess) => ({ $secret$: guess })],
    ['with a cast', (guess) => ({ secret: { eq: guess, cast: 'text' } })],
    ['with every other operator', (guess) => ({ secret: { in: [guess], regex: guess, ne: guess, isNull: false } })],
    ['from behind a relation', (guess) => ({ 'comments.note.secret': { startsWith: guess } })],
    ['nested in a relation', (guess) => ({ comments: { note: { secret: guess } } })],
    ['as a condition on related rows', (guess) => ({ owner: { password: { startsWith: guess } } })],
  ])('hidden, %s', async (_how, filter) => {
    await refusedAlike((guess) => ({ filter: filter(guess) }), on.canaries.hidden)
  })

  it.each<[string, (guess: string) => object]>([
    ['a field', (guess) => ({ diary: { startsWith: guess } })],
    ['a JSON field', (guess) => ({ data: { jsonbContains: { key: guess } } })],
    ['a key of a JSON field', (guess) => ({ data: { jsonbKeyEquals: { key: 'key', value: guess } } })],
    ['a JSON field as text', (guess) => ({ data: { like: guess, cast: 'text' } })],
    ['a field of related rows', (guess) => ({ 'comments.aside': guess })],
    ['a field of a collection that cannot be read', (guess) => ({ 'vault.content': guess })],
    ['a collection that cannot be read', (guess) => ({ vault: { content: { startsWith: guess } } })],
    ['a field of the owner', (guess) => ({ 'owner.email': { startsWith: guess } })],
  ])('ungranted: %s', async (_what, filter) => {
    const query = (guess: string) => ({ filter: filter(guess) })
    await refusedAlike(query, on.canaries.ungranted)
    await refusedAlike(query, on.canaries.vault)
    // It is the grant that refuses it, not the grammar.
    expect((await on.api.admin('GET', path('note', query('x')))).status).toBe(200)
  })

  it('ungranted: a path into a JSON field', async () => {
    await refusedAlike((guess) => ({ filter: { 'data.key': { startsWith: guess } } }), on.canaries.ungranted)
  })

  it('in relConditions, on a single item, and in having', async () => {
    await refusedAlike(
      (guess) => ({ fields: ['comments.text'], relConditions: { comments: { aside: guess } } }),
      on.canaries.ungranted,
    )
    for (const guess of [on.canaries.hidden, 'nothing']) {
      const one = await on.attack('GET', `/items/note/${on.ids.mine}?filter=${JSON.stringify({ secret: guess })}`)
      expect(one.status).toBe(403)
      expect(one.body.error.message).toBe("You don't have permission to read field: secret")
    }
    await refusedAlike(
      (guess) => ({
        aggregate: { n: { function: 'count', field: '*' } },
        groupBy: ['title'],
        having: { secret: guess },
      }),
      on.canaries.hidden,
    )
  })

  it('does not tell hidden and ungranted apart', async () => {
    const [hidden, ungranted] = [await ask({ filter: { secret: 1 } }), await ask({ filter: { diary: 1 } })]
    expect(hidden.status).toBe(ungranted.status)
    expect(hidden.text.replace('secret', 'diary')).toBe(ungranted.text)
  })
})

describe('P-01 filters that fail on some values', () => {
  let call: Attacked['api']['admin']
  const canary = 'canary of another team'

  beforeAll(async () => {
    const { api } = on
    const name = { type: 'String' }
    const to = (target: string) => ({ relType: 'BelongsTo', target })
    const collections = [
      ['team', { fields: { name } }],
      ['letter', { fields: { title: name, size: { type: 'Integer' }, team: to('team') } }],
      ['reply', { fields: { size: { type: 'Integer' }, letter: to('letter') } }],
    ] as const
    for (const [collectionName, schema] of collections)
      expect((await api.admin('POST', '/schemas', { collectionName, schema })).status).toBe(201)
    for (const [team, title] of [
      ['mine', '1'],
      ['theirs', canary],
    ]) {
      const letter = (await api.admin('POST', '/items/letter', { title, size: 1, team: { name: team } })).body.data.id
      expect((await api.admin('POST', '/items/reply', { size: 1, letter })).status).toBe(201)
    }
    const read = (collection: string, more: object) => ({ collection, action: 'read', fields: ['*'], ...more })
    ;({ call } = await api.user([
      read('letter', { conditions: { 'team.name': 'mine' } }),
      read('reply', { fields: ['*', 'letter.*'] }),
    ]))
  })

  const begins = (guess: string) => ({ startsWith: guess })
  const asNumber = { eq: 1, cast: 'integer' }

  it.each<[string, string, (guess: string) => Parameters]>([
    ['a cast', 'letter', (guess) => ({ filter: { AND: [{ title: begins(guess) }, { title: asNumber }] } })],
    ['a cast in one test', 'letter', (guess) => ({ filter: { title: { ...asNumber, ...begins(guess) } } })],
    ['a pattern', 'letter', (guess) => ({ filter: { AND: [{ title: begins(guess) }, { title: { regex: '(' } }] } })],
    [
      'a cast of another field',
      'letter',
      (guess) => ({ filter: { AND: [{ title: begins(guess) }, { size: '$COL(title::integer)' }] } }),
    ],
    [
      'a cast of a related row',
      'reply',
      (guess) => ({ filter: { letter: { AND: [{ title: begins(guess) }, { title: asNumber }] } } }),
    ],
    [
      'a cast of a related row by its path',
      'reply',
      (guess) => ({ filter: { AND: [{ 'letter.title': begins(guess) }, { 'letter.title': asNumber }] } }),
    ],
    ['another field, cast, of a related row', 'reply', () => ({ filter: { size: '$COL(letter.title::integer)' } })],
    [
      'a condition on related rows',
      'reply',
      (guess) => ({
        fields: 'letter.title',
        relConditions: { letter: { AND: [{ title: begins(guess) }, { title: asNumber }] } },
      }),
    ],
  ])('say nothing of rows that cannot be read: %s', async (_what, collection, query) => {
    const answers = []
    for (const guess of [canary, 'nothing like it']) {
      const { status, text } = await call('GET', path(collection, query(guess)))
      answers.push([status, text])
    }
    expect(answers[0]).toEqual(answers[1])
  })

  it('fail on rows that can be read', async () => {
    await on.api.sql(`update letter set title = 'no number' where title = '1'`)
    expect((await call('GET', path('letter', { filter: { title: asNumber } }))).status).toBe(400)
    const passesNot = { AND: [{ size: 2 }, { title: asNumber }] }
    expect((await call('GET', path('letter', { filter: passesNot }))).status).toBe(200)
  })
})

describe('P-02 sorting by what cannot be read', () => {
  it.each<[string, Parameters]>([
    ['by name', { sort: 'secret' }],
    ['descending', { sort: '-secret' }],
    ['as an object', { sort: { secret: 'desc' } }],
    ['as a list', { sort: ['-diary', 'title'] }],
    ['as a list of objects', { sort: [{ column: 'diary', order: 'asc' }] }],
    ['in brackets', { 'sort[secret]': 'desc' }],
    ['over a relation', { sort: '-owner.password' }],
    ['over a to-many relation', { sort: 'comments.aside' }],
    ['over a collection that cannot be read', { sort: 'vault.content' }],
    ['by distance', { sort: { _distance: { target: [0, 0], column: 'secret', direction: 'asc' } } }],
    [
      'by an aggregate of it',
      { aggregate: { m: { function: 'max', field: 'secret' } }, groupBy: ['title'], sort: '-m' },
    ],
  ])('%s is refused', async (_how, query) => {
    const { status, body } = await ask(query)
    expect([400, 403]).toContain(status)
    expect(body.data).toBeUndefined()
  })

  it('leaves the order to what can be read', async () => {
    const titles = async () => (await ask({ fields: 'title', sort: 'stars' })).body.data
    const before = await titles()
    expect(before).toEqual([{ title: 'mine' }, { title: 'also mine' }])
    await on.api.sql(`update note set secret = reverse(secret)`)
    expect(await titles()).toEqual(before)
    await on.api.sql(`update note set secret = reverse(secret)`)
  })
})

describe('P-03 aggregates of what cannot be read', () => {
  const fields = ['secret', 'diary', 'data', 'owner.password', 'owner.email', 'vault.content', 'comments.aside']
  const functions = ['count', 'sum', 'avg', 'min', 'max', 'distinct', 'array_agg']

  it.each(fields)('of %s are refused, whatever the function', async (field) => {
    for (const fn of functions) {
      const { status, body } = await ask({ aggregate: { n: { function: fn, field } } })
      expect([fn, [400, 403].includes(status), body.data]).toEqual([fn, true, undefined])
    }
    expect([400, 403]).toContain((await ask({ groupBy: [field] })).status)
  })

  it('are not let in by the name of a field that can be read', async () => {
    for (const alias of ['title', 'stars', 'secret'])
      expect([400, 403]).toContain((await ask({ aggregate: { [alias]: { function: 'max', field: 'secret' } } })).status)
  })

  it('count only rows that can be read', async () => {
    const counted = await ask({ aggregate: { n: { function: 'count', field: '*' } } })
    expect(counted.body.data).toEqual([{ n: 2 }])
    const groups = await ask({ aggregate: { n: { function: 'count', field: '*' } }, groupBy: ['title'] })
    expect(groups.body).toMatchObject({ totalCount: 2 })
  })
})

describe('P-05 search', () => {
  it('finds nothing in hidden, ungranted and JSON fields, nor behind relations', async () => {
    for (const word of Object.values(on.canaries)) {
      for (const more of [{}, { sortByRelevance: 'true' }, { fields: ['title', 'comments.text'] }]) {
        const { status, body } = await ask({ search: word, ...more })
        expect([status, body]).toEqual([200, { data: [], totalCount: 0 }])
      }
    }
  })

  it.each(['secret', 'diary', 'data', 'vault.content', 'comments.aside', 'owner.email'])(
    'in %s is refused',
    async (field) => {
      for (const word of [on.canaries.hidden, 'nothing'])
        expect([400, 403]).toContain((await ask({ search: word, searchFields: [field] })).status)
    },
  )

  it('has an order that does not depend on them', async () => {
    const order = async () => (await ask({ search: 'mine', sortByRelevance: 'true', fields: 'title' })).body.data
    const before = await order()
    await on.api.sql(`update note set diary = diary || ' mine mine mine mine' where title = 'also mine'`)
    expect(await order()).toEqual(before)
  })
})

describe('P-07 references and variables', () => {
  it.each([
    { title: { eq: '$COL(secret)' } },
    { title: { ne: '$COL(diary)' } },
    { title: { gt: '$COL(secret::text)' } },
    { title: { lte: '$COL(owner.password)' } },
    { title: '$COL(vault.content)' },
  ])('to a column in %j are refused', async (filter) => {
    expect((await ask({ filter })).status).toBe(403)
  })

  it.each(['$CURRENT_USER.password', '$CURRENT_SETTINGS.smtp_pass', '$CURRENT_SETTINGS.smtp_host'])(
    '%s is refused in a filter',
    async (variable) => {
      for (const operator of ['eq', 'startsWith', 'gt', 'in'])
        expect((await ask({ filter: { title: { [operator]: variable } } })).status).toBe(403)
    },
  )

  it.each(['$CURRENT_USER.password', '$CURRENT_SETTINGS.smtp_pass', '$CURRENT_USER.userRoles.user.password'])(
    '%s is refused in every part of a stored rule',
    async (variable) => {
      const rule = { role_Id: on.lim.roleId, collection: 'note', action: 'create', fields: ['title'] }
      for (const part of [
        { conditions: { title: variable } },
        { relConditions: { comments: { text: variable } } },
        { defaultValues: { title: variable } },
      ])
        expect((await on.api.admin('POST', '/permissions', { ...rule, ...part })).status).toBe(400)
    },
  )

  it('that exist nowhere are text, or match nothing', async () => {
    for (const value of ['$CURRENT_USER.', '$COL(', '$COL()', '$SECRET', '{{secret}}'])
      expect((await ask({ filter: { title: value } })).body).toMatchObject({ data: [], totalCount: 0 })
    expect((await ask({ filter: { title: '$CURRENT_USER.nothing' } })).body).toMatchObject({ data: [], totalCount: 0 })
  })

  it.each(['$CURRENT_USER.userRoles.role.name', '$CURRENT_USER.avatar.filename', '$CURRENT_ROLE.permissions.action'])(
    'over relations such as %s are for stored rules only',
    async (variable) => {
      expect((await ask({ filter: { title: variable } })).status).toBe(400)
      expect((await on.api.admin('GET', path('note', { filter: { title: variable } }))).status).toBe(400)
    },
  )
})

describe('P-08 nested reads', () => {
  it.each([
    ['vault.content', 403],
    ['vault.name', 403],
    ['owner.password', 403],
    ['owner.email', 403],
    ['owner.userRoles.role.name', 403],
    ['comments.aside', 403],
    ['comments.note.secret', 403],
    ['comments.note.diary', 403],
    ['comments.note.owner.password', 403],
    ['owner.nothing', 400],
  ])('of %s are refused at that node', async (field, status) => {
    const answer = await ask({ fields: ['title', field] })
    expect(answer.status).toBe(status)
    if (status === 403) expect(answer.body.error.message).toContain(field.split('.')[0])
    expect((await on.attack('GET', `/items/note/${on.ids.mine}?fields=${field}`)).status).toBe(status)
  })

  it.each(['*', '*.*', '*.*.*', '*.*.*.*.*.*.*', 'comments.*', 'owner.*', 'vault.*', '*.*,-title'])(
    'by %s narrow to what is granted',
    async (fields) => {
      const answer = await ask({ fields })
      expect(answer.status).toBe(200)
      expect(answer.body.totalCount).toBe(2)
      const own = ['id', 'title', 'stars', 'userCreated_Id', 'owner_Id']
      // Of the vault the grant names the id alone, which opens the relation and shows nothing else of it.
      const allowed = [...own, 'owner', 'comments', 'vault', 'firstName', 'text']
      for (const { vault = {} } of answer.body.data)
        expect(Object.keys(vault)).toEqual(vault.id === undefined ? [] : ['id'])
      expect(keysOf(answer.body.data).filter((key) => !allowed.includes(key))).toEqual([])
    },
  )

  it('take the related collection’s own rule along', async () => {
    const nosy = await on.api.user([
      { collection: 'comment', action: 'read', fields: ['text', 'note.*', 'note.title'] },
      { collection: 'note', action: 'read', fields: ['title'], conditions: { userCreated_Id: '$CURRENT_USER' } },
    ])
    const answer = await on.watched.as(nosy.token)('GET', path('comment', { fields: ['text', 'note.*'] }))
    expect(answer.body.data).toEqual([{ text: 'hello', note: null }])
    const counted = await on.watched.as(nosy.token)(
      'GET',
      path('comment', { aggregate: { n: { function: 'count', field: 'note.title' } } }),
    )
    expect(counted.body.data).toEqual([{ n: 0 }])
  })
})

/** Names of members anywhere in an answer. */
function keysOf(value: unknown): string[] {
  if (Array.isArray(value)) return [...new Set(value.flatMap(keysOf))]
  if (value === null || typeof value !== 'object') return []
  return [...new Set(Object.entries(value).flatMap(([key, one]) => [key, ...keysOf(one)]))]
}
