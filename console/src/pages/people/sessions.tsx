import { useQuery } from '@tanstack/react-query'
import { Laptop, Smartphone, Terminal } from 'lucide-react'
import { useState } from 'react'
import { client, queryClient } from '../../app/client.ts'
import { Button } from '../../ui/button.tsx'
import { Loading, Problem } from '../../ui/states.tsx'
import { Badge } from '../../ui/table.tsx'
import { notify, notifyError } from '../../ui/toast.tsx'
import { timeText } from '../data/values.ts'
import styles from './people.module.css'
import { Card } from './people-page.tsx'

type Session = {
  readonly id: string
  readonly type: string
  readonly ipAddress: string | null
  readonly userAgent: string | null
  readonly lastUsedAt: string | null
  readonly createdAt: string
  readonly current: boolean
  readonly client: { readonly name: string; readonly scopes: readonly string[] } | null
}

/** Where somebody is signed in: one's own sessions, or for administrators those of a user. */
export function Sessions({ userId }: { readonly userId?: string }) {
  const path = userId === undefined ? '/auth/sessions' : `/auth/admin/users/${userId}/sessions`
  const queryKey = ['people', 'sessions', userId ?? 'own']
  const [isBusy, setBusy] = useState(false)
  const { data, error, refetch } = useQuery({
    queryKey,
    queryFn: async () => (await client.request<{ sessions: readonly Session[] }>(path)).sessions,
  })
  const end = async (sessions: readonly Session[]) => {
    setBusy(true)
    try {
      if (userId !== undefined && sessions.length === data?.length) await client.request(path, { method: 'DELETE' })
      else for (const { id } of sessions) await client.request(`${path}/${id}`, { method: 'DELETE' })
      notify(sessions.length === 1 ? 'The session has ended' : `${sessions.length} sessions have ended`)
    } catch (failure) {
      notifyError(failure)
    } finally {
      setBusy(false)
      await queryClient.invalidateQueries({ queryKey })
    }
  }
  const others = data?.filter(({ current }) => !current) ?? []
  const actions = others.length > 1 && (
    <Button size="s" isBusy={isBusy} onClick={() => void end(others)}>
      {userId === undefined || others.length < (data?.length ?? 0) ? 'End all others' : 'End all'}
    </Button>
  )
  return (
    <Card title="Sessions and devices" actions={actions}>
      {error !== null && <Problem error={error} onRetry={() => void refetch()} />}
      {error === null && data === undefined && <Loading lines={3} label="Sessions are loading" />}
      {data?.length === 0 && <p>Signed in nowhere.</p>}
      <ul className={styles.list}>
        {data?.map((session) => (
          <li key={session.id} className={styles.item}>
            <Device session={session} />
            <Button
              size="s"
              isBusy={isBusy}
              aria-label={`${session.current ? 'Sign out here' : 'End'}: ${deviceOf(session)}`}
              onClick={() => void end([session])}
            >
              {session.current ? 'Sign out here' : 'End'}
            </Button>
          </li>
        ))}
      </ul>
    </Card>
  )
}

function Device({ session }: { readonly session: Session }) {
  const { client: program, userAgent, ipAddress, lastUsedAt, createdAt, current } = session
  const Icon = program !== null ? Terminal : /Mobile|Android|iPhone/.test(userAgent ?? '') ? Smartphone : Laptop
  return (
    <span>
      <Icon size={14} aria-hidden="true" /> {deviceOf(session)} {current && <Badge tone="good">this one</Badge>}
      <small>
        {[
          ipAddress,
          program === null ? undefined : `may ${program.scopes.join(', ')}`,
          `since ${timeText(createdAt)}`,
          lastUsedAt === null ? undefined : `last used ${timeText(lastUsedAt)}`,
        ]
          .filter(Boolean)
          .join(' · ')}
      </small>
    </span>
  )
}

const browsers = [
  ['Edg/', 'Edge'],
  ['OPR/', 'Opera'],
  ['Firefox/', 'Firefox'],
  ['Chrome/', 'Chrome'],
  ['Safari/', 'Safari'],
] as const
const systems = [
  ['iPhone', 'iPhone'],
  ['iPad', 'iPad'],
  ['Android', 'Android'],
  ['Windows', 'Windows'],
  ['Mac OS', 'macOS'],
  ['Linux', 'Linux'],
] as const

/** The name of a device for people; an unknown browser is shown as it named itself. */
function deviceOf({ client: program, userAgent, type }: Session): string {
  if (program !== null) return program.name
  if (userAgent === null || userAgent === '') return type === 'default' ? 'A program' : type
  const named = (list: readonly (readonly [string, string])[]) => list.find(([mark]) => userAgent.includes(mark))?.[1]
  const browser = named(browsers)
  return browser === undefined ? userAgent.slice(0, 60) : `${browser} on ${named(systems) ?? 'a device'}`
}
