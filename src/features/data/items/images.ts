import { isMisfit } from '../../../db/errors.ts'
import { errors } from '../../../errors.ts'
import type { Images } from '../../../query/sql.ts'

/**
 * Reads images of the log whole, and again as far as they fit where a value of then does not fit its column of today: what
 * fits costs nothing that way. Not within a transaction, which the first failure would end.
 */
export async function readImages<T>(read: (images: Images) => Promise<T>): Promise<T> {
  try {
    return await read('whole')
  } catch (error) {
    if (!isMisfit(error)) throw error
    return read('fitting')
  }
}

/** @throws {AppError} 400 that names fields whose value of then does not fit them, where they would be written; nothing for none */
export function refuseMisfits(fields: readonly string[]): void {
  if (fields.length === 0) return
  const message = 'the value that the log holds does not fit the field as it is today'
  throw errors.validation(fields.map((field) => ({ field, message, rule: 'type' })))
}
