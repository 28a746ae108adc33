import { describe, expect, it } from 'vitest'
import type { Access, Grant } from '../../../src/query/access.ts'
import { compileCondition, compileConjuncts } from '../../../src/query/compile.ts'
import { parseListQuery } from '../../../src/query/parse.ts'
import { checkConditions, readableFields, resolveCondition, resolveOne } from '../../../src/query/resolve.ts'
import { createParams } from '../../../src/query/sql.ts'
import { admin, env, type Role, role, U1 } from './support/access.ts'
import { catalog } from './support/catalog.ts'
import { listOf, planOf, refusal } from './support/compiled.ts'

const NOTES = ['id', 'title', 'stars', 'owner_Id', 'owner.name', 'owner.team.*', 'comments.*', 'labels.name']
const lim = (notes: Partial<Grant> = {}, others: Record<string, Partial<Grant>> = {}) =>
  role({
    userId: U1,
    grants: { notes: { fields: NOTES, ...notes }, users: {}, teams: {}, comments: {}, labels: {}, ...others },
  })
const ask = (query: Record<string, unknown>, access = lim()) => listOf({ access, query })
const denied = (query: Record<string, unknown>, access = lim()) => {
  const { status, message } = refusal(() => ask(query, access))
  expect(status).toBe(403)
  return message
}

describe('without a grant', () => {
  it('nothing can be read', () => {
    const nobody = role({ grants: {} })
    expect(refusal(() => listOf({ access: nobody }))).toEqual({
      status: 403,
      message: `You don't have permission to read items in 'notes'`,
      details: undefined,
    })
    expect(refusal(() => readableFields(catalog, nobody, 'notes'))).toMatchObject({ status: 403 })
    expect(refusal(() => resolveCondition(catalog, nobody, 'notes', 'delete', env))).toMatchObject({
      message: `You don't have permission to delete items in 'notes'`,
    })
  })

  it('an unknown collection is 404, for everybody', () => {
    for (const access of [admin, role({ grants: {} })]) {
      for (const collection of ['nope', 'pgboss.job', '__proto__', 'public.notes', 'NOTES']) {
        expect(refusal(() => listOf({ access, collection }))).toMatchObject({
          status: 404,
          message: `Model ${collection} not found`,
        })
      }
    }
  })
})

describe('a field that is hidden or not granted', () => {
  const paths = ['canary', 'secret', 'owner.email', 'owner.password', 'comments.note.canary']

  it.each(paths)('%s cannot be used in any part of a query', (path) => {
    const access = lim({ fields: [...NOTES, 'comments.note.title'] })
    const expected = `You don't have permission to read field: ${path}`
    for (const query of [
      { fields: [path] },
      { filter: { [path]: { startsWith: 'a' } } },
      { filter: { OR: [{ title: 'x' }, { NOT: { AND: [{ [path]: 'a' }] } }] } },
      { filter: { [path]: { gt: '1', cast: 'integer' } } },
      { filter: { [path]: null } },
      { filter: { [path]: {} } },
      { filter: { title: `$COL(${path})` } },
      { filter: { [`$${path}$`]: 'a' } },
      { sort: path },
      { sort: { [path]: 'desc' } },
      { search: 'x', searchFields: [path] },
      { groupBy: [path] },
      { groupBy: [`date:year:${path}`] },
      ...['min', 'max', 'array_agg', 'sum', 'count', 'distinct'].map((fn) => ({
        aggregate: { a: { function: fn, field: path } },
      })),
    ]) {
      const message = denied(query, access)
      expect(message === expected || message === `You don't have permission to read field: $${path}$`).toBe(true)
    }
  })

  it('is answered in the same words, so that neither can be told from the other', () => {
    expect(denied({ fields: ['canary'] }).replace('canary', 'x')).toBe(
      denied({ fields: ['secret'] }).replace('secret', 'x'),
    )
  })

  it('cannot be reached as a path into it', () => {
    expect(denied({ filter: { 'canary.key': 1 } })).toContain('canary.key')
    expect(denied({ filter: { 'secret.key': 1 } })).toContain('secret.key')
  })

  it('cannot be filtered inside an object of a relation or by relConditions', () => {
    expect(denied({ filter: { owner: { email: 'x' } } })).toContain('email')
    expect(denied({ fields: ['owner.name'], relConditions: { owner: { email: 'x' } } })).toContain('email')
  })

  it('is not searched', () => {
    const { text } = ask({ fields: ['id'], search: 'canary' })
    expect(text).toContain(`coalesce(t."title", '')`)
    expect(text).not.toMatch(/"canary"|"secret"|"meta"|"body"/)
  })

  it('of hidden kind stays hidden from administrators', () => {
    for (const query of [{ fields: ['secret'] }, { filter: { secret: 'x' } }, { sort: 'owner.password' }]) {
      expect(refusal(() => listOf({ query }))).toMatchObject({ status: 403 })
    }
    expect(listOf({ query: { fields: ['*.*'] } }).text).not.toMatch(/"secret"|"password"/)
  })
})

describe('wildcards', () => {
  const text = (fields: string[], access = lim()) => ask({ fields }, access).text

  it('narrow to what is granted', () => {
    expect(planOf({ access: lim() }).selection.columns.map(({ name }) => name)).toEqual([
      'id',
      'title',
      'stars',
      'owner_Id',
    ])
    expect(readableFields(catalog, lim(), 'notes').map(({ name }) => name)).toEqual([
      'id',
      'title',
      'stars',
      'owner_Id',
    ])
    expect(text(['owner.*'])).not.toMatch(/"email"|"age"/)
    expect(text(['*.*'])).not.toMatch(/categories|notes_blocks_junction|"email"/)
  })

  it('always give the primary key', () => {
    const access = lim({ fields: ['title', 'owner.name'] })
    expect(planOf({ access }).selection.columns.map(({ name }) => name)).toEqual(['id', 'title'])
    expect(text(['owner.*'], access)).toContain('q1."id"')
  })

  it('of a grant give no more than the related collection grants itself, unless they name the relation', () => {
    const limited = { comments: { fields: ['text'] }, users: { fields: ['email'] } }
    const access = lim({ fields: ['*.*', 'owner.name'] }, limited)
    expect(text(['comments.*'], access)).not.toContain('"likes"')
    expect(denied({ filter: { 'comments.likes': 1 } }, access)).toContain('comments.likes')
    expect(text(['comments.*'], lim({}, limited))).toContain('"likes"')
    // Named through a wildcard the relation is not named itself.
    expect(denied({ fields: ['comments.likes'] }, lim({ fields: ['*.likes'] }, limited))).toContain('comments.likes')
    // owner.name is named by the parent's grant, which is deliberate.
    expect(text(['owner.name'], access)).toContain('"name"')
  })
})

describe('field specs', () => {
  const columns = (fields: string[] | null) =>
    planOf({
      access: role({ grants: { comments: { fields }, users: {}, notes: {}, teams: {} } }),
      collection: 'comments',
      query: { fields: ['*.*'] },
    })
  const shape = (fields: string[] | null) => {
    const { selection } = columns(fields)
    return [
      selection.columns.length,
      ...selection.nested.map(({ step, selection }) => `${step.relation.name}:${selection.columns.length}`),
    ]
  }

  it.each([
    [null, [7]],
    [[], [7]],
    [['*'], [7]],
    [
      [' text ', 'author.name'],
      [2, 'author:2'],
    ],
    [['author'], [1, 'author:5']],
    [['author.*'], [1, 'author:5']],
    [['*.*'], [7, 'note:27', 'author:5']],
    [['*', '-text'], [6]],
    [['-text'], [6]],
    [
      ['*.*', '-note', '-author.email'],
      [7, 'author:4'],
    ],
  ])('%j', (fields, expected) => {
    expect(shape(fields)).toEqual(expected)
  })
})

describe('relations', () => {
  it('without a read grant on their collection are refused by name and left out of wildcards', () => {
    const access = role({ grants: { notes: { fields: ['*.*', '*.*.*', '*.team.name'] }, comments: {} } })
    for (const query of [
      { fields: ['owner.name'] },
      { fields: ['owner'] },
      { filter: { 'owner.name': 'x' } },
      { filter: { owner: null } },
      { sort: 'owner.team.name' },
    ]) {
      expect(denied(query, access)).toMatch(/read relation: owner/)
    }
    expect(ask({ fields: ['*.*'] }, access).text).not.toContain('"users"')
  })

  it('that the parent does not grant are refused even where their collection is readable', () => {
    const access = lim({ fields: ['*'] })
    expect(denied({ fields: ['owner.name'] }, access)).toBe(`You don't have permission to read relation: owner.name`)
    expect(denied({ aggregate: { n: { function: 'max', field: 'comments.likes' } } }, access)).toContain(
      'comments.likes',
    )
  })

  it('stop at the exact node on the way', () => {
    const access = lim({ fields: ['*', 'owner.notes.title', 'owner.name'] })
    expect(denied({ fields: ['owner.notes.canary'] }, access)).toContain('field: owner.notes.canary')
    expect(denied({ fields: ['owner.notes.owner.name'] }, access)).toContain('relation: owner.notes.owner.name')
  })

  it('bring the rules of their collection along, in rows, filters, sorts and aggregates', () => {
    const access = lim({}, { comments: { conditions: { likes: { gt: 3 } } } })
    for (const query of [
      { fields: ['comments.text'] },
      { filter: { 'comments.text': 'x' } },
      { filter: { comments: null } },
      { sort: 'comments.text' },
      { aggregate: { n: { function: 'count', field: 'comments.id' } } },
      { search: 'x', searchFields: ['comments.text'] },
    ]) {
      expect(ask(query, access).text).toMatch(/q\d+"?\."likes" > \$\d+::integer/)
    }
  })

  it('bring stored relConditions along, at every level', () => {
    const access = lim({ relConditions: { comments: { likes: 1 }, owner: { team: { name: 'red' } } } })
    expect(ask({ filter: { 'comments.text': 'x' } }, access).values).toEqual([1, 'x'])
    expect(ask({ fields: ['owner.team.name'] }, access).values).toEqual(['red'])
    expect(ask({ fields: ['owner.name'] }, access).values).toEqual([])
  })

  it('of a junction need no grant of their own, what lies behind them does', () => {
    const access = role({ grants: { notes: { fields: ['*', 'blocks.*.*'] }, images: {} } })
    expect(ask({ fields: ['blocks.images.url'] }, access).text).toContain('"images"')
    expect(denied({ fields: ['blocks.quotes.words'] }, access)).toContain('blocks.quotes.words')
    expect(ask({ fields: ['blocks.*.*'] }, access).text).not.toContain('"quotes"')
  })
})

describe('relations that the parent names, to collections without a grant of their own', () => {
  const named = (fields: string[], more: Partial<Role> = {}) =>
    role({ ...more, grants: { notes: { fields }, ...more.grants } })
  const shown = (asked: string[], access: Access) => planOf({ access, query: { fields: asked } }).selection.nested[0]
  const columns = (asked: string[], access: Access) => shown(asked, access)?.selection.columns.map(({ name }) => name)

  it('show the named columns and the primary key, in every part of a query', () => {
    const access = named(['id', 'owner.name'])
    expect(columns(['owner.*'], access)).toEqual(['id', 'name'])
    expect(columns(['*.*'], access)).toEqual(['id', 'name'])
    const one = { function: 'max', field: 'owner.name' }
    for (const query of [
      { fields: ['owner.name'] },
      { filter: { 'owner.name': 'x' } },
      { filter: { owner: null } },
      { filter: { NOT: { owner: { name: 'x' } } } },
      { sort: '-owner.name' },
      { aggregate: { one } },
      { groupBy: ['owner.name'] },
      { fields: ['owner.name'], relConditions: { owner: { name: 'x' } } },
    ])
      expect(ask(query, access).text).toContain('"users"')
    expect(denied({ fields: ['owner.age'] }, access)).toBe(`You don't have permission to read field: owner.age`)
    expect(denied({ filter: { 'owner.team.name': 1 } }, access)).toContain('relation: owner.team.name')
  })

  it('may not be searched', () => {
    const search = { search: 'x', searchFields: ['owner.name'] }
    const refused = `You don't have permission to search field: owner.name`
    expect(denied(search, named(['id', 'owner.name']))).toBe(refused)
    expect(denied(search, named(['id', 'owner.*']))).toBe(refused)
    expect(denied(search, named(['id', 'owner.name'], { grants: { users: { fields: ['age'] } } }))).toBe(refused)
    expect(ask(search, named(['id', 'owner.name'], { grants: { users: {} } })).text).toContain('"users"')
  })

  it.each([[['owner.*']], [['owner']], [['owner.*.*']]])('show every column but hidden ones by %j', (fields) => {
    const access = named(['id', ...fields])
    expect(columns(['owner.*'], access)).toEqual(['id', 'name', 'email', 'age', 'team_Id'])
    expect(denied({ fields: ['owner.password'] }, access)).toContain('owner.password')
    expect(denied({ fields: ['owner.team.name'] }, access)).toContain('relation: owner.team.name')
  })

  it('are open all the way along a named path and no further', () => {
    const access = named(['id', 'owner.team.name'])
    expect(columns(['owner.*'], access)).toEqual(['id'])
    expect(ask({ fields: ['owner.team.name'], filter: { 'owner.team.name': 'red' } }, access).text).toContain('"teams"')
    expect(denied({ fields: ['owner.name'] }, access)).toContain('field: owner.name')
  })

  it.each([
    ['a wildcard', ['*.*', '*.name', '*.team.name']],
    ['a name that does not exist', ['owner.nope', 'owner.team.nope']],
    ['a hidden field', ['owner.password']],
    ['what an exclusion takes out again', ['owner.name', '-owner.name', 'owner.team.name', '-owner']],
  ])('are not opened by %s', (_by, fields) => {
    expect(denied({ fields: ['owner.name'] }, named(['id', ...fields]))).toContain('owner.name')
  })

  it('keep the rule of their collection where there is one', () => {
    const { where, ...mine } = { where: { age: { gt: 3 } }, fields: ['age'] }
    const access = named(['id', 'owner.name'], { grants: { users: { ...mine, conditions: where } } })
    for (const query of [{ fields: ['owner.name'] }, { filter: { 'owner.name': 'x' } }, { sort: 'owner.name' }])
      expect(ask(query, access).text).toContain(`"age" > $1::integer`)
    const never = named(['id', 'owner.name'], { grants: { users: { conditions: { nope: 1 } } } })
    expect(shown(['owner.name'], never)?.step.rule).toEqual({ kind: 'never' })
  })

  it('stay shut where the permission of their collection has lost its meaning', () => {
    const access = { ...named(['id', 'owner.name', 'owner.*']), closed: new Set(['users']) }
    expect(denied({ fields: ['owner.name'] }, access)).toContain('relation: owner.name')
  })

  it('show no less when a grant of their own is taken away', () => {
    for (const spec of ['owner.name', 'owner.*', '*.*', '*.name']) {
      const before = columns(['*.*'], named(['id', spec], { grants: { users: { fields: ['age'] } } }))
      const after = columns(['*.*'], named(['id', spec]))
      expect(before ?? []).toEqual(expect.arrayContaining(after ?? []))
    }
  })
})

describe('row rules', () => {
  const mine = { owner_Id: '$CURRENT_USER' }

  it('stand outside the expression of the request', () => {
    const { text, values } = ask(
      { fields: ['id'], filter: { OR: [{ title: 'x' }, { id: { isNotNull: true } }] } },
      lim({ conditions: mine }),
    )
    expect(text).toContain('where t."owner_Id" = $1::uuid and t."deletedAt" is null and (t."title" = $2::text or')
    expect(values[0]).toBe(U1)
  })

  it('match nothing for a caller who has no value for their variable', () => {
    const access = role({ grants: { notes: { conditions: mine } } })
    expect(ask({ fields: ['id'] }, access).values).toEqual([null])
  })

  it.each([
    [{ nope: 1 }],
    [{ title: { nope: 1 } }],
    [{ secret: 'x' }],
    [{ stars: 'abc' }],
    [{ 'owner.nope': 1 }],
    ['{}'],
    [[{ title: 'x' }]],
    [{ owner_Id: '$CURRENT_USER.password' }],
    [{ meta: { jsonbKeyIsNull: '$CURRENT_TENANT' } }],
  ])('that no longer resolve let nothing through: %j', (conditions) => {
    expect(ask({ fields: ['id'] }, lim({ conditions })).text).toContain('where false')
    expect(refusal(() => checkConditions(catalog, admin, 'notes', conditions, env)).status).toBeGreaterThanOrEqual(400)
  })

  it.each([[null], [undefined], [{}], [[]]])('of %j hold for every row', (conditions) => {
    expect(ask({ fields: ['id'] }, lim({ conditions })).text).toContain('where t."deletedAt" is null order')
  })

  it('may use fields and relations that the caller may not', () => {
    const access = lim({ conditions: { 'category.name': 'public', canary: null } })
    expect(ask({ fields: ['id'] }, access).text).toContain('"categories"')
  })

  it('apply to one item as to many', () => {
    const plan = resolveOne(catalog, lim({ conditions: mine }), 'notes', '1', parseListQuery({ fields: 'id' }), env)
    expect(JSON.stringify(plan.where)).toContain(U1)
  })
})

describe('one item', () => {
  it.each(['abc', '', '1.5', '1;', '99999999999'])('%j is no id', (id) => {
    expect(refusal(() => resolveOne(catalog, admin, 'notes', id, parseListQuery({}), env))).toMatchObject({
      status: 400,
    })
  })

  it('takes an id literally', () => {
    expect(refusal(() => resolveOne(catalog, admin, 'users', '$CURRENT_USER', parseListQuery({}), env))).toMatchObject({
      status: 400,
    })
  })
})

describe('resolveCondition', () => {
  const access = role({
    userId: U1,
    grants: {
      'notes:update': { conditions: { owner_Id: '$CURRENT_USER' } },
      'notes:create': {},
      notes: { fields: ['title'] },
      'labels:delete': { conditions: {} },
    },
  })

  it('is the rule of the action, ready for any alias and any way of passing values', () => {
    const condition = resolveCondition(catalog, access, 'notes', 'update', env)!
    const params = createParams(['first'])
    expect(compileCondition(condition, 'r', params)).toBe('(r."owner_Id" = $2::uuid and r."deletedAt" is null)')
    expect(params.values).toEqual(['first', U1])
    expect(compileCondition(condition, 'r', { bind: (_, type) => `(p.v)::${type}` })).toContain(
      'r."owner_Id" = (p.v)::uuid',
    )
    expect([...condition.collections]).toEqual(['notes'])
  })

  it('tells the parts that compare a column with one value for equality', () => {
    const options = { filter: { kind: 'entry', path: 'title', value: { in: ['x', 'y'] } } } as const
    const condition = resolveCondition(catalog, access, 'notes', 'update', env, options)!
    const params = createParams()
    expect(compileConjuncts(condition, 'r', params)).toEqual({
      equalities: ['r."owner_Id" = $1::uuid'],
      rest: ['r."deletedAt" is null', 'r."title" = any($2::text[])'],
    })
    expect(params.values).toEqual([U1, ['x', 'y']])
  })

  it.each([
    ['a cast', { eq: 1, cast: 'integer' }, '(r."title")::text::integer = $2::integer'],
    ['a pattern', { regex: '(' }, 'r."title" ~ $2::text'],
  ])('puts what may fail behind all else: %s', (_what, value, sql) => {
    const options = { filter: { kind: 'entry', path: 'title', value } } as const
    const condition = resolveCondition(catalog, access, 'notes', 'update', env, options)!
    const [owner, undeleted] = ['r."owner_Id" = $1::uuid', 'r."deletedAt" is null']
    const guarded = (safe: string) => `case when ${safe} then ${sql} else false end`
    expect(compileCondition(condition, 'r', createParams())).toBe(
      `(${owner} and ${undeleted} and ${guarded(`${owner} and ${undeleted}`)})`,
    )
    expect(compileConjuncts(condition, 'r', createParams())).toEqual({
      equalities: [owner],
      rest: [undeleted, guarded(undeleted)],
    })
  })

  it('may let deleted rows through', () => {
    const condition = resolveCondition(catalog, access, 'notes', 'update', env, { includeDeleted: true })!
    expect(compileCondition(condition, 'r', createParams())).toBe('r."owner_Id" = $1::uuid')
    expect(resolveCondition(catalog, access, 'notes', 'create', env, { includeDeleted: true })).toBeUndefined()
  })

  it('is undefined where every row passes', () => {
    expect(resolveCondition(catalog, access, 'labels', 'delete', env)).toBeUndefined()
    expect(resolveCondition(catalog, admin, 'labels', 'update', env)).toBeUndefined()
  })

  it('takes a filter of the request, checked against the read grant', () => {
    const filter = (path: string) => ({ filter: { kind: 'entry', path, value: 'x' } as const })
    const condition = resolveCondition(catalog, access, 'notes', 'update', env, filter('title'))!
    expect(compileCondition(condition, 'r', createParams())).toContain('r."title" = $2::text')
    expect(refusal(() => resolveCondition(catalog, access, 'notes', 'update', env, filter('canary')))).toMatchObject({
      status: 403,
    })
  })
})
