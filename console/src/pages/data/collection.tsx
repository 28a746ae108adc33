import { Link, useNavigate, useParams, useSearch } from '@tanstack/react-router'
import { Filter as FilterIcon, Plus } from 'lucide-react'
import { useState } from 'react'
import { type Collection, useCatalog } from '../../app/catalog.ts'
import { Page } from '../../shell/page.tsx'
import { NoCollection } from '../../shell/route-problem.tsx'
import { Button, looks } from '../../ui/button.tsx'
import { Input } from '../../ui/field.tsx'
import { Popover } from '../../ui/menu.tsx'
import { Empty, Problem } from '../../ui/states.tsx'
import { AsOfBar, AsOfButton } from './as-of.tsx'
import { DeleteRows, EditRows } from './bulk.tsx'
import styles from './collection.module.css'
import { ColumnsMenu } from './columns-menu.tsx'
import { estimateText } from './counts.ts'
import { countConditions, readFilter } from './filter.ts'
import { FilterBuilder } from './filter-builder.tsx'
import { keptPlace } from './list-place.ts'
import { columnsOf, fieldsToRead, type ListSearch, type Row } from './query.ts'
import { RowGrid } from './row-grid.tsx'
import type { RowWindow } from './row-window.ts'
import { mostSelected, selectionText } from './selection.ts'
import { Share } from './share.tsx'
import { Transfer } from './transfer.tsx'
import { useRows } from './use-rows.ts'
import { Views } from './views.tsx'

/** The rows of a collection: all of what is shown is in the address. */
export function CollectionPage() {
  const { collection: name } = useParams({ from: '/shell/data/$collection' })
  const collection = useCatalog().get(name)
  if (collection === undefined) return <NoCollection name={name} />
  return <Rows key={name} collection={collection} />
}

function Rows({ collection }: { readonly collection: Collection }) {
  const catalog = useCatalog()
  const search = useSearch({ from: '/shell/data/$collection' })
  const navigate = useNavigate({ from: '/data/$collection' })
  const [selected, setSelected] = useState<ReadonlyMap<string, Row>>(new Map())
  const [dialog, setDialog] = useState<'edit' | 'delete'>()
  const columns = columnsOf(collection, search)
  const fields = fieldsToRead(collection, columns, catalog)
  const [begin] = useState(() => keptPlace(collection.name))
  const rows = useRows(collection, search, columns, catalog, begin?.count)
  const change = (next: Partial<ListSearch>) => {
    setSelected(new Map())
    void navigate({ search: (before) => withoutNothing({ ...before, ...next }), replace: true })
  }
  const { count, isCounted, isEstimate, error, added, notLive } = rows.state
  const isNarrowed = search.filter !== undefined || search.search !== undefined
  const bulk = {
    collection,
    catalog,
    rows: [...selected.values()],
    onClose: () => setDialog(undefined),
    onDone: () => {
      setSelected(new Map())
      rows.reload()
    },
  }
  return (
    <Page
      title={collection.label}
      heading={
        <>
          {collection.label}
          <span className={styles.count}>
            {isCounted
              ? `${isEstimate ? estimateText(count) : count.toLocaleString()} ${count === 1 ? 'row' : 'rows'}`
              : count > 0
                ? `more than ${count.toLocaleString()} rows`
                : ''}
          </span>
          {isEstimate && <CountExactly rows={rows} />}
        </>
      }
      description={collection.description}
      crumbs={<Link to="/data">Data</Link>}
      isFull
      actions={
        <>
          <Transfer {...{ collection, search }} count={isCounted ? count : undefined} onDone={() => rows.reload()} />
          {search.asOf === undefined && collection.mayCreate && (
            <Link
              to="/data/$collection/new"
              params={{ collection: collection.name }}
              {...looks({ kind: 'primary', size: 's' })}
            >
              <Plus aria-hidden="true" /> New
            </Link>
          )}
        </>
      }
    >
      <div className={styles.bar} role="toolbar" aria-label="What is shown">
        <Search key={search.search ?? ''} value={search.search} onSearch={(text) => change({ search: text })} />
        <FilterButton collection={collection} search={search} onChange={change} />
        <ColumnsMenu collection={collection} search={search} onChange={change} />
        <AsOfButton value={search.asOf} onChange={(asOf) => change({ asOf })} />
        <Views
          collection={collection.name}
          search={search}
          onOpen={(next) => {
            setSelected(new Map())
            void navigate({ search: next })
          }}
        />
        <Share collection={collection.name} search={search} fields={fields} />
        {added > 0 && (
          <Button size="s" kind="primary" onClick={() => rows.reload()}>
            {added === 1 ? 'Show 1 new row' : `Show ${added.toLocaleString()} new rows`}
          </Button>
        )}
        {notLive !== undefined && (
          <span className={styles.notLive} role="status">
            Not live: {notLive}
          </span>
        )}
      </div>
      {search.asOf !== undefined && (
        <div className={styles.past}>
          <AsOfBar
            value={search.asOf}
            onChange={(asOf) => change({ asOf })}
            subject={{ collections: [collection.name] }}
          />
        </div>
      )}
      {selected.size > 0 && (
        <div className={styles.selection} role="toolbar" aria-label="Selected rows">
          <strong>
            {selectionText(selected, rows.loaded(mostSelected), (row) => String(row[collection.key]), count)}
          </strong>
          {collection.mayUpdate && (
            <Button size="s" onClick={() => setDialog('edit')}>
              Change…
            </Button>
          )}
          {collection.mayDelete && (
            <Button size="s" onClick={() => setDialog('delete')}>
              Delete…
            </Button>
          )}
          <Button size="s" kind="ghost" onClick={() => setSelected(new Map())}>
            Select none
          </Button>
        </div>
      )}
      {error !== undefined && (
        <div className={styles.problem}>
          <Problem error={error} onRetry={() => rows.reload()} />
        </div>
      )}
      {isCounted && count === 0 && error === undefined ? (
        <Empty
          title={isNarrowed ? 'No row matches' : 'No rows yet'}
          actions={
            isNarrowed ? (
              <Button onClick={() => change({ filter: undefined, search: undefined })}>Show all rows</Button>
            ) : collection.mayCreate ? (
              <Link to="/data/$collection/new" params={{ collection: collection.name }} {...looks({ kind: 'primary' })}>
                Make the first one
              </Link>
            ) : undefined
          }
        />
      ) : (
        <RowGrid
          {...{ collection, catalog, columns, rows, begin, selected, search }}
          onSelect={setSelected}
          onSort={(sort) => change({ sort })}
          onDelete={() => selected.size > 0 && collection.mayDelete && setDialog('delete')}
        />
      )}
      {dialog === 'delete' && <DeleteRows {...bulk} />}
      {dialog === 'edit' && <EditRows {...bulk} />}
    </Page>
  )
}

function CountExactly({ rows }: { readonly rows: RowWindow }) {
  const [isBusy, setBusy] = useState(false)
  const count = async () => {
    setBusy(true)
    await rows.countExactly()
    setBusy(false)
  }
  return (
    <Button size="s" kind="ghost" isBusy={isBusy} onClick={() => void count()}>
      Count exactly
    </Button>
  )
}

/** Without the members that say nothing, so that the address stays short. */
const withoutNothing = (search: ListSearch): ListSearch =>
  Object.fromEntries(Object.entries(search).filter(([, value]) => value !== undefined && value !== ''))

function Search({
  value,
  onSearch,
}: {
  readonly value: string | undefined
  readonly onSearch: (text: string | undefined) => void
}) {
  const [text, setText] = useState(value ?? '')
  return (
    <search className={styles.search}>
      <form
        onSubmit={(event) => {
          event.preventDefault()
          onSearch(text.trim() === '' ? undefined : text.trim())
        }}
      >
        <Input
          size="s"
          type="search"
          data-filter
          aria-label="Search in all texts"
          placeholder="Search, then Enter"
          value={text}
          onChange={({ target }) => {
            setText(target.value)
            if (target.value === '') onSearch(undefined)
          }}
        />
      </form>
    </search>
  )
}

type FilterButtonProps = {
  readonly collection: Collection
  readonly search: ListSearch
  readonly onChange: (next: Partial<ListSearch>) => void
}

function FilterButton({ collection, search: { filter }, onChange }: FilterButtonProps) {
  const catalog = useCatalog()
  const [isOpen, setOpen] = useState(false)
  const conditions = filter === undefined ? 0 : countConditions(readFilter(filter, () => false))
  return (
    <Popover
      title="Filter"
      isOpen={isOpen}
      onOpenChange={setOpen}
      trigger={
        <Button size="s" aria-pressed={conditions > 0}>
          <FilterIcon aria-hidden="true" /> {conditions === 0 ? 'Filter' : `Filter (${conditions})`}
        </Button>
      }
    >
      <FilterBuilder
        collection={collection}
        catalog={catalog}
        filter={filter}
        onApply={(next) => {
          setOpen(false)
          onChange({ filter: next })
        }}
      />
    </Popover>
  )
}
