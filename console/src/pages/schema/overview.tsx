import { useQuery } from '@tanstack/react-query'
import { Link, useNavigate, useSearch } from '@tanstack/react-router'
import { Download, Network, Plus, Table2, Upload } from 'lucide-react'
import { Suspense, useState } from 'react'
import { client } from '../../app/client.ts'
import { lazyComponent } from '../../app/lazy.ts'
import { useMe } from '../../app/session.ts'
import { Page } from '../../shell/page.tsx'
import { Button, looks } from '../../ui/button.tsx'
import { Checkbox, Input } from '../../ui/field.tsx'
import { Empty, Loading, Problem } from '../../ui/states.tsx'
import { Badge, Table } from '../../ui/table.tsx'
import { notifyError } from '../../ui/toast.tsx'
import { definitionsQuery, download } from './changes.ts'
import { columnsOf, type Definition, isSystem, relationsOf } from './definitions.ts'
import { Diagram } from './diagram.tsx'
import { ForAdministrators } from './for-administrators.tsx'
import styles from './schema.module.css'

const NewCollection = lazyComponent(() => import('./new-collection.tsx'), 'NewCollection')
const Import = lazyComponent(() => import('./import.tsx'), 'Import')

/** All collections with what they are made of, as a list or as a diagram. */
export function Overview() {
  return useMe().isAdmin ? <Collections /> : <ForAdministrators />
}

function Collections() {
  const search = useSearch({ from: '/shell/schema' })
  const navigate = useNavigate({ from: '/schema' })
  const { data, error, refetch } = useQuery(definitionsQuery)
  const [wanted, setWanted] = useState('')
  if (search.open === 'new')
    return (
      <Suspense fallback={<Loading />}>
        <NewCollection />
      </Suspense>
    )
  const isDiagram = search.view === 'diagram'
  const shown = (data ?? [])
    .filter(({ collectionName }) => search.system === true || !isSystem(collectionName))
    .filter(({ collectionName, schema }) =>
      `${collectionName} ${schema.name ?? ''}`.toLowerCase().includes(wanted.trim().toLowerCase()),
    )
  return (
    <Page
      title="Schema"
      description="Collections, their fields and relations. Every change is shown before it is made."
      actions={<Actions />}
    >
      <div className={styles.tools}>
        <Input
          type="search"
          data-filter
          aria-label="Find a collection"
          placeholder="Find a collection"
          value={wanted}
          onChange={({ target }) => setWanted(target.value)}
        />
        <Checkbox
          label="Collections of the system"
          checked={search.system === true}
          onChange={({ target }) =>
            navigate({ search: (before) => ({ ...before, system: target.checked || undefined }), replace: true })
          }
        />
        <Link
          to="/schema"
          search={{ system: search.system, ...(!isDiagram && { view: 'diagram' }) }}
          {...looks({ size: 's' })}
        >
          {isDiagram ? <Table2 aria-hidden="true" /> : <Network aria-hidden="true" />}
          {isDiagram ? 'As a list' : 'As a diagram'}
        </Link>
      </div>
      {error !== null && <Problem error={error} onRetry={() => void refetch()} />}
      {error === null && data === undefined && <Loading label="Definitions are loading" />}
      {data !== undefined && shown.length === 0 && <Nothing isFiltered={wanted.trim() !== ''} />}
      {shown.length > 0 && (isDiagram ? <Diagram all={data!} shown={shown} /> : <List definitions={shown} />)}
      {search.open === 'import' && (
        <Suspense>
          <Import onClose={() => void navigate({ search: (before) => ({ ...before, open: undefined }) })} />
        </Suspense>
      )}
    </Page>
  )
}

function Nothing({ isFiltered }: { readonly isFiltered: boolean }) {
  if (isFiltered) return <Empty title="No such collection" />
  return (
    <Empty
      icon={<Table2 />}
      title="No collections yet"
      actions={
        <Link to="/schema" search={{ open: 'new' }} {...looks({ kind: 'primary' })}>
          Make the first one
        </Link>
      }
    >
      <p>A collection is a table with an interface of its own: make the first one, or import definitions.</p>
    </Empty>
  )
}

function Actions() {
  const [isBusy, setBusy] = useState(false)
  const save = async () => {
    setBusy(true)
    try {
      const file = await client.request<object>('/schemas-export')
      download('schemas.json', JSON.stringify(file, null, 2), 'application/json')
    } catch (error) {
      notifyError(error)
    } finally {
      setBusy(false)
    }
  }
  return (
    <>
      <Button isBusy={isBusy} onClick={() => void save()}>
        <Download aria-hidden="true" /> Export
      </Button>
      <Link to="/schema" search={(before) => ({ ...before, open: 'import' })} {...looks()}>
        <Upload aria-hidden="true" /> Import…
      </Link>
      <Link to="/schema" search={{ open: 'new' }} {...looks({ kind: 'primary' })}>
        <Plus aria-hidden="true" /> New collection
      </Link>
    </>
  )
}

function List({ definitions }: { readonly definitions: readonly Definition[] }) {
  return (
    <Table
      label="Collections"
      rows={definitions}
      keyOf={({ collectionName }) => collectionName}
      columns={[
        {
          title: 'Collection',
          cell: ({ collectionName, schema }) => (
            <>
              <Link to="/schema/$collection" params={{ collection: collectionName }}>
                {schema.name ?? collectionName}
              </Link>{' '}
              {schema.name !== undefined && schema.name !== collectionName && <code>{collectionName}</code>}{' '}
              {schema.isJunction === true && <Badge>junction</Badge>}
            </>
          ),
        },
        { title: 'Description', cell: ({ schema }) => schema.description ?? '' },
        { title: 'Fields', isNumber: true, cell: ({ schema }) => columnsOf(schema).length },
        {
          title: 'Leads to',
          cell: ({ schema }) =>
            [...new Set(relationsOf(schema).map(({ entry }) => String(entry.target ?? '')))]
              .filter((target) => target !== '')
              .join(', '),
        },
      ]}
    />
  )
}
