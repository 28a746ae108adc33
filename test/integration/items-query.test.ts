import { beforeAll, describe, expect, it } from 'vitest'
import { type Api, startApi } from '../support/api.ts'

/** Queries as clients write them: spellings of values, names that do not resolve, numbers of rows. */

let api: Api

beforeAll(async () => {
  api = await startApi({ COUNT_BY_DEFAULT: 'false' })
  await api.admin('POST', '/schemas', {
    collectionName: 'sample',
    schema: {
      fields: {
        s: { type: 'String' },
        i: { type: 'Integer' },
        big: { type: 'BigInt' },
        ok: { type: 'Boolean' },
        j: { type: 'JSON' },
        as: { type: 'Array_String' },
        span: { type: 'Range_Integer' },
        in: { type: 'String' },
      },
    },
  })
  await api.admin('POST', '/items/sample/bulk', [
    { s: 'alpha', i: 0, big: 0, ok: false, j: { a: 1, 0: 'x' }, as: ['p', 'q'], in: 'b' },
    { s: 'beta', i: 5, big: '9007199254740993', ok: true, j: { a: 2 }, as: ['q'], in: 'a' },
    { s: '["gamma"]', i: 12, big: '-9007199254740993', j: [1] },
  ])
})

type Parameters = Readonly<Record<string, string | readonly string[]>>

function list(parameters: Parameters, path = '/items/sample') {
  const pairs = Object.entries(parameters).flatMap(([key, value]) =>
    [value].flat().map((one): [string, string] => [key, one]),
  )
  return api.admin('GET', `${path}?${new URLSearchParams(pairs)}`)
}

/** Texts of the rows that a query finds. */
async function found(parameters: Parameters): Promise<string[]> {
  const { status, body } = await list({
    fields: 's',
    ...('sort[in]' in parameters ? {} : { sort: 'i' }),
    ...parameters,
  })
  expect({ status, error: body.error }).toEqual({ status: 200, error: undefined })
  return body.data.map(({ s }: { s: string }) => s)
}

const details = async (parameters: Parameters) => {
  const { status, body } = await list(parameters)
  return { status, details: body.error?.details }
}

describe('an operand at a bracketed key', () => {
  it.each<[Parameters, string[]]>([
    [{ 'filter[s][in]': '["alpha"]' }, ['alpha']],
    [{ 'filter[s][in]': ' ["alpha", "beta"]' }, ['alpha', 'beta']],
    [{ 'filter[s][in]': 'alpha,beta' }, ['alpha', 'beta']],
    [{ 'filter[s][in]': ['alpha', 'beta'] }, ['alpha', 'beta']],
    [{ 'filter[s][in][]': '["gamma"]' }, ['["gamma"]']],
    [{ 'filter[s][in][0]': '["gamma"]', 'filter[s][in][1]': 'beta' }, ['beta', '["gamma"]']],
    [{ 'filter[s][notIn]': '["alpha"]' }, ['beta', '["gamma"]']],
    [{ 'filter[s][nin]': '["alpha"]' }, ['beta', '["gamma"]']],
    [{ 'filter[s][notIn]': '[]' }, ['alpha', 'beta', '["gamma"]']],
    [{ 'filter[i][in]': '[1,5,12]' }, ['beta', '["gamma"]']],
    [{ 'filter[big][in]': '[9007199254740993]' }, ['beta']],
    [{ 'filter[i][between]': '[1,9]' }, ['beta']],
    [{ 'filter[i][notBetween]': '[1,9]' }, ['alpha', '["gamma"]']],
    [{ 'filter[as][arraycontains]': '["p"]' }, ['alpha']],
    [{ 'filter[as][overlaps]': '["p","q"]' }, ['alpha', 'beta']],
    [{ 'filter[as][arraycontains]': 'p' }, ['alpha']],
    [{ 'filter[as][arraylength]': '{"op":"gt","value":1}' }, ['alpha']],
    [{ 'filter[j][jsonbContains]': '{"a":1}' }, ['alpha']],
    [{ 'filter[j][jsonbContains]': '{"0":"x"}' }, ['alpha']],
    [{ 'filter[j][jsonbContains]': '{}' }, ['alpha', 'beta']],
    [{ 'filter[j][jsonbHasAnyKeys]': '["a"]' }, ['alpha', 'beta']],
    [{ 'filter[j][jsonbHasAllKeys]': 'a,0' }, ['alpha']],
    [{ 'filter[j][jsonbKeyEquals]': '{"key":"a","value":2}' }, ['beta']],
    [{ 'filter[j][jsonbKeyIn][key]': 'a', 'filter[j][jsonbKeyIn][values]': '[2,3]' }, ['beta']],
    [{ 'filter[AND]': '[{"i":{"gt":1}},{"s":"beta"}]' }, ['beta']],
    [{ 'filter[OR]': ['{"i":0}', '{"i":5}'] }, ['alpha', 'beta']],
    [{ 'filter[or][0]': '{"i":0}', 'filter[or][1][i]': '5' }, ['alpha', 'beta']],
    [{ 'filter[not]': '{"i":5}' }, ['alpha', '["gamma"]']],
  ])('%j finds %j', async (parameters, rows) => {
    expect(await found(parameters)).toEqual(rows)
  })

  it.each<[Parameters, string[]]>([
    [{ 'filter[s]': '["gamma"]' }, ['["gamma"]']],
    [{ 'filter[s][eq]': '["gamma"]' }, ['["gamma"]']],
    [{ 'filter[s][not]': '["gamma"]' }, ['alpha', 'beta']],
    [{ 'filter[s][startsWith]': '[' }, ['["gamma"]']],
    [{ 'filter[in]': 'b' }, ['alpha']],
    [{ 'sort[in]': 'asc' }, ['beta', 'alpha', '["gamma"]']],
  ])('%j is text', async (parameters, rows) => {
    expect(await found(parameters)).toEqual(rows)
  })

  it('is refused where it begins like JSON and is none', async () => {
    expect(await details({ 'filter[s][notIn]': '["alpha"' })).toEqual({
      status: 400,
      details: 'filter: malformed JSON',
    })
  })

  it('is the same in the stats of a query string', async () => {
    const { body } = await list(
      {
        'stats[0][name]': 'one',
        'stats[0][collection]': 'sample',
        'stats[0][query][filter][s][notIn]': '["alpha"]',
        'stats[0][query][aggregate][n][function]': 'count',
      },
      '/reports/stats',
    )
    expect(body).toMatchObject({ data: { one: { data: [{ n: 2 }] } } })
  })
})

describe('a cast between numbers and booleans', () => {
  it.each([
    [{ i: { eq: true, cast: 'boolean' } }, ['beta', '["gamma"]']],
    [{ i: { eq: false, cast: 'bool' } }, ['alpha']],
    [{ big: { eq: true, cast: 'boolean' } }, ['beta', '["gamma"]']],
    [{ ok: { eq: 1, cast: 'integer' } }, ['beta']],
    [{ ok: { lt: 1, cast: 'smallint' } }, ['alpha']],
    [{ ok: { eq: 1, cast: 'bigint' } }, ['beta']],
    [{ ok: { gte: '0.5', cast: 'numeric' } }, ['beta']],
    [{ ok: { gt: 0.5, cast: 'float' } }, ['beta']],
    [{ ok: { eq: '$COL(i::boolean)' } }, ['alpha', 'beta']],
  ])('%j finds %j', async (filter, rows) => {
    expect(await found({ filter: JSON.stringify(filter) })).toEqual(rows)
  })
})

describe('the number of rows', () => {
  it('comes where no rows are asked for, whatever COUNT_BY_DEFAULT says', async () => {
    expect((await list({ limit: '0' })).body).toEqual({ data: [], totalCount: 3 })
    expect((await list({ limit: '0', 'filter[i][gt]': '1' })).body).toEqual({ data: [], totalCount: 2 })
    expect((await list({ limit: '0', groupBy: 'ok' })).body).toEqual({ data: [], totalCount: 3 })
    expect((await list({ limit: '0', count: 'false' })).body).toEqual({ data: [] })
    expect((await list({ limit: '1', fields: 's', sort: 'i' })).body).toEqual({ data: [{ s: 'alpha' }] })
  })
})

describe('a member that an object of the query has no meaning for', () => {
  it.each<[string, unknown, string]>([
    ['sort', [{ column: 'i', direction: 'desc' }], 'sort: unknown member "direction": did you mean order?'],
    ['sort', [{ field: 'i', ordr: 'desc' }], 'sort: unknown member "ordr": did you mean order?'],
    ['sort', [{ column: 'i', field: 's' }], 'sort: unknown member "field"'],
    ['aggregate', { n: { function: 'count', field: '*', bogus: 1 } }, 'aggregate: "n": unknown member "bogus"'],
    ['aggregate', { n: { fn: 'count' } }, 'aggregate: "n": unknown member "fn": did you mean function?'],
    ['filter', { as: { arraylength: { opp: 'gt', value: 1 } } }, 'filter.as.arraylength: unknown member "opp"'],
    ['filter', { j: { jsonbKeyGt: { key: 'a', value: 1, path: 'b' } } }, 'filter.j.jsonbKeyGt: unknown member "path"'],
    [
      'filter',
      { j: { jsonbKeyEquals: { key: 'a', value: 1, op: 'ne' } } },
      'filter.j.jsonbKeyEquals: unknown member "op"',
    ],
    [
      'filter',
      { j: { jsonbKeyIn: { key: 'a', values: [1], not: true } } },
      'filter.j.jsonbKeyIn: unknown member "not"',
    ],
    ['filter', { j: { jsonbKeyLike: { key: 'a', pattern: 'b', i: 1 } } }, 'filter.j.jsonbKeyLike: unknown member "i"'],
    [
      'filter',
      { j: { jsonbTypeOf: { pth: 'a', type: 'number' } } },
      'filter.j.jsonbTypeOf: unknown member "pth": did you mean path?',
    ],
    [
      'filter',
      { j: { jsonbArrayLength: { operator: 'gt', value: 1 } } },
      'filter.j.jsonbArrayLength: unknown member "operator"',
    ],
    [
      'filter',
      { j: { jsonbDeepValue: { path: 'a', value: 1, operator: 'gt' } } },
      'filter.j.jsonbDeepValue: unknown member "operator"',
    ],
    [
      'filter',
      { span: { overlaps: { lower: 1, uper: 5 } } },
      'filter.span.overlaps: expected no members but lower, upper, lowerInclusive, upperInclusive, empty',
    ],
  ])('is refused: %s=%j', async (name, value, words) => {
    const { status, details: said } = await details({ [name]: JSON.stringify(value) })
    expect({ status, said }).toEqual({ status: 400, said: words })
  })

  it('is refused in the body of a report, with the name that it was meant to be', async () => {
    const { status, body } = await api.admin('POST', '/reports/sample', { fitler: {} })
    expect({ status, details: body.error.details }).toEqual({
      status: 400,
      details: 'unknown member "fitler": did you mean filter?',
    })
  })

  it('is refused in a range that is written', async () => {
    const { status, body } = await api.admin('POST', '/items/sample', { span: { lower: 1, uper: 5 } })
    expect(status).toBe(400)
    expect(JSON.stringify(body)).toContain('lower, upper')
  })
})
