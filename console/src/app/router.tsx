import { createRoute, createRouter, redirect } from '@tanstack/react-router'
import { dataRoutes } from '../pages/data/routes.ts'
import { extensionRoutes } from '../pages/extensions/routes.ts'
import { logRoutes } from '../pages/log/routes.ts'
import { operationsRoutes } from '../pages/operations/routes.ts'
import { peopleRoutes } from '../pages/people/routes.ts'
import { permissionRoutes } from '../pages/permissions/routes.ts'
import { reportRoutes } from '../pages/reports/routes.ts'
import { schemaRoutes } from '../pages/schema/routes.ts'
import { workflowRoutes } from '../pages/workflows/routes.ts'
import { NotFound, RoutePending, RouteProblem, UnknownPage } from '../shell/route-problem.tsx'
import { lazyComponent } from './lazy.ts'
import { rootRoute, shellRoute } from './root.tsx'
import { searchBy } from './search.ts'

const signInRoute = createRoute({
  getParentRoute: () => rootRoute,
  path: '/sign-in',
  validateSearch: searchBy((search): { next?: string; error?: string } => ({
    ...(typeof search.next === 'string' && { next: search.next }),
    ...(typeof search.error === 'string' && { error: search.error }),
  })),
  component: lazyComponent(() => import('../shell/sign-in.tsx'), 'SignIn'),
})

const welcomeRoute = createRoute({
  getParentRoute: () => rootRoute,
  path: '/welcome',
  component: lazyComponent(() => import('../shell/welcome.tsx'), 'Welcome'),
})

const homeRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/',
  beforeLoad: () => {
    throw redirect({ to: '/data', replace: true })
  },
})

/** Every other address: with the navigation, so that a mistyped one is no dead end. */
const unknownRoute = createRoute({ getParentRoute: () => shellRoute, path: '/$', component: UnknownPage })

/** THE list of addresses: each folder of pages/ has its own. */
const routeTree = rootRoute.addChildren([
  signInRoute,
  welcomeRoute,
  shellRoute.addChildren([
    homeRoute,
    ...dataRoutes,
    ...schemaRoutes,
    ...permissionRoutes,
    ...logRoutes,
    ...peopleRoutes,
    ...reportRoutes,
    ...operationsRoutes,
    ...workflowRoutes,
    ...extensionRoutes,
    unknownRoute,
  ]),
])

export const router = createRouter({
  routeTree,
  basepath: '/console',
  defaultPreload: 'intent',
  defaultErrorComponent: RouteProblem,
  defaultNotFoundComponent: NotFound,
  defaultPendingComponent: RoutePending,
  scrollRestoration: false,
})

declare module '@tanstack/react-router' {
  interface Register {
    router: typeof router
  }
}
