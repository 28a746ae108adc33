import { describe, expect, it } from 'vitest'
import { listOf, refusal } from './support/compiled.ts'

/** The joins and the ORDER BY of the rows, which come after the count. */
function orderOf(sort: unknown): { joins: string; order: string } {
  const { text } = listOf({ query: { fields: ['id'], limit: 1, sort } })
  const rows = text.slice(text.lastIndexOf(' from "notes" t') + ' from "notes" t'.length)
  const [joins = '', rest = ''] = rows.split(' where t."deletedAt" is null ')
  return { joins: joins.trim(), order: rest.replace(/ limit 1\) t\) o$/, '') }
}

describe('sort', () => {
  it.each([
    [undefined, 'order by t."id"'],
    ['title', 'order by t."title", t."id"'],
    ['-title', 'order by t."title" desc, t."id" desc'],
    ['title,-stars', 'order by t."title", t."stars" desc, t."id" desc'],
    ['-id', 'order by t."id" desc'],
    ['title,id,stars', 'order by t."title", t."id", t."stars"'],
  ])('%j always ends in a total order', (sort, expected) => {
    expect(orderOf(sort).order).toBe(expected)
  })

  it('joins unique relations once', () => {
    const { joins, order } = orderOf('-owner.team.name,owner.name,owner.age')
    expect(joins).toBe('left join "users" q1 on q1."id" = t."owner_Id" left join "teams" q2 on q2."id" = q1."team_Id"')
    expect(order).toBe('order by q2."name" desc, q1."name", q1."age", t."id"')
  })

  it('takes the least of several related rows, or the greatest', () => {
    expect(orderOf('comments.likes').order).toContain('order by q1."likes" asc nulls last limit 1), t."id"')
    expect(orderOf('-comments.likes').order).toContain('order by q1."likes" desc nulls last limit 1) desc, t."id" desc')
    expect(orderOf('owner.profile.motto').order).toContain('select q2."motto"')
  })

  it('never makes the count join', () => {
    expect(listOf({ query: { sort: 'owner.name', limit: 1 } }).text.match(/left join/g)).toHaveLength(1)
  })

  it.each([
    'nope',
    'owner',
    'meta',
    'owner.nope',
    'title) desc; select pg_sleep(5)--',
    '__proto__',
    { _distance: { target: [1, 2], column: 'title' } },
    { _vectorDistance: { vector: [1], column: 'title' } },
  ])('refuses %j', (sort) => {
    expect(refusal(() => listOf({ query: { sort } }))).toMatchObject({ status: 400 })
  })

  it.each([
    { _distance: { target: [1], column: 'at' } },
    { _distance: { target: ['x', 'y'], column: 'at' } },
    { _distance: { column: 'at' } },
    { _vectorDistance: { vector: [1], column: 'embedding', operator: 'manhattan' } },
    { _vectorDistance: { vector: 'x', column: 'embedding' } },
  ])('refuses %j', (sort) => {
    const env = { postgis: true, vector: true }
    expect(refusal(() => listOf({ collection: 'places', env, query: { sort } }))).toMatchObject({ status: 400 })
  })

  it('by distance needs the extension', () => {
    for (const sort of [
      { _distance: { target: [1, 2], column: 'at' } },
      { _vectorDistance: { vector: [1], column: 'embedding' } },
    ]) {
      expect(refusal(() => listOf({ collection: 'places', query: { sort } }))).toMatchObject({ status: 400 })
    }
  })
})

describe('search', () => {
  const search = (text: string, more = {}) => listOf({ query: { fields: ['id'], search: text, ...more } })

  it.each([
    ['quick fox', `'quick':* & 'fox':*`],
    ['  quick\n\tfox  ', `'quick':* & 'fox':*`],
    [`o'neil`, `'o neil':*`],
    ['a\\b', `'a b':*`],
    ['a | b & !c <-> d:*', `'a':* & 'b':* & '!c':* & 'd:*':*`],
    ['(ann@example.com)', `'(ann@example.com)':*`],
    ['żółw', `'żółw':*`],
    ['!!! ???', ''],
  ])('%j becomes %j', (text, query) => {
    expect(search(text).values).toEqual([query])
  })

  it('looks at text and uuid columns', () => {
    const { text } = search('x')
    expect(text).toContain(`coalesce(t."title", '')`)
    expect(text).toContain(`coalesce(t."code"::text, '')`)
    expect(text).not.toMatch(/coalesce\(t\."(meta|stars|secret|tags)"/)
  })

  it('looks at the named fields only, also of relations', () => {
    const { text } = search('x', { searchFields: 'title,owner.name,comments.text' })
    expect(text).not.toContain('"body"')
    expect(text).toContain(`string_agg(q2."text", ' ')`)
  })

  it('sorts by relevance unless a sort is given', () => {
    expect(search('x', { sortByRelevance: true }).text).toContain('order by ts_rank(')
    expect(search('x', { sortByRelevance: true, sort: 'title' }).text).not.toContain('ts_rank')
    expect(listOf({ query: { sortByRelevance: true } }).text).not.toContain('ts_rank')
  })

  it('refuses too many words and fields that are not text', () => {
    expect(refusal(() => search('a '.repeat(33)))).toMatchObject({ status: 400 })
    expect(refusal(() => search('a', { searchFields: 'meta' }))).toMatchObject({ status: 400 })
    expect(refusal(() => search('a', { searchFields: 'owner' }))).toMatchObject({ status: 400 })
  })

  it('is nothing when empty', () => {
    expect(search('   ').text).not.toContain('to_tsvector')
  })
})
