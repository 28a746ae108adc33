import { createRoute } from '@tanstack/react-router'
import { lazyComponent } from '../../app/lazy.ts'
import { shellRoute } from '../../app/root.tsx'
import { searchBy } from '../../app/search.ts'

const text = (value: unknown): string | undefined =>
  typeof value === 'string' && value !== '' ? value : typeof value === 'number' ? String(value) : undefined

type WorkflowSearch = {
  readonly nodes?: 'list' | undefined
  /** The execution whose states the nodes show. */
  readonly execution?: string | undefined
}

const workflowsRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/workflows',
  component: lazyComponent(() => import('./workflows.tsx'), 'Workflows'),
})

const workflowRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/workflows/$id',
  validateSearch: searchBy(
    ({ nodes, execution }): WorkflowSearch => ({
      nodes: nodes === 'list' ? nodes : undefined,
      execution: text(execution),
    }),
  ),
  component: lazyComponent(() => import('./workflow.tsx'), 'WorkflowPage'),
})

export const workflowRoutes = [workflowsRoute, workflowRoute] as const
