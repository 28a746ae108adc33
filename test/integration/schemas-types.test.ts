import { beforeAll, describe, expect, it } from 'vitest'
import { runSetup } from '../../src/setup/setup.ts'
import { type Api, startApi } from '../support/api.ts'
import { silent } from '../support/log.ts'
import { testConfig } from '../support/prepare.ts'

let api: Api
beforeAll(async () => {
  api = await startApi()
})

const id = '0b1f6a5e-3c1d-4b5e-8d8f-2f6d0c9a7b11'
const range = (lower: unknown, upper: unknown, upperInclusive = false) => ({
  lower,
  upper,
  lowerInclusive: true,
  upperInclusive,
})

/** Type, what a client sends, and what it reads back where that differs; the last is its column. */
const types: [type: string, sent: unknown, column: string, read?: unknown, more?: object][] = [
  ['String', 'Grüße, 世界', 'text'],
  ['String', 'short', 'character varying(10)', 'short', { values: { stringLength: 10 } }],
  ['String', 'short', 'character varying(12)', 'short', { values: { length: 12 } }],
  ['Text', 'a\nb', 'text'],
  ['TEXT', 'a', 'text'],
  ['HTML', '<b>a</b>', 'text'],
  ['CiText', 'MiXed', 'citext'],
  ['Integer', -5, 'integer'],
  ['BigInt', 9007199254740991, 'bigint'],
  ['BigInt', '9223372036854775807', 'bigint'],
  ['Decimal', '10.50', 'numeric'],
  ['Decimal', 7.5, 'numeric(10,2)', '7.50', { values: { precision: 10, scale: 2 } }],
  ['Real', 1.5, 'real'],
  ['Float', 0.1, 'real'],
  ['Double', 0.1, 'double precision'],
  ['DOUBLE', 1e300, 'double precision'],
  ['Boolean', false, 'boolean'],
  ['DateTime', '2024-05-01T12:00:00+02:00', 'timestamp with time zone', '2024-05-01T10:00:00.000Z'],
  ['DateTime_NO_TZ', '2024-05-01T12:00:00', 'timestamp without time zone', '2024-05-01T12:00:00.000Z'],
  ['Date', '2024-02-29', 'date'],
  ['Time', '08:30:00+02', 'time with time zone', '08:30:00+02'],
  ['Time_NO_TZ', '08:30:00', 'time without time zone'],
  ['JSON', { a: [1, 'x', null], b: { c: true } }, 'jsonb'],
  ['JSONB', [1, 2], 'jsonb'],
  ['UUID', id, 'uuid'],
  ['SUID', 'chosen', 'text'],
  ['TOKEN', 'chosen999', 'character varying(9)'],
  ['ENUM', 'b', 'text', 'b', { values: ['a', 'b'] }],
  ['ENUM', 'b', 'text', 'b', { values: { values: ['a', 'b'] } }],
  ['Array_Integer', [1, 2, 3], 'integer[]'],
  ['Array', [1, 2], 'integer[]', [1, 2], { values: { type: 'Integer' } }],
  ['Array_String', ['a', 'with "quotes"', '', 'null', '{}'], 'text[]'],
  ['Array_Double', [0.1, 2], 'double precision[]'],
  ['Array_Decimal', ['1.10', '2'], 'numeric[]'],
  ['Array_DateTime', ['2024-05-01T10:00:00Z'], 'timestamp with time zone[]', ['2024-05-01T10:00:00.000Z']],
  ['Array_DateTime_NO_TZ', ['2024-05-01T10:00:00'], 'timestamp without time zone[]', ['2024-05-01T10:00:00.000Z']],
  ['Array_Date', ['2024-05-01', '2024-05-02'], 'date[]'],
  ['Array_Time', ['08:30:00+00'], 'time with time zone[]'],
  ['Array_Time_NO_TZ', ['08:30:00'], 'time without time zone[]'],
  ['Array_UUID', [id], 'uuid[]'],
  ['Array_Boolean', [true, false], 'boolean[]'],
  ['Array_Boolean', [], 'boolean[]'],
  ['Range_Integer', range(1, 5, true), 'int4range', range(1, 6)],
  [
    'Range_DateTime',
    range('2024-01-01T00:00:00Z', '2024-02-01T00:00:00Z'),
    'tstzrange',
    range('2024-01-01T00:00:00.000Z', '2024-02-01T00:00:00.000Z'),
  ],
  [
    'Range_DateTime_NO_TZ',
    range('2024-01-01T00:00:00', '2024-02-01T00:00:00'),
    'tsrange',
    range('2024-01-01T00:00:00.000Z', '2024-02-01T00:00:00.000Z'),
  ],
  ['Range_Time', range('08:00:00+00', '10:00:00+00', true), 'svc_timetzrange'],
  ['Range_Time_NO_TZ', range('08:00:00', '10:00:00'), 'svc_timerange'],
  ['Range_Double', range(0.1, 1.5), 'numrange'],
  ['Range_Decimal', range('0.10', '1.50', true), 'numrange'],
  ['Range_Date', range('2024-01-01', '2024-01-31', true), 'daterange', range('2024-01-01', '2024-02-01')],
  ['Range_Integer', [1, 6], 'int4range', range(1, 6)],
  ['Range_Date', ['2024-01-01', null], 'daterange', range('2024-01-01', null)],
  ['Range_Integer', { lower: 3 }, 'int4range', { lower: 3, upper: null, lowerInclusive: true, upperInclusive: false }],
]

describe('types', () => {
  const fields = Object.fromEntries(types.map(([type, , , , more], i) => [`f${i}`, { type, ...more }]))
  const sent = Object.fromEntries(types.map(([, value], i) => [`f${i}`, value]))

  beforeAll(async () => {
    const answer = await api.admin('POST', '/schemas', { collectionName: 'every', schema: { fields } })
    expect(answer.text).toContain('Schema created successfully')
  })

  it.each(
    types.map(
      ([type, value, column, read = value], i) => [`${type} ${JSON.stringify(value)}`, i, column, read] as const,
    ),
  )('%s', async (_what, i, column, read) => {
    const name = `f${i}`
    const { body, status } = await api.admin('POST', '/items/every', { [name]: sent[name] })
    expect(status).toBe(201)
    const item = await api.admin('GET', `/items/every/${body.data.id}`)
    expect(item.body.data[name]).toEqual(read)
    const [row] = await api.sql(
      `select format_type(atttypid, atttypmod) as type from pg_attribute where attrelid = 'every'::regclass and attname = $1`,
      [name],
    )
    expect(row.type).toBe(column)
  })

  it('keep every character in lists of rows', async () => {
    const nameOf = (type: string) => `f${types.findIndex(([name]) => name === type)}`
    const [text, json, list] = [nameOf('String'), nameOf('JSON'), nameOf('Array_String')]
    const texts = ['', 'null', 'NULL', '{a,b}', '[1]', 'a "b" \\c', 'tab\tline\nend\r\u0001', 'é 世 😀\u2028', ' , ']
    const payloads = texts.map((value) => ({
      [text]: value,
      [json]: { [value]: [value] },
      [list]: [value, null, value],
    }))
    const empty = { [text]: null, [json]: null, [list]: null }
    const made = await api.admin('POST', '/items/every/bulk', [...payloads, empty])
    expect(made.status).toBe(201)
    const rows = await api.sql(
      `select ${text}, ${json}, ${list} from unnest($1::text[]) with ordinality u(id, n) join every e on e.id::text = u.id order by n`,
      [made.body.data],
    )
    expect(rows).toEqual([...payloads, empty])
  })

  it('all of them in one row, in many rows, changed, and in the log', async () => {
    const { body } = await api.admin('POST', '/items/every/bulk', [sent, sent, {}])
    expect(body.data).toHaveLength(3)
    const before = await api.position()
    expect((await api.admin('PATCH', `/items/every/${body.data[2]}`, sent)).status).toBe(200)
    const rows = await Promise.all(
      body.data.map(async (key: string) => (await api.admin('GET', `/items/every/${key}`)).body.data),
    )
    const values = (row: object) => Object.entries(row).filter(([name]) => name.startsWith('f'))
    expect(values(rows[0])).toEqual(types.map(([, value, , read = value], i) => [`f${i}`, read]))
    expect(values(rows[1])).toEqual(values(rows[0]))
    expect(values(rows[2])).toEqual(values(rows[0]))
    const [event] = await api.log(before)
    expect(event).toMatchObject({ entity: 'every', action: 'update' })
    const nulls = Object.entries(event!.changes.before).filter(([name]) => name.startsWith('f'))
    expect(nulls).toHaveLength(types.length)
    const turnedBack = await api.sql(
      `select count(*)::int as events, bool_and(to_jsonb(image) = to_jsonb(e)) as same
       from "svc_AuditLog" l join every e on e.id::text = l."entityId",
            jsonb_populate_record(null::every, l.changes->'after') image
       where l.entity = 'every' and l."entityId" = any($1) and l.position > $2`,
      [body.data, String(before)],
    )
    expect(turnedBack).toEqual([{ events: 1, same: true }])
  })

  it.each([
    ['Integer', 'x', 'expected an integer'],
    ['Array_Integer', ['x'], 'expected an integer'],
    ['Array_Integer', 5, 'expected an array'],
    ['Range_Integer', range(5, 1), 'Lower bound cannot exceed upper bound'],
    ['Range_Date', range('2024-02-01', '2024-01-01'), 'Lower bound cannot exceed upper bound'],
    ['Range_DateTime', range('2024-01-01T00:00:00+02', '2023-12-31T21:00:00'), 'Lower bound cannot exceed upper bound'],
    ['Range_Time_NO_TZ', range('10:00', '09:00'), 'Lower bound cannot exceed upper bound'],
    ['Date', '2024-02-30', 'expected an ISO date'],
    ['Time', '25:00', 'expected a time such as 13:45:00'],
    ['UUID', 'no', 'expected a UUID'],
    ['TOKEN', 'longer than nine', 'must be at most 9 characters long'],
  ])('%s refuses %j', async (type, value, message) => {
    const name = `f${types.findIndex(([known]) => known === type)}`
    const answer = await api.admin('POST', '/items/every', { [name]: value })
    expect(answer.status).toBe(400)
    expect(answer.body.error.details.errors).toEqual([expect.objectContaining({ field: name, message })])
  })
})

describe('CiText', () => {
  it('compares and is unique whatever the case, and a change of case is a change', async () => {
    await api.admin('POST', '/schemas', {
      collectionName: 'handle',
      schema: { fields: { name: { type: 'CiText', unique: true } } },
    })
    const { body } = await api.admin('POST', '/items/handle', { name: 'Ann' })
    expect((await api.admin('POST', '/items/handle', { name: 'ANN' })).status).toBe(409)
    expect((await api.admin('GET', '/items/handle?filter={"name":"aNN"}')).body.totalCount).toBe(1)
    const before = await api.position()
    await api.admin('PATCH', `/items/handle/${body.data.id}`, { name: 'ANN' })
    const [event] = await api.log(before)
    expect(event!.changes.before.name).toBe('Ann')
    expect(event!.changes.after.name).toBe('ANN')
  })
})

describe('defaults', () => {
  const fields = {
    uuid: { type: 'UUID', defaultValue: { type: 'UUIDV4' } },
    uuidText: { type: 'String', defaultValue: { type: 'UUIDV4' } },
    suid: { type: 'SUID' },
    suidNamed: { type: 'String', defaultValue: { type: 'SUID' } },
    token: { type: 'TOKEN' },
    noToken: { type: 'TOKEN', defaultValue: null },
    now: { type: 'DateTime', defaultValue: { type: 'NOW' } },
    today: { type: 'Date', defaultValue: { type: 'NOW' } },
    nowLocal: { type: 'DateTime_NO_TZ', defaultValue: { type: 'NOW' } },
    nowTime: { type: 'Time', defaultValue: { type: 'NOW' } },
    nowLocalTime: { type: 'Time_NO_TZ', defaultValue: { type: 'NOW' } },
    number: { type: 'BigInt', defaultValue: { type: 'AUTOINCREMENT' }, allowNull: false },
    sql: { type: 'Integer', defaultValue: { type: 'SQL', value: `length('it''s (a) test') + (2 * 3)` } },
    user: { type: 'UUID', defaultValue: { type: 'CURRENT_USER' } },
    text: { type: 'String', defaultValue: `it's a \\ "test" for $1` },
    wrapped: { type: 'String', defaultValue: { value: 'x' } },
    integer: { type: 'Integer', defaultValue: 0 },
    big: { type: 'BigInt', defaultValue: '9223372036854775807' },
    decimal: { type: 'Decimal', values: { precision: 4, scale: 2 }, defaultValue: 12.5 },
    flag: { type: 'Boolean', defaultValue: false },
    json: { type: 'JSON', defaultValue: { type: 'line', points: [1, "it's"] } },
    list: { type: 'JSON', defaultValue: [] },
    tags: { type: 'Array_String', defaultValue: ['a', `b'c`] },
    none: { type: 'Array_Integer', defaultValue: [] },
    period: { type: 'Range_Date', defaultValue: { lower: '2024-01-01', upper: '2024-12-31' } },
    level: { type: 'ENUM', values: ['low', "it's"], defaultValue: "it's" },
    day: { type: 'Date', defaultValue: '2024-02-29' },
  }

  it('fill what a payload leaves out', async () => {
    const made = await api.admin('POST', '/schemas', { collectionName: 'filled', schema: { fields } })
    expect(made.text).toContain('successfully')
    const { body } = await api.admin('POST', '/items/filled', { integer: 0 })
    const { data } = (await api.admin('GET', `/items/filled/${body.data.id}`)).body
    const me = (await api.admin('GET', '/auth/me')).body.user.id
    const uuid = expect.stringMatching(/^[\da-f-]{36}$/)
    const instant = expect.stringMatching(/^\d{4}-\d\d-\d\dT.*Z$/)
    expect(data).toMatchObject({
      uuid,
      uuidText: uuid,
      suid: expect.stringMatching(/^[2-9a-z]{12}$/),
      suidNamed: expect.stringMatching(/^[2-9a-z]{12}$/),
      token: expect.stringMatching(/^[2-9a-z]{9}$/),
      noToken: null,
      now: instant,
      nowLocal: instant,
      today: expect.stringMatching(/^\d{4}-\d\d-\d\d$/),
      nowTime: expect.stringMatching(/^\d\d:\d\d:\d\d.*\+00$/),
      nowLocalTime: expect.stringMatching(/^\d\d:\d\d:\d\d[.\d]*$/),
      number: 1,
      sql: 19,
      user: me,
      text: `it's a \\ "test" for $1`,
      wrapped: 'x',
      integer: 0,
      big: '9223372036854775807',
      decimal: '12.50',
      flag: false,
      json: { type: 'line', points: [1, "it's"] },
      list: [],
      tags: ['a', `b'c`],
      none: [],
      period: { lower: '2024-01-01', upper: '2024-12-31', lowerInclusive: true, upperInclusive: false },
      level: "it's",
      day: '2024-02-29',
    })
  })
})

describe('rules', () => {
  beforeAll(async () => {
    await api.admin('POST', '/schemas', {
      collectionName: 'ruled',
      schema: {
        fields: {
          age: { type: 'Integer', validate: { min: 18, max: 99 } },
          scores: { type: 'Array_Integer', validate: { max: 10 } },
          span: { type: 'Range_Integer', validate: { min: 0, max: 100 } },
          email: { type: 'String', validate: { isEmail: true } },
          code: { type: 'String', validate: { is: '^[A-Z]{2}\\d+$', len: [3, 6] } },
          pin: {
            type: 'String',
            hidden: true,
            validate: { matches: { args: '^\\d{4}$', msg: 'four digits, please' } },
          },
        },
      },
    })
  })

  it('are all reported at once, on create and on update', async () => {
    const payload = { age: 5, scores: [1, 11], span: range(-1, 5), email: 'x', code: 'a', pin: 'secret' }
    const expected = [
      { field: 'age', rule: 'min', message: 'Value 5 is less than minimum 18', value: 5 },
      { field: 'scores', rule: 'max', message: 'Array element [1]: Value 11 is greater than maximum 10' },
      { field: 'span', rule: 'min', message: 'Lower bound: Value -1 is less than minimum 0' },
      { field: 'email', rule: 'isEmail', message: 'Invalid email format', value: 'x' },
      { field: 'code', rule: 'is', message: 'does not match required pattern' },
      { field: 'code', rule: 'len', message: 'must be at least 3 characters long' },
      { field: 'pin', rule: 'matches', message: 'four digits, please' },
    ]
    const created = await api.admin('POST', '/items/ruled', payload)
    expect(created.status).toBe(400)
    expect(created.body.error.details).toMatchObject({ code: 'VALIDATION_ERROR', errors: expected })
    expect(created.body.error.message).toContain('Validation failed: age: Value 5 is less than minimum 18')
    expect(created.text).not.toContain('secret')
    const { body } = await api.admin('POST', '/items/ruled', {
      age: 20,
      scores: [null, 10],
      span: { upper: 100 },
      code: 'AB12',
    })
    const updated = await api.admin('PATCH', `/items/ruled/${body.data.id}`, payload)
    expect(updated.body.error.details.errors).toMatchObject(expected)
  })

  it('refuses at the column what comes around the API, as 400', async () => {
    await api.admin('POST', '/schemas', {
      collectionName: 'checked',
      schema: {
        fields: { low: { type: 'Integer' }, high: { type: 'Integer' } },
        constraints: [{ type: 'check', name: 'checked_order', expression: 'low <= high' }],
      },
    })
    expect((await api.admin('POST', '/items/checked', { low: 1, high: 2 })).status).toBe(201)
    expect((await api.admin('POST', '/items/checked', { low: 3, high: 2 })).status).toBe(400)
  })
})

describe('types of extensions', () => {
  const point = { fields: { at: { type: 'Point' } } }
  const embedding = { fields: { meaning: { type: 'Vector', values: { dimensions: 3 } } } }

  it.each([
    ['Point', 'DATABASE_POSTGIS', point],
    ['Geography', 'DATABASE_POSTGIS', { fields: { at: { type: 'Geography' } } }],
    ['Vector', 'DATABASE_VECTOR', embedding],
    ['SparseVec', 'DATABASE_VECTOR', { fields: { at: { type: 'SparseVec', values: { dimensions: 3 } } } }],
  ])('%s answers 400 without %s', async (type, variable, schema) => {
    const answer = await api.admin('POST', '/schemas', { collectionName: 'placed', schema })
    expect(answer.status).toBe(400)
    expect(answer.body.error.details).toContain(`type ${type} needs ${variable}`)
  })

  it('answers 400 and not 500 when the server has no such extension, and setup says so', async () => {
    const [{ count }] = await api.sql(
      `select count(*)::int from pg_available_extensions where name in ('postgis', 'vector')`,
    )
    const on = { DATABASE_POSTGIS: 'true', DATABASE_VECTOR: 'true' }
    const other = await startApi(on, api.database)
    const answer = await other.admin('POST', '/schemas', { collectionName: 'placed', schema: point })
    expect(answer.status).toBe(count === 2 ? 201 : 400)
    const setup = runSetup(testConfig(api.database.url, on), silent)
    if (count === 2) await setup
    else await expect(setup).rejects.toThrow('DATABASE_POSTGIS: the extension postgis cannot be created')
  })
})
