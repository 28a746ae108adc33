import pino from 'pino'
import { expect, it } from 'vitest'
import { isNews, openFailures, reasonOf } from '../../src/adapters/failures.ts'

const minute = 60_000

it.each([
  [new Map(), true],
  [new Map([['another', minute]]), true],
  [new Map([['reason', minute]]), false],
  [new Map([['reason', 1]]), false],
  [new Map([['reason', 0]]), true],
])('a failure is news where it has not been told for a minute: %j', (told, isToBeTold) => {
  expect(isNews(told, 'reason', minute)).toBe(isToBeTold)
})

it('the reason of a failure leaves out what differs between attempts', () => {
  const silent = (ms: number) => new Error(`the server has been silent for ${ms} ms`)
  expect(reasonOf(silent(2500))).toBe(reasonOf(silent(2613)))
  expect(reasonOf(Object.assign(new AggregateError([]), { code: 'ECONNREFUSED' }))).toBe('ECONNREFUSED')
  const refused = Object.assign(new Error('connect ECONNREFUSED 127.0.0.1:5432'), { code: 'ECONNREFUSED' })
  expect(reasonOf(new Error('temporarily unavailable', { cause: refused }))).toBe('ECONNREFUSED')
  expect(reasonOf('a text')).toBe('a text')
})

it('failures in a row are told once for each reason, and their end once', () => {
  const lines: Record<string, unknown>[] = []
  const log = pino({ level: 'debug', base: null, timestamp: false }, { write: (line) => lines.push(JSON.parse(line)) })
  const failures = openFailures({ log }, 'it could not be done', { queue: 'mail' })
  failures.worked()
  const counts = ['refused', 'refused', 'starting up', 'refused'].map((reason) => failures.failed(reason))
  failures.worked()
  failures.worked()
  const again = failures.failed('refused')
  expect([...counts, again]).toEqual([1, 2, 3, 4, 1])
  const { warn, info, debug } = pino.levels.values
  const about = { queue: 'mail', msg: 'it could not be done' }
  expect(lines).toEqual([
    { level: warn, ...about, err: 'refused', failures: 1 },
    { level: debug, ...about, err: 'refused', failures: 2 },
    { level: warn, ...about, err: 'starting up', failures: 3 },
    { level: debug, ...about, err: 'refused', failures: 4 },
    { level: info, queue: 'mail', failures: 4, msg: 'works again, after: it could not be done' },
    { level: warn, ...about, err: 'refused', failures: 1 },
  ])
})
