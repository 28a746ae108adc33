import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { parseEnv } from 'node:util'
import { editDistance } from '../language/text.ts'
import { type Families, families as familyTable, readFamilies, variablePrefix } from './families.ts'
import { checkRules, type RuleOptions } from './rules.ts'
import { type ConfigReading, type Env, isSet, openReading, readVariables, type VariableProblem } from './variable.ts'
import { groups, type VariableValues } from './variables.ts'

/**
 * The whole configuration: one member per section of docs/config.md, one value per variable. Frozen.
 * Names end in their unit (`Ms`, `Seconds`, `Days`, `Bytes`); sizes are in bytes, the times of `auth` in seconds.
 */
export type Config = Readonly<
  Omit<VariableValues, 'auth' | 'access' | 'mail' | 'storage' | 'passkey' | 'oauth'> & {
    auth: VariableValues['auth'] & {
      /** Password sign-in is on (LOCAL is listed). */
      readonly local: boolean
      /** Two-factor is on (TWOFACTOR is listed). */
      readonly twoFactor: boolean
      /** E-mail verification is required and no mail sender is configured: the settings must hold SMTP. */
      readonly verificationNeedsSettingsSmtp: boolean
    }
    access: Omit<VariableValues['access'], 'protectPrivilegeFields'> & { readonly protectPrivilegeFields: boolean }
    /** Complete senders by name; `defaultSender` is a key of them, undefined when there is none. */
    mail: VariableValues['mail'] & { readonly senders: Families['senders'] }
    /** Services by name; `defaultService` is a key of them, undefined when there is none. */
    storage: VariableValues['storage'] & { readonly services: Families['services'] }
    /** Undefined unless passkeys are listed and fully configured. */
    passkey: PasskeyConfig | undefined
    /** Active providers by lower-case id. */
    oauth: VariableValues['oauth'] & { readonly providers: Families['providers'] }
    /** Doubts that are no reason to stop; log them at start. */
    warnings: readonly string[]
  }
>

/** The parsed environment. */
export type Configuration = { readonly config: Config }

export type PasskeyConfig = Readonly<{ rpId: string; rpName: string; origins: readonly string[] }>

export type ParseOptions = RuleOptions &
  Readonly<{
    /** Stands in for an unset SECRET_KEY outside production: the key that development keeps beside its data. */
    secretKey?: string
  }>

/** Everything that is wrong with the configuration, at once. Its message never holds a secret. */
export class ConfigError extends Error {
  readonly problems: readonly VariableProblem[]

  constructor(message: string, problems: readonly VariableProblem[] = []) {
    super(message)
    this.name = 'ConfigError'
    this.problems = problems
  }
}

/**
 * Reads the configuration from environment variables.
 *
 * `allowMissingSecret` lets SECRET_KEY be unset outside production; `auth.secretKey` is then empty, so such a
 * config must not sign anything. `requireDatabase` makes an unset DATABASE_URL a problem.
 *
 * @throws {ConfigError} naming every variable that is missing, malformed or at odds with another one
 */
export function parseConfig(env: Env, options: ParseOptions = {}): Config {
  const reading = openReading(env)
  const parsed = readGroups(reading)
  const families = readFamilies(parsed, reading)
  const secretKey = parsed.auth.secretKey || (reading.environment === 'production' ? '' : (options.secretKey ?? ''))
  checkRules({ parsed, families, secretKey }, reading, options)
  reading.findings.warnings.push(...nearMisses(reading))
  const { problems, warnings } = reading.findings
  if (problems.length > 0) throw new ConfigError(describeProblems(problems), problems)
  return deepFreeze(assemble({ parsed, families, secretKey, warnings, reading }))
}

/**
 * The variables of a process: those of `<dir>/.env`, if there is one, overlaid by the process's own.
 *
 * @throws {ConfigError} naming the file when it cannot be read or has a line that is no assignment
 */
export function loadEnv(dir: string, processEnv: Env): Record<string, string | undefined> {
  const file = join(dir, '.env')
  const content = readIfPresent(file)
  if (content === undefined) return { ...processEnv }
  const line = firstMalformedLine(content)
  if (line !== undefined) throw new ConfigError(`${file} is malformed: line ${line} is not of the form NAME=value`)
  return { ...parseEnv(content), ...processEnv }
}

/** A copy to print or log: secrets are masked, of connection strings only scheme, host and database remain. */
export function describeConfig(config: Config): Record<string, unknown> {
  return masked(config, '') as Record<string, unknown>
}

type ConfigDraft = {
  parsed: VariableValues
  families: Families
  secretKey: string
  warnings: string[]
  reading: ConfigReading
}

function readGroups(reading: ConfigReading): VariableValues {
  const read = Object.entries(groups).map(([key, group]) => [key, readVariables(group.variables, reading)])
  return Object.fromEntries(read) as VariableValues
}

function assemble({ parsed, families, secretKey, warnings, reading }: ConfigDraft): Config {
  const { auth, access, mail, rateLimit, storage } = parsed
  const senders = Object.keys(families.senders)
  return {
    ...parsed,
    auth: {
      ...auth,
      secretKey,
      local: auth.servicesEnabled.includes('LOCAL'),
      twoFactor: auth.servicesEnabled.includes('TWOFACTOR'),
      verificationNeedsSettingsSmtp: auth.requireEmailVerification && senders.length === 0,
    },
    access: { ...access, ...privilegeFields(access, reading) },
    rateLimit: { ...rateLimit, redisUrl: rateLimit.redisUrl ?? systemCacheRedis(parsed) },
    mail: { ...mail, senders: families.senders, defaultSender: namedOrFirst(mail.defaultSender, senders) },
    storage: {
      ...storage,
      services: families.services,
      defaultService: namedOrFirst(storage.defaultService, Object.keys(families.services)),
    },
    passkey: passkeyConfig(parsed),
    oauth: { ...parsed.oauth, providers: families.providers },
    warnings,
  }
}

function systemCacheRedis({ systemCache }: VariableValues): string | undefined {
  return systemCache.adapter === 'redis' ? systemCache.redisUrl : undefined
}

/** The old value allow-password means both switches, unless the second is set by itself. */
function privilegeFields(access: VariableValues['access'], reading: ConfigReading) {
  const old = access.protectPrivilegeFields === 'allow-password'
  return {
    protectPrivilegeFields: access.protectPrivilegeFields !== false,
    allowPasswordWrites: access.allowPasswordWrites || (old && !isSet(reading, 'ALLOW_PASSWORD_WRITES')),
  }
}

function passkeyConfig({ auth, passkey }: VariableValues): PasskeyConfig | undefined {
  const { rpId, rpName, origins } = passkey
  if (!auth.servicesEnabled.includes('PASSKEY') || !rpId || !rpName || origins.length === 0) return undefined
  return { rpId, rpName, origins }
}

function namedOrFirst(wanted: string | undefined, names: readonly string[]): string | undefined {
  const same = (name: string) => wanted !== undefined && variablePrefix(name) === variablePrefix(wanted)
  return names.find(same) ?? names[0]
}

function describeProblems(problems: readonly VariableProblem[]): string {
  const lines = problems.map(({ variable, message, doc }) => `  ${variable}: ${message}\n      (${doc})`)
  return `The configuration has ${problems.length === 1 ? 'a problem' : `${problems.length} problems`}:\n${lines.join('\n')}`
}

function readIfPresent(file: string): string | undefined {
  try {
    return readFileSync(file, 'utf8')
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    if (code === 'ENOENT') return undefined
    throw new ConfigError(`${file} cannot be read: ${code}`)
  }
}

/** Members that hold a secret somewhere; masked wherever they occur, which errs on the safe side. */
const secretMembers = new Set(
  [...Object.values(groups), ...Object.values(familyTable).flat()].flatMap(({ variables }) =>
    Object.entries(variables)
      .filter(([, variable]) => variable.secret)
      .map(([member]) => member),
  ),
)

function masked(value: unknown, member: string): unknown {
  if (Array.isArray(value)) return value.map((entry) => masked(entry, member))
  if (typeof value === 'object' && value !== null)
    return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, masked(inner, key)]))
  if (typeof value !== 'string' || value === '' || !secretMembers.has(member)) return value
  return /urls?$/i.test(member) ? maskedUrl(value) : '********'
}

function maskedUrl(value: string): string {
  const { protocol, host, pathname, username, password } = new URL(value)
  return `${protocol}//${username + password === '' ? '' : '********@'}${host}${pathname}`
}

function deepFreeze<T>(value: T): T {
  if (typeof value === 'object' && value !== null && !Object.isFrozen(value)) {
    Object.freeze(value)
    for (const inner of Object.values(value)) deepFreeze(inner)
  }
  return value
}

/**
 * The number of the first line of a .env file that is no assignment, comment or blank, or whose quote is never
 * closed. `parseEnv` drops such lines silently, but a slip in a secret's line must not pass as "unset".
 */
function firstMalformedLine(content: string): number | undefined {
  const text = content.replaceAll('\r\n', '\n').replace(/^\uFEFF/, '')
  let end = 0
  while (end < text.length) {
    statement.lastIndex = end
    if (!statement.test(text)) return text.slice(0, end).split('\n').length
    end = statement.lastIndex
  }
  return undefined
}

const blanks = /[^\S\n]*/.source
const comment = /#[^\n]*/.source
const quoted = /"[^"]*"|'[^']*'|`[^`]*`/.source
const bare = /(?!["'`])[^\n]*/.source
const key = /(?:export[^\S\n]+)?[A-Za-z_][\w.-]*/.source
const assignment = `${key}${blanks}=${blanks}(?:(?:${quoted})${blanks}(?:${comment})?|${bare})`

/** One statement with its line end; sticky, so that it is matched exactly where the last one ended. */
const statement = new RegExp(`${blanks}(?:${comment}|${assignment})?(?:\\n|$)`, 'y')

/**
 * Warnings for variables that look like a misspelling of one of ours: unknown, at most two edits away, sharing
 * a word with it, and the right one unset. Short names are left alone: too many would match by accident.
 */
function nearMisses(reading: ConfigReading): string[] {
  const known = [...reading.asked].filter((name) => name.length >= shortest && !isSet(reading, name))
  return Object.keys(reading.env)
    .filter((name) => name.length >= shortest && !reading.asked.has(name) && isSet(reading, name))
    .flatMap((name) => {
      const meant = known.find((candidate) => sharesWord(name, candidate) && editDistance(name, candidate) <= 2)
      return meant === undefined ? [] : [`${name} is not a variable of Daybook; did you mean ${meant}?`]
    })
}

const shortest = 8

function sharesWord(left: string, right: string): boolean {
  const words = left.split('_')
  return right.split('_').some((word) => words.includes(word))
}

/**
 * The configuration of the installation here, for commands that run beside its processes: without DATABASE_URL the database
 * is the embedded one that `npm start` runs. `secretKey` also takes the key that `npm start` keeps beside it.
 *
 * @throws {ConfigError} as `parseConfig`, which names DATABASE_URL where there is no embedded database either
 */
export function parseInstallation(env: Env, { secretKey = false }: { readonly secretKey?: boolean } = {}): Config {
  const options = { allowMissingSecret: true }
  const { database } = parseConfig(env, options)
  const kept = (name: string) => keptIn(database.dataDir, name)
  const all: ParseOptions = {
    ...options,
    requireDatabase: true,
    ...(secretKey && { secretKey: kept('secret-key') ?? '' }),
  }
  if (database.url !== undefined) return parseConfig(env, all)
  return parseConfig({ ...env, DATABASE_URL: embeddedDatabase(database.dataDir) }, all)
}

/** The address of the embedded database that a data directory holds; undefined where none was ever started. */
export function embeddedDatabase(dataDir: string): string | undefined {
  return keptIn(dataDir, 'database-url')
}

function keptIn(dataDir: string, name: string): string | undefined {
  const file = join(dataDir, name)
  return existsSync(file) ? readFileSync(file, 'utf8').trim() : undefined
}
