import { globSync, readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { readPayload } from '../../src/features/data/items/payload.ts'
import { orderOf } from '../../src/features/data/undo/order.ts'
import { firstRepeated, withoutLastSlashes } from '../../src/language/text.ts'
import { parseListQuery } from '../../src/query/parse.ts'
import { collectionOf } from '../support/log.ts'

/** What a caller may send much of takes work in proportion to it. */

const many = 2000
const places = Array.from({ length: many }, (_, place) => place)

/** The elements of arrays that iterations and spreads go over while `work` runs. */
function elementsPassed(work: () => unknown): number {
  const own = Array.prototype[Symbol.iterator]
  let passed = 0
  Array.prototype[Symbol.iterator] = function* (this: unknown[]) {
    for (let at = 0; at < this.length; at += 1) {
      passed += 1
      yield this[at]
    }
  } as typeof own
  try {
    work()
  } finally {
    Array.prototype[Symbol.iterator] = own
  }
  return passed
}

describe('work that grows with the request', () => {
  it('finds a repeated name in one pass', () => {
    const once = (...names: string[]) => names.values()
    expect(firstRepeated(once('a', 'b', 'c', 'b', 'a'))).toBe('b')
    expect(firstRepeated(once('a', 'b'))).toBeUndefined()
  })

  it('folds parameters with brackets in one pass', () => {
    const query = Object.fromEntries(places.map((place) => [`filter[field${place}]`, place]))
    const parse = () => expect(() => parseListQuery(query)).toThrow('Invalid query parameters')
    expect(elementsPassed(parse)).toBeLessThan(50 * many)
  })

  it('orders rows that refer to the same row in one pass', () => {
    const none = { offers: [], leaves: [], needs: new Map(), releases: new Map(), takes: [], frees: [] }
    const parent = { ...none, action: 'delete', offers: ['parent 1'] } as const
    const children = places.map((place) => ({
      ...none,
      action: 'delete' as const,
      offers: [`child ${place}`],
      releases: new Map([['parent_Id', { place: 'parent 1', canWait: false, holds: false }]]),
    }))
    let waves: ReturnType<typeof orderOf>
    expect(elementsPassed(() => (waves = orderOf([parent, ...children])))).toBeLessThan(50 * many)
    expect(waves!.map((wave) => wave.length)).toEqual([many, 1])
  })

  it('looks for a missing field among the problems of its row only', () => {
    const collection = collectionOf('line', {
      id: { kind: 'uuid', nullable: true },
      name: { kind: 'text', nullable: false },
    })
    const context = {
      action: 'create',
      access: { admin: true },
      collection,
      config: { tenancy: { enabled: false } },
      rules: new Map(),
    }
    let looks = 0
    const ofOthers = places.map(() => ({
      get field() {
        looks += 1
        return 'lines.0.name'
      },
      message: 'is required',
      rule: 'notNull' as const,
    }))
    const problems = { fields: [...ofOthers], relations: [] }
    readPayload(context as never, {}, { problems, label: 'lines.1.' })
    expect(problems.fields.at(-1)).toMatchObject({ field: 'lines.1.name', message: 'is required' })
    expect(problems.fields.length).toBe(many + 1)
    expect(looks).toBe(0)
  })
})

describe('the sources', () => {
  const sources = globSync('src/**/*.ts').map((file) => ({ file, text: readFileSync(file, 'utf8') }))
  const having = (pattern: RegExp) => sources.filter(({ text }) => pattern.test(text)).map(({ file }) => file)

  it('look no name up among the others to find one twice', () => {
    expect(having(/indexOf\((\w+)\) [!=]== \w+|findIndex\(.*\) </)).toEqual([])
  })

  // It is tried from each slash of a run that does not end the text.
  it('take the slashes from the end of a text by a look back', () => {
    expect(['http://a/b//', 'a//b', '//', ''].map(withoutLastSlashes)).toEqual(['http://a/b', 'a//b', '', ''])
    expect(having(/[^)]\\\/\+\$\//)).toEqual([])
  })
})
