import { createRoute } from '@tanstack/react-router'
import { lazyComponent } from '../../app/lazy.ts'
import { shellRoute } from '../../app/root.tsx'
import { searchBy } from '../../app/search.ts'

const text = (value: unknown): string | undefined =>
  typeof value === 'string' && value !== '' ? value : typeof value === 'number' ? String(value) : undefined
const isOn = (value: unknown): true | undefined => (value === true ? true : undefined)

/** `open` is what lies over the list: a collection that is made, or a file that is imported. */
type OverviewSearch = {
  readonly view?: 'diagram' | undefined
  readonly system?: true | undefined
  readonly open?: 'new' | 'import' | undefined
}

const overviewRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/schema',
  validateSearch: searchBy(
    ({ view, system, open }): OverviewSearch => ({
      view: view === 'diagram' ? view : undefined,
      system: isOn(system),
      open: open === 'new' || open === 'import' ? open : undefined,
    }),
  ),
  component: lazyComponent(() => import('./overview.tsx'), 'Overview'),
})

export const parts = ['fields', 'relations', 'indexes', 'constraints', 'settings', 'json'] as const
export type Part = (typeof parts)[number]

/** `edit` names the entry whose form is open, `add` opens an empty one. */
export type CollectionSearch = {
  readonly part?: Part | undefined
  readonly edit?: string | undefined
  readonly add?: true | undefined
}

const collectionRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/schema/$collection',
  validateSearch: searchBy(
    ({ part, edit, add }): CollectionSearch => ({
      part: parts.find((one) => one === part),
      edit: text(edit),
      add: isOn(add),
    }),
  ),
  component: lazyComponent(() => import('./collection.tsx'), 'CollectionSchema'),
})

export const schemaRoutes = [overviewRoute, collectionRoute] as const
