import { isObject } from '../../../query/guards.ts'

/** A graph as it is stored, and as executions read it. Pure. */

export type FlowNode = {
  readonly id: string
  readonly type: string
  readonly label: string
  readonly data: Readonly<Record<string, unknown>>
}

type FlowEdge = {
  readonly source: string
  readonly target: string
  readonly sourceHandle: string | undefined
  readonly targetHandle: string | undefined
}

export type Flow = { readonly nodes: readonly FlowNode[]; readonly edges: readonly FlowEdge[] }

/** A problem of a workflow; `nodeId` if it concerns one node. */
export type WorkflowProblem = { readonly message: string; readonly nodeId?: string; readonly code: string }

const nodesAtMost = 500
const bytesAtMost = 1_048_576
/** How deep data of nodes may be nested. */
const deepest = 64

/** Reads stored flow data; what is wrong with its shape goes to `problems`, and is left out. */
export function readFlow(data: unknown, problems: WorkflowProblem[]): Flow {
  const note = (message: string, nodeId?: string) =>
    void problems.push({ code: 'shape', message, ...(nodeId !== undefined && { nodeId }) })
  if (!isObject(data)) {
    note('flow_data must be an object with nodes and edges')
    return { nodes: [], edges: [] }
  }
  if (isTooDeep(data, deepest)) note(`flow_data is nested more than ${deepest} deep`)
  else if (JSON.stringify(data).length > bytesAtMost) note('flow_data is larger than 1 MB')
  const { nodes = [], edges = [] } = data
  if (!Array.isArray(nodes)) note('flow_data.nodes must be an array')
  if (!Array.isArray(edges)) note('flow_data.edges must be an array')
  if (problems.length > 0) return { nodes: [], edges: [] }
  if ((nodes as unknown[]).length > nodesAtMost) note(`At most ${nodesAtMost} nodes`)
  if ((edges as unknown[]).length > nodesAtMost * 4) note(`At most ${nodesAtMost * 4} edges`)
  const read = (nodes as unknown[]).flatMap((node, i) => readNode(node, i, note))
  const seen = new Set<string>()
  for (const { id } of read) {
    if (seen.has(id)) note(`There are several nodes with the id ${id}`, id)
    seen.add(id)
  }
  return { nodes: read, edges: (edges as unknown[]).flatMap((edge, i) => readEdge(edge, i, seen, note)) }
}

type Note = (message: string, nodeId?: string) => void

function readNode(node: unknown, index: number, note: Note): FlowNode[] {
  if (!isObject(node) || typeof node.id !== 'string' || node.id === '' || node.id.length > 100) {
    note(`Node ${index} needs an id of 1 to 100 characters`)
    return []
  }
  const { id, type, data = {} } = node
  if (typeof type !== 'string') note('The node has no type', id)
  if (!isObject(data)) note('The data of the node must be an object', id)
  if (typeof type !== 'string' || !isObject(data)) return []
  const label = typeof data.label === 'string' ? data.label.slice(0, 200) : ''
  return [{ id, type, label, data }]
}

function readEdge(edge: unknown, index: number, ids: ReadonlySet<string>, note: Note): FlowEdge[] {
  if (!isObject(edge) || typeof edge.source !== 'string' || typeof edge.target !== 'string') {
    note(`Edge ${index} needs a source and a target`)
    return []
  }
  const { source, target, data } = edge
  for (const id of [source, target])
    if (!ids.has(id)) {
      note(`Edge ${index} leads from or to a node that there is not: ${id}`)
      return []
    }
  const condition = isObject(data) && data.condition != null ? String(data.condition) : undefined
  const sourceHandle = textOr(edge.sourceHandle) ?? condition
  return [{ source, target, sourceHandle, targetHandle: textOr(edge.targetHandle) }]
}

const textOr = (value: unknown): string | undefined => (typeof value === 'string' && value !== '' ? value : undefined)

function isTooDeep(value: unknown, left: number): boolean {
  if (value === null || typeof value !== 'object') return false
  return left === 0 || Object.values(value).some((one) => isTooDeep(one, left - 1))
}

/** Nodes that have a body, by the handles that lead into it; it comes back at `…-end`, and goes on at `done`. */
export const structures: Readonly<Record<string, { readonly into: readonly string[]; readonly end: string }>> = {
  condition: { into: ['true', 'false'], end: 'condition-end' },
  loop: { into: ['loop'], end: 'loop-end' },
  try: { into: ['try', 'catch'], end: 'try-end' },
}

export const isStructure = (type: string): boolean => Object.hasOwn(structures, type)

/** A flow as executions walk it. */
export type Graph = {
  readonly trigger: FlowNode
  readonly nodes: ReadonlyMap<string, FlowNode>
  /** The order of running: no edge leads from a later node to an earlier one, except edges that come back. */
  readonly rank: ReadonlyMap<string, number>
  /** Where a handle leads: to nodes that begin, and to bodies that end. Nodes without bodies have the handle `done`. */
  follow(node: FlowNode, handle: string): { readonly to: readonly string[]; readonly ends: readonly string[] }
}

/** Throws for a flow without exactly one trigger, or with a circle: one that is active has been validated. */
export function graphOf({ nodes, edges }: Flow): Graph {
  const byId = new Map(nodes.map((node) => [node.id, node]))
  const [trigger, another] = nodes.filter(({ type }) => type === 'trigger')
  if (trigger === undefined || another !== undefined) throw new TypeError('the workflow needs exactly one trigger node')
  const { order, circle } = topology({ nodes, edges })
  if (circle.length > 0) throw new TypeError('the workflow has a circle')
  const outgoing = Map.groupBy(edges, ({ source }) => source)
  const walks = new Map<string, { to: readonly string[]; ends: readonly string[] }>()
  return {
    trigger,
    nodes: byId,
    rank: new Map(order.map((id, i) => [id, i])),
    follow(node, handle) {
      const key = `${node.id} ${handle}`
      const known = walks.get(key)
      if (known !== undefined) return known
      const taken = (outgoing.get(node.id) ?? []).filter((edge) => handleOf(node, edge) === handle)
      const ends = taken.filter((edge) => isReturn(byId, edge)).map(({ target }) => target)
      const to = taken.filter((edge) => !isReturn(byId, edge)).map(({ target }) => target)
      const walk = { to, ends }
      walks.set(key, walk)
      return walk
    },
  }
}

/** Of a node without a body every edge goes on from its end. */
export function handleOf({ type }: FlowNode, { sourceHandle }: FlowEdge): string {
  return isStructure(type) ? (sourceHandle ?? 'done') : 'done'
}

/** Whether an edge comes back to the node whose body it ends. */
export function isReturn(nodes: ReadonlyMap<string, FlowNode>, { target, targetHandle }: FlowEdge): boolean {
  const type = nodes.get(target)?.type ?? ''
  return isStructure(type) && targetHandle === structures[type]!.end
}

/** The nodes so that edges lead forward, and those that are on a circle or after one. */
export function topology({ nodes, edges }: Flow): { order: readonly string[]; circle: readonly string[] } {
  const byId = new Map(nodes.map((node) => [node.id, node]))
  const forward = edges.filter((edge) => !isReturn(byId, edge))
  const waitsFor = new Map(nodes.map(({ id }) => [id, 0]))
  for (const { target } of forward) waitsFor.set(target, waitsFor.get(target)! + 1)
  const from = Map.groupBy(forward, ({ source }) => source)
  const order: string[] = []
  const free = nodes.filter(({ id }) => waitsFor.get(id) === 0).map(({ id }) => id)
  for (let id = free.shift(); id !== undefined; id = free.shift()) {
    order.push(id)
    for (const { target } of from.get(id) ?? []) {
      const left = waitsFor.get(target)! - 1
      waitsFor.set(target, left)
      if (left === 0) free.push(target)
    }
  }
  const done = new Set(order)
  return { order, circle: nodes.flatMap(({ id }) => (done.has(id) ? [] : [id])) }
}
