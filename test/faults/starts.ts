import { startCluster } from '../support/cluster.ts'
import { seededRandom } from '../support/ledger.ts'
import { migrationsDir, noting } from '../support/migrations.ts'
import { copyDatabase, createDatabase, createEmptyDatabase, type TestDatabase } from '../support/postgres.ts'
import { testEnv } from '../support/prepare.ts'
import { startProcess } from '../support/processes.ts'
import { withClient } from '../support/server.ts'
import { waitFor } from '../support/wait.ts'
import type { Result } from './scenario.ts'

export type Size = { readonly rounds: number }

const early = ['20240101_a', '20240102_b', '20240103_c']
const late = ['20240104_d', '20240105_e', '20240106_f']

/**
 * F-26: two to five web processes start at once with MIGRATIONS_AUTO_RUN on a database that is empty, of an installation
 * from before migrations were recorded, of an earlier version, or of one whose runner was killed in a migration. All
 * become ready, and what they needed was done once.
 */
export async function runF26(seed: number, { rounds }: Size): Promise<Result> {
  const random = seededRandom('F-26', seed)
  const { kinds, env, expected } = await prepare()
  const faults: string[] = []
  let started = 0
  for (let round = 0; round < rounds; round += 1) {
    const kind = kinds[round % kinds.length]!
    const web = 2 + Math.floor(random() * 4)
    started += web
    const database = await kind.create()
    const found = await roundFaults(database, { web, env, expected })
    faults.push(...found.map((fault) => `round ${round}, ${web} processes, ${kind.name}: ${fault}`))
    await database.drop()
  }
  return { faults, figures: { rounds, 'processes started': started } }
}

type Round = { readonly web: number; readonly env: Readonly<Record<string, string>>; readonly expected: State }

async function roundFaults(database: TestDatabase, { web, env, expected }: Round): Promise<string[]> {
  try {
    const cluster = await startCluster({ database, web, env })
    const answers = await Promise.all(cluster.web.map((one) => one.call('GET', '/ready')))
    await Promise.all(cluster.web.map((one) => one.kill('SIGKILL')))
    const unready = answers.filter(({ status }) => status !== 200).map(({ text }) => `not ready: ${text}`)
    return [...unready, ...differences(await stateOf(database), expected)]
  } catch (error) {
    return [String(error)]
  }
}

/** What each of these lists must be after any number of starts. */
type State = Readonly<Record<string, readonly string[]>>

const queries: Readonly<Record<string, string>> = {
  'has run': 'select what from ran',
  recorded: `select version || ' ' || status from "svc_Migration" where version not like '%baseline'`,
  event: `select "entityId" || ' ' || action from "svc_AuditLog" where type = 'migration'`,
  'batch of its own': `select string_agg(version, ' ' order by version) from "svc_Migration"
    where version >= '20240104' and batch is not null group by batch`,
  'batch of two runs': `select batch::text from "svc_Migration" where version like '2024%'
    group by batch having min(version) < '20240104' and max(version) >= '20240104' and count(*) < 6`,
  collection: `select "collectionName" from "svc_SchemaDefinition" where "collectionName" = 'made'`,
  queue: 'select name from pgboss.queue',
  'version of pg-boss': 'select version::text from pgboss.version',
  administrator: 'select email from "svc_User"',
}

function stateOf({ url }: TestDatabase): Promise<State> {
  return withClient(url, async (client) => {
    const state: Record<string, readonly string[]> = {}
    for (const [what, text] of Object.entries(queries)) {
      const { rows } = await client.query({ text, rowMode: 'array' })
      state[what] = rows.map(([value]) => String(value)).sort()
    }
    return state
  })
}

function differences(found: State, expected: State): string[] {
  return Object.keys(queries).flatMap((what) => {
    const [is, must] = [String(found[what]), String(expected[what])]
    return is === must ? [] : `${what}: ${is} instead of ${must}`
  })
}

/** The databases to start on, the variables of those who do, and what must have come of it. */
async function prepare() {
  const dir = migrationsDir()
  const env = { MIGRATIONS_AUTO_RUN: 'true', MIGRATIONS_DIR: dir.path }
  for (const version of early) dir.write(version, noting(version))
  const old = await createDatabase()
  await migrate(old, env)
  const half = await copyDatabase(old)
  dir.write(
    late[0]!,
    `${asleepWhileClosed}
     await schemaManager.createCollections(db, [{ collectionName: 'made', schema: { fields: { name: { type: 'String' } } } }]);
     ${noting(late[0]!)}`,
  )
  await killInMigration(half, env)
  dir.write(late[1]!, noting(late[1]!), { head: 'export const transaction = false' })
  dir.write(late[2]!, noting(late[2]!))
  const reference = await copyDatabase(old)
  await migrate(reference, env)
  const expected = { ...(await stateOf(reference)), 'batch of its own': [late.join(' ')] }
  const unrecorded = async () => {
    const database = await createDatabase()
    await withClient(database.url, (client) => client.query('drop table "svc_Migration"'))
    return database
  }
  return {
    env,
    expected,
    kinds: [
      { name: 'empty', create: createEmptyDatabase },
      { name: 'half-applied', create: () => copyDatabase(half) },
      { name: 'old', create: () => copyDatabase(old) },
      { name: 'without records', create: unrecorded },
    ],
  }
}

const cli = 'src/cli/main.ts'
const asleepWhileClosed = `if ((await sql("select to_regclass('closed') is not null as closed"))[0].closed) await sql('select pg_sleep(600)');`

async function migrate({ url }: TestDatabase, env: Readonly<Record<string, string>>, code = 0): Promise<void> {
  const runner = startProcess(cli, ['migrate', 'run'], { ...testEnv(url), ...env })
  const exit = await runner.exited
  if (exit.code !== code) throw new Error(runner.lines.map(({ text }) => text).join('\n'))
}

/** Kills a runner in the middle of a script. The next one finds it, and the operator has it tried again. */
async function killInMigration(database: TestDatabase, env: Readonly<Record<string, string>>): Promise<void> {
  const { url } = database
  const sql = async (text: string) => (await withClient(url, (client) => client.query(text))).rowCount
  await sql('create table closed ()')
  const runner = startProcess(cli, ['migrate', 'run'], { ...testEnv(url), ...env })
  const others = 'select from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()'
  await waitFor(() => sql(`${others} and query like 'select pg_sleep%'`))
  await runner.kill('SIGKILL')
  await waitFor(async () => (await sql(others)) === 0)
  await sql('drop table closed')
  await migrate(database, env, 1)
  await sql(`update "svc_Migration" set status = 'pending' where status = 'failed'`)
}
