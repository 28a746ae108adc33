import { createRoute } from '@tanstack/react-router'
import { lazyComponent } from '../../app/lazy.ts'
import { shellRoute } from '../../app/root.tsx'
import { searchBy } from '../../app/search.ts'
import { readBuilderSearch } from './question.ts'

const reportsRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/reports',
  component: lazyComponent(() => import('./reports.tsx'), 'Reports'),
})

const builderRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/reports/build',
  validateSearch: searchBy(readBuilderSearch),
  component: lazyComponent(() => import('./builder.tsx'), 'ReportBuilder'),
})

const dashboardRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/reports/dashboards/$id',
  validateSearch: searchBy(({ asOf, edit }): { asOf?: string; edit?: true } => ({
    ...(typeof asOf === 'string' && asOf !== '' && { asOf }),
    ...(edit === true && { edit }),
  })),
  component: lazyComponent(() => import('./dashboard.tsx'), 'DashboardPage'),
})

export const reportRoutes = [reportsRoute, builderRoute, dashboardRoute] as const
