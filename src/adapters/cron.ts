import type * as Croner from 'croner'
import { onFirstUse } from '../language/once.ts'

const croner = onFirstUse<typeof Croner>('croner')

/** A cron expression with five or six fields (seconds first), in UTC unless a time zone is named. */
type CronTimes = {
  /** The next moment after this one; undefined when there is none any more. */
  next(after: Date): Date | undefined
}

/** @throws {TypeError} that says what is wrong with the expression */
export function parseCron(expression: string, timezone = 'UTC'): CronTimes {
  const cron = new (croner().Cron)(expression, { timezone, paused: true })
  return { next: (after) => cron.nextRun(after) ?? undefined }
}
