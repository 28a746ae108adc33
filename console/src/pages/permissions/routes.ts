import { createRoute } from '@tanstack/react-router'
import { lazyComponent } from '../../app/lazy.ts'
import { shellRoute } from '../../app/root.tsx'
import { searchBy } from '../../app/search.ts'
import { type Action, actions } from './fields.ts'

const text = (value: unknown): string | undefined =>
  typeof value === 'string' && value !== '' ? value : typeof value === 'number' ? String(value) : undefined

/** `role` and `collection` open the editor of what the one may do with the other. */
type MatrixSearch = {
  readonly role?: string | undefined
  readonly collection?: string | undefined
  readonly system?: true | undefined
}

const matrixRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/permissions',
  validateSearch: searchBy(
    ({ role, collection, system }): MatrixSearch => ({
      role: text(role),
      collection: text(collection),
      system: system === true ? true : undefined,
    }),
  ),
  component: lazyComponent(() => import('./matrix.tsx'), 'Permissions'),
})

/** The question; it is answered as soon as it is complete. */
export type ExplainSearch = {
  readonly role?: string | undefined
  readonly user?: string | undefined
  readonly collection?: string | undefined
  readonly action?: Action | undefined
  readonly id?: string | undefined
}

const explainRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/permissions/explain',
  validateSearch: searchBy(
    ({ role, user, collection, action, id }): ExplainSearch => ({
      role: text(role),
      user: text(user),
      collection: text(collection),
      action: actions.find((one) => one === action),
      id: text(id),
    }),
  ),
  component: lazyComponent(() => import('./explain.tsx'), 'Explain'),
})

/** `open` is the named rule that is shown, by id, or `new`; `like` the one that a new one begins as. */
type NamedSearch = { readonly open?: string | undefined; readonly like?: string | undefined }

const namedRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/permissions/rules',
  validateSearch: searchBy(({ open, like }): NamedSearch => ({ open: text(open), like: text(like) })),
  component: lazyComponent(() => import('./named-rules.tsx'), 'NamedRules'),
})

export const permissionRoutes = [matrixRoute, explainRoute, namedRoute] as const
