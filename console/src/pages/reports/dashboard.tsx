import { useQuery } from '@tanstack/react-query'
import { Link, useNavigate, useParams, useSearch } from '@tanstack/react-router'
import { ArrowDown, ArrowUp, ExternalLink, Pencil, Plus, Trash2 } from 'lucide-react'
import { useState } from 'react'
import { useCatalog } from '../../app/catalog.ts'
import { useMe } from '../../app/session.ts'
import { Page } from '../../shell/page.tsx'
import { Button, IconButton, looks } from '../../ui/button.tsx'
import { Input, Select } from '../../ui/field.tsx'
import { useLeaveQuestion } from '../../ui/leaving.tsx'
import { Menu } from '../../ui/menu.tsx'
import { Empty, Loading, Note, Problem } from '../../ui/states.tsx'
import { Badge } from '../../ui/table.tsx'
import { notify, notifyError } from '../../ui/toast.tsx'
import { AsOfBar, AsOfButton } from '../data/as-of.tsx'
import { sameValue } from '../data/values.ts'
import { collectionsOf } from './report.ts'
import styles from './reports.module.css'
import { Result } from './result.tsx'
import { ShareButton } from './save.tsx'
import {
  type Dashboard,
  dashboardsQuery,
  mostPanels,
  type Panel,
  panelOf,
  rename,
  type Saved,
  save,
  savedReportsQuery,
  widths,
} from './saved.ts'
import { useReport } from './use-report.ts'

/** Several reports on one page: as they are now, or as of a moment. */
export function DashboardPage() {
  const { id } = useParams({ from: '/shell/reports/dashboards/$id' })
  const { asOf, edit } = useSearch({ from: '/shell/reports/dashboards/$id' })
  const { isAdmin } = useMe()
  const catalog = useCatalog()
  const navigate = useNavigate({ from: '/reports/dashboards/$id' })
  const { data, error, refetch } = useQuery(dashboardsQuery)
  const crumbs = <Link to="/reports">Reports</Link>
  const saved = data?.find((one) => one.id === id)
  if (saved === undefined)
    return (
      <Page title="Dashboard" crumbs={crumbs}>
        {error !== null && <Problem error={error} onRetry={() => void refetch()} />}
        {error === null && data === undefined && <Loading />}
        {data !== undefined && (
          <Empty title="There is no such dashboard">It was deleted, or it is not shared with you.</Empty>
        )}
      </Page>
    )
  const isEditable = saved.isOwn || isAdmin
  const showAsOf = (next: string | undefined) => void navigate({ search: next === undefined ? {} : { asOf: next } })
  const read = new Set(
    saved.content.panels.flatMap(({ report }) => {
      const collection = catalog.get(report.collection)
      return collection === undefined ? [] : collectionsOf(report, collection, catalog)
    }),
  )
  if (edit === true && isEditable) return <Editing key={id} saved={saved} />
  return (
    <Page
      title={saved.name}
      crumbs={crumbs}
      actions={
        <>
          <AsOfButton value={asOf} onChange={showAsOf} />
          {isEditable && (
            <>
              <ShareButton saved={saved} />
              <Link to="/reports/dashboards/$id" params={{ id }} search={{ edit: true }} {...looks({ size: 's' })}>
                <Pencil aria-hidden="true" /> Edit
              </Link>
            </>
          )}
        </>
      }
    >
      <div className={styles.past}>
        <AsOfBar value={asOf} onChange={showAsOf} subject={{ collections: [...read] }} />
      </div>
      {saved.content.panels.length === 0 ? (
        <Empty title="Nothing is on this dashboard yet">
          {isEditable ? 'Edit it, or add reports from where they are made.' : 'Its owner has yet to add reports.'}
        </Empty>
      ) : (
        <div className={styles.dashboard}>
          {saved.content.panels.map((panel) => (
            <PanelCard key={panel.id} panel={panel} dashboard={id} asOf={asOf} />
          ))}
        </div>
      )}
    </Page>
  )
}

type PanelProps = { readonly panel: Panel; readonly dashboard: string; readonly asOf: string | undefined }

function PanelCard({ panel, dashboard, asOf }: PanelProps) {
  const { report, name, width, id } = panel
  const outcome = useReport(report, { asOf, isLive: true })
  return (
    <section className={styles.panel} data-width={width} aria-label={name}>
      <header className={styles.panelHead}>
        <h2>{name}</h2>
        {outcome.following === 'live' && <Badge tone="good">live</Badge>}
        <Link
          to="/reports/build"
          search={{ ...report, dashboard, panel: id, ...(asOf !== undefined && { asOf }) }}
          aria-label={`Open ${name}`}
          {...looks({ kind: 'ghost', size: 's' })}
        >
          <ExternalLink aria-hidden="true" />
        </Link>
      </header>
      <Result report={report} outcome={outcome} height={220} />
    </section>
  )
}

/** Name, reports, order and widths; nothing is saved before *Save*. */
function Editing({ saved }: { readonly saved: Saved<Dashboard> }) {
  const navigate = useNavigate({ from: '/reports/dashboards/$id' })
  const [name, setName] = useState(saved.name)
  const [panels, setPanels] = useState(saved.content.panels)
  const [isBusy, setBusy] = useState(false)
  const { data: reports = [] } = useQuery(savedReportsQuery)
  const leaveQuestion = useLeaveQuestion(
    name !== saved.name || !sameValue(panels, saved.content.panels),
    'The dashboard has changes that are not saved. They are lost.',
    ['edit'],
  )
  const leave = () => navigate({ search: {}, ignoreBlocker: true })
  const apply = async () => {
    setBusy(true)
    try {
      await save(saved.id, { panels })
      if (name.trim() !== saved.name) await rename(saved.id, name.trim())
      notify('Saved')
      await leave()
    } catch (error) {
      notifyError(error)
      setBusy(false)
    }
  }
  const isFull = panels.length >= mostPanels
  return (
    <Page
      title={saved.name}
      crumbs={<Link to="/reports">Reports</Link>}
      actions={
        <>
          {reports.length > 0 && !isFull && (
            <Menu
              align="end"
              trigger={
                <Button size="s">
                  <Plus aria-hidden="true" /> Add a report
                </Button>
              }
              entries={reports.map(({ name: title, content }) => ({
                label: title,
                onSelect: () => setPanels((before) => [...before, panelOf(content, title, { panels: before })]),
              }))}
            />
          )}
          <Button size="s" onClick={() => void leave()}>
            Cancel
          </Button>
          <Button size="s" kind="primary" isBusy={isBusy} disabled={name.trim() === ''} onClick={() => void apply()}>
            Save
          </Button>
        </>
      }
    >
      {leaveQuestion}
      <div className={styles.editing}>
        <Input aria-label="Name of the dashboard" value={name} onChange={({ target }) => setName(target.value)} />
        {isFull && <Note>A dashboard has at most {mostPanels} reports.</Note>}
        {reports.length === 0 && panels.length === 0 && (
          <Empty title="There are no saved reports to add">
            <Link to="/reports/build">Make a report</Link> first.
          </Empty>
        )}
        <ol className={styles.list} aria-label="Reports of the dashboard">
          {panels.map((panel, place) => (
            <PanelRow
              key={panel.id}
              panel={panel}
              isFirst={place === 0}
              isLast={place === panels.length - 1}
              onChange={(next) => setPanels(next === undefined ? panels.toSpliced(place, 1) : panels.with(place, next))}
              onMove={(by) => setPanels(panels.toSpliced(place, 1).toSpliced(place + by, 0, panel))}
            />
          ))}
        </ol>
      </div>
    </Page>
  )
}

type PanelRowProps = {
  readonly panel: Panel
  readonly isFirst: boolean
  readonly isLast: boolean
  readonly onChange: (panel: Panel | undefined) => void
  readonly onMove: (by: 1 | -1) => void
}

function PanelRow({ panel, isFirst, isLast, onChange, onMove }: PanelRowProps) {
  const { name, width } = panel
  return (
    <li>
      <Input
        aria-label={`Name of ${name}`}
        value={name}
        maxLength={100}
        onChange={({ target }) => onChange({ ...panel, name: target.value })}
      />
      <Select
        className={styles.width}
        aria-label={`Width of ${name}`}
        value={width}
        options={widths}
        onChange={({ target }) => onChange({ ...panel, width: widths.find((one) => one === target.value)! })}
      />
      <IconButton label={`Move ${name} up`} disabled={isFirst} onClick={() => onMove(-1)}>
        <ArrowUp />
      </IconButton>
      <IconButton label={`Move ${name} down`} disabled={isLast} onClick={() => onMove(1)}>
        <ArrowDown />
      </IconButton>
      <IconButton label={`Remove ${name}`} onClick={() => onChange(undefined)}>
        <Trash2 />
      </IconButton>
    </li>
  )
}
