import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { AppError } from '../../../src/errors.ts'
import { compileCount, compileList, compileStream } from '../../../src/query/compile.ts'
import type { Statement } from '../../../src/query/sql.ts'
import { planOf } from './support/compiled.ts'
import { hostileQueries, MARK } from './support/queries.ts'

/** The statements of a query, or nothing when it is refused. Anything but a refusal is a failure. */
function statementsOf(collection: string, query: Record<string, unknown>): Statement[] {
  try {
    const plan = planOf({ collection, query, env: { postgis: true, vector: true } })
    return [compileList(plan), compileStream(plan), compileCount(plan)]
  } catch (error) {
    if (error instanceof AppError && error.status < 500) return []
    throw error
  }
}

describe('a query of any words and values', () => {
  it('puts none of its strings into the text of a statement', () => {
    fc.assert(
      fc.property(hostileQueries, ({ collection, query }) => {
        for (const { text } of statementsOf(collection, query)) expect(text).not.toContain(MARK)
      }),
      { numRuns: 2_000 },
    )
  })

  it('binds exactly the values that its text names', () => {
    fc.assert(
      fc.property(hostileQueries, ({ collection, query }) => {
        for (const { text, values } of statementsOf(collection, query)) {
          const named = new Set(text.match(/\$\d+/g))
          expect([...named].sort()).toEqual(values.map((_, i) => `$${i + 1}`).sort())
        }
      }),
      { numRuns: 2_000 },
    )
  })

  it('resolves often enough for the above to mean something', () => {
    const samples = fc.sample(hostileQueries, { numRuns: 500, seed: 7 })
    const resolved = samples.filter(({ collection, query }) => statementsOf(collection, query).length > 0)
    expect(resolved.length).toBeGreaterThan(100)
  })
})
