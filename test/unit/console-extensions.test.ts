import { describe, expect, it } from 'vitest'
import { answered, type Budget, fresh, heard, limits } from '../../console/src/extensions/budget.ts'
import { longestMessage, readMessage } from '../../console/src/extensions/messages.ts'

describe('messages of extensions', () => {
  const call = (name: string, args: unknown, id: unknown = 7) => JSON.stringify({ id, call: name, args })

  it('are read where they are exactly of their shape', () => {
    const good: [string, object][] = [
      ['items.list', { collection: 'note', query: {} }],
      ['items.list', { collection: 'note', query: { fields: ['a', 'b.c'], filter: { a: 1 }, limit: 0, count: true } }],
      ['items.get', { collection: 'note', id: 7 }],
      ['items.create', { collection: 'note', item: { a: { b: [] } } }],
      ['items.update', { collection: 'note', id: 'x', change: {} }],
      ['items.delete', { collection: 'note', id: '...' }],
      ['reports.run', { collection: 'note', query: { aggregate: { n: {} }, groupBy: ['a'] } }],
      ['value.set', { value: null }],
      ['resize', { height: 1.5 }],
      ['navigate', { to: '/' }],
      ['navigate', { to: '/data/note/7?asOf=2026-01-01#x' }],
      ['palette', {}],
      ['toast', { title: 'Hello', text: 'there' }],
    ]
    for (const [name, args] of good) expect(readMessage(call(name, args))).toEqual({ id: 7, call: name, args })
    expect(readMessage('{"pong":true}')).toEqual({ pong: true })
  })

  it('are refused with the number of their call where there is one', () => {
    const wrong: [string, unknown][] = [
      ['items.list', { collection: 'note' }],
      ['items.list', { collection: 'note', query: { limit: 1001 } }],
      ['items.list', { collection: 'note', query: { asOf: 'x' } }],
      ['items.list', { collection: 'note', query: [], more: 1 }],
      ['items.list', { collection: '..', query: {} }],
      ['items.list', { collection: 'a/b', query: {} }],
      ['items.get', { collection: 'note', id: '..' }],
      ['items.get', { collection: 'note', id: '.' }],
      ['items.get', { collection: 'note', id: '' }],
      ['items.create', { collection: 'note', item: 'text' }],
      ['items.create', null],
      ['resize', { height: -1 }],
      ['navigate', { to: '//example.com' }],
      ['navigate', { to: '/\\example.com' }],
      ['navigate', { to: '/\t/example.com' }],
      ['navigate', { to: 'https://example.com' }],
      ['navigate', { to: 'javascript:alert(1)' }],
      ['toast', { title: '' }],
      ['toast', { title: 'x'.repeat(201) }],
      ['drop', {}],
      ['__proto__', {}],
      ['constructor', {}],
    ]
    for (const [name, args] of wrong)
      expect(readMessage(call(name, args)), `${name} ${JSON.stringify(args)}`).toMatchObject({ id: 7 })
    for (const [name, args] of wrong) expect(readMessage(call(name, args))).toHaveProperty('problem')
    const polluting = '{"id":7,"call":"items.list","args":{"collection":"note","query":{}},"__proto__":{"x":1}}'
    expect(readMessage(polluting)).toHaveProperty('problem')
    expect(({} as { x?: unknown }).x).toBeUndefined()
  })

  it('are refused without a number where there is none, and never throw', () => {
    const numbers = [0, -1, 1.5, '7', null, {}, 2 ** 53].map((id) => call('toast', { title: 'x' }, id))
    const deep = `${'['.repeat(200_000)}`
    const others = [
      '',
      'null',
      '1',
      '[]',
      '{}',
      '{"pong":1}',
      '{"pong":true,"x":1}',
      'x'.repeat(longestMessage + 1),
      deep,
    ]
    for (const text of [...numbers, ...others]) expect(readMessage(text)).toMatchObject({ id: null })
    for (const value of [undefined, null, 7, {}, [], new Map(), { id: 1, call: 'toast' }])
      expect(readMessage(value)).toMatchObject({ id: null })
  })
})

describe('the budget of a frame', () => {
  const many = (budget: Budget, count: number, now: number, isCall = false) => {
    let last: readonly [Budget, string] = [budget, 'go']
    for (let i = 0; i < count; i += 1) last = heard(last[0], now, isCall)
    return last
  }

  it('ends a frame that says more at once than it may, and lets one that waits go on', () => {
    const [spent, verdict] = many(fresh(0), limits.burst, 0)
    expect(verdict).toBe('go')
    expect(heard(spent, 0, false)[1]).toBe('flood')
    expect(many(spent, limits.perSecond, 1000)[1]).toBe('go')
    expect(many(spent, limits.perSecond + 1, 1000)[1]).toBe('flood')
    // Unused messages are not saved up beyond the burst, and a clock that goes back gives nothing.
    expect(many(spent, limits.burst + 1, 1_000_000)[1]).toBe('flood')
    expect(heard(spent, -1000, false)[1]).toBe('flood')
  })

  it('refuses calls beyond those that are not answered yet', () => {
    const [full, verdict] = many(fresh(0), limits.inFlight, 0, true)
    expect([full.inFlight, verdict]).toEqual([limits.inFlight, 'go'])
    expect(heard(full, 0, true)).toMatchObject([{ inFlight: limits.inFlight }, 'busy'])
    expect(heard(full, 0, false)[1]).toBe('go')
    expect(heard(answered(full), 0, true)[1]).toBe('go')
  })
})
