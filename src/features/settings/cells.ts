import type { Configuration } from '../../config/config.ts'
import type { Reads } from '../../db/pools.ts'
import { sql } from '../../db/sql.ts'
import { AppError } from '../../errors.ts'
import type { Cell } from '../data/items/items.ts'
import { checkedSettings, invalidSettings, settingsKeys } from './keys.ts'
import { passwordMask, storedValues } from './settings.ts'

/**
 * Settings that come as an item of svc_Settings pass the same checks as those of PATCH /settings, and the password is
 * sealed. `id` is the row to change, absent for a new one. 403 for making the installation's own row a tenant's.
 */
export async function settingsCells(
  rt: Reads & Configuration,
  cells: readonly Cell[],
  id?: string,
): Promise<readonly Cell[]> {
  const isInstallation = id !== undefined && (await isInstallationRow(rt, [id]))
  if (isInstallation && cells.some(({ field, value }) => field.name === 'tenant_Id' && value !== null))
    throw new AppError(403, "The installation's settings cannot become a tenant's")
  const given = cells.filter(({ field }) => settingsKeys.has(field.name))
  const values = Object.fromEntries(given.map((cell) => [cell.field.name, givenValue(cell)]))
  const stored = storedValues(rt.config, checkedSettings(values, isInstallation ? null : ''))
  if (stored.smtp_host !== undefined && stored.smtp_pass === undefined && id !== undefined)
    await checkSameHost(rt, id, stored.smtp_host)
  return cells
    .filter(({ field, value }) => field.name !== 'smtp_pass' || value !== passwordMask)
    .map((cell) =>
      cell.field.name === 'smtp_pass' ? { ...cell, value: (stored.smtp_pass ?? null) as string | null } : cell,
    )
}

/** 403 for the row that every installation needs. */
export async function checkSettingsDelete(rt: Reads, ids: readonly string[]): Promise<void> {
  if (await isInstallationRow(rt, ids)) throw new AppError(403, "The installation's settings cannot be deleted")
}

async function isInstallationRow(rt: Reads, ids: readonly string[]): Promise<boolean> {
  const row = await rt.db.maybeOne(sql.unsafe`
    select from "svc_Settings" where "tenant_Id" is null and id::text = any(${sql.array([...ids], 'text')})`)
  return row !== undefined
}

/** 400 for another host without its password: the stored one was given for the host as it is. */
async function checkSameHost(rt: Reads, id: string, host: unknown): Promise<void> {
  const row = await rt.db.maybeOne(sql.unsafe`
    select from "svc_Settings"
    where id::text = ${id} and smtp_pass is not null and smtp_host is distinct from ${host as string | null}`)
  if (row !== undefined) throw invalidSettings('smtp_pass: to be given together with another smtp_host')
}

/** The value that the client gave, before it became a parameter of its column's type. */
function givenValue({ field, value }: Cell): unknown {
  if (field.kind === 'json' && typeof value === 'string') return JSON.parse(value)
  return field.kind === 'integer' && value !== null ? Number(value) : value
}
