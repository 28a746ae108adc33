import { useSuspenseQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { Check, Copy } from 'lucide-react'
import { type ReactNode, useState } from 'react'
import { infoQuery } from '../../app/session.ts'
import { Page } from '../../shell/page.tsx'
import { IconButton } from '../../ui/button.tsx'
import styles from './people.module.css'

type PeoplePageProps = {
  readonly title: string
  readonly description: string
  readonly actions?: ReactNode
  readonly children: ReactNode
}

/** A list of the pages about people, with the way to the others. */
export function PeoplePage({ title, description, actions, children }: PeoplePageProps) {
  const { data: info } = useSuspenseQuery(infoQuery)
  const tabs = [
    { to: '/people', label: 'Users' },
    { to: '/people/roles', label: 'Roles' },
    ...(info.project.multitenant
      ? [
          { to: '/people/tenants', label: 'Tenants' },
          { to: '/people/invitations', label: 'Invitations' },
        ]
      : []),
  ] as const
  return (
    <Page title={title} description={description} actions={actions}>
      <nav className={styles.tabs} aria-label="People">
        {tabs.map(({ to, label }) => (
          <Link key={to} to={to} className={styles.tab} activeOptions={{ exact: true, includeSearch: false }}>
            {label}
          </Link>
        ))}
      </nav>
      {children}
    </Page>
  )
}

type CardProps = { readonly title: string; readonly actions?: ReactNode; readonly children: ReactNode }

/** A part of a page about somebody. */
export function Card({ title, actions, children }: CardProps) {
  return (
    <section className={styles.card} aria-label={title}>
      <header>
        <h2>{title}</h2>
        {actions !== undefined && <span className={styles.actions}>{actions}</span>}
      </header>
      {children}
    </section>
  )
}

/** A text that is shown this one time, to be copied. */
export function Secret({ label, text }: { readonly label: string; readonly text: string }) {
  const [isCopied, setCopied] = useState(false)
  const copy = async () => {
    await navigator.clipboard.writeText(text)
    setCopied(true)
  }
  return (
    <div className={styles.secret}>
      <output aria-label={label}>{text}</output>
      <IconButton label={isCopied ? 'Copied' : `Copy ${label.toLowerCase()}`} size="s" onClick={() => void copy()}>
        {isCopied ? <Check /> : <Copy />}
      </IconButton>
    </div>
  )
}

export function PeopleLink() {
  return <Link to="/people">People</Link>
}
