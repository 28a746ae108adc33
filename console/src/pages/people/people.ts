import { keepPreviousData, queryOptions } from '@tanstack/react-query'
import { client, queryClient } from '../../app/client.ts'
import type { UsersSearch } from './routes.ts'

type Named = { readonly id?: string; readonly name: string } | null

/** A role that a user has, at a tenant or without one. */
export type Membership = {
  readonly id: string
  readonly role_Id: string
  readonly role?: Named
  readonly tenant_Id?: string | null
  readonly tenant?: Named
}

export type User = {
  readonly id: string
  readonly firstName: string
  readonly lastName?: string | null
  readonly email?: string | null
  readonly emailVerified?: boolean
  readonly phone?: string | null
  readonly status?: string
  readonly lastAccess?: string | null
  readonly createdAt?: string
  /** Left out where the reader may not see them. */
  readonly userRoles?: readonly Membership[]
}

export type Role = {
  readonly id: string
  readonly name: string
  readonly description: string | null
  readonly isTenantSpecific: boolean
  readonly canInviteRoleIds: readonly string[] | null
}

export type Tenant = { readonly id: string; readonly name: string; readonly createdAt?: string }

export const statuses = ['active', 'inactive', 'suspended', 'pending', 'deleted'] as const
export const usersPerPage = 50

const userFields = [
  ...['id', 'firstName', 'lastName', 'email', 'emailVerified', 'phone', 'status', 'lastAccess', 'createdAt'],
  ...['id', 'role_Id', 'role.name', 'tenant_Id', 'tenant.name'].map((name) => `userRoles.${name}`),
]

/** The key of a page of users. */
export const nameOf = ({ firstName, lastName, email }: Pick<User, 'firstName' | 'lastName' | 'email'>): string =>
  [firstName, lastName].filter(Boolean).join(' ') || (email ?? 'Somebody without a name')

type List<Row> = { readonly data: readonly Row[]; readonly totalCount: number }

const read = <Row>(collection: string, query: Readonly<Record<string, unknown>>) =>
  client.request<List<Row>>(`/items/${collection}`, { query })

/** The filter that the fields of the page make: each word is in a name or the address. */
function usersFilter({ q, status, role, tenant }: UsersSearch): Readonly<Record<string, unknown>> {
  const words = (q ?? '').split(/\s+/).filter((word) => word !== '')
  const parts = [
    ...words.map((word) => ({ OR: ['firstName', 'lastName', 'email'].map((name) => ({ [name]: { iLike: word } })) })),
    ...(status === undefined ? [] : [{ status }]),
    ...(role === undefined ? [] : [{ 'userRoles.role_Id': role }]),
    ...(tenant === undefined ? [] : [{ 'userRoles.tenant_Id': tenant }]),
  ]
  return parts.length === 0 ? {} : { AND: parts }
}

export const usersQuery = (search: UsersSearch) =>
  queryOptions({
    queryKey: ['people', 'users', search],
    queryFn: () =>
      read<User>('svc_User', {
        fields: userFields.join(','),
        filter: JSON.stringify(usersFilter(search)),
        sort: 'firstName,lastName,id',
        limit: usersPerPage,
        page: search.page ?? 1,
      }),
    placeholderData: keepPreviousData,
  })

export const userQuery = (id: string) =>
  queryOptions({
    queryKey: ['people', 'user', id],
    queryFn: async () =>
      (
        await client.request<{ data: User }>(`/items/svc_User/${encodeURIComponent(id)}`, {
          query: { fields: userFields.join(',') },
        })
      ).data,
  })

export const rolesQuery = queryOptions({
  queryKey: ['people', 'roles'],
  queryFn: async () => (await read<Role>('svc_Role', { limit: -1, sort: 'name' })).data,
})

export const tenantsQuery = queryOptions({
  queryKey: ['people', 'tenants'],
  queryFn: async () => (await read<Tenant>('svc_Tenant', { limit: -1, sort: 'name' })).data,
})

/** How many users have each role, or are at each tenant. */
export const membersQuery = (by: 'role_Id' | 'tenant_Id') =>
  queryOptions({
    queryKey: ['people', 'members', by],
    queryFn: async () => {
      const { data } = await client.request<List<Readonly<Record<string, unknown>>>>('/items/svc_UserRole', {
        query: {
          groupBy: by,
          aggregate: JSON.stringify({ users: { function: 'count', field: 'id' } }),
          limit: -1,
        },
      })
      return new Map(data.map((row) => [String(row[by]), Number(row.users)]))
    },
  })

/** A credential of a user, as its collection shows it to administrators; secrets are in none. */
export const credentialsQuery = <Row>(collection: string, userId: string, fields: readonly string[]) =>
  queryOptions({
    queryKey: ['people', 'credentials', collection, userId],
    queryFn: async () =>
      (
        await read<Row>(collection, {
          fields: fields.join(','),
          filter: JSON.stringify({ user_Id: userId }),
          sort: '-createdAt',
          limit: 200,
        })
      ).data,
  })

/** Reads the shown people again. */
export const refreshPeople = (): Promise<void> => queryClient.invalidateQueries({ queryKey: ['people'] })
