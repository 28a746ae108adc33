import { join } from 'node:path'
import { boolean, integer, matching, oneOf, password, pem, text, url } from './parsers.ts'
import {
  addProblem,
  type ConfigReading,
  type Findings,
  optional,
  optionalSecret,
  readVariables,
  type Variable,
  variable,
} from './variable.ts'
import { socialProviderIds } from './variables/accounts.ts'
import type { VariableValues } from './variables.ts'

/** A complete mail sender. */
export type MailSender = Readonly<{
  name: string
  host: string
  port: number
  /** TLS from the first byte (as on port 465), not STARTTLS. */
  secure: boolean
  user: string
  pass: string
  from: string
}>

/** A place for files. */
export type StorageServiceConfig = LocalStorageService | S3StorageService

type LocalStorageService = Readonly<{ name: string; driver: 'LOCAL'; path: string }>

export type S3StorageService = Readonly<{
  name: string
  driver: 'S3'
  accessKeyId: string
  secretAccessKey: string
  region: string
  bucket: string
  endpoint: string | undefined
}>

/** A social sign-in provider that is listed in AUTH_SERVICES_ENABLED and has all its credentials. */
export type SocialProvider = Readonly<{
  /** Lower case, as in paths: `google`. */
  id: string
  clientId: string
  /** Absent only for apple where its secret is to be signed with `extra.privateKey`. */
  clientSecret: string | undefined
  /** Of an OpenID Connect server to ask instead of the provider's own. */
  issuer: string | undefined
  extra: SocialExtra
}>

/** Variables that only some providers have. */
type SocialExtra = Readonly<
  Partial<Record<'teamId' | 'keyId' | 'privateKey' | 'tenantId' | 'clientKey' | 'domain' | 'region', string>>
>

/** The values of the families of variables. The records have no prototype: only configured names are found in them. */
export type Families = Readonly<{
  senders: Readonly<Record<string, MailSender>>
  services: Readonly<Record<string, StorageServiceConfig>>
  providers: Readonly<Record<string, SocialProvider>>
}>

/** A family of variables as docs/config.md shows it: `placeholder` stands for the configured name. */
export type Family = Readonly<{ placeholder: string; variables: Readonly<Record<string, Variable<unknown>>> }>

const senderVariables = {
  host: optional('_SMTP_HOST', text, 'SMTP server'),
  port: optional('_SMTP_PORT', integer({ min: 1, max: 65535 }), 'Its port'),
  secure: optional('_SMTP_SECURE', boolean, 'TLS from the first byte; on for port 465 when unset'),
  user: optional('_SMTP_USER', text, 'User name'),
  pass: optionalSecret('_SMTP_PASS', password, 'Password'),
  from: optional('_FROM_ADDRESS', matching(/@/, 'e-mail address'), 'Address that mails come from'),
}

const serviceVariables = {
  driver: optional('_STORAGE_DRIVER', oneOf('LOCAL', 'S3'), 'Kind of the service'),
  path: optional('_STORAGE_PATH', text, 'LOCAL: root directory'),
  accessKeyId: serviceKey(optional('_STORAGE_ACCESS_KEY_ID', text, 'S3: key id')),
  secretAccessKey: serviceKey(optionalSecret('_STORAGE_SECRET_ACCESS_KEY', text, 'S3: secret key')),
  region: serviceKey(optional('_STORAGE_REGION', text, 'S3: region')),
  bucket: serviceKey(optional('_STORAGE_BUCKET', text, 'S3: bucket')),
  endpoint: serviceKey(optional('_STORAGE_ENDPOINT', url('https', 'http'), 'S3: address of a compatible server')),
}

const serviceDocs = new Map(Object.values(serviceVariables).map(({ name, doc }) => [name, doc]))

const providerVariables = {
  clientId: optional('_CLIENT_ID', text, 'OAuth client id'),
  clientSecret: optionalSecret('_CLIENT_SECRET', text, 'OAuth client secret'),
  issuer: optional(
    '_ISSUER',
    url('https', 'http'),
    'OpenID Connect server that is asked instead of the provider, e.g. one of your own; http only with SSRF_ALLOW_PRIVATE_URL_FETCH',
  ),
}

const extraVariables = {
  APPLE: {
    teamId: optional('_TEAM_ID', text, 'Team id'),
    keyId: optional('_KEY_ID', text, 'Key id'),
    privateKey: optionalSecret(
      '_PRIVATE_KEY',
      pem,
      'Private key that signs the client secret; line ends may be written \\n',
    ),
  },
  MICROSOFT: { tenantId: variable('_TENANT_ID', text, 'common', 'Tenant whose accounts may sign in') },
  TIKTOK: { clientKey: optional('_CLIENT_KEY', text, 'Client key; TIKTOK_CLIENT_ID may be left out') },
  COGNITO: {
    domain: optional('_DOMAIN', text, 'Domain of the user pool'),
    region: optional('_REGION', text, 'Region of the user pool'),
  },
} satisfies Partial<Record<ProviderId, Record<string, Variable<string> | Variable<string | undefined>>>>

/** The families by the section of docs/config.md they belong to. */
export const families: Partial<Record<keyof VariableValues, readonly Family[]>> = {
  mail: [{ placeholder: '<SENDER>', variables: senderVariables }],
  storage: [{ placeholder: '<SERVICE>', variables: serviceVariables }],
  oauth: [
    { placeholder: '<PROVIDERID>', variables: providerVariables },
    ...Object.entries(extraVariables).map(([placeholder, variables]) => ({ placeholder, variables })),
  ],
}

/** Reads the variables of every configured sender, service and provider. */
export function readFamilies(parsed: VariableValues, reading: ConfigReading): Families {
  const listed: readonly string[] = parsed.auth.servicesEnabled
  return {
    senders: record(distinct(parsed.mail.sendersEnabled).map((name) => readSender(name, reading))),
    services: readServices(parsed, reading),
    providers: record(socialProviderIds.filter((id) => listed.includes(id)).map((id) => readProvider(id, reading))),
  }
}

/** How a configured name begins its variables: `eu-mail` → `EU_MAIL`. */
export function variablePrefix(name: string): string {
  return name.toUpperCase().replaceAll('-', '_')
}

type ProviderId = (typeof socialProviderIds)[number]

/** An incomplete sender is skipped with a warning, as the specification says. */
function readSender(name: string, reading: ConfigReading): [string, MailSender] | undefined {
  const prefix = variablePrefix(name)
  const values = readVariables(senderVariables, reading, prefix)
  const { secure, ...required } = values
  const missing = missingNames(required, senderVariables, prefix)
  if (missing.length > 0) return skipped(reading.findings, `Mail sender ${name} is skipped`, missing)
  const complete = required as Complete<typeof required>
  return [name, { name, ...complete, secure: secure ?? complete.port === 465 }]
}

/**
 * Without any, files are kept beside the data of the embedded server. In production an operator says where: what is
 * written into a container is gone with it.
 */
function readServices({ storage, database }: VariableValues, reading: ConfigReading): Families['services'] {
  const names = distinct(storage.servicesEnabled)
  if (names.length === 0 && reading.environment !== 'production')
    return record([['local', { name: 'local', driver: 'LOCAL', path: join(database.dataDir, 'files') }]])
  return record(names.map((name) => readService(name, reading)))
}

/** An incomplete service is a problem: the files in it would be gone without a word. */
function readService(name: string, reading: ConfigReading): [string, StorageServiceConfig] | undefined {
  const prefix = variablePrefix(name)
  const { driver, path, endpoint, ...keys } = readVariables(serviceVariables, reading, prefix)
  const required = driver === undefined ? { driver } : driver === 'LOCAL' ? { path } : keys
  for (const missing of missingNames(required, serviceVariables, prefix))
    addProblem(reading.findings, {
      variable: missing,
      message: `is missing; it is required because STORAGE_SERVICES_ENABLED names ${name}`,
      doc: serviceDocs.get(missing.slice(prefix.length)) ?? '',
    })
  if (missingNames(required, serviceVariables, prefix).length > 0) return undefined
  if (driver === 'LOCAL') return [name, { name, driver, path: path as string }]
  return [name, { name, driver: 'S3', ...(keys as Complete<typeof keys>), endpoint }]
}

function readProvider(id: ProviderId, reading: ConfigReading): [string, SocialProvider] | undefined {
  const { clientId, clientSecret, issuer } = readVariables(providerVariables, reading, id)
  const extra: SocialExtra = id in extraVariables ? readVariables(extraOf(id), reading, id) : {}
  const required = requiredOf(id, { clientId, clientSecret }, extra)
  const missing = missingNames(required, { ...providerVariables, ...extraOf(id) }, id)
  if (missing.length > 0) return skipped(reading.findings, `Social provider ${id} is not active`, missing)
  const credentials = { clientId: clientId ?? extra.clientKey ?? '', clientSecret }
  return [id.toLowerCase(), { id: id.toLowerCase(), ...credentials, issuer, extra }]
}

/** Apple's secret may be signed from its key; TikTok calls its client id a client key. */
function requiredOf(
  id: ProviderId,
  base: { clientId?: string | undefined; clientSecret?: string | undefined },
  extra: SocialExtra,
) {
  if (id === 'APPLE' && base.clientSecret !== undefined) return base
  if (id === 'APPLE') return { clientId: base.clientId, ...extra }
  if (id === 'TIKTOK') return { clientSecret: base.clientSecret, ...extra }
  return { ...base, ...extra }
}

function extraOf(id: ProviderId): Record<string, Variable<string | undefined>> {
  return (extraVariables as Partial<Record<ProviderId, Record<string, Variable<string | undefined>>>>)[id] ?? {}
}

type Complete<T> = { [K in keyof T]: Exclude<T[K], undefined> }

function missingNames(
  values: Readonly<Record<string, unknown>>,
  variables: Readonly<Record<string, Variable<unknown>>>,
  prefix: string,
): string[] {
  return Object.keys(values)
    .filter((key) => values[key] === undefined)
    .map((key) => prefix + (variables[key]?.name ?? key))
}

function skipped(findings: Findings, what: string, missing: string[]): undefined {
  findings.warnings.push(`${what}: ${missing.join(', ')} ${missing.length === 1 ? 'is' : 'are'} missing`)
}

/** Both readings of the specification's row are accepted: S3_STORAGE_BUCKET and S3_BUCKET. */
function serviceKey<T>(variable: Variable<T>): Variable<T> {
  return { ...variable, alias: variable.name.replace('_STORAGE', '') }
}

/** Names that begin the same variables are one; the first spelling stands. */
function distinct(names: readonly string[]): string[] {
  return [...new Map(names.toReversed().map((name) => [variablePrefix(name), name])).values()].toReversed()
}

function record<T>(entries: readonly ([string, T] | undefined)[]): Readonly<Record<string, T>> {
  const found: Record<string, T> = Object.create(null)
  for (const entry of entries) if (entry !== undefined) found[entry[0]] = entry[1]
  return found
}
