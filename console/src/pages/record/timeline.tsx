import { useInfiniteQuery, useQuery } from '@tanstack/react-query'
import { Eye, GitBranch, RotateCcw } from 'lucide-react'
import { useEffect, useState } from 'react'
import type { Catalog, Collection } from '../../app/catalog.ts'
import { client, queryClient } from '../../app/client.ts'
import { useMe } from '../../app/session.ts'
import { Button } from '../../ui/button.tsx'
import { Empty, Loading, Problem } from '../../ui/states.tsx'
import { Badge } from '../../ui/table.tsx'
import { isMomentOf, momentOf } from '../data/moments.ts'
import { timeText } from '../data/values.ts'
import { Consequences } from './consequences.tsx'
import { Diffs } from './diffs.tsx'
import { type HistoryEntry, historyQuery, peopleQuery } from './history.ts'
import { Restore, type Wanted } from './restore.tsx'
import styles from './timeline.module.css'

type TimelineProps = {
  readonly collection: Collection
  readonly catalog: Catalog
  readonly id: string
  readonly asOf: string | undefined
  /** The record is not there now. */
  readonly isGone: boolean
  readonly onShow: (moment: string) => void
  readonly onRestored: () => void
}

/** Everything that has happened to a record, the newest first: who, when, by what, and what became of each field. */
export function Timeline({ collection, catalog, id, asOf, isGone, onShow, onRestored }: TimelineProps) {
  const { data, error, refetch, hasNextPage, fetchNextPage, isFetchingNextPage } = useInfiniteQuery(
    historyQuery(collection.name, id),
  )
  const [wanted, setWanted] = useState<Wanted>()
  useLive(collection.name, id, collection.key)
  const entries = data?.pages.flatMap((page) => page.data) ?? []
  const ids = [...new Set(entries.flatMap(({ userId }) => userId ?? []))].sort()
  const { data: people } = useQuery(peopleQuery(ids))
  return (
    <section className={styles.timeline} data-timeline aria-label="Timeline">
      <h2>Timeline</h2>
      {error !== null && <Problem error={error} onRetry={() => void refetch()} />}
      {data === undefined && error === null && <Loading lines={4} />}
      {data !== undefined && entries.length === 0 && (
        <Empty title="Nothing in the log">The log begins later, or your role sees none of it.</Empty>
      )}
      <ol className={styles.list}>
        {entries.map((entry) => (
          <Entry
            key={entry.id}
            {...{ entry, collection, catalog, isGone }}
            isShown={isMomentOf(asOf, entry.createdAt)}
            who={people?.get(entry.userId ?? '')}
            onShow={onShow}
            onWant={setWanted}
          />
        ))}
      </ol>
      {hasNextPage && (
        <Button size="s" isBusy={isFetchingNextPage} onClick={() => void fetchNextPage()}>
          Older
        </Button>
      )}
      {wanted !== undefined && (
        <Restore {...{ collection, catalog, id, wanted }} onClose={() => setWanted(undefined)} onDone={onRestored} />
      )}
    </section>
  )
}

/** New events come by themselves. */
function useLive(collection: string, id: string, key: string): void {
  useEffect(() => {
    const look = () => {
      void queryClient.invalidateQueries({ queryKey: ['history', collection, id] })
      void queryClient.invalidateQueries({ queryKey: ['record', collection, id] })
    }
    const handle = client.realtime.subscribe(collection, {
      filter: { [key]: id },
      fields: [key],
      onChange: look,
      onRemove: look,
      onResync: look,
      // The client connects again; what was read stays.
      onError: () => undefined,
    })
    return () => handle.unsubscribe()
  }, [collection, id, key])
}

type EntryProps = {
  readonly entry: HistoryEntry
  readonly collection: Collection
  readonly catalog: Catalog
  readonly who: string | undefined
  readonly isShown: boolean
  readonly isGone: boolean
  readonly onShow: (moment: string) => void
  readonly onWant: (wanted: Wanted) => void
}

const verbs: Readonly<Record<string, string>> = {
  create: 'Created',
  update: 'Changed',
  delete: 'Deleted',
  restore: 'Restored',
}

function Entry({ entry, collection, catalog, who, isShown, isGone, onShow, onWant }: EntryProps) {
  const [isOpen, setOpen] = useState(false)
  const me = useMe()
  const { action, createdAt, userId, requestId, agent, cause, erased } = entry
  const person = who ?? (userId === null ? undefined : `user ${userId.slice(0, 8)}`)
  const isDeletion = action === 'delete'
  return (
    <li className={styles.entry} data-action={action} data-shown={isShown}>
      <div className={styles.line}>
        <strong>{verbs[action] ?? action}</strong>
        <span className={styles.by}>
          {person !== undefined && <span>by {person}</span>}
          {agent !== null && (
            <Badge tone="info">{agent.tool === undefined ? agent.name : `${agent.name}, ${agent.tool}`}</Badge>
          )}
          {cause !== null && <Badge tone="warn">by a {cause.by}</Badge>}
          {requestId === null && userId === null && <Badge>SQL or a job</Badge>}
        </span>
        <time dateTime={createdAt} title={createdAt}>
          {timeText(createdAt)}
        </time>
      </div>
      {erased ? (
        <p>What it said was erased.</p>
      ) : (
        <Diffs {...{ entry, collection }} onWant={isGone || !collection.mayUpdate ? undefined : onWant} />
      )}
      <div className={styles.actions}>
        {!isDeletion && (
          <Button size="s" kind="ghost" onClick={() => onShow(momentOf(createdAt))} aria-pressed={isShown}>
            <Eye aria-hidden="true" /> As of here
          </Button>
        )}
        {!erased && (isDeletion ? collection.mayCreate || collection.mayUpdate : collection.mayUpdate) && (
          <Button
            size="s"
            kind="ghost"
            onClick={() =>
              onWant(isDeletion ? { version: { before: entry.id }, entry } : { version: { event: entry.id }, entry })
            }
          >
            <RotateCcw aria-hidden="true" /> {isDeletion ? 'Bring it back' : 'Restore this version'}
          </Button>
        )}
        {requestId !== null && (me.isAdmin || me.permissions.some((one) => one.collection === 'svc_AuditLog')) && (
          <Button size="s" kind="ghost" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
            <GitBranch aria-hidden="true" /> The whole request
          </Button>
        )}
      </div>
      {isOpen && requestId !== null && <Consequences {...{ requestId, catalog }} event={entry.id} />}
    </li>
  )
}
