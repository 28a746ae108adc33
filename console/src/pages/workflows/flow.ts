import { sameValue } from '../data/values.ts'

/** A graph as it is stored. Members that this page does not know are kept as they are. */
export type FlowNode = {
  readonly id: string
  readonly type: string
  readonly position?: Point
  readonly data: Readonly<Record<string, unknown>>
}

export type FlowEdge = {
  readonly id: string
  readonly source: string
  readonly target: string
  readonly sourceHandle?: string
  readonly targetHandle?: string
}

export type Flow = { readonly nodes: readonly FlowNode[]; readonly edges: readonly FlowEdge[] }

export type Point = { readonly x: number; readonly y: number }

/** Kinds with bodies: the handles that lead into one, and where it comes back. */
const bodies: Readonly<Record<string, { readonly into: readonly string[]; readonly end: string }>> = {
  condition: { into: ['true', 'false'], end: 'condition-end' },
  loop: { into: ['loop'], end: 'loop-end' },
  try: { into: ['try', 'catch'], end: 'try-end' },
}

/** The nodes that may follow a node of a kind. */
export const handlesOf = (type: string): readonly string[] =>
  Object.hasOwn(bodies, type) ? [...bodies[type]!.into, 'done'] : ['done']

export const nameOf = ({ id, data }: FlowNode): string =>
  typeof data.label === 'string' && data.label !== '' ? data.label : id

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

const isPoint = (value: unknown): value is Point =>
  isObject(value) && Number.isFinite(value.x) && Number.isFinite(value.y)

/** Reads what is stored; what is no node or edge at all is left out, and said by the server's validation. */
export function readFlow(stored: unknown): Flow {
  const { nodes, edges } = isObject(stored) ? stored : {}
  const read = (Array.isArray(nodes) ? nodes : []).flatMap((node: unknown): FlowNode[] => {
    if (!isObject(node) || typeof node.id !== 'string' || typeof node.type !== 'string') return []
    const { position, data, ...rest } = node as Record<string, unknown> & FlowNode
    return [{ ...rest, ...(isPoint(position) && { position }), data: isObject(data) ? data : {} }]
  })
  const ids = new Set(read.map(({ id }) => id))
  const taken = new Set<string>()
  const links = (Array.isArray(edges) ? edges : []).flatMap((edge: unknown): FlowEdge[] => {
    if (!isObject(edge) || !ids.has(String(edge.source)) || !ids.has(String(edge.target))) return []
    const id = typeof edge.id === 'string' && !taken.has(edge.id) ? edge.id : freeId('edge', taken)
    taken.add(id)
    return [{ ...(edge as FlowEdge), id }]
  })
  return { ...(isObject(stored) ? stored : {}), nodes: read, edges: links }
}

/** The handle that an edge leaves by. Kinds without bodies have one. */
export function handleOf(flow: Flow, edge: FlowEdge): string {
  const type = flow.nodes.find(({ id }) => id === edge.source)?.type ?? ''
  const { data } = edge as { data?: { condition?: unknown } }
  const condition = data?.condition == null ? undefined : String(data.condition)
  return Object.hasOwn(bodies, type) ? (edge.sourceHandle ?? condition ?? 'done') : 'done'
}

/** Whether an edge comes back to the node whose body it ends. */
export function isReturn({ nodes }: Flow, { target, targetHandle }: FlowEdge): boolean {
  const type = nodes.find(({ id }) => id === target)?.type ?? ''
  return Object.hasOwn(bodies, type) && bodies[type]!.end === targetHandle
}

function reaches({ edges }: Flow, from: string, to: string): boolean {
  const seen = new Set([from])
  for (const id of seen) for (const { source, target } of edges) if (source === id) seen.add(target)
  return seen.has(to)
}

function freeId(stem: string, taken: ReadonlySet<string>): string {
  let turn = 1
  while (taken.has(`${stem}-${turn}`)) turn += 1
  return `${stem}-${turn}`
}

/** A text that is no value yet, and why; it stands while the option is what it was when it was typed. */
export type BrokenText = {
  readonly node: string
  /** The option; undefined for the whole of the node's data. */
  readonly name: string | undefined
  readonly text: string
  readonly error: string
  readonly of: unknown
}

export type Editing = {
  readonly flow: Flow
  /** At most one of each option. */
  readonly broken: readonly BrokenText[]
  /** As the server has it. */
  readonly saved: Flow
  readonly past: readonly Flow[]
  readonly future: readonly Flow[]
  readonly selected: string | undefined
  /** The node and handle that the next node which is pointed at is connected to. */
  readonly from: { readonly source: string; readonly handle: string } | undefined
  /** What the last change was, where the next one of its kind goes on with it: letters of one word, a node on its way. */
  readonly going: string | undefined
  /** Why the last wish was not fulfilled. */
  readonly refusal: string | undefined
}

export type Action =
  | { readonly do: 'load'; readonly flow: Flow }
  | { readonly do: 'saved'; readonly flow: Flow }
  | { readonly do: 'select'; readonly id: string | undefined }
  | { readonly do: 'add'; readonly type: string }
  | { readonly do: 'remove'; readonly id: string }
  | { readonly do: 'change'; readonly id: string; readonly name: string; readonly value: unknown }
  | { readonly do: 'replace'; readonly id: string; readonly data: Readonly<Record<string, unknown>> }
  | { readonly do: 'move'; readonly id: string; readonly to: Point; readonly places: ReadonlyMap<string, Point> }
  | { readonly do: 'arrange' }
  | { readonly do: 'begin'; readonly source: string; readonly handle: string }
  | { readonly do: 'leave' }
  | { readonly do: 'connect'; readonly source: string; readonly handle: string; readonly target: string }
  | { readonly do: 'disconnect'; readonly edge: string }
  | { readonly do: 'type'; readonly broken: Omit<BrokenText, 'of'> }
  | { readonly do: 'undo' | 'redo' | 'rest' }

const mostSteps = 200

export const opened = (flow: Flow): Editing => ({
  ...{ flow, saved: flow, past: [], future: [], broken: [] },
  ...{ selected: undefined, from: undefined, going: undefined, refusal: undefined },
})

export const isDirty = (state: Editing): boolean => state.flow !== state.saved || brokenIn(state).length > 0

/** The texts that are no values, in the options as they are now. While there is one, nothing is saved. */
export const brokenIn = ({ flow, broken }: Editing): readonly BrokenText[] =>
  broken.filter(({ node, name, of }) => {
    const found = flow.nodes.find(({ id }) => id === node)
    return found !== undefined && sameValue(optionOf(found, name), of)
  })

const optionOf = ({ data }: FlowNode, name: string | undefined): unknown => (name === undefined ? data : data[name])

/** How the editor goes on. Pure. */
export function step(state: Editing, action: Action): Editing {
  const still = { ...state, going: undefined, refusal: undefined }
  switch (action.do) {
    case 'load':
      return opened(action.flow)
    case 'saved':
      return { ...still, saved: action.flow }
    case 'select':
      return { ...still, selected: action.id }
    case 'rest':
      return still
    case 'begin':
      return { ...still, from: { source: action.source, handle: action.handle } }
    case 'leave':
      return { ...still, from: undefined }
    case 'undo':
    case 'redo':
      return travelled(still, action.do)
    case 'connect':
      return connected({ ...still, from: undefined }, action)
    case 'add':
      return added(still, action.type)
    case 'type':
      return typed(still, action.broken)
    default:
      return changed(state, action)
  }
}

function typed(state: Editing, text: Omit<BrokenText, 'of'>): Editing {
  const node = state.flow.nodes.find(({ id }) => id === text.node)
  if (node === undefined) return state
  return { ...state, broken: [...without(state.broken, text), { ...text, of: optionOf(node, text.name) }] }
}

const without = (broken: Editing['broken'], { node, name }: Pick<BrokenText, 'node' | 'name'>) =>
  broken.filter((one) => one.node !== node || one.name !== name)

type Change = Extract<Action, { do: 'remove' | 'change' | 'replace' | 'move' | 'arrange' | 'disconnect' }>

function changed(state: Editing, action: Change): Editing {
  const { nodes, edges } = state.flow
  const withNode = (id: string, next: (node: FlowNode) => FlowNode) =>
    nodes.map((node) => (node.id === id ? next(node) : node))
  switch (action.do) {
    case 'remove': {
      const rest = nodes.filter(({ id }) => id !== action.id)
      const links = edges.filter(({ source, target }) => source !== action.id && target !== action.id)
      const selected = state.selected === action.id ? undefined : state.selected
      const from = state.from?.source === action.id ? undefined : state.from
      return written({ ...state, selected, from }, { nodes: rest, edges: links })
    }
    case 'change': {
      const { name, value } = action
      const { [name]: _former, ...others } = nodes.find(({ id }) => id === action.id)?.data ?? {}
      const data = value === undefined ? others : { ...others, [name]: value }
      const next = withNode(action.id, (node) => ({ ...node, data }))
      const broken = without(state.broken, { node: action.id, name })
      return written({ ...state, broken }, { nodes: next }, `change ${action.id} ${name}`)
    }
    case 'replace': {
      const broken = without(state.broken, { node: action.id, name: undefined })
      const next = withNode(action.id, (node) => ({ ...node, data: action.data }))
      return written({ ...state, broken }, { nodes: next })
    }
    case 'move': {
      // From here on all of them stand where they are seen: one alone would make the others jump.
      const next = nodes.map((node) => {
        const position = node.id === action.id ? action.to : (action.places.get(node.id) ?? node.position)
        return position === undefined ? node : { ...node, position }
      })
      return written(state, { nodes: next }, `move ${action.id}`)
    }
    case 'arrange':
      return written(state, { nodes: nodes.map(({ position: _position, ...node }) => node) })
    case 'disconnect':
      return written(state, { edges: edges.filter(({ id }) => id !== action.edge) })
  }
}

function written(state: Editing, change: Partial<Flow>, going?: string): Editing {
  const flow = { ...state.flow, ...change }
  const goesOn = going !== undefined && going === state.going
  const past = goesOn ? state.past : [...state.past, state.flow].slice(-mostSteps)
  return { ...state, flow, past, future: [], going, refusal: undefined }
}

function travelled(state: Editing, way: 'undo' | 'redo'): Editing {
  const [back, forth] = way === 'undo' ? [state.past, state.future] : [state.future, state.past]
  const flow = back.at(-1)
  if (flow === undefined) return state
  const has = (id: string | undefined) => flow.nodes.some((node) => node.id === id)
  const [past, future] =
    way === 'undo' ? [back.slice(0, -1), [...forth, state.flow]] : [[...forth, state.flow], back.slice(0, -1)]
  const selected = has(state.selected) ? state.selected : undefined
  return { ...state, flow, past, future, selected, from: has(state.from?.source) ? state.from : undefined }
}

/** Another node, after the selected one where nothing is there yet. */
function added(state: Editing, type: string): Editing {
  const { nodes } = state.flow
  const id = freeId(type, new Set(nodes.map((node) => node.id)))
  const before = nodes.find((node) => node.id === (state.from?.source ?? state.selected))
  const near = before?.position ?? nodes.at(-1)?.position
  const made: FlowNode = { id, type, data: {}, ...(near !== undefined && { position: beside(nodes, near) }) }
  const flow = { ...state.flow, nodes: [...nodes, made] }
  const grown = { ...written(state, flow), selected: id, from: undefined }
  if (before === undefined || type === 'trigger') return grown
  const isFree = (handle: string) =>
    !state.flow.edges.some((edge) => edge.source === before.id && handleOf(state.flow, edge) === handle)
  const handle = state.from?.handle ?? handlesOf(before.type).find(isFree)
  if (handle === undefined) return grown
  return { ...connected(grown, { source: before.id, handle, target: id }), past: grown.past }
}

function beside(nodes: readonly FlowNode[], { x, y }: Point): Point {
  const at = { x: x + 250, y }
  const isTaken = () =>
    nodes.some(({ position }) => position && Math.abs(position.x - at.x) < 200 && Math.abs(position.y - at.y) < 80)
  while (isTaken()) at.y += 90
  return at
}

type Wish = { readonly source: string; readonly handle: string; readonly target: string }

function connected(state: Editing, { source, handle, target }: Wish): Editing {
  const { flow } = state
  const refused = (refusal: string): Editing => ({ ...state, refusal })
  const [from, to] = [source, target].map((id) => flow.nodes.find((node) => node.id === id))
  if (from === undefined || to === undefined) return state
  if (to.type === 'trigger') return refused('Nothing leads into the trigger.')
  if (source === target) return refused('A node does not lead to itself.')
  const isSame = (edge: FlowEdge) => edge.source === source && edge.target === target && handleOf(flow, edge) === handle
  if (flow.edges.some(isSame)) return refused(`${nameOf(from)} leads there already.`)
  const isBack = reaches(flow, target, source)
  if (isBack && !Object.hasOwn(bodies, to.type))
    return refused(`${nameOf(to)} comes before ${nameOf(from)}: a circle would never end. Use a loop.`)
  const id = freeId('edge', new Set(flow.edges.map((edge) => edge.id)))
  const edge: FlowEdge = {
    ...{ id, source, target },
    ...(Object.hasOwn(bodies, from.type) && { sourceHandle: handle }),
    ...(isBack && { targetHandle: bodies[to.type]!.end }),
  }
  return written(state, { edges: [...flow.edges, edge] })
}

export type NodeState = 'running' | 'completed' | 'failed'

/** The state of each node after some steps of an execution: what it was last. */
export function statesAfter(
  steps: readonly { readonly nodeId: string; readonly status: string }[],
): ReadonlyMap<string, NodeState> {
  const states = new Map<string, NodeState>()
  for (const { nodeId, status } of steps)
    if (status !== 'skipped')
      states.set(nodeId, status === 'success' ? 'completed' : status === 'failed' ? 'failed' : 'running')
  return states
}
