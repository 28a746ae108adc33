import { describe, expect, it } from 'vitest'
import { projectionList, projectionSql } from '../../../src/query/compile-rows.ts'
import { catalog } from './support/catalog.ts'

const notes = catalog.collections.get('notes')!
const places = catalog.collections.get('places')!
const UTC = `at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')`

describe('the JSON form of a column', () => {
  it.each([
    ['title', 'r."title"'],
    ['stars', 'r."stars"'],
    ['rating', 'r."rating"'],
    ['meta', 'r."meta"'],
    ['due', 'r."due"'],
    ['code', 'r."code"'],
    ['tags', 'r."tags"'],
    ['price', 'r."price"::text'],
    ['published', `to_char(r."published" ${UTC}`],
    ['local', `to_char(r."local", 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')`],
    [
      'views',
      'case when r."views" between -9007199254740991 and 9007199254740991 then to_json(r."views") else to_json(r."views"::text) end',
    ],
    [
      'amounts',
      `case when r."amounts" is null then null else (select coalesce(json_agg(e.v::text order by e.n), '[]') from unnest(r."amounts") with ordinality e(v, n)) end`,
    ],
    [
      'share',
      `case when r."share" is null then null when isempty(r."share") then json_build_object('empty', true) else json_build_object('lower', lower(r."share")::float8, 'upper', upper(r."share")::float8, 'lowerInclusive', lower_inc(r."share"), 'upperInclusive', upper_inc(r."share")) end`,
    ],
  ])('%s', (name, sql) => {
    expect(projectionSql(notes.fields.get(name)!, 'r')).toBe(sql)
  })

  it.each([
    ['at', 'r."at"', 'ST_AsGeoJSON(r."at")::json'],
    ['embedding', 'r."embedding"', 'r."embedding"::text::json'],
    ['sparse', 'r."sparse"', 'r."sparse"::vector::text::json'],
  ])('%s', (name, _, sql) => {
    expect(projectionSql(places.fields.get(name)!, 'r')).toBe(sql)
  })

  it('as a select list keeps the names', () => {
    const fields = ['id', 'price'].map((name) => notes.fields.get(name)!)
    expect(projectionList(fields, 'r')).toBe('r."id" as "id", r."price"::text as "price"')
  })
})
