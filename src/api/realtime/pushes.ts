import type { Server, Socket } from 'socket.io'
import type { Logs } from '../../adapters/logger.ts'
import { withFreshCatalog } from '../../catalog/store.ts'
import type { Configuration } from '../../config/config.ts'
import type { Listening } from '../../db/listener.ts'
import { inRounds } from '../../db/rounds.ts'
import { rawQuery } from '../../db/sql.ts'
import { watchExecution } from '../../db/unlogged/work.ts'
import { AppError } from '../../errors.ts'
import { systemActor } from '../../events/types.ts'
import { readItem } from '../../features/data/items/items.ts'
import { openAssembly, type Push, roomKey } from '../../features/messaging/rooms/rooms.ts'
import type { Access } from '../../query/access.ts'
import type { RealtimeReads, RealtimeWrites } from '../capabilities.ts'
import { callerOf, readMessage, socketRoom, tenantOf, tenantRoom, userRoom } from './messages.ts'

/** Hands pushes to the sockets of this process; every web process receives each and does the same. */
export function openPushes(deps: Configuration & Listening & Logs, io: Server): void {
  const assembly = openAssembly()
  deps.listener.on('svc_push', (part) => {
    try {
      const push = assembly.add(part)
      if (push !== undefined) deliver(deps, io, push)
    } catch (error) {
      deps.log.error({ err: error }, 'a push could not be delivered')
    }
  })
  deps.listener.onReconnect(() => assembly.clear())
}

function deliver(deps: Configuration, io: Server, { to, event, body }: Push): void {
  if (to.kind === 'room') {
    const room = { name: to.name, tenantId: to.tenantId ?? undefined }
    io.local.to(socketRoom(roomKey(room))).emit(event, body)
  } else if (to.kind === 'all') {
    const audience = to.tenantId === undefined ? io.local : io.local.to(tenantRoom(to.tenantId ?? undefined))
    audience.emit(event, body)
  } else
    for (const id of io.sockets.adapter.rooms.get(userRoom(to.userId.toLowerCase())) ?? []) {
      const socket = io.sockets.sockets.get(id)
      const isThere =
        to.tenantId === undefined || (socket && (tenantOf(deps, callerOf(socket)) ?? null) === to.tenantId)
      if (isThere) socket?.emit(event, body)
    }
}

/**
 * How far tasks are, for sockets that have joined them. A socket gets what its user may read of the task at that moment,
 * by the read of `/items/svc_Tasks/{id}`; it is taken out when its user may not read it any more.
 */
export type TaskProgressRooms = {
  /** `task:join {taskId}`: answers with how far the task is; from then on `task:progress` comes with every change. */
  join(socket: Socket, request: unknown): Promise<{ task: object }>
  leave(socket: Socket, request: unknown): Promise<object>
}

const shown = ['id', 'task_status', 'progress', 'progress_message']
const tasksAtMost = 100

export function openTaskProgress(
  deps: RealtimeReads,
  io: Server,
  accessOf: (socket: Socket) => Access,
): TaskProgressRooms {
  const read = async (socket: Socket, id: string): Promise<object> => {
    const reader = { actor: systemActor, access: accessOf(socket) }
    const { body } = await withFreshCatalog(deps.catalog, () =>
      readItem(deps, reader, 'svc_Tasks', id, { fields: '*' }),
    )
    const task = Object.entries(JSON.parse(body).data as object)
    return Object.fromEntries(task.filter(([name]) => shown.includes(name)))
  }

  const report = async (socket: Socket, id: string) => {
    if (!socket.rooms.has(taskRoom(id))) return
    try {
      socket.emit('task:progress', { ...(await read(socket, id)), timestamp: deps.clock().toISOString() })
    } catch (error) {
      if (!(error instanceof AppError && (error.status === 403 || error.status === 404)))
        return deps.log.error({ err: error, taskId: id }, 'progress could not be sent')
      await socket.leave(taskRoom(id))
      socket.emit('task:left', { taskId: id })
    }
  }
  const reports = new WeakMap<Socket, Map<string, () => Promise<void>>>()
  /** Of two reads beside each other, the older one could be sent last. */
  const reportInTurn = (socket: Socket, id: string): Promise<void> => {
    const own = reports.get(socket) ?? new Map<string, () => Promise<void>>()
    reports.set(socket, own)
    for (const known of own.keys()) if (!socket.rooms.has(taskRoom(known))) own.delete(known)
    const inTurn = own.get(id) ?? inRounds<never, void>(() => report(socket, id))
    own.set(id, inTurn)
    return inTurn()
  }
  const reportToAll = (id: string) => {
    for (const socketId of io.sockets.adapter.rooms.get(taskRoom(id)) ?? []) {
      const socket = io.sockets.sockets.get(socketId)
      if (socket !== undefined) void reportInTurn(socket, id)
    }
  }
  deps.listener.on('svc_progress', reportToAll)
  // The last notice of a task may have been among what was lost.
  deps.listener.onReconnect(() => {
    for (const room of io.sockets.adapter.rooms.keys())
      if (room.startsWith(taskRoom(''))) reportToAll(room.slice(taskRoom('').length))
  })

  return {
    async join(socket, request) {
      const id = String(readMessage('task:join', request).taskId)
      const task = await read(socket, id)
      // Not before: others that were asked for at the same moment have joined meanwhile.
      if (tasksOf(socket) >= tasksAtMost) throw new AppError(400, 'Too many tasks on one connection')
      await socket.join(taskRoom(id))
      return { task }
    },
    async leave(socket, request) {
      await socket.leave(taskRoom(String(readMessage('task:leave', request).taskId)))
      return {}
    },
  }
}

const taskRoom = (id: string) => `task:${id}`

const tasksOf = ({ rooms }: Socket) => [...rooms].filter((room) => room.startsWith('task:')).length

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
