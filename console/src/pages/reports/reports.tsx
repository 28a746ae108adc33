import { useQuery } from '@tanstack/react-query'
import { Link, useNavigate } from '@tanstack/react-router'
import { ChartColumn, LayoutDashboard, Plus, Trash2 } from 'lucide-react'
import { type ReactNode, useState } from 'react'
import { useMe } from '../../app/session.ts'
import { Page } from '../../shell/page.tsx'
import { Button, IconButton, looks } from '../../ui/button.tsx'
import { ConfirmDialog } from '../../ui/dialog.tsx'
import { Input } from '../../ui/field.tsx'
import { Empty, Loading, Problem } from '../../ui/states.tsx'
import { Badge } from '../../ui/table.tsx'
import { notify } from '../../ui/toast.tsx'
import styles from './reports.module.css'
import { SaveDialog, ShareButton } from './save.tsx'
import { dashboardsQuery, remove, type Saved, savedReportsQuery } from './saved.ts'

/** The reports that the user has saved, and those that are shared with the user's role. */
export function Reports() {
  const navigate = useNavigate()
  const [wanted, setWanted] = useState('')
  const [isMaking, setMaking] = useState(false)
  const dashboards = useQuery(dashboardsQuery)
  const reports = useQuery(savedReportsQuery)
  const error = dashboards.error ?? reports.error
  const retry = () => {
    void dashboards.refetch()
    void reports.refetch()
  }
  const fits = ({ name }: Saved<unknown>) => name.toLowerCase().includes(wanted.trim().toLowerCase())
  const isEmpty = dashboards.data?.length === 0 && reports.data?.length === 0
  return (
    <Page
      title="Reports"
      description="Figures of what you may read, and dashboards of them."
      actions={
        <>
          <Button onClick={() => setMaking(true)}>
            <LayoutDashboard aria-hidden="true" /> New dashboard
          </Button>
          <Link to="/reports/build" {...looks({ kind: 'primary' })}>
            <Plus aria-hidden="true" /> New report
          </Link>
        </>
      }
    >
      {error !== null && <Problem error={error} onRetry={retry} />}
      {error === null && (dashboards.isPending || reports.isPending) && <Loading />}
      {isEmpty && (
        <Empty
          icon={<ChartColumn aria-hidden="true" />}
          title="Nothing is saved yet"
          actions={
            <Link to="/reports/build" {...looks({ kind: 'primary' })}>
              Make the first report
            </Link>
          }
        >
          A report counts and sums rows by groups. What you save is listed here, and on dashboards.
        </Empty>
      )}
      {!isEmpty && dashboards.data !== undefined && reports.data !== undefined && (
        <div className={styles.lists}>
          <Input
            type="search"
            data-filter
            className={styles.find}
            aria-label="Find a report"
            placeholder="Find a report"
            value={wanted}
            onChange={({ target }) => setWanted(target.value)}
          />
          <List
            title="Dashboards"
            entries={dashboards.data.filter(fits)}
            link={({ id, name }) => (
              <Link to="/reports/dashboards/$id" params={{ id }}>
                {name}
              </Link>
            )}
            about={({ panels }) => `${panels.length} ${panels.length === 1 ? 'report' : 'reports'}`}
          />
          <List
            title="Reports"
            entries={reports.data.filter(fits)}
            link={({ id, name, content }) => (
              <Link to="/reports/build" search={{ ...content, saved: id }}>
                {name}
              </Link>
            )}
            about={({ collection, form }) => `${collection}, ${form}`}
          />
        </div>
      )}
      {isMaking && (
        <SaveDialog
          page="dashboards"
          content={{ panels: [] }}
          onClose={() => setMaking(false)}
          onSaved={(id) => void navigate({ to: '/reports/dashboards/$id', params: { id }, search: { edit: true } })}
        />
      )}
    </Page>
  )
}

type ListProps<Content> = {
  readonly title: string
  readonly entries: readonly Saved<Content>[]
  readonly link: (entry: Saved<Content>) => ReactNode
  readonly about: (content: Content) => string
}

function List<Content>({ title, entries, link, about }: ListProps<Content>) {
  const { isAdmin } = useMe()
  const [leaving, setLeaving] = useState<Saved<Content>>()
  if (entries.length === 0) return null
  return (
    <section aria-label={title}>
      <h2>{title}</h2>
      <ul className={styles.list}>
        {entries.map((entry) => (
          <li key={entry.id}>
            <span className={styles.name}>
              {link(entry)}
              <small>{about(entry.content)}</small>
            </span>
            {entry.role_Id !== null && <Badge tone="info">{entry.isOwn ? 'shared' : 'shared with you'}</Badge>}
            <ShareButton saved={entry} />
            {(entry.isOwn || isAdmin) && (
              <IconButton label={`Delete ${entry.name}`} size="s" onClick={() => setLeaving(entry)}>
                <Trash2 />
              </IconButton>
            )}
          </li>
        ))}
      </ul>
      {leaving !== undefined && (
        <ConfirmDialog
          isOpen
          isDangerous
          title={`Delete ${leaving.name}?`}
          description="Rows stay as they are. Whoever it is shared with loses it too."
          action="Delete"
          onClose={() => setLeaving(undefined)}
          onConfirm={async () => {
            await remove(leaving.id)
            notify('Deleted')
          }}
        />
      )}
    </section>
  )
}
