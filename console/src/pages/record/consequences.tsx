import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { useState } from 'react'
import type { Catalog } from '../../app/catalog.ts'
import { client, queryClient } from '../../app/client.ts'
import { Button } from '../../ui/button.tsx'
import { ConfirmDialog } from '../../ui/dialog.tsx'
import { Loading, Note, Problem } from '../../ui/states.tsx'
import { notify } from '../../ui/toast.tsx'
import { type LoggedRequest, type RequestEvent, requestQuery } from './history.ts'
import styles from './timeline.module.css'

type ConsequencesProps = { readonly requestId: string; readonly catalog: Catalog; readonly event: string }

/** The other effects of a request: cascades, jobs, mails. It can be undone as a whole. */
export function Consequences({ requestId, catalog, event }: ConsequencesProps) {
  const { data, error, refetch } = useQuery(requestQuery(requestId))
  const [isUndoing, setUndoing] = useState(false)
  if (error !== null) return <Problem error={error} onRetry={() => void refetch()} />
  if (data === undefined) return <Loading lines={2} label="The request is loading" />
  const others = (data.eventList ?? []).filter(({ id }) => id !== event)
  return (
    <div className={styles.caused}>
      <span>
        Request <code>{requestId}</code>
      </span>
      {others.length === 0 ? (
        <span>It did nothing else.</span>
      ) : (
        <Events title="In the same request" events={others} catalog={catalog} />
      )}
      {(data.caused ?? []).map((one) => (
        <Caused key={one.requestId ?? one.position} request={one} />
      ))}
      {(data.undoneBy ?? []).length > 0 ? (
        <span>It has been undone.</span>
      ) : (
        <span>
          <Button size="s" onClick={() => setUndoing(true)}>
            Undo the whole request…
          </Button>
        </span>
      )}
      {isUndoing && <Undo requestId={requestId} onClose={() => setUndoing(false)} />}
    </div>
  )
}

function Events({
  title,
  events,
  catalog,
}: {
  readonly title: string
  readonly events: readonly RequestEvent[]
  readonly catalog: Catalog
}) {
  const groups = Map.groupBy(events, ({ collection, type, action }) =>
    type === 'log' || collection != null
      ? told([action, catalog.get(collection ?? '')?.label ?? collection ?? type], ' · ')
      : told([type, action], '.'),
  )
  return (
    <div>
      {title}
      <ul>
        {[...groups].map(([name, members]) => (
          <li key={name}>
            {name} ({members.length})
            {members.slice(0, 5).map(({ id, collection, item }) =>
              collection == null || item == null ? null : (
                <span key={id}>
                  {' '}
                  <Link to="/data/$collection/$id" params={{ collection, id: item }}>
                    {item.slice(0, 8)}
                  </Link>
                </span>
              ),
            )}
          </li>
        ))}
      </ul>
    </div>
  )
}

/** The parts that the caller may read. */
const told = (parts: readonly (string | undefined)[], between: string): string =>
  parts.filter((part) => part !== undefined).join(between) || 'events'

function Caused({ request }: { readonly request: LoggedRequest }) {
  return (
    <div>
      {`By a ${request.cause?.by ?? 'job'}, afterwards`}
      <ul>
        {(request.counts ?? []).map(({ collection, action, events }) => (
          <li key={`${collection} ${action}`}>
            {told([action, collection], ' · ')} ({events})
          </li>
        ))}
        {(request.caused ?? []).map((one) => (
          <li key={one.requestId ?? one.position}>
            <Caused request={one} />
          </li>
        ))}
      </ul>
    </div>
  )
}

type UndoPlan = {
  readonly plan: string
  readonly counts: readonly {
    readonly collection: string
    readonly create: number
    readonly update: number
    readonly delete: number
    readonly conflicts: number
  }[]
  readonly conflicts: readonly {
    readonly collection: string
    readonly id: string
    readonly reasons: readonly { readonly reason: string; readonly fields?: readonly string[] }[]
  }[]
  readonly notUndone: readonly { readonly event: string }[]
}

/** A preview of the undo, before it does exactly that. */
function Undo({ requestId, onClose }: { readonly requestId: string; readonly onClose: () => void }) {
  const { data, error } = useQuery({
    queryKey: ['undo', requestId],
    queryFn: async () => (await client.undo({ requestId, dryRun: true })) as unknown as UndoPlan,
    staleTime: 0,
    gcTime: 0,
  })
  const [isForced, setForced] = useState(false)
  const undo = async () => {
    await client.undo({
      requestId,
      ...(data !== undefined && { plan: data.plan }),
      ...(isForced &&
        data !== undefined && { force: data.conflicts.map(({ collection, id }) => ({ collection, id })) }),
    })
    notify('Undone')
    await queryClient.invalidateQueries()
  }
  return (
    <ConfirmDialog
      isOpen
      onClose={onClose}
      title="Undo the whole request"
      action="Undo it"
      isDisabled={data === undefined || (data.conflicts.length > 0 && !isForced)}
      onConfirm={undo}
    >
      {error !== null && <Problem error={error} />}
      {data === undefined && error === null && <Loading lines={3} />}
      {data?.counts.map(({ collection, create, update, delete: gone }) => (
        <p key={collection}>
          <strong>{collection}</strong>: {create} brought back, {update} changed back, {gone} deleted
        </p>
      ))}
      {data !== undefined && data.notUndone.length > 0 && (
        <p>{data.notUndone.length} facts stay, such as mails that were sent.</p>
      )}
      {data !== undefined && data.conflicts.length > 0 && (
        <Note kind="warning">
          Others have changed this since:
          <ul>
            {data.conflicts.map(({ collection, id, reasons }) => (
              <li key={`${collection} ${id}`}>
                {collection} {id}:{' '}
                {reasons.map(({ reason, fields }) => [reason, ...(fields ?? [])].join(' ')).join('; ')}
              </li>
            ))}
          </ul>
          <label>
            <input type="checkbox" checked={isForced} onChange={({ target }) => setForced(target.checked)} /> Undo it
            all the same
          </label>
        </Note>
      )}
    </ConfirmDialog>
  )
}
