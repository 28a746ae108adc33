import { AppError } from '../../errors.ts'

/** The acknowledgement of a socket message that failed: `{status: 'error', code, message}`; a fault of ours tells no more. */
export function errorAnswer(error: unknown): { status: 'error'; code: string; message: string } {
  const { code, message } = error instanceof AppError ? error : new AppError(500, 'Internal server error')
  return { status: 'error', code, message }
}
