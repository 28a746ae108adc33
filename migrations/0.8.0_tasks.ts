import { systemCollections } from '../src/catalog/system-collections.ts'
import type { MigrationContext, MigrationResult } from '../src/db/migrate.ts'

export const version = '0.8.0'
export const name = 'tasks'
export const description = 'Claims and progress of tasks, the bell that wakes their workers, schedules and locks.'
export const type = 'upgrade'

export async function up({ db, sql, schemaManager }: MigrationContext): Promise<MigrationResult> {
  const tasks = systemCollections.find(({ collectionName }) => collectionName === 'svc_Tasks')!
  await schemaManager.updateCollection(db, tasks)
  for (const statement of [bell, ...bellTriggers, ...tables]) await sql(statement)
  return { success: true }
}

// Silent for claims and outcomes: only what waits can be a reason to look.
const bell = `create function svc_notify_tasks() returns trigger language plpgsql as $$
  begin
    if exists (select from changed where task_status = 'Not started' and scheduled_time <= now() + interval '4 hours')
    then perform pg_notify('svc_tasks', '');
    end if;
    return null;
  end
$$`

const bellTriggers = ['insert', 'update'].map(
  (change) => `create trigger svc_notify_${change} after ${change} on "svc_Tasks" referencing new table as changed
    for each statement execute function svc_notify_tasks()`,
)

// When a schedule is due next, and who holds a lock until when. Neither is a collection.
const tables = [
  `create table "svc_TaskSchedule" (
    id text primary key,
    cron text not null,
    "nextAt" timestamptz not null
  )`,
  `create table "svc_TaskLock" (
    name text primary key,
    holder text not null,
    "expiresAt" timestamptz not null
  )`,
]
