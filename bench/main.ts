import { inspect } from 'node:util'
import type pg from 'pg'
import { measureAssets } from './assets.ts'
import { measureBackup } from './backup.ts'
import { measureConsole } from './console.ts'
import { openFiles, openPlace, openSql, type Place } from './database.ts'
import { cacheOn, environment, type Prepared, prepareDaybook, startDaybook, webScript } from './daybook.ts'
import { assertSameAnswers } from './equal.ts'
import type { Figure } from './figures.ts'
import { measureFollowers } from './followers.ts'
import { growthCases } from './growth.ts'
import { measureJobs } from './jobs.ts'
import { describeMachine, type Machine, sentenceOf } from './machine.ts'
import { measureMixed } from './mixed-rounds.ts'
import { type BenchOptions, isWanted, readOptions, usage } from './options.ts'
import { type Launch, startServer } from './processes.ts'
import { hottestOf } from './profile.ts'
import { readCases } from './reads.ts'
import { measureRealtime } from './realtime-figures.ts'
import { breakIn, type Contest, compete, type Line } from './rounds.ts'
import { measureScale } from './scale.ts'
import { measureStart } from './start.ts'
import { figuresTable, ratioOf, tableOf } from './table.ts'
import { measureWorkflows } from './workflows.ts'
import { workloads } from './workloads.ts'

/*
 * `npm run bench`: Daybook as shipped against what could be written by hand for the same requests, on the same data, in
 * one run. docs/performance.md says how to read it.
 */

type Results = { readonly machine: Machine; readonly lines: readonly Line[]; readonly figures: readonly Figure[] }

async function bench(options: BenchOptions, cleanup: AsyncDisposableStack): Promise<Results> {
  const place = await openPlace(options.databaseUrl, cleanup)
  const sql = await openSql(place.url, cleanup)
  const machine = await describeMachine(sql)
  say(`${sentenceOf(machine)}\nseeding`)
  const filesDir = await openFiles(cleanup)
  const prepared = await prepareDaybook(environment(place.url, filesDir), sql, sizesOf(options))
  const launches = {
    ceiling: {
      script: 'bench/ceiling.ts',
      env: { ...prepared.env, ADMIN_ROLE_ID: prepared.accounts.admin.roleId, FILES_DIR: filesDir },
    },
    daybook: { script: webScript, env: prepared.env },
  }
  const contest = await startContest(options, place, sql, prepared, launches.ceiling, cleanup)
  const lines = await runRounds(options, contest)
  const figures = await runParts(options, {
    P9: () => measureMixed(contest),
    P13: () => measureFollowers(contest, prepared, options.quick),
    P12: () => measureAssets(contest, { sql, filesDir }, options),
    W10: () => measureRealtime(prepared, options),
    W11: () => measureStart(contest, launches, options.quick ? 1 : 5),
    W13: () => measureJobs(prepared, options.quick),
    W16: () => measureWorkflows(contest, prepared, options.quick),
    'P-BACKUP': () => measureBackup(options.quick),
    'P-GROWTH': () => measureScale(options),
    'P-CONSOLE': () => measureConsole(prepared),
  })
  if (options.profile !== undefined) {
    await contest.servers[options.profileOf]!.stop()
    say(hottestOf(options.profile))
  }
  return { machine, lines, figures }
}

/** The large tables are filled for those who need them alone. */
function sizesOf(options: BenchOptions) {
  const { products } = options
  const isLarge = isWanted(options, 'W14') || isWanted(options, 'P-CONSOLE')
  const [product_10k, product_1m] = isLarge ? [Math.min(products, 10_000), 1_000_000] : [1, 1]
  return { product: products, article: products, product_10k, product_1m }
}

async function startContest(
  { withCache, profile, profileOf, rounds, seconds }: BenchOptions,
  { serverPid }: Place,
  sql: pg.Client,
  prepared: Prepared,
  ceiling: Launch,
  cleanup: AsyncDisposableStack,
): Promise<Contest> {
  const argsOf = (side: BenchOptions['profileOf']) =>
    profile === undefined || side !== profileOf ? [] : ['--cpu-prof', `--cpu-prof-dir=${profile}`]
  const servers = {
    ceiling: await startServer(ceiling, cleanup),
    daybook: await startDaybook(prepared, {}, cleanup, argsOf('daybook')),
    ...(withCache && { cached: await startDaybook(prepared, cacheOn, cleanup, argsOf('cached')) }),
  }
  return { servers, accounts: prepared.accounts, rounds, seconds, databasePid: serverPid, sql }
}

async function runRounds(options: BenchOptions, contest: Contest): Promise<readonly Line[]> {
  const { product, product_10k, product_1m } = sizesOf(options)
  const growth = growthCases({ product_10k, product, product_1m })
  const lines: Line[] = []
  const cases = [...workloads(product), ...growth]
    .filter(({ id }) => isWanted(options, id))
    .map((what) => ({ ...what, connections: options.clients ?? what.connections }))
  if (!options.quick && cases.length > 0) await breakIn(contest, readCases(product)[0]!, options.roles[0]!)
  for (const what of cases)
    for (const role of what.roles.filter((each) => options.roles.includes(each))) {
      await assertSameAnswers(contest, what, role)
      const line = await compete(contest, what, role)
      lines.push(line)
      say(`${what.id} ${what.title}, ${role}: ${ratioOf(line, 'daybook')?.toFixed(2)} of the ceiling`)
    }
  return lines
}

async function runParts(
  options: BenchOptions,
  parts: Readonly<Record<string, () => Promise<readonly Figure[]>>>,
): Promise<readonly Figure[]> {
  const figures: Figure[] = []
  for (const [id, measure] of Object.entries(parts).filter(([id]) => isWanted(options, id))) {
    figures.push(...(await measure()))
    say(`${id} is measured`)
  }
  return figures
}

/** Progress is for people; the figures alone are on standard output. */
function say(text: string): void {
  process.stderr.write(`${text}\n`)
}

function show({ machine, lines, figures }: Results): string {
  return [sentenceOf(machine), tableOf(lines), figuresTable(figures)].filter((part) => part !== '').join('\n\n')
}

if (import.meta.main)
  try {
    const options = readOptions(process.argv.slice(2), process.env)
    await using cleanup = new AsyncDisposableStack()
    for (const signal of ['SIGINT', 'SIGTERM'] as const)
      process.once(signal, () => void cleanup.disposeAsync().then(() => process.exit(130)))
    const results = await bench(options, cleanup)
    process.stdout.write(`${options.json ? JSON.stringify(results, null, 2) : show(results)}\n`)
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException
    if (code?.startsWith('ERR_PARSE_ARGS')) process.stderr.write(`${message}\n\n${usage}\n`)
    else process.stderr.write(`${code === 'ERR_ASSERTION' ? message.slice(0, 4000) : inspect(error)}\n`)
    process.exitCode = 1
  }
