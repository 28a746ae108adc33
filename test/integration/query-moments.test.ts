import fc from 'fast-check'
import pg from 'pg'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { compileCount, compileList } from '../../src/query/compile.ts'
import { nextChange } from '../../src/query/next-change.ts'
import { createEmptyDatabase } from '../support/postgres.ts'
import { type Asked, planOf } from '../unit/query/support/compiled.ts'
import { librarySql } from '../unit/query/support/library.ts'

/** Moments are stored with microseconds and answered with milliseconds: filters compare what answers show. */

let client: pg.Client

/** Close to each other, so that many share a millisecond; before 2000 PostgreSQL counts backwards. */
const seconds = ['1969-12-31T23:59:59', '2024-02-29T23:59:59', '9999-12-31T23:59:59']
const micros = fc.constantFrom(0, 1, 998, 999, 1000, 1001, 1999, 2000, 747_123, 747_999, 748_000, 999_000, 999_999)
const stored = fc
  .tuple(fc.constantFrom(...seconds), micros)
  .map(([second, n]) => `${second}.${`${n}`.padStart(6, '0')}Z`)

beforeAll(async () => {
  const { url } = await createEmptyDatabase()
  client = new pg.Client({ connectionString: url })
  await client.connect()
  await client.query(librarySql)
  await client.query('delete from notes')
  const moments = [...fc.sample(stored, 80), 'infinity', '-infinity', null]
  await client.query(
    `insert into notes (id, published, local) select n, moment, moment at time zone 'UTC' from unnest($1::timestamptz[]) with ordinality m(moment, n)`,
    [moments],
  )
})

afterAll(() => client.end())

type Note = { readonly id: number; readonly published: string | null; readonly local: string | null }

async function read(query: object): Promise<Note[]> {
  const { text, values } = compileList(planOf({ query: { fields: ['id', 'published', 'local'], ...query } }))
  const { rows } = await client.query(text, [...values])
  return JSON.parse(rows[0].data)
}

const idsOf = async (filter: object) => (await read({ filter })).map(({ id }) => id)

/** What an answer would show of a value. */
const shown = (value: string): string => new Date(value).toISOString()

const tests: Readonly<Record<string, (text: string, operand: any) => boolean>> = {
  eq: (text, value) => text === shown(value),
  ne: (text, value) => text !== shown(value),
  not: (text, value) => text !== shown(value),
  gt: (text, value) => text > shown(value),
  gte: (text, value) => text >= shown(value),
  lt: (text, value) => text < shown(value),
  lte: (text, value) => text <= shown(value),
  between: (text, [low, high]) => text >= shown(low) && text <= shown(high),
  notBetween: (text, [low, high]) => text < shown(low) || text > shown(high),
  in: (text, values) => values.map(shown).includes(text),
  notIn: (text, values) => !values.map(shown).includes(text),
}

/** A moment of a row as it is shown or stored, or in another zone. */
const value = stored.chain((moment) =>
  fc.constantFrom(moment, shown(moment), `${moment.slice(0, 10)} ${moment.slice(11, -1)}+00`),
)
const operandOf: Readonly<Record<string, fc.Arbitrary<unknown>>> = {
  between: fc.tuple(value, value),
  notBetween: fc.tuple(value, value),
  in: fc.array(value, { maxLength: 70 }),
  notIn: fc.array(value, { maxLength: 70 }),
}
const asked = fc.constantFrom(...Object.keys(tests)).chain((operator) =>
  fc.record({
    operator: fc.constant(operator),
    operand: operandOf[operator] ?? value,
    field: fc.constantFrom('published', 'local'),
    isNot: fc.boolean(),
  }),
)

describe('a filter of moments', () => {
  it('finds the rows whose answers show what it asks for', async () => {
    const all = (await read({})).filter((note) => note.published !== null)
    expect(new Set(all.map(({ published }) => published)).size).toBeLessThan(all.length)
    await fc.assert(
      fc.asyncProperty(asked, async ({ operator, operand, field, isNot }) => {
        const test = { [field]: { [operator]: operand } }
        const expected = all.filter((note) => tests[operator]!(note[field as 'local']!, operand) !== isNot)
        // Infinity is not shown; whether it is greater is asked below.
        const finite = { [field]: { between: ['0001-01-01', '9999-12-31T23:59:59.999Z'] } }
        const ids = await idsOf({ AND: [finite, isNot ? { NOT: test } : test] })
        expect(ids).toEqual(expected.map(({ id }) => id))
      }),
      { numRuns: 300 },
    )
  })

  it('finds a row by what was read of it, and none twice that reads on after the last', async () => {
    for (const field of ['published', 'local'] as const) {
      const [first, ...others] = await read({
        filter: { [field]: { isNotNull: true } },
        sort: field,
        limit: 5,
        offset: 1,
      })
      const own = first![field]!
      expect((await idsOf({ [field]: own })).includes(first!.id)).toBe(true)
      const after = await idsOf({ [field]: { gt: own } })
      expect(after).not.toContain(first!.id)
      for (const other of others) expect(after.includes(other.id)).toBe(other[field] !== own)
    }
  })

  it.each([
    ['gt', [81]],
    ['gte', [81]],
    ['ne', [81, 82]],
    ['notIn', [81, 82]],
    ['notBetween', [81, 82]],
    ['lt', [82]],
    ['lte', [82]],
    ['eq', []],
    ['in', []],
    ['between', []],
  ])('%s takes infinity for what it is', async (operator, infinite) => {
    const moment = '9999-12-31T23:59:59.999Z'
    const lowest = operator.startsWith('l') ? '0001-01-01' : moment
    const range = ['0001-01-01', moment]
    const operand = operator.endsWith('etween') ? range : operator.endsWith('n') ? [lowest] : lowest
    const ids = await idsOf({ published: { [operator]: operand } })
    expect(ids.filter((id) => id > 80)).toEqual(infinite)
  })

  it('reads more than six decimals as they would be stored', async () => {
    await client.query(
      `insert into notes (id, published) values (91, '2025-12-31T23:59:59.9999996Z'), (92, '2025-12-31T23:59:58.1239995Z')`,
    )
    expect(
      (await read({ filter: { published: '2025-12-31T23:59:59.9999996Z' } })).map(({ published }) => published),
    ).toEqual(['2026-01-01T00:00:00.000Z'])
    expect(await idsOf({ published: { in: ['2025-12-31T23:59:58.1239995Z'] } })).toEqual([92])
    for (const operator of ['gt', 'lte']) await idsOf({ published: { [operator]: '9999-12-31T23:59:59.9999999Z' } })
    for (const far of ['12024-05-01T10:00:00Z', '294276-02-28T23:59:59.9999999Z', '0044-03-15T00:00:00Z BC'])
      for (const operand of [{ eq: far }, { gt: far }, { in: [far, '2024-01-01'] }])
        for (const field of ['published', 'local']) await idsOf({ [field]: operand })
    await client.query('delete from notes where id > 90')
  })

  it('matches nothing where a variable has no value, also under NOT', async () => {
    const values = ['$CURRENT_TENANT.name', ...Array.from({ length: 40 }, (_, i) => `2024-01-01T00:00:${10 + i}Z`)]
    const unknown = [...['eq', 'ne', 'gt', 'lte'].map((operator) => ({ [operator]: '$CURRENT_TENANT.name' }))]
    const lists = [{ in: values }, { notIn: values }, { in: '$CURRENT_TENANT.name' }, { between: values.slice(0, 2) }]
    for (const test of [...unknown, ...lists]) {
      expect(await idsOf({ published: test, id: { lt: 81 } }), JSON.stringify(test)).toEqual([])
      const isNot = { NOT: { published: test }, id: { lt: 81 } }
      // Beyond a known bound it is known, too, that a row is not between both.
      if (!('between' in test)) expect(await idsOf(isNot), JSON.stringify(test)).toEqual([])
    }
    const [first] = await read({ filter: { published: { isNotNull: true } }, limit: 1 })
    expect(await idsOf({ published: { in: [first!.published, ...values] } })).toContain(first!.id)
  })

  it('chooses groups by what is shown of them', async () => {
    const aggregate = { last: { function: 'max', field: 'published' } }
    const groups = async (query: object) => {
      const { text, values } = compileList(planOf({ query: { aggregate, groupBy: ['id'], ...query } }))
      return JSON.parse((await client.query(text, [...values])).rows[0].data) as { id: number; last: string }[]
    }
    const [group] = await groups({ having: { last: { lt: '2100-01-01' } }, sort: '-last', limit: 1 })
    expect(await groups({ having: { last: group!.last } })).toContainEqual(group)
  })

  it('compares what is stored where it is cast to something else', async () => {
    const [{ text }] = (await client.query(`select published::text as text from notes where id = 1`)).rows
    expect(await idsOf({ published: { eq: text, cast: 'text' } })).toContain(1)
    expect(await idsOf({ published: { eq: '2024-02-29', cast: 'date' } })).not.toEqual([])
    const [{ published }] = (await read({ filter: { id: 1 } })) as [Note]
    expect(await idsOf({ published: { eq: published, cast: 'timestamp' } })).toContain(1)
  })
})

describe('an index on moments', () => {
  const moment = '2024-02-29T23:59:59.747Z'
  it.each<[string, object]>([
    ['eq', { eq: moment }],
    ['gt', { gt: moment }],
    ['gte', { gte: moment }],
    ['lt', { lt: moment }],
    ['lte', { lte: moment }],
    ['between', { between: [moment, moment] }],
    ['a list of one', { in: [moment] }],
    ['a short list', { in: ['1969-12-31', moment, '2999-12-31'] }],
    ['a long list', { in: Array.from({ length: 500 }, (_, i) => `${1500 + i}-01-01`) }],
  ])('serves %s', async (_what, test) => {
    for (const field of ['published', 'local']) {
      await client.query('begin')
      await client.query(`create index probe on notes ("${field}"); set local enable_seqscan = off`)
      const { text, values } = compileCount(planOf({ query: { filter: { [field]: test } } }))
      const { rows } = await client.query(`explain ${text}`, [...values])
      await client.query('rollback')
      expect(JSON.stringify(rows)).toContain('probe')
      expect(JSON.stringify(rows)).toContain('Index Cond')
    }
  })
})

describe('the moment up to which an answer holds', () => {
  const at = Date.parse('2024-02-29T23:59:59.740Z')
  const shift = fc.constantFrom('', '+SECONDS_1', '-SECONDS_1')
  const around = fc.record({
    operator: fc.constantFrom('lt', 'lte', 'gt', 'gte'),
    field: fc.constantFrom('published', 'local'),
    ms: fc.integer({ min: -3000, max: 3000 }),
    shift,
  })

  it('is the first millisecond at which it is another one', async () => {
    await fc.assert(
      fc.asyncProperty(around, async ({ operator, field, ms, shift }) => {
        const filter = { [field]: { [operator]: `$NOW${shift}` } }
        const asOf = (now: number): Asked => ({ query: { fields: ['id'], filter }, env: { now: new Date(now) } })
        const answer = async (now: number) => {
          const { text, values } = compileList(planOf(asOf(now)))
          return (await client.query(text, [...values])).rows[0].data as string
        }
        const { statement } = nextChange(planOf(asOf(at + ms)))!
        const [next] = (await client.query(statement!.text, [...statement!.values])).rows
        const until = next.at === null || next.at === 'Infinity' ? at + 1e9 : Number(next.at)
        expect(until).toBeGreaterThan(at + ms)
        expect(await answer(until - 1)).toBe(await answer(at + ms))
        if (until < at + 1e9) expect(await answer(until)).not.toBe(await answer(at + ms))
      }),
      { numRuns: 150 },
    )
  })
})
