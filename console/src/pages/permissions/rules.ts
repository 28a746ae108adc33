import { queryOptions } from '@tanstack/react-query'
import { client, queryClient } from '../../app/client.ts'
import { isNothing, type RuleContent } from './content.ts'
import type { Action } from './fields.ts'

export type Role = { readonly id: string; readonly name: string; readonly description: string | null }

/** A permission as it is stored. */
export type Permission = RuleContent & {
  readonly id: string
  readonly role_Id: string
  readonly collection: string
  readonly action: Action
  readonly acl_Ids: unknown
}

/** A rule that permissions of any collection refer to, as it is stored. */
export type NamedRule = RuleContent & {
  readonly id: string
  readonly name: string
  readonly description: string | null
  /** Nobody changes it. */
  readonly system: boolean
}

export const rolesQuery = queryOptions({
  queryKey: ['permissions', 'roles'],
  queryFn: async () =>
    (await client.request<{ data: readonly Role[] }>('/items/svc_Role', { query: { limit: -1, sort: 'name' } })).data,
})

export const permissionsQuery = queryOptions({
  queryKey: ['permissions', 'all'],
  queryFn: async () =>
    (await client.request<{ data: readonly Permission[] }>('/permissions', { query: { limit: -1 } })).data,
})

export const namedRulesQuery = queryOptions({
  queryKey: ['permissions', 'named'],
  queryFn: async () =>
    (await client.request<{ data: readonly NamedRule[] }>('/acls', { query: { limit: -1, sort: 'name' } })).data,
})

export const refreshRules = (): Promise<void> => queryClient.invalidateQueries({ queryKey: ['permissions'] })

/** What a stored permission opens that names no fields: all to readers, none to writers; who deletes takes all with it. */
const fieldsByDefault = (action: Action): readonly string[] => (action === 'create' || action === 'update' ? [] : ['*'])

/** Whether it opens all rows and fields, or only some. */
export function isLimited({ action, fields, conditions, relConditions, acl_Ids: acls }: Permission): boolean {
  const list = [fields ?? fieldsByDefault(action)].flat().join(',')
  return list !== '*' || ![conditions, relConditions, acls].every(isNothing)
}

/** The named rules of a permission, by id. */
export const namedIn = ({ acl_Ids: ids }: Pick<Permission, 'acl_Ids'>): readonly string[] =>
  Array.isArray(ids) ? ids.map(String) : []

/** The permissions that use a named rule. */
export const usesOf = (permissions: readonly Permission[], rule: string): readonly Permission[] =>
  permissions.filter((permission) => namedIn(permission).includes(rule))

/** The value to store: a rule of its own, or named rules and nothing beside them. */
export type Draft = RuleContent & { readonly acl_Ids: readonly string[] | null }

export type Impact = {
  readonly role: { readonly id: string; readonly name: string }
  readonly collection: string
  readonly action: Action
  readonly kind: 'unchanged' | 'created' | 'changed' | 'deleted'
  readonly users: { readonly total: number; readonly looked: number; readonly gaining: number; readonly losing: number }
  readonly rows: {
    readonly total: number
    readonly gained: number
    readonly lost: number
    readonly exact: boolean
  } | null
  readonly fields: { readonly gained: readonly string[]; readonly lost: readonly string[] }
  readonly complete: boolean
}

const ask = async (body: object): Promise<readonly Impact[]> =>
  (await client.request<{ data: readonly Impact[] }>('/permissions/impact', { method: 'POST', body })).data

/** The changes by storing a permission; null for its removal. */
export async function impactOf(
  role: string,
  collection: string,
  action: Action,
  permission: Draft | null,
): Promise<Impact> {
  return (await ask({ changes: [{ role, collection, action, permission }] }))[0]!
}

/** Few at once, because each may take seconds. */
const atOnce = 5

/** The changes by storing a named rule, for each of the permissions that use it. */
export async function impactOfRule(
  id: string,
  content: RuleContent,
  uses: readonly Permission[],
): Promise<readonly Impact[]> {
  const answers: Impact[] = []
  for (let from = 0; from < uses.length; from += atOnce) {
    const changes = uses
      .slice(from, from + atOnce)
      .map(({ role_Id: role, collection, action }) => ({ role, collection, action, permission: {} }))
    answers.push(...(await ask({ changes, acls: [{ id, ...content }] })))
  }
  return answers
}

export async function store(
  role: string,
  collection: string,
  action: Action,
  { before, after }: { readonly before: Permission | undefined; readonly after: Draft | null },
): Promise<void> {
  if (after === null) {
    if (before !== undefined) await client.request(`/permissions/${before.id}`, { method: 'DELETE' })
  } else if (before !== undefined) await client.request(`/permissions/${before.id}`, { method: 'PATCH', body: after })
  else await client.request('/permissions', { method: 'POST', body: { role_Id: role, collection, action, ...after } })
}

export type NamedDraft = RuleContent & { readonly name: string; readonly description: string | null }

/** A new one without an id. */
export async function storeNamed(id: string | undefined, rule: NamedDraft): Promise<void> {
  if (id === undefined) await client.request('/acls', { method: 'POST', body: rule })
  else await client.request(`/acls/${id}`, { method: 'PATCH', body: rule })
}

export async function deleteNamed(id: string): Promise<void> {
  await client.request(`/acls/${id}`, { method: 'DELETE' })
}
