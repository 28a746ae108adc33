import { boolean, integer, matching, plainName, text } from '../parsers.ts'
import { group, optional, optionalSecret, variable } from '../variable.ts'

/* Backups: docs/backup.md. */

const cron = matching(/^\S+(\s+\S+){4}$/, 'cron expression of five fields')

export const backup = group('Backups', {
  schedule: optional(
    'BACKUP_SCHEDULE',
    cron,
    'When the worker log-cleanup makes a backup, as a cron expression in UTC, e.g. `0 2 * * *`; without it none is made by itself',
  ),
  storage: optional(
    'BACKUP_STORAGE',
    plainName,
    'Storage service of STORAGE_SERVICES_ENABLED that these backups are kept in, under `backups/`',
  ),
  keep: variable(
    'BACKUP_KEEP',
    integer({ min: 1, max: 10_000 }),
    '14',
    'How many of them are kept; the oldest goes first',
  ),
  maxAgeHours: variable(
    'BACKUP_MAX_AGE_HOURS',
    integer({ min: 1, max: 87_600, unit: 'hours' }),
    '36',
    'Age of the newest one at which the doctor and a mail to administrators say so',
  ),
  beforeUpgrade: variable(
    'BACKUP_BEFORE_UPGRADE',
    boolean,
    'false',
    'Setup makes a backup in BACKUP_STORAGE before it migrates a database of an earlier version',
  ),
  passphrase: optionalSecret(
    'BACKUP_PASSPHRASE',
    text,
    'With it the keys of the installation are in its backups, encrypted, and open with nothing else; without it they are not',
  ),
})
