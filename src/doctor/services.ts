import { randomUUID } from 'node:crypto'
import { constants } from 'node:fs'
import { access, mkdtemp, rmdir, stat } from 'node:fs/promises'
import { dirname, join, resolve } from 'node:path'
import { text } from 'node:stream/consumers'
import { openLogger } from '../adapters/logger.ts'
import { checkSender, type MailProblem, mailProblems, type SmtpSender } from '../adapters/mailer.ts'
import { openRedis, type Redis } from '../adapters/redis.ts'
import { openSemaphore } from '../adapters/retry.ts'
import { pingUpstash } from '../adapters/upstash.ts'
import type { Config } from '../config/config.ts'
import { variablePrefix } from '../config/families.ts'
import type { Reader } from '../db/sql.ts'
import { openStorages, type Storage } from '../features/files/storage/storage.ts'
import { settingsSender } from '../features/messaging/mail/mail.ts'
import { installationSettings, tenantsWithSmtp } from '../features/settings/settings.ts'
import { type Finding, ok, oneLine, problem, reasonOf, warning } from './finding.ts'

/**
 * Every sender of the environment and, where there is a database, the one of the installation's settings: whether its
 * server lets us in. Nothing is sent.
 */
export async function checkMail(config: Config, db: Reader | undefined): Promise<Finding[]> {
  const row = db && (await installationSettings(db))
  const ofSettings = row && settingsSender(config, row)
  const senders = [...Object.values(config.mail.senders), ...(ofSettings === undefined ? [] : [ofSettings])]
  if (senders.length > 0) return Promise.all(senders.map(check))
  return [
    config.server.environment === 'production'
      ? warning(
          'mail',
          'no sender is configured: mails wait',
          'name one in MAIL_SENDERS_ENABLED, or set SMTP in the settings',
        )
      : ok('mail', 'no sender is configured: mails are shown at /_dev/mail'),
  ]
}

async function check(sender: SmtpSender): Promise<Finding> {
  const who = `sender ${sender.name} at ${sender.host}:${sender.port}`
  const refusal = await checkSender(sender)
  if (refusal === undefined) return ok('mail', `${who} lets us in`)
  return problem('mail', `${who}: ${wordsFor(refusal)}`, remedyFor(refusal, sender))
}

/** The words of a lost password bring the remedy along, which stands apart here. */
const wordsFor = (refusal: MailProblem): string =>
  refusal === 'lost password' ? 'no key opens its password' : mailProblems[refusal]

function remedyFor(refusal: MailProblem, { name, port, secure }: SmtpSender): string {
  if (refusal === 'lost password') return `${formerKey}, or set the SMTP password of the ${name} again`
  if (refusal === 'refused credentials') return `correct user and password of the sender ${name}`
  if (refusal === 'no TLS')
    return `correct SMTP_SECURE of the sender ${name}: it is ${secure} with port ${port}; 465 is TLS from the first byte, 587 is STARTTLS`
  return `correct host and port of the sender ${name}, or open the firewall to port ${port}`
}

const atOnce = 10
/** After this no other server is asked, so that thousands of dead ones don't hold the rest up. */
const longestMs = 20_000

/**
 * Whether the SMTP servers of tenants' own settings let us in. Nothing is sent. A failure is a warning: the tenant has
 * to fix it, and everybody else has mail.
 */
export async function checkTenantMail(config: Config, db: Reader): Promise<Finding[]> {
  const semaphore = openSemaphore(atOnce)
  const startedAt = performance.now()
  const check = async (tenant: Tenant) =>
    performance.now() - startedAt > longestMs ? undefined : checkOne(config, tenant)
  const tenants = await tenantsWithSmtp(db)
  const checked = await Promise.all(tenants.map((tenant) => semaphore(() => check(tenant))))
  const found = checked.filter((findings) => findings !== undefined)
  return summaryOf(found.flat(), tenants.length - found.length)
}

type Tenant = Awaited<ReturnType<typeof tenantsWithSmtp>>[number]

/** Nothing where the settings are not complete: the tenant's mails then go by the installation's sender. */
async function checkOne(config: Config, { tenant, settings }: Tenant): Promise<(Finding | 'works')[]> {
  const who = `SMTP of tenant ${oneLine(tenant)} (${settings.tenant_Id})`
  const sender = settingsSender(config, settings)
  if (sender === undefined) return []
  const refusal = await checkSender(sender)
  if (refusal === undefined) return ['works']
  const says = `${who} at ${placeOf(sender)}: ${wordsFor(refusal)}`
  return [warning('mail', says, refusal === 'lost password' ? remedyForKey : remedy)]
}

const remedy = 'let the tenant correct SMTP in its settings; until then its mails wait'
const remedyForSlow = 'look again when the tenants above have corrected theirs'
const formerKey = 'name the former key in SECRET_KEY_PREVIOUS'
const remedyForKey = `${formerKey}, or let the tenant set its SMTP password again`

function summaryOf(found: readonly (Finding | 'works')[], left: number): Finding[] {
  const findings = found.filter((each) => each !== 'works')
  const works = found.length - findings.length
  return [
    ...(works > 0 ? [ok('mail', `SMTP of ${works} tenants lets us in`)] : []),
    ...findings,
    ...(left > 0
      ? [warning('mail', `SMTP of ${left} tenants was not tried: others took too long`, remedyForSlow)]
      : []),
  ]
}

const placeOf = ({ host, port }: SmtpSender): string => `${oneLine(host)}:${port}`

/** A Redis and what it is for; `keeps` where an evicted key would be missed. */
type Use = { readonly variable: string; readonly url: string; readonly what: string; readonly keeps: boolean }

/** Every Redis that a switched-on part uses. */
export async function checkRedis(config: Config): Promise<Finding[]> {
  const byUrl = Map.groupBy(usesOf(config), ({ url }) => url)
  return (await Promise.all([...byUrl].map(([url, uses]) => checkServer(url, uses)))).flat()
}

function usesOf({ rateLimit, systemCache, dataCache, realtime, tasks }: Config): Use[] {
  const use = (variable: string, what: string, url: string | undefined, isOn: boolean, keeps: boolean): Use[] =>
    isOn && url !== undefined ? [{ variable, what, url, keeps }] : []
  return [
    ...use(
      'RATE_LIMIT_REDIS_URL',
      'rate limits',
      rateLimit.redisUrl,
      !rateLimit.disabled || !rateLimit.authDisabled,
      true,
    ),
    ...use('SYSTEM_CACHE_REDIS_URL', 'the system cache', systemCache.redisUrl, systemCache.adapter === 'redis', false),
    ...use(
      'DATA_CACHE_REDIS_URL',
      'the data cache',
      dataCache.redisUrl,
      dataCache.enabled && dataCache.adapter === 'redis',
      false,
    ),
    ...use('SOCKET_REDIS_URL', 'realtime', realtime.redisUrl, realtime.enabled && realtime.redisEnabled, false),
    ...use('TASK_REDIS_URL', 'the lock of tasks', tasks.redisUrl, tasks.enabled && tasks.redisEnabled, true),
  ]
}

async function checkServer(url: string, uses: readonly Use[]): Promise<Finding[]> {
  const { host } = new URL(url)
  const says = `${host} for ${uses.map(({ what }) => what).join(', ')}`
  const redis = openRedis(url, openLogger({ level: 'silent', name: 'doctor', stderr: true }))
  try {
    await redis.call('ping')
    const eviction = judgeEviction(says, await evictionOf(redis), uses)
    return [eviction ?? ok('redis', `${says} answers`)]
  } catch (error) {
    const names = uses.map(({ variable }) => variable).join(', ')
    const why = (error as Error).name === 'ReplyError' ? reasonOf(error) : 'no answer'
    return [problem('redis', `${says}: ${why}`, `start Redis there, or correct ${names}`)]
  } finally {
    redis.close()
  }
}

type Eviction = { readonly policy: string; readonly limited: boolean }

/** Undefined where it may not be asked, as at many hosters. */
async function evictionOf(redis: Redis): Promise<Eviction | undefined> {
  try {
    const [, policy] = (await redis.call('config', 'get', 'maxmemory-policy')) as [string, string]
    const [, limit] = (await redis.call('config', 'get', 'maxmemory')) as [string, string]
    return { policy, limited: limit !== '0' }
  } catch (error) {
    if ((error as Error).name === 'ReplyError') return undefined
    throw error
  }
}

/** A full Redis either throws keys away or refuses new ones: what is counted must stay, what is cached may go. */
export function judgeEviction(
  says: string,
  eviction: Eviction | undefined,
  uses: readonly Pick<Use, 'keeps'>[],
): Finding | undefined {
  if (eviction === undefined || !eviction.limited) return undefined
  const keeps = uses.some((use) => use.keeps)
  const caches = uses.some((use) => !use.keeps)
  if (keeps && eviction.policy !== 'noeviction')
    return warning(
      'redis',
      `${says}: maxmemory-policy ${eviction.policy} throws counters and locks away when it is full`,
      caches
        ? 'use two Redis: noeviction for counters and locks, allkeys-lru for caches'
        : 'config set maxmemory-policy noeviction',
    )
  if (caches && !keeps && eviction.policy === 'noeviction')
    return warning(
      'redis',
      `${says}: maxmemory-policy noeviction refuses new entries when it is full`,
      'config set maxmemory-policy allkeys-lru',
    )
  return undefined
}

/** Upstash, where a cache uses it. */
export async function checkUpstash({ upstash, systemCache, dataCache }: Config): Promise<Finding[]> {
  const uses = [
    ...(systemCache.adapter === 'upstash' ? ['the system cache'] : []),
    ...(dataCache.enabled && dataCache.adapter === 'upstash' ? ['the data cache'] : []),
  ]
  const { url, token } = upstash
  if (uses.length === 0 || url === undefined || token === undefined) return []
  const says = `${new URL(url).host} for ${uses.join(', ')}`
  const refusal = await pingUpstash({ url, token })
  if (refusal === undefined) return [ok('upstash', `${says} answers`)]
  return [problem('upstash', `${says}: ${refusal}`, 'correct UPSTASH_REDIS_REST_URL and UPSTASH_REDIS_REST_TOKEN')]
}

/** Every storage service, the directories of uploads and images in progress, and the one that migrations are read from. */
export async function checkStorage(config: Config): Promise<Finding[]> {
  const { storage, assets, migrations } = config
  const temp = storage.tempPath === undefined ? [] : [await checkWritable('STORAGE_TEMP_PATH', storage.tempPath)]
  const images = await checkWritable('ASSET_TEMP_DIR', assets.tempDir)
  return [...(await checkServices(config)), ...temp, images, await checkReadable('MIGRATIONS_DIR', migrations.dir)]
}

async function checkServices(config: Config): Promise<Finding[]> {
  const storages = openStorages(config)
  try {
    if (storages.all.length === 0)
      return [warning('storage', 'no service is configured: uploads answer 503', 'set STORAGE_SERVICES_ENABLED')]
    return await Promise.all(storages.all.map((storage) => checkService(storage)))
  } finally {
    storages.close()
  }
}

/** Writes a probe, reads it and deletes it. */
export async function checkService(storage: Storage): Promise<Finding> {
  const key = `daybook-doctor-${randomUUID()}`
  try {
    await storage.write(key, probe())
    const content = await storage.read(key)
    const found = content === undefined ? 'nothing' : await text(content)
    await storage.delete(key)
    if (found !== probeText) throw new Error(`what was written was not read again: ${found.slice(0, 100)}`)
    return ok('storage', `${storage.name}: content can be written, read and deleted`)
  } catch (error) {
    const reason = (error as Error).cause ?? error
    return problem('storage', `${storage.name}: ${reasonOf(reason)}`, remedyOf(storage, reason))
  }
}

const probeText = 'a probe'

async function* probe(): AsyncGenerator<Uint8Array> {
  yield Buffer.from(probeText)
}

const remedies: Readonly<Record<string, string>> = {
  NoSuchBucket: 'make the bucket, or correct _STORAGE_BUCKET',
  InvalidAccessKeyId: 'correct _STORAGE_ACCESS_KEY_ID',
  SignatureDoesNotMatch: 'correct _STORAGE_SECRET_ACCESS_KEY',
  AccessDenied: 'allow the key to get, put, list and delete objects of the bucket',
  PermanentRedirect: 'correct _STORAGE_REGION',
  AuthorizationHeaderMalformed: 'correct _STORAGE_REGION',
}

function remedyOf({ name, driver }: Storage, reason: unknown): string {
  const prefix = variablePrefix(name)
  if (isFull(reason)) return makeRoom
  if (driver === 'LOCAL') return `let this user write to the directory, or correct ${prefix}_STORAGE_PATH`
  const { name: kind = '' } = reason as { name?: string }
  const remedy = remedies[kind] ?? 'see that the server of _STORAGE_ENDPOINT or _STORAGE_REGION can be reached'
  return remedy.replaceAll(/(?<= )(?=_STORAGE)/g, prefix)
}

const makeRoom = 'make room: the disk is full, or the quota of the user that runs Daybook'

const isFull = (reason: unknown): boolean => ['ENOSPC', 'EDQUOT'].includes((reason as { code?: string }).code ?? '')

/** By making a directory in it, or where it will be made. */
async function checkWritable(what: string, path: string): Promise<Finding> {
  const directory = resolve(path)
  try {
    const place = await nearestExisting(directory)
    if (!(await stat(place)).isDirectory()) throw new Error(`${place} is no directory`)
    await rmdir(await mkdtemp(join(place, '.daybook-doctor-')))
    return ok('storage', `${what}: ${directory} can be written to`)
  } catch (error) {
    return unwritable(what, directory, error)
  }
}

export function unwritable(what: string, directory: string, reason: unknown): Finding {
  const remedy = isFull(reason) ? makeRoom : 'make the directory, and let the user that runs Daybook write to it'
  return problem('storage', `${what}: ${directory} cannot be written to: ${reasonOf(reason)}`, remedy)
}

async function nearestExisting(path: string): Promise<string> {
  try {
    await access(path)
    return path
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT' || dirname(path) === path) throw error
    return nearestExisting(dirname(path))
  }
}

async function checkReadable(what: string, path: string): Promise<Finding> {
  const directory = resolve(path)
  try {
    await access(directory, constants.R_OK | constants.X_OK)
    return ok('storage', `${what}: ${directory} can be read`)
  } catch (error) {
    return problem('storage', `${what}: ${reasonOf(error)}`, `make ${directory}, or correct ${what}`)
  }
}
