import { useQuery } from '@tanstack/react-query'
import { useNavigate } from '@tanstack/react-router'
import { useState } from 'react'
import { queryClient } from '../../app/client.ts'
import { Button } from '../../ui/button.tsx'
import { Field, TextArea } from '../../ui/field.tsx'
import { FormDialog } from '../../ui/leaving.tsx'
import { Loading, Note, Problem } from '../../ui/states.tsx'
import { Badge, Table } from '../../ui/table.tsx'
import { notifyError } from '../../ui/toast.tsx'
import { timeText } from '../data/values.ts'
import { Json } from './inspector.tsx'
import {
  cancel,
  type Execution,
  execute,
  executionsQuery,
  isOpen,
  retry,
  type Step,
  test,
  type Workflow,
} from './workflow.ts'
import styles from './workflows.module.css'

const tones = { queued: 'info', running: 'info', completed: 'good', failed: 'bad', cancelled: 'plain' } as const

const Status = ({ of }: { readonly of: Execution['status'] }) => <Badge tone={tones[of]}>{of}</Badge>

function useOpenExecution() {
  const navigate = useNavigate({ from: '/workflows/$id' })
  return (execution: string | undefined) => navigate({ search: (before) => ({ ...before, execution }), replace: false })
}

/** Executions, the newest first. */
export function History({ workflow, shown }: { readonly workflow: string; readonly shown: string | undefined }) {
  const { data, error, refetch } = useQuery({
    ...executionsQuery(workflow),
    refetchInterval: ({ state }) => (state.data?.data.some(isOpen) ? 2000 : false),
  })
  const open = useOpenExecution()
  return (
    <section className={styles.history} aria-label="History">
      <h2>Executions</h2>
      {error !== null && <Problem error={error} onRetry={() => void refetch()} />}
      {error === null && data === undefined && <Loading lines={3} />}
      {data?.data.length === 0 && <p>It has not run yet.</p>}
      {data !== undefined && data.data.length > 0 && (
        <Table
          label="Executions"
          rows={data.data}
          keyOf={({ id }) => id}
          columns={[
            {
              title: 'Begun',
              cell: ({ id, createdAt }) => (
                <Button size="s" kind="ghost" aria-pressed={id === shown} onClick={() => void open(id)}>
                  {timeText(createdAt)}
                </Button>
              ),
            },
            { title: 'State', cell: ({ status }) => <Status of={status} /> },
            { title: 'By', cell: ({ trigger }) => trigger },
            { title: 'Version', isNumber: true, cell: ({ version }) => version ?? '—' },
            {
              title: 'Took',
              isNumber: true,
              cell: ({ durationMs }) => (durationMs === null ? '—' : `${durationMs} ms`),
            },
            { title: 'Error', cell: ({ errorMessage }) => errorMessage ?? '' },
          ]}
        />
      )}
      {data !== undefined && data.totalCount > data.data.length && (
        <p>
          The newest {data.data.length} of {data.totalCount}.
        </p>
      )}
    </section>
  )
}

type BarProps = {
  readonly workflow: Workflow
  readonly execution: Execution
  readonly steps: readonly Step[]
  /** How many of the steps are shown. */
  readonly upTo: number
  readonly onUpTo: (upTo: number) => void
}

/** The execution that the nodes show: how it stands, its steps one by one, and what can be done with it. */
export function ExecutionBar({ workflow, execution, steps, upTo, onUpTo }: BarProps) {
  const open = useOpenExecution()
  const { id, status, version, errorMessage } = execution
  const attempt = async (act: () => Promise<string | undefined>) => {
    try {
      const next = await act()
      if (next !== undefined) await open(next)
      await queryClient.invalidateQueries({ queryKey: ['workflow executions', workflow.id] })
      await queryClient.invalidateQueries({ queryKey: ['workflow execution', id] })
    } catch (error) {
      notifyError(error)
    }
  }
  const canRetry = (status === 'failed' || status === 'cancelled') && workflow.status === 'active'
  const isOfOther = version !== null && version !== workflow.version
  return (
    <section className={styles.execution} aria-label="Execution">
      <div className={styles.row}>
        <Status of={status} />
        <span>{timeText(execution.createdAt)}</span>
        {isOpen(execution) && (
          <Button size="s" onClick={() => void attempt(() => cancel(workflow.id, id).then(() => undefined))}>
            Cancel
          </Button>
        )}
        {canRetry && (
          <Button size="s" onClick={() => void attempt(() => retry(workflow.id, id, 'failed'))}>
            Retry
          </Button>
        )}
        {canRetry && isOfOther && (
          <Button size="s" onClick={() => void attempt(() => retry(workflow.id, id, 'current'))}>
            Retry with the current version
          </Button>
        )}
        {!isOpen(execution) && workflow.status === 'active' && (
          <Button size="s" onClick={() => void attempt(() => execute(workflow.id, execution.trigger_data))}>
            Run again with its data
          </Button>
        )}
        <Button size="s" kind="ghost" onClick={() => void open(undefined)}>
          Close
        </Button>
      </div>
      {errorMessage !== null && <p className={styles.error}>{errorMessage}</p>}
      {isOfOther && (
        <Note>
          It ran version {version}; the canvas shows version {workflow.version}.
        </Note>
      )}
      {!isOpen(execution) && steps.length > 1 && (
        <label className={styles.row}>
          <span>
            Step {upTo} of {steps.length}
          </span>
          <input
            type="range"
            min={0}
            max={steps.length}
            value={upTo}
            onChange={({ target }) => onUpTo(Number(target.value))}
          />
        </label>
      )}
      <details>
        <summary>Data and result</summary>
        <Json title="Data of the trigger" value={execution.trigger_data} />
        <Json title="Result" value={execution.result_data} />
      </details>
    </section>
  )
}

type RunProps = { readonly workflow: Workflow; readonly isDirty: boolean; readonly onClose: () => void }

/** Runs what is saved: an active workflow is queued and watched, another one is tried and waited for. */
export function Run({ workflow, isDirty, onClose }: RunProps) {
  const open = useOpenExecution()
  const [data, setData] = useState('{}')
  const isActive = workflow.status === 'active'
  return (
    <FormDialog
      onClose={onClose}
      title={`Run ${workflow.name}`}
      description={
        isActive
          ? 'It runs with all its effects, as you.'
          : 'It is not active: this tries it once, with all its effects, and waits up to 30 seconds.'
      }
      action="Run"
      onConfirm={async () => {
        const given: unknown = JSON.parse(data)
        const id = isActive ? await execute(workflow.id, given) : await test(workflow.id, given)
        await open(id)
        await queryClient.invalidateQueries({ queryKey: ['workflow executions', workflow.id] })
      }}
    >
      {isDirty && <Note kind="warning">Your changes are not saved: what is saved runs.</Note>}
      <Field label="Data of the trigger" hint="JSON; nodes see it as trigger.">
        {(attributes) => (
          <TextArea {...attributes} isCode rows={6} value={data} onChange={({ target }) => setData(target.value)} />
        )}
      </Field>
    </FormDialog>
  )
}
