import type { Catalog } from '../../../catalog/catalog.ts'
import {
  type Flow,
  type FlowNode,
  handleOf,
  isReturn,
  isStructure,
  readFlow,
  structures,
  topology,
  type WorkflowProblem,
} from './flow.ts'
import { isScript, nodeTypes } from './nodes.ts'
import { handlesOf } from './step.ts'
import { type Trigger, triggerProblems } from './trigger.ts'

/** Every rule that an active workflow keeps, each problem with its node. Pure. */

/** The surroundings that decide beside the workflow itself. */
export type Surroundings = {
  readonly catalog: Catalog
  /** Why there are no scripts; undefined where they run. */
  readonly scriptsRefusal: string | undefined
  /** Types of extensions, and what each says of data. */
  readonly extensionNodes: ReadonlyMap<string, (data: unknown) => readonly string[]>
}

type ValidationResult = {
  readonly valid: boolean
  readonly errors: readonly WorkflowProblem[]
  readonly warnings: readonly WorkflowProblem[]
}

/** Checks the stored parts: shape, sizes and known types. A draft needs no more. */
export function checkShape(
  flowData: unknown,
  around: Pick<Surroundings, 'extensionNodes'>,
): { flow: Flow; errors: WorkflowProblem[] } {
  const errors: WorkflowProblem[] = []
  const flow = readFlow(flowData, errors)
  for (const { id, type } of flow.nodes)
    if (!isKnown(type, around))
      errors.push({ code: 'unknown_type', message: `There is no node type ${type}`, nodeId: id })
  return { flow, errors }
}

/** All rules; `trigger` where they are about a whole workflow and not only its graph. */
export function validate(flowData: unknown, around: Surroundings, trigger?: Trigger): ValidationResult {
  const { flow, errors } = checkShape(flowData, around)
  const warnings: WorkflowProblem[] = []
  if (flow.nodes.length > 0 || errors.length === 0) checkGraph(flow, errors, warnings)
  const isBefore = trigger !== undefined && runsBefore(trigger)
  for (const node of flow.nodes) checkNode(node, { around, isBefore, errors, warnings })
  if (trigger !== undefined) errors.push(...triggerProblems(trigger, around.catalog))
  return { valid: errors.length === 0, errors, warnings }
}

/** Whether it runs within the change that triggers it. */
export const runsBefore = ({ trigger_type, trigger_hook_action }: Trigger): boolean =>
  trigger_type === 'hook' && trigger_hook_action != null && !trigger_hook_action.endsWith('.after')

const isKnown = (type: string, { extensionNodes }: Pick<Surroundings, 'extensionNodes'>): boolean =>
  Object.hasOwn(nodeTypes, type) || extensionNodes.has(type)

function checkGraph(flow: Flow, errors: WorkflowProblem[], warnings: WorkflowProblem[]): void {
  const { nodes, edges } = flow
  const note = (code: string, message: string, nodeId?: string) =>
    void errors.push({ code, message, ...(nodeId !== undefined && { nodeId }) })
  const triggers = nodes.filter(({ type }) => type === 'trigger')
  if (triggers.length !== 1) note('trigger', 'A workflow needs exactly one trigger node', triggers[1]?.id)
  const byId = new Map(nodes.map((node) => [node.id, node]))
  const outgoing = Map.groupBy(edges, ({ source }) => source)
  const incoming = new Set(edges.filter((edge) => !isReturn(byId, edge)).map(({ target }) => target))
  for (const { id } of triggers) {
    if ((outgoing.get(id) ?? []).length !== 1) note('trigger', 'The trigger must have exactly one outgoing edge', id)
    if (incoming.has(id)) note('trigger', 'No edge may lead into the trigger', id)
  }
  for (const { id, type } of nodes)
    if (type !== 'trigger' && !incoming.has(id)) note('no_incoming', 'The node has no incoming edge', id)
  const reached = reachable(flow, triggers[0]?.id)
  for (const { id, type } of nodes)
    if (type !== 'trigger' && incoming.has(id) && !reached.has(id))
      note('disconnected', 'The node cannot be reached from the trigger', id)
  for (const id of topology(flow).circle) note('cycle', 'The node is part of a circle, or behind one', id)
  checkHandles(flow, byId, note)
  for (const { id, type } of nodes) {
    const into = isStructure(type) ? structures[type]!.into : []
    const taken = (outgoing.get(id) ?? []).map((edge) => handleOf(byId.get(id)!, edge))
    if (into.length > 0 && !into.some((handle) => taken.includes(handle)))
      warnings.push({ code: 'empty_body', message: `Nothing is connected to ${into.join(' or ')}`, nodeId: id })
  }
}

function checkHandles(
  { edges }: Flow,
  byId: ReadonlyMap<string, FlowNode>,
  note: (code: string, message: string, nodeId?: string) => void,
): void {
  for (const edge of edges) {
    const source = byId.get(edge.source)!
    if (isStructure(source.type) && !handlesOf(source.type).includes(handleOf(source, edge)))
      note(
        'handle',
        `The node has no handle ${edge.sourceHandle}; it has ${handlesOf(source.type).join(', ')}`,
        source.id,
      )
    const { targetHandle = '' } = edge
    if (/^(condition|loop|try)-end$/.test(targetHandle) && !isReturn(byId, edge))
      note('handle', `The node has no handle ${targetHandle}`, edge.target)
  }
}

function reachable({ edges }: Flow, from: string | undefined): ReadonlySet<string> {
  const outgoing = Map.groupBy(edges, ({ source }) => source)
  const reached = new Set(from === undefined ? [] : [from])
  for (const id of reached) for (const { target } of outgoing.get(id) ?? []) reached.add(target)
  return reached
}

type Checking = {
  readonly around: Surroundings
  readonly isBefore: boolean
  readonly errors: WorkflowProblem[]
  readonly warnings: WorkflowProblem[]
}

function checkNode({ id, type, data }: FlowNode, { around, isBefore, errors, warnings }: Checking): void {
  const note = (code: string, message: string) => void errors.push({ code, message, nodeId: id })
  const known = Object.hasOwn(nodeTypes, type) ? nodeTypes[type]! : undefined
  if (known === undefined) {
    for (const message of around.extensionNodes.get(type)?.(data) ?? []) note('config', message)
    if (isBefore && around.extensionNodes.has(type))
      note('before_hook', `${type} cannot be part of a change that is still being made: use the .after action`)
    return
  }
  known.check(data, (message) => note('config', message))
  const reason = isBefore ? known.notBefore?.(data) : undefined
  if (reason !== undefined) note('before_hook', `${type}: ${reason}`)
  if (isScript(type, data) && around.scriptsRefusal !== undefined) note('scripts', around.scriptsRefusal)
  warnings.push(...(known.doubts?.(data) ?? []).map((doubt) => ({ ...doubt, nodeId: id })))
  const { collection } = data
  if (
    typeof collection === 'string' &&
    collection !== '' &&
    !collection.includes('{{') &&
    !around.catalog.collections.has(collection)
  )
    warnings.push({ code: 'unknown_collection', message: `There is no collection ${collection}`, nodeId: id })
}
