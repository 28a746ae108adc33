import { useQuery } from '@tanstack/react-query'
import { client } from '../../app/client.ts'
import { Problem } from '../../ui/states.tsx'
import { Badge, Table } from '../../ui/table.tsx'
import { Facts, List, type Listing, moment, span } from './list.tsx'
import styles from './operations.module.css'
import type { SectionProps } from './operations.tsx'

type Consumer = {
  readonly name: string
  readonly state: string
  readonly reason: string | null
  readonly failedPosition: string | null
  readonly held: boolean
  readonly lagSeconds: number
  readonly setAside: number
  readonly advancedAt: string
}

type SetAside = {
  readonly consumer: string
  readonly position: string
  readonly entity: string | null
  readonly action: string | null
  readonly reason: string
  readonly attempts: number
  readonly failedAt: string
}

const read = () => client.request<{ data: readonly Consumer[]; setAside: readonly SetAside[] }>('/ops/consumers')

const act =
  (deed: string, body: object = {}) =>
  async ({ name }: Consumer) =>
    (
      await client.request<{ message: string }>(`/ops/consumers/${encodeURIComponent(name)}/${deed}`, {
        method: 'POST',
        body,
      })
    ).message

const tones = { running: 'good', halted: 'bad', stopped: 'bad' } as const

function State({ of: { state, held } }: { readonly of: Consumer }) {
  if (state === 'running' && !held) return <Badge tone="warn">nobody works for it</Badge>
  return <Badge tone={tones[state as keyof typeof tones] ?? 'plain'}>{state}</Badge>
}

const consumers: Listing<Consumer> = {
  name: 'consumers',
  title: 'Name',
  isLive: true,
  read: async () => ({ rows: (await read()).data }),
  narrow: (one, { state }) => state === undefined || one.state === state,
  keyOf: ({ name }) => name,
  titleOf: ({ name }) => name,
  columns: [
    { title: 'State', cell: (consumer) => <State of={consumer} /> },
    { title: 'Why', cell: ({ reason }) => reason },
    { title: 'Behind', isNumber: true, cell: ({ lagSeconds }) => span(lagSeconds) },
    { title: 'Set aside', isNumber: true, cell: ({ setAside }) => setAside },
  ],
  filters: [{ name: 'state', label: 'State', options: ['running', 'paused', 'halted', 'stopped'] }],
  actions: [
    {
      label: 'Skip the event',
      isFor: ({ state, failedPosition }) => state === 'halted' && failedPosition !== null,
      question: () => 'The event that it halts at is set aside, and it goes on after it.',
      run: act('skip'),
    },
    { label: 'Try again', isFor: ({ setAside }) => setAside > 0, run: act('retry') },
    {
      label: 'Forget what was set aside',
      isFor: ({ setAside }) => setAside > 0,
      isDangerous: true,
      question: ({ setAside }) =>
        setAside === 1 ? '1 event is never handled.' : `${setAside} events are never handled.`,
      run: act('forget'),
    },
    {
      label: 'Begin anew',
      isDangerous: true,
      question: () => 'It handles everything that the log has once more.',
      run: act('reset', { to: 'beginning' }),
    },
    {
      label: 'Go on from now',
      isDangerous: true,
      question: () => 'It never handles what has happened until now.',
      run: act('reset', { to: 'now' }),
    },
  ],
  detail: (consumer) => (
    <>
      <Facts
        of={[
          ['State', <State key="state" of={consumer} />],
          ['Why', consumer.reason],
          ['Halts at', consumer.failedPosition],
          ['Behind', span(consumer.lagSeconds)],
          ['Advanced', moment(consumer.advancedAt)],
        ]}
      />
      <Aside of={consumer.name} />
    </>
  ),
  empty: { title: 'Nobody follows the log', text: 'Workers make their consumers known when they start.' },
}

function Aside({ of }: { readonly of: string }) {
  const { data, error } = useQuery({ queryKey: ['operations', 'set aside'], queryFn: read })
  if (error !== null) return <Problem error={error} />
  const rows = (data?.setAside ?? []).filter(({ consumer }) => consumer === of)
  if (rows.length === 0) return null
  return (
    <div className={styles.stack}>
      <Table
        label="Events that were set aside"
        rows={rows}
        keyOf={({ position }) => position}
        columns={[
          { title: 'Event', cell: ({ action, entity, position }) => `${action ?? ''} ${entity ?? ''} ${position}` },
          { title: 'Why', cell: ({ reason }) => reason },
          { title: 'Attempts', isNumber: true, cell: ({ attempts }) => attempts },
          { title: 'Last', cell: ({ failedAt }) => moment(failedAt) },
        ]}
      />
    </div>
  )
}

export function Consumers(props: SectionProps) {
  return <List {...props} listing={consumers} />
}
