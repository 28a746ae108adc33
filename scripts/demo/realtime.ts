import assert from 'node:assert/strict'
import { countryRows } from './countries.ts'
import { type Call, callerOf, expectStatus } from './http.ts'
import { ownFields } from './reading.ts'
import type { Stage } from './stage.ts'
import type { See } from './story.ts'
import { until } from './wait.ts'
import type { Change, Watcher } from './watcher.ts'

/** Changes that one request makes, in words of the subscriber: what it must receive of them. */
type Made = { readonly act: () => Promise<unknown>; readonly received: readonly string[] }

export async function watchChanges(stage: Stage, admin: Call, token: string, see: See): Promise<Watcher> {
  const watcher = await watch(stage.url, token, 'country', (why) => {
    throw new Error(`the socket can't go on: ${why}`)
  })
  const made: Made[] = [
    { act: () => patch(admin, 'CH', { capital: 'Bern (federal city)' }), received: ['update CH'] },
    { act: () => patch(admin, 'JP', { capital: 'Tōkyō' }), received: [] },
    { act: () => patchAll(admin, ['AT', 'DE', 'IT']), received: ['update AT', 'update DE', 'update IT'] },
    { act: () => patch(admin, 'CY', { continent: 'AS' }), received: ['remove CY'] },
    { act: () => create(admin, { code: 'XA', name: 'Atlantis', continent: 'EU' }), received: ['create XA'] },
    { act: () => remove(admin, 'XA'), received: ['delete XA'] },
  ]
  await makeAndReceive(watcher, made)
  for (const change of watcher.changes) see(shown(change))
  see('nothing of Japan: its row is not granted')
  return watcher
}

export async function cutFeed(stage: Stage, admin: Call, watcher: Watcher, see: See): Promise<void> {
  const source = await until('the feed', async () => {
    const { realtime } = (await callerOf(stage.url)<Ready>('GET', '/ready')).body
    return realtime.source === 'starting' ? undefined : realtime
  })
  if (source.source !== 'wal') see(`the feed polls the log here, there is nothing to cut (${source.reason})`)
  const before = await feedBackends(stage)
  await stage.sql('select pg_terminate_backend(pid) from unnest($1::int[]) pid', [before])
  see(`pg_terminate_backend(${before})`)
  const codes = ['NO', 'SE', 'FI', 'DK', 'IS']
  const made = codes.map((code) => ({
    act: () => patch(admin, code, { capital: `${capitalOf(code)} (north)` }),
    received: [`update ${code}`],
  }))
  await makeAndReceive(watcher, made)
  see(`received without it: ${watcher.changes.slice(-codes.length).map(inWords).join(', ')}`)
  if (before.length === 0) return
  const after = await until('a new replication connection', async () => {
    const pids = await feedBackends(stage)
    return pids.length > 0 && !pids.includes(before[0]!) && pids
  })
  see(`the feed has connected again (backend ${after})`)
}

type Ready = { readonly realtime: { readonly source: string; readonly reason?: string } }

async function feedBackends({ sql }: Stage): Promise<number[]> {
  const rows = await sql<{ pid: number }>(`
    select pid from pg_stat_activity
    where datname = current_database() and backend_type = 'walsender' and application_name = 'daybook feed'`)
  return rows.map(({ pid }) => pid)
}

/**
 * The web process dies in the middle of many writes: those it answered are durable, of the others nobody knows. While it
 * is away the table is changed by SQL. Whatever has become durable must reach the socket after its return.
 */
export async function killWeb(stage: Stage, admin: Call, watcher: Watcher, see: See): Promise<void> {
  const { web, sql } = stage
  const answered = await killUnderLoad(stage, admin)
  see(`kill -9 web process: ${answered.length} of ${europeans.length} running PATCHes were answered`)
  await sql(`update country set capital = capital || ' (by hand)' where code in ('PT', 'US')`)
  await sql(`insert into country (code, name, "continent_Id") values ('XB', 'Avalon', 'EU')`)
  await sql(`delete from country where code = 'XB'`)
  see('meanwhile, by psql: an update of PT and US, an insert and a delete of XB')
  await web.start()
  await until('the socket to resume', () => watcher.subscriptions === 2)
  await patch(admin, 'IE', { capital: 'Baile Átha Cliath' })
  const last = await until('the last change', () =>
    watcher.changes.find((change) => change.data.capital === 'Baile Átha Cliath'),
  )
  const after = watcher.changes.slice(watcher.changes.length - 1 - watcher.changes.toReversed().indexOf(last))
  assert.deepEqual(after, [last])
  const received = new Set(watcher.changes.map(({ data }) => data.capital))
  for (const capital of answered) assert.ok(received.has(capital), `an answered write was not received: ${capital}`)
  for (const change of ['update PT', 'create XB', 'delete XB'])
    assert.ok(
      watcher.changes.some((got) => inWords(got) === change),
      change,
    )
  see(
    `the socket connected by itself and went on: ${watcher.changes.length} changes so far, ${watcher.repeats} came twice and were dropped`,
  )
}

const europeans = countryRows
  .filter(({ continent, code }) => continent === 'EU' && code !== 'CY')
  .map(({ code }) => code)

/** Sends all writes at once and kills the process when some are answered; resolves with the capitals of those. */
async function killUnderLoad({ web }: Stage, admin: Call): Promise<string[]> {
  const answered: string[] = []
  const writes = europeans.map(async (code) => {
    const capital = `${capitalOf(code)} (before the kill)`
    await patch(admin, code, { capital })
    answered.push(capital)
  })
  await Promise.race(writes)
  await web.kill()
  await Promise.allSettled(writes)
  return answered
}

type Logged = { readonly position: string; readonly change: string }

/**
 * The measure is the log itself, read past the program: which events about rows in Europe it holds since the
 * subscription. Per country their order must have been the order of arrival.
 */
export async function compareWithLog({ sql }: Stage, watcher: Watcher, see: See): Promise<void> {
  const logged = await sql<Logged>(
    `select position::text as position, action || ' ' || "entityId" as change from "svc_AuditLog"
     where entity = 'country' and position >= $1
       and 'EU' in (changes->'after'->>'continent_Id', changes->'before'->>'continent_Id')
     order by position`,
    [watcher.changes[0]!.position],
  )
  const order = new Map(watcher.changes.map((change, i) => [change.position, i]))
  assert.deepEqual(
    watcher.changes.map(({ position }) => position).sort(),
    logged.map(({ position }) => position).sort(),
  )
  for (const events of Map.groupBy(logged, ({ change }) => change.split(' ')[1]).values()) {
    const arrivals = events.map(({ position }) => order.get(position)!)
    assert.deepEqual(
      arrivals,
      arrivals.toSorted((a, b) => a - b),
    )
  }
  for (const { action, data } of watcher.changes)
    assert.deepEqual(Object.keys(data).sort(), action === 'remove' ? ['code'] : ownFields)
  see(
    `${logged.length} events about Europe in the log, ${watcher.changes.length} received, in order per country, of granted fields only`,
  )
}

/** Makes the changes one after the other and expects exactly theirs, in their order. */
async function makeAndReceive(watcher: Watcher, made: readonly Made[]): Promise<void> {
  const before = watcher.changes.length
  for (const { act } of made) await act()
  const expected = made.flatMap(({ received }) => received)
  await until(`${expected.length} changes on the socket`, () => watcher.changes.length >= before + expected.length)
  assert.deepEqual(watcher.changes.slice(before).map(inWords), expected)
}

function inWords({ action, data }: Change): string {
  return `${action} ${data.code}`
}

function shown(change: Change): string {
  return `country:${change.action} ${JSON.stringify({ code: change.data.code, capital: change.data.capital })}`
}

async function patch(admin: Call, code: string, data: object): Promise<void> {
  expectStatus(await admin('PATCH', `/items/country/${code}`, data), 200)
}

async function patchAll(admin: Call, codes: readonly string[]): Promise<void> {
  const changes = codes.map((code) => ({ id: code, data: { capital: `${capitalOf(code)} (capital)` } }))
  expectStatus(await admin('PATCH', '/items/country/bulk', changes), 200)
}

async function create(admin: Call, row: object): Promise<void> {
  expectStatus(await admin('POST', '/items/country', row), 201)
}

async function remove(admin: Call, code: string): Promise<void> {
  expectStatus(await admin('DELETE', `/items/country/${code}`), 200)
}

function capitalOf(wanted: string): string {
  return countryRows.find(({ code }) => code === wanted)!.capital
}
