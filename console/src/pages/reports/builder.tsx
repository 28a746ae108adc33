import { useQuery } from '@tanstack/react-query'
import { Link, useNavigate, useSearch } from '@tanstack/react-router'
import {
  ChartArea,
  ChartColumn,
  ChartLine,
  Download,
  LayoutDashboard,
  type LucideIcon,
  Save,
  Table2,
  Type,
} from 'lucide-react'
import { useState } from 'react'
import { type Catalog, type Collection, useCatalog } from '../../app/catalog.ts'
import { useMe } from '../../app/session.ts'
import { Page } from '../../shell/page.tsx'
import { Button, looks } from '../../ui/button.tsx'
import { Checkbox, Field, Select } from '../../ui/field.tsx'
import { Menu } from '../../ui/menu.tsx'
import { Empty, Problem } from '../../ui/states.tsx'
import { Badge } from '../../ui/table.tsx'
import { notify, notifyError } from '../../ui/toast.tsx'
import { AsOfBar, AsOfButton } from '../data/as-of.tsx'
import { Ways } from '../data/share.tsx'
import { ReportForm } from './form.tsx'
import { type BuilderSearch, type Form, forms, type Report } from './question.ts'
import { collectionsOf, exportAddress, reportOf, waysToAsk, withMeasures } from './report.ts'
import styles from './reports.module.css'
import { Result } from './result.tsx'
import { SaveDialog, ShareButton } from './save.tsx'
import { type Dashboard, dashboardsQuery, type Saved, save, savedReportsQuery, withReport } from './saved.ts'
import { useReport } from './use-report.ts'

/** Makes a report: what is asked at one side, the answer at the other, all of it in the address. */
export function ReportBuilder() {
  const catalog = useCatalog()
  const search = useSearch({ from: '/shell/reports/build' })
  const navigate = useNavigate({ from: '/reports/build' })
  const set = (change: Partial<BuilderSearch>) =>
    void navigate({ search: (before) => withoutNothing({ ...before, ...change }), replace: true })
  const collection = catalog.get(search.collection ?? '')
  const choose = (name: string) => void navigate({ search: { collection: name } })
  const picker = <CollectionPicker catalog={catalog} value={collection?.name ?? ''} onChoose={choose} />
  if (collection === undefined)
    return (
      <Page title="New report" crumbs={<Link to="/reports">Reports</Link>}>
        {catalog.size === 0 ? (
          <Empty title="There is nothing to report on">Your role may read no collection.</Empty>
        ) : (
          <div className={styles.start}>
            {search.collection !== undefined && (
              <Problem error={new Error(`There is no collection ${search.collection} that you may read.`)} />
            )}
            {picker}
          </div>
        )}
      </Page>
    )
  return <Builder key={`${collection.name} ${search.saved ?? ''}`} {...{ collection, search, picker }} onChange={set} />
}

/** Without the members that say nothing, so that the address stays short. */
const withoutNothing = (search: BuilderSearch): BuilderSearch =>
  Object.fromEntries(
    Object.entries(search).filter(([, value]) => value !== undefined && !(Array.isArray(value) && value.length === 0)),
  )

type PickerProps = {
  readonly catalog: Catalog
  readonly value: string
  readonly onChoose: (collection: string) => void
}

function CollectionPicker({ catalog, value, onChoose }: PickerProps) {
  const sorted = [...catalog.values()].sort(
    (a, b) => Number(a.isSystem) - Number(b.isSystem) || a.name.localeCompare(b.name),
  )
  return (
    <Field label="Collection">
      {(attributes) => (
        <Select
          {...attributes}
          value={value}
          options={[
            ...(value === '' ? [{ value: '', label: 'choose one' }] : []),
            ...sorted.map(({ name, label }) => ({ value: name, label: label === name ? name : `${label} (${name})` })),
          ]}
          onChange={({ target }) => onChoose(target.value)}
        />
      )}
    </Field>
  )
}

type BuilderProps = {
  readonly collection: Collection
  readonly search: BuilderSearch
  readonly picker: React.ReactNode
  readonly onChange: (change: Partial<BuilderSearch>) => void
}

function Builder({ collection, search, picker, onChange }: BuilderProps) {
  const { asOf, live, saved: savedId } = search
  const catalog = useCatalog()
  const report = reportOf(search, collection)
  const outcome = useReport(report, { asOf, isLive: live === true })
  const { data: reports } = useQuery(savedReportsQuery)
  const saved = reports?.find(({ id }) => id === savedId)
  return (
    <Page
      title={saved?.name ?? 'New report'}
      crumbs={<Link to="/reports">Reports</Link>}
      actions={<Keep {...{ report, saved, search }} onSaved={(id) => onChange({ saved: id })} />}
    >
      <div className={styles.builder}>
        <div className={styles.side}>
          {picker}
          <ReportForm
            report={report}
            collection={collection}
            onChange={(change) => onChange(withMeasures(report, change))}
          />
        </div>
        <section className={styles.main} aria-label="Report">
          <div className={styles.tools} role="toolbar" aria-label="How it is shown">
            <Forms value={report.form} onChoose={(form) => onChange({ form })} />
            <AsOfButton value={asOf} onChange={(next) => onChange({ asOf: next })} />
            {asOf === undefined && (
              <Checkbox
                label="Live"
                checked={live === true}
                onChange={({ target }) => onChange({ live: target.checked || undefined })}
              />
            )}
            {outcome.following === 'live' && <Badge tone="good">live</Badge>}
            <Ways ways={waysToAsk(report, { asOf, origin: location.origin })} />
            <a {...looks({ size: 's' })} href={exportAddress(report, asOf)} download>
              <Download aria-hidden="true" /> CSV
            </a>
          </div>
          <AsOfBar
            value={asOf}
            onChange={(next) => onChange({ asOf: next })}
            subject={{ collections: collectionsOf(report, collection, catalog) }}
          />
          <Result report={report} outcome={outcome} />
        </section>
      </div>
    </Page>
  )
}

const formLooks: Readonly<Record<Form, { readonly label: string; readonly icon: LucideIcon }>> = {
  table: { label: 'Table', icon: Table2 },
  bars: { label: 'Bars', icon: ChartColumn },
  lines: { label: 'Lines', icon: ChartLine },
  area: { label: 'Area', icon: ChartArea },
  figure: { label: 'Figure', icon: Type },
}

function Forms({ value, onChoose }: { readonly value: Form; readonly onChoose: (form: Form) => void }) {
  return (
    <fieldset className={styles.forms}>
      <legend className="visually-hidden">Form</legend>
      {forms.map((form) => {
        const { label, icon: Icon } = formLooks[form]
        return (
          <Button key={form} size="s" kind="ghost" aria-pressed={form === value} onClick={() => onChoose(form)}>
            <Icon aria-hidden="true" /> {label}
          </Button>
        )
      })}
    </fieldset>
  )
}

type KeepProps = {
  readonly report: Report
  readonly saved: Saved<Report> | undefined
  readonly search: BuilderSearch
  readonly onSaved: (id: string) => void
}

/** Ways to keep the report: under its name, under a new one, on a dashboard. */
function Keep({ report, saved, search: { dashboard: dashboardId, panel: panelId }, onSaved }: KeepProps) {
  const { isAdmin } = useMe()
  const navigate = useNavigate()
  const [isNaming, setNaming] = useState(false)
  const { data: dashboards = [] } = useQuery(dashboardsQuery)
  const editable = dashboards.filter(({ isOwn }) => isOwn || isAdmin)
  const origin = editable.find(({ id }) => id === dashboardId)
  const attempt = (work: () => Promise<unknown>) => () => void work().catch(notifyError)
  const put = (dashboard: Saved<Dashboard>) =>
    attempt(async () => {
      const name = saved?.name ?? `Report on ${report.collection}`
      await save(dashboard.id, withReport(dashboard.content, report, name, panelId))
      await navigate({ to: '/reports/dashboards/$id', params: { id: dashboard.id } })
    })
  const saveAgain = async (id: string) => {
    await save(id, report)
    notify('Saved')
  }
  return (
    <>
      {saved !== undefined && <ShareButton saved={saved} />}
      {editable.length > 0 && (
        <Menu
          align="end"
          trigger={
            <Button size="s">
              <LayoutDashboard aria-hidden="true" /> Add to a dashboard
            </Button>
          }
          entries={editable.map((one) => ({ label: one.name, onSelect: put(one) }))}
        />
      )}
      <Button size="s" onClick={() => setNaming(true)}>
        {saved === undefined ? 'Save…' : 'Save as…'}
      </Button>
      {saved !== undefined && (saved.isOwn || isAdmin) && (
        <Button size="s" kind="primary" onClick={attempt(() => saveAgain(saved.id))}>
          <Save aria-hidden="true" /> Save
        </Button>
      )}
      {origin !== undefined && (
        <Button size="s" kind="primary" onClick={put(origin)}>
          Put back into {origin.name}
        </Button>
      )}
      {isNaming && <SaveDialog page="reports" content={report} onSaved={onSaved} onClose={() => setNaming(false)} />}
    </>
  )
}
