import { describe, expect, it } from 'vitest'
import { collectionOf, type Description } from '../../console/src/app/definition.ts'
import { readBuilderSearch } from '../../console/src/pages/reports/question.ts'
import {
  bodyOf,
  chartOf,
  columnsOf,
  measureText,
  mostSeries,
  nameFor,
  pathsOf,
  renamed,
  reportOf,
  roundedText,
  withMeasures,
} from '../../console/src/pages/reports/report.ts'

const fields = { id: { type: 'UUID', primaryKey: true }, amount: { type: 'Decimal' }, count: { type: 'Integer' } }
const customer = { relType: 'BelongsTo', target: 'customer', foreignKey: 'customer_Id' }
const sale = collectionOf({ collectionName: 'sale', schema: { fields: { ...fields, customer } } })
const names = { id: { type: 'UUID', primaryKey: true }, name: { type: 'String' }, secret: { type: 'String' } }
const other = collectionOf({ collectionName: 'customer', schema: { fields: names } })
const sum = { function: 'sum', field: 'amount' } as const

describe('a report of the console', () => {
  it('is read from an address without what makes no sense, and counts rows where it asks nothing', () => {
    const search = readBuilderSearch({
      collection: 'sale',
      aggregate: { a: sum, b: { function: 'drop', field: 'x' }, c: 'x' },
      groupBy: ['state', 5],
      sort: ['-a'],
      limit: -1,
      form: 'pie',
      filter: [],
    })
    expect(search).toEqual({ collection: 'sale', aggregate: { a: sum }, sort: ['-a'] })
    expect(readBuilderSearch({ groupBy: 'state', sort: '-a' })).toEqual({ groupBy: ['state'], sort: ['-a'] })
    expect(bodyOf(reportOf({ collection: 'sale', asOf: 'x', live: true }, sale))).toEqual({
      aggregate: { count_2: { function: 'count', field: '*' } },
    })
    expect(bodyOf(reportOf({ groupBy: ['amount'], filter: {} }, sale))).toEqual({ groupBy: ['amount'] })
  })

  it('goes on to count rows when a first group is added', () => {
    const report = reportOf({ collection: 'sale' }, sale)
    const counted = { count_2: { function: 'count', field: '*' } }
    const next = { collection: 'sale', ...withMeasures(report, { groupBy: ['state'] }) }
    expect(bodyOf(reportOf(next, sale))).toEqual({ aggregate: counted, groupBy: ['state'] })
    expect(withMeasures(report, { limit: 5 })).toEqual({ limit: 5 })
    const grouped = reportOf({ groupBy: ['state'] }, sale)
    expect(withMeasures(grouped, { groupBy: ['amount'] })).toEqual({ aggregate: {}, groupBy: ['amount'] })
  })

  it('names measures as nothing else is called, and renames them wherever they are named', () => {
    expect(nameFor({ function: 'min', field: 'customer.name' }, sale, ['min_customer_name'])).toBe(
      'min_customer_name_2',
    )
    const report = reportOf(
      { aggregate: { a: sum }, sort: ['-a', 'amount'], having: { OR: [{ a: { gt: 1 } }, { a_b: { eq: 'a' } }] } },
      sale,
    )
    expect(renamed(report, 'a', 'z')).toEqual({
      aggregate: { z: sum },
      sort: ['-z', 'amount'],
      having: { OR: [{ z: { gt: 1 } }, { a_b: { eq: 'a' } }] },
    })
  })

  it('is drawn with a place for each first group and a series for each of the others', () => {
    const report = reportOf({ aggregate: { a: sum }, groupBy: ['date:yearmonth:at', 'state'] }, sale)
    const row = (month: string, state: string | null, a: unknown) => ({ 'date:yearmonth:at': month, state, a })
    const rows = [row('2026-01', 'x', 1), row('2026-01', null, '1.50'), row('2026-02', 'x', null)]
    expect(chartOf(report, rows)).toEqual({
      labels: ['2026-01', '2026-02'],
      series: [
        { name: 'x', values: [1, null] },
        { name: '—', values: [1.5, null] },
      ],
      more: 0,
    })
    const many = Array.from({ length: mostSeries + 2 }, (_, place) => row('2026-01', `state ${place}`, place))
    expect(chartOf(report, many)).toMatchObject({ labels: ['2026-01'], more: 2 })
    expect(chartOf(report, many).series).toHaveLength(mostSeries)
    expect(chartOf(report, [row('2026-01', 'x', 'text')]).series).toEqual([])
  })

  it('shows times in its zone, wherever one stands', () => {
    const aggregate = { last: { function: 'max', field: 'at' }, n: { function: 'count', field: 'at' } } as const
    const report = reportOf({ aggregate, groupBy: ['at', 'local', 'date:hour:at'], timezone: 'Europe/Zurich' }, sale)
    const kinds: Readonly<Record<string, 'datetime' | 'datetime without zone'>> = {
      ...{ at: 'datetime', local: 'datetime without zone', 'customer.at': 'datetime' },
    }
    const at = '2026-07-10T22:30:05.120Z'
    const row = { at, local: '2026-07-10T22:30:05.120', 'date:hour:at': 0, customer: { at }, last: at, n: 5 }
    const read = (of: typeof report, from: Readonly<Record<string, unknown>> = row) =>
      columnsOf(of, (path) => kinds[path]).map(({ text }) => text(from))
    const there = '2026-07-11 00:30:05'
    expect(read({ ...report, fields: ['customer.at'] })).toEqual([there, '2026-07-10 22:30:05', '0', there, there, '5'])
    const { timezone: _zone, ...inUtc } = report
    expect(read(inUtc)).toEqual(['2026-07-10 22:30:05', '2026-07-10 22:30:05', '0', '2026-07-10 22:30:05', '5'])
    expect(read({ ...report, timezone: 'Mars/Olympus' })[0]).toBe(at)
    expect(read(report, { at: 'infinity', local: null, n: 0 }).slice(0, 2)).toEqual(['infinity', '—'])
    expect(chartOf({ ...report, groupBy: ['at'] }, [row], (path) => kinds[path]).labels).toEqual([there])
    expect(chartOf({ ...report, groupBy: ['n', 'at'] }, [row], (path) => kinds[path]).series[0]?.name).toBe(there)
  })

  it('is drawn with every group, also where two of them read the same', () => {
    const byState = reportOf({ aggregate: { a: sum }, groupBy: ['state'] }, sale)
    const alike = [
      { state: '—', a: 5 },
      { state: null, a: 7 },
      { state: null, a: 9 },
    ]
    expect(chartOf(byState, alike)).toEqual({
      labels: ['—', '—', '—'],
      series: [{ name: 'a', values: [5, 7, 9] }],
      more: 0,
    })
    const kinds = [
      { state: 'x', kind: '—', a: 1 },
      { state: 'x', kind: null, a: 2 },
      { state: '1', kind: null, a: 3 },
      { state: 1, kind: null, a: 4 },
    ]
    expect(chartOf({ ...byState, groupBy: ['state', 'kind'] }, kinds)).toEqual({
      labels: ['x', '1', '1'],
      series: [
        { name: '—', values: [1, null, null] },
        { name: '—', values: [2, 3, 4] },
      ],
      more: 0,
    })
  })

  it('shows the digits that a measure has, and a drawing six of them', () => {
    expect([0.00001, 0.1, 1 / 3, 123456.123456, 1e-30].map(measureText)).toEqual([
      '0.00001',
      '0.1',
      '0.3333333333333333',
      '123,456.123456',
      '0.000000000000000000000000000001',
    ])
    expect(['12345678901234567890.5', null].map(measureText)).toEqual(['12345678901234567890.5', '—'])
    expect([0.00001, 1 / 3, 1234567.891].map(roundedText)).toEqual(['0.00001', '0.333333', '1,234,570'])
  })

  it('offers what the server describes to the caller', () => {
    const catalog = new Map([sale, other].map((one) => [one.name, one]))
    const all = ['id', 'amount', 'count', 'customer.id', 'customer.name', 'customer.secret']
    expect(pathsOf(sale, catalog, null)).toEqual(all)
    const shape = (...list: string[]) => ({ properties: Object.fromEntries(list.map((name) => [name, {}])) })
    const row = { properties: { ...shape('id', 'amount').properties, customer: { anyOf: [shape('id', 'name')] } } }
    const described = (sales: object): Description => ({ paths: {}, components: { schemas: { sale: sales } } })
    expect(pathsOf(sale, catalog, described(row))).toEqual(['id', 'amount', 'customer.id', 'customer.name'])
    expect(pathsOf(sale, catalog, described(shape('id')))).toEqual(['id'])
  })
})
