import { createRoute, lazyRouteComponent } from '@tanstack/react-router'
import { shellRoute } from '../../app/root.tsx'
import { type BuilderSearch, readBuilderSearch } from './question.ts'

const reportsRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/reports',
  component: lazyRouteComponent(() => import('./reports.tsx'), 'Reports'),
})

const builderRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/reports/build',
  validateSearch: (search: Record<string, unknown>): BuilderSearch => readBuilderSearch(search),
  component: lazyRouteComponent(() => import('./builder.tsx'), 'ReportBuilder'),
})

const dashboardRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/reports/dashboards/$id',
  validateSearch: ({ asOf, edit }: Record<string, unknown>): { asOf?: string; edit?: true } => ({
    ...(typeof asOf === 'string' && asOf !== '' && { asOf }),
    ...(edit === true && { edit }),
  }),
  component: lazyRouteComponent(() => import('./dashboard.tsx'), 'DashboardPage'),
})

export const reportRoutes = [reportsRoute, builderRoute, dashboardRoute] as const
