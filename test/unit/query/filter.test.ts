import { describe, expect, it } from 'vitest'
import { conditionOf, listOf, planOf, refusal } from './support/compiled.ts'

describe('the filter grammar', () => {
  it.each([
    [{}, ''],
    [{ stars: 1, title: 'x' }, 't."stars" = $1::integer and t."title" = $2::text'],
    [{ stars: null }, 't."stars" is null'],
    [{ stars: {} }, ''],
    [{ stars: { gt: undefined, lt: 5 } }, 't."stars" < $1::integer'],
    [{ OR: [{ stars: 1 }, { stars: 2 }] }, '(t."stars" = $1::integer or t."stars" = $2::integer)'],
    [{ OR: [{ stars: 1 }], title: 'x' }, 't."stars" = $1::integer and t."title" = $2::text'],
    [{ OR: [] }, 'false'],
    [{ AND: [] }, ''],
    [{ NOT: { stars: 1, title: 'x' } }, 'not ((t."stars" = $1::integer and t."title" = $2::text))'],
    [{ NOT: { NOT: { stars: 1 } } }, 't."stars" = $1::integer'],
    [{ NOT: {} }, 'false'],
    [{ NOT: [] }, ''],
    [{ not: [], stars: 1 }, 't."stars" = $1::integer'],
    [{ NOT: { NOT: [] } }, 'false'],
    [{ AND: { stars: 1, title: 'x' } }, 't."stars" = $1::integer and t."title" = $2::text'],
    [{ OR: [{}] }, ''],
    [
      { '$owner.name$': 'x' },
      'exists (select 1 from "users" q1 where q1."id" = t."owner_Id" and q1."name" = $1::text)',
    ],
    [{ title: { gt: '5', cast: 'integer' } }, '(t."title")::text::integer > $1::integer'],
    [{ price: { eq: 5, cast: 'int' } }, '(t."price")::integer = $1::integer'],
    [{ published: { eq: '2024-05-01', cast: 'date' } }, `(t."published" at time zone 'UTC')::date = $1::date`],
    [{ due: { gt: '2024-05-01', cast: 'timestamptz' } }, `((t."due")::timestamp at time zone 'UTC') > $1::timestamptz`],
    [{ title: { arraycontains: ['a'], cast: 'TEXT[]' } }, '(t."title")::text::text[] @> $1::text[]'],
    [{ title: '$COL(body)' }, 't."title" = t."body"'],
    [{ stars: { gte: '$COL(title::integer)' } }, 't."stars" >= (t."title")::text::integer'],
    [{ stars: { eq: '$COL(title)', cast: 'text' } }, '(t."stars")::text = (t."title")::text'],
    [{ title: { eq: '$COL(stars::text)', cast: 'varchar' } }, '(t."title")::varchar = (t."stars")::text'],
    [{ title: { eq: '$COL(body)', cast: null } }, 't."title" = t."body"'],
    [
      { stars: { ne: '$COL(comments.likes)' } },
      't."stars" <> any (select q1."likes" from "comments" q1 where q1."note_Id" = t."id")',
    ],
    [
      { 'owner.age': { lt: '$COL(stars)' } },
      'exists (select 1 from "users" q1 where q1."id" = t."owner_Id" and q1."age" < t."stars")',
    ],
    [
      { comments: { likes: { gt: '$COL(author.age)' } } },
      'exists (select 1 from "comments" q1 where q1."note_Id" = t."id" and q1."likes" > any (select q2."age" from "users" q2 where q2."id" = q1."author_Id"))',
    ],
  ])('%j', (filter, sql) => {
    expect(conditionOf(filter)).toBe(sql)
  })

  it.each([
    [{ nope: 1 }],
    [{ 'x.y"=1) OR (SELECT 1)--': 1 }],
    [{ '"': 1 }],
    [{ ';': 1 }],
    [{ '\\': 1 }],
    [{ ['n'.repeat(70)]: 1 }],
    [{ 'owner.nope': 1 }],
    [{ 'owner.‘name’': 1 }],
    [{ 'title.x': 1 }],
    [{ 'owner.': 1 }],
    [{ '.title': 1 }],
    [{ '': 1 }],
    [{ __proto__: null, constructor: 1 }],
    [JSON.parse('{"__proto__":1}')],
    [JSON.parse('{"owner":{"__proto__":{"name":1}}}')],
    [{ hasOwnProperty: 1 }],
    [{ title: ['a'] }],
    [{ owner: 'x' }],
    [{ owner: ['x'] }],
    [{ owner: { isNull: 'x' } }],
    [{ title: { eq: '5', cast: '::text;--' } }],
    [{ title: { eq: '5', cast: 'regclass' } }],
    [{ title: { eq: '5', cast: 'xml' } }],
    [{ title: { eq: '5', cast: ['text'] } }],
    [{ title: { eq: '$COL(nope)' } }],
    [{ title: { eq: '$COL(owner)' } }],
    [{ title: { eq: '$COL(stars)' } }],
    [{ title: { eq: '$COL(body::regclass)' } }],
    [{ [Array.from({ length: 9 }, () => 'parent').join('.')]: 1 }],
  ])('refuses %j', (filter) => {
    expect(refusal(() => listOf({ query: { filter } }))).toMatchObject({
      status: 400,
      message: 'Invalid query parameters',
    })
  })

  it.each(['OR', 'or'])('refuses one filter under %s, whose members would be alternatives to some readers', (key) => {
    for (const value of [{ title: 'x', stars: 1 }, { title: 'x' }, {}, 'x', null])
      expect(refusal(() => listOf({ query: { filter: { [key]: value } } }))).toMatchObject({
        status: 400,
        details: `filter: ${key} needs a list of filters`,
      })
  })

  it('leaves text that only resembles a column reference alone', () => {
    expect(listOf({ query: { filter: { title: '$COL(body' } } }).values).toEqual(['$COL(body'])
  })
})

describe('paths through relations', () => {
  const comments = 'from "comments" q1 where q1."note_Id" = t."id"'

  it('tests one and the same related row per entry', () => {
    expect(conditionOf({ 'comments.likes': { gt: 1, lt: 5 } })).toBe(
      `exists (select 1 ${comments} and q1."likes" > $1::integer and q1."likes" < $2::integer)`,
    )
  })

  it('finds parents without related rows when a missing value is asked for', () => {
    expect(conditionOf({ 'comments.id': null })).toBe(`not (exists (select 1 ${comments}))`)
    expect(conditionOf({ 'comments.text': { isNull: true } })).toBe(
      `(not (exists (select 1 ${comments})) or exists (select 1 ${comments.replaceAll('q1', 'q2')} and q2."text" is null))`,
    )
    expect(conditionOf({ 'owner.name': { isNull: true } })).toBe(
      'not (exists (select 1 from "users" q1 where q1."id" = t."owner_Id" and not (q1."name" is null)))',
    )
    expect(conditionOf({ 'owner.team.name': null })).toBe(
      'not (exists (select 1 from "users" q1 where q1."id" = t."owner_Id" and exists (select 1 from "teams" q2 where q2."id" = q1."team_Id" and not (q2."name" is null))))',
    )
  })

  it('tests whether there is a related row', () => {
    expect(conditionOf({ comments: null })).toBe(`not (exists (select 1 ${comments}))`)
    expect(conditionOf({ comments: { isNull: 'false' } })).toBe(`exists (select 1 ${comments})`)
    expect(conditionOf({ comments: { isNotNull: true } })).toBe(`exists (select 1 ${comments})`)
  })

  it('goes through link tables and discriminators', () => {
    expect(conditionOf({ 'labels.name': 'x' })).toBe(
      'exists (select 1 from "note_labels" q2 join "labels" q1 on q1."id" = q2."label_Id" where q2."note_Id" = t."id" and q1."name" = $1::text)',
    )
    expect(conditionOf({ 'blocks.images.url': 'x' })).toBe(
      'exists (select 1 from "notes_blocks_junction" q1 where q1."notes_id" = t."id" and exists (select 1 from "images" q2 where q2."id" = q1."item_id" and q1."collection" = \'images\' and q2."url" = $1::text))',
    )
  })

  it('names every collection that is read', () => {
    const { collections } = planOf({
      query: { fields: ['labels.name'], filter: { 'owner.team.name': 'x' }, sort: 'category.name' },
    })
    expect([...collections].sort()).toEqual(['categories', 'labels', 'note_labels', 'notes', 'teams', 'users'])
  })
})

describe('soft delete', () => {
  it('holds for rows, related rows and subqueries unless paranoid is false', () => {
    const query = { fields: ['comments.id'], filter: { 'comments.likes': 1 } }
    expect(listOf({ query }).text.match(/"deletedAt" is null/g)).toHaveLength(3)
    expect(listOf({ query: { ...query, paranoid: 'false' } }).text).not.toContain('"deletedAt" is null')
  })
})

describe('pages', () => {
  it.each([
    [{}, { limit: undefined, offset: 0 }],
    [
      { limit: -1, page: 3 },
      { limit: undefined, offset: 0 },
    ],
    [{ page: 3 }, { limit: 10, offset: 20 }],
    [
      { limit: 25, page: 2 },
      { limit: 25, offset: 25 },
    ],
    [
      { limit: 25, page: 2, offset: 7 },
      { limit: 25, offset: 25 },
    ],
    [
      { limit: 25, offset: 7 },
      { limit: 25, offset: 7 },
    ],
    [{ offset: 7 }, { limit: undefined, offset: 7 }],
    [{ limit: 0 }, { limit: 0, offset: 0 }],
  ])('%j', (query, window) => {
    expect(planOf({ query })).toMatchObject(window)
  })

  it('are capped by QUERY_MAX_LIMIT', () => {
    const env = { maxLimit: 100 }
    expect(planOf({ env })).toMatchObject({ limit: 100, offset: 0 })
    expect(planOf({ env, query: { limit: 5_000, page: 2 } })).toMatchObject({ limit: 100, offset: 100 })
    expect(planOf({ env, query: { limit: 5 } })).toMatchObject({ limit: 5 })
  })

  it('that no number can count are refused', () => {
    expect(refusal(() => planOf({ query: { limit: 1_000_000, page: 100_000_000_000 } }))).toMatchObject({ status: 400 })
  })

  it('count only what is asked for', () => {
    expect(listOf({ query: { limit: 5 }, env: { countByDefault: false } }).text).toContain('null::text as total')
    expect(listOf({ query: { limit: 5, count: 'true' }, env: { countByDefault: false } }).text).toContain('count(*)')
    expect(listOf({ query: { limit: 5, count: 'false' } }).text).toContain('null::text as total')
  })

  it('share their text, so that a prepared statement serves them all', () => {
    const text = (query: Record<string, unknown>) => listOf({ query }).text
    expect(text({ filter: { stars: { in: [1] } }, limit: 5000 })).toBe(
      text({ filter: { stars: { in: [1, 2, 3] } }, limit: 7000 }),
    )
    expect(text({ limit: 10, page: 2 })).toBe(text({ limit: 10, page: 3 }))
    expect(text({ filter: { owner_Id: '$CURRENT_TENANT' } })).toBe(text({ filter: { owner_Id: '$CURRENT_USER' } }))
  })
})
