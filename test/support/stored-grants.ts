import type { Api } from './api.ts'

/** Permissions as they may stand in a database, put there past the checks of every route. */
export async function storeGrants(
  api: Api,
  roleId: string,
  permissions: readonly { collection: string; action: string; fields?: readonly string[] }[],
): Promise<void> {
  for (const { collection, action, fields } of permissions)
    await api.sql(`insert into "svc_Permission" ("role_Id", collection, action, fields) values ($1, $2, $3, $4)`, [
      roleId,
      collection,
      action,
      JSON.stringify(fields ?? null),
    ])
  await api.runtime.access.reload()
}
