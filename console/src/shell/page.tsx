import { type ReactNode, useEffect } from 'react'
import styles from './shell.module.css'

/** Characters of a title that a tab can make use of. */
const longest = 100

const shortened = (title: string): string => (title.length > longest ? `${title.slice(0, longest - 1)}…` : title)

type PageProps = {
  /** In the tab and as the heading. */
  readonly title: string
  readonly heading?: ReactNode
  readonly description?: ReactNode
  /** Links to what is above this page. */
  readonly crumbs?: ReactNode
  readonly actions?: ReactNode
  /** Its content fills the window and scrolls itself. */
  readonly isFull?: boolean
  readonly children: ReactNode
}

/** The parts of every page: a heading, actions, and the content. */
export function Page({ title, heading, description, crumbs, actions, isFull = false, children }: PageProps) {
  useEffect(() => {
    document.title = `${shortened(title)} · Console`
  }, [title])
  return (
    <div className={styles.page} data-fill={isFull}>
      <header className={styles.pageHead}>
        <div className={styles.pageTitle}>
          {crumbs !== undefined && (
            <nav className={styles.crumbs} aria-label="You are here">
              {crumbs}
            </nav>
          )}
          <h1 title={title.length > longest ? title : undefined}>{heading ?? <span>{title}</span>}</h1>
          {description !== undefined && <p>{description}</p>}
        </div>
        {actions !== undefined && <div className={styles.pageActions}>{actions}</div>}
      </header>
      <div className={styles.pageBody} data-wide={isFull}>
        {children}
      </div>
    </div>
  )
}
