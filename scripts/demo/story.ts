import assert from 'node:assert/strict'
import { type Continent, type Country, continentRows, countryRows, definitions } from './countries.ts'
import { type Call, callerOf, expectStatus, list } from './http.ts'
import type { Stage } from './stage.ts'
import { until } from './wait.ts'
import { type Change, type Watcher, watch } from './watcher.ts'

/** Runs one step of the story; it has held when `run` resolves. `see` says what was seen. */
export type Step = <T>(title: string, run: (see: See) => Promise<T>) => Promise<T>
export type See = (what: string) => void

/**
 * The whole of Daybook in one story about the countries of the world, told over HTTP, SMTP and a socket. Every step
 * expects something and throws when it does not hold. Assumes the stage's processes run; leaves them stopped.
 */
export async function playStory(stage: Stage, step: Step): Promise<void> {
  const admin = await step('The administrator signs in', () => signIn(stage, stage.administrator))
  await step('Two related collections', (see) => makeCollections(admin, see))
  await step('The countries of the world are imported in one request', (see) => importCountries(admin, see))
  const token = await step(
    'A user registers while the mail worker hangs; it is killed, its successor sends the mail',
    (see) => register(stage, admin, see),
  )
  await step('The mailed link opens the account, once', (see) => verify(stage, token, see))
  const reader = await step('The user signs in and may read nothing', (see) => enterAsUser(stage, see))
  await step("The user's role is granted the countries of Europe", (see) => grantEurope(admin, see))
  await step('Filtered and nested reads show what is granted, and nothing else', (see) => readAsUser(reader.call, see))
  const watcher = await step('A socket of that user receives each change', (see) =>
    watchChanges(stage, admin, reader.token, see),
  )
  try {
    await step('The feed is killed: its replication connection is cut', (see) => cutFeed(stage, admin, watcher, see))
    await step('The web process is killed under load and comes back: the socket resumes', (see) =>
      killWeb(stage, admin, watcher, see),
    )
    await step('Received: each change of the log, once', (see) => compareWithLog(stage, watcher, see))
  } finally {
    watcher.close()
  }
  await step('One mail was sent, and sent once', (see) => countMails(stage, admin, see))
  await step('The log tells who did what', (see) => readHistory(admin, see))
  await step('The log and the tables agree (npm run log:verify)', (see) => verifyLog(stage, see))
  await step('Told to stop, every process finishes and ends with 0', (see) => stopAll(stage, see))
}

const user = { email: 'ada@reader.example', password: 'a long enough password', firstName: 'Ada', lastName: 'Reader' }

/** The part of the world that the user's role may see, and the fields of it. */
const granted = {
  country: {
    fields: ['code', 'name', 'native', 'capital', 'languages', 'continent.name'],
    conditions: { continent_Id: 'EU' },
  },
  continent: { fields: ['code', 'name'] },
}
const ownFields = ['capital', 'code', 'languages', 'name', 'native']

type List<Row> = { readonly data: readonly Row[]; readonly totalCount: number }
type Account = { readonly call: Call; readonly token: string }

async function signIn({ url }: Stage, { email, password }: { email: string; password: string }): Promise<Call> {
  return (await openSession(url, email, password)).call
}

async function openSession(url: string, email: string, password: string): Promise<Account> {
  const answer = await callerOf(url)<{ token: string }>('POST', '/auth/login', { email, password })
  const { token } = expectStatus(answer, 200)
  return { token, call: callerOf(url, token) }
}

async function makeCollections(admin: Call, see: See): Promise<void> {
  for (const definition of definitions) {
    expectStatus(await admin('POST', '/schemas', definition), 201)
    see(`${definition.collectionName}: ${Object.keys(definition.schema.fields).join(', ')}`)
  }
}

/** What comes back must be what went in, arrays and nested objects included. */
async function importCountries(admin: Call, see: See): Promise<void> {
  const bulk = async (collection: string, rows: readonly { code: string }[]) => {
    const { data } = expectStatus(await admin<List<string>>('POST', `/items/${collection}/bulk`, rows), 201)
    assert.deepEqual(
      data,
      rows.map(({ code }) => code),
    )
  }
  await bulk('continent', continentRows)
  await bulk('country', countryRows)
  const fields = [...Object.keys(countryRows[0]!).filter((name) => name !== 'continent'), 'continent_Id']
  const path = list('country', { fields, sort: 'code', limit: -1 })
  const stored = expectStatus(await admin<List<object>>('GET', path), 200)
  assert.equal(stored.totalCount, countryRows.length)
  assert.deepEqual(
    stored.data,
    countryRows.map(({ continent, ...row }) => ({ ...row, continent_Id: continent })),
  )
  const log = expectStatus(
    await admin<List<unknown>>(
      'GET',
      list('svc_AuditLog', { filter: { entity: 'country', action: 'create' }, limit: 0 }),
    ),
    200,
  )
  assert.equal(log.totalCount, countryRows.length)
  see(`${continentRows.length} continents, ${countryRows.length} countries, read back equal; as many events in the log`)
  see(JSON.stringify(countryRows.find(({ code }) => code === 'CH')))
}

/** Resolves with the token of the mailed link. */
async function register({ url, mailWorker, smtp }: Stage, admin: Call, see: See): Promise<string> {
  mailWorker.freeze()
  const answer = await callerOf(url)<{ message: string; token?: string }>('POST', '/auth/register', user)
  const { message, token } = expectStatus(answer, 200)
  assert.equal(token, undefined)
  see(message)
  await mailWorker.kill()
  see(`kill -9 mail worker; the mail is ${await mailStatus(admin)}, received by the SMTP server: ${smtp.mails.length}`)
  assert.equal(await mailStatus(admin), 'queued')
  assert.deepEqual(smtp.mails, [])
  await mailWorker.start()
  const mail = await until('the mail', () => smtp.mails[0])
  await until('the mail to be recorded as sent', async () => (await mailStatus(admin)) === 'sent')
  assert.equal(mail.to?.[0]?.address, user.email)
  see(`a new worker; the mail is sent: "${mail.subject}" to ${mail.to?.[0]?.address}`)
  const link = /https:\/\/app\.example\/auth\/verify-email\/([0-9a-f]{64})/.exec(mail.text ?? '')
  assert.ok(link?.[1], `no link in the mail: ${mail.text}`)
  return link[1]
}

type MailRow = { status: string; attempts: number; messageId: string }

async function mailRows(admin: Call): Promise<readonly MailRow[]> {
  const path = list('svc_EmailLog', {
    filter: { email: user.email },
    fields: ['status', 'attempts', 'messageId'],
    limit: -1,
  })
  return expectStatus(await admin<List<MailRow>>('GET', path), 200).data
}

async function mailStatus(admin: Call): Promise<string | undefined> {
  return (await mailRows(admin))[0]?.status
}

async function verify({ url }: Stage, token: string, see: See): Promise<void> {
  const anonymous = callerOf(url)
  const early = await anonymous<{ message: string }>('POST', '/auth/login', user)
  see(`before: 403 ${expectStatus(early, 403).message}`)
  const open = () => anonymous<{ message: string }>('GET', `/auth/email/verify/${token}`)
  see(`the link: 200 ${expectStatus(await open(), 200).message}`)
  see(`again: 400 ${expectStatus(await open(), 400).message}`)
}

async function enterAsUser({ url }: Stage, see: See): Promise<Account> {
  const account = await openSession(url, user.email, user.password)
  const { error } = expectStatus(await account.call<Refusal>('GET', '/items/country'), 403)
  see(`403 ${error.message}`)
  return account
}

type Refusal = { readonly error: { readonly message: string } }

async function grantEurope(admin: Call, see: See): Promise<void> {
  const path = list('svc_Role', { filter: { name: 'user' }, fields: ['id'] })
  const [role] = expectStatus(await admin<List<{ id: string }>>('GET', path), 200).data
  for (const [collection, grant] of Object.entries(granted)) {
    const permission = { role_Id: role!.id, collection, action: 'read', ...grant }
    expectStatus(await admin('POST', '/permissions', permission), 201)
    see(`read ${collection} ${JSON.stringify(grant)}`)
  }
}

async function readAsUser(call: Call, see: See): Promise<void> {
  const europe = countryRows.filter(({ continent }) => continent === 'EU')
  const all = expectStatus(await call<List<Country>>('GET', '/items/country?sort=code&limit=-1'), 200)
  assert.deepEqual(
    all.data.map(({ code }) => code),
    europe.map(({ code }) => code),
  )
  assert.deepEqual(Object.keys(all.data[0]!).sort(), ownFields)
  see(`all countries: ${all.totalCount} of ${countryRows.length}`)

  const filter = { languages: { jsonbContains: [{ code: 'de' }] } }
  const fields = ['code', 'native', 'languages', 'continent.name']
  const path = list('country', { filter, fields, sort: 'name', limit: 25 })
  type Nested = Omit<Country, 'continent'> & { continent: Continent }
  const german = expectStatus(await call<List<Nested>>('GET', path), 200)
  const expected = europe.filter(({ languages }) => languages.some(({ code }) => code === 'de'))
  assert.deepEqual(
    german.data.map(({ code }) => code).sort(),
    expected.map(({ code }) => code),
  )
  assert.equal(german.totalCount, expected.length)
  for (const { continent } of german.data) assert.deepEqual(continent, { code: 'EU', name: 'Europe' })
  see(
    `${path.split('?')[0]} filter=${JSON.stringify(filter)} fields=${fields}: ${german.totalCount}, the first is ${JSON.stringify(german.data[0])}`,
  )

  const refused = async (path: string) => expectStatus(await call<Refusal>('GET', path), 403).error.message
  see(`/items/country/JP: 403 ${await refused('/items/country/JP')}`)
  see(`fields=phone: 403 ${await refused(list('country', { fields: ['phone'] }))}`)
  see(`filter by phone: 403 ${await refused(list('country', { filter: { phone: { isNotNull: true } } }))}`)
}

/** Changes that one request makes, in words of the subscriber: what it must receive of them. */
type Made = { readonly act: () => Promise<unknown>; readonly received: readonly string[] }

async function watchChanges(stage: Stage, admin: Call, token: string, see: See): Promise<Watcher> {
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

async function cutFeed(stage: Stage, admin: Call, watcher: Watcher, see: See): Promise<void> {
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
async function killWeb(stage: Stage, admin: Call, watcher: Watcher, see: See): Promise<void> {
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
async function compareWithLog({ sql }: Stage, watcher: Watcher, see: See): Promise<void> {
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

async function countMails({ smtp }: Stage, admin: Call, see: See): Promise<void> {
  assert.equal(smtp.mails.length, 1)
  const [row, ...more] = await mailRows(admin)
  assert.deepEqual(more, [])
  assert.deepEqual({ status: row?.status, attempts: row?.attempts }, { status: 'sent', attempts: 1 })
  assert.equal(row?.messageId, smtp.mails[0]?.messageId)
  see(`svc_EmailLog: ${JSON.stringify(row)}`)
}

type AuditRow = { action: string; userId: string | null; changes: { before: Country | null; after: Country | null } }

async function readHistory(admin: Call, see: See): Promise<void> {
  const filter = { entity: 'country', entityId: 'PT' }
  const path = list('svc_AuditLog', { filter, fields: ['action', 'userId', 'changes'], sort: 'id', limit: -1 })
  const { data } = expectStatus(await admin<List<AuditRow>>('GET', path), 200)
  const { id } = expectStatus(await admin<{ user: { id: string } }>('GET', '/auth/me'), 200).user
  assert.equal(data[0]?.action, 'create')
  assert.equal(data[0]?.userId, id)
  assert.equal(data.at(-1)?.userId, null)
  assert.match(data.at(-1)?.changes.after?.capital ?? '', /\(by hand\)$/)
  for (const { action, userId, changes } of data)
    see(`${action} PT by ${userId === id ? 'the administrator' : 'psql'}: capital ${changes.after?.capital}`)
}

async function verifyLog(stage: Stage, see: See): Promise<void> {
  const { code, output } = await stage.run('scripts/log-verify.ts')
  assert.equal(code, 0, output)
  const [header, ...lines] = output.trim().split('\n')
  const mentioned = lines.filter((line) => /^(continent|country|svc_User) /.test(line))
  assert.equal(mentioned.length, 3, output)
  assert.match(
    lines.find((line) => line.startsWith('country '))!,
    new RegExp(`^country +${countryRows.length} +${countryRows.length} +0 +0 +0$`),
  )
  for (const line of [header!, ...mentioned]) see(line)
}

async function stopAll({ web, mailWorker }: Stage, see: See): Promise<void> {
  for (const part of [web, mailWorker]) {
    const code = await part.stop()
    assert.equal(code, 0, `${part.name} ended with ${code}`)
    see(`${part.name}: exit code 0`)
  }
}
