import { parseArgs } from 'node:util'
import { parseInstallation } from '../config/config.ts'
import type { Env } from '../config/variable.ts'
import type { MigrationType } from '../events/direct-session.ts'
import { systemActor } from '../events/types.ts'
import {
  createMigration,
  type MigrationHost,
  type MigrationRecord,
  type MigrationRunner,
  markAllCompleted,
  markCompleted,
  migrationTypes,
  pendingOf,
  previewRun,
  previewSql,
  type RunPreview,
  readOnce,
  retryFailed,
  rollbackBatch,
  rollbackOne,
  runMigrations,
  statusOf,
  withRunner,
} from '../features/data/migrations/migrations.ts'
import { type Command, UsageError, unknownCommand } from './command.ts'
import { onInstallation } from './installation.ts'

export const usage = `Usage: daybook migrate <command> [--json]
  status                                    what is applied and what is pending; exit code 3 when something is
  run [--version V | --to V]                runs the pending ones; waits for another runner
      [--dry-run [--sql]]                   only shows what would run; with its SQL, and the traffic that it would stop
  rollback <version> [--reason R]           rolls one back
  rollback --batch [--reason R]             rolls the last batch back
  retry <version> [--reason R]              does again what has failed: its run, or its rollback
  mark-completed <version>                  records it as done without running it; a failed one too, where its changes are there
  mark-completed --all [--to V]             the same of every pending one, up to V
  create <name> [--type T] [--description D]  writes a new script into MIGRATIONS_DIR
  lint [--version V | --to V]               the traffic that pending scripts would stop; exit code 3 with findings
Exit codes: 0 done, 1 failed, 2 wrong usage, 3 see above.
`

/** The command line's migrations: the API's by other means, on the database and the directory of the configuration. */
export const run: Command = async ([name = '', ...args]) => {
  const command = Object.hasOwn(commands, name) ? commands[name] : undefined
  if (command === undefined) throw unknownCommand('daybook migrate', name, Object.keys(commands))
  const { values, positionals } = parseArgs({ args, options, allowPositionals: true })
  return onInstallation((env) => command(hostOf(env), values, positionals))
}

const options = {
  json: { type: 'boolean' },
  version: { type: 'string' },
  to: { type: 'string' },
  'dry-run': { type: 'boolean' },
  sql: { type: 'boolean' },
  batch: { type: 'boolean' },
  all: { type: 'boolean' },
  reason: { type: 'string' },
  type: { type: 'string' },
  description: { type: 'string' },
} as const

type MigrateOptions = ReturnType<typeof parseArgs<{ options: typeof options }>>['values']
type Subcommand = (host: MigrationHost, values: MigrateOptions, positionals: readonly string[]) => Promise<number>

const somethingFound = 3

const commands: Readonly<Record<string, Subcommand>> = {
  status: async (host, { json }) => {
    const migrations = await readOnce(host)
    const status = statusOf(migrations)
    const pending = pendingOf(migrations).map(({ record }) => record)
    const summary = `version ${status.currentVersion}, ${status.appliedCount} applied, ${status.pendingCount} pending`
    show(json, status, [
      summary,
      ...pending.map(line),
      ...status.drifted.map((version) => `${version}: file has changed`),
    ])
    return status.isUpToDate ? 0 : somethingFound
  },

  run: async (host, { json, version, to: toVersion, 'dry-run': dryRun = false, sql = false }) => {
    if (sql && !dryRun) throw new UsageError('--sql is for --dry-run')
    const selection = { version, toVersion }
    if (sql) return showPreview(await previewSql(host, selection), json, 0)
    const result = dryRun
      ? previewRun(await readOnce(host), selection)
      : await asRunner(host, (runner) => runMigrations(runner, selection))
    show(json, result, result.results.map(line))
    return result.summary.failed > 0 ? 1 : 0
  },

  rollback: async (host, { json, batch = false, reason }, [version, ...more]) => {
    if (more.length > 0 || batch === (version !== undefined))
      throw new UsageError('rollback takes one version, or --batch')
    if (version !== undefined) {
      const record = await asRunner(host, (runner) => rollbackOne(runner, version, reason))
      show(json, record, [line(record)])
      return 0
    }
    const result = await asRunner(host, (runner) => rollbackBatch(runner, reason))
    show(json, result, result.results.map(line))
    return result.summary.failed > 0 ? 1 : 0
  },

  retry: async (host, { json, reason }, [version, ...more]) => {
    if (version === undefined || more.length > 0) throw new UsageError('retry takes one version')
    const record = await asRunner(host, (runner) => retryFailed(runner, version, reason))
    show(json, record, [line(record)])
    return record.status === 'failed' ? 1 : 0
  },

  'mark-completed': async (host, { json, all = false, to: toVersion }, [version, ...more]) => {
    if (more.length > 0 || all === (version !== undefined))
      throw new UsageError('mark-completed takes one version, or --all')
    if (version !== undefined) {
      if (toVersion !== undefined) throw new UsageError('--to is for --all')
      const record = await asRunner(host, (runner) => markCompleted(runner, version, {}))
      show(json, record, [line(record)])
      return 0
    }
    const result = await asRunner(host, (runner) => markAllCompleted(runner, toVersion))
    show(json, result, result.results.map(line))
    return 0
  },

  create: async ({ config }, { json, type, description }, [name, ...more]) => {
    if (name === undefined || more.length > 0)
      throw new UsageError('create takes one name; put it in quotes if it has blanks')
    const filepath = createMigration(config, { name, type: typeOf(type), description }, new Date())
    show(json, { filepath }, [filepath])
    return 0
  },

  lint: async (host, { json, version, to: toVersion }) => {
    const { results, ...preview } = await previewSql(host, { version, toVersion })
    const found = json ? results : results.filter((result) => !isClean(result))
    return showPreview({ ...preview, results: found }, json, somethingFound)
  },
}

/** As an operator wants it: after a runner that is at it already. */
function asRunner<T>(host: MigrationHost, work: (runner: MigrationRunner) => Promise<T>): Promise<T> {
  return withRunner(host, { requester: { ...systemActor, userAgent: 'daybook migrate' }, busy: 'wait' }, work)
}

function showPreview(
  preview: { readonly results: readonly RunPreview[] },
  json: boolean | undefined,
  found: number,
): number {
  show(json, preview, preview.results.flatMap(previewLines))
  return preview.results.every(isClean) ? 0 : found
}

const isClean = ({ findings, sqlProblem }: RunPreview) => findings.length === 0 && sqlProblem === null

function previewLines({ version, name, sql, sqlProblem, findings }: RunPreview): string[] {
  return [
    `-- ${version} ${name}`,
    ...sql.map((statement) => `${statement};`),
    ...(sqlProblem === null ? [] : [`-- there may be more: ${sqlProblem}`]),
    ...findings.map(
      ({ statement, rule, object, lock, why, safeWay }) =>
        `-- statement ${statement}: ${rule} ${object} (lock: ${lock}). ${why} Instead: ${safeWay}`,
    ),
  ]
}

function line({ version, name, status, executionTimeMs, errorMessage }: MigrationRecord): string {
  const time = executionTimeMs === null ? '' : ` in ${executionTimeMs} ms`
  return `${status.padEnd(11)} ${version} (${name})${time}${errorMessage === null ? '' : `: ${errorMessage}`}`
}

function show(json: boolean | undefined, value: object, lines: readonly string[]): void {
  const text = json ? JSON.stringify(value, null, 2) : lines.join('\n')
  if (text !== '') process.stdout.write(`${text}\n`)
}

function typeOf(type: string | undefined): MigrationType | undefined {
  const known = migrationTypes.find((one) => one === type)
  if (known === undefined && type !== undefined) throw new UsageError(`--type is one of ${migrationTypes.join(', ')}`)
  return known
}

function hostOf(env: Env): MigrationHost {
  const say = (_fields: object, message: string) => void process.stderr.write(`${message}\n`)
  return { config: parseInstallation(env), env, log: { info: say, warn: say } }
}
