import { writeFile } from 'node:fs/promises'
import { resolve } from 'node:path'
import type pg from 'pg'
import { type Call, callerOf, expectStatus } from '../scripts/http.ts'
import { logTable } from '../src/catalog/log-triggers.ts'
import { expireEvents } from '../src/events/retention.ts'
import { curvesSvg } from './curve.ts'
import { openFiles, openPlace, openSql } from './database.ts'
import { environment, type Prepared, prepareDaybook, startDaybook } from './daybook.ts'
import type { Figure } from './figures.ts'
import { meterOf } from './meter.ts'
import type { BenchOptions } from './options.ts'
import { timed } from './processes.ts'
import { scattered } from './reads.ts'
import { median } from './rounds.ts'
import { fill, idSql } from './seed.ts'
import { categories, idOf } from './shape.ts'

/** Every row has had five changes. */
const eventsOfRow = 5
const sizes = { whole: [100_000, 500_000, 2_000_000], quick: [5_000, 20_000] }
const batch = 200_000
const expired = 20_000
/** A size more than this many times slower than the first would be out of bounds. */
const limit = 1.3

/** What one size came to: for each kind of request the middle of its milliseconds, and of its processor time. */
type Point = {
  readonly rows: number
  readonly requests: Readonly<Record<string, { readonly ms: number; readonly cpu: number }>>
  readonly expiredPerSecond: number
  readonly verified: { readonly seconds: number; readonly peak: number | undefined }
}

/**
 * P-GROWTH: one caller's requests on a table and a log that grow, in one database: what a list, a create, the history of an item and
 * the undo of a request take; how fast old events are removed; how long the whole log is verified, and in how much memory.
 */
export async function measureScale(
  options: Pick<BenchOptions, 'quick' | 'databaseUrl' | 'curve'>,
): Promise<readonly Figure[]> {
  await using cleanup = new AsyncDisposableStack()
  const place = await openPlace(options.databaseUrl, cleanup)
  const sql = await openSql(place.url, cleanup)
  const env = environment(place.url, await openFiles(cleanup))
  const all = options.quick ? sizes.quick : sizes.whole
  const none = { article: 1, product_10k: 1, product_1m: 1 }
  const prepared = await prepareDaybook(env, sql, { ...none, product: all[0]! })
  const server = await startDaybook(prepared, {}, cleanup)
  const call = callerOf(server.url, prepared.accounts.admin.token)
  const meters = [meterOf(server.pid), meterOf(place.serverPid, 'with its children')]
  const cpu = () => meters.reduce((sum, meter) => sum + (meter() ?? Number.NaN), 0)
  const owner = prepared.accounts.limited.id
  const points: Point[] = []
  let before = 0
  for (const rows of all) {
    if (before > 0) await fill(sql, 'product', owner, rows, before)
    await addEvents(sql, prepared, {
      from: before * eventsOfRow,
      to: rows * eventsOfRow,
      all: all.at(-1)! * eventsOfRow,
      rows,
    })
    process.stderr.write(`${rows.toLocaleString('en')} rows are there\n`)
    points.push(await measurePoint({ call, cpu, sql, env, rows, owner, times: options.quick ? 20 : 200 }))
    before = rows
  }
  if (options.curve !== undefined) await writeFile(options.curve, pictureOf(points))
  return figuresOf(points)
}

type Seeding = { readonly from: number; readonly to: number; readonly all: number; readonly rows: number }

/** Events of the rows, in the order of their times, which are spread over the month so far. */
async function addEvents(sql: pg.Client, { accounts }: Prepared, { from, to, all, rows }: Seeding): Promise<void> {
  await sql.query('set synchronous_commit = off')
  for (let start = from; start < to; start += batch)
    await sql.query(
      `insert into "${logTable}" ("createdAt", entity, "entityId", action, changes, "userId")
       select date_trunc('month', now()) + (now() - interval '1 hour' - date_trunc('month', now())) * (e.n::float8 / $3),
         'product', p.id::text, 'update', jsonb_build_object('before', jsonb_build_object('stock', e.n % 1000), 'after', to_jsonb(p)), $4
       from (select n as n, ${idSql.replace('(n)', '((n % $5 + 1)::int)')} as id from generate_series($1::bigint, $2::bigint - 1) n) e
       join product p on p.id = e.id order by e.n`,
      [start, Math.min(start + batch, to), all, accounts.admin.id, rows],
    )
  // Or autovacuum does it while requests are measured.
  await sql.query(`vacuum (analyze) "${logTable}"`)
}

type Measuring = {
  readonly call: Call
  readonly cpu: () => number
  readonly sql: pg.Client
  readonly env: Readonly<Record<string, string>>
  readonly rows: number
  readonly owner: string
  readonly times: number
}

async function measurePoint(measuring: Measuring): Promise<Point> {
  const { sql, env, rows, times, cpu } = measuring
  const requests: Record<string, { ms: number; cpu: number }> = {}
  for (const [name, timedRequest] of Object.entries(requestsOf(measuring))) {
    // The first ones are of V8 and of the database's memory.
    await measure(timedRequest, 0, times)
    const began = cpu()
    const { took, preparing } = await measure(timedRequest, times, times, cpu)
    requests[name] = { ms: median(took), cpu: ((cpu() - began - preparing) / times) * 1e6 }
  }
  const command = [resolve(import.meta.dirname, '../src/cli/main.ts'), 'log', 'verify']
  const verified = await timed(process.execPath, command, env)
  return { rows, requests, expiredPerSecond: await expire(sql), verified }
}

async function measure({ prepare, request }: TimedRequest, from: number, times: number, cpu = () => 0) {
  const began = cpu()
  const prepared: string[] = []
  for (let n = from; n < from + times; n += 1) prepared.push((await prepare?.(n)) ?? '')
  const preparing = cpu() - began
  const took: number[] = []
  for (const [i, state] of prepared.entries()) {
    const at = performance.now()
    await request(from + i, state)
    took.push(performance.now() - at)
  }
  return { took, preparing }
}

type TimedRequest = {
  /** Not timed. What the request is about. */
  readonly prepare?: (n: number) => Promise<string>
  readonly request: (n: number, prepared: string) => Promise<unknown>
}

function requestsOf({ call, rows, owner }: Measuring): Readonly<Record<string, TimedRequest>> {
  const send = async (method: string, path: string, body?: unknown, status = 200) => {
    const answer = await call(method, path, body)
    expectStatus(answer, status)
    return answer
  }
  const product = (n: string) => newProduct(`${rows}-${n}`, owner)
  return {
    'list of 25 by an index': {
      request: (n) => {
        const from = (scattered(n, 90_000) / 100).toFixed(2)
        const filter = JSON.stringify({ category_Id: idOf((n % categories) + 1), price: { gte: from } })
        return send('GET', `/items/product?sort=price&limit=25&count=false&filter=${encodeURIComponent(filter)}`)
      },
    },
    'create of a row': { request: (n) => send('POST', '/items/product', product(`${n}`), 201) },
    'history of an item': {
      request: (n) => send('GET', `/items/product/${idOf(scattered(n, rows) + 1)}/history?limit=25`),
    },
    'undo of a request': {
      prepare: async (n) => {
        const items = Array.from({ length: 10 }, (_, i) => product(`${n}-${i}`))
        return (await send('POST', '/items/product/bulk', items, 201)).headers.get('x-request-id')!
      },
      request: (_, requestId) => send('POST', '/log/undo', { requestId }),
    },
  }
}

const newProduct = (sku: string, owner: string) => ({
  ...{ sku: `GROWN-${sku}`, name: `Grown ${sku}`, description: 'A thing of some use. '.repeat(8) },
  ...{ price: '9.99', stock: 1, owner_Id: owner, category_Id: idOf(1) },
})

/** Removes the oldest events, as the worker does; how many a second. */
async function expire(sql: pg.Client): Promise<number> {
  const { rows } = await sql.query(
    `select "createdAt" as before from "${logTable}" where entity = 'product' order by "createdAt" offset $1 limit 1`,
    [expired],
  )
  const began = performance.now()
  const { deleted } = await expireEvents(sql, rows[0].before)
  return deleted / ((performance.now() - began) / 1000)
}

const pictureOf = (points: readonly Point[]): string =>
  curvesSvg(
    'Processor time of a request as the table and the log grow, as times of the first size',
    points.map(({ rows }) => rows),
    Object.keys(points[0]!.requests).map((name) => ({
      name,
      values: points.map(({ requests }) => requests[name]!.cpu),
    })),
    limit,
  )

/** The first size stands where the ceiling stands elsewhere, so the ratio is the growth. */
function figuresOf(points: readonly Point[]): readonly Figure[] {
  const [first] = points
  return points.slice(1).flatMap((point) => {
    const figure = (title: string, unit: string, pick: (of: Point) => number): Figure => ({
      ...{ id: 'P-GROWTH', title: `${title}, ${sizeOf(point)} beside ${sizeOf(first!)}`, unit },
      ...{ ceiling: pick(first!), daybook: pick(point) },
    })
    return [
      ...Object.keys(point.requests).flatMap((name) => [
        figure(name, 'ms', ({ requests }) => requests[name]!.ms),
        figure(name, 'CPU µs', ({ requests }) => requests[name]!.cpu),
      ]),
      figure('old events removed', 'events/s', ({ expiredPerSecond }) => expiredPerSecond),
      figure('log verify', 's', ({ verified }) => verified.seconds),
      figure('log verify, most resident memory', 'MiB', ({ verified }) => (verified.peak ?? Number.NaN) / 2 ** 20),
    ]
  })
}

const sizeOf = ({ rows }: Point): string =>
  `${rows.toLocaleString('en')} rows and ${(rows * eventsOfRow).toLocaleString('en')} events`
