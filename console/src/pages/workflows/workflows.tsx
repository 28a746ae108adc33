import { useQuery } from '@tanstack/react-query'
import { Link, useNavigate } from '@tanstack/react-router'
import { Workflow as Icon, Plus } from 'lucide-react'
import { useState } from 'react'
import { client } from '../../app/client.ts'
import { Page } from '../../shell/page.tsx'
import { Button } from '../../ui/button.tsx'
import { Input, TextField } from '../../ui/field.tsx'
import { FormDialog } from '../../ui/leaving.tsx'
import { Empty, Loading, Problem } from '../../ui/states.tsx'
import { Badge, Table } from '../../ui/table.tsx'
import { timeText } from '../data/values.ts'
import { createRow } from '../data/writes.ts'
import { triggerText, type Workflow } from './workflow.ts'
import styles from './workflows.module.css'

const shownAtMost = 200

type Last = { readonly workflow_Id: string; readonly status: string; readonly createdAt: string }

/** All workflows that the caller may see, with how each ran last. */
export function Workflows() {
  const [wanted, setWanted] = useState('')
  const [isMaking, setMaking] = useState(false)
  const { data, error, refetch } = useQuery({
    queryKey: ['workflows'],
    queryFn: async () => {
      const { data: workflows, totalCount } = await client.request<{
        data: readonly Workflow[]
        totalCount: number
      }>('/workflows', { query: { sort: 'name', limit: shownAtMost } })
      return { workflows, totalCount }
    },
    staleTime: 0,
  })
  const words = wanted.trim().toLowerCase()
  const shown = data?.workflows.filter(({ name, id }) => `${name} ${id}`.toLowerCase().includes(words)) ?? []
  return (
    <Page
      title="Workflows"
      description="Graphs of nodes that start by hand, by a request, by the clock or by a change."
      actions={
        <Button kind="primary" onClick={() => setMaking(true)}>
          <Plus aria-hidden="true" /> New workflow
        </Button>
      }
    >
      {error !== null && <Problem error={error} onRetry={() => void refetch()} />}
      {error === null && data === undefined && <Loading />}
      {data?.totalCount === 0 && (
        <Empty
          icon={<Icon aria-hidden="true" />}
          title="There is no workflow yet"
          actions={
            <Button kind="primary" onClick={() => setMaking(true)}>
              Make the first one
            </Button>
          }
        >
          A workflow does something when something happens: it reads and writes rows, sends mails, asks other servers.
        </Empty>
      )}
      {data !== undefined && data.totalCount > 0 && (
        <>
          <div className={styles.tools}>
            <Input
              type="search"
              data-filter
              aria-label="Find a workflow"
              placeholder="Find a workflow"
              value={wanted}
              onChange={({ target }) => setWanted(target.value)}
            />
            {data.totalCount > shownAtMost && <span>The first {shownAtMost} by name.</span>}
          </div>
          <Rows workflows={shown} />
        </>
      )}
      {isMaking && <Making onClose={() => setMaking(false)} />}
    </Page>
  )
}

const tones = { active: 'good', inactive: 'plain', draft: 'info' } as const

function Rows({ workflows }: { readonly workflows: readonly Workflow[] }) {
  const ids = workflows.map(({ id }) => id)
  const { data: last } = useQuery({
    queryKey: ['workflow last runs', ids],
    queryFn: async () => {
      const { data } = await client.request<{ data: readonly Last[] }>('/items/svc_WorkflowExecution', {
        query: { fields: 'workflow_Id,status,createdAt', sort: '-createdAt', limit: 500 },
      })
      return new Map(data.toReversed().map((one) => [one.workflow_Id, one]))
    },
    enabled: ids.length > 0,
    staleTime: 0,
  })
  if (workflows.length === 0) return <Empty title="No workflow of this name" />
  return (
    <Table
      label="Workflows"
      rows={workflows}
      keyOf={({ id }) => id}
      columns={[
        {
          title: 'Name',
          cell: ({ id, name }) => (
            <Link to="/workflows/$id" params={{ id }}>
              {name}
            </Link>
          ),
        },
        { title: 'State', cell: ({ status }) => <Badge tone={tones[status]}>{status}</Badge> },
        { title: 'Trigger', cell: triggerText },
        { title: 'Version', isNumber: true, cell: ({ version }) => version },
        {
          title: 'Last run',
          cell: ({ id }) => {
            const run = last?.get(id)
            return run === undefined ? '—' : `${timeText(run.createdAt)}, ${run.status}`
          },
        },
      ]}
    />
  )
}

function Making({ onClose }: { readonly onClose: () => void }) {
  const navigate = useNavigate()
  const [name, setName] = useState('')
  return (
    <FormDialog
      onClose={onClose}
      title="New workflow"
      description="It begins as a draft, and runs when you make it active."
      action="Create"
      isDisabled={name.trim() === ''}
      onConfirm={async () => {
        const start = { id: 'start', type: 'trigger', data: {} }
        const id = await createRow('svc_Workflow', { name: name.trim(), flow_data: { nodes: [start], edges: [] } })
        await navigate({ to: '/workflows/$id', params: { id } })
      }}
    >
      <TextField label="Name" value={name} onChange={({ target }) => setName(target.value)} />
    </FormDialog>
  )
}
