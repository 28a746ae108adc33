import { createRoute, lazyRouteComponent } from '@tanstack/react-router'
import { shellRoute } from '../../app/root.tsx'
import { searchBy } from '../../app/search.ts'
import { readBuilderSearch } from './question.ts'

const reportsRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/reports',
  component: lazyRouteComponent(() => import('./reports.tsx'), 'Reports'),
})

const builderRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/reports/build',
  validateSearch: searchBy(readBuilderSearch),
  component: lazyRouteComponent(() => import('./builder.tsx'), 'ReportBuilder'),
})

const dashboardRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/reports/dashboards/$id',
  validateSearch: searchBy(({ asOf, edit }): { asOf?: string; edit?: true } => ({
    ...(typeof asOf === 'string' && asOf !== '' && { asOf }),
    ...(edit === true && { edit }),
  })),
  component: lazyRouteComponent(() => import('./dashboard.tsx'), 'DashboardPage'),
})

export const reportRoutes = [reportsRoute, builderRoute, dashboardRoute] as const
