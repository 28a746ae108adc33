import { createRoute, lazyRouteComponent } from '@tanstack/react-router'
import { shellRoute } from '../../app/root.tsx'

/** What follows the name is the extension's own. */
const extensionRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/extensions/$name/$',
  component: lazyRouteComponent(() => import('./page.tsx'), 'ExtensionPage'),
})

export const extensionRoutes = [extensionRoute] as const
