import type { CurrentCatalog } from '../../../catalog/store.ts'
import type { Configuration } from '../../../config/config.ts'
import type { Clock } from '../../../db/clock.ts'
import { type Reader, sql, type Tx } from '../../../db/sql.ts'
import { commitRow, type Writes } from '../../../events/commit.ts'
import { actorCte } from '../../../events/log.ts'
import type { Actor } from '../../../events/types.ts'
import { type Access, type Grant, withGrants } from '../../../query/access.ts'
import { compileCondition } from '../../../query/compile.ts'
import { resolveCondition, resolveEnv } from '../../../query/resolve.ts'
import { createParams, type Params } from '../../../query/sql.ts'
import { type ItemReads, type ItemWrites, parameters } from '../../data/items/items.ts'

/** How many of the rows that `own` may read are not marked as seen. */
export async function countUnseen(deps: NotificationReads, own: Access): Promise<number> {
  const params = createParams()
  const text = `select count(*)::int as count from "svc_Notification" t where ${ruleOf(deps, own, params)} and ${unseen}`
  const [row] = await deps.db.run<{ count: number }>(text, params.values)
  return row!.count
}

/** Marks these rows, or all, as seen, as far as `own` may read them; how many were not before. */
export function markSeen(
  deps: Writes & Clock & CurrentCatalog,
  actor: Actor,
  own: Access,
  ids: readonly string[] | undefined,
): Promise<number> {
  return changeOwn(
    deps,
    actor,
    own,
    ids,
    (where) => `update "svc_Notification" t set seen = true, "updatedAt" = now() from ctx where ${where} and ${unseen}`,
  )
}

/** Deletes these rows, or all, as far as `own` may read them; how many there were. */
export function deleteOwn(
  deps: Writes & Clock & CurrentCatalog,
  actor: Actor,
  own: Access,
  ids: readonly string[] | undefined,
): Promise<number> {
  return changeOwn(deps, actor, own, ids, (where) => `delete from "svc_Notification" t using ctx where ${where}`)
}

/** Deletes some of everybody's that were created more than `days` days ago; how many. */
export async function deleteSomeOlderThan(deps: Writes, actor: Actor, days: number, atMost: number): Promise<number> {
  const text = `${actorCte(1)}, gone as (
    delete from "svc_Notification" t using ctx
    where t.id in (
      select id from "svc_Notification" where "createdAt" < now() - make_interval(days => $2) limit $3 for update skip locked)
    returning 1)
    select count(*)::int as count from gone`
  const [row] = await commitRow<{ count: number }>(deps, actor, { text, values: [days, atMost] })
  return row!.count
}

/** Those of the ids that are no user's. */
export async function unknownUsers(db: Reader, ids: readonly string[]): Promise<readonly string[]> {
  const rows = await db.any<{ id: string }>(sql`
    select given.id from unnest(${sql.array(ids, 'uuid')}) given (id)
    where not exists (select from "svc_User" u where u.id = given.id)`)
  return rows.map(({ id }) => id)
}

/** Whether there is such a tenant. */
export async function isTenant(db: Reader, id: string): Promise<boolean> {
  return (await db.maybeOne(sql`select 1 as one from "svc_Tenant" where id = ${id}`)) !== undefined
}

/** One of the platform's own, in the transaction of what it tells of; its id. */
export async function insertNotification(
  tx: Tx,
  one: {
    readonly userId: string
    readonly tenantId: string | null
    readonly type: string
    readonly title: string
    readonly message: string
    readonly data: object
  },
): Promise<string> {
  const { id } = await tx.one<{ id: string }>(sql`
    insert into "svc_Notification" (type, title, message, data, "userId", "tenant_Id")
    values (${one.type}, ${one.title}, ${one.message}, ${sql.jsonb(one.data)}, ${one.userId}, ${one.tenantId})
    returning id`)
  return id
}

/** Says something else in a notification, which its user has not seen then. */
export async function updateNotification(
  tx: Tx,
  id: string,
  { message, data }: { readonly message: string; readonly data: object },
): Promise<void> {
  await tx.any(sql`
    update "svc_Notification" set message = ${message}, data = ${sql.jsonb(data)}, seen = false, "updatedAt" = now()
    where id = ${id} returning id`)
}

const unseen = 't.seen is not true'

async function changeOwn(
  deps: Writes & Clock & CurrentCatalog,
  actor: Actor,
  own: Access,
  ids: readonly string[] | undefined,
  change: (where: string) => string,
): Promise<number> {
  const { params, values } = parameters()
  const named = ids === undefined ? '' : ` and t.id = any(${params.bind([...ids], 'uuid[]')})`
  const where = `${ruleOf(deps, own, params)}${named}`
  const text = `${actorCte(1)}, changed as (${change(where)} returning 1) select count(*)::int as count from changed`
  const [row] = await commitRow<{ count: number }>(deps, actor, { text, values: values() })
  return row!.count
}

/** The rule of a read, so that list, count, marks and deletions are about the same rows. */
function ruleOf(deps: Clock & Configuration & CurrentCatalog, own: Access, params: Params): string {
  const rule = resolveCondition(deps.catalog.current(), own, notifications, 'read', resolveEnv(deps))
  if (rule === undefined) throw new Error('own notifications have no rule')
  return compileCondition(rule, 't', params)
}

export const notifications = 'svc_Notification'

/**
 * The rights on notifications by the endpoints of this slice: every user, administrators too, reads only their own,
 * whatever the role grants on the collection. Their usual rights apply to related rows.
 */
export function ownNotifications(access: Access): Access {
  const grant: Access['grant'] = (collection, action) => {
    if (collection === notifications) return action === 'read' ? ownRows(access.userId) : undefined
    return access.admin ? everything : access.grant(collection, action)
  }
  return withGrants(access, grant, { admin: false })
}

/** As the role has it; a role without a permission for notifications reads the user's own. */
export function withOwnNotifications(access: Access): Access {
  if (access.admin || access.grant(notifications, 'read') !== undefined) return access
  const own = ownNotifications(access)
  return withGrants(access, (collection, action) =>
    collection === notifications ? own.grant(collection, action) : access.grant(collection, action),
  )
}

const everything: Grant = { fields: ['*'], conditions: null, relConditions: null, defaultValues: null }

/** Without a user there is nothing that could match: a condition on null is not written as one that means "any". */
function ownRows(userId: string | undefined): Grant | undefined {
  return userId === undefined ? undefined : { ...everything, conditions: { userId: { eq: userId } } }
}

/** The capabilities that reads of this folder need: those of reading items. */
export type NotificationReads = ItemReads

/** The capabilities that changes of this folder need: those of changing items. */
export type NotificationWrites = ItemWrites
