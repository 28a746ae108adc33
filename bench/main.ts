import { openPlace, openSql } from './database.ts'
import { cacheOn, environment, prepareDaybook, startDaybook } from './daybook.ts'
import { assertSameAnswers } from './equal.ts'
import { type Options, readOptions, usage } from './options.ts'
import { startServer } from './processes.ts'
import { type Contest, compete, type Line } from './rounds.ts'
import { ratioOf, tableOf } from './table.ts'
import { workloads } from './workloads.ts'

/*
 * `npm run bench`: Daybook as shipped against what could be written by hand for the same requests, on the same data, in
 * one run. docs/performance.md says how to read it.
 */

async function bench(options: Options, cleanup: AsyncDisposableStack): Promise<readonly Line[]> {
  const place = await openPlace(options.databaseUrl, cleanup)
  const sql = await openSql(place.url, cleanup)
  say('seeding')
  const { products } = options
  const sizes = {
    product: products,
    article: products,
    product_10k: 10_000,
    product_1m: options.quick ? 10 : 1_000_000,
  }
  const prepared = await prepareDaybook(environment(place.url), sql, sizes)
  const ceilingEnv = { ...prepared.env, ADMIN_ROLE_ID: prepared.accounts.admin.roleId }
  const servers = {
    ceiling: await startServer({ script: 'bench/ceiling.ts', env: ceilingEnv }, cleanup),
    daybook: await startDaybook(prepared, {}, cleanup, profiling(options)),
    ...(options.withCache && { cached: await startDaybook(prepared, cacheOn, cleanup) }),
  }
  const { rounds, seconds } = options
  const contest: Contest = { servers, accounts: prepared.accounts, rounds, seconds, databasePid: place.serverPid }
  const lines: Line[] = []
  for (const what of workloads(products).filter(({ id }) => isWanted(options, id)))
    for (const role of what.roles) {
      await assertSameAnswers(contest, what, role)
      const line = await compete(contest, what, role)
      lines.push(line)
      say(`${what.id} ${what.title}, ${role}: ${ratioOf(line, 'daybook')?.toFixed(2)} of the ceiling`)
    }
  return lines
}

const isWanted = ({ only }: Options, id: string): boolean => only.length === 0 || only.includes(id)

const profiling = ({ profile }: Options): string[] =>
  profile === undefined ? [] : ['--cpu-prof', `--cpu-prof-dir=${profile}`]

/** Progress is for people; the figures alone are on standard output. */
function say(text: string): void {
  process.stderr.write(`${text}\n`)
}

if (import.meta.main)
  try {
    const options = readOptions(process.argv.slice(2), process.env)
    await using cleanup = new AsyncDisposableStack()
    for (const signal of ['SIGINT', 'SIGTERM'] as const)
      process.once(signal, () => void cleanup.disposeAsync().then(() => process.exit(130)))
    const lines = await bench(options, cleanup)
    process.stdout.write(options.json ? `${JSON.stringify(lines, null, 2)}\n` : `${tableOf(lines)}\n`)
  } catch (error) {
    const { code, message, stack } = error as NodeJS.ErrnoException
    if (code?.startsWith('ERR_PARSE_ARGS')) process.stderr.write(`${message}\n\n${usage}\n`)
    else process.stderr.write(`${code === 'ERR_ASSERTION' ? message.slice(0, 4000) : stack}\n`)
    process.exitCode = 1
  }
