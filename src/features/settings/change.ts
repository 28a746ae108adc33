import type { Configuration } from '../../config/config.ts'
import type { Reads } from '../../db/pools.ts'
import { rawQuery, sql, type Tx } from '../../db/sql.ts'
import { AppError } from '../../errors.ts'
import { commit, type Writes } from '../../events/commit.ts'
import type { Actor } from '../../events/types.ts'
import type { Cell } from '../data/items/items.ts'
import { checkedSettings, invalidSettings, type SettingsValues, settingsKeys } from './keys.ts'
import { passwordMask, settingsNotFound, storedValues } from './settings.ts'
import type { CurrentSettings, SettingsRow } from './store.ts'

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
  // A password is for the server that it was given for: nobody may have it sent to another one by changing the host.
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
