import { createRoute } from '@tanstack/react-router'
import { lazyComponent } from '../../app/lazy.ts'
import { shellRoute } from '../../app/root.tsx'

/** The path after the name belongs to the extension. */
const extensionRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/extensions/$name/$',
  component: lazyComponent(() => import('./page.tsx'), 'ExtensionPage'),
})

export const extensionRoutes = [extensionRoute] as const
