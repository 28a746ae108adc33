import { isIP } from 'node:net'
import type { Logger } from 'pino'
import type { Static, TSchema } from 'typebox'
import { isForbiddenLiteral } from '../../adapters/network-addresses.ts'
import { seal, unseal } from '../../adapters/sealing.ts'
import { fits, Type } from '../../adapters/typebox.ts'
import type { Config, Configuration } from '../../config/config.ts'
import type { Listener } from '../../db/listener.ts'
import type { Reads } from '../../db/pools.ts'
import { inRounds } from '../../db/rounds.ts'
import { type Reader, rawQuery, sql, type Tx } from '../../db/sql.ts'
import { AppError } from '../../errors.ts'
import { commit, type Writes } from '../../events/commit.ts'
import type { Actor } from '../../events/types.ts'
import { Id } from '../../http/shapes.ts'
import { oncePer } from '../../language/once.ts'
import { isUuid } from '../../language/text.ts'
import { isObject } from '../../query/guards.ts'
import type { Cell } from '../data/items/items.ts'

export const noSettings = { status: 404, message: 'Settings not found' }

/** How routes name the settings that they mean. */
export const TenantQuery = Type.Object({
  tenant_id: Type.Optional(
    Type.Union([Id(), Type.Literal('')], {
      description: 'The tenant whose settings are meant; without one those of the installation.',
      refusal: noSettings,
    }),
  ),
})

/** In the form that tenants are stored with; undefined for the installation. */
export const tenantOf = ({ tenant_id }: Static<typeof TenantQuery>): string | undefined =>
  tenant_id?.toLowerCase() || undefined

/** Stands for a password that is set; given back unchanged it means "as it is". */
const passwordMask = '********'

/** The purpose that SMTP passwords are sealed for. */
export const sealedForSettings = { purpose: 'settings', owner: 'smtp_pass' } as const

/**
 * The settings that everybody may know: an allow-list, and of the session limits the default alone, as
 * `{ web, mobile }` and once more as `web_session_limit` and `mobile_session_limit`; -1 where there is none.
 */
export function publicSettings(row: SettingsRow): Readonly<Record<string, unknown>> {
  const limits = defaultLimits(row)
  return {
    ...identityOf(row),
    ...valuesOf(row, (key) => key.isPublic),
    session_limits: limits,
    web_session_limit: limits.web,
    mobile_session_limit: limits.mobile,
  }
}

/** Everything but the SMTP password, which is write-only: only whether it is set shows. */
export function administratorSettings(row: SettingsRow): Readonly<Record<string, unknown>> {
  const limits = defaultLimits(row)
  return {
    ...identityOf(row),
    ...valuesOf(row, () => true),
    smtp_pass: row.smtp_pass === null ? null : passwordMask,
    web_session_limit: limits.web,
    mobile_session_limit: limits.mobile,
  }
}

/**
 * The files that the settings name as images, by the names of the images; null where they name none. Everybody may see what
 * the settings show, so there is nothing in them of where a file is stored and whose it is.
 */
export async function imagesOf({ db }: Reads, row: SettingsRow): Promise<Readonly<Record<string, unknown>>> {
  const ids = imageNames.map((name) => row[`${name}_Id`]).filter((id) => typeof id === 'string')
  const files = ids.length === 0 ? [] : await readImages(db, ids)
  const byId = new Map(files.map((file) => [file.id, file]))
  return Object.fromEntries(imageNames.map((name) => [name, byId.get(String(row[`${name}_Id`])) ?? null]))
}

async function readImages(db: Reads['db'], ids: readonly string[]) {
  const rows = await db.any<{ file: { readonly id: string; readonly createdAt: string; readonly updatedAt: string } }>(
    sql`
      select jsonb_build_object('id', id, 'title', title, 'description', description, 'filename', filename,
        'originalFilename', "originalFilename", 'type', type, 'size', size, 'width', width, 'height', height,
        'isPublic', "isPublic" is true, 'createdAt', "createdAt", 'updatedAt', "updatedAt") as file
      from "svc_File" where id = any(${sql.array(ids, 'uuid')})`,
  )
  return rows.map(({ file }) => ({
    ...file,
    createdAt: instant(file.createdAt),
    updatedAt: instant(file.updatedAt),
  }))
}

/** The look of a tenant's mails. */
export function brandingOf(row: SettingsRow): Readonly<Record<string, unknown>> {
  const { project_name, project_color, email_icon_Id, email_signature } = row
  return { project_name, project_color, email_icon_Id, email_signature }
}

/**
 * The values as the table holds them: the password sealed, its mask left out. 400 for an SMTP server that would never
 * be reached; where a name leads is found out when a mail is sent.
 */
function storedValues(config: Config, values: SettingsValues): SettingsValues {
  if (!config.files.allowPrivateUrlFetch && isForbiddenLiteral(String(values.smtp_host ?? '')))
    throw invalidSettings(['smtp_host: expected a host of the public internet'])
  const { smtp_pass: password, ...others } = values
  if (password === undefined || password === passwordMask) return others
  return { ...others, smtp_pass: password === null ? null : seal(config, sealedForSettings, String(password)) }
}

/** The SMTP password of a row, for the mailer alone; undefined where none is set, and where no key opens it. */
export function smtpPassword(config: Config, row: SettingsRow): string | undefined {
  return typeof row.smtp_pass === 'string' ? unseal(config, sealedForSettings, row.smtp_pass)?.text : undefined
}

export const settingsNotFound = () => new AppError(noSettings.status, noSettings.message)

function identityOf({ id, tenant_Id, createdAt, updatedAt }: SettingsRow) {
  return { id, tenant_Id, createdAt: instant(createdAt), updatedAt: instant(updatedAt) }
}

/** The rows come as the database's own JSON, whose times have microseconds and an offset. */
const instant = (value: unknown): string => new Date(value as string).toISOString()

function valuesOf(row: SettingsRow, shown: (key: { readonly isPublic: boolean }) => boolean) {
  return Object.fromEntries([...settingsKeys].flatMap(([name, key]) => (shown(key) ? [[name, row[name] ?? null]] : [])))
}

function defaultLimits({ session_limits }: SettingsRow): { web: number; mobile: number } {
  const { default: limits } = (session_limits ?? {}) as { default?: { web?: number | null; mobile?: number | null } }
  return { web: limits?.web ?? -1, mobile: limits?.mobile ?? -1 }
}

/** A row of svc_Settings in its wire form. */
export type SettingsRow = Readonly<Record<string, unknown>> & { readonly id: number; readonly tenant_Id: string | null }

export type SettingsStore = {
  /**
   * The installation's settings, overridden key by key by the tenant's own; the same object until they
   * are read again.
   */
  current(tenantId?: string): SettingsRow
  /** The tenant's own row, or the installation's for null, as it is: nothing is inherited. */
  own(tenantId: string | null): SettingsRow | undefined
  /** The address of the frontend: the installation's, compared exactly, or a tenant's, in any case. */
  byAppUrl(appUrl: string): SettingsRow | undefined
  /** Every row as it is. */
  all(): readonly SettingsRow[]
  /** Called after every reading, whatever it brought. */
  onChange(handler: () => void): void
  reload(): Promise<void>
}

/** The settings as they are now. */
export type CurrentSettings = { readonly settings: SettingsStore }

/** Loads every settings row and keeps them in step by NOTIFY, with a TTL as the last net. */
export async function openSettings(
  db: Reader,
  listener: Listener,
  log: Logger,
  ttlSeconds: number,
): Promise<SettingsStore> {
  let rows = await readRows(db)
  let readAt = performance.now()
  const handlers: (() => void)[] = []
  const reload = inRounds<never, void>(async () => {
    readAt = performance.now()
    rows = await readRows(db)
    for (const handler of handlers) handler()
  })
  const reloadSoon = () => {
    reload().catch((error: unknown) => log.error({ err: error }, 'the settings could not be reloaded'))
  }
  listener.on('svc_settings', reloadSoon)
  listener.onReconnect(reloadSoon)
  const fresh = () => {
    if (performance.now() - readAt > ttlSeconds * 1000) {
      // Once, however many ask before the answer is there.
      readAt = performance.now()
      reloadSoon()
    }
    return rows
  }
  return {
    current: (tenantId) => merged(fresh(), tenantId),
    all: () => rows,
    onChange: (handler) => handlers.push(handler),
    own: (tenantId) => fresh().find((row) => row.tenant_Id === tenantId),
    byAppUrl: (appUrl) => ownerOf(fresh(), appUrl),
    reload,
  }
}

async function readRows(db: Reader): Promise<readonly SettingsRow[]> {
  const found = await db.any<{ settings: SettingsRow }>(
    sql`select to_jsonb(s) as settings from "svc_Settings" s order by s.id`,
  )
  return found.map(({ settings }) => settings)
}

/** The installation's row, read now; undefined before the setup. */
export async function installationSettings(db: Reader): Promise<SettingsRow | undefined> {
  return (await readRows(db)).find((row) => row.tenant_Id === null)
}

/** The rows of tenants that have SMTP of their own switched on, by the names of the tenants; read now. */
export async function tenantsWithSmtp(
  db: Reader,
): Promise<readonly { readonly tenant: string; readonly settings: SettingsRow }[]> {
  return db.any(sql`
    select t.name as tenant, to_jsonb(s) as settings from "svc_Settings" s join "svc_Tenant" t on t.id = s."tenant_Id"
    where s.smtp_enabled order by t.name, s.id`)
}

function ownerOf(rows: readonly SettingsRow[], appUrl: string): SettingsRow | undefined {
  const isGlobal = rows.some((row) => row.tenant_Id === null && row.app_url === appUrl)
  if (isGlobal) return merged(rows, undefined)
  const wanted = appUrl.toLowerCase()
  const own = rows.find((row) => row.tenant_Id !== null && String(row.app_url ?? '').toLowerCase() === wanted)
  return own === undefined ? undefined : merged(rows, own.tenant_Id ?? undefined)
}

function merged(rows: readonly SettingsRow[], tenantId: string | undefined): SettingsRow {
  const global = rows.find((row) => row.tenant_Id === null)
  if (global === undefined) throw new Error('the global settings are missing: run the setup')
  const own = tenantId === undefined ? undefined : rows.find((row) => row.tenant_Id === tenantId)
  return own === undefined ? global : overriddenBy(global)(own)
}

const overriddenBy = oncePer((global: SettingsRow) =>
  oncePer((own: SettingsRow) => {
    const set = Object.entries(own).filter(([, value]) => value !== null)
    return { ...global, ...Object.fromEntries(set) } as SettingsRow
  }),
)

/**
 * Sets some keys of the installation's settings, or of a tenant's, which come into being with the first one; answers
 * them as they are then. 400 `Invalid settings data`; 404 for an unknown tenant; 409 for an app_url that another tenant has.
 */
export async function updateSettings(
  deps: Writes & CurrentSettings,
  actor: Actor,
  tenantId: string | null,
  body: unknown,
): Promise<SettingsRow> {
  const values = storedValues(deps.config, checkedSettings(body, tenantId))
  await commit(deps, actor, async (tx) => {
    const id = await lockedSettings(tx, tenantId)
    if (id !== undefined) await updateSettingsRow(tx, id, values)
    else if (tenantId !== null && (await tenantExists(tx, tenantId))) await insertSettings(tx, tenantId, values)
    else throw new AppError(404, 'Tenant not found')
    return { result: null, events: [{ type: 'system.settings', data: { tenantId, keys: Object.keys(values) } }] }
  })
  return deps.settings.current(tenantId ?? undefined)
}

/** The tenant follows the installation's settings again. 404 `Settings not found` where it has none of its own. */
export async function deleteSettings(deps: Writes, actor: Actor, tenantId: string): Promise<void> {
  await commit(deps, actor, async (tx) => {
    if ((await deleteTenantSettings(tx, tenantId)) === 0) throw settingsNotFound()
    return { result: null, events: [{ type: 'system.settings', data: { tenantId, keys: [] } }] }
  })
}

/** The row of a tenant, or the installation's own for null, locked until the transaction ends. */
async function lockedSettings(tx: Tx, tenantId: string | null): Promise<number | undefined> {
  const row = await tx.maybeOne<{ id: number }>(sql`
    select id from "svc_Settings" where "tenant_Id" is not distinct from ${tenantId}::uuid for update`)
  return row?.id
}

async function tenantExists(tx: Tx, tenantId: string): Promise<boolean> {
  return (await tx.maybeOne(sql`select from "svc_Tenant" where id = ${tenantId}::uuid`)) !== undefined
}

/** A tenant's first settings: what is not given is null, so that the installation's value shows through. */
async function insertSettings(tx: Tx, tenantId: string, values: SettingsValues): Promise<void> {
  const columns = columnsOf([...settingsKeys.keys()])
  const given = columns.map((column) => `v.${column}`)
  await tx.any(
    rawQuery(
      `insert into "svc_Settings" ("tenant_Id", ${columns.join(', ')})
       select $1::uuid, ${given.join(', ')} from jsonb_populate_record(null::"svc_Settings", $2::jsonb) v`,
      [tenantId, JSON.stringify(values)],
    ),
  )
}

async function updateSettingsRow(tx: Tx, id: number, values: SettingsValues): Promise<void> {
  const columns = columnsOf(Object.keys(values).filter((name) => settingsKeys.has(name)))
  const assignments = [...columns.map((column) => `${column} = v.${column}`), '"updatedAt" = now()']
  // A password belongs to the server that it was given for: changing the host must not send it to another one.
  if ('smtp_host' in values && !('smtp_pass' in values))
    assignments.push('smtp_pass = case when s.smtp_host is not distinct from v.smtp_host then s.smtp_pass end')
  await tx.any(
    rawQuery(
      `update "svc_Settings" s set ${assignments.join(', ')}
       from jsonb_populate_record(null::"svc_Settings", $2::jsonb) v where s.id = $1::int`,
      [String(id), JSON.stringify(values)],
    ),
  )
}

/** How many rows are gone: one or none. */
async function deleteTenantSettings(tx: Tx, tenantId: string): Promise<number> {
  const gone = await tx.any(sql`delete from "svc_Settings" where "tenant_Id" = ${tenantId}::uuid returning id`)
  return gone.length
}

/** Names of the closed list of keys, never of a request. */
const columnsOf = (names: readonly string[]): string[] => names.map((name) => `"${name}"`)

/**
 * Settings that come as an item of svc_Settings pass the same checks as those of PATCH /settings, and the password is
 * sealed. `id` is the row to change, absent for a new one. 403 for making the installation's own row a tenant's.
 */
export async function settingsCells(
  deps: Reads & Configuration,
  cells: readonly Cell[],
  id?: string,
): Promise<readonly Cell[]> {
  const isInstallation = id !== undefined && (await isInstallationRow(deps, [id]))
  if (isInstallation && cells.some(({ field, value }) => field.name === 'tenant_Id' && value !== null))
    throw new AppError(403, "The installation's settings cannot become a tenant's")
  const given = cells.filter(({ field }) => settingsKeys.has(field.name))
  const values = Object.fromEntries(given.map((cell) => [cell.field.name, givenValue(cell)]))
  const stored = storedValues(deps.config, checkedSettings(values, isInstallation ? null : ''))
  if (stored.smtp_host !== undefined && stored.smtp_pass === undefined && id !== undefined)
    await checkSameHost(deps, id, stored.smtp_host)
  return cells
    .filter(({ field, value }) => field.name !== 'smtp_pass' || value !== passwordMask)
    .map((cell) =>
      cell.field.name === 'smtp_pass' ? { ...cell, value: (stored.smtp_pass ?? null) as string | null } : cell,
    )
}

/** 403 for the row that every installation needs. */
export async function checkSettingsDelete(deps: Reads, ids: readonly string[]): Promise<void> {
  if (await isInstallationRow(deps, ids)) throw new AppError(403, "The installation's settings cannot be deleted")
}

async function isInstallationRow({ db }: Reads, ids: readonly string[]): Promise<boolean> {
  const row = await db.maybeOne(sql`
    select from "svc_Settings" where "tenant_Id" is null and id::text = any(${sql.array(ids, 'text')})`)
  return row !== undefined
}

/** 400 for another host without its password: the stored one was given for the host as it is. */
async function checkSameHost({ db }: Reads, id: string, host: unknown): Promise<void> {
  const row = await db.maybeOne(sql`
    select from "svc_Settings"
    where id::text = ${id} and smtp_pass is not null and smtp_host is distinct from ${host as string | null}`)
  if (row !== undefined) throw invalidSettings('smtp_pass: to be given together with another smtp_host')
}

/** The value that the client gave, before it became a parameter of its column's type. */
function givenValue({ field, value }: Cell): unknown {
  if (field.kind === 'json' && typeof value === 'string') return JSON.parse(value)
  return field.kind === 'integer' && value !== null ? Number(value) : value
}

/** A key of the settings that can be set. Null takes it back to the installation's value, or to none. */
type SettingKey = {
  readonly isPublic: boolean
  /** The allowed values, in words for people. */
  readonly expected: string
  readonly shape: TSchema
  /** The exact problems of a value of several parts; each line begins with the path below the key. */
  readonly explain?: (value: unknown) => readonly string[]
}

const key = (isPublic: boolean, expected: string, shape: TSchema): SettingKey => ({ isPublic, expected, shape })

const longestLine = 255
const anyLine = '^[^\\r\\n]*$'
const oneLine = (example: string, pattern = anyLine, more: { readonly writeOnly?: true } = {}) =>
  Type.String({ maxLength: longestLine, format: 'unicode', pattern, examples: [example], ...more })
const text = (example: string) => Type.String({ maxLength: 65_536, format: 'unicode', examples: [example] })
const webAddress = (example: string) => Type.Refine(oneLine(example, webAddressPattern), URL.canParse)
const webAddressPattern = '^[Hh][Tt][Tt][Pp][Ss]?://[^\\\\\\s?#@]+$'
const colorPattern = '^#(?:[0-9a-fA-F]{3,4}|[0-9a-fA-F]{6}|[0-9a-fA-F]{8})$'
const mailboxPattern = '^[^<>@\\r\\n]*<?[^\\s<>@]+@[^\\s<>@]+>?$'

const lineExpected = `a line of at most ${longestLine} characters`
const lineKey = (example: string, isPublic = true) => key(isPublic, lineExpected, oneLine(example))
const switchKey = (isPublic: boolean) => key(isPublic, 'true or false', Type.Boolean({ examples: [true] }))
const jsonKey = key(true, 'a JSON object or list', Type.Unsafe<object>({ type: ['object', 'array'], examples: [{}] }))
const fileKey = key(true, 'the id of a file', Id())
const colorKey = key(true, 'a colour such as #663399', oneLine('#663399', colorPattern))
const addressKey = (example: string) =>
  key(true, 'an http(s) address without user, query and fragment', webAddress(example))

/** Each whole number is a limit, -1 for none. */
const SessionLimits = Type.Refine(
  Type.Object(
    {
      default: Type.Optional(Type.Unknown({ description: '{ web, mobile }' })),
      roles: Type.Optional(Type.Unknown({ description: '{ <role id>: { web, mobile } }' })),
    },
    { examples: [{ default: { web: 5, mobile: -1 } }] },
  ),
  (limits) => sessionLimitsProblems(limits).length === 0,
)

/** Every key that there is. */
export const settingsKeys: ReadonlyMap<string, SettingKey> = new Map(
  Object.entries({
    project_name: lineKey('Acme'),
    title: lineKey('Acme shop'),
    project_url: addressKey('https://api.example.com'),
    app_url: addressKey('https://app.example.com'),
    project_color: colorKey,
    secondary_color: colorKey,
    description: key(true, 'a text', text('Everything for the coyote')),
    keywords: lineKey('rockets, anvils'),
    project_logo_light_Id: fileKey,
    project_logo_dark_Id: fileKey,
    project_logo_full_Id: fileKey,
    project_logo_transparent_Id: fileKey,
    project_favicon_Id: fileKey,
    project_icon_Id: fileKey,
    email_icon_Id: fileKey,
    email_signature: key(true, 'a text', text('Yours, Acme')),
    from_email_name: lineKey('Acme'),
    smtp_enabled: switchKey(true),
    smtp_host: key(false, 'a host name or address without a port', Type.Refine(oneLine('smtp.example.com'), isHost)),
    smtp_port: key(false, 'a port from 1 to 65535', Type.Integer({ minimum: 1, maximum: 65_535, examples: [587] })),
    smtp_secure: switchKey(false),
    smtp_user: lineKey('mailer', false),
    smtp_pass: key(false, lineExpected, oneLine('********', anyLine, { writeOnly: true })),
    smtp_from_address: key(
      false,
      'an address, or Name <address>',
      oneLine('Acme <no-reply@example.com>', mailboxPattern),
    ),
    timezone: key(true, 'an IANA time zone', Type.Refine(oneLine('Europe/Zurich'), isTimeZone)),
    language: key(true, 'a language tag such as en or pt-BR', Type.Refine(oneLine('en'), isLanguage)),
    date_format: lineKey('YYYY-MM-DD'),
    currency: key(true, 'a currency code such as USD', oneLine('USD', '^[A-Z]{3}$')),
    session_limits: {
      ...key(false, '{ default: { web, mobile }, roles: { <role id>: { web, mobile } } }', SessionLimits),
      explain: sessionLimitsProblems,
    },
    metadata: jsonKey,
    modules: jsonKey,
  }),
)

export const settingKinds = ['line', 'text', 'number', 'switch', 'json', 'secret', 'file'] as const

/** How a value of a key is typed into a form. */
export function kindOf({ shape }: Pick<SettingKey, 'shape'>): (typeof settingKinds)[number] {
  const { type, maxLength, writeOnly } = shape as { type?: unknown; maxLength?: number; writeOnly?: boolean }
  if (writeOnly === true) return 'secret'
  if (shape === fileKey.shape) return 'file'
  if (type === 'boolean') return 'switch'
  if (type === 'integer') return 'number'
  if (type !== 'string') return 'json'
  return maxLength !== undefined && maxLength > longestLine ? 'text' : 'line'
}

/** The names of the settings' images: `project_icon` is the file that `project_icon_Id` names. */
export const imageNames: readonly string[] = [...settingsKeys].flatMap(([name, one]) =>
  one === fileKey ? [name.slice(0, -'_Id'.length)] : [],
)

/** Members that GET /settings answers besides, so that its answer can be given back as it is; no request sets them. */
const derived: ReadonlySet<string> = new Set([
  ...['id', 'tenant_Id', 'createdAt', 'updatedAt', 'web_session_limit', 'mobile_session_limit', ...imageNames],
])

/** Of the installation's own row these say something that nothing else would. */
const indispensable = new Set(['project_name', 'smtp_enabled', 'smtp_secure'])

type SettingsValues = Readonly<Record<string, unknown>>

/**
 * The settings of a body, without what only the server says. 400 `Invalid settings data` unless every key is known and its
 * value fits; `details` name the keys, never values.
 */
function checkedSettings(body: unknown, tenantId: string | null): SettingsValues {
  if (!isObject(body)) throw invalidSettings('expected an object of settings')
  const given = Object.entries(body).filter(([name]) => !derived.has(name))
  const problems = given.flatMap(([name, value]) => problemOf(name, value, tenantId))
  if (problems.length > 0) throw invalidSettings(problems)
  return Object.fromEntries(given)
}

const invalidSettings = (details: unknown) => new AppError(400, 'Invalid settings data', { details })

function problemOf(name: string, value: unknown, tenantId: string | null): string[] {
  const known = settingsKeys.get(name)
  if (known === undefined) return [`${name.slice(0, 64)}: unknown setting`]
  if (value === null && (tenantId !== null || !indispensable.has(name))) return []
  if (value !== null && fits(known.shape, value)) return []
  const problems = known.explain !== undefined && isObject(value) ? known.explain(value) : []
  return problems.length === 0 ? [`${name}: expected ${known.expected}`] : problems.map((line) => `${name}${line}`)
}

/** A name of letters, digits, dots and hyphens, or an IP address. */
function isHost(value: string): boolean {
  return isIP(value) !== 0 || /^(?!-)[a-z0-9_-]+(?:\.[a-z0-9_-]+)*\.?$/i.test(value)
}

/** `{ default: { web, mobile }, roles: { <role id>: { web, mobile } } }`, each part optional; -1 is unlimited. */
function sessionLimitsProblems(value: unknown): readonly string[] {
  const { default: fallback, roles, ...others } = value as Record<string, unknown>
  const unknown = Object.keys(others).map((name) =>
    name === 'web' || name === 'mobile'
      ? `.${name}: belongs in .default, as default.${name}`
      : `.${name.slice(0, 64)}: unknown; there are default and roles`,
  )
  if (roles !== undefined && !isObject(roles))
    return [...unknown, '.roles: expected an object of role ids', ...limitProblems('.default', fallback)]
  const ofRoles = Object.entries(roles ?? {}).flatMap(([id, limit]) => {
    const isRole: boolean = isUuid(id)
    return isRole ? limitProblems(`.roles.${id}`, limit) : [`.roles.${id.slice(0, 64)}: expected the id of a role`]
  })
  return [...unknown, ...limitProblems('.default', fallback), ...ofRoles]
}

function limitProblems(path: string, limit: unknown): readonly string[] {
  if (limit === undefined) return []
  if (!isObject(limit)) return [`${path}: expected { web, mobile }`]
  return Object.entries(limit).flatMap(([type, most]) => {
    if (type !== 'web' && type !== 'mobile') return [`${path}.${type.slice(0, 64)}: unknown; there are web and mobile`]
    const fits = most === null || (Number.isInteger(most) && (most as number) >= -1)
    return fits ? [] : [`${path}.${type}: expected a whole number, -1 for no limit and 0 for none at all`]
  })
}

function isTimeZone(value: string): boolean {
  try {
    return Intl.DateTimeFormat('en', { timeZone: value }) !== undefined
  } catch {
    return false
  }
}

function isLanguage(value: string): boolean {
  try {
    return Intl.getCanonicalLocales(value).length === 1
  } catch {
    return false
  }
}
