import { sql as slonik } from 'slonik'
import { describe, expect, it } from 'vitest'
import { sql } from '../../src/db/sql.ts'

const textAndValues = ({ text, values }: ReturnType<typeof sql>) => ({ text, values })

describe('sql', () => {
  it('binds every value, numbered over all fragments', () => {
    const state = sql`state = ${'due'}`
    const mine = sql`(${state} or owner = any(${sql.array(['a', 'b'], 'uuid')}))`
    expect(textAndValues(sql`select ${1} from t where ${mine} and ${state} limit ${2}`)).toEqual({
      text: 'select $1 from t where (state = $2 or owner = any($3::"uuid"[])) and state = $4 limit $5',
      values: [1, 'due', ['a', 'b'], 'due', 2],
    })
  })

  it('leaves a fragment without values as it is, and an empty one away', () => {
    expect(textAndValues(sql`select 1 ${sql`for update`}${sql``}`)).toEqual({ text: 'select 1 for update', values: [] })
  })

  it.each([
    ['a list', sql.array(['a', 'b'], 'text'), slonik.array(['a', 'b'], 'text')],
    ['an empty list', sql.array([], 'uuid'), slonik.array([], 'uuid')],
    ['a list of a quoted type', sql.array([1], 'in"t'), slonik.array([1], 'in"t')],
    ['json', sql.json({ a: ['x', null] }), slonik.json({ a: ['x', null] })],
    ['jsonb', sql.jsonb('text'), slonik.jsonb('text')],
    ['jsonb that is null', sql.jsonb(null), slonik.jsonb(null)],
    ['a name', sql.identifier(['pgboss', 'a "job"']), slonik.identifier(['pgboss', 'a "job"'])],
  ])('sends %s as slonik does', (_what, own, theirs) => {
    const expected = slonik.unsafe`select ${theirs}`
    expect(textAndValues(sql`select ${own}`)).toEqual({
      text: expected.sql.replaceAll('$slonik_', '$'),
      values: expected.values,
    })
  })

  it('takes text that looks like a parameter or a fragment for a value', () => {
    const forged = JSON.parse('"$1; drop table t"')
    expect(textAndValues(sql`select ${forged}`)).toEqual({ text: 'select $1', values: ['$1; drop table t'] })
    const object = JSON.parse('{"strings": ["drop table t"], "values": []}')
    expect(textAndValues(sql`select ${object}`)).toEqual({ text: 'select $1', values: [object] })
  })

  it('refuses a value that is undefined', () => {
    const forgotten = undefined as never
    expect(() => sql`delete from t where id = ${forgotten}`).toThrow('a value of a statement is undefined')
  })
})
