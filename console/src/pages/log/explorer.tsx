import { keepPreviousData, useInfiniteQuery, useQuery } from '@tanstack/react-query'
import { useNavigate, useSearch } from '@tanstack/react-router'
import { Download } from 'lucide-react'
import { useState } from 'react'
import { Page } from '../../shell/page.tsx'
import { Button, looks } from '../../ui/button.tsx'
import { Checkbox, Select } from '../../ui/field.tsx'
import { Empty, Loading, Note, Problem } from '../../ui/states.tsx'
import { timeText } from '../data/values.ts'
import styles from './log.module.css'
import { type Facets, filterOf, namesOf, type RequestEntry, readFacets, readRequests } from './log.ts'
import { RequestDrawer } from './request.tsx'
import { type FacetName, facetNames, type LogSearch } from './routes.ts'

const followMs = 2000
const hourMs = 3_600_000
const spans = [
  { label: 'Last hour', hours: 1 },
  { label: 'Last day', hours: 24 },
  { label: 'Last week', hours: 168 },
  { label: 'Last 30 days', hours: 720 },
]

/** Everything that has happened: by whom, to what, when; from a month down to one request. */
export function LogExplorer() {
  const search = useSearch({ from: '/shell/log' })
  const navigate = useNavigate({ from: '/log' })
  const set = (change: Partial<LogSearch>) => void navigate({ search: (before) => ({ ...before, ...change }) })
  const { request: _request, follow, ...filter } = search
  const refetchInterval = follow === true ? followMs : false
  const facets = useQuery({
    queryKey: ['log', 'facets', filter],
    queryFn: () => readFacets(filter),
    placeholderData: keepPreviousData,
    refetchInterval,
  })
  const requests = useInfiniteQuery({
    queryKey: ['log', 'requests', filter],
    queryFn: ({ pageParam }) => readRequests(filter, pageParam),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: ({ nextCursor }) => nextCursor ?? undefined,
    refetchInterval,
  })
  const entries = requests.data?.pages.flatMap(({ data }) => data) ?? []
  const ids = [...entries.map(({ userId }) => userId), ...(facets.data?.facets.actor ?? []).map(({ value }) => value)]
  const known = [...new Set(ids.filter((id) => typeof id === 'string'))].sort()
  const { data: names = new Map<string, string>() } = useQuery({
    queryKey: ['log', 'names', known],
    queryFn: () => namesOf(known),
    placeholderData: keepPreviousData,
  })
  return (
    <Page
      title="Log"
      description="Every change of every row, by whoever made it."
      actions={
        <a
          {...looks()}
          href={`/log/export?${new URLSearchParams(exportable(filter, facets.data))}`}
          download="log.ndjson"
        >
          <Download aria-hidden="true" /> Export
        </a>
      }
    >
      <div className={styles.tools}>
        <Span search={search} onChange={set} />
        <Checkbox
          label="Follow"
          checked={follow === true}
          onChange={({ target }) => set({ follow: target.checked || undefined })}
        />
        {facets.data !== undefined && (
          <span className={styles.total}>{facets.data.events.toLocaleString()} events</span>
        )}
      </div>
      {facets.error !== null && <Problem error={facets.error} onRetry={() => void facets.refetch()} />}
      {facets.data !== undefined && <Histogram facets={facets.data} onBrush={(from, to) => set({ from, to })} />}
      {facets.data?.complete === false && (
        <Note kind="warning">
          There are too many events to count: these are the newest 200,000, since {timeText(facets.data.since)}. Choose
          a shorter time for all of it.
        </Note>
      )}
      <div className={styles.columns}>
        <aside className={styles.facets} aria-label="Filters">
          {facetNames.map((name) => (
            <Facet
              key={name}
              name={name}
              chosen={search[name]}
              values={facets.data?.facets[name] ?? []}
              label={(value) => (name === 'actor' ? (names.get(value) ?? value) : value)}
              onChoose={(value) => set({ [name]: value })}
            />
          ))}
        </aside>
        <section className={styles.list} aria-label="Requests">
          {requests.error !== null && <Problem error={requests.error} onRetry={() => void requests.refetch()} />}
          {requests.isPending && <Loading />}
          {requests.isSuccess && entries.length === 0 && <Empty title="No matching events" />}
          <ul>
            {entries.map((entry) => (
              <li key={entry.requestId ?? entry.position}>
                <Entry
                  entry={entry}
                  name={nameOf(entry, names)}
                  onOpen={() => set({ request: entry.requestId ?? entry.position })}
                />
              </li>
            ))}
          </ul>
          {requests.hasNextPage && (
            <Button isBusy={requests.isFetchingNextPage} onClick={() => void requests.fetchNextPage()}>
              Older ones
            </Button>
          )}
        </section>
      </div>
      {search.request !== undefined && (
        <RequestDrawer id={search.request} onClose={() => set({ request: undefined })} />
      )}
    </Page>
  )
}

/** Who did it: empty for those who may not read that. */
function nameOf({ userId }: RequestEntry, names: ReadonlyMap<string, string>): string {
  if (userId === undefined) return ''
  return userId === null ? 'the database or a job' : (names.get(userId) ?? userId)
}

/** The shown filters, but for the program, which the export does not filter by. */
function exportable(search: LogSearch, facets: Facets | undefined): Record<string, string> {
  const { agent: _agent, ...rest } = filterOf(search)
  return { ...(facets && { from: facets.from }), ...rest }
}

function Span({
  search,
  onChange,
}: {
  readonly search: LogSearch
  readonly onChange: (change: Partial<LogSearch>) => void
}) {
  const isOwn = search.from !== undefined
  return (
    <Select
      aria-label="Time"
      value={isOwn ? 'own' : '24'}
      options={[
        ...(isOwn ? [{ value: 'own', label: `From ${timeText(search.from!)}` }] : []),
        ...spans.map(({ label, hours }) => ({ value: String(hours), label })),
      ]}
      onChange={({ target }) => {
        const hours = Number(target.value)
        if (hours === 24) onChange({ from: undefined, to: undefined })
        else onChange({ from: new Date(Date.now() - hours * hourMs).toISOString(), to: undefined })
      }}
    />
  )
}

/** Bars over time. Dragging over them chooses their time; the list of times does it by keyboard. */
function Histogram({
  facets,
  onBrush,
}: {
  readonly facets: Facets
  readonly onBrush: (from: string, to: string) => void
}) {
  const [brush, setBrush] = useState<readonly [number, number]>()
  const { histogram, bucketMs } = facets
  const most = Math.max(1, ...histogram.map(({ events }) => events))
  const [first, last] = brush === undefined ? [-1, -1] : [Math.min(...brush), Math.max(...brush)]
  const end = () => {
    if (brush === undefined) return
    setBrush(undefined)
    onBrush(histogram[first]!.at, new Date(Date.parse(histogram[last]!.at) + bucketMs).toISOString())
  }
  return (
    <figure className={styles.figure}>
      <div className={styles.bars} onPointerUp={end} onPointerLeave={() => setBrush(undefined)} aria-hidden="true">
        {histogram.map(({ at, events }, place) => (
          <span
            key={at}
            className={styles.slot}
            data-brushed={place >= first && place <= last}
            title={`${timeText(at)}: ${events.toLocaleString()}`}
            onPointerDown={() => setBrush([place, place])}
            onPointerEnter={() => setBrush((before) => before && [before[0], place])}
          >
            <span className={styles.bar} style={{ height: `${(events / most) * 100}%` }} />
          </span>
        ))}
      </div>
      <figcaption>
        <span>{timeText(facets.from)}</span>
        <span>{timeText(facets.to)}</span>
      </figcaption>
    </figure>
  )
}

const titles: Readonly<Record<FacetName, string>> = {
  collection: 'Collection',
  action: 'Action',
  actor: 'User',
  tenant: 'Tenant',
  agent: 'Program',
}

type FacetProps = {
  readonly name: FacetName
  readonly chosen: string | undefined
  readonly values: readonly { readonly value: string | null; readonly events: number }[]
  readonly label: (value: string) => string
  readonly onChoose: (value: string | undefined) => void
}

function Facet({ name, chosen, values, label, onChoose }: FacetProps) {
  const shown = values.flatMap(({ value, events }) => (value === null ? [] : [{ value, events }])).slice(0, 12)
  if (shown.length === 0 && chosen === undefined) return null
  return (
    // Below one another, open ones would push the requests out of a narrow window.
    <details
      className={styles.facet}
      aria-label={titles[name]}
      open={chosen !== undefined || !matchMedia('(max-width: 48rem)').matches}
    >
      <summary>
        <h2>{titles[name]}</h2>
      </summary>
      <ul>
        {shown.map(({ value, events }) => (
          <li key={value}>
            <button
              type="button"
              aria-pressed={value === chosen}
              onClick={() => onChoose(value === chosen ? undefined : value)}
            >
              <span>{label(value)}</span>
              <small>{events.toLocaleString()}</small>
            </button>
          </li>
        ))}
      </ul>
    </details>
  )
}

function Entry({
  entry,
  name,
  onOpen,
}: {
  readonly entry: RequestEntry
  readonly name: string
  readonly onOpen: () => void
}) {
  const { at, counts = [{ events: entry.events }], agent, cause } = entry
  return (
    <button type="button" className={styles.entry} onClick={onOpen}>
      <span className={styles.what}>
        {counts.map(({ collection, action, events }) => (
          <span key={`${collection} ${action}`}>
            {action ?? (collection === undefined && 'events')} {events > 1 ? `${events.toLocaleString()} ` : ''}
            {collection !== undefined && <code>{collection}</code>}
          </span>
        ))}
      </span>
      <small>
        {name}
        {agent != null && ` by ${agent.name}`}
        {cause != null && ` · followed by ${cause.by}`}
        {at !== undefined && (
          <>
            {' · '}
            <time dateTime={at}>{timeText(at)}</time>
          </>
        )}
      </small>
    </button>
  )
}
