import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { client } from '../../app/client.ts'
import { Button } from '../../ui/button.tsx'
import { Loading, Problem } from '../../ui/states.tsx'
import { Badge, Table } from '../../ui/table.tsx'
import { notify, notifyError } from '../../ui/toast.tsx'
import { Code, Facts, List, type Listing, moment, pageSize, refreshLists, span } from './list.tsx'
import styles from './operations.module.css'
import type { SectionProps } from './operations.tsx'

type Job = {
  readonly id: string
  readonly queue: string
  readonly state: string
  readonly data: Readonly<Record<string, unknown>>
  readonly retries: number
  readonly retryLimit: number
  readonly createdAt: string
  readonly startAfter: string
  readonly startedAt: string | null
  readonly completedAt: string | null
  readonly reason: string | null
  readonly cause: { readonly requestId: string | null } | null
}

type Queue = {
  readonly queue: string
  readonly waiting: number
  readonly active: number
  readonly dead: number
  readonly overdueSeconds: number
}

const states = ['created', 'retry', 'active', 'completed', 'cancelled', 'failed', 'dead']
const tones = { active: 'info', retry: 'warn', completed: 'good', failed: 'bad', dead: 'bad' } as const
const toneOf = (state: string) => tones[state as keyof typeof tones] ?? 'plain'

const doIt = (deed: 'retry' | 'redrive' | 'cancel') => async (job: Job) =>
  (await client.request<{ message: string }>(`/ops/jobs/${job.id}/${deed}`, { method: 'POST', body: {} })).message

const overOf = ({ queue }: Job) =>
  queue === 'tasks' ? ['failed', 'completed'] : ['dead', 'failed', 'cancelled', 'completed']

const jobs = (queues: readonly string[]): Listing<Job> => ({
  name: 'jobs',
  title: 'Job',
  isLive: true,
  read: async ({ queue, state, find, page = 1 }) => {
    const { data, totalCount } = await client.request<{ data: readonly Job[]; totalCount: number }>('/ops/jobs', {
      query: { queue, state, about: find, page, limit: pageSize },
    })
    return { rows: data, total: totalCount }
  },
  readOne: async (id) => (await client.request<{ data: Job }>(`/ops/jobs/${encodeURIComponent(id)}`)).data,
  keyOf: ({ id }) => id,
  titleOf: ({ queue, id, data }) => (queue === 'tasks' ? `${String(data.type)} ${id}` : `${queue} ${id.slice(0, 8)}`),
  columns: [
    { title: 'State', cell: ({ state }) => <Badge tone={toneOf(state)}>{state}</Badge> },
    { title: 'Why the last attempt failed', cell: ({ reason }) => reason },
    { title: 'Retries', isNumber: true, cell: ({ retries, retryLimit }) => `${retries} of ${retryLimit}` },
    { title: 'Made', cell: ({ createdAt }) => moment(createdAt) },
  ],
  filters: [
    { name: 'queue', label: 'Queue', options: queues },
    { name: 'state', label: 'State', options: states },
  ],
  find: 'About: an id, a type',
  actions: [
    { label: 'Redrive', isFor: (job) => overOf(job).includes(job.state), run: doIt('redrive') },
    { label: 'Run next', isFor: ({ state }) => state === 'created' || state === 'retry', run: doIt('retry') },
    {
      label: 'Cancel job',
      isFor: ({ state }) => ['created', 'retry', 'active'].includes(state),
      isDangerous: true,
      question: () => 'What it has done stays done; it is not tried again unless you redrive it.',
      run: doIt('cancel'),
    },
  ],
  detail: (job) => (
    <>
      <Facts
        of={[
          ['State', <Badge key="state" tone={toneOf(job.state)}>{`${job.state}`}</Badge>],
          ['Why it failed', job.reason],
          ['Made', moment(job.createdAt)],
          ['Not before', moment(job.startAfter)],
          ['Started', moment(job.startedAt)],
          ['Ended', moment(job.completedAt)],
          ['Retries', `${job.retries} of ${job.retryLimit}`],
          [
            'Came from',
            job.cause?.requestId == null ? null : (
              <Link to="/log" search={{ request: job.cause.requestId }}>
                its request
              </Link>
            ),
          ],
          [
            'Task',
            job.queue !== 'tasks' ? null : (
              <Link to="/data/$collection/$id" params={{ collection: 'svc_Tasks', id: job.id }}>
                progress and result
              </Link>
            ),
          ],
        ]}
      />
      <Code>{job.data}</Code>
    </>
  ),
  empty: { title: 'There is no job', text: 'Done ones are kept for some days.' },
})

/** Queues with their counts, and their jobs. */
export function Jobs(props: SectionProps) {
  const { data, error, refetch } = useQuery({
    queryKey: ['operations', 'queues'],
    queryFn: async () => (await client.request<{ data: readonly Queue[] }>('/ops/queues')).data,
    refetchInterval: 5000,
  })
  const redrive = async (queue: string) => {
    try {
      const path = `/ops/queues/${encodeURIComponent(queue)}/redrive`
      const { message, refused } = await client.request<{ message: string; refused: readonly { reason: string }[] }>(
        path,
        { method: 'POST', body: {} },
      )
      notify(message, refused.length === 0 ? {} : { text: `${refused.length} refused: ${refused[0]!.reason}` })
      await refreshLists()
    } catch (failure) {
      notifyError(failure)
    }
  }
  if (error !== null) return <Problem error={error} onRetry={() => void refetch()} />
  if (data === undefined) return <Loading />
  const busy = data.filter(({ waiting, active, dead }) => waiting + active + dead > 0)
  return (
    <>
      {busy.length > 0 && (
        <div className={styles.stack}>
          <Table
            label="queues"
            rows={busy}
            keyOf={({ queue }) => queue}
            columns={[
              {
                title: 'Queue',
                cell: ({ queue }) => (
                  <button type="button" className={styles.open} onClick={() => props.set({ queue, page: undefined })}>
                    {queue}
                  </button>
                ),
              },
              { title: 'Waiting', isNumber: true, cell: ({ waiting }) => waiting },
              { title: 'Active', isNumber: true, cell: ({ active }) => active },
              {
                title: 'Given up',
                isNumber: true,
                cell: ({ dead }) => (dead > 0 ? <Badge tone="bad">{dead}</Badge> : 0),
              },
              {
                title: 'Overdue',
                isNumber: true,
                cell: ({ overdueSeconds }) => (overdueSeconds > 0 ? span(overdueSeconds) : ''),
              },
              {
                title: <span className="visually-hidden">What can be done</span>,
                cell: ({ queue, dead }) =>
                  dead > 0 && (
                    <Button size="s" onClick={() => void redrive(queue)}>
                      Redrive all of {queue}
                    </Button>
                  ),
              },
            ]}
          />
        </div>
      )}
      <List {...props} listing={jobs(data.map(({ queue }) => queue))} />
    </>
  )
}

type Schedule = {
  readonly kind: string
  readonly name: string
  readonly title: string
  readonly cron: string
  readonly timezone: string
  readonly nextAt: string | null
}

const schedules: Listing<Schedule> = {
  name: 'schedules',
  title: 'Schedule',
  read: async () => ({ rows: (await client.request<{ data: readonly Schedule[] }>('/ops/schedules')).data }),
  narrow: ({ kind }, { state }) => state === undefined || kind === state,
  keyOf: ({ kind, name }) => `${kind} ${name}`,
  titleOf: ({ title }) => title,
  columns: [
    { title: 'Of', cell: ({ kind }) => <Badge>{kind}</Badge> },
    { title: 'When', cell: ({ cron, timezone }) => `${cron} (${timezone})` },
    { title: 'Next', cell: ({ nextAt }) => moment(nextAt) },
    {
      title: 'What came of it',
      cell: ({ kind, name }) =>
        kind === 'platform' ? (
          <Link to="/operations/$section" params={{ section: 'jobs' }} search={{ queue: name }}>
            jobs
          </Link>
        ) : kind === 'workflow' ? (
          <Link to="/operations/$section" params={{ section: 'workflows' }} search={{ of: name }}>
            executions
          </Link>
        ) : null,
    },
  ],
  filters: [{ name: 'state', label: 'Of', options: ['platform', 'extension', 'workflow'] }],
  empty: { title: 'Nothing is scheduled', text: 'Workers make their schedules known when they start.' },
}

export function Schedules(props: SectionProps) {
  return <List {...props} listing={schedules} />
}
