import { describe, expect, it } from 'vitest'
import { clientError, isConnectionLoss, sqlState } from '../../src/db/errors.ts'

describe('an error of the database', () => {
  it.each(['42P01', '57P01', 'XX000', 'SV410'])('has the state %s', (code) => {
    expect(sqlState(new Error('of PostgreSQL', { cause: Object.assign(new Error(), { code }) }))).toBe(code)
  })

  it.each(['EPIPE', 'ECONNRESET', 'ECONNREFUSED'])('is a lost connection where the system says %s', (code) => {
    const error = Object.assign(new Error('write'), { code })
    expect([sqlState(error), isConnectionLoss(error)]).toEqual([undefined, true])
    expect(clientError(error)).toMatchObject({ status: 503 })
  })

  it.each([
    'Connection terminated unexpectedly',
    'timeout exceeded when trying to connect',
    'Client has encountered a connection error and is not queryable',
    'Client was closed and is not queryable',
  ])('is a lost connection where pg says %j', (message) => {
    expect([isConnectionLoss(new Error(message)), clientError(new Error(message))]).toMatchObject([
      true,
      { status: 503 },
    ])
  })
})
