import { Cron } from 'croner'

/** A cron expression with five or six fields (seconds first), in UTC unless a time zone is named. */
type CronTimes = {
  /** The next moment after this one; undefined when there is none any more. */
  next(after: Date): Date | undefined
}

/** @throws {TypeError} that says what is wrong with the expression */
export function parseCron(expression: string, timezone = 'UTC'): CronTimes {
  const cron = new Cron(expression, { timezone, paused: true })
  return { next: (after) => cron.nextRun(after) ?? undefined }
}
