import { AppError } from '../errors.ts'
import type { Actor } from './types.ts'

/** Reports the progress of long work to the user who began it. Quick work reports none. */
export type Progress = {
  /** Of many calls few are told. */
  at(message: string, data: object): void
  /** How it has ended. */
  ended(message: string, data: object): Promise<void>
}

export type ProgressNotices = {
  readonly progress: (actor: Actor, about: { readonly type: string; readonly title: string }) => Progress
}

/** Does something and tells how it has ended. */
export async function toldOf<Result>(
  progress: Progress,
  work: () => Promise<Result>,
  end: (result: Result) => { readonly message: string; readonly data: object },
): Promise<Result> {
  try {
    const result = await work()
    const { message, data } = end(result)
    await progress.ended(message, data)
    return result
  } catch (error) {
    const isClients = error instanceof AppError && error.status < 500
    await progress.ended(isClients ? error.message : 'It has failed', { failed: true })
    throw error
  }
}
