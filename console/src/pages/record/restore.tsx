import { useQuery } from '@tanstack/react-query'
import type { Version } from '../../../../clients/items.ts'
import type { Catalog, Collection } from '../../app/catalog.ts'
import { client, queryClient } from '../../app/client.ts'
import { ConfirmDialog } from '../../ui/dialog.tsx'
import { Loading, Note, Problem } from '../../ui/states.tsx'
import { Table } from '../../ui/table.tsx'
import { momentOf } from '../data/moments.ts'
import type { Row } from '../data/query.ts'
import { sameValue, shortText, timeText } from '../data/values.ts'
import { told } from '../data/writes.ts'
import type { HistoryEntry } from './history.ts'
import { recordQuery } from './record.tsx'

/** The content to bring back: a version of the record, or one field of it. */
export type Wanted =
  | { readonly version: Version; readonly entry: HistoryEntry }
  | { readonly field: string; readonly value: unknown; readonly entry: HistoryEntry }

type RestoreProps = {
  readonly collection: Collection
  readonly catalog: Catalog
  readonly id: string
  readonly wanted: Wanted
  readonly onClose: () => void
  readonly onDone: () => void
}

/** Shows what would change, and brings it back. */
export function Restore({ collection, catalog, id, wanted, onClose, onDone }: RestoreProps) {
  const now = useQuery({ ...recordQuery(collection, catalog, id, undefined), retry: false })
  const then = useQuery(versionQuery(collection, id, wanted))
  const path = `/items/${encodeURIComponent(collection.name)}/${encodeURIComponent(id)}`
  const restore = async () => {
    const answer =
      'field' in wanted
        ? await client.send(path, {
            method: 'PATCH',
            body: { [wanted.field]: wanted.value },
            headers: now.data?.etag === undefined ? {} : { 'if-match': now.data.etag },
          })
        : await client.send(`${path}/restore`, { method: 'POST', body: wanted.version })
    told('Brought back', answer)
    await queryClient.invalidateQueries({ queryKey: ['record', collection.name, id] })
    onDone()
  }
  const isNew = now.data === undefined && now.error !== null
  const rows = differences(collection, now.data?.row ?? {}, then.data ?? {})
  return (
    <ConfirmDialog
      isOpen
      onClose={onClose}
      size="l"
      title={
        'field' in wanted ? `Bring ${wanted.field} back` : isNew ? 'Bring the record back' : 'Restore this version'
      }
      description={`As it was ${'field' in wanted || 'before' in wanted.version ? 'before' : 'after'} ${timeText(wanted.entry.createdAt)}.`}
      action={
        isNew
          ? 'Bring it back'
          : rows.length === 0
            ? 'Nothing to change'
            : `Change ${rows.length === 1 ? '1 field' : `${rows.length} fields`}`
      }
      isDisabled={then.data === undefined || (rows.length === 0 && !isNew)}
      onConfirm={restore}
    >
      {then.error !== null && <Problem error={then.error} />}
      {then.data === undefined && then.error === null && <Loading lines={3} />}
      {isNew && (
        <Note>
          It comes back with its key. Rows that were deleted with it are brought back with “The whole request”.
        </Note>
      )}
      {rows.length > 0 && (
        <Table
          label="What changes"
          rows={rows}
          keyOf={({ name }) => name}
          columns={[
            { title: 'Field', cell: ({ name }) => name },
            { title: 'Now', cell: ({ before }) => before },
            { title: 'Then', cell: ({ after }) => after },
          ]}
        />
      )}
    </ConfirmDialog>
  )
}

/** The values that are wanted: of a field from the event, of a version from reading the record as it was. */
const versionQuery = ({ name, key }: Collection, id: string, wanted: Wanted) => ({
  queryKey: ['version', name, id, wanted.entry.id, 'field' in wanted ? wanted.field : ''],
  queryFn: async ({ signal }: { readonly signal: AbortSignal }): Promise<Row> => {
    if ('field' in wanted) return { [wanted.field]: wanted.value }
    const { changes, createdAt } = wanted.entry
    // A deletion tells the whole row; any other event that of the moment after it.
    if ('before' in wanted.version)
      return Object.fromEntries(Object.entries(changes ?? {}).map(([field, { before }]) => [field, before]))
    return client.items(name).read(id, { fields: ['*', key], asOf: momentOf(createdAt), signal })
  },
})

const untouched = new Set(['createdAt', 'updatedAt', 'userCreated_Id', 'userUpdated_Id'])

function differences({ fields, key }: Collection, now: Row, then: Row) {
  return fields.flatMap((field) => {
    const { name } = field
    if (name === key || untouched.has(name) || !(name in then) || sameValue(now[name], then[name])) return []
    return [{ name, before: shortText(field, now[name]), after: shortText(field, then[name]) }]
  })
}
