import { CircleAlert } from 'lucide-react'
import type { ReactNode } from 'react'
import { explain } from '../app/errors.ts'
import { isOf } from '../app/refusals.ts'
import { Button } from './button.tsx'
import styles from './states.module.css'

/** Bars where content is about to be. */
export function Loading({ lines = 6, label = 'Loading' }: { readonly lines?: number; readonly label?: string }) {
  return (
    <div className={styles.skeleton} role="status" aria-label={label}>
      {Array.from({ length: lines }, (_, line) => (
        <span key={line} className={styles.bar} style={{ width: `${[92, 74, 83, 61, 88, 70][line % 6]}%` }} />
      ))}
    </div>
  )
}

type EmptyProps = {
  readonly icon?: ReactNode
  readonly title: string
  readonly children?: ReactNode
  readonly actions?: ReactNode
}

/** Nothing is here: why, and what to do about it. */
export function Empty({ icon, title, children, actions }: EmptyProps) {
  return (
    <div className={styles.state}>
      {icon}
      <h2>{title}</h2>
      {children !== undefined && <div>{children}</div>}
      {actions !== undefined && <div className={styles.actions}>{actions}</div>}
    </div>
  )
}

type ProblemProps = {
  readonly error: unknown
  readonly onRetry?: () => void
  /** Fields that show themselves what it says of them. */
  readonly shownAt?: readonly string[]
}

/** The fault and its remedy, at the place that asked. */
export function Problem({ error, onRetry, shownAt = [] }: ProblemProps) {
  const { title, advice, details: all, requestId } = explain(error)
  const fields = shownAt.filter((field) => all.some((detail) => isOf(detail, field)))
  const details = all.filter((detail) => !fields.some((field) => isOf(detail, field)))
  return (
    <div className={styles.problem} role="alert">
      <CircleAlert aria-hidden="true" />
      <strong>{title}</strong>
      {details.length > 0 && (
        <ul>
          {details.map((detail) => (
            <li key={detail}>{detail}</li>
          ))}
        </ul>
      )}
      {fields.length > 0 && <span>See {fields.join(', ')}.</span>}
      {advice !== undefined && <span>{advice}</span>}
      {requestId !== undefined && (
        <small>
          Request <code>{requestId}</code>
        </small>
      )}
      {onRetry !== undefined && (
        <span className={styles.actions}>
          <Button size="s" onClick={onRetry}>
            Try again
          </Button>
        </span>
      )}
    </div>
  )
}

/** A hint in a box; `warning` for what is better read before going on. */
export function Note({
  kind = 'info',
  children,
}: {
  readonly kind?: 'info' | 'warning'
  readonly children: ReactNode
}) {
  return (
    <div className={styles.note} data-kind={kind}>
      {children}
    </div>
  )
}
