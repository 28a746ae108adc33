import { type ErrorComponentProps, Link, useRouter } from '@tanstack/react-router'
import { Compass } from 'lucide-react'
import { useEffect } from 'react'
import { forgetFailures, PartMissing, reloadForBuild } from '../app/lazy.ts'
import { looks } from '../ui/button.tsx'
import { Empty, Loading, Problem } from '../ui/states.tsx'
import { Page } from './page.tsx'

/** A page that could not be shown: why, and another try. One of a former build of the server is loaded anew. */
export function RouteProblem({ error, reset }: ErrorComponentProps) {
  const router = useRouter()
  const build = error instanceof PartMissing ? error.build : undefined
  useEffect(() => {
    if (build !== undefined) reloadForBuild(build)
  }, [build])
  const retry = () => {
    if (build !== undefined) return window.location.reload()
    forgetFailures()
    reset()
    void router.invalidate()
  }
  return (
    <div style={{ padding: 'var(--s5)', maxWidth: '44rem' }}>
      <Problem error={error} onRetry={retry} />
    </div>
  )
}

export const RoutePending = () => <Loading />

/** A collection that an address names and that is not there, or not for whoever looks. */
export const NoCollection = ({ name }: { readonly name: string }) => (
  <Page title="No such collection" crumbs={<Link to="/data">Data</Link>}>
    <Empty
      icon={<Compass />}
      title={`There is no collection ${name}`}
      actions={
        <Link to="/data" {...looks()}>
          All collections
        </Link>
      }
    >
      <p>It is called otherwise, or your role does not grant it.</p>
    </Empty>
  </Page>
)

/** An address within the navigation that no page has. */
export const UnknownPage = () => (
  <Page title="No such page">
    <NotFound />
  </Page>
)

export const NotFound = () => (
  <Empty
    icon={<Compass />}
    title="There is no such page"
    actions={
      <Link to="/data" {...looks()}>
        Go to the data
      </Link>
    }
  >
    <p>The address may be of another version of the console, or mistyped.</p>
  </Empty>
)
