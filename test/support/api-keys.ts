import { hashSecret } from '../../src/adapters/tokens.ts'
import { hintOf, newApiKey } from '../../src/features/accounts/api-keys/api-keys.ts'
import type { Api } from './api.ts'

/** A key of a user at a tenant, bound to a role where one is named; the key itself. */
export async function storeKey(
  api: Api,
  userId: string,
  { roleId = null, tenantId = null }: { roleId?: string | null; tenantId?: string | null } = {},
): Promise<string> {
  const key = newApiKey()
  await api.sql(
    `insert into "svc_ApiKey" (name, "user_Id", "role_Id", "tenant_Id", hash, hint) values ('test', $1, $2, $3, $4, $5)`,
    [userId, roleId, tenantId, hashSecret(key), hintOf(key)],
  )
  return key
}
