import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { AppError } from '../../../src/errors.ts'
import { compileCount, compileList, compileStream } from '../../../src/query/compile.ts'
import { plainFilter } from '../../../src/query/parse.ts'
import type { Plan } from '../../../src/query/resolve.ts'
import {
  bindPlan,
  bindStatement,
  templateOfFilter,
  templateOfPlan,
  templateOfStatement,
} from '../../../src/query/template.ts'
import { admin, role } from './support/access.ts'
import { planOf } from './support/compiled.ts'
import { hostileQueries } from './support/queries.ts'

type Query = Readonly<Record<string, unknown>>

const limited = role({
  grants: {
    notes: {
      fields: ['*', 'owner.*', 'comments.*', 'labels.*', 'category.*', 'category.parent.*'],
      conditions: { stars: { lt: 9 }, owner: { age: { gt: 1 } } },
    },
    users: { fields: ['*'] },
    labels: { fields: ['*'] },
    categories: { fields: ['*'] },
    comments: { fields: ['*'], conditions: { likes: { gte: 0 } } },
  },
})

const compilers = { list: compileList, stream: compileStream, count: compileCount }

/** What a plan's statements are, or why there is none. */
function said(make: () => Plan): unknown {
  try {
    const plan = make()
    return Object.values(compilers).map((compile) => compile(plan))
  } catch (error) {
    if (error instanceof AppError && error.status < 500) return { status: error.status, details: error.details }
    throw error
  }
}

/** Resolves one query and binds its template to the values of another; undefined where that cannot be. */
function boundWith(one: Query, other: Query, access = admin): { bound: unknown; resolved: unknown } | undefined {
  const [filter, otherFilter] = [plainFilter(one), plainFilter(other)]
  const [template, { text, values }] = [templateOfFilter(filter), templateOfFilter(otherFilter)]
  expect(text).toBe(template.text)
  const all = { access, env: { postgis: true, vector: true } }
  const planTemplate = templateOfPlan(planOf({ ...all, query: { ...one, filter } }), template.values)
  if (planTemplate === undefined) return undefined
  const resolved = said(() => planOf({ ...all, query: { ...other } }))
  let bound: ReturnType<typeof bindPlan>
  try {
    bound = bindPlan(planTemplate, values)
  } catch (error) {
    if (error instanceof AppError) return { bound: { status: error.status, details: error.details }, resolved }
    throw error
  }
  if (bound === undefined) return undefined
  const { plan } = bound
  const statements = Object.values(compilers).map((compile) =>
    bindStatement(templateOfStatement(planTemplate, compile), bound),
  )
  expect(said(() => plan)).toEqual(statements)
  return { bound: statements, resolved }
}

const plain = (value: unknown) => JSON.parse(JSON.stringify(value)) as unknown

/** The filter with other values in the places of its strings, numbers and lists. */
function exchanged(filter: unknown, next: (old: unknown) => unknown): unknown {
  if (typeof filter === 'string' || typeof filter === 'number') return next(filter)
  if (Array.isArray(filter) && !filter.some((entry) => typeof entry === 'object' && entry !== null)) return next(filter)
  if (Array.isArray(filter)) return filter.map((entry) => exchanged(entry, next))
  if (typeof filter !== 'object' || filter === null) return filter
  return Object.fromEntries(Object.entries(filter).map(([key, entry]) => [key, exchanged(entry, next)]))
}

const scalar = fc.oneof(
  fc.integer({ min: -9, max: 1_000_000 }),
  fc.string({ maxLength: 9 }),
  fc.uuid(),
  fc.constantFrom(
    'true',
    'false',
    'null',
    '',
    '2024-05-01',
    '10:30',
    '2024-05-01T10:00:00Z',
    'draft',
    '7',
    "it's",
    '\0',
  ),
)
const list = fc.array(fc.oneof(scalar, fc.boolean(), fc.constant(null)), { maxLength: 4 })
/** A string or number for each of them, a list for a list; what could name a variable is never bound. */
const others = fc.array(fc.record({ scalar, list }), { minLength: 1, maxLength: 8 })

const namesVariable = (filter: unknown): boolean => JSON.stringify(filter ?? null).includes('$')

describe('a template bound to the values of another query is', () => {
  for (const [who, access] of Object.entries({ administrator: admin, role: limited }))
    it(`the statement of that query, for the ${who}`, () => {
      let compared = 0
      fc.assert(
        fc.property(hostileQueries, others, ({ query }, values) => {
          if (query.filter === undefined || namesVariable(query.filter)) return
          const one = plain(query) as Query
          let n = 0
          const next = (old: unknown) => {
            const value = values[n++ % values.length]!
            return Array.isArray(old) ? value.list : value.scalar
          }
          const other: Query = { ...one, filter: exchanged(one.filter, next) }
          if (namesVariable(other.filter) || templateOfFilter(other.filter).text !== templateOfFilter(one.filter).text)
            return
          const outcome = tryFilled(one, other, access)
          if (outcome === undefined) return
          expect(outcome.bound).toEqual(outcome.resolved)
          compared += 1
        }),
        { numRuns: 5_000 },
      )
      expect(compared).toBeGreaterThan(100)
    })

  /** Queries that are refused, or whose filter no guard lets through, have no template. */
  function tryFilled(one: Query, other: Query, access: typeof admin) {
    try {
      return boundWith(one, other, access)
    } catch (error) {
      if (error instanceof AppError && error.status < 500) return undefined
      throw error
    }
  }

  it.each<[string, unknown, unknown]>([
    ['values', { title: 'a', stars: { gte: 1, lt: 2 } }, { title: 'b', stars: { gte: 3, lt: '4' } }],
    ['lists of other lengths', { stars: { in: [1] } }, { stars: { in: [1, null, 2] } }],
    [
      'values behind relations',
      { 'owner.name': 'a', comments: { likes: 1 } },
      { 'owner.name': 'b', comments: { likes: 2 } },
    ],
    ['values in groups', { OR: [{ stars: 1 }, { NOT: { stars: 2 } }] }, { OR: [{ stars: 3 }, { NOT: { stars: 4 } }] }],
    ['bounds', { stars: { between: [1, 2] } }, { stars: { between: [3, 4] } }],
    ['patterns', { title: { startsWith: 'a%' } }, { title: { startsWith: '_b' } }],
    ['a value that is none of its type', { stars: 1 }, { stars: 'many' }],
    ['one bound', { stars: { between: [1, 2] } }, { stars: { between: [1] } }],
  ])('exact with other %s', (_what, one, other) => {
    const outcome = boundWith({ fields: ['id'], filter: one }, { fields: ['id'], filter: other })
    expect(outcome).toBeDefined()
    expect(outcome!.bound).toEqual(outcome!.resolved)
  })
})

describe('there is no template', () => {
  it.each<[string, unknown, unknown]>([
    ['for the type of a cast', { title: { eq: '1', cast: 'integer' } }, { title: { eq: '1', cast: 'text' } }],
    ['for parts of an operand', { meta: { jsonbContains: { k: 1 } } }, { meta: { jsonbContains: { k: 2 } } }],
    ['for a word that chooses another test', { title: { isNull: 'true' } }, { title: { isNull: 'false' } }],
    ['for a word that chooses another truth', { pinned: { is: 'true' } }, { pinned: { is: 'false' } }],
    ['for a relation that shall be missing', { owner: { isNull: 'true' } }, { owner: { isNull: 'false' } }],
  ])('%s', (_what, one, other) => {
    expect(boundWith({ fields: ['id'], filter: one }, { fields: ['id'], filter: other })).toBeUndefined()
  })
})

describe('a template tells apart', () => {
  it.each<[string, unknown, unknown]>([
    ['names', { a: 1 }, { b: 1 }],
    ['null and a value', { a: null }, { a: 1 }],
    ['true and false', { a: { isNull: true } }, { a: { isNull: false } }],
    ['a list and a value', { a: [1] }, { a: 1 }],
    ['a name that reads like the text of more', { 'a":?,"b': 1 }, { a: 1, b: 1 }],
    ['order', { a: 1, b: 2 }, { b: 2, a: 1 }],
  ])('%s', (_what, one, other) => {
    expect(templateOfFilter(one).text).not.toBe(templateOfFilter(other).text)
  })
})
