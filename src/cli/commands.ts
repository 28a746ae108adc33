import type { CommandModule } from './command.ts'

type ListedCommand = { readonly about: string; readonly load: () => Promise<CommandModule> }

/** THE list: every command of `npx daybook`, with the line that help prints. */
export const commands: Readonly<Record<string, ListedCommand>> = {
  init: {
    about: 'makes a project in a new directory',
    load: () => import('./init.ts'),
  },
  start: {
    about: 'runs everything: PostgreSQL, setup, the web process and the workers',
    load: () => import('./start.ts'),
  },
  setup: {
    about: 'the release step: brings the database to this version; --json',
    load: () => import('./setup.ts'),
  },
  web: {
    about: 'one web process',
    load: () => import('./web.ts'),
  },
  worker: {
    about: 'one worker process: mail, tasks, log-cleanup, cache-invalidation, webhooks or workflows',
    load: () => import('./worker.ts'),
  },
  backup: {
    about: 'FILE: everything that is in the database, and the files, as of one moment, while it is used',
    load: () => import('./backup.ts'),
  },
  consumers: {
    about: 'list, reset, skip and retry: who follows the log, where they are, and what they have set aside',
    load: () => import('./consumers.ts'),
  },
  doctor: {
    about: 'checks configuration, database, Redis, SMTP and storage, and says how to mend what is wrong; --json',
    load: () => import('./doctor.ts'),
  },
  erase: {
    about: 'the images of one item in the log, for ever',
    load: () => import('./erase.ts'),
  },
  'export-tenant': {
    about: 'ID-OR-NAME: what a tenant may know of itself, rows and files, in a directory',
    load: () => import('./export-tenant.ts'),
  },
  'export-user': {
    about: 'everything the log holds about a user, one JSON object a line',
    load: () => import('./export-user.ts'),
  },
  files: {
    about: 'verify: compares files with their content; migrate: moves them to another service or to folders',
    load: () => import('./files.ts'),
  },
  log: {
    about: 'tail, export, head and verify: the log of every change',
    load: () => import('./log.ts'),
  },
  migrate: {
    about: 'status, run, rollback, create and lint: the migrations of this installation',
    load: () => import('./migrate.ts'),
  },
  restore: {
    about: 'FILE: makes the installation of a backup again, in an empty database',
    load: () => import('./restore.ts'),
  },
  resume: {
    about: 'lets a copy that was restored with --hold send mails, call webhooks and run tasks',
    load: () => import('./resume.ts'),
  },
  types: {
    about: 'the collections as TypeScript, for the client: of this installation, a server or a file of definitions',
    load: () => import('./types.ts'),
  },
}
