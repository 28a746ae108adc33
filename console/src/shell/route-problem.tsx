import { type ErrorComponentProps, Link, useRouter } from '@tanstack/react-router'
import { Compass } from 'lucide-react'
import { looks } from '../ui/button.tsx'
import { Empty, Loading, Problem } from '../ui/states.tsx'

/** A page that could not be shown: why, and another try. */
export function RouteProblem({ error, reset }: ErrorComponentProps) {
  const router = useRouter()
  const retry = () => {
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
