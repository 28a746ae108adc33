import { useQuery } from '@tanstack/react-query'
import { ConfirmDialog } from '../../ui/dialog.tsx'
import { Loading, Problem } from '../../ui/states.tsx'
import { notify } from '../../ui/toast.tsx'
import type { Action } from './fields.ts'
import styles from './permissions.module.css'
import { type Draft, type Impact, impactOf, type Permission, type Role, refreshRules, store } from './rules.ts'

type AskProps = {
  readonly role: Role
  readonly collection: string
  readonly action: Action
  readonly before: Permission | undefined
  /** Null for its removal. */
  readonly draft: Draft | null
  /** The other changes, in words. */
  readonly uncounted: readonly string[]
  readonly onClose: () => void
  readonly onSaved: () => void
}

/** Shows what storing a permission would change before it does. */
export function AskPermission({ role, collection, action, before, draft, uncounted, onClose, onSaved }: AskProps) {
  const { data, error } = useQuery({
    queryKey: ['permissions', 'impact', role.id, collection, action, draft],
    queryFn: () => impactOf(role.id, collection, action, draft),
    staleTime: 0,
    gcTime: 0,
  })
  return (
    <ConfirmDialog
      isOpen
      onClose={onClose}
      title="What this changes"
      action={draft === null && before !== undefined ? 'Take it away' : 'Save'}
      isDangerous={(data?.users.losing ?? 0) > 0}
      isDisabled={data === undefined}
      onConfirm={async () => {
        await store(role.id, collection, action, { before, after: draft })
        await refreshRules()
        onSaved()
        notify(`Saved what ${role.name} may ${action} of ${collection}`)
      }}
    >
      {error !== null && <Problem error={error} />}
      {error === null && data === undefined && <Loading lines={3} label="Counting rows" />}
      {data !== undefined && <Changes impact={data} uncounted={uncounted} />}
    </ConfirmDialog>
  )
}

/** The items that one permission would open or close, and for how many users. */
export function Changes({ impact, uncounted }: { readonly impact: Impact; readonly uncounted: readonly string[] }) {
  const { users, complete, kind } = impact
  const lines = [...linesOf(impact), ...uncounted]
  return (
    <div className={styles.impact} data-impact>
      {lines.length === 0 && (
        <p>{kind === 'unchanged' ? 'Nothing changes.' : 'Nobody gains or loses rows or fields.'}</p>
      )}
      <ul>
        {lines.map((line) => (
          <li key={line}>{line}</li>
        ))}
      </ul>
      <p>
        {users.total.toLocaleString()} {users.total === 1 ? 'user has' : 'users have'} the role
        {complete ? '.' : `; ${users.looked.toLocaleString()} of them were looked at.`}
      </p>
    </div>
  )
}

function linesOf({ users, rows, fields, action, complete }: Impact): readonly string[] {
  const about = rows?.exact === false ? 'about ' : ''
  const change = (who: number, verb: 'lose' | 'gain', count: number) =>
    count === 0
      ? []
      : [`${who.toLocaleString()} ${who === 1 ? `user ${verb}s` : `users ${verb}`} ${about}${rowsIn(count)}`]
  return [
    ...(rows === null
      ? []
      : [...change(users.losing, 'lose', rows.lost), ...change(users.gaining, 'gain', rows.gained)]),
    ...(action === 'create' ? ['Items that are yet to be created cannot be counted.'] : []),
    ...(rows === null && action !== 'create' && !complete ? ['There was no time to count the rows.'] : []),
    ...(fields.lost.length > 0 ? [`Fields that are no longer shown or written: ${fields.lost.join(', ')}`] : []),
    ...(fields.gained.length > 0 ? [`Fields that are opened: ${fields.gained.join(', ')}`] : []),
  ]
}

const rowsIn = (count: number): string => (count === 1 ? '1 row' : `${count.toLocaleString()} rows`)
