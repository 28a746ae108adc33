import type { Api, Call } from './api.ts'

export type TenantUser = {
  readonly call: Call
  readonly id: string
  readonly email: string
  readonly token: string
  readonly userRoleId: string
}

let count = 0

/** A role without permissions; tenant-specific unless said otherwise. */
export async function createRole(api: Api, more: object = {}): Promise<string> {
  count += 1
  const { body } = await api.admin('POST', '/items/svc_Role', { name: `tenant role ${count}`, ...more })
  return body.data.id
}

export async function createTenant(api: Api, name: string): Promise<string> {
  const [{ id }] = await api.sql('insert into "svc_Tenant" (name) values ($1) returning id', [name])
  return id
}

export async function grant(api: Api, roleId: string, ...permissions: readonly object[]): Promise<void> {
  for (const permission of permissions) {
    const made = await api.admin('POST', '/permissions', { role_Id: roleId, ...permission })
    if (made.status !== 201) throw new Error(`permission refused: ${made.text}`)
  }
}

/** Signs a new user in; the role is one at the tenant, null for one without. */
export async function createUser(api: Api, roleId: string, tenantId: string | null): Promise<TenantUser> {
  count += 1
  const email = `tenant${count}@example.com`
  const password = 'password of a user'
  const created = await api.admin('POST', '/items/svc_User', { firstName: 'T', email, password, emailVerified: true })
  const { id } = created.body.data
  const [link] = await api.sql(
    'insert into "svc_UserRole" ("user_Id", "role_Id", "tenant_Id") values ($1, $2, $3) returning id',
    [id, roleId, tenantId],
  )
  const { body } = await api.anonymous('POST', '/auth/login', { email, password })
  return { call: api.as(body.token), id, email, token: body.token, userRoleId: link.id }
}
