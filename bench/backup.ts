import { mkdtemp, rm, stat } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import pg from 'pg'
import { localVersion, startLocalPostgres } from '../scripts/local-postgres.ts'
import { openPlace } from './database.ts'
import { environment } from './daybook.ts'
import type { Figure } from './figures.ts'
import { type Ran, runScript, timed } from './processes.ts'
import { median } from './rounds.ts'

/** A server, and where the programs of its version are; without them there is nothing to compare with. */
type Place = { readonly url: string; readonly binDir: string | undefined; readonly version: number | undefined }

type Round = Readonly<Record<'backup' | 'restore', { readonly daybook: Ran; readonly ceiling: Ran | undefined }>> & {
  readonly bytes: { readonly daybook: number; readonly ceiling: number | undefined }
}

/** Crash safety is off on both sides: what is compared is work, not one disk with another. */
const settings = { shared_buffers: '512MB', max_wal_size: '4GB', jit: 'off', fsync: 'off' }

/**
 * P-BACKUP: an installation with 2,000,000 rows written to a file and restored, as a whole process each, beside `pg_dump -Fc` and
 * `pg_restore` of the server's version. Ours reads its file again, and runs setup at the end of a restore; neither side compares rows.
 */
export async function measureBackup(quick: boolean): Promise<readonly Figure[]> {
  await using cleanup = new AsyncDisposableStack()
  const dir = await mkdtemp(join(tmpdir(), 'daybook-bench-backup-'))
  cleanup.defer(() => rm(dir, { recursive: true, force: true }))
  const place = await openServer(cleanup)
  const rows = quick ? 20_000 : 2_000_000
  const source = await makeDatabase(place.url, 'bench_source')
  await runScript({ script: 'src/setup/main.ts', env: environment(source, join(dir, 'files')) })
  await fill(source, rows)
  const rounds: Round[] = []
  for (let round = 0; round < (quick ? 1 : 3); round += 1) rounds.push(await measureRound(place, source, dir))
  return figuresOf(rounds, rows, place)
}

async function openServer(cleanup: AsyncDisposableStack): Promise<Place> {
  const version = localVersion()
  if (version === undefined) return { url: (await openPlace(undefined, cleanup)).url, binDir: undefined, version }
  const { url, binDir, stop } = await startLocalPostgres(version, settings)
  cleanup.defer(stop)
  return { url, binDir, version }
}

async function makeDatabase(serverUrl: string, name: string): Promise<string> {
  await withClient(serverUrl, async (client) => {
    await client.query(`drop database if exists ${name}`)
    await client.query(`create database ${name} template template0`)
  })
  const url = new URL(serverUrl)
  url.pathname = `/${name}`
  return url.href
}

async function withClient(url: string, work: (client: pg.Client) => Promise<void>): Promise<void> {
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  await work(client).finally(() => client.end())
}

/** Of which about half can be compressed, with a key, a unique and two other indexes. */
const fill = (url: string, rows: number): Promise<void> =>
  withClient(url, async (client) => {
    await client.query(`create table product (id uuid primary key, sku text not null unique, name text, description text,
      price numeric(10, 2), stock integer, active boolean, "releasedAt" timestamptz, "owner_Id" uuid, "category_Id" uuid,
      "createdAt" timestamptz, "updatedAt" timestamptz)`)
    await client.query(
      `insert into product
       select gen_random_uuid(), 'SKU-' || n, 'Product number ' || n, md5(n::text) || repeat(' A thing of some use.', 6),
         ((n::bigint * 7919) % 100000)::numeric / 100, n % 1000, n % 7 <> 0,
         timestamptz '2022-01-01 00:00Z' + make_interval(hours => ((n::bigint * 613) % 35064)::int),
         gen_random_uuid(), gen_random_uuid(), timestamptz '2026-01-01 00:00Z', timestamptz '2026-01-01 00:00Z'
       from generate_series(1, $1::int) n`,
      [rows],
    )
    await client.query('create index on product ("category_Id"); create index on product ("releasedAt")')
    await client.query('vacuum (analyze, freeze) product')
  })

async function measureRound({ url, binDir }: Place, source: string, dir: string): Promise<Round> {
  const [own, dump] = [join(dir, 'own.daybook'), join(dir, 'pg.dump')]
  const daybook = (args: readonly string[], database: string) =>
    timed(process.execPath, [resolve(import.meta.dirname, '../src/cli/main.ts'), ...args, '--quiet'], {
      ...environment(database, join(dir, 'files')),
      SECRET_KEY: secretKey,
    })
  const tool = (name: string, args: readonly string[]) =>
    binDir === undefined ? undefined : timed(join(binDir, name), args, {})
  const backup = {
    daybook: await daybook(['backup', own], source),
    ceiling: await tool('pg_dump', ['-Fc', '-f', dump, source]),
  }
  const ceilingTarget = await makeDatabase(url, 'bench_restored')
  const ceiling = await tool('pg_restore', ['--no-owner', '--exit-on-error', '-d', ceilingTarget, dump])
  const target = await makeDatabase(url, 'bench_restored')
  const restore = { daybook: await daybook(['restore', own, '--no-verify'], target), ceiling }
  const bytes = { daybook: (await stat(own)).size, ceiling: binDir && (await stat(dump)).size }
  return { backup, restore, bytes: { ...bytes, ceiling: bytes.ceiling || undefined } }
}

const secretKey = 'of a database that is thrown away, and of no worth'
function figuresOf(rounds: readonly Round[], rows: number, { binDir, version }: Place): readonly Figure[] {
  const figure = (
    title: string,
    unit: string,
    daybook: (round: Round) => number,
    ceiling: (round: Round) => number,
  ): Figure => ({
    ...{ id: 'P-BACKUP', title, unit, daybook: median(rounds.map(daybook)) },
    ...(binDir !== undefined && { ceiling: median(rounds.map(ceiling)) }),
  })
  const count = rows.toLocaleString('en')
  const unknown = Number.NaN
  const mebibytes = (bytes: number | undefined) => (bytes ?? unknown) / 2 ** 20
  return [
    ...(['backup', 'restore'] as const).map((what) =>
      figure(
        `${what} of ${count} rows, beside ${what === 'backup' ? 'pg_dump -Fc' : 'pg_restore'}${version === undefined ? '' : ` of ${version}`}`,
        's',
        (round) => round[what].daybook.seconds,
        (round) => round[what].ceiling?.seconds ?? unknown,
      ),
    ),
    figure(
      'the file',
      'MiB',
      ({ bytes }) => mebibytes(bytes.daybook),
      ({ bytes }) => mebibytes(bytes.ceiling),
    ),
    ...(['backup', 'restore'] as const).map((what) =>
      figure(
        `most resident memory of ${what}`,
        'MiB',
        (round) => mebibytes(round[what].daybook.peak),
        (round) => mebibytes(round[what].ceiling?.peak),
      ),
    ),
  ]
}
