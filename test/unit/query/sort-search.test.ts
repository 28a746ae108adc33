import { describe, expect, it } from 'vitest'
import { searchWords } from '../../../src/query/search-words.ts'
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

  const words = (text: string) =>
    searchWords(text).map(({ pattern, query }) => [pattern.replaceAll('[^[:alnum:]]', '_'), query])

  it.each([
    ['quick fox', ['(^|_)quick', `'quick':*`], ['(^|_)fox', `'fox':*`]],
    ['  quick\n\tfox  ', ['(^|_)quick', `'quick':*`], ['(^|_)fox', `'fox':*`]],
    [`o'neil`, ['(^|_)o_+neil', `'o neil':*`]],
    ['b\\c', ['(^|_)b_+c', `'b c':*`]],
    ['x | b & !c <-> d:*', ['(^|_)x', `'x':*`], ['(^|_)b', `'b':*`], ['(^|_)c', `'!c':*`], ['(^|_)d', `'d:*':*`]],
    ['(ann@example.com)', ['(^|_)ann_+example_+com', `'(ann@example.com)':*`]],
    ['żółw', ['(^|_)żółw', `'żółw':*`]],
    ['cafe\u0301', ['(^|_)cafe\u0301', `'cafe\u0301':*`]],
    ['192.168.1.1', ['(^|_)192_+168_+1_+1', `'192.168.1.1':*`]],
    ['log-in', ['(^|_)log_+in', `'log-in':*`]],
    ['my_table', ['(^|_)my_+table', `'my_table':*`]],
    ['b.*(c|d)[^e]{2}\\m$', ['(^|_)b_+c_+d_+e_+2_+m', `'b.*(c|d)[^e]{2} m$':*`]],
    ['***=b ??', ['(^|_)b', `'***=b':*`]],
    ['!!! ???'],
  ])('%j is looked for by patterns and stems', (text, ...expected) => {
    expect(words(text)).toEqual(expected)
  })

  it.each([
    ['the printer', ['(^|_)printer', `'printer':*`]],
    [`don't know`, ['(^|_)know', `'know':*`]],
    ['AT&T outage', ['(^|_)outage', `'outage':*`]],
    ['IT', ['(^|_)IT', undefined]],
    ['is not', ['(^|_)is', undefined], ['(^|_)not', undefined]],
    [`don't`, ['(^|_)don_+t', undefined]],
    ['AT&T', ['(^|_)AT_+T', undefined]],
  ])('%j needs its stop words only where it has no others', (text, ...expected) => {
    expect(words(text)).toEqual(expected)
  })

  it('binds what the caller has typed', () => {
    const { text, values } = search(`quick o'fox`)
    expect(text).not.toMatch(/quick|fox/)
    const boundary = '(^|[^[:alnum:]])'
    expect(values).toEqual([`${boundary}quick`, `'quick':*`, `${boundary}o[^[:alnum:]]+fox`, `'o fox':*`])
  })

  it('makes the stems of several words once, of one word after its pattern, of stop words never', () => {
    const stems = (text: string) => search(text, { limit: 1, count: false }).text.match(/\w+,? to_tsvector\(.*?\)/g)
    expect(stems('quick fox dog')).toEqual([`body, to_tsvector('english', body)`])
    expect(stems('quick')).toEqual([`or to_tsvector('english', body)`])
    expect(stems('is not')).toBeNull()
  })

  it('without a word finds nothing', () => {
    expect(search('!!! ???').text).toContain('where false')
  })

  it('looks at text columns', () => {
    const { text } = search('x')
    expect(text).toContain(`coalesce(t."title", '')`)
    expect(text).not.toMatch(/coalesce\(t\."(meta|stars|secret|tags)"/)
  })

  const uuid = '0193a1b2-42c3-7d4e-8f50-617283940a5b'
  it.each([uuid, uuid.toUpperCase(), uuid.replaceAll('-', ''), uuid.slice(0, 8), uuid.slice(0, 12), `paid (${uuid})`])(
    'looks at uuid columns for %j',
    (text) => expect(search(text).text).toContain(`coalesce(t."code"::text, '')`),
  )

  it.each(['x', '1', 'beef', '0193a1b', 'deadbeefs', `${uuid}0`])('does not look at uuid columns for %j', (text) =>
    expect(search(text).text).not.toContain('t."code"::text'),
  )

  it('looks at uuid columns that are named for any word', () => {
    expect(search('1', { searchFields: 'code' }).text).toContain(`coalesce(t."code"::text, '')`)
  })

  it('looks at the named fields only, also of relations', () => {
    const { text } = search('x', { searchFields: 'title,owner.name,comments.text' })
    expect(text).not.toContain('"body"')
    expect(text).toContain(`string_agg(q2."text", ' ')`)
  })

  it('sorts by relevance unless a sort is given', () => {
    expect(search('x', { sortByRelevance: true }).text).toContain('order by ts_rank(')
    expect(search('is not', { sortByRelevance: true }).text).toContain('order by 0::real desc, t."id" desc')
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
