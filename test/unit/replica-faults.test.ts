import { describe, expect, it } from 'vitest'
import { isReplicaFault } from '../../src/db/replicas/replicas.ts'
import { AppError, errors } from '../../src/errors.ts'

const sql = (code: string, message = 'of the database') => Object.assign(new Error(message), { code })

describe('a read that failed on a replica', () => {
  it.each([
    ['a conflict with recovery', sql('40001')],
    ['a deadlock with it', sql('40P01')],
    ['a lock that replaying holds', sql('55P03')],
    ['a table that is not there yet', sql('42P01')],
    ['a column that is not there yet', sql('42703')],
    ['a plan of a table that has changed', sql('0A000', 'cached plan must not change result type')],
    ['a standby that starts', sql('57P03')],
    ['a standby that stops', sql('57P01')],
    ['too many connections', sql('53300')],
    ['a moment that has not come there yet', sql('SV416')],
    ['a cut line', sql('ECONNRESET')],
    ['a line that ended', new Error('Connection terminated unexpectedly')],
    ['no connection in time', Object.assign(errors.unavailable(), { cause: new Error('timeout exceeded') })],
  ])('by %s is repeated on the primary', (_why, error) => {
    expect(isReplicaFault(error)).toBe(true)
  })

  it.each([
    ['a value that does not fit', sql('22P02')],
    ['what PostgreSQL cannot do', sql('0A000', 'cannot convert infinity to integer')],
    ['the statement timeout', sql('57014')],
    ['a moment older than the log', sql('SV410')],
    ['a client that is gone', new AppError(499, 'gone', { cause: sql('57014') })],
    ['what the caller may not read', new AppError(403, 'Forbidden')],
    ['a mistake of ours', new TypeError('undefined is not a function')],
  ])('by %s is not', (_why, error) => {
    expect(isReplicaFault(error)).toBe(false)
  })
})
