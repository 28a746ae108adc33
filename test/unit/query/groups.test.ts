import { describe, expect, it } from 'vitest'
import { listOf, planOf, refusal } from './support/compiled.ts'

const count = { n: { function: 'count', field: '*' } }
const groups = (query: Record<string, unknown>) => listOf({ query }).text
const refused = (query: Record<string, unknown>) =>
  expect(refusal(() => listOf({ query }))).toMatchObject({ status: 400, message: 'Invalid query parameters' })

describe('groupBy', () => {
  it.each([
    ['status', ['status']],
    ['owner.name', ['owner.name', 'owner_name']],
    ['owner.team.name', ['owner.team.name', 'owner_team_name']],
    ['date:year:published', ['date:year:published', 'year_published']],
    ['date:dow:comments.at', ['date:dow:comments.at', 'dow_comments_at']],
  ])('%s becomes the members %j', (entry, keys) => {
    expect(planOf({ query: { groupBy: [entry] } }).grouping?.keys[0]?.keys).toEqual(keys)
  })

  it('extracts the year in UTC, and none of infinity', () => {
    const time = `t."published" at time zone 'UTC'`
    expect(groups({ groupBy: ['date:year:published'] })).toContain(
      `case when isfinite(${time}) then extract(year from ${time})::integer end as k1`,
    )
  })

  it.each(['month', 'day', 'hour', 'minute', 'week', 'dow', 'isodow'])('extracts the %s in UTC', (part) => {
    expect(groups({ groupBy: [`date:${part}:published`] })).toContain(
      `extract(${part} from t."published" at time zone 'UTC')::integer as k1`,
    )
  })

  it.each([
    ['yearmonth', 'YYYY-MM'],
    ['yearweek', 'IYYY-"W"IW'],
  ])('writes the %s in UTC', (part, format) => {
    expect(groups({ groupBy: [`date:${part}:published`] })).toContain(
      `to_char(t."published" at time zone 'UTC', '${format}') as k1`,
    )
  })

  it.each([
    ['month-year', 'yearmonth'],
    ['weekyear', 'yearweek'],
    ['year-week', 'yearweek'],
  ])('suggests for %s %s', (part, meant) => {
    const { details } = refusal(() => listOf({ query: { groupBy: [`date:${part}:published`] } }))
    expect(details).toContain(`did you mean ${meant}?`)
  })

  it('extracts from other kinds without a zone', () => {
    const text = groups({ groupBy: ['date:hour:due', 'date:hour:local', 'date:minute:alarm'], timezone: 'Asia/Tokyo' })
    expect(text).toContain(
      'extract(hour from t."due"::timestamp)::integer as k1, extract(hour from t."local")::integer as k2, extract(minute from t."alarm")::integer as k3',
    )
  })

  it('takes the name of a time zone as a parameter', () => {
    const { text, values } = listOf({ query: { groupBy: ['date:hour:published'], timezone: 'Europe/Vienna' } })
    expect(text).toContain('at time zone $1::text')
    expect(values).toEqual(['Europe/Vienna'])
  })

  it.each(['+02:00', 'Nowhere/City', `UTC'; drop`, 'UTC+3', '-05'])('refuses the zone %j', (timezone) => {
    refused({ groupBy: ['date:hour:published'], timezone })
  })

  it.each([
    'date:year);select pg_sleep(5)--:published',
    'date::published',
    'date:YEAR FROM now()) --:x',
    'DATE:year:published',
    'date:YEAR:published',
    'date:century:published',
    'date:year:title',
    'date:year:alarm',
    'date:year',
    'date:year:nope',
    'nope',
    'owner',
    '__proto__',
    'status"',
  ])('refuses %j', (entry) => {
    refused({ groupBy: [entry] })
  })
})

describe('aggregate', () => {
  it.each([
    ['count', '*', 'count(*)'],
    ['count', 'stars', 'count(t."stars")'],
    ['sum', 'price', 'sum(t."price")'],
    ['avg', 'stars', 'avg(t."stars")::double precision'],
    ['min', 'title', 'min(t."title")'],
    ['max', 'published', 'max(t."published")'],
    ['distinct', 'owner_Id', 'count(distinct t."owner_Id")'],
    ['array_agg', 'stars', `coalesce(json_agg(t."stars" order by t."id"), '[]')`],
    ['array_agg', 'owner.name', `coalesce(json_agg(q1."name" order by t."id"), '[]')`],
    ['array_agg', 'comments.likes', `coalesce(json_agg(q1."likes" order by t."id", q1."id"), '[]')`],
    ['sum', 'comments.likes', 'sum(q1."likes")'],
  ])('%s of %s', (fn, field, sql) => {
    expect(groups({ aggregate: { a: { function: fn, field } } })).toContain(`select ${sql} as a1`)
  })

  it.each([
    [{ function: 'pg_sleep', field: 'stars' }],
    [{ function: 'COUNT(*)', field: '*' }],
    [{ function: 'string_agg', field: 'title' }],
    [{ function: 'toString', field: 'title' }],
    [{ function: 'sum', field: '*' }],
    [{ function: 'sum', field: 'title' }],
    [{ function: 'avg', field: 'published' }],
    [{ function: 'min', field: 'meta' }],
    [{ function: 'max', field: 'code' }],
    [{ function: 'count', field: 'nope' }],
    [{ function: 'count', field: 'owner' }],
  ])('refuses %j', (entry) => {
    refused({ aggregate: { a: entry } })
  })

  it.each([
    ['a"b'],
    [`a'--`],
    ['a b'],
    ['1a'],
    [''],
    ['ä'],
    ['a'.repeat(64)],
    ['__proto__'],
    ['constructor'],
    ['prototype'],
    ['year_published'],
  ])('refuses the output name %j', (alias) => {
    refused({
      aggregate: JSON.parse(`{${JSON.stringify(alias)}:{"function":"count","field":"*"}}`),
      groupBy: ['date:year:published'],
    })
  })

  it.each([
    ['status', { groupBy: ['status'] }, 'group'],
    ['owner_name', { groupBy: ['owner.name'] }, 'group'],
    ['owner', { groupBy: ['owner.name'] }, 'relation'],
    ['category', { groupBy: ['category_Id'], fields: ['category.name'] }, 'relation'],
  ])('refuses the output name %s where %j shows another member of it', (alias, query, other) => {
    expect(refusal(() => listOf({ query: { aggregate: { [alias]: count.n }, ...query } }))).toMatchObject({
      status: 400,
      details: `aggregate: "${alias}" is already the name of a ${other}`,
    })
  })

  it.each(['stars', 'owner', 'canary', 'secret', 'title'])(
    'may be named like %s, which the answer does not show',
    (name) => {
      const aggregate = { [name]: { function: 'sum', field: 'views' } }
      const asked = { aggregate, groupBy: ['date:year:published'], sort: `-${name}`, having: { [name]: { gt: 1 } } }
      const { text, values } = listOf({ query: asked })
      expect(text).toContain('sum(t."views") as a1')
      expect(text).toContain('g where g."a1" > $1::numeric')
      expect(text).toContain('order by g.a1 desc, g.k1')
      expect(values).toContain(name)
      expect(planOf({ query: { aggregate } }).grouping?.aggregates[0]?.alias).toBe(name)
    },
  )

  it('means the aggregate where a column beside the groups has its name', () => {
    const fields = ['category.name', 'title', 'body']
    const query = { aggregate: { title: count.n }, groupBy: ['category_Id'] }
    const columns = (more: readonly string[]) =>
      planOf({ query: { ...query, fields: more } }).grouping?.detail?.columns.map(({ name }) => name)
    expect(columns(fields)).toEqual(['body'])
    expect(columns(['*', 'category.name'])).not.toContain('title')
  })

  it('takes output names as parameters', () => {
    const { text, values } = listOf({ query: { aggregate: { totalSales: { function: 'sum', field: 'price' } } } })
    expect(text).not.toContain('totalSales')
    expect(values).toEqual(['totalSales'])
  })

  it('refuses two to-many relations, whose rows would multiply', () => {
    const max = (field: string) => ({ function: 'max', field })
    refused({ aggregate: { a: max('comments.likes'), b: max('labels.name') } })
    refused({ aggregate: { a: max('comments.likes') }, groupBy: ['labels.name'] })
    expect(
      groups({ aggregate: { a: max('comments.likes'), b: max('comments.author.name') }, groupBy: ['owner.name'] }),
    ).toBeDefined()
  })
})

describe('a grouped list', () => {
  it('counts its groups and honours limit, page, search and filter', () => {
    const { text, values } = listOf({
      query: { aggregate: count, groupBy: ['status'], limit: 5, page: 2, search: 'x', filter: { stars: 1 } },
    })
    expect(text).toContain('order by g.k1 limit 5 offset $4::bigint')
    expect(text).toContain('(select count(*) from "$groups")::text as total')
    expect(values).toEqual([1, '(^|[^[:alnum:]])x', `'x':*`, 5, 'n'])
  })

  it.each([
    ['n', 'order by g.a1, g.k1, g.k2'],
    ['-n', 'order by g.a1 desc, g.k1, g.k2'],
    [{ status: 'desc' }, 'order by g.k1 desc, g.k2'],
    ['-date:year:published', 'order by g.k2 desc, g.k1'],
    ['year_published', 'order by g.k2, g.k1'],
  ])('is sorted by %j', (sort, order) => {
    expect(groups({ aggregate: count, groupBy: ['status', 'date:year:published'], sort })).toContain(order)
  })

  it('is not sorted by anything else', () => {
    for (const sort of ['title', 'secret', '_distance', 'a1', { _distance: { column: 'at', target: [1, 2] } }]) {
      refused({ aggregate: count, groupBy: ['status'], sort })
    }
  })

  it('is not sorted by a list', () => {
    refused({ aggregate: { all: { function: 'array_agg', field: 'stars' } }, groupBy: ['status'], sort: 'all' })
  })

  it('is filtered by having', () => {
    const query = {
      aggregate: { ...count, mean: { function: 'avg', field: 'stars' } },
      groupBy: ['status', 'owner.name'],
    }
    const text = groups({
      ...query,
      having: { n: { gt: 1 }, OR: [{ mean: { lt: 3.5 } }, { status: 'draft' }, { owner_name: 'Ann' }] },
    })
    expect(text).toContain(
      'g where g."a1" > $1::bigint and (g."a2" < $2::double precision or g."k1" = $3::text or g."k2" = $4::text)',
    )
    for (const having of [{ title: 'x' }, { secret: 'x' }, { 'owner.name': 'x' }, { n: 'abc' }, { n: '$COL(title)' }]) {
      refused({ ...query, having })
    }
    refused({ having: { n: 1 } })
  })

  it('shows dotted fields of the first row of each group', () => {
    const grouping = (query: Record<string, unknown>) => planOf({ query: { aggregate: count, ...query } }).grouping
    expect(grouping({ groupBy: ['status'], fields: ['status', 'title'] })?.detail).toBeUndefined()
    const detail = grouping({
      groupBy: ['category_Id'],
      fields: ['category_Id', 'category.name', 'title', 'n'],
    })?.detail
    expect(detail?.columns.map(({ name }) => name)).toEqual(['title'])
    expect(detail?.nested.map(({ step }) => step.relation.name)).toEqual(['category'])
    expect(grouping({ groupBy: ['owner.name'] })?.detail?.nested[0]?.selection.columns.map(({ name }) => name)).toEqual(
      ['id', 'name'],
    )
    expect(groups({ aggregate: count, groupBy: ['owner.name'] })).toContain('min(t."id") as r')
    expect(listOf({ collection: 'users', query: { groupBy: ['team.name'] } }).text).toContain(
      'min(t."id"::text collate "C")::uuid as r',
    )
  })

  it('hangs related records on the groups alone where the keys name them', () => {
    const detailed = (more: Record<string, unknown>) => groups({ aggregate: count, ...more })
    const byKey = detailed({ groupBy: ['category_Id', 'status'], fields: ['category.name', 'category.parent.name'] })
    expect(byKey).toContain('from (select g.k1 as "category_Id") t) d')
    expect(byKey).not.toContain(' as r ')
    expect(byKey.match(/from "notes"/g)).toHaveLength(1)
    for (const more of [
      { groupBy: ['category_Id'], fields: ['category.name', 'title'] },
      { groupBy: ['category_Id'], fields: ['category.name', 'owner.name'] },
      { groupBy: ['category_Id'], fields: ['category.name', 'comments.text'] },
      { groupBy: ['category.id'], fields: ['category.name'] },
      { groupBy: ['status'], fields: ['category.name'] },
    ]) {
      expect(detailed(more)).toContain('min(t."id") as r ')
    }
  })

  it('never lets a column stand for a key or an aggregate', () => {
    const { text } = listOf({
      query: { aggregate: count, groupBy: ['status', 'owner.name'], fields: ['*', 'owner.name'] },
    })
    expect(text.match(/'status', /g)).toHaveLength(1)
  })

  it('has at most 50 members, which is what one object takes', () => {
    const aggregate = Object.fromEntries(
      Array.from({ length: 25 }, (_, i) => [`a${i}`, { function: 'count', field: '*' }]),
    )
    refused({ aggregate, groupBy: ['owner.name'], fields: ['*', 'owner.name'] })
  })
})
