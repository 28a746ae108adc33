import { rawQuery, sql, type Tx } from '../../db/sql.ts'
import { type SettingsValues, settingsKeys } from './keys.ts'

/** The row of a tenant, or the installation's own for null, locked until the transaction ends. */
export async function lockedSettings(tx: Tx, tenantId: string | null): Promise<number | undefined> {
  const row = await tx.maybeOne<{ id: number }>(sql.unsafe`
    select id from "svc_Settings" where "tenant_Id" is not distinct from ${tenantId}::uuid for update`)
  return row?.id
}

export async function tenantExists(tx: Tx, tenantId: string): Promise<boolean> {
  return (await tx.maybeOne(sql.unsafe`select from "svc_Tenant" where id = ${tenantId}::uuid`)) !== undefined
}

/** A tenant's first settings: what is not given is null, so that the installation's value shows through. */
export async function insertSettings(tx: Tx, tenantId: string, values: SettingsValues): Promise<void> {
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

export async function updateSettingsRow(tx: Tx, id: number, values: SettingsValues): Promise<void> {
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
export async function deleteTenantSettings(tx: Tx, tenantId: string): Promise<number> {
  const gone = await tx.any(sql.unsafe`delete from "svc_Settings" where "tenant_Id" = ${tenantId}::uuid returning id`)
  return gone.length
}

/** Names of the closed list of keys, never of a request. */
const columnsOf = (names: readonly string[]): string[] => names.map((name) => `"${name}"`)
