import { createRootRoute, createRoute, Outlet, redirect } from '@tanstack/react-router'
import { NotFound, RouteProblem } from '../shell/route-problem.tsx'
import { queryClient } from './client.ts'
import { lazyComponent } from './lazy.ts'
import { infoQuery, meQuery } from './session.ts'

/** The root of all addresses. Pages hang their routes below {@link shellRoute}. */
export const rootRoute = createRootRoute({
  component: Outlet,
  errorComponent: RouteProblem,
  notFoundComponent: NotFound,
  loader: () => queryClient.ensureQueryData(infoQuery),
})

/** Users who are signed in get navigation around a page. Anybody else goes to sign in, and comes back afterwards. */
export const shellRoute = createRoute({
  getParentRoute: () => rootRoute,
  id: 'shell',
  beforeLoad: async ({ location }) => {
    const me = await queryClient.ensureQueryData(meQuery)
    if (me === null) throw redirect({ to: '/sign-in', search: { next: location.href }, replace: true })
  },
  component: lazyComponent(() => import('../shell/shell.tsx'), 'Shell'),
  errorComponent: RouteProblem,
  notFoundComponent: NotFound,
})
