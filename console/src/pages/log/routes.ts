import { createRoute } from '@tanstack/react-router'
import { lazyComponent } from '../../app/lazy.ts'
import { shellRoute } from '../../app/root.tsx'
import { searchBy } from '../../app/search.ts'

export const facetNames = ['collection', 'action', 'actor', 'tenant', 'agent'] as const
export type FacetName = (typeof facetNames)[number]

/** Everything that the explorer is set to, so that an address shows it again. */
export type LogSearch = { readonly [Name in FacetName]?: string | undefined } & {
  readonly from?: string | undefined
  readonly to?: string | undefined
  /** The request that is looked at. */
  readonly request?: string | undefined
  readonly follow?: true | undefined
}

const text = (value: unknown): string | undefined => (typeof value === 'string' && value !== '' ? value : undefined)
const time = (value: unknown): string | undefined => (Number.isNaN(Date.parse(String(value))) ? undefined : text(value))

const logRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: '/log',
  validateSearch: searchBy(
    (search): LogSearch => ({
      ...Object.fromEntries(facetNames.map((name) => [name, text(search[name])])),
      from: time(search.from),
      to: time(search.to),
      request: text(search.request),
      follow: search.follow === true ? true : undefined,
    }),
  ),
  component: lazyComponent(() => import('./explorer.tsx'), 'LogExplorer'),
})

export const logRoutes = [logRoute] as const
