import { useQuery } from '@tanstack/react-query'
import { useState } from 'react'
import { client } from '../../app/client.ts'
import { Button } from '../../ui/button.tsx'
import { ConfirmDialog } from '../../ui/dialog.tsx'
import { Loading, Note, Problem } from '../../ui/states.tsx'
import { Badge } from '../../ui/table.tsx'
import { notify } from '../../ui/toast.tsx'
import { Code, Facts, List, type Listing, moment, refreshLists } from './list.tsx'
import styles from './operations.module.css'
import type { SectionProps } from './operations.tsx'

type Migration = {
  readonly version: string
  readonly name: string
  readonly description: string | null
  readonly type: string
  readonly status: string
  readonly batch: number | null
  readonly executedAt: string | null
  readonly executionTimeMs: number | null
  readonly errorMessage: string | null
  readonly canRollback: boolean
  readonly drifted?: boolean
}

/** The effects that a run would have. */
type Planned = Migration & {
  readonly sql?: readonly string[]
  readonly sqlProblem?: string | null
  readonly findings?: readonly {
    readonly rule: string
    readonly object: string | null
    readonly lock: string | null
    readonly why: string
    readonly safeWay: string
  }[]
}

const tones = { completed: 'good', failed: 'bad', running: 'info', pending: 'warn' } as const
const toneOf = (status: string) => tones[status as keyof typeof tones] ?? 'plain'

const migrations: Listing<Migration> = {
  name: 'migrations',
  title: 'Version',
  read: async ({ state }) => {
    const query = { limit: -1, status: state }
    return { rows: (await client.request<{ data: readonly Migration[] }>('/migrations', { query })).data }
  },
  keyOf: ({ version }) => version,
  titleOf: ({ version }) => version,
  columns: [
    { title: 'Description', cell: ({ description, name }) => description ?? name },
    {
      title: 'State',
      cell: ({ status, drifted }) => (
        <>
          <Badge tone={toneOf(status)}>{status}</Badge>
          {drifted === true && <Badge tone="warn">changed since</Badge>}
        </>
      ),
    },
    { title: 'Batch', isNumber: true, cell: ({ batch }) => batch },
    { title: 'Run', cell: ({ executedAt }) => moment(executedAt) },
  ],
  filters: [
    { name: 'state', label: 'State', options: ['pending', 'running', 'completed', 'failed', 'rolled_back', 'skipped'] },
  ],
  actions: [
    {
      label: 'Roll back',
      isFor: ({ status, canRollback }) => status === 'completed' && canRollback,
      isDangerous: true,
      question: ({ version }) => `${version} is undone by its own script. What is lost by that does not come back.`,
      run: async ({ version }) => {
        await client.request(`/migrations/rollback/${encodeURIComponent(version)}`, { method: 'POST', body: {} })
        return 'Rolled back'
      },
    },
  ],
  detail: (migration) => (
    <Facts
      of={[
        ['Name', migration.name],
        ['Description', migration.description],
        ['Type', migration.type],
        ['State', <Badge key="state" tone={toneOf(migration.status)}>{`${migration.status}`}</Badge>],
        ['Batch', migration.batch],
        ['Run', moment(migration.executedAt)],
        ['Took', migration.executionTimeMs === null ? null : `${migration.executionTimeMs} ms`],
        ['Why it failed', migration.errorMessage],
      ]}
    />
  ),
  empty: { title: 'There is no migration', text: 'Scripts are in MIGRATIONS_DIR.' },
}

/** The scripts, and a run of those that are pending after what it would do was shown. */
export function Migrations(props: SectionProps) {
  const [isRunning, setRunning] = useState(false)
  const { data } = useQuery({
    queryKey: ['operations', 'migration status'],
    queryFn: async () => (await client.request<{ data: { pendingCount: number } }>('/migrations/status')).data,
  })
  const pending = data?.pendingCount ?? 0
  return (
    <>
      <List
        {...props}
        listing={migrations}
        tools={
          pending > 0 && (
            <Button size="s" kind="primary" onClick={() => setRunning(true)}>
              Run {pending} pending…
            </Button>
          )
        }
      />
      {isRunning && <Run onClose={() => setRunning(false)} />}
    </>
  )
}

const run = async (body: object) =>
  (
    await client.request<{
      data: { results: readonly Planned[]; summary: { completed: number; failed: number } }
    }>('/migrations/run', { method: 'POST', body })
  ).data

function Run({ onClose }: { readonly onClose: () => void }) {
  const { data, error } = useQuery({
    queryKey: ['operations', 'migration plan'],
    queryFn: () => run({ dryRun: true, sql: true }),
    staleTime: 0,
    gcTime: 0,
  })
  const perform = async () => {
    const { summary, results } = await run({})
    await refreshLists()
    const failed = results.find(({ status }) => status === 'failed')
    if (failed !== undefined) throw new Error(`${failed.version} has failed: ${failed.errorMessage ?? ''}`)
    notify(summary.completed === 1 ? '1 migration was run' : `${summary.completed} migrations were run`)
  }
  return (
    <ConfirmDialog
      isOpen
      size="l"
      title="Run migrations"
      action="Run them"
      isDisabled={data === undefined}
      onClose={onClose}
      onConfirm={perform}
    >
      {error !== null && <Problem error={error} />}
      {data === undefined && error === null && <Loading />}
      <div className={styles.detail}>
        {data?.results.map(({ version, sql = [], sqlProblem, findings = [] }) => (
          <section key={version}>
            <h3>{version}</h3>
            {findings.map(({ rule, object, lock, why, safeWay }) => (
              <Note key={`${rule} ${object ?? ''} ${why}`} kind="warning">
                {[object, lock].filter((one) => one != null).join(', ')}: {why} {safeWay}
              </Note>
            ))}
            {sqlProblem != null && <Note kind="warning">Its SQL cannot be shown: {sqlProblem}</Note>}
            {sql.length > 0 && <Code>{sql.join(';\n')}</Code>}
          </section>
        ))}
      </div>
    </ConfirmDialog>
  )
}
