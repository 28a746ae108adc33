import { beforeAll, describe, expect, it } from 'vitest'
import { formOf } from '../../scripts/reference/pages.ts'
import { fieldTypes } from '../../src/catalog/fields.ts'
import { type Api, startApi } from '../support/api.ts'
import { pull } from '../support/changes.ts'
import { administrator } from '../support/prepare.ts'
import { upload } from '../support/upload.ts'

/** A range that was read is the same range when it is written, by whichever way. */

let api: Api
let token: string

const types = {
  whole: 'Range_Integer',
  moments: 'Range_DateTime',
  local: 'Range_DateTime_NO_TZ',
  times: 'Range_Time',
  localTimes: 'Range_Time_NO_TZ',
  doubles: 'Range_Double',
  decimals: 'Range_Decimal',
  days: 'Range_Date',
}
type Ranges = Partial<Record<keyof typeof types, unknown>>

beforeAll(async () => {
  api = await startApi()
  token = (await api.anonymous('POST', '/auth/login', administrator)).body.token
  const schema = { fields: Object.fromEntries(Object.entries(types).map(([name, type]) => [name, { type }])) }
  expect((await api.admin('POST', '/schemas', { collectionName: 'span', schema })).status).toBe(201)
})

it('each takes the forms that the reference shows of it', async () => {
  for (const [name, type] of Object.entries(types)) {
    const { kind, element } = fieldTypes[type]!
    const shown = [...formOf(kind, element).matchAll(/`([^`]+)`/g)].map(([, json]) => JSON.parse(json!))
    expect(shown.length).toBe(3)
    for (const value of shown) await created({ [name]: value })
  }
})

const created = async (ranges: Ranges): Promise<string> => {
  const { status, body, text } = await api.admin('POST', '/items/span', ranges)
  expect([status, text]).toEqual([201, expect.anything()])
  return body.data.id
}
const names = Object.keys(types).join(',')
const read = async (id: string): Promise<Ranges> =>
  (await api.admin('GET', `/items/span/${id}?fields=${names}`)).body.data
const stored = async (id: string): Promise<Ranges> => (await api.sql('select * from span where id = $1', [id]))[0]
const found = async (filter: object): Promise<string[]> => {
  const { status, body, text } = await api.admin(
    'GET',
    `/items/span?fields=id&filter=${encodeURIComponent(JSON.stringify(filter))}`,
  )
  expect([status, text]).toEqual([200, expect.anything()])
  return body.data.map(({ id }: { id: string }) => id)
}

/** The same bounds, of which only the lower one is in it, make a range without content. */
const nothing = (bound: unknown) => ({ lower: bound, upper: bound })
const empties: Ranges = {
  whole: nothing(5),
  moments: nothing('2024-05-01T10:00:00Z'),
  local: nothing('2024-05-01T10:00:00'),
  times: nothing('08:00:00+00'),
  localTimes: nothing('08:00:00'),
  doubles: nothing(0.5),
  decimals: nothing('0.5'),
  days: nothing('2024-05-01'),
}
const everything = { lower: null, upper: null, lowerInclusive: false, upperInclusive: false }
const to = (lower: unknown, upper: unknown, upperInclusive = false) => ({
  lower,
  upper,
  lowerInclusive: lower !== null,
  upperInclusive,
})

/** As a client gets the last ones: bounds that more than four digits write, and such as only SQL stores. */
const atTheEnds: [name: string, sent: Ranges, answered: Ranges][] = [
  [
    'days to the last of year 9999',
    { days: { ...to('2024-01-01', '9999-12-31', true) } },
    { days: to('2024-01-01', '10000-01-01') },
  ],
  [
    'moments that another zone has in year 10000',
    { moments: to('9999-12-31T23:00:00Z', '9999-12-31T23:59:59-05:00') },
    { moments: to('9999-12-31T23:00:00.000Z', '10000-01-01T04:59:59.000Z') },
  ],
  [
    'moments that another zone has before year 1',
    { moments: to('0001-01-01T00:00:00+15:00', '0001-01-01T00:00:00Z') },
    { moments: to('0001-12-31T09:00:00.000Z BC', '0001-01-01T00:00:00.000Z') },
  ],
  [
    'local moments that are rounded into year 10000',
    { local: to('9999-12-31T23:59:59', '9999-12-31T23:59:59.9999999') },
    { local: to('9999-12-31T23:59:59.000Z', '10000-01-01T00:00:00.000Z') },
  ],
  [
    'times to midnight',
    { localTimes: to('22:00:00', '24:00'), times: to('22:00:00Z', '24:00:00Z') },
    { localTimes: to('22:00:00', '24:00:00'), times: to('22:00:00+00', '24:00:00+00') },
  ],
  [
    'the last day that PostgreSQL has',
    { days: to('5874897-12-30', '5874897-12-31') },
    { days: to('5874897-12-30', '5874897-12-31') },
  ],
  ['days without end', { days: to('2024-01-01', 'infinity') }, { days: to('2024-01-01', 'infinity') }],
  [
    'days before the year 1',
    { days: to('0044-03-15 BC', '0043-03-15 BC') },
    { days: to('0044-03-15 BC', '0043-03-15 BC') },
  ],
  [
    'moments without beginning and end',
    { moments: to('-infinity', 'infinity'), local: to('-infinity', 'infinity') },
    { moments: to('-infinity', 'infinity'), local: to('-infinity', 'infinity') },
  ],
  [
    'numbers without end',
    { decimals: to('1', 'Infinity'), doubles: to('-Infinity', 1) },
    { decimals: to('1', 'Infinity'), doubles: to('-Infinity', 1) },
  ],
]

const cases: [name: string, sent: Ranges, answered: Ranges][] = [
  ['empty ranges', empties, Object.fromEntries(Object.keys(types).map((name) => [name, { empty: true }]))],
  [
    'ranges of everything',
    Object.fromEntries(Object.keys(types).map((name) => [name, everything])),
    Object.fromEntries(Object.keys(types).map((name) => [name, everything])),
  ],
  ...atTheEnds,
]

describe.each(cases)('%s', (_name, sent, answered) => {
  it('are answered in a form of their own, and that is no change of them', async () => {
    const id = await created(sent)
    const seen = await read(id)
    expect(seen).toMatchObject(answered)
    const before = await stored(id)
    const position = await api.position()
    expect((await api.admin('PATCH', `/items/span/${id}`, seen)).status).toBe(200)
    expect((await api.admin('PATCH', '/items/span/bulk', [{ id, ...seen }])).status).toBeLessThan(300)
    expect(await api.log(position)).toEqual([])
    expect(await stored(id)).toEqual(before)
  })

  it('are found by what was read', async () => {
    const id = await created(sent)
    for (const [field, value] of Object.entries(answered)) {
      expect(await found({ [field]: { eq: value }, id })).toEqual([id])
      expect(await found({ [field]: { in: [value] }, id })).toEqual([id])
      expect(await found({ [field]: { ne: value }, id })).toEqual([])
      expect(await found({ [field]: { arraycontains: value }, id })).toEqual([id])
      expect(await found({ [field]: { arraycontained: value }, id })).toEqual([id])
    }
  })

  it('come back by restore and undo, and history and changes tell them', async () => {
    const id = await created(sent)
    const seen = await read(id)
    const before = await stored(id)
    const since = (await pull(api.admin, {})).body.cursor
    const others = Object.fromEntries(Object.keys(sent).map((field) => [field, null]))
    const change = await api.admin('PATCH', `/items/span/${id}`, others)
    const history = (await api.admin('GET', `/items/span/${id}/history`)).body.data
    for (const [field, value] of Object.entries(answered))
      expect(history[0].changes[field]).toEqual({ before: value, after: null })

    const restored = await api.admin('POST', `/items/span/${id}/restore`, { before: history[0].id })
    expect([restored.status, restored.text]).toEqual([200, expect.anything()])
    expect(await stored(id)).toEqual({ ...before, updatedAt: expect.anything() })

    const { body } = await pull(api.admin, { since, collections: 'span' })
    expect(body.data.map(({ data }: { data: Ranges }) => data)).toMatchObject([others, answered])

    expect((await api.admin('PATCH', `/items/span/${id}`, others)).status).toBe(200)
    const again = await api.admin('GET', `/items/span/${id}/history?limit=1`)
    const requestId = again.body.data[0].requestId
    expect(change.status).toBe(200)
    for (const dryRun of [true, false])
      expect((await api.admin('POST', '/log/undo', { requestId, dryRun })).body.data).toMatchObject({
        conflicts: [],
        rows: [{ collection: 'span', id, action: 'update' }],
      })
    expect(await stored(id)).toEqual({ ...before, updatedAt: expect.anything() })
    expect(await read(id)).toEqual(seen)
  })

  it('are the same after an export and an import', async () => {
    const id = await created(sent)
    const before = await stored(id)
    for (const format of ['csv', 'json']) {
      const filter = encodeURIComponent(JSON.stringify({ id }))
      const { text } = await api.admin('GET', `/items/span/export?format=${format}&fields=id,${names}&filter=${filter}`)
      const part = { name: `${format}File`, filename: `rows.${format}`, content: text }
      expect((await api.admin('DELETE', `/items/span/${id}`)).status).toBeLessThan(300)
      const imported = await upload(api, token, `/items/span/import-${format}`, [part])
      expect([imported.status, imported.text]).toEqual([200, expect.anything()])
      expect(await stored(id)).toEqual({ ...before, createdAt: expect.anything(), updatedAt: expect.anything() })
    }
  })
})

describe('an empty range', () => {
  it('is what eq finds, and one of two that the operator empty finds', async () => {
    const empty = await created({ whole: { empty: true } })
    const all = await created({ whole: everything })
    const none = await created({})
    const id = { in: [empty, all, none] }
    expect(await found({ id, whole: { eq: { empty: true } } })).toEqual([empty])
    expect((await found({ id, whole: { empty: true } })).sort()).toEqual([empty, none].sort())
    expect(await found({ id, whole: { overlaps: { empty: true } } })).toEqual([])
    expect(await read(empty)).toMatchObject({ whole: { empty: true } })
    expect(await read(all)).toMatchObject({ whole: everything })
  })

  it.each([
    [{ empty: true, lower: 1 }, 'expected no bounds where empty is true'],
    [{ empty: 'perhaps' }, 'empty: expected true or false'],
  ])('is refused as %j', async (whole, message) => {
    const position = await api.position()
    const { status, body } = await api.admin('POST', '/items/span', { whole })
    expect([status, body.error.details.errors]).toEqual([400, [expect.objectContaining({ field: 'whole', message })]])
    expect(await api.log(position)).toEqual([])
  })

  it('may be a default', async () => {
    const schema = { fields: { whole: { type: 'Range_Integer', defaultValue: { empty: true } } } }
    expect((await api.admin('POST', '/schemas', { collectionName: 'hollow', schema })).status).toBe(201)
    const { body } = await api.admin('POST', '/items/hollow', {})
    expect((await api.admin('GET', `/items/hollow/${body.data.id}`)).body.data.whole).toEqual({ empty: true })
  })
})

it.each([
  ['days', to('10000-01-02', '10000-01-01'), 'Lower bound cannot exceed upper bound'],
  ['days', to('2024-01-01', '2024-01-01 BC'), 'Lower bound cannot exceed upper bound'],
  ['days', to('infinity', '9999-12-31'), 'Lower bound cannot exceed upper bound'],
  ['moments', to('10000-01-01T00:00:00Z', '9999-12-31T23:59:59Z'), 'Lower bound cannot exceed upper bound'],
  ['days', to('2024-01-01', '5874898-01-01'), 'expected an ISO date'],
  ['moments', to('2024-01-01', '294277-01-01'), 'expected an ISO date'],
  ['whole', to('infinity', null), 'expected an integer'],
])('%s %j is refused', async (field, value, message) => {
  const { status, body } = await api.admin('POST', '/items/span', { [field]: value })
  expect([status, body.error.details.errors]).toEqual([400, [expect.objectContaining({ field, message })]])
})
