import { createRoute, lazyRouteComponent } from '@tanstack/react-router'
import { shellRoute } from '../../app/root.tsx'

/** The path after the name belongs to the extension. */
const extensionRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/extensions/$name/$',
  component: lazyRouteComponent(() => import('./page.tsx'), 'ExtensionPage'),
})

export const extensionRoutes = [extensionRoute] as const
