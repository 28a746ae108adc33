import { jsonSize, openRoom, type TemplateScope, takenOf } from './expressions.ts'
import { type FlowNode, type Graph, isStructure, structures } from './flow.ts'
import { holds, inputOf, isScript, iterationsOf, NodeError, nodeTypes, withoutPlace } from './nodes.ts'

/**
 * How an execution goes on: a pure step from a state and the result of the node that ran last. The same results in the same
 * order give the same state, so an execution whose process died is brought back by giving it the results that were kept.
 */

/** Why a node failed; `stack` names the nodes around it. */
type NodeFailure = { readonly message: string; readonly nodeId: string; readonly stack: string }

export type State = {
  /** The bodies that it is in, the innermost last; the first one is the whole. */
  readonly frames: readonly Frame[]
  readonly trigger: unknown
  readonly outputs: Readonly<Record<string, unknown>>
  /** Characters of each output, more or less. */
  readonly sizes: Readonly<Record<string, number>>
  readonly variables: Readonly<Record<string, unknown>>
  readonly error: NodeFailure | null
  /** The result of the `respond` node. */
  readonly response: unknown
  /** Nodes that have begun. */
  readonly seq: number
  /** The node whose result comes next. */
  readonly running: Begun | undefined
  /** Known to templates as `execution`. */
  readonly execution: Readonly<Record<string, unknown>>
}

type Frame = {
  readonly nodeId: string | undefined
  /** Nodes that are to run in it; each at most once, the earliest of the graph first. */
  readonly ready: readonly string[]
  /** Of `try`: which of its branches this is. */
  readonly branch?: string
  readonly loop?: Loop
}

type Loop = {
  readonly items: readonly unknown[] | undefined
  readonly first: number
  readonly total: number
  readonly index: number
  readonly results: Given | undefined
  /** Characters of these. */
  readonly size: number
  /** The output of the last node of this iteration. */
  readonly last: unknown
  readonly lastSize: number
}

/** Outputs, the last first: a list that grows by thousands without being copied. */
type Given = { readonly output: unknown; readonly before: Given | undefined }

type Begun = { readonly nodeId: string; readonly seq: number; readonly step: string; readonly input: TemplateScope }

/** The outcome of the node that ran. */
export type NodeResult = { readonly output: unknown } | { readonly error: string }

/** A node that was begun, and what became of it. */
export type StepNote = {
  readonly kind: 'note'
  readonly seq: number
  readonly step: string
  readonly node: FlowNode
  readonly input: unknown
  readonly output?: unknown
  readonly error?: string
}

export type StepCommand =
  | StepNote
  /** Ends the list, as do all others but notes. */
  | {
      readonly kind: 'run'
      readonly seq: number
      readonly step: string
      readonly node: FlowNode
      readonly input: TemplateScope
      readonly scope: TemplateScope
    }
  | { readonly kind: 'complete' }
  /** `said`: the message with the place in a script, where the error leaves that out. */
  | { readonly kind: 'fail'; readonly error: NodeFailure; readonly said?: string }
  /** Others may have their turn; go on with {@link goOn}. */
  | { readonly kind: 'pause' }

/** Beyond it an execution is taken for one without an end. */
const nodesAtMost = 50_000
/** Nodes without effects that run in one turn, and the characters that they may read and make in it. */
const burst = 500
const burstSize = 5_000_000
/** Of a node that only reckons. */
const largestOutput = 1_048_576
/** Of all that an execution holds. */
const mostHeld = 16_777_216

type Beginning = Pick<State, 'trigger' | 'variables' | 'execution'>

export function begin(graph: Graph, { trigger, variables, execution }: Beginning): [State, readonly StepCommand[]] {
  const state: State = {
    frames: [{ nodeId: undefined, ready: [graph.trigger.id] }],
    ...{
      trigger,
      variables,
      execution,
      outputs: {},
      sizes: {},
      error: null,
      response: undefined,
      seq: 0,
      running: undefined,
    },
  }
  return goOn(graph, state)
}

export function step(graph: Graph, state: State, result: NodeResult): [State, readonly StepCommand[]] {
  const draft = draftOf(state)
  const { running } = draft
  if (running === undefined) throw new Error('no node is running')
  draft.running = undefined
  const node = graph.nodes.get(running.nodeId)!
  const commands: StepCommand[] = []
  const begun = { kind: 'note', seq: running.seq, step: running.step, node, input: running.input } as const
  if ('error' in result) {
    commands.push({ ...begun, error: result.error })
    const failed = fail(graph, draft, node, result.error)
    if (failed !== undefined) return [draft, [...commands, failed]]
  } else {
    const failed = settle(graph, draft, node, result.output)
    commands.push({ ...begun, output: result.output })
    if (failed !== undefined) return [draft, [...commands, failed]]
  }
  return advance(graph, draft, commands)
}

export function goOn(graph: Graph, state: State): [State, readonly StepCommand[]] {
  return advance(graph, draftOf(state), [])
}

/** The values that templates may name now. */
function scopeOf({ trigger, outputs, variables, frames, error, execution }: State): TemplateScope {
  const loop = frames.findLast((frame) => frame.loop !== undefined)?.loop
  return {
    ...{ trigger, outputs, variables, execution },
    ...(loop !== undefined && { loop: shownLoop(loop) }),
    ...(error !== null && { error }),
  }
}

const shownLoop = ({ items, first, total, index }: Loop) => ({
  index,
  item: items === undefined ? first + index : (items[index] ?? null),
  total,
})

type StateDraft = { -readonly [Name in keyof State]: State[Name] } & {
  frames: Frame[]
  outputs: Record<string, unknown>
  sizes: Record<string, number>
  /** Characters that were read and made in this turn. */
  work: number
}

const draftOf = (state: State): StateDraft => ({
  ...state,
  ...{ frames: [...state.frames], outputs: { ...state.outputs }, sizes: { ...state.sizes }, work: 0 },
})

function advance(graph: Graph, draft: StateDraft, commands: StepCommand[]): [State, readonly StepCommand[]] {
  for (;;) {
    const frame = draft.frames.at(-1)!
    const id = earliest(graph, frame.ready)
    if (id === undefined) {
      if (draft.frames.length === 1) return [draft, [...commands, { kind: 'complete' }]]
      const end = endOfBody(graph, draft, frame, commands)
      if (end !== undefined) return [draft, [...commands, end]]
      continue
    }
    if (commands.length >= burst || draft.work > burstSize) return [draft, [...commands, { kind: 'pause' }]]
    draft.frames[draft.frames.length - 1] = { ...frame, ready: frame.ready.filter((other) => other !== id) }
    draft.seq += 1
    const node = graph.nodes.get(id)!
    const end = draft.seq > nodesAtMost ? tooLong(node) : enter(graph, draft, node, commands)
    if (end !== undefined) return [draft, [...commands, end]]
  }
}

const tooLong = (node: FlowNode): StepCommand => ({
  kind: 'fail',
  error: failureOf(node, `more than ${nodesAtMost} nodes have run: the execution is taken for one without an end`, []),
})

function earliest({ rank }: Graph, ready: readonly string[]): string | undefined {
  return ready.length < 2 ? ready[0] : ready.reduce((a, b) => (rank.get(a)! <= rank.get(b)! ? a : b))
}

/** Runs a node that only computes, or says which part has to run it; gives the command that ends the step, if any. */
function enter(graph: Graph, draft: StateDraft, node: FlowNode, commands: StepCommand[]): StepCommand | undefined {
  const { id, type, data } = node
  const at = { seq: draft.seq, step: stepOf(draft, id), node }
  const known = Object.hasOwn(nodeTypes, type) ? nodeTypes[type] : undefined
  const scope = scopeOf(draft)
  const room = openRoom()
  let input: TemplateScope = {}
  try {
    if (type !== 'trigger') input = inputOf(type, data, scope, room)
  } catch (error) {
    return refused(graph, draft, at, commands, input, error)
  } finally {
    draft.work += takenOf(room)
  }
  if (isStructure(type)) return within(graph, draft, at, commands, input, () => open(graph, draft, node, scope))
  const give = known?.effect === 'none' && data.transformType !== 'script' ? known.give : undefined
  if (type === 'trigger') {
    commands.push({ kind: 'note', ...at, input, output: draft.trigger })
    return settle(graph, draft, node, draft.trigger)
  }
  if (give !== undefined)
    return within(graph, draft, at, commands, input, () => {
      const own = openRoom()
      try {
        const output = give(input, scope, own)
        if (jsonSize(output, largestOutput) > largestOutput)
          throw new NodeError(`The output is larger than ${largestOutput} characters`)
        return output
      } finally {
        draft.work += takenOf(own)
      }
    })
  draft.running = { nodeId: id, seq: at.seq, step: at.step, input }
  return { kind: 'run', ...at, input, scope }
}

/** Does what cannot wait; what it throws fails the node. */
function within(
  graph: Graph,
  draft: StateDraft,
  at: Pick<StepNote, 'seq' | 'step' | 'node'>,
  commands: StepCommand[],
  input: unknown,
  work: () => unknown,
): StepCommand | undefined {
  let output: unknown
  try {
    output = work()
  } catch (error) {
    return refused(graph, draft, at, commands, input, error)
  }
  // A loop and a try say at their end what became of them.
  if (output !== later) commands.push({ kind: 'note', ...at, input, output })
  return isStructure(at.node.type) ? undefined : settle(graph, draft, at.node, output)
}

function refused(
  graph: Graph,
  draft: StateDraft,
  at: Pick<StepNote, 'seq' | 'step' | 'node'>,
  commands: StepCommand[],
  input: unknown,
  error: unknown,
): StepCommand | undefined {
  if (!(error instanceof NodeError) && !(error instanceof TypeError)) throw error
  commands.push({ kind: 'note', ...at, input, error: error.message })
  return fail(graph, draft, at.node, error.message)
}

const later = Symbol('later')

/** Goes into the body of a node. */
function open(graph: Graph, draft: StateDraft, node: FlowNode, scope: TemplateScope): unknown {
  if (node.type === 'condition') {
    const room = openRoom()
    const result = holds(node.data, scope, { room })
    draft.work += takenOf(room)
    draft.outputs[node.id] = { result }
    push(graph, draft, node, String(result))
    return { result }
  }
  if (node.type === 'try') {
    push(graph, draft, node, 'try', { branch: 'try' })
    return later
  }
  const { items, first, total } = iterationsOf(inputOf(node.type, node.data, scope), scope)
  const loop = { items, first, total, index: 0, results: undefined, size: 0, last: null, lastSize: 0 }
  if (total > 0) push(graph, draft, node, 'loop', { loop })
  else draft.frames.push({ nodeId: node.id, ready: [], loop })
  return later
}

function push(graph: Graph, draft: StateDraft, node: FlowNode, handle: string, more: Partial<Frame> = {}): void {
  draft.frames.push({ nodeId: node.id, ready: [], ...more })
  go(graph, draft, node, handle)
}

/** Has what follows at a handle run next, and ends the bodies that it ends. */
function go(graph: Graph, draft: StateDraft, node: FlowNode, handle: string): void {
  const { to, ends } = graph.follow(node, handle)
  const frame = draft.frames.at(-1)!
  if (to.length > 0) draft.frames[draft.frames.length - 1] = { ...frame, ready: [...new Set([...frame.ready, ...to])] }
  for (const end of ends) {
    const place = draft.frames.findLastIndex(({ nodeId }) => nodeId === end)
    if (place > 0) draft.frames.length = place + 1
  }
}

/** Keeps what a node gave, and goes on after it; gives the end of an execution that holds too much. */
function settle(graph: Graph, draft: StateDraft, node: FlowNode, output: unknown): StepCommand | undefined {
  const size = jsonSize(output, mostHeld)
  draft.work += size
  draft.outputs[node.id] = output
  draft.sizes[node.id] = size
  if (heldBy(draft) > mostHeld) {
    draft.outputs[node.id] = null
    draft.sizes[node.id] = 0
    return fail(graph, draft, node, `The execution holds more than ${mostHeld} characters: ask for less`)
  }
  if (node.type === 'variable') draft.variables = { ...draft.variables, ...(output as { variables: object }).variables }
  if (node.type === 'respond') draft.response = output
  noteLast(draft, output, size)
  go(graph, draft, node, 'done')
  return undefined
}

const heldBy = ({ sizes, frames }: StateDraft): number =>
  Object.values(sizes).reduce((a, b) => a + b, 0) + frames.reduce((sum, { loop }) => sum + (loop?.size ?? 0), 0)

function noteLast(draft: StateDraft, last: unknown, lastSize: number): void {
  const place = draft.frames.findLastIndex(({ loop }) => loop !== undefined)
  const frame = draft.frames[place]
  if (frame?.loop !== undefined) draft.frames[place] = { ...frame, loop: { ...frame.loop, last, lastSize } }
}

/** Nothing is left to run in a body: the next iteration begins, or what comes after. */
function endOfBody(graph: Graph, draft: StateDraft, frame: Frame, commands: StepCommand[]): StepCommand | undefined {
  const node = graph.nodes.get(frame.nodeId!)!
  const { loop } = frame
  if (loop !== undefined && loop.total > 0) {
    const results = { output: loop.last, before: loop.results }
    const index = loop.index + 1
    const next = { ...loop, results, index, size: loop.size + loop.lastSize, last: null, lastSize: 0 }
    draft.frames[draft.frames.length - 1] = { ...frame, loop: next }
    if (index < loop.total) go(graph, draft, node, 'loop')
    else {
      draft.frames.pop()
      return leave(graph, draft, node, { results: listOf(results), total: loop.total }, commands)
    }
    return undefined
  }
  draft.frames.pop()
  if (loop !== undefined) return leave(graph, draft, node, { results: [], total: 0 }, commands)
  if (node.type === 'try') return leave(graph, draft, node, { success: frame.branch === 'try' }, commands)
  go(graph, draft, node, 'done')
  return undefined
}

function listOf(given: Given | undefined): readonly unknown[] {
  const list: unknown[] = []
  for (let one = given; one !== undefined; one = one.before) list.push(one.output)
  return list.reverse()
}

function leave(
  graph: Graph,
  draft: StateDraft,
  node: FlowNode,
  output: object,
  commands: StepCommand[],
): StepCommand | undefined {
  draft.seq += 1
  commands.push({ kind: 'note', seq: draft.seq, step: stepOf(draft, node.id), node, input: {}, output })
  return settle(graph, draft, node, output)
}

/** The innermost `try` around the node goes on with its other branch; without one the execution has failed. */
function fail(graph: Graph, draft: StateDraft, node: FlowNode, message: string): StepCommand | undefined {
  const error = failureOf(node, message, draft.frames)
  const place = draft.frames.findLastIndex(({ branch }) => branch === 'try')
  if (place < 0) return { kind: 'fail', error, ...(message !== error.message && { said: message }) }
  draft.error = error
  const caught = graph.nodes.get(draft.frames[place]!.nodeId!)!
  draft.frames.length = place
  push(graph, draft, caught, 'catch', { branch: 'catch' })
  return undefined
}

function failureOf({ id, label, type, data }: FlowNode, message: string, frames: readonly Frame[]): NodeFailure {
  const around = frames.flatMap(({ nodeId, loop }) =>
    nodeId === undefined ? [] : [`    in ${nodeId}${loop === undefined ? '' : ` (iteration ${loop.index})`}`],
  )
  const place = `    at ${label === '' ? type : label} (${id})`
  // Templates carry the message to others, who are not to be told of places in a script.
  return {
    message: isScript(type, data) ? withoutPlace(message) : message,
    nodeId: id,
    stack: [message, place, ...around.reverse()].join('\n'),
  }
}

/** The node and the iterations that it is in: one place of an execution. */
function stepOf({ frames }: State, id: string): string {
  const indices = frames.flatMap(({ loop }) => (loop === undefined ? [] : [loop.index]))
  return indices.length === 0 ? id : `${id}@${indices.join('.')}`
}

/** Whether a handle is one of the node's. */
export function handlesOf(type: string): readonly string[] {
  return isStructure(type) ? [...structures[type]!.into, 'done'] : ['done']
}
