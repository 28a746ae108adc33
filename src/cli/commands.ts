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
    load: async () => (await import('./processes.ts')).start,
  },
  setup: {
    about: 'the release step: brings the database to this version; --json',
    load: async () => (await import('./processes.ts')).setup,
  },
  web: {
    about: 'one web process',
    load: async () => (await import('./processes.ts')).web,
  },
  worker: {
    about: 'one worker process: mail, tasks, log-cleanup, cache-invalidation, webhooks or workflows',
    load: async () => (await import('./processes.ts')).worker,
  },
  backup: {
    about: 'FILE: backs up the database and the files, as of one moment, while everything runs',
    load: () => import('./backup.ts'),
  },
  consumers: {
    about: 'list, reset, skip and retry: consumers of the log, their places, and the events that they have set aside',
    load: () => import('./consumers.ts'),
  },
  doctor: {
    about: 'checks configuration, database, Redis, SMTP and storage, and says how to fix each problem; --json',
    load: () => import('./doctor.ts'),
  },
  erase: {
    about: 'erases the recorded values of one item from the log, permanently',
    load: async () => (await import('./history.ts')).erase,
  },
  'export-tenant': {
    about: 'ID-OR-NAME: exports the rows and files of a tenant into a directory',
    load: async () => (await import('./backup.ts')).tenantExport,
  },
  'export-user': {
    about: 'exports everything that the log holds about a user, one JSON object a line',
    load: async () => (await import('./history.ts')).userExport,
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
  project: {
    about: 'export and apply: the definition of a product as files, to keep in git and move between installations',
    load: () => import('./project.ts'),
  },
  restore: {
    about: 'FILE: restores a backup into an empty database; or one collection or tenant',
    load: () => import('./restore.ts'),
  },
  resume: {
    about: 'lets a copy that was restored with --hold send mails, call webhooks and run tasks',
    load: async () => (await import('./restore.ts')).resume,
  },
  types: {
    about:
      'writes the collections as TypeScript, for the client: of this installation, a server or a file of definitions',
    load: () => import('./types.ts'),
  },
}
