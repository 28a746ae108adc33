import { useQuery } from '@tanstack/react-query'
import { DaybookError } from '../../../../clients/client.ts'
import { client } from '../../app/client.ts'
import { infoQuery } from '../../app/session.ts'
import { Button } from '../../ui/button.tsx'
import { Badge } from '../../ui/table.tsx'
import { List, type Listing, refreshLists } from './list.tsx'
import styles from './operations.module.css'
import type { SectionProps } from './operations.tsx'

type Finding = {
  readonly check: string
  readonly status: 'ok' | 'warning' | 'problem'
  readonly says: string
  readonly remedy?: string
}

const worstFirst = ['problem', 'warning', 'ok'] as const
const tones = { ok: 'good', warning: 'warn', problem: 'bad' } as const

const findings: Listing<Finding & { readonly key: string }> = {
  name: 'findings',
  title: 'Check',
  read: async () => {
    const { data } = await client.request<{ data: readonly Finding[] }>('/ops/doctor')
    const rows = data.map((finding, place) => ({ ...finding, key: String(place) }))
    return { rows: rows.sort((a, b) => worstFirst.indexOf(a.status) - worstFirst.indexOf(b.status)) }
  },
  narrow: ({ status }, { state }) => state === undefined || status === state,
  keyOf: ({ key }) => key,
  titleOf: ({ check }) => check,
  columns: [
    { title: 'State', cell: ({ status }) => <Badge tone={tones[status]}>{status}</Badge> },
    { title: 'Finding', cell: ({ says }) => says },
    { title: 'What to do', cell: ({ remedy }) => remedy },
  ],
  filters: [{ name: 'state', label: 'State', options: worstFirst }],
  empty: { title: 'Nothing of this kind was found' },
}

/** The findings of the doctor, and whether this process can work. */
export function Health(props: SectionProps) {
  return (
    <>
      <Readiness />
      <List
        {...props}
        listing={findings}
        tools={
          <Button size="s" onClick={() => void refreshLists()}>
            Examine again
          </Button>
        }
      />
    </>
  )
}

type Ready = { readonly status: string } & Readonly<Record<string, unknown>>

function Readiness() {
  const { data: info } = useQuery(infoQuery)
  const { data: ready } = useQuery({
    queryKey: ['operations', 'ready'],
    queryFn: readReadiness,
    refetchInterval: 10_000,
  })
  return (
    <div className={styles.badges}>
      {info !== undefined && <Badge>Version {info.version}</Badge>}
      {ready !== undefined && <Badge tone={ready.status === 'ready' ? 'good' : 'bad'}>{ready.status}</Badge>}
      {Object.entries(ready ?? {}).map(([part, state]) =>
        typeof state === 'object' && state !== null && 'ok' in state ? (
          <Badge key={part} tone={state.ok === null ? 'plain' : state.ok === true ? 'good' : 'bad'}>
            {part}
          </Badge>
        ) : null,
      )}
    </div>
  )
}

/** A process that is not ready says so with 503 and the same body. */
async function readReadiness(): Promise<Ready> {
  try {
    return await client.request<Ready>('/ready')
  } catch (error) {
    if (error instanceof DaybookError && error.status === 503 && isReady(error.body)) return error.body
    throw error
  }
}

const isReady = (body: unknown): body is Ready => typeof body === 'object' && body !== null && 'status' in body
