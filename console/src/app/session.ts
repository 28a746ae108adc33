import { queryOptions, useSuspenseQuery } from '@tanstack/react-query'
import { DaybookError } from '../../../clients/client.ts'
import { client, isShown, queryClient, showNobody } from './client.ts'

/** The user who is signed in. */
export type Me = {
  readonly id: string
  readonly email: string | undefined
  readonly name: string
  readonly role: { readonly id: string; readonly name: string } | undefined
  readonly isAdmin: boolean
  readonly tenantId: string | undefined
  readonly permissions: readonly Permission[]
}

export type Permission = {
  readonly collection: string
  readonly action: string
  readonly fields: readonly string[] | null
}

/** Null where nobody is. */
export const meQuery = queryOptions({ queryKey: ['me'], queryFn: readMe, staleTime: 300_000 })

/** The user who is signed in; only below the shell, which lets nobody else in. */
export function useMe(): Me {
  const { data } = useSuspenseQuery(meQuery)
  if (data === null) throw new Error('Nobody is signed in')
  return data
}

type MeAnswer = {
  readonly user: Readonly<Record<string, unknown>> & { readonly id: string }
  readonly role?: { readonly id: string; readonly name: string } | null
  readonly permissions?: readonly Permission[]
  readonly tenant?: string | { readonly id: string } | null
}

async function readMe(): Promise<Me | null> {
  try {
    return shownOf(meOf(await client.request<MeAnswer>('/auth/me')))
  } catch (error) {
    if (!(error instanceof DaybookError)) throw error
    // A page of somebody who was signed in stays as it is, with what is typed there.
    if (error.status === 401 && !queryClient.getQueryData(['me'])) return null
    if (error.status !== 403) throw error
    // Somebody whose role may not read accounts, not even their own.
    return shownOf(meOf(await client.request<MeAnswer>('/auth/check')))
  }
}

/** What is typed was meant for the user and the tenant that the page has shown so far: it goes on showing them. */
function shownOf(me: Me): Me {
  if (isShown(me.id, me.tenantId)) return me
  throw new Error('You are signed in as another user or at another tenant by now')
}

function meOf({ user, role, permissions, tenant }: MeAnswer): Me {
  const { id, email, firstName, lastName } = user
  const words = [firstName, lastName].filter((word) => typeof word === 'string' && word !== '')
  const address = typeof email === 'string' ? email : undefined
  return {
    id,
    email: address,
    name: words.length > 0 ? words.join(' ') : (address ?? 'Signed in'),
    role: role ?? undefined,
    isAdmin: role?.name === 'administrator',
    tenantId: typeof tenant === 'object' ? tenant?.id : tenant,
    permissions: permissions ?? [],
  }
}

/** The server's public facts, known before anybody signs in. */
type ServerInfo = {
  readonly project: { readonly name: string | null; readonly title: string | null; readonly multitenant: boolean }
  readonly version: string
  readonly data: {
    readonly auth: {
      readonly registration: boolean
      readonly emailPassword: boolean
      readonly magicLink: boolean
      readonly passkey: boolean
      readonly twoFactor: boolean
      readonly socialProviders: readonly string[]
    }
  }
}

export const infoQuery = queryOptions({
  queryKey: ['info'],
  queryFn: () => client.request<ServerInfo>('/'),
  staleTime: Number.POSITIVE_INFINITY,
})

export type Tenant = { readonly id: string; readonly name: string; readonly role?: { readonly name: string } }

export const tenantsQuery = queryOptions({
  queryKey: ['tenants'],
  queryFn: async () => (await client.request<{ tenants: readonly Tenant[] }>('/auth/tenants')).tenants,
})

/** Everything that was read belongs to whoever was signed in. A page that is still shown would read it again. */
export function forgetEverything(): void {
  showNobody()
  queryClient.removeQueries({ predicate: ({ queryKey }) => queryKey[0] !== 'info' })
}

export async function signOut(): Promise<void> {
  await client.auth.logout()
  client.close()
}

export async function switchTenant(id: string): Promise<void> {
  await client.auth.switchTenant(id)
  beginAnew()
}

/** Loads the console again, after a change of who is seen: nothing that was read with other rights stays, nor a connection. */
export function beginAnew(): void {
  location.assign('/console/data')
}
