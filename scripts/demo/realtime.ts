import assert from 'node:assert/strict'
import { type Call, callerOf, expectStatus } from '../http.ts'
import { countryRows } from './countries.ts'
import { grantedFields } from './reading.ts'
import type { Stage } from './stage.ts'
import type { See } from './steps.ts'
import { until } from './wait.ts'
import type { Change, Watcher } from './watcher.ts'

/** One request of the administrator, and what a subscriber in Europe must receive of it. */
type Made = { readonly act: () => Promise<unknown>; readonly received: readonly string[] }

export async function receiveChanges(admin: Call, watcher: Watcher, see: See): Promise<void> {
  await makeAndReceive(watcher, [
    { act: () => patch(admin, 'CH', { capital: 'Bern (federal city)' }), received: ['update CH'] },
    { act: () => patch(admin, 'JP', { capital: 'Tōkyō' }), received: [] },
    { act: () => patchAll(admin, ['AT', 'DE', 'IT']), received: ['update AT', 'update DE', 'update IT'] },
    { act: () => patch(admin, 'CY', { continent: 'AS' }), received: ['remove CY'] },
    { act: () => create(admin, { code: 'XA', name: 'Atlantis', continent: 'EU' }), received: ['create XA'] },
    { act: () => remove(admin, 'XA'), received: ['delete XA'] },
  ])
  for (const { action, data } of watcher.changes()) see(`country:${action} ${JSON.stringify(data)}`)
  see('nothing of Japan, whose row is not granted; Cyprus is removed when it leaves Europe')
}

/** Meanwhile the feed polls the log; here the only thing to notice is that nothing is missing. */
export async function cutFeed(stage: Stage, admin: Call, watcher: Watcher, see: See): Promise<void> {
  const { source, reason } = await feedStatus(stage)
  const before = await feedBackends(stage)
  await stage.sql('select pg_terminate_backend(pid) from unnest($1::int[]) pid', [before])
  see(source === 'wal' ? `pg_terminate_backend(${before})` : `nothing to cut, the feed polls here: ${reason}`)
  const codes = ['NO', 'SE', 'FI', 'DK', 'IS']
  await makeAndReceive(
    watcher,
    codes.map((code) => ({
      act: () => patch(admin, code, { capital: `${capitalOf(code)} (north)` }),
      received: [`update ${code}`],
    })),
  )
  see(`received: ${watcher.changes().slice(-codes.length).map(inWords).join(', ')}`)
  if (source === 'wal') see(`the feed has connected again: backend ${await newFeedBackend(stage, before)}`)
}

/**
 * The web process dies in the middle of many writes: those that it answered are durable, the others are unknown. While
 * it is away, SQL changes the table. Every durable change must reach the socket after its return.
 */
export async function killWeb(stage: Stage, admin: Call, watcher: Watcher, see: See): Promise<void> {
  const answered = await killUnderLoad(stage, admin)
  see(`kill -9 while ${europeans.length} PATCHes run; ${answered.length} of them were answered`)
  await stage.sql(`update country set capital = capital || ' (by hand)' where code in ('PT', 'US')`)
  await stage.sql(`insert into country (code, name, "continent_Id") values ('XB', 'Avalon', 'EU')`)
  await stage.sql(`delete from country where code = 'XB'`)
  see('meanwhile, by SQL: an update of PT and US, an insert and a delete of XB')
  await stage.web.start()
  await until('the socket to go on', () => watcher.subscriptions > 1)
  await patch(admin, 'IE', { capital: 'Baile Átha Cliath' })
  await until('the last change', () => watcher.changes().some(({ data }) => data.capital === 'Baile Átha Cliath'))
  const received = new Set(watcher.changes().flatMap((change) => [inWords(change), change.data.capital]))
  for (const change of [...answered, 'update PT', 'create XB', 'delete XB'])
    assert.ok(received.has(change), `not received: ${change}`)
  see('the socket has connected again and got what it had missed')
}

/**
 * The measure is the log, read past the program: what it holds about rows in Europe since the first change. Per country
 * the order of the log must be the order of arrival.
 */
export async function compareWithLog(stage: Stage, watcher: Watcher, see: See): Promise<void> {
  const changes = watcher.changes()
  const logged = await europeInLog(stage, changes[0]!.position)
  const byPosition = (a: Change, b: Change) => (BigInt(a.position) < BigInt(b.position) ? -1 : 1)
  assert.deepEqual(
    changes.toSorted(byPosition).map(({ position }) => position),
    logged,
  )
  for (const ofOne of Map.groupBy(changes, ({ data }) => data.code).values())
    assert.deepEqual(ofOne, ofOne.toSorted(byPosition))
  for (const { action, data } of changes)
    assert.deepEqual(Object.keys(data).sort(), action === 'remove' ? ['code'] : grantedFields)
  see(`${logged.length} events about Europe in the log, the same ${changes.length} received, with granted fields only`)
}

/** Positions, ascending. */
async function europeInLog({ sql }: Stage, since: string): Promise<string[]> {
  const rows = await sql<{ position: string }>(
    `select event.position::text as position from "svc_AuditLog" event
     where entity = 'country' and event.position >= $1
       and 'EU' in (changes->'after'->>'continent_Id', changes->'before'->>'continent_Id')
     order by event.position`,
    [since],
  )
  return rows.map(({ position }) => position)
}

/** Makes the changes one after the other and expects exactly what must be received, in this order. */
async function makeAndReceive(watcher: Watcher, made: readonly Made[]): Promise<void> {
  const before = watcher.changes().length
  for (const { act } of made) await act()
  const expected = made.flatMap(({ received }) => received)
  await until(`${expected.length} changes on the socket`, () => watcher.changes().length >= before + expected.length)
  assert.deepEqual(watcher.changes().slice(before).map(inWords), expected)
}

function inWords({ action, data }: Change): string {
  return `${action} ${data.code}`
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

const europeans = countryRows
  .filter(({ continent, code }) => continent === 'EU' && code !== 'CY')
  .map(({ code }) => code)
const answeredBeforeKill = 10

/** Sends all writes at once, kills the process when some were answered, and resolves with the capitals of those. */
async function killUnderLoad({ web }: Stage, admin: Call): Promise<string[]> {
  const answered: string[] = []
  const enough = Promise.withResolvers<void>()
  const writes = europeans.map(async (code) => {
    const capital = `${capitalOf(code)} (before the kill)`
    await patch(admin, code, { capital })
    answered.push(capital)
    if (answered.length === answeredBeforeKill) enough.resolve()
  })
  await Promise.race([enough.promise, Promise.all(writes)])
  await web.kill()
  await Promise.allSettled(writes)
  return answered
}

type FeedStatus = { readonly source: string; readonly reason?: string }

async function feedStatus({ url }: Stage): Promise<FeedStatus> {
  return until('the feed to have started', async () => {
    const { realtime } = expectStatus(await callerOf(url)<{ realtime: FeedStatus }>('GET', '/ready'), 200)
    return realtime.source !== 'starting' && realtime
  })
}

async function newFeedBackend(stage: Stage, before: readonly number[]): Promise<number[]> {
  return until('a new replication connection', async () => {
    const pids = await feedBackends(stage)
    return pids.length > 0 && !pids.some((pid) => before.includes(pid)) && pids
  })
}

/** Process ids of the server's side of the feed's replication connections. */
async function feedBackends({ sql }: Stage): Promise<number[]> {
  const rows = await sql<{ pid: number }>(`
    select pid from pg_stat_activity
    where datname = current_database() and backend_type = 'walsender' and application_name = 'daybook feed'`)
  return rows.map(({ pid }) => pid)
}
