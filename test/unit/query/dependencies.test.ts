import { describe, expect, it } from 'vitest'
import type { Catalog, Collection } from '../../../src/catalog/catalog.ts'
import { compileList, compileListUpTo, compileOne, compilePage, compileStream } from '../../../src/query/compile.ts'
import { nextChange } from '../../../src/query/next-change.ts'
import { parseListQuery } from '../../../src/query/parse.ts'
import { type Plan, resolveList } from '../../../src/query/resolve.ts'
import { admin, env, role } from './support/access.ts'
import { catalog } from './support/catalog.ts'
import { type Asked, planOf } from './support/compiled.ts'
import { representative } from './support/representative.ts'

/** The catalog with other fields or indexes. */
const changed = (change: (collection: Collection) => Partial<Collection>): Catalog => ({
  ...catalog,
  collections: new Map([...catalog.collections].map(([name, one]) => [name, { ...one, ...change(one) }])),
})

/** Then every column that is read is one whose changes leave no event. */
const silent = changed(({ fields }) => ({
  fields: new Map([...fields].map(([name, field]) => [name, { ...field, unlogged: true }])),
}))

const planIn = (within: Catalog, { query = {}, collection = 'notes', access = admin, env: more = {} }: Asked): Plan =>
  resolveList(within, access, collection, parseListQuery(query), { ...env, ...more })

/** The tables and columns that a text names, by its aliases. */
function namedIn(text: string) {
  const tables = new Map<string, string>()
  for (const [, table, alias] of text.matchAll(/"(\w+)" (t|q\d+)\b/g)) tables.set(alias!, table!)
  const columns = [...text.matchAll(/\b(t|q\d+)\."([^"$]+)"/g)].map(
    ([, alias, name]) => `${tables.get(alias!)}.${name}`,
  )
  return { tables: [...new Set(tables.values())].sort(), columns: [...new Set(columns)].sort() }
}

const ways: Readonly<Record<string, (plan: Plan) => ReturnType<typeof compileList>>> = {
  'a list': compileList,
  'a list that may be long': (plan) => compileListUpTo(plan, 1000),
  'a stream': compileStream,
  'one row': compileOne,
}

describe('a statement says which tables and columns it reads', () => {
  it.each(Object.entries(representative))('%s', (_name, asked) => {
    const plan = planIn(silent, asked)
    for (const [way, compile] of Object.entries(ways)) {
      if (plan.grouping !== undefined && way === 'one row') continue
      const { text, dependsOn } = compile(plan)
      const { tables, columns } = namedIn(text)
      expect([...dependsOn!.collections].sort(), way).toEqual(tables)
      expect([...dependsOn!.unlogged].sort(), way).toEqual(columns)
      for (const table of tables) expect(plan.collections, way).toContain(table)
      expect([...compile(planIn(catalog, asked)).dependsOn!.unlogged], way).toEqual([])
    }
  })

  it('also of a page by cursor', () => {
    const query = { fields: 'title', filter: { 'owner.name': 'x' }, sort: '-owner.email', limit: 25, cursor: '' }
    const { text, dependsOn } = compilePage(planIn(silent, { query }) as Parameters<typeof compilePage>[0])
    expect([...dependsOn!.unlogged].sort()).toEqual(namedIn(text).columns)
  })

  it('and a field that is a function of other tables is not of the row alone', () => {
    const shown = changed(({ fields }) => ({
      fields: new Map(
        [...fields].map(([name, field]) => [
          name,
          name === 'title' ? { ...field, shownBy: { function: 'f', arguments: ['title', 'body'] } } : field,
        ]),
      ),
    }))
    const { dependsOn } = compileList(planIn(shown, { query: { fields: ['title'] } }))
    expect([...dependsOn!.unlogged]).toEqual(['notes.title'])
  })
})

const at = env.now.getTime()
const day = 86_400_000

/** What `nextChange` says of a list: the moment that is known, and the text for the rest. */
function nextOf(query: object, asked: Asked = {}, within = catalog) {
  const next = nextChange(planIn(within, { ...asked, query: { fields: ['id'], ...query } }))
  return next && { atMs: next.atMs, text: next.statement?.text, values: next.statement?.values }
}

const byOwner = { owner_Id: '00000000-0000-4000-8000-000000000001' }

describe('when an answer that names the time may change', () => {
  it('is never, where it does not', () => {
    expect(planOf({ query: { filter: { published: { lt: '2024-01-01' } } } }).time).toBeUndefined()
    expect(nextOf({})!.text).toBeUndefined()
  })

  it('is the least value beyond, among the rows that meet the rest of the condition', () => {
    const { text, values } = nextOf({ filter: { ...byOwner, published: { lte: '$NOW' } } })!
    expect(text).toBe(
      `select least((select floor(extract(epoch from min(t."published")) * 1000) - $3::bigint from "notes" t where t."deletedAt" is null and t."owner_Id" = $2::uuid and t."published" > $1::timestamptz))::text as at`,
    )
    expect(values).toEqual([env.now.toISOString().replace('Z', '999Z'), byOwner.owner_Id, 0])
  })

  it('counts a value itself as beyond where the test tells it from later ones', () => {
    const { text, values } = nextOf({ filter: { local: { gte: '$NOW-HOURS_2', lt: '$NOW+DAY_1' } } })!
    expect(text).toContain('select floor(extract(epoch from min(t."local")) * 1000) + 1 - $2::bigint')
    expect(text).toContain('t."local" >= $1::timestamp')
    expect(values).toEqual([
      new Date(at - 7_200_000).toISOString().slice(0, -1),
      -7_200_000,
      new Date(at + day).toISOString().slice(0, -1),
      day,
    ])
  })

  it('does not look among rows of a condition that names the time itself', () => {
    const either = [{ published: { lt: '$NOW' } }, { stars: 5 }]
    const { text } = nextOf({ filter: { local: { lt: '$NOW' }, stars: 1, OR: either } }, {}, indexed)!
    expect(text).not.toContain('$6')
    expect(text!.match(/t\."stars" =/g)).toHaveLength(1)
    expect(text).toContain('from "notes" t where t."published" >=')
  })

  const indexed = changed(({ name }) => ({
    indexes: [
      { name: 'i', fields: ['published'], unique: false, nullsNotDistinct: false, whereNotNull: [], method: 'btree' },
      ...(name === 'comments'
        ? [{ name: 'j', fields: ['at'], unique: false, nullsNotDistinct: false, whereNotNull: ['at'], method: 'btree' }]
        : []),
    ] as Collection['indexes'],
  }))

  it('needs an index where not every row of the answer must pass the test', () => {
    const filter = { NOT: { published: { gt: '$NOW' } } }
    expect(nextOf({ filter })).toBeUndefined()
    expect(nextOf({ filter }, {}, indexed)!.text).toContain('from "notes" t where t."published" > $1')
    const related = { filter: { comments: { at: { lt: '$NOW' } } } }
    expect(nextOf(related)).toBeUndefined()
    expect(nextOf(related, {}, indexed)!.text).toContain('from "comments" t where t."at" >= $1')
  })

  it('is midnight for days, whatever is asked of them', () => {
    const midnight = Math.floor(at / day) * day + day
    expect(nextOf({ filter: { due: '$NOW' } })).toMatchObject({ atMs: midnight, text: undefined })
    expect(nextOf({ filter: { due: { lt: '$NOW+HOURS_12' } } })!.atMs).toBe(
      Math.floor((at + day / 2) / day) * day + day - day / 2,
    )
  })

  it('is known for rules as for filters', () => {
    const access = role({ grants: { notes: { conditions: { published: { lt: '$NOW' }, stars: 3 } } } })
    expect(nextOf({}, { access })!.text).toContain(
      't."stars" = $2::integer and t."deletedAt" is null and t."published" >= $1',
    )
  })

  it.each([
    ['equality', { published: { eq: '$NOW' } }],
    ['a list', { published: { in: ['$NOW'] } }],
    ['a span', { published: { between: ['$NOW-DAY_1', '$NOW'] } }],
    ['a cast', { published: { lt: '$NOW', cast: 'text' } }],
    ['a text', { title: { lt: '$NOW' } }],
    ['a part of JSON', { meta: { jsonbKeyEquals: { key: 'k', value: '$NOW' } } }],
    ['a known test beside', { due: '$NOW', title: '$NOW' }],
  ])('is not known of %s', (_what, filter) => {
    expect(planOf({ query: { filter } }).time).toEqual({ at: env.now, tests: undefined })
    expect(nextOf({ filter })).toBeUndefined()
  })

  it('is not known of groups that are chosen by it', () => {
    const query = {
      aggregate: { last: { function: 'max', field: 'published' } },
      groupBy: ['stars'],
      having: { last: { lt: '$NOW' } },
    }
    expect(nextChange(planOf({ query }))).toBeUndefined()
  })
})
