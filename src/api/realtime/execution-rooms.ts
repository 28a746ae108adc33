import type { Server, Socket } from 'socket.io'
import { rawQuery } from '../../db/sql.ts'
import { watchExecution } from '../../db/unlogged/work.ts'
import { AppError } from '../../errors.ts'
import type { RealtimeWrites } from '../capabilities.ts'
import { callerOf, readMessage, tenantOf } from './messages.ts'

/**
 * Executions of workflows, for sockets that have joined them: `workflow:execution:update` with every node, and
 * `workflow:execution:complete`. A socket that joins late gets the events so far.
 */
export type ExecutionRooms = {
  /** `workflow:execution:join {executionId}`: without an answer; a refusal is the event `workflow:execution:error`. */
  join(socket: Socket, request: unknown): Promise<void>
}

type ExecutionUpdate = {
  readonly id: string
  readonly status: string
  readonly errorMessage: string | null
  readonly durationMs: number | null
  readonly result_data: unknown
  readonly triggered_by_Id: string | null
  readonly tenant_Id: string | null
}

type Logged = {
  readonly seq: number
  readonly nodeId: string
  readonly status: 'pending' | 'running' | 'success' | 'failed'
  readonly inputData: unknown
  readonly outputData: unknown
  readonly errorMessage: string | null
  readonly durationMs: number | null
}

/** The state of an execution that a socket has been sent: of each node, and whether the execution is over. */
type Told = { readonly nodes: Map<number, string>; isOver: boolean; telling: Promise<void> }

const executionsAtMost = 50

export function openExecutionRooms(deps: RealtimeWrites, io: Server): ExecutionRooms {
  const told = new WeakMap<Socket, Map<string, Told>>()
  const tell = async (socket: Socket, id: string) => {
    const known = told.get(socket)?.get(id)
    if (known === undefined || known.isOver) return
    const execution = await executionOf(deps, id)
    const logs = await deps.reserved.any<Logged>(rawQuery(logsSql, [id]))
    if (execution === undefined) return
    const { messages, isOver } = progressOf(execution, logs, known.nodes, deps.clock().toISOString())
    for (const { seq, status } of logs) known.nodes.set(seq, status)
    known.isOver = isOver
    for (const [event, body] of messages) socket.emit(event, body)
    if (!isOver) return
    await socket.leave(roomOf(id))
    told.get(socket)?.delete(id)
  }
  /** One after the other: what is told in between would be told twice. */
  const tellInTurn = (socket: Socket, id: string): Promise<void> => {
    const known = told.get(socket)?.get(id)
    if (known === undefined) return Promise.resolve()
    known.telling = known.telling
      .then(() => tell(socket, id))
      .catch((error: unknown) =>
        deps.log.error({ err: error, execution: id }, 'the progress of an execution could not be sent'),
      )
    return known.telling
  }
  const tellAll = (id: string) => {
    for (const socketId of io.sockets.adapter.rooms.get(roomOf(id)) ?? []) {
      const socket = io.sockets.sockets.get(socketId)
      if (socket !== undefined) void tellInTurn(socket, id)
    }
  }
  deps.listener.on('svc_execution', tellAll)
  deps.listener.onReconnect(() => {
    for (const room of io.sockets.adapter.rooms.keys())
      if (room.startsWith('execution:')) tellAll(room.slice('execution:'.length))
  })
  return {
    async join(socket, request) {
      const id = readMessage('workflow:execution:join', request).executionId.toLowerCase()
      const own = told.get(socket) ?? new Map<string, Told>()
      told.set(socket, own)
      const execution = await executionOf(deps, id)
      if (execution === undefined || !mayWatch(deps, socket, execution))
        throw new AppError(403, 'Not authorized to join this execution')
      if (own.size >= executionsAtMost) throw new AppError(400, 'Too many executions on one connection')
      own.set(id, { nodes: new Map(), isOver: false, telling: Promise.resolve() })
      await socket.join(roomOf(id))
      // From here on its process says how it goes on; what came before is read.
      await watchExecution(deps, id)
      await tellInTurn(socket, id)
    },
  }
}

const roomOf = (id: string) => `execution:${id}`

function executionOf({ reserved }: RealtimeWrites, id: string): Promise<ExecutionUpdate | undefined> {
  return reserved.maybeOne<ExecutionUpdate>(
    rawQuery(
      `select id, status, "errorMessage", "durationMs", result_data, "triggered_by_Id", "tenant_Id" from "svc_WorkflowExecution" where id = $1`,
      [id],
    ),
  )
}

const logsSql = `select seq, "nodeId", status, "inputData", "outputData", "errorMessage", "durationMs"
  from "svc_WorkflowExecutionLog" where "execution_Id" = $1 and seq is not null order by seq`

/** Administrators, and who triggered it, at the tenant of the execution. */
function mayWatch(deps: RealtimeWrites, socket: Socket, { triggered_by_Id, tenant_Id }: ExecutionUpdate): boolean {
  const caller = callerOf(socket)
  if (caller.access.admin) return true
  const isHere = !deps.config.tenancy.enabled || (tenantOf(deps, caller) ?? null) === tenant_Id
  return isHere && triggered_by_Id !== null && triggered_by_Id === caller.userId
}

type ExecutionMessage = readonly [event: 'workflow:execution:update' | 'workflow:execution:complete', body: object]

/** The news of an execution for a socket that has been told of these states of its nodes, by `seq`. */
function progressOf(
  execution: ExecutionUpdate,
  logs: readonly Logged[],
  toldNodes: ReadonlyMap<number, string>,
  timestamp: string,
): { readonly messages: readonly ExecutionMessage[]; readonly isOver: boolean } {
  const { id: executionId, status, result_data: result, errorMessage: error, durationMs: duration } = execution
  const update = (more: object): ExecutionMessage => [
    'workflow:execution:update',
    { executionId, status, ...more, timestamp },
  ]
  const updates = logs.flatMap((log) =>
    statesOf(log, toldNodes.get(log.seq)).map((state) => update(updateOf(log, state))),
  )
  if (status === 'queued' || status === 'running')
    return { messages: logs.length === 0 ? [update({})] : updates, isOver: false }
  const end: ExecutionMessage = [
    'workflow:execution:complete',
    { executionId, status, result, error, duration, timestamp },
  ]
  return { messages: [...updates, end], isOver: true }
}

type NodeStatus = 'running' | 'completed' | 'failed'

/** The states of a node that are new since it was `before`. */
function statesOf({ status }: Logged, before: string | undefined): readonly NodeStatus[] {
  if (status === before || before === 'success' || before === 'failed') return []
  const begun: readonly NodeStatus[] = before === undefined ? ['running'] : []
  if (status === 'success') return [...begun, 'completed']
  return status === 'failed' ? [...begun, 'failed'] : begun
}

function updateOf({ nodeId, inputData, outputData, errorMessage, durationMs }: Logged, nodeStatus: NodeStatus): object {
  const about = { nodeId, currentNodeId: nodeId, nodeStatus, inputData }
  if (nodeStatus === 'running') return about
  return { ...about, outputData, duration: durationMs, ...(errorMessage !== null && { error: errorMessage }) }
}
