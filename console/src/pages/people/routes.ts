import { createRoute } from '@tanstack/react-router'
import { lazyComponent } from '../../app/lazy.ts'
import { shellRoute } from '../../app/root.tsx'
import { searchBy } from '../../app/search.ts'

const text = (value: unknown): string | undefined =>
  typeof value === 'string' && value !== '' ? value : typeof value === 'number' ? String(value) : undefined

/** Which users are shown: `q` are words, `role` and `tenant` are ids. */
export type UsersSearch = {
  readonly q?: string | undefined
  readonly status?: string | undefined
  readonly role?: string | undefined
  readonly tenant?: string | undefined
  readonly page?: number | undefined
}

const usersRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/people',
  validateSearch: searchBy(
    ({ q, status, role, tenant, page }): UsersSearch => ({
      q: text(q),
      status: text(status),
      role: text(role),
      tenant: text(tenant),
      page: Number.isSafeInteger(page) && Number(page) > 1 ? Number(page) : undefined,
    }),
  ),
  component: lazyComponent(() => import('./users.tsx'), 'Users'),
})

const userRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/people/$id',
  component: lazyComponent(() => import('./user.tsx'), 'UserPage'),
})

const invitationsRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/people/invitations',
  component: lazyComponent(() => import('./invitations.tsx'), 'Invitations'),
})

const rolesRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/people/roles',
  component: lazyComponent(() => import('./roles.tsx'), 'Roles'),
})

const tenantsRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/people/tenants',
  component: lazyComponent(() => import('./tenants.tsx'), 'Tenants'),
})

const accountRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/account',
  component: lazyComponent(() => import('../account/account.tsx'), 'Account'),
})

export const peopleRoutes = [usersRoute, userRoute, invitationsRoute, rolesRoute, tenantsRoute, accountRoute] as const
