import type { Logger } from 'pino'
import type { Static } from 'typebox'
import { isForbiddenLiteral } from '../../adapters/network-addresses.ts'
import { seal, unseal } from '../../adapters/sealing.ts'
import { Type } from '../../adapters/typebox.ts'
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
import type { Cell } from '../data/items/items.ts'
import { checkedSettings, imageNames, invalidSettings, type SettingsValues, settingsKeys } from './keys.ts'

export { imageNames } from './keys.ts'

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

const sealedFor = { purpose: 'settings', owner: 'smtp_pass' } as const

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
    sql.unsafe`
      select jsonb_build_object('id', id, 'title', title, 'description', description, 'filename', filename,
        'originalFilename', "originalFilename", 'type', type, 'size', size, 'width', width, 'height', height,
        'isPublic', "isPublic" is true, 'createdAt', "createdAt", 'updatedAt', "updatedAt") as file
      from "svc_File" where id = any(${sql.array([...ids], 'uuid')})`,
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
  return { ...others, smtp_pass: password === null ? null : seal(config, sealedFor, String(password)) }
}

/** The SMTP password of a row, for the mailer alone; undefined where none is set. */
export function smtpPassword(config: Config, row: SettingsRow): string | undefined {
  return typeof row.smtp_pass === 'string' ? unseal(config, sealedFor, row.smtp_pass).text : undefined
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
    sql.unsafe`select to_jsonb(s) as settings from "svc_Settings" s order by s.id`,
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
  return db.any(sql.unsafe`
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
 * them as they are then. 400 `Invalid settings data`; 404 for an unknown tenant; 409 for an app_url somebody else has.
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
  const row = await tx.maybeOne<{ id: number }>(sql.unsafe`
    select id from "svc_Settings" where "tenant_Id" is not distinct from ${tenantId}::uuid for update`)
  return row?.id
}

async function tenantExists(tx: Tx, tenantId: string): Promise<boolean> {
  return (await tx.maybeOne(sql.unsafe`select from "svc_Tenant" where id = ${tenantId}::uuid`)) !== undefined
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
  const gone = await tx.any(sql.unsafe`delete from "svc_Settings" where "tenant_Id" = ${tenantId}::uuid returning id`)
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
  const row = await db.maybeOne(sql.unsafe`
    select from "svc_Settings" where "tenant_Id" is null and id::text = any(${sql.array([...ids], 'text')})`)
  return row !== undefined
}

/** 400 for another host without its password: the stored one was given for the host as it is. */
async function checkSameHost({ db }: Reads, id: string, host: unknown): Promise<void> {
  const row = await db.maybeOne(sql.unsafe`
    select from "svc_Settings"
    where id::text = ${id} and smtp_pass is not null and smtp_host is distinct from ${host as string | null}`)
  if (row !== undefined) throw invalidSettings('smtp_pass: to be given together with another smtp_host')
}

/** The value that the client gave, before it became a parameter of its column's type. */
function givenValue({ field, value }: Cell): unknown {
  if (field.kind === 'json' && typeof value === 'string') return JSON.parse(value)
  return field.kind === 'integer' && value !== null ? Number(value) : value
}
