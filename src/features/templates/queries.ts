import { type Reader, sql } from '../../db/sql.ts'
import type { Template } from './built-in.ts'

export type StoredTemplate = Template & {
  readonly id: string
  readonly type: string
  readonly tenantId: string | null
}

/**
 * The active template for a mail: the tenant's own before the installation's (realtime facts §9), and of each the
 * first of the names that has one.
 */
export async function activeTemplate(
  db: Reader,
  names: readonly string[],
  tenantId: string | null,
): Promise<StoredTemplate | undefined> {
  return db.maybeOne<StoredTemplate>(sql.unsafe`
    select id::text, type, subject, body, "tenant_Id"::text as "tenantId" from "svc_Template"
    where type = any(${sql.array([...names], 'text')}) and "isActive"
      and ("tenant_Id" is null or "tenant_Id" = ${tenantId}::uuid)
    order by "tenant_Id" is null, array_position(${sql.array([...names], 'text')}, type::text) limit 1`)
}

export async function templateById(db: Reader, id: string): Promise<StoredTemplate | undefined> {
  return db.maybeOne<StoredTemplate>(sql.unsafe`
    select id::text, type, subject, body, "tenant_Id"::text as "tenantId" from "svc_Template" where id = ${id}::uuid`)
}

export async function inviterName(db: Reader, inviteId: string): Promise<string | undefined> {
  const row = await db.maybeOne<{ name: string }>(sql.unsafe`
    select concat_ws(' ', u."firstName", u."lastName") as name
    from "svc_Invite" i join "svc_User" u on u.id = i."invitedBy_Id" where i.id = ${inviteId}::uuid`)
  return row?.name
}
