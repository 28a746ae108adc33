import { createRoute } from '@tanstack/react-router'
import { lazyComponent } from '../../app/lazy.ts'
import { shellRoute } from '../../app/root.tsx'
import { searchBy } from '../../app/search.ts'
import { readListSearch } from './query.ts'

const collectionsRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/data',
  component: lazyComponent(() => import('./collections.tsx'), 'Collections'),
})

const collectionRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/data/$collection',
  validateSearch: searchBy(readListSearch),
  component: lazyComponent(() => import('./collection.tsx'), 'CollectionPage'),
})

const newRecordRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/data/$collection/new',
  component: lazyComponent(() => import('../record/record.tsx'), 'NewRecord'),
})

const recordRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/data/$collection/$id',
  validateSearch: searchBy(({ asOf }): { asOf?: string } => (typeof asOf === 'string' && asOf !== '' ? { asOf } : {})),
  component: lazyComponent(() => import('../record/record.tsx'), 'RecordPage'),
})

const trashRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/trash/$collection',
  component: lazyComponent(() => import('../record/trash.tsx'), 'Trash'),
})

export const dataRoutes = [collectionsRoute, collectionRoute, newRecordRoute, recordRoute, trashRoute] as const
