import { STATUS_CODES } from 'node:http'
import { AppError } from '../../errors.ts'

/**
 * What code of an extension means by throwing something that states a `status` (or `statusCode`) from 400 to 499, an error
 * or a plain object: the caller is refused, with its `message` and, where it has one, its `code`. Undefined for anything
 * else that is thrown. One rule for hooks, endpoints and the handlers of messages.
 */
export function statedRefusal(thrown: unknown, code?: string): AppError | undefined {
  if (thrown instanceof AppError) return thrown
  if (thrown === null || typeof thrown !== 'object') return undefined
  const stated = thrown as { status?: unknown; statusCode?: unknown; message?: unknown; code?: unknown }
  const status = stated.status ?? stated.statusCode
  if (typeof status !== 'number' || !Number.isInteger(status) || status < 400 || status > 499) return undefined
  const hasWords = typeof stated.message === 'string' && stated.message !== ''
  const words = hasWords ? (stated.message as string) : (STATUS_CODES[status] ?? 'Refused')
  const own = typeof stated.code === 'string' && /^[A-Z][A-Z0-9_]*$/.test(stated.code) ? stated.code : code
  return new AppError(status, words, { cause: thrown, ...(own !== undefined && { code: own }) })
}
