import { readFile } from 'node:fs/promises'
import { setTimeout as delay } from 'node:timers/promises'
import { type Cluster, startCluster, type Web } from '../support/cluster.ts'
import { seededRandom } from '../support/ledger.ts'
import { administrator } from '../support/prepare.ts'
import { waitFor } from '../support/wait.ts'
import { type Asked, type Clients, type Kind, openClients, reportRequest } from './overload-clients.ts'
import type { Result } from './scenario.ts'

export type Size = {
  readonly rows: number
  readonly seconds: number
  readonly heavy: number
  readonly light: number
  readonly loginsPerSecond: number
  /** Whether the figures must be those that are promised; only where nothing else runs. */
  readonly isTimed: boolean
}

/** What is promised. Milliseconds and megabytes. */
const promised = { lightTimes: 20, health: 500, refusal: 1000, rss: 400 }

/**
 * Clients that ask for heavy reports, and again as soon as they are answered or refused, beside clients that read single
 * rows; then a flood of sign-ins with wrong passwords, too. The light ones are answered as if there were no others.
 */
export async function runOverload(seed: number, size: Size): Promise<Result> {
  // The same report again would come from memory, which is no load.
  const uncached = { DATA_CACHE_AUTO: 'false' }
  const env = { DATABASE_POOL_MAX: '20', PASSWORD_HASH_COST: '10', AUTH_RATE_LIMIT_DISABLED: 'true', ...uncached }
  const cluster = await startCluster({ env })
  const [web] = cluster.web
  const ids = await prepare(cluster, seed, size.rows)
  const run: Run = {
    web: web!,
    token: cluster.token,
    ids,
    size,
    watchers: openClients(),
    crowd: openClients(),
  }
  // So that nothing is built for the first time while it is measured.
  await phase(run, { seconds: Math.min(1, size.seconds), heavy: 0, logins: 0 })
  const alone = await phase(run, { seconds: size.seconds / 6, heavy: 0, logins: 0 })
  const crowded = await phase(run, { seconds: size.seconds, heavy: size.heavy, logins: 0 })
  const flooded = await phase(run, { seconds: size.seconds / 2, heavy: size.heavy, logins: size.loginsPerSecond })
  run.watchers.close()
  run.crowd.close()
  const after = await stillWorks(run)
  const faults = [
    ...wrong('alone', alone, size),
    ...wrong('crowded', crowded, size),
    ...wrong('flooded', flooded, size),
    ...after,
  ]
  if (size.isTimed)
    for (const [name, one] of Object.entries({ crowded, flooded })) faults.push(...late(name, one, alone))
  return {
    faults,
    figures: { ...figures('alone', alone), ...figures('crowded', crowded), ...figures('flooded', flooded) },
  }
}

type Run = {
  readonly web: Web
  readonly token: string
  readonly ids: readonly string[]
  readonly size: Size
  /** Those who read rows and ask for `/health`, and the crowd beside them. */
  readonly watchers: Clients
  readonly crowd: Clients
}
type Phase = Readonly<Record<Kind, readonly Asked[]>> & {
  /** The largest resident set of the web process, megabytes. */
  readonly rss: number
  /** How much of a core the web process took, and the clients; per cent. */
  readonly cpu: number
  readonly cpuOfClients: number
}

async function prepare({ web, sql }: Cluster, seed: number, rows: number): Promise<string[]> {
  const fields = { shop: { type: 'String' }, amount: { type: 'Decimal' }, day: { type: 'Date' } }
  const made = await web[0]!.call('POST', '/schemas', { collectionName: 'sale', schema: { fields } })
  if (made.status !== 201) throw new Error(made.text)
  await sql(`insert into sale (id, shop, amount, day, "createdAt", "updatedAt")
    select gen_random_uuid(), 'shop ' || n % 1000, n % 977, date '2020-01-01' + n % 2000, now(), now()
    from generate_series(1, ${rows}) n`)
  await sql('analyze sale')
  const random = seededRandom('overload', seed)
  const chosen = (await sql('select id from sale limit 1000')).map(({ id }) => ({ id: id as string, at: random() }))
  return chosen.sort((a, b) => a.at - b.at).map(({ id }) => id)
}

type Load = { readonly seconds: number; readonly heavy: number; readonly logins: number }

async function phase(run: Run, { seconds, heavy, logins }: Load): Promise<Phase> {
  const { web, token, ids, size, watchers, crowd } = run
  const load = { address: web.address, token, ids, seconds, light: 0, health: 0, heavy: 0, loginsPerSecond: 0 }
  const [began, beganAt] = [await cpuSeconds(web.pid), performance.now()]
  const over = new AbortController()
  const asked = Promise.all([
    watchers.ask({ ...load, light: size.light, health: 1 }),
    crowd.ask({ ...load, heavy, loginsPerSecond: logins }),
  ]).finally(() => over.abort())
  const [[watched, crowded], rss] = await Promise.all([asked, largestResident(web.pid, over.signal)])
  const lasted = (performance.now() - beganAt) / 1000
  const cpu = Math.round((100 * ((await cpuSeconds(web.pid)) - began)) / lasted)
  const cpuOfClients = Math.round((100 * (watched.cpuSeconds + crowded.cpuSeconds)) / lasted)
  const { light, health } = watched.seen
  const { heavy: reports, logins: signIns } = crowded.seen
  return { light, health, heavy: reports, logins: signIns, rss, cpu, cpuOfClients }
}

async function largestResident(pid: number, over: AbortSignal): Promise<number> {
  let rss = 0
  for (; !over.aborted; await delay(200)) rss = Math.max(rss, await residentMegabytes(pid))
  return rss
}

async function residentMegabytes(pid: number): Promise<number> {
  const kilobytes = /^VmRSS:\s+(\d+) kB$/m.exec(await readFile(`/proc/${pid}/status`, 'utf8'))?.[1]
  return Math.round(Number(kilobytes) / 1024)
}

/** Ticks of a hundredth of a second, of user and system. */
async function cpuSeconds(pid: number): Promise<number> {
  const [user, system] = (await readFile(`/proc/${pid}/stat`, 'utf8')).split(') ')[1]!.split(' ').slice(11, 13)
  return (Number(user) + Number(system)) / 100
}

const refusedOf = (all: readonly Asked[]) => all.filter(({ status }) => status === 503)

/** What may not happen however busy the machine is. */
function wrong(name: string, { light, health, heavy, logins }: Phase, { isTimed }: Size): string[] {
  const told = (what: string, all: readonly Asked[]) =>
    all
      .flatMap((one) => one.wrong ?? [])
      .slice(0, 3)
      .map((answer) => `${name}: ${what} was answered ${answer}`)
  const unrefused = heavy.length > 0 && isTimed && refusedOf(heavy).length === 0 ? [`${name}: nothing was refused`] : []
  return [
    ...told('a read by key', light),
    ...told('/health', health),
    ...told('a report', heavy),
    ...told('a wrong password', logins),
    ...unrefused,
  ]
}

function late(name: string, { light, health, heavy, logins, rss }: Phase, alone: Phase): string[] {
  const check = (what: string, is: number, most: number) =>
    is > most ? [`${name}: ${what} ${is}, promised ${most}`] : []
  return [
    ...check('p99 of light reads', percentile(light, 0.99), promised.lightTimes * percentile(alone.light, 0.99)),
    ...check('slowest /health', percentile(health, 1), promised.health),
    ...check('slowest refusal', percentile([...refusedOf(heavy), ...refusedOf(logins)], 1), promised.refusal),
    ...check('resident megabytes', rss, promised.rss),
  ]
}

/** No request waits any more, and everything is answered again. */
async function stillWorks({ web }: Run): Promise<string[]> {
  const text = await waitFor(async () => {
    const { text: metrics } = await web.call('GET', '/metrics')
    return /^daybook_admission_(running|waiting)\{.*\} [1-9]/m.test(metrics) ? undefined : metrics
  })
  const answers = [
    await web.call('POST', '/reports/sale', reportRequest(0)),
    await web.call('POST', '/auth/login', administrator, null),
  ]
  return [
    ...answers.filter(({ status }) => status !== 200).map(({ status }) => `afterwards: ${status}`),
    ...(/^daybook_admission_admitted_total\{lane="reads",weight="heavy"\} [1-9]/m.test(text)
      ? []
      : ['nothing was admitted']),
  ]
}

function figures(
  name: string,
  { light, health, heavy, logins, rss, cpu, cpuOfClients }: Phase,
): Record<string, number> {
  const [refused, refusedLogins] = [refusedOf(heavy), refusedOf(logins)]
  return {
    [`${name}: reads`]: light.length,
    [`${name}: p50`]: percentile(light, 0.5),
    [`${name}: p99`]: percentile(light, 0.99),
    [`${name}: /health`]: percentile(health, 1),
    [`${name}: rss`]: rss,
    [`${name}: cpu`]: cpu,
    [`${name}: cpu of clients`]: cpuOfClients,
    ...(heavy.length > 0 && {
      [`${name}: reports`]: heavy.length - refused.length,
      [`${name}: refused`]: refused.length,
      [`${name}: slowest refusal`]: percentile([...refused, ...refusedLogins], 1),
    }),
    ...(logins.length > 0 && { [`${name}: logins`]: logins.length, [`${name}: refused logins`]: refusedLogins.length }),
  }
}

/** Whole milliseconds, tenths below ten. */
function percentile(seen: readonly Asked[], share: number): number {
  const sorted = seen.map(({ ms }) => ms).sort((a, b) => a - b)
  const ms = sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))] ?? 0
  return ms < 10 ? Math.round(ms * 10) / 10 : Math.round(ms)
}
