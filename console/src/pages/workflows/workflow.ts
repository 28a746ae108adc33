import { queryOptions } from '@tanstack/react-query'
import { useEffect, useState } from 'react'
import { client, queryClient } from '../../app/client.ts'
import { readVersion } from '../data/writes.ts'
import type { Flow, NodeState } from './flow.ts'

export type Workflow = {
  readonly id: string
  readonly name: string
  readonly description: string | null
  readonly status: 'active' | 'inactive' | 'draft'
  readonly trigger_type: 'manual' | 'webhook' | 'schedule' | 'hook'
  readonly trigger_cron: string | null
  readonly trigger_webhook_path: string | null
  readonly trigger_webhook_method: string | null
  readonly trigger_hook_collection: string | null
  readonly trigger_hook_action: string | null
  readonly flow_data: unknown
  readonly variables: unknown
  readonly options: unknown
  readonly version: number
}

export type Execution = {
  readonly id: string
  readonly status: 'queued' | 'running' | 'completed' | 'failed' | 'cancelled'
  readonly trigger: string
  readonly version: number | null
  readonly trigger_data: unknown
  readonly result_data: unknown
  readonly errorMessage: string | null
  readonly durationMs: number | null
  readonly createdAt: string
}

/** A node of an execution: begun once, or once for each turn of a loop around it. */
export type Step = {
  readonly id: string
  readonly seq: number
  readonly nodeId: string
  readonly status: 'pending' | 'running' | 'success' | 'failed' | 'skipped'
  readonly inputData: unknown
  readonly outputData: unknown
  readonly errorMessage: string | null
  readonly durationMs: number | null
}

export const pathOf = (id: string): string => `/workflows/${encodeURIComponent(id)}`
const executionPath = (workflow: string, id: string) => `${pathOf(workflow)}/executions/${encodeURIComponent(id)}`

export const workflowQuery = (id: string) =>
  queryOptions({
    queryKey: ['workflow', id],
    queryFn: async () => {
      const { row, etag } = await readVersion('svc_Workflow', id)
      return { workflow: row as unknown as Workflow, etag }
    },
    // What is edited is not replaced under the hands: whoever was first is seen at the save.
    staleTime: 0,
    refetchOnWindowFocus: false,
  })

export function triggerText(workflow: Workflow): string {
  const { trigger_type, trigger_cron, trigger_webhook_path, trigger_hook_collection, trigger_hook_action } = workflow
  const about = {
    manual: [],
    schedule: [trigger_cron],
    webhook: [workflow.trigger_webhook_method, trigger_webhook_path],
    hook: [trigger_hook_collection, trigger_hook_action],
  }[trigger_type]
  return [trigger_type, ...about.filter((one) => one !== null && one !== '')].join(' ')
}

export const executionsQuery = (workflow: string) =>
  queryOptions({
    queryKey: ['workflow executions', workflow],
    queryFn: () =>
      client.request<{ data: readonly Execution[]; totalCount: number }>(`${pathOf(workflow)}/executions`, {
        query: { sort: '-createdAt', limit: 25 },
      }),
    staleTime: 0,
  })

const executionQuery = (workflow: string, id: string) =>
  queryOptions({
    queryKey: ['workflow execution', id],
    queryFn: async () => {
      const path = executionPath(workflow, id)
      const [execution, steps] = await Promise.all([
        client.request<{ data: Execution }>(path),
        client.request<{ data: readonly Step[] }>(`${path}/logs`, { query: { limit: 1000, sort: 'seq' } }),
      ])
      return { execution: execution.data, steps: steps.data }
    },
    staleTime: 0,
  })

export const isOpen = ({ status }: Pick<Execution, 'status'>): boolean => status === 'queued' || status === 'running'

/** The query of one execution, read again while it runs; a socket says when sooner. */
export const watchedQuery = (workflow: string, id: string) => ({
  ...executionQuery(workflow, id),
  refetchInterval: ({
    state,
  }: {
    readonly state: { readonly data?: { readonly execution: Execution } | undefined }
  }) => (state.data === undefined || isOpen(state.data.execution) ? 1500 : (false as const)),
})

type Update = { readonly executionId: string; readonly nodeId?: string; readonly nodeStatus?: NodeState }

/** A socket's messages about an execution: the state of each node as it changes. Joining also makes one that waits begin. */
export function useLiveStates(workflow: string, id: string | undefined): ReadonlyMap<string, NodeState> {
  const [told, setTold] = useState<{ readonly id: string; readonly states: ReadonlyMap<string, NodeState> }>()
  useEffect(() => {
    if (id === undefined) return
    const { socket } = client.realtime
    const join = () => socket.emit('workflow:execution:join', { executionId: id })
    const onUpdate = ({ executionId, nodeId, nodeStatus }: Update) => {
      if (executionId !== id || nodeId === undefined || nodeStatus === undefined) return
      setTold((before) => ({
        id,
        states: new Map(before?.id === id ? before.states : []).set(nodeId, nodeStatus),
      }))
    }
    const onComplete = ({ executionId }: Update) => {
      if (executionId !== id) return
      void queryClient.invalidateQueries({ queryKey: ['workflow execution', id] })
      void queryClient.invalidateQueries({ queryKey: ['workflow executions', workflow] })
    }
    socket.on('connect', join).on('workflow:execution:update', onUpdate).on('workflow:execution:complete', onComplete)
    if (socket.connected) join()
    return () => {
      socket
        .off('connect', join)
        .off('workflow:execution:update', onUpdate)
        .off('workflow:execution:complete', onComplete)
    }
  }, [workflow, id])
  return told?.id === id && told !== undefined ? told.states : none
}

const none: ReadonlyMap<string, NodeState> = new Map()

export async function execute(workflow: string, data: unknown): Promise<string> {
  const { execution } = await client.request<{ execution: { id: string } }>(`${pathOf(workflow)}/execute`, {
    method: 'POST',
    body: data,
  })
  return execution.id
}

/** Runs it as it is saved, also a draft, and waits for its end. */
export async function test(workflow: string, triggerData: unknown): Promise<string> {
  const { execution } = await client.request<{ execution: { id: string } }>(`${pathOf(workflow)}/test`, {
    method: 'POST',
    body: { triggerData, saveExecution: true },
  })
  return execution.id
}

export async function testNode(workflow: string, node: string, inputData: unknown): Promise<unknown> {
  const path = `${pathOf(workflow)}/nodes/${encodeURIComponent(node)}/execute`
  return (await client.request<{ result: unknown }>(path, { method: 'POST', body: { inputData } })).result
}

export async function retry(workflow: string, id: string, version: 'failed' | 'current'): Promise<string> {
  const { execution } = await client.request<{ execution: { id: string } }>(`${executionPath(workflow, id)}/retry`, {
    method: 'POST',
    body: { version },
  })
  return execution.id
}

export async function cancel(workflow: string, id: string): Promise<void> {
  await client.request(`${executionPath(workflow, id)}/cancel`, { method: 'POST', body: {} })
}

export type Finding = {
  readonly code: string
  readonly message: string
  readonly nodeId?: string
  readonly isWarning: boolean
}

type Verdict = {
  readonly errors: readonly Omit<Finding, 'isWarning'>[]
  readonly warnings: readonly Omit<Finding, 'isWarning'>[]
}

const pauseMs = 400

/** The server's findings in a flow that is edited, a moment after the last change. */
export function useSettled<Value>(value: Value): Value {
  const [settled, setSettled] = useState(value)
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), pauseMs)
    return () => clearTimeout(timer)
  }, [value])
  return settled
}

export const findingsQuery = (flow: Flow) =>
  queryOptions({
    queryKey: ['workflow findings', flow],
    queryFn: async ({ signal }): Promise<readonly Finding[]> => {
      const { errors, warnings } = await client.request<Verdict>('/workflows/validate', {
        method: 'POST',
        body: { flow_data: flow },
        signal,
      })
      return [
        ...errors.map((finding) => ({ ...finding, isWarning: false })),
        ...warnings.map((finding) => ({ ...finding, isWarning: true })),
      ]
    },
    gcTime: 0,
  })
