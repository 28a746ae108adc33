import fc from 'fast-check'
import { beforeAll, expect, it } from 'vitest'
import { readNotation, textInNotation } from '../../src/features/data/items/file-notation.ts'
import { type Api, startApi } from '../support/api.ts'
import { administrator } from '../support/prepare.ts'
import { storeFile } from '../support/stored-files.ts'
import { upload } from '../support/upload.ts'

/** Files that write numbers, dates and times as people do (docs/import-export.md). */

let api: Api
let admin: string

beforeAll(async () => {
  api = await startApi()
  admin = (await api.anonymous('POST', '/auth/login', administrator)).body.token
  const fields = {
    name: { type: 'String', unique: true },
    amount: { type: 'Decimal', values: { precision: 12, scale: 2 } },
    stock: { type: 'Integer' },
    total: { type: 'BigInt' },
    weight: { type: 'Double' },
    day: { type: 'Date' },
    seen: { type: 'DateTime' },
    seen_all: { type: 'Array_DateTime' },
    open: { type: 'Range_DateTime' },
    part_of: { relType: 'BelongsTo', target: 'bill', foreignKey: 'whole_id' },
    parts: { relType: 'HasMany', target: 'bill', foreignKey: 'whole_id' },
  }
  const { text } = await api.admin('POST', '/schemas', { collectionName: 'bill', schema: { fields } })
  expect(text).toMatch(/success/)
})

type Choices = Readonly<Record<string, string>>
const send = (format: 'csv' | 'json', content: string | Buffer, choices: Choices = {}, form: Choices = {}) =>
  upload(api, admin, `/items/bill/import-${format}?${new URLSearchParams(choices)}`, [
    ...Object.entries(form).map(([name, value]) => ({ name, value })),
    { name: `${format}File`, filename: `rows.${format}`, content },
  ])
const stored = async (name: string) =>
  (await api.admin('GET', `/items/bill?filter={"name":"${name}"}&fields=*,parts.*`)).body.data[0]

it('reads what spreadsheets save in Europe', async () => {
  const before = await api.position()
  const file =
    '\ufeffname;amount;stock;total;weight;day;seen\r\n' +
    'excel;-1.234,50;1.000;12 345 678 901;0,25;29.02.2024;1.7.2026 9:00\r\n' +
    'plain;"7,5";5;6;1,5E+3;01.03.2026;31.01.2026 09:00:01Z\r\n'
  const choices = { timezone: 'Europe/Zurich', decimal: ',', dateFormat: 'DD.MM.YYYY' }
  expect(await send('csv', file, choices)).toMatchObject({ status: 200, body: { results: { imported: 2 } } })
  expect(await stored('excel')).toMatchObject({
    ...{ amount: '-1234.50', stock: 1000, total: 12345678901, weight: 0.25 },
    ...{ day: '2024-02-29', seen: '2026-07-01T07:00:00.000Z' },
  })
  expect(await stored('plain')).toMatchObject({
    ...{ amount: '7.50', stock: 5, weight: 1500, day: '2026-03-01', seen: '2026-01-31T09:00:01.000Z' },
  })
  const events = await api.log(before)
  expect(events.map(({ action, changes }) => [action, changes.after.name])).toEqual([
    ['create', 'excel'],
    ['create', 'plain'],
  ])
  expect(await api.jobs('mail')).toEqual([])
})

it('reads times in UTC unless a zone is named, in the query or the form', async () => {
  expect(await send('csv', 'name,seen\nutc,2026-07-01T09:00')).toMatchObject({ status: 200 })
  expect(await send('csv', 'name,seen\nform,2026-07-01T09:00', {}, { timezone: 'Asia/Kolkata' })).toMatchObject({
    status: 200,
  })
  expect(await stored('utc')).toMatchObject({ seen: '2026-07-01T09:00:00.000Z' })
  expect(await stored('form')).toMatchObject({ seen: '2026-07-01T03:30:00.000Z' })
})

it('reads lists, ranges and nested rows the same way, and numbers of JSON as they are', async () => {
  const rows = [
    {
      name: 'nested',
      amount: '1.234,5',
      total: 9007199254740000,
      seen: '2026-07-01 09:00',
      seen_all: ['2026-07-01 09:00', '2026-01-01 09:00', '2026-01-01T09:00Z', null],
      open: { lower: '2026-07-01', upper: 'infinity' },
      parts: [{ name: 'part', seen: '2026-07-01 09:00', amount: '0,5', parts: [{ name: 'deep', stock: '1 000' }] }],
    },
  ]
  const text = JSON.stringify(rows).replace('9007199254740000', '9007199254740993')
  const answer = await send('json', text, { timezone: 'America/New_York', decimal: ',' })
  expect(answer).toMatchObject({ status: 200 })
  expect(await stored('nested')).toMatchObject({
    ...{ amount: '1234.50', total: '9007199254740993', seen: '2026-07-01T13:00:00.000Z' },
    seen_all: ['2026-07-01T13:00:00.000Z', '2026-01-01T14:00:00.000Z', '2026-01-01T09:00:00.000Z', null],
    open: { lower: '2026-07-01T04:00:00.000Z' },
    parts: [{ name: 'part', seen: '2026-07-01T13:00:00.000Z', amount: '0.50' }],
  })
  expect(await stored('deep')).toMatchObject({ stock: 1000 })
  const cell = '"[{""name"":""cell"",""amount"":""2,5""}]"'
  expect(await send('csv', `name;parts\nof csv;${cell}`, { decimal: ',' })).toMatchObject({ status: 200 })
  expect(await stored('cell')).toMatchObject({ amount: '2.50' })
})

it('names every row and field that does not fit, and writes nothing', async () => {
  const before = await api.position()
  const choices = { decimal: ',', dateFormat: 'DD/MM/YYYY' }
  const file = 'name;amount;stock;day\nok;1,5;1;31/01/2026\nwrong;1.5;1,234.5;01/31/2026\nhalf;1;5,5;\n'
  const { status, body } = await send('csv', file, choices)
  expect(status).toBe(400)
  expect(body.error.details.results.errors).toMatchObject([
    {
      row: 2,
      line: 3,
      fields: [
        { field: 'amount', message: 'expected a number such as 1234,5 or 1.234,5' },
        { field: 'stock', message: 'expected a number such as 1234,5 or 1.234,5' },
        { field: 'day', message: 'expected a date such as 31/01/2026' },
      ],
    },
    { row: 3, fields: [{ field: 'stock', message: 'expected an integer' }] },
  ])
  const nested = [{ name: 'n', parts: [{ name: 'p', seen: '2026-01-31' }] }]
  const json = await send('json', JSON.stringify(nested), { ...choices, dryRun: 'true' })
  expect(json.body.results.errors).toMatchObject([
    { item: 1, fields: [{ field: 'parts.seen', message: 'expected a date and a time such as 31/01/2026 09:00' }] },
  ])
  expect(await api.log(before)).toEqual([])
  expect(await api.jobs('mail')).toEqual([])
})

it.each([
  [{ timezone: 'Mars/Olympus' }, 'timezone: expected a name such as Europe/Vienna'],
  [{ timezone: '+02:00' }, 'timezone: expected a name such as Europe/Vienna'],
  [{ decimal: ';' }, 'decimal: ";" is neither . nor ,'],
  [{ dateFormat: 'D/M/Y' }, /^dateFormat: "D\/M\/Y" is none of YYYY-MM-DD, /],
])('refuses %j', async (choices, details) => {
  const expected = typeof details === 'string' ? details : expect.stringMatching(details)
  for (const sent of [
    await send('csv', 'name\nx', choices as Choices),
    await send('csv', 'name\nx', {}, choices as Choices),
  ])
    expect(sent).toMatchObject({ status: 400, body: { error: { details: expected } } })
  expect(await stored('x')).toBeUndefined()
})

it('imports a stored file the same way', async () => {
  const content = 'name;amount;seen\nstored;1,5;01.07.2026 09:00'
  const { id } = await storeFile(api, { content, type: 'text/csv', name: 'rows.csv' })
  const choices = { timezone: 'Europe/Zurich', decimal: ',', dateFormat: 'DD.MM.YYYY' }
  const path = `/files/${id}/import`
  expect(await api.admin('POST', path, { collection: 'bill', ...choices })).toMatchObject({ status: 200 })
  expect(await stored('stored')).toMatchObject({ amount: '1.50', seen: '2026-07-01T07:00:00.000Z' })
  expect(await api.admin('POST', path, { collection: 'bill', decimal: 'x' })).toMatchObject({ status: 400 })
})

it('reads times of a zone as PostgreSQL does', async () => {
  const zones = ['Europe/Zurich', 'America/New_York', 'Australia/Lord_Howe', 'America/Sao_Paulo', 'Asia/Kathmandu']
  const time = fc.date({ min: new Date('1971-01-01'), max: new Date('2036-12-31'), noInvalidDate: true })
  const sample = fc.sample(time, 500).map((one) => one.toISOString().slice(0, 16))
  const changes = ['2026-03-29', '2026-10-25', '2026-03-08', '2026-11-01', '2026-04-05', '2026-10-04', '2018-11-04']
  const nights = changes.flatMap((day) =>
    Array.from({ length: 16 }, (_, at) => `${day}T0${at >> 2}:${(at & 3) * 15 || '00'}`),
  )
  const times = [...sample, ...nights]
  const rows = await api.sql(
    `select zone, shown, to_char((shown::timestamp at time zone zone) at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as utc
     from unnest($1::text[]) zone, unnest($2::text[]) shown`,
    [zones, times],
  )
  expect(rows).toHaveLength(zones.length * times.length)
  const notations = new Map(zones.map((zone) => [zone, readNotation({ timezone: zone })]))
  const differing = rows.filter(
    ({ zone, shown, utc }) => textInNotation(shown, 'datetime', notations.get(zone)!) !== utc,
  )
  expect(differing).toEqual([])
})
