import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { Collection } from '../../src/catalog/catalog.ts'
import {
  coreFunctions,
  coreTypes,
  extensionFunctions,
  operators,
  refusedObjects,
  refusedTexts,
} from '../../src/features/data/schemas/sql-guard.ts'
import { type Api, startApi } from '../support/api.ts'

let api: Api

beforeAll(async () => {
  api = await startApi()
  await api.sql(`create function public.wrapped(text) returns text language sql immutable as 'select $1'`)
  // Closer to a column of varchar than PostgreSQL's own, which take text.
  await api.sql(`create function public.upper(varchar) returns text language sql immutable as 'select $1::text'`)
  await api.sql(`create function public.same(varchar, varchar) returns boolean language sql immutable as 'select true'`)
  await api.sql(`create operator public.= (leftarg = varchar, rightarg = varchar, function = public.same)`)
  await api.sql(
    `create function public.abs(smallint, text default '') returns int language sql immutable as 'select 1'`,
  )
})

let count = 0
const fresh = () => {
  count += 1
  return `sql${count}`
}
const declare = (collectionName: string, schema: object) => api.admin('POST', '/schemas', { collectionName, schema })
const text = { type: 'Text' }
const columns = {
  title: { type: 'String', values: { stringLength: 20 } },
  low: { type: 'Integer' },
  data: { type: 'JSON' },
}

const log = async () => (await api.sql('select count(*)::int as n from "svc_AuditLog"'))[0].n

const attacks = [
  `pgboss.job_table_run('delete from public."svc_AuditLog"')`,
  `set_config('svc.retention', 'on', true)`,
  `set_config('svc.actor', '{"user": "00000000-0000-0000-0000-000000000000"}', true)`,
  `query_to_xml('select password from "svc_User"', true, true, '')::text`,
  `pg_read_file('/etc/passwd')`,
  `(select password from "svc_User" limit 1)`,
  `public.wrapped('x')`,
  `wrapped('x')`,
  `'svc_User'::regclass::text`,
  'pg_sleep(5)::text',
  'current_user',
  `nextval('"svc_AuditLog_position"')::text`,
]

describe('SQL of a definition that does more than compute a value', () => {
  const ways: readonly [string, (sql: string) => object][] = [
    ['a default', (value) => ({ fields: { x: { type: 'Text', defaultValue: { type: 'SQL', value } } } })],
    ['a calculation', (calculated) => ({ fields: { ...columns, x: { type: 'VIRTUAL', calculated } } })],
    [
      'a constraint',
      (sql) => ({ fields: columns, constraints: [{ type: 'check', name: fresh(), expression: `${sql} is not null` }] }),
    ],
    [
      'a constraint by name',
      (sql) => ({ fields: columns, constraints: { [fresh()]: { type: 'check', expression: `${sql} is not null` } } }),
    ],
  ]
  const cases = ways.flatMap(([way, schemaOf]) => attacks.map((sql) => [way, sql, schemaOf(sql)] as const))

  it.each(cases)('is refused as %s: %s', async (_way, _sql, schema) => {
    const name = fresh()
    const before = await log()
    const answer = await declare(name, schema)
    expect([answer.status, answer.body.error]).toMatchObject([
      400,
      {
        message: 'Error creating schema',
        code: 'SQL_NOT_ALLOWED',
        details: expect.stringMatching(
          new RegExp(`^Invalid schema for ${name}: (field x|constraint sql\\d+) (uses|calls) `),
        ),
      },
    ])
    expect(await log()).toBe(before)
    expect(await api.sql('select to_regclass($1) as t', [name])).toEqual([{ t: null }])
  })

  it.each(cases.filter(([, sql]) => sql.startsWith('set_config')))(
    'is refused in a change and in an import too: %s: %s',
    async (_way, _sql, schema) => {
      const name = fresh()
      expect((await declare(name, { fields: columns })).status).toBe(201)
      expect((await api.admin('POST', `/items/${name}`, { title: 'kept' })).status).toBe(201)
      const change = await api.admin('PATCH', `/schemas/${name}`, { schema })
      expect([change.status, change.body.error.code]).toEqual([400, 'SQL_NOT_ALLOWED'])
      for (const collectionName of [name, fresh()]) {
        const imported = await api.admin('POST', '/schemas/import', { schemas: [{ collectionName, schema }] })
        expect([imported.status, imported.text]).toEqual([400, expect.stringContaining('not on the list of functions')])
      }
      expect((await api.admin('GET', `/items/${name}?fields=title`)).body.data).toEqual([{ title: 'kept' }])
    },
  )

  it('is refused in the field that a relationship adds, and in a collection of the system', async () => {
    const { schema } = (await api.admin('GET', '/schemas/svc_User')).body.data
    const added = (field: object) =>
      api.admin('PATCH', '/schemas/svc_User', { schema: { ...schema, fields: { ...schema.fields, leak: field } } })
    for (const field of [
      { type: 'VIRTUAL', calculated: 'password' },
      { type: 'VIRTUAL', calculated: `left("svc_User".password, 10)` },
      { type: 'Text', defaultValue: { type: 'SQL', value: `set_config('svc.actor', '', true)` } },
    ]) {
      const answer = await added(field)
      expect([answer.status, answer.body.error.code]).toEqual([400, 'SQL_NOT_ALLOWED'])
    }
    expect((await added({ type: 'VIRTUAL', calculated: `upper(email)` })).status).toBe(200)
    expect((await api.admin('PATCH', '/schemas/svc_User', { schema })).status).toBe(200)
  })
})

describe('a name of the list that means something else here', () => {
  it.each([
    ['a function', 'function upper(character varying)', { x: { type: 'VIRTUAL', calculated: 'upper(title)' } }],
    ['an operator', 'operator =(character varying', { x: { type: 'VIRTUAL', calculated: '(title = title)::text' } }],
    [
      'an operator in IN',
      'operator =(character varying',
      { x: { type: 'VIRTUAL', calculated: '(title in (title))::text' } },
    ],
    [
      'an operator in NULLIF',
      'operator =(character varying',
      { x: { type: 'VIRTUAL', calculated: 'nullif(title, title)' } },
    ],
    [
      'a default',
      'function upper(character varying)',
      { x: { type: 'Text', defaultValue: { type: 'SQL', value: `upper('x'::varchar)` } } },
    ],
  ])('is refused: %s', async (_what, object, field) => {
    const name = fresh()
    const answer = await declare(name, { fields: { ...columns, ...field } })
    expect([answer.status, answer.body.error.code]).toEqual([400, 'SQL_NOT_ALLOWED'])
    expect(answer.body.error.details).toContain(`field x uses ${object}`)
    expect(await api.sql('select to_regclass($1) as t', [name])).toEqual([{ t: null }])
  })

  it('is refused in a constraint', async () => {
    const constraints = [{ type: 'check', name: 'loud', expression: `upper(title) <> ''` }]
    const answer = await declare(fresh(), { fields: columns, constraints })
    expect(answer.body.error).toMatchObject({
      code: 'SQL_NOT_ALLOWED',
      details: expect.stringContaining('constraint loud uses function upper(character varying)'),
    })
  })

  it('is PostgreSQL’s where that is said', async () => {
    const x = { type: 'VIRTUAL', calculated: 'pg_catalog.upper(title)' }
    const y = { type: 'VIRTUAL', calculated: '(title operator(pg_catalog.=) title::text)::text' }
    expect((await declare(fresh(), { fields: { ...columns, x, y } })).status).toBe(201)
  })
})

describe('SQL that computes a value', () => {
  const row = {
    title: { type: 'String' },
    low: { type: 'Integer' },
    high: { type: 'Integer' },
    data: { type: 'JSON' },
    tags: { type: 'Array_String' },
    at: { type: 'DateTime_NO_TZ' },
    period: { type: 'Range_Integer' },
    open: { type: 'Range_Time_NO_TZ' },
    mail: { type: 'CiText' },
    price: { type: 'Decimal', values: { precision: 10, scale: 2 } },
  }

  it.each<[type: string, value: string]>([
    ['DateTime', `now() + interval '30 days'`],
    ['DateTime', 'current_timestamp'],
    ['Date', `(now() at time zone 'UTC')::date`],
    ['Integer', 'extract(year from now())::int'],
    ['Integer', 'floor(random() * 1000)::int'],
    ['Text', `'INV-' || to_char(now(), 'YYYYMMDD') || '-' || upper(substr(md5(random()::text), 1, 6))`],
    ['Text', 'svc_short_id()'],
    ['Text', 'gen_random_uuid()::text'],
    ['UUID', 'gen_random_uuid()'],
    ['JSON', `jsonb_build_object('a', 1, 'b', array[1, 2])`],
    ['JSON', `'{"a": 1}'::jsonb || '{}'`],
    ['Array_String', `string_to_array('a,b', ',')`],
    ['Range_Integer', 'int4range(1, 5)'],
    ['Range_Time_NO_TZ', `svc_timerange('09:00', '17:00')`],
    ['Range_Time_NO_TZ', `'[09:00,17:00)'::svc_timerange`],
    ['CiText', `lower('X')::citext`],
    ['Boolean', `date_part('dow', now()) in (0, 6)`],
    ['Decimal', 'round(1.5 * 2, 2)'],
  ])('goes on working as a default of %s: %s', async (type, value) => {
    const name = fresh()
    const answer = await declare(name, { fields: { x: { type, defaultValue: { type: 'SQL', value } } } })
    expect([answer.status, answer.text]).toEqual([201, expect.any(String)])
    expect((await api.admin('POST', `/items/${name}`, {})).status).toBe(201)
    const [{ x }] = (await api.admin('GET', `/items/${name}?fields=x`)).body.data
    expect([undefined, null]).not.toContain(x)
  })

  it.each([
    `coalesce(title, '') || ' ' || coalesce(low::text, '')`,
    `lower(trim(both from title))`,
    `case when low > high then 'over' else 'under' end`,
    `to_tsvector('english', coalesce(title, ''))::text`,
    `data ->> 'kind'`,
    `(data #>> '{a,b}')::int::text`,
    'cardinality(tags)::text',
    'tags[1]',
    `extract(year from at)::text`,
    `date_trunc('month', at)::text is null or true`,
    `(upper(period) - lower(period))::text`,
    `encode(sha256(convert_to(title, 'UTF8')), 'hex')`,
    `greatest(low, high)::text`,
    `(price * 1.2)::numeric(10,2)::text`,
    `split_part(mail, '@', 2)`,
    `regexp_replace(title, '[^a-z]', '', 'g')`,
    `title collate "C"`,
  ])('goes on working as a calculation: %s', async (calculated) => {
    const answer = await declare(fresh(), { fields: { ...row, x: { type: 'VIRTUAL', calculated } } })
    // `to_char` and the like are not immutable: that is PostgreSQL's word, not ours.
    const isOurs = answer.body?.error?.code === 'SQL_NOT_ALLOWED'
    expect([
      isOurs,
      answer.status === 201 || answer.text.includes('not immutable') || answer.text.includes('another type'),
    ]).toEqual([false, true])
  })

  it.each([
    'low <= high',
    'low between 0 and 100',
    `title in ('a', 'b')`,
    `title ~ '^[a-z]+$'`,
    `title like 'a%' or title is null`,
    'num_nonnulls(low, high) = 1',
    `jsonb_typeof(data) = 'object'`,
    'cardinality(tags) <= 10',
    `tags <@ array['a', 'b']`,
    'period && int4range(1, 5)',
    `open @> time '12:00'`,
    'not isempty(open)',
    `mail like '%@%'`,
    `mail <> 'x' and mail = mail`,
    '(low, high) <= (1, 2)',
    `price >= 0 and price % 0.05 = 0`,
    `"createdAt" <= "updatedAt"`,
    `length(title) between 1 and 10`,
  ])('goes on working as a constraint: %s', async (expression) => {
    const constraints = [{ type: 'check', name: fresh(), expression }]
    expect(await declare(fresh(), { fields: row, constraints })).toMatchObject({ status: 201 })
  })

  it('may use what the platform’s own definitions use', async () => {
    const collections = [...api.runtime.catalog.current().collections.values()]
    const refused = await Promise.all(collections.map((collection) => refusedTexts(collection)))
    expect([refused.flat(), await refusedObjects(api.runtime.db, collections)]).toEqual([[], []])
  })
})

describe('a definition from before the list', () => {
  const stale = { type: 'Text', defaultValue: { type: 'SQL', value: `current_setting('is_superuser')` } }
  /** As an installation of an earlier version holds it. */
  const age = async (name: string) => {
    expect((await declare(name, { fields: { title: text, x: text } })).status).toBe(201)
    await api.sql(`alter table "${name}" alter column x set default current_setting('is_superuser')`)
    await api.sql(
      `update "svc_SchemaDefinition" set schema = jsonb_set(schema, '{fields,x}', $2::jsonb) where "collectionName" = $1`,
      [name, stale],
    )
    await api.runtime.catalog.reload()
  }
  const named = 'aged'

  beforeAll(() => age(named))
  afterAll(async () => expect((await api.admin('DELETE', `/schemas/${named}`)).status).toBe(200))

  it('goes on: a process starts with it, rows are read and written', async () => {
    const other = await startApi({}, api.database)
    expect((await other.admin('POST', `/items/${named}`, { title: 'a' })).status).toBe(201)
    const rows = await other.admin('GET', `/items/${named}?fields=title,x`)
    expect(rows.body.data).toEqual([{ title: 'a', x: expect.stringMatching(/^(on|off)$/) }])
    const same = await api.admin('PATCH', `/schemas/${named}`, { schema: { fields: { title: text, x: stale } } })
    expect(same.status).toBe(200)
  })

  it('is named to the operator', async () => {
    const collection = api.runtime.catalog.current().collections.get(named) as Collection
    expect(await refusedTexts(collection)).toEqual([
      { collection: named, part: 'field x', reason: 'calls current_setting(), which is not on the list of functions' },
    ])
  })

  it('must be mended before it is changed, and can be', async () => {
    const change = (x: object) =>
      api.admin('PATCH', `/schemas/${named}`, { schema: { fields: { title: text, more: text, x } } })
    const refused = await change(stale)
    expect([refused.status, refused.body.error.details]).toEqual([
      400,
      `Invalid schema for ${named}: field x calls current_setting(), which is not on the list of functions`,
    ])
    expect((await change(text)).status).toBe(200)
    expect((await api.admin('POST', `/items/${named}`, { title: 'b' })).status).toBe(201)
    const rows = await api.admin('GET', `/items/${named}?fields=x&filter={"title":"b"}`)
    expect(rows.body.data).toEqual([{ x: null }])
  })
})

describe('the list', () => {
  const kindsSql = `select p.proname as name, bool_or(p.prokind <> 'f' or p.proretset) as odd,
      string_agg(distinct l.lanname, ',') as languages, string_agg(distinct p.provolatile::text, '') as volatility
    from pg_proc p join pg_language l on l.oid = p.prolang
    where p.pronamespace = 'pg_catalog'::regnamespace and p.proname = any($1) and p.oid < 16384 group by 1`

  /** Their result depends on chance or the clock; everything else is at least stable. */
  const volatile = [
    'array_sample',
    'array_shuffle',
    'clock_timestamp',
    'gen_random_uuid',
    'random',
    'random_normal',
    'timeofday',
    'uuidv4',
    'uuidv7',
  ]

  it('names functions of PostgreSQL, none of which is an aggregate, makes rows or writes', async () => {
    const rows = await api.sql(kindsSql, [[...coreFunctions]])
    expect(rows.filter(({ odd }) => odd)).toEqual([])
    expect(rows.filter(({ languages }) => !/^(internal|sql|internal,sql)$/.test(languages))).toEqual([])
    expect(rows.flatMap(({ name, volatility }) => (volatility.includes('v') ? [name] : [])).sort()).toEqual(volatile)
    const known = new Set(rows.map(({ name }) => name))
    const versions = await api.sql(`select current_setting('server_version_num')::int as version`)
    if (versions[0].version >= 180000) expect([...coreFunctions].filter((name) => !known.has(name))).toEqual([])
  })

  it('names functions that take nothing which stands for an object of the database', async () => {
    const rows = await api.sql(
      `select p.oid::regprocedure::text as function from pg_proc p, unnest(p.proargtypes) argument
       where p.pronamespace = 'pg_catalog'::regnamespace and p.proname = any($1)
         and argument::regtype::text = any('{regclass,regproc,regprocedure,regtype,regrole,regnamespace,regoper,regoperator,oid,refcursor,xml,record[]}')`,
      [[...coreFunctions]],
    )
    expect(rows).toEqual([])
  })

  it('names types and operators of PostgreSQL', async () => {
    const types = await api.sql(
      `select typname as name from pg_type where typnamespace = 'pg_catalog'::regnamespace and typname = any($1) and typtype in ('b', 'r', 'm')`,
      [[...coreTypes]],
    )
    expect([...coreTypes].filter((name) => !types.some((type) => type.name === name))).toEqual([])
    const rows = await api.sql(
      `select o.oid::regoperator::text as operator, p.provolatile as volatility, p.proname as name from pg_operator o
       join pg_proc p on p.oid = o.oprcode where o.oprnamespace = 'pg_catalog'::regnamespace and o.oprname = any($1)
         and p.provolatile = 'v'`,
      [[...operators]],
    )
    expect(rows).toEqual([])
  })

  it('does not name a function twice with different meanings', () => {
    expect([...extensionFunctions].filter((name) => coreFunctions.has(name))).toEqual([])
  })
})
