import { describe, expect, it } from 'vitest'
import { parseFilter, parseListQuery, parseUntrustedFilter } from '../../../src/query/parse.ts'
import { refusal } from './support/compiled.ts'

const NOTHING = parseListQuery({})
const details = (raw: Record<string, unknown>) => {
  const { status, message, details } = refusal(() => parseListQuery(raw))
  expect({ status, message }).toEqual({ status: 400, message: 'Invalid query parameters' })
  return details
}

describe('lists of names', () => {
  it.each([
    ['JSON text', { fields: '["a","b.c"]' }],
    ['a comma list', { fields: 'a, b.c' }],
    ['a repeated key', { fields: ['a', 'b.c'] }],
    ['empty brackets', { 'fields[]': ['a', 'b.c'] }],
    ['numbered brackets', { 'fields[0]': 'a', 'fields[1]': 'b.c' }],
    ['a comma list within a repeated key', { fields: ['a,b.c'] }],
  ])('%s', (_, raw) => {
    expect(parseListQuery(raw).fields).toEqual(['a', 'b.c'])
  })

  it('takes one bracketed name for a list of one', () => {
    expect(parseListQuery({ 'groupBy[]': 'status' }).groupBy).toEqual(['status'])
  })

  it('leaves out what is empty', () => {
    expect(parseListQuery({ fields: '', searchFields: undefined })).toMatchObject({
      fields: undefined,
      searchFields: undefined,
    })
  })

  it.each([
    [{ fields: [1] }],
    [{ fields: { a: 1 } }],
    [{ fields: '[1]' }],
    [{ fields: '["a"' }],
    [{ fields: ['a\0'] }],
  ])('refuses %j', (raw) => {
    expect(details(raw)).toMatch(/^fields: /)
  })
})

describe('sort', () => {
  const expected = [
    { kind: 'path', path: 'a', direction: 'desc' },
    { kind: 'path', path: 'b.c', direction: 'asc' },
  ]

  it.each([
    ['signs', { sort: '-a,b.c' }],
    ['colons', { sort: 'a:desc,b.c:ASC' }],
    ['an object as text', { sort: '{"a":"desc","b.c":"asc"}' }],
    ['an object', { sort: { a: 'DESC', 'b.c': 'asc' } }],
    ['brackets', { 'sort[a]': 'desc', 'sort[b.c]': 'asc' }],
    ['a list as text', { sort: '["-a","b.c"]' }],
    ['a list', { sort: ['a:desc', 'b.c:asc'] }],
    [
      'columns and orders',
      {
        sort: [
          { column: 'a', order: 'desc' },
          { field: 'b.c', order: 'asc' },
        ],
      },
    ],
    ['a list of objects', { sort: [{ a: 'desc' }, { 'b.c': 'asc' }] }],
  ])('as %s', (_, raw) => {
    expect(parseListQuery(raw).sort).toEqual(expected)
  })

  it('keeps the colons of a date bucket', () => {
    expect(parseListQuery({ sort: 'date:year:at,date:month:at:desc' }).sort).toEqual([
      { kind: 'path', path: 'date:year:at', direction: 'asc' },
      { kind: 'path', path: 'date:month:at', direction: 'desc' },
    ])
  })

  it('reads distances', () => {
    const sort = {
      _distance: { target: [1, 2], column: 'at', direction: 'DESC' },
      _vectorDistance: { column: 'v', vector: [1] },
    }
    expect(parseListQuery({ sort }).sort).toEqual([
      { kind: 'distance', column: 'at', target: [1, 2], direction: 'desc' },
      { kind: 'vectorDistance', column: 'v', vector: [1], metric: 'cosine', direction: 'asc' },
    ])
  })

  it.each([
    [{ sort: { a: 'up' } }],
    [{ sort: { a: { b: 1 } } }],
    [{ sort: 5 }],
    [{ sort: [{ column: 'a', order: 'sideways' }] }],
    [{ sort: '{"a":' }],
    [{ sort: { _distance: 1 } }],
    [{ sort: Array.from({ length: 21 }, (_, i) => `c${i}`) }],
  ])('refuses %j', (raw) => {
    expect(details(raw)).toMatch(/^sort: /)
  })
})

describe('filter', () => {
  it.each([
    ['text', { filter: '{"a":{"eq":"v"}}' }],
    ['an object', { filter: { a: { eq: 'v' } } }],
    ['brackets', { 'filter[a][eq]': 'v' }],
  ])('as %s', (_, raw) => {
    expect(parseListQuery(raw).filter).toEqual({ kind: 'entry', path: 'a', value: { eq: 'v' } })
  })

  it('reads AND, OR and NOT in both cases, beside other members', () => {
    const filter = parseFilter({ AND: [{ a: 1 }], or: [{ b: 1 }, { c: 1 }], NOT: { d: 1 }, not: [{ e: 1 }], f: 1 })
    const entry = (path: string) => ({ kind: 'entry', path, value: 1 })
    expect(filter).toEqual({
      kind: 'and',
      of: [
        { kind: 'and', of: [entry('a')] },
        { kind: 'or', of: [entry('b'), entry('c')] },
        { kind: 'not', of: { kind: 'and', of: [entry('d')] } },
        { kind: 'not', of: { kind: 'and', of: [entry('e')] } },
        entry('f'),
      ],
    })
  })

  it('reads bracketed lists of conditions and of operands', () => {
    const raw = { 'filter[OR][0][a]': '1', 'filter[OR][1][b][in]': 'x,y', 'filter[c][between][]': ['1', '2'] }
    expect(parseListQuery(raw).filter).toEqual({
      kind: 'and',
      of: [
        {
          kind: 'or',
          of: [
            { kind: 'entry', path: 'a', value: '1' },
            { kind: 'entry', path: 'b', value: { in: ['x', 'y'] } },
          ],
        },
        { kind: 'entry', path: 'c', value: { between: ['1', '2'] } },
      ],
    })
  })

  it('is nothing when empty', () => {
    for (const filter of ['', 'null', '{}', {}, []]) {
      expect([undefined, { kind: 'and', of: [] }]).toContainEqual(parseListQuery({ filter }).filter)
    }
  })

  it('skips missing values', () => {
    expect(parseFilter({ a: undefined, b: 1 })).toEqual({ kind: 'entry', path: 'b', value: 1 })
  })

  it.each([
    [{ filter: '{"a":' }],
    [{ filter: 'status' }],
    [{ filter: [{ a: 1 }] }],
    [{ filter: 7 }],
    [{ filter: { OR: 'x' } }],
    [{ filter: { AND: [[{ a: 1 }]] } }],
    [{ filter: '{}', 'filter[a]': '1' }],
    [{ 'filter[a]': '1', 'filter[a][eq]': '2' }],
  ])('refuses %j', (raw) => {
    expect(details(raw)).toMatch(/^filter/)
  })
})

describe('numbers and switches', () => {
  it('reads digits and numbers', () => {
    expect(parseListQuery({ limit: '25', page: 2, offset: '0' })).toMatchObject({ limit: 25, page: 2, offset: 0 })
    expect(parseListQuery({ limit: -1, page: '', offset: null })).toMatchObject({
      limit: -1,
      page: undefined,
      offset: undefined,
    })
  })

  it.each([
    [
      'limit',
      ['-2', '1.5', '1e18', '10; drop', 1e18, 1.5, Number.NaN, ['1', '2'], true, {}, '0x10', ' 1', '9'.repeat(40)],
    ],
    ['page', ['0', -1, '1e9', 'one']],
    ['offset', ['-1', '1.0']],
    ['count', ['yes', 1, []]],
    ['paranoid', ['0', {}]],
    ['search', [5, ['a'], 'a\0b', 'x'.repeat(501)]],
  ])('refuses a wrong %s', (name, values) => {
    for (const value of values) expect(details({ [name]: value })).toMatch(new RegExp(`^${name}: `))
  })

  it('reads switches', () => {
    expect(parseListQuery({ count: 'false', paranoid: false, sortByRelevance: 'true' })).toMatchObject({
      count: false,
      paranoid: false,
      sortByRelevance: true,
    })
    expect(NOTHING).toMatchObject({ count: undefined, paranoid: true, sortByRelevance: false })
  })
})

describe('aggregate', () => {
  const expected = [{ alias: 'total', fn: 'sum', field: 'price' }]

  it.each([
    ['text', { aggregate: '{"total":{"function":"sum","field":"price"}}' }],
    ['an object', { aggregate: { total: { function: 'sum', field: 'price' } } }],
    ['brackets', { 'aggregate[total][function]': 'sum', 'aggregate[total][field]': 'price' }],
  ])('as %s', (_, raw) => {
    expect(parseListQuery(raw).aggregate).toEqual(expected)
  })

  it('refuses other shapes', () => {
    for (const aggregate of [{ n: 'count' }, { n: {} }, { n: { function: 1 } }, [1], 'count']) {
      expect(details({ aggregate })).toMatch(/^aggregate: /)
    }
    const many = Object.fromEntries(Array.from({ length: 26 }, (_, i) => [`a${i}`, { function: 'count', field: '*' }]))
    expect(details({ aggregate: many })).toMatch(/^aggregate: /)
    expect(details({ groupBy: Array.from({ length: 30 }, (_, i) => `c${i}`) })).toMatch(/^groupBy: /)
  })
})

describe('unknown names', () => {
  const smuggled = { includeHidden: true, bypassPermissions: true, accountability: {}, transaction: 1, _isAdmin: '1' }

  it('are ignored in a query string', () => {
    expect(parseListQuery({ ...smuggled, meta: '*', 'evil[a]': '1', 'x"]': '1' })).toEqual(NOTHING)
  })

  it.each(Object.keys(smuggled))('%s is refused in a strict body', (name) => {
    expect(refusal(() => parseListQuery({ [name]: true }, { strict: true }))).toMatchObject({ status: 400 })
  })
})

describe('prototypes', () => {
  it.each([
    '{"__proto__":{"polluted":1}}',
    '{"constructor":{"prototype":{"polluted":1}}}',
    '{"a":{"b":1},"__proto__":{"polluted":1}}',
  ])('stay as they are after %s', (filter) => {
    parseListQuery({ filter })
    parseListQuery(JSON.parse(filter))
    expect(({} as { polluted?: unknown }).polluted).toBeUndefined()
  })

  it('stay as they are after bracketed keys', () => {
    const raw = {
      'filter[__proto__][polluted]': '1',
      'filter[constructor][prototype][polluted]': '1',
      '__proto__[x]': '1',
    }
    const { filter } = parseListQuery(raw)
    expect(filter).toMatchObject({ kind: 'and', of: [{ path: '__proto__' }, { path: 'constructor' }] })
    expect(({} as { polluted?: unknown }).polluted).toBeUndefined()
  })
})

describe('size', () => {
  const nested = (levels: number, open: string, core: string, close: string) =>
    `${open.repeat(levels)}${core}${close.repeat(levels)}`

  it.each([
    ['a filter nested 10 000 deep', nested(10_000, '{"NOT":', '{"a":1}', '}')],
    ['arrays nested 10 000 deep', `{"a":{"jsonbContains":${nested(10_000, '[', '1', ']')}}}`],
    ['21 levels', nested(21, '{"NOT":', '{"a":1}', '}')],
    ['10 000 alternatives', JSON.stringify({ OR: Array.from({ length: 10_000 }, () => ({ a: 1 })) })],
    ['100 000 members', JSON.stringify(Object.fromEntries(Array.from({ length: 100_000 }, (_, i) => [`k${i}`, 1])))],
    ['a list of 100 000 values', JSON.stringify({ a: { in: Array.from({ length: 100_000 }, (_, i) => i) } })],
    ['an infinite number', '{"a":1e999}'],
    ['a NUL character', '{"a":"x\\u0000"}'],
    ['a NUL character in a name', '{"a\\u0000":1}'],
  ])('%s is refused', (_, filter) => {
    expect(details({ filter })).toMatch(/^filter: /)
    expect(refusal(() => parseUntrustedFilter(JSON.parse(filter)))).toMatchObject({ status: 400 })
  })

  it('looks at no text beyond a million characters', () => {
    expect(details({ filter: `[${'['.repeat(1_000_000)}` })).toBe('filter: too large or too deep')
  })

  it('takes 20 levels, 1 000 members and 10 000 values', () => {
    const list = Array.from({ length: 10_000 }, (_, i) => i)
    expect(parseListQuery({ filter: { a: { in: list } } }).filter).toBeDefined()
    expect(parseListQuery({ filter: nested(18, '{"NOT":', '{"a":1}', '}') }).filter).toBeDefined()
    expect(parseListQuery({ filter: { OR: Array.from({ length: 499 }, () => ({ a: 1 })) } }).filter).toBeDefined()
  })

  it('bounds bracketed keys too', () => {
    const deep = `filter${'[a]'.repeat(50)}`
    expect(details({ [deep]: '1' })).toMatch(/^filter: /)
    const many = Object.fromEntries(Array.from({ length: 1_001 }, (_, i) => [`filter[a${i}]`, '1']))
    expect(details(many)).toMatch(/^filter: /)
  })
})

describe('details', () => {
  it('never repeat a value', () => {
    const canary = 'canary-3f9c'
    for (const raw of [{ limit: canary }, { filter: canary }, { filter: `{"a":"${canary}"` }, { count: canary }]) {
      expect(JSON.stringify(details(raw))).not.toContain(canary)
    }
  })
})
