import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { DaybookError } from '../../../../clients/client.ts'
import { client } from '../../app/client.ts'
import { Button } from '../../ui/button.tsx'
import { Empty, Loading, Problem } from '../../ui/states.tsx'
import { Badge } from '../../ui/table.tsx'
import { Code, Facts, List, type Listing, moment, pageSize } from './list.tsx'
import styles from './operations.module.css'
import type { SectionProps } from './operations.tsx'

type Workflow = {
  readonly id: string
  readonly name: string
  readonly description: string | null
  readonly status: string
  readonly trigger_type: string
  readonly trigger_cron: string | null
  readonly trigger_webhook_path: string | null
  readonly trigger_hook_collection: string | null
  readonly trigger_hook_action: string | null
  readonly version: number
  readonly updatedAt: string
}

type Execution = {
  readonly id: string
  readonly status: string
  readonly trigger: string
  readonly version: number | null
  readonly errorMessage: string | null
  readonly startedAt: string | null
  readonly completedAt: string | null
  readonly durationMs: number | null
  readonly createdAt: string
  readonly trigger_data: unknown
  readonly result_data: unknown
}

type NodeLog = {
  readonly id: string
  readonly nodeId: string
  readonly nodeType: string
  readonly nodeLabel: string | null
  readonly status: string
  readonly inputData: unknown
  readonly outputData: unknown
  readonly errorMessage: string | null
  readonly durationMs: number | null
}

const tones = {
  active: 'good',
  completed: 'good',
  success: 'good',
  failed: 'bad',
  running: 'info',
  queued: 'info',
} as const
const Status = ({ of }: { readonly of: string }) => (
  <Badge tone={tones[of as keyof typeof tones] ?? 'plain'}>{of}</Badge>
)
const pathOf = (id: string) => `/workflows/${encodeURIComponent(id)}`

const become =
  (status: 'active' | 'inactive') =>
  async ({ id }: Workflow) => {
    await client.request(pathOf(id), { method: 'PATCH', body: { status } })
    return status === 'active' ? 'It runs when it is triggered' : 'It runs no more'
  }

const workflows = (set: SectionProps['set']): Listing<Workflow> => ({
  name: 'workflows',
  title: 'Name',
  read: async ({ state, find, page = 1 }) => {
    const { data, totalCount } = await client.request<{ data: readonly Workflow[]; totalCount: number }>('/workflows', {
      query: {
        sort: 'name',
        limit: pageSize,
        page,
        ...(state !== undefined && { filter: JSON.stringify({ status: state }) }),
        ...(find !== undefined && { search: find, searchFields: 'name,description' }),
      },
    })
    return { rows: data, total: totalCount }
  },
  readOne: async (id) => (await client.request<{ data: Workflow }>(pathOf(id))).data,
  keyOf: ({ id }) => id,
  titleOf: ({ name }) => name,
  columns: [
    { title: 'State', cell: ({ status }) => <Status of={status} /> },
    { title: 'Triggered by', cell: triggerText },
    { title: 'Version', isNumber: true, cell: ({ version }) => version },
    { title: 'Changed', cell: ({ updatedAt }) => moment(updatedAt) },
  ],
  filters: [{ name: 'state', label: 'State', options: ['active', 'inactive', 'draft'] }],
  find: 'Name or description',
  actions: [
    {
      label: 'Executions',
      run: async ({ id }) => {
        set({ of: id, open: undefined, state: undefined, find: undefined, page: undefined })
        return undefined
      },
    },
    {
      label: 'Execute now',
      isFor: ({ status }) => status === 'active',
      question: () => 'It runs with all its effects, as you, without data from a trigger.',
      run: async ({ id }) => {
        const { execution } = await client.request<{ execution: { id: string } }>(`${pathOf(id)}/execute`, {
          method: 'POST',
          body: {},
        })
        set({ of: id, open: execution.id, state: undefined, find: undefined, page: undefined })
        return undefined
      },
    },
    { label: 'Switch on', isFor: ({ status }) => status !== 'active', run: become('active') },
    { label: 'Switch off', isFor: ({ status }) => status === 'active', run: become('inactive') },
  ],
  detail: (workflow) => (
    <>
      <Facts
        of={[
          ['State', <Status key="status" of={workflow.status} />],
          ['Description', workflow.description],
          ['Triggered by', triggerText(workflow)],
          ['Version', workflow.version],
          [
            'Graph',
            <Link key="graph" to="/workflows/$id" params={{ id: workflow.id }}>
              edit it on the canvas
            </Link>,
          ],
          [
            'Record',
            <Link key="record" to="/data/$collection/$id" params={{ collection: 'svc_Workflow', id: workflow.id }}>
              all fields and who changed them
            </Link>,
          ],
        ]}
      />
      <Statistics id={workflow.id} />
    </>
  ),
  empty: { title: 'There is no workflow' },
})

function triggerText(workflow: Workflow): string {
  const { trigger_type, trigger_cron, trigger_webhook_path, trigger_hook_collection, trigger_hook_action } = workflow
  const more = [trigger_cron, trigger_webhook_path, trigger_hook_collection, trigger_hook_action]
  return [trigger_type, ...more.filter((one) => one !== null && one !== '')].join(' ')
}

type Stats = {
  readonly total: number
  readonly byStatus: Readonly<Record<string, number>>
  readonly avgDuration: number | null
  readonly lastExecution: string | null
}

function Statistics({ id }: { readonly id: string }) {
  const { data, error } = useQuery({
    queryKey: ['operations', 'workflow statistics', id],
    queryFn: () => client.request<Stats>(`${pathOf(id)}/stats`),
  })
  if (error !== null) return <Problem error={error} />
  if (data === undefined) return <Loading lines={2} />
  return (
    <Facts
      of={[
        ['Executions', data.total],
        ...Object.entries(data.byStatus).map(([status, count]) => [status, count > 0 ? count : null] as const),
        ['On average', data.avgDuration === null ? null : `${Math.round(data.avgDuration)} ms`],
        ['Last one', moment(data.lastExecution)],
      ]}
    />
  )
}

const isOpen = ({ status }: Execution) => status === 'queued' || status === 'running'

/** `current`: the version of the workflow. */
const executions = (id: string, current: number, set: SectionProps['set']): Listing<Execution> => ({
  name: `executions of ${id}`,
  title: 'Execution',
  isLive: true,
  read: async ({ state, page = 1 }) => {
    const { data, totalCount } = await client.request<{ data: readonly Execution[]; totalCount: number }>(
      `${pathOf(id)}/executions`,
      {
        query: {
          sort: '-createdAt',
          limit: pageSize,
          page,
          ...(state !== undefined && { filter: JSON.stringify({ status: state }) }),
        },
      },
    )
    return { rows: data, total: totalCount }
  },
  readOne: async (execution) =>
    (await client.request<{ data: Execution }>(`${pathOf(id)}/executions/${encodeURIComponent(execution)}`)).data,
  keyOf: ({ id: key }) => key,
  titleOf: ({ createdAt }) => moment(createdAt),
  columns: [
    { title: 'State', cell: ({ status }) => <Status of={status} /> },
    { title: 'By', cell: ({ trigger }) => trigger },
    { title: 'Took', isNumber: true, cell: ({ durationMs }) => (durationMs === null ? '' : `${durationMs} ms`) },
    { title: 'Why it failed', cell: ({ errorMessage }) => errorMessage },
  ],
  filters: [{ name: 'state', label: 'State', options: ['queued', 'running', 'completed', 'failed', 'cancelled'] }],
  actions: [
    {
      label: 'Retry',
      isFor: ({ status }) => status === 'failed',
      run: ({ id: failed }) => goOn(id, failed, 'failed', set),
    },
    {
      label: 'Retry with the current version',
      isFor: ({ status, version }) => status === 'failed' && version !== null && version !== current,
      run: ({ id: failed }) => goOn(id, failed, 'current', set),
    },
    {
      label: 'Cancel execution',
      isFor: isOpen,
      isDangerous: true,
      question: () => 'It ends before its next node. What it has done stays done.',
      run: async ({ id: running }) => {
        await client.request(`${pathOf(id)}/executions/${encodeURIComponent(running)}/cancel`, {
          method: 'POST',
          body: {},
        })
        return 'Cancelled'
      },
    },
  ],
  detail: (execution) => (
    <>
      <Facts
        of={[
          ['State', <Status key="status" of={execution.status} />],
          ['Triggered by', execution.trigger],
          ['Version', execution.version],
          ['Began', moment(execution.startedAt)],
          ['Ended', moment(execution.completedAt)],
          ['Why it failed', execution.errorMessage],
        ]}
      />
      <Nodes workflow={id} execution={execution.id} isLive={isOpen(execution)} />
      <details>
        <summary>Began with, and gave</summary>
        <Code>{{ trigger: execution.trigger_data, result: execution.result_data }}</Code>
      </details>
    </>
  ),
  empty: { title: 'It has not run yet' },
})

async function goOn(workflow: string, id: string, version: 'failed' | 'current', set: SectionProps['set']) {
  const path = `${pathOf(workflow)}/executions/${encodeURIComponent(id)}/retry`
  const { execution } = await client.request<{ execution: { id: string } }>(path, { method: 'POST', body: { version } })
  set({ open: execution.id })
  return 'A new execution goes on with what the old one had'
}

type NodesProps = { readonly workflow: string; readonly execution: string; readonly isLive: boolean }

/** The results of the nodes, in their order; live while the execution runs. */
function Nodes({ workflow, execution, isLive }: NodesProps) {
  const { data, error, refetch } = useQuery({
    queryKey: ['operations', 'nodes', execution],
    queryFn: async () =>
      (
        await client.request<{ data: readonly NodeLog[] }>(
          `${pathOf(workflow)}/executions/${encodeURIComponent(execution)}/logs`,
          { query: { limit: 1000 } },
        )
      ).data,
    refetchInterval: isLive ? 1500 : false,
  })
  if (error !== null) return <Problem error={error} onRetry={() => void refetch()} />
  if (data === undefined) return <Loading lines={3} />
  if (data.length === 0) return <p>No node has run.</p>
  return (
    <ol className={styles.nodes} aria-label="Nodes">
      {data.map((node) => (
        <li key={node.id}>
          <details>
            <summary>
              <Status of={node.status} />
              <strong>{node.nodeLabel ?? node.nodeId}</strong>
              <span>{node.nodeType}</span>
              {node.durationMs !== null && <span>{node.durationMs} ms</span>}
            </summary>
            {node.errorMessage !== null && <p>{node.errorMessage}</p>}
            <Code>{{ input: node.inputData, output: node.outputData }}</Code>
          </details>
        </li>
      ))}
    </ol>
  )
}

/** Workflows, and the executions of one. */
export function Workflows(props: SectionProps) {
  const { search, set } = props
  const { data, error, isPending, refetch } = useQuery({
    queryKey: ['operations', 'workflow', search.of ?? ''],
    queryFn: async () => {
      if (search.of !== undefined) return (await client.request<{ data: Workflow }>(pathOf(search.of))).data
      await client.request('/workflows', { query: { limit: 1 } })
      return null
    },
  })
  if (isPending) return <Loading />
  if (error instanceof DaybookError && error.status === 404 && search.of === undefined)
    return (
      <Empty title="Workflows are off">
        <p>WORKFLOWS_ENABLED=true switches them on.</p>
      </Empty>
    )
  if (error !== null) return <Problem error={error} onRetry={() => void refetch()} />
  if (search.of === undefined || data === null) return <List {...props} listing={workflows(set)} />
  return (
    <List
      {...props}
      listing={executions(search.of, data.version, set)}
      tools={
        <Button size="s" onClick={() => set({ of: undefined, open: undefined, state: undefined, page: undefined })}>
          All workflows
        </Button>
      }
    />
  )
}
