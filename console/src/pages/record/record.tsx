import { useQuery } from '@tanstack/react-query'
import { Link, useNavigate, useParams, useSearch } from '@tanstack/react-router'
import { RotateCcw, ShieldQuestion, Trash2 } from 'lucide-react'
import { useState } from 'react'
import { DaybookError } from '../../../../clients/client.ts'
import { type Catalog, type Collection, useCatalog } from '../../app/catalog.ts'
import { client, queryClient } from '../../app/client.ts'
import { useMe } from '../../app/session.ts'
import { Page } from '../../shell/page.tsx'
import { NoCollection } from '../../shell/route-problem.tsx'
import { Button, IconButton, looks } from '../../ui/button.tsx'
import { Empty, Loading, Problem } from '../../ui/states.tsx'
import { notify, notifyError } from '../../ui/toast.tsx'
import { AsOfBar, AsOfButton } from '../data/as-of.tsx'
import { DeleteRows } from '../data/bulk.tsx'
import { fieldsOfRecord, type Row } from '../data/query.ts'
import { createRow } from '../data/writes.ts'
import { RecordForm } from './form.tsx'
import styles from './record.module.css'
import { Related } from './related.tsx'
import { Timeline } from './timeline.tsx'

/** One record: its fields, what it is related to, and everything that has happened to it. */
export function RecordPage() {
  const { collection: name, id } = useParams({ from: '/shell/data/$collection/$id' })
  const catalog = useCatalog()
  const collection = catalog.get(name)
  if (collection === undefined) return <NoCollection name={name} />
  return <Record key={`${name}/${id}`} {...{ catalog, collection, id }} />
}

/** A record with the titles of what it refers to, and its version. */
export const recordQuery = (collection: Collection, catalog: Catalog, id: string, asOf: string | undefined) => ({
  queryKey: ['record', collection.name, id, asOf ?? 'now'],
  queryFn: async ({ signal }: { readonly signal: AbortSignal }) => {
    const query = { fields: fieldsOfRecord(collection, catalog).join(','), asOf }
    const path = `/items/${encodeURIComponent(collection.name)}/${encodeURIComponent(id)}`
    const { body, headers } = await client.send<{ data: Row }>(path, { query, signal })
    return { row: body.data, etag: headers.get('etag') ?? undefined }
  },
})

/** The server does not tell what is gone from what may not be seen. */
const isNotHere = (error: unknown): boolean =>
  error instanceof DaybookError && (error.status === 404 || error.status === 403)

type RecordProps = { readonly catalog: Catalog; readonly collection: Collection; readonly id: string }

function Record({ catalog, collection, id }: RecordProps) {
  const { asOf } = useSearch({ from: '/shell/data/$collection/$id' })
  const { isAdmin } = useMe()
  const navigate = useNavigate()
  const [isDeleting, setDeleting] = useState(false)
  const { data, error, refetch } = useQuery(recordQuery(collection, catalog, id, asOf))
  const show = (moment: string | undefined) =>
    void navigate({
      to: '/data/$collection/$id',
      params: { collection: collection.name, id },
      search: moment === undefined ? {} : { asOf: moment },
    })
  const isGone = isNotHere(error)
  const title = String(data?.row[collection.titleField] ?? id)
  return (
    <Page
      title={title}
      crumbs={
        <>
          <Link to="/data">Data</Link> /{' '}
          <Link to="/data/$collection" params={{ collection: collection.name }}>
            {collection.label}
          </Link>
        </>
      }
      actions={
        <>
          {isAdmin && asOf === undefined && (
            <Link to="/permissions/explain" search={{ collection: collection.name, id }} {...looks({ size: 's' })}>
              <ShieldQuestion aria-hidden="true" /> Who can see this
            </Link>
          )}
          <AsOfButton value={asOf} onChange={show} />
          {asOf === undefined && data !== undefined && collection.mayDelete && (
            <IconButton label="Delete" onClick={() => setDeleting(true)}>
              <Trash2 />
            </IconButton>
          )}
        </>
      }
    >
      {asOf !== undefined && (
        <div className={styles.past}>
          <AsOfBar value={asOf} onChange={show} subject={{ collections: [collection.name], item: id }}>
            {collection.mayUpdate && <BringBack {...{ collection, id, asOf }} onNow={() => show(undefined)} />}
          </AsOfBar>
        </div>
      )}
      <div className={styles.columns}>
        <div className={styles.form}>
          {isGone && (
            <Empty title={asOf === undefined ? 'This record is not here' : 'It was not there at that moment'}>
              <p>
                It may have been deleted, or your role may not see it. Its timeline shows what has happened, and brings
                it back.
              </p>
            </Empty>
          )}
          {error !== null && !isGone && <Problem error={error} onRetry={() => void refetch()} />}
          {data === undefined && error === null && <Loading />}
          {data !== undefined && (
            <>
              <RecordForm
                key={asOf ?? 'now'}
                {...{ catalog, collection, row: data.row, etag: data.etag, isFixed: asOf !== undefined }}
                onSaved={async () => (await refetch()).data}
              />
              <Related {...{ catalog, collection, row: data.row, asOf }} />
            </>
          )}
        </div>
        <Timeline {...{ collection, catalog, id, asOf, isGone }} onShow={show} onRestored={() => show(undefined)} />
      </div>
      {isDeleting && data !== undefined && (
        <DeleteRows
          {...{ collection, catalog, rows: [data.row] }}
          onClose={() => setDeleting(false)}
          onDone={() =>
            void navigate({ to: '/data/$collection', params: { collection: collection.name }, ignoreBlocker: true })
          }
        />
      )}
    </Page>
  )
}

type BringBackProps = {
  readonly collection: Collection
  readonly id: string
  readonly asOf: string
  readonly onNow: () => void
}

/** Brings the record back as it was at this moment, as a whole. */
function BringBack({ collection, id, asOf, onNow }: BringBackProps) {
  const [isBusy, setBusy] = useState(false)
  const restore = async () => {
    setBusy(true)
    try {
      await client.items(collection.name).restore(id, { asOf })
      notify('Brought back as it was')
      onNow()
    } catch (error) {
      notifyError(error)
    } finally {
      setBusy(false)
    }
  }
  return (
    <Button size="s" isBusy={isBusy} onClick={() => void restore()}>
      <RotateCcw aria-hidden="true" /> Bring this version back
    </Button>
  )
}

/** Makes a record. */
export function NewRecord() {
  const { collection: name } = useParams({ from: '/shell/data/$collection/new' })
  const navigate = useNavigate()
  const catalog = useCatalog()
  const collection = catalog.get(name)
  if (collection === undefined) return <NoCollection name={name} />
  return (
    <Page
      title={`New in ${collection.label}`}
      crumbs={
        <>
          <Link to="/data">Data</Link> /{' '}
          <Link to="/data/$collection" params={{ collection: name }}>
            {collection.label}
          </Link>
        </>
      }
      actions={
        <Link to="/data/$collection" params={{ collection: name }} {...looks({ kind: 'ghost' })}>
          Cancel
        </Link>
      }
    >
      <div className={styles.columns}>
        <RecordForm
          {...{ catalog, collection }}
          onCreate={async (row) => {
            const id = await createRow(name, row)
            // A role may create rows that it may not read; the page of the record shows any other fault.
            const isUnseen = await queryClient
              .fetchQuery(recordQuery(collection, catalog, id, undefined))
              .then(() => false, isNotHere)
            if (isUnseen) await navigate({ to: '/data/$collection', params: { collection: name }, ignoreBlocker: true })
            else await navigate({ to: '/data/$collection/$id', params: { collection: name, id }, ignoreBlocker: true })
          }}
        />
      </div>
    </Page>
  )
}
