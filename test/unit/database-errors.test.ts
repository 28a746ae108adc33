import { BackendTerminatedError, BackendTerminatedUnexpectedlyError, ConnectionError } from 'slonik'
import { describe, expect, it } from 'vitest'
import {
  AnswerLost,
  clientError,
  exposedWords,
  isConnectionLoss,
  isDatabaseGone,
  keyColumnsOf,
  reasonInWords,
  sqlState,
} from '../../src/db/errors.ts'
import { errors } from '../../src/errors.ts'

describe('an error of the database', () => {
  it.each(['42P01', '57P01', 'XX000', 'SV410'])('has the state %s', (code) => {
    expect(sqlState(new Error('of PostgreSQL', { cause: Object.assign(new Error(), { code }) }))).toBe(code)
  })

  it.each(['EPIPE', 'ECONNRESET', 'ECONNREFUSED', 'ETIMEDOUT', 'EHOSTUNREACH', 'ENETUNREACH', 'ECONNABORTED'])(
    'is a lost connection where the system says %s',
    (code) => {
      const error = Object.assign(new Error('write'), { code })
      expect([sqlState(error), isConnectionLoss(error)]).toEqual([undefined, true])
      expect(clientError(error)).toMatchObject({ status: 503 })
    },
  )

  it.each([
    'Connection terminated unexpectedly',
    'timeout exceeded when trying to connect',
    'Client has encountered a connection error and is not queryable',
    'Client was closed and is not queryable',
    'Connection terminated due to connection timeout',
    'connection terminated: the server has been silent for 2500 ms',
    'timeout expired',
    'Query read timeout',
    'Client is pending destroy.',
    'Client is destroyed.',
  ])('is a lost connection where pg says %j', (message) => {
    expect([isConnectionLoss(new Error(message)), clientError(new Error(message))]).toMatchObject([
      true,
      { status: 503 },
    ])
  })

  const reset = Object.assign(new Error('read ECONNRESET'), { code: 'ECONNRESET' })
  it.each([
    new ConnectionError('getaddrinfo', { cause: new Error('getaddrinfo') }),
    new BackendTerminatedError(new Error('terminating connection due to administrator command')),
    new BackendTerminatedUnexpectedlyError(new Error('Connection terminated unexpectedly')),
    new Error('something of a library', { cause: reset }),
    ...['57P01', '57P02', '57P03', '08006'].map((code) => Object.assign(new Error('of PostgreSQL'), { code })),
  ])('is a lost connection where slonik or the server says %s', (error) => {
    expect(isConnectionLoss(error)).toBe(true)
    expect(clientError(error)).toMatchObject({ status: 503, headers: { 'retry-after': '1' } })
  })

  it.each([
    Object.assign(new Error('connection terminated, says a trigger'), { code: 'P0001' }),
    new Error('a mistake of ours'),
    errors.conflict('connection terminated'),
    undefined,
  ])('is no lost connection where it is %s', (error) => {
    expect(isConnectionLoss(error)).toBe(false)
  })

  it.each([
    new ConnectionError('connect ECONNREFUSED', { cause: new Error('connect ECONNREFUSED') }),
    new Error('Connection terminated unexpectedly'),
    new Error('of our own', { cause: Object.assign(new Error('of PostgreSQL'), { code: '57P01' }) }),
    errors.outcomeUnknown(new AnswerLost(reset, 1)),
  ])('tells that the database went away: %s', (error) => {
    expect(isDatabaseGone(error)).toBe(true)
  })

  it.each([
    reset,
    new TypeError('fetch failed', { cause: reset }),
    new Error('Query read timeout'),
    Object.assign(new Error('canceling statement due to statement timeout'), { code: '57014' }),
    undefined,
  ])('may be of something else, or of the statement: %s', (error) => {
    expect(isDatabaseGone(error)).toBe(false)
  })

  it('of a write whose answer was lost does not tell to write again', () => {
    const { status, code, headers } = clientError(new AnswerLost(reset, 1))!
    expect([status, code, headers]).toEqual([503, 'OUTCOME_UNKNOWN', undefined])
  })
})

describe('what is told of an error of the database', () => {
  const of = (code: string, more: object) => Object.assign(new Error('secret in the message'), { code, ...more })

  it.each([
    ['23505', 'Key (a, "Some")=(1, secret) already exists.', 'Key (a, Some) already exists'],
    ['23505', 'Key (a)=((b)=(secret)) already exists.', 'Key (a) already exists'],
    ['23505', 'Key (lower(a))=((b)=(secret)) already exists.', undefined],
    ['23505', undefined, undefined],
    ['23503', 'Key (a)=(secret) is not present in table "other".', 'Key (a) refers to no record'],
    ['23503', 'Key (id)=(secret) is still referenced from table "other".', 'Key (id) is still referenced'],
    ['23503', 'Schlüssel (id)=(secret) existiert noch in der Tabelle »other«.', undefined],
    ['23001', 'Key (id)=(secret) is referenced from table "other".', 'Key (id) is still referenced'],
    ...['23502', '23514', '23P01', '22P02', '22001', '22003', '22007', '22008', '2201B', '22023', '54000'].map(
      (code) => [code, 'Failing row contains (secret, (a)=(secret)).', undefined] as const,
    ),
    ['57014', undefined, 'secret in the message'],
    ['40P01', 'Process 1 waits for process 2.', 'Process 1 waits for process 2.'],
  ] as const)('%s: %s', (code, detail, words) => {
    const error = new Error('of slonik', { cause: of(code, { detail }) })
    expect(exposedWords(error)).toBe(words)
    expect(JSON.stringify([clientError(error)?.message, clientError(error)?.details])).not.toMatch(/secret|other/)
  })

  it('names no columns but those of a key', () => {
    expect(keyColumnsOf(of('23505', { detail: 'Key (a, b)=(1, 2) already exists.' }))).toEqual(['a', 'b'])
    expect(keyColumnsOf(of('23514', { detail: 'Failing row contains (a)=(b).' }))).toEqual([])
    expect(keyColumnsOf(errors.conflict('Key (a)=(b)'))).toEqual([])
  })
})

describe('the reason that anybody is told', () => {
  const coded = (code: string) => Object.assign(new Error('connect to db.example as app'), { code })

  it.each([
    [coded('ECONNREFUSED'), 'connection refused'],
    [Object.assign(new AggregateError([]), { code: 'ECONNREFUSED' }), 'connection refused'],
    [coded('ENOTFOUND'), 'host name not resolved'],
    [coded('53300'), 'too many connections'],
    [coded('53200'), 'out of resources'],
    [coded('28P01'), 'sign-in refused'],
    [coded('57P03'), 'the database is starting or stopping'],
    [coded('42P01'), 'error 42P01 of the database'],
    [new ConnectionError('getaddrinfo', { cause: coded('EAI_AGAIN') }), 'host name not resolved'],
    [Object.assign(errors.unavailable(), { cause: coded('ECONNRESET') }), 'connection reset'],
    [new Error('timeout exceeded when trying to connect'), 'no answer in time'],
    [new Error('connection terminated: the server has been silent for 2500 ms'), 'no answer in time'],
    [new Error('Connection terminated unexpectedly'), 'connection lost'],
    [new Error('select secret from db.example'), 'unexpected error'],
  ])('of %s is %s', (error, words) => {
    expect(reasonInWords(error)).toBe(words)
  })
})
