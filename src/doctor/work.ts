import type { Config } from '../config/config.ts'
import { type Reader, rawQuery, sql } from '../db/sql.ts'
import { areEffectsHeld, lastBackup } from '../db/unlogged/holds.ts'
import { consumerStates } from '../events/consumer.ts'
import { bossSchema, deadLetterQueues } from '../events/jobs.ts'
import { workersWithWork } from '../workers/names.ts'
import { type Finding, ok, problem, warning } from './finding.ts'

const start = (name: string) => `npx daybook worker ${name}`

/** Which processes have a connection just now. Behind a pooler that can't be told. */
export async function checkWorkers(db: Reader, config: Config): Promise<Finding[]> {
  const { database } = config
  const rows = await db.any<{ name: string }>(sql`
    select distinct split_part(application_name, ' ', 2) as name from pg_stat_activity
    where datname = current_database() and application_name like 'daybook %'`)
  const wanted = workersWithWork(config)
  const missing = wanted.filter((name) => !rows.some((row) => row.name === name))
  if (missing.length === 0) return [ok('workers', `running: ${wanted.join(', ')}`)]
  if (database.directUrl !== undefined && database.directUrl !== database.url)
    return [ok('workers', 'a pooler hides which run')]
  return [warning('workers', `not running: ${missing.join(', ')}`, missing.map(start).join('; '))]
}

const silentSeconds = 300

/** When a worker last looked at the schedules, which any of them does every half minute. */
export async function checkSchedules(db: Reader): Promise<Finding> {
  const { seconds } = await db.one<{ seconds: number | null }>(
    rawQuery(`select extract(epoch from now() - max(cron_on))::float8 as seconds from ${bossSchema}.version`),
  )
  if (seconds === null) return warning('schedules', 'no worker has ever looked at them', start('log-cleanup'))
  const says = `last looked at ${Math.max(0, Math.round(seconds))} s ago`
  return seconds < silentSeconds ? ok('schedules', says) : warning('schedules', says, start('log-cleanup'))
}

const lateSeconds = 300

/** Jobs that wait though they are due, and those that were given up. */
export async function checkBacklog(db: Reader): Promise<Finding[]> {
  const rows = await db.any<{ name: string; late: number; dead: number; seconds: number | null }>(
    rawQuery(
      `select name, count(*) filter (where start_after < now() - make_interval(secs => $1) and not name = any ($2))::int as late,
         count(*) filter (where name = any ($2))::int as dead,
         extract(epoch from now() - min(start_after))::float8 as seconds
       from ${bossSchema}.job where state < 'active' group by name order by name`,
      [lateSeconds, deadLetterQueues],
    ),
  )
  const found = rows.flatMap(({ name, late, dead, seconds }) => [
    ...(late > 0
      ? [
          warning(
            'backlog',
            `${late} jobs of ${name} are overdue, the oldest by ${Math.round((seconds ?? 0) / 60)} minutes`,
            'start the worker, or more of it; GET /ops/jobs says why attempts fail',
          ),
        ]
      : []),
    ...(dead > 0
      ? [
          warning(
            'dead letters',
            `${dead} in ${name}`,
            'look at GET /ops/jobs?state=dead, fix the cause, then redrive them',
          ),
        ]
      : []),
  ])
  return found.length > 0 ? found : [ok('backlog', 'no job is overdue, none was given up')]
}

/** Whether the schedule of backups is kept, and whether a copy is held back. */
export async function checkBackups(db: Reader, { backup }: Config): Promise<Finding[]> {
  const held = (await areEffectsHeld(db))
    ? [warning('hold', 'restored with --hold: no mail, webhook, workflow or task runs', 'npx daybook resume')]
    : []
  if (backup.schedule === undefined) return [...held, ok('backups', 'none is scheduled (BACKUP_SCHEDULE)')]
  const { hours, error } = await lastBackup(db)
  const remedy = `see that the worker log-cleanup runs${error === null ? '' : `; the last attempt has failed: ${error}`}`
  if (hours === null) return [...held, warning('backups', 'none was made yet', remedy)]
  const says = `the last one is ${Math.round(hours)} hours old`
  return [...held, hours > backup.maxAgeHours ? problem('backups', says, remedy) : ok('backups', says)]
}

/** Tasks that wait though they are due. */
export async function checkTasks(db: Reader, { tasks }: Config): Promise<Finding[]> {
  const { late } = await db.one<{ late: number }>(
    rawQuery(
      `select count(*)::int as late from "svc_Tasks" where task_status = 'Not started' and status is distinct from 'archived'
       and greatest(scheduled_time, retry_at) < now() - make_interval(secs => $1)`,
      [lateSeconds],
    ),
  )
  if (late === 0) return []
  const says = `${late} tasks are overdue`
  if (!tasks.enabled) return [warning('tasks', says, 'set TASK_SERVICE_ENABLED=true and run npx daybook worker tasks')]
  return [warning('tasks', says, 'start a worker, or more of it: npx daybook worker tasks')]
}

/** Consumers of the log, and whether they can go on. */
export async function checkConsumers(db: Reader): Promise<Finding[]> {
  const states = await consumerStates(db)
  const found = states.flatMap(({ name, state, reason, lagSeconds, setAside }) => [
    ...(state === 'halted'
      ? [problem('consumers', `${name} has halted: ${reason}`, `fix it, then npx daybook consumers skip ${name}`)]
      : []),
    ...(state === 'stopped'
      ? [problem('consumers', `${name} has stopped: ${reason}`, `npx daybook consumers reset ${name} --to beginning`)]
      : []),
    ...(state === 'running' && lagSeconds > lateSeconds
      ? [warning('consumers', `${name} is ${Math.round(lagSeconds / 60)} minutes behind`, 'start its worker')]
      : []),
    ...(setAside > 0
      ? [
          warning(
            'consumers',
            `${name} has set ${setAside} events aside`,
            `npx daybook consumers list says why; then retry or skip them`,
          ),
        ]
      : []),
  ])
  return found.length > 0 ? found : [ok('consumers', states.length === 0 ? 'none' : `${states.length} follow the log`)]
}
