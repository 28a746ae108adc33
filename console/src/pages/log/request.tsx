import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { useState } from 'react'
import { useCollection } from '../../app/catalog.ts'
import { queryClient } from '../../app/client.ts'
import { useMe } from '../../app/session.ts'
import { Button } from '../../ui/button.tsx'
import { ConfirmDialog, Drawer } from '../../ui/dialog.tsx'
import { Checkbox } from '../../ui/field.tsx'
import { Loading, Note, Problem } from '../../ui/states.tsx'
import { Badge } from '../../ui/table.tsx'
import { notify } from '../../ui/toast.tsx'
import { timeText } from '../data/values.ts'
import styles from './log.module.css'
import { type Effects, type RequestTree, readEffects, readRequest, type UndoReport, undo } from './log.ts'

/** One request as a tree: what it changed, what that led to, and its way back. */
export function RequestDrawer({ id, onClose }: { readonly id: string; readonly onClose: () => void }) {
  const { isAdmin } = useMe()
  const { data, error } = useQuery({ queryKey: ['log', 'request', id], queryFn: () => readRequest(id) })
  const requestId = data?.requestId ?? undefined
  const effects = useQuery({
    queryKey: ['log', 'effects', requestId],
    queryFn: () => readEffects(requestId!),
    enabled: requestId !== undefined && isAdmin,
  })
  const [isUndoing, setUndoing] = useState(false)
  return (
    <Drawer
      isOpen
      onClose={onClose}
      title="Request"
      description={<code>{id}</code>}
      footer={
        <Button kind="danger" disabled={data === undefined} onClick={() => setUndoing(true)}>
          Undo…
        </Button>
      }
    >
      {error !== null && <Problem error={error} />}
      {error === null && data === undefined && <Loading />}
      {data !== undefined && (
        <div className={styles.tree}>
          {(data.undoneBy ?? []).length > 0 && <Note>This request was undone.</Note>}
          <Tree node={data} />
          {effects.data !== undefined && <Followed effects={effects.data} />}
        </div>
      )}
      {isUndoing && data !== undefined && <Undo node={data} onClose={() => setUndoing(false)} />}
    </Drawer>
  )
}

function Tree({ node }: { readonly node: RequestTree }) {
  return (
    <div className={styles.node}>
      <p>
        {node.at !== undefined && <time dateTime={node.at}>{timeText(node.at)}</time>}
        {node.cause != null && ` · by a ${node.cause.by}`}
        {node.agent != null && ` · ${node.agent.name}${node.agent.tool === undefined ? '' : `, ${node.agent.tool}`}`}
      </p>
      <ul>
        {node.eventList.map(({ id, ...event }) => (
          <li key={id}>
            <Change event={event} />
          </li>
        ))}
      </ul>
      {node.caused?.map((one) => (
        <Tree key={one.requestId ?? one.position} node={one} />
      ))}
    </div>
  )
}

/** One change: of which row, and all that it says, as far as the caller may read the log. */
function Change({ event }: { readonly event: Omit<RequestTree['eventList'][number], 'id'> }) {
  const { type, action, collection, item, changes } = event
  const known = useCollection(collection ?? '')
  const { before, after } = changes ?? {}
  const title = known && (after?.[known.titleField] ?? before?.[known.titleField])
  const what = type === undefined || type === 'data' ? [action] : [type, action]
  return (
    <details>
      <summary>
        {what.filter((part) => part !== undefined).join('.') || 'event'}{' '}
        {collection !== undefined && <code>{collection}</code>} {item != null && String(title ?? item)}
      </summary>
      {item != null && collection !== undefined && type === 'data' && (
        <p>
          <Link to="/data/$collection/$id" params={{ collection, id: item }}>
            Open the record
          </Link>
        </p>
      )}
      {changes !== undefined && <pre>{JSON.stringify(changes, null, 2)}</pre>}
    </details>
  )
}

function Followed({ effects: { mails, jobs, deliveries } }: { readonly effects: Effects }) {
  if (mails.length + jobs.length + deliveries.length === 0) return null
  return (
    <section className={styles.node} aria-label="What followed">
      <h2>What followed</h2>
      <ul>
        {jobs.map(({ id, queue, state, reason }) => (
          <li key={id}>
            Job of <code>{queue}</code> <Badge>{state}</Badge> {reason}
          </li>
        ))}
        {mails.map(({ id, email, template, status }) => (
          <li key={id}>
            Mail {template} to {email} <Badge>{status}</Badge>
          </li>
        ))}
        {deliveries.map(({ id, url, status, attempts }) => (
          <li key={id}>
            Webhook {url} <Badge>{status}</Badge> after {attempts}
          </li>
        ))}
      </ul>
    </section>
  )
}

/** Looks first; what others have changed since is left alone unless it is chosen. */
function Undo({ node, onClose }: { readonly node: RequestTree; readonly onClose: () => void }) {
  const what = node.requestId == null ? { position: node.position } : { requestId: node.requestId }
  const [isForced, setForced] = useState(false)
  const { data, error } = useQuery({
    queryKey: ['log', 'undo', what],
    queryFn: () => undo({ ...what, dryRun: true }),
    staleTime: 0,
  })
  const conflicts = data?.conflicts ?? []
  const force = conflicts.map(({ collection, id }) => ({ collection, id }))
  // With force it is another plan, which is looked at before it is done, too.
  const forced = useQuery({
    queryKey: ['log', 'undo', what, force],
    queryFn: () => undo({ ...what, force, dryRun: true }),
    enabled: isForced,
    staleTime: 0,
  })
  const look = isForced ? forced : { data, error }
  return (
    <ConfirmDialog
      isOpen
      onClose={onClose}
      title="Undo this request"
      action="Undo"
      isDangerous
      isDisabled={look.data === undefined || (conflicts.length > 0 && !isForced)}
      onConfirm={async () => {
        await undo({ ...what, ...(isForced && { force }), plan: look.data!.plan })
        await queryClient.invalidateQueries()
        notify('The request was undone')
      }}
    >
      {look.error !== null && <Problem error={look.error} />}
      {look.error === null && look.data === undefined && <Loading lines={3} />}
      {look.data !== undefined && <Plan report={look.data} />}
      {conflicts.length > 0 && (
        <Checkbox
          label="Overwrite what others have changed since"
          checked={isForced}
          onChange={({ target }) => setForced(target.checked)}
        />
      )}
    </ConfirmDialog>
  )
}

function Plan({ report: { counts, conflicts, notUndone } }: { readonly report: UndoReport }) {
  return (
    <div className={styles.plan}>
      <ul>
        {counts.map(({ collection, create, update, delete: removed }) => (
          <li key={collection}>
            <code>{collection}</code>: {create} brought back, {update} set back, {removed} deleted
          </li>
        ))}
      </ul>
      {conflicts.length > 0 && (
        <Note kind="warning">
          {conflicts.map(({ collection, id, reasons }) => (
            <p key={`${collection} ${id}`}>
              <code>{collection}</code> {id}:{' '}
              {reasons.map(({ reason, fields = [] }) => `${reason} ${fields.join(', ')}`.trim()).join('; ')}
            </p>
          ))}
        </Note>
      )}
      {notUndone.length > 0 && <p>{notUndone.length} facts, such as mails, stay as they are.</p>}
    </div>
  )
}
