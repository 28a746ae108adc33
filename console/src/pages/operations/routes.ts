import { createRoute } from '@tanstack/react-router'
import { lazyComponent } from '../../app/lazy.ts'
import { shellRoute } from '../../app/root.tsx'
import { searchBy } from '../../app/search.ts'

/** The filters of lists and the open row, so that an address shows them again. */
export type OperationsSearch = {
  readonly state?: string | undefined
  readonly queue?: string | undefined
  readonly find?: string | undefined
  /** From 1. */
  readonly page?: number | undefined
  /** The workflow or webhook whose executions or deliveries are listed. */
  readonly of?: string | undefined
  /** The key of the row that is looked at. */
  readonly open?: string | undefined
}

const text = (value: unknown): string | undefined =>
  typeof value === 'string' && value !== '' ? value : typeof value === 'number' ? String(value) : undefined

const operationsRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/operations',
  component: lazyComponent(() => import('./operations.tsx'), 'Overview'),
})

const sectionRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/operations/$section',
  validateSearch: searchBy(
    ({ state, queue, find, page, of, open }): OperationsSearch => ({
      state: text(state),
      queue: text(queue),
      find: text(find),
      page: Number.isInteger(page) && Number(page) > 1 ? Number(page) : undefined,
      of: text(of),
      open: text(open),
    }),
  ),
  component: lazyComponent(() => import('./operations.tsx'), 'Section'),
})

export const operationsRoutes = [operationsRoute, sectionRoute] as const
