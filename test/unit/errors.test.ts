import { STATUS_CODES } from 'node:http'
import { expect, it } from 'vitest'
import { AppError } from '../../src/errors.ts'

it('gives every error a code: its own, or the name of its status', () => {
  expect(new AppError(403, 'no', { code: 'REGISTRATION_DISABLED' }).code).toBe('REGISTRATION_DISABLED')
  expect(new AppError(404, 'no').code).toBe('NOT_FOUND')
  expect(new AppError(414, 'no').code).toBe('URI_TOO_LONG')
  expect(new AppError(499, 'no').code).toBe('BAD_REQUEST')
  for (const status of Object.keys(STATUS_CODES).filter((code) => Number(code) >= 400))
    expect(new AppError(Number(status), '').code).toMatch(/^[A-Z][A-Z_]+[A-Z]$/)
})
