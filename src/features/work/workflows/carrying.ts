import type { Graph } from './flow.ts'
import type { KeptNode } from './queries.ts'
import { begin, goOn, type NodeResult, type State, type StepCommand, step } from './step.ts'

/**
 * Which results of an execution go with it to another version of its workflow. Pure: the other version runs on the results that are
 * kept, and does nothing.
 */

/** `carried`: the places of the results. Nodes that only compute have none: the other version computes them anew. */
export type Carrying =
  | { readonly carried: readonly number[] }
  | { readonly refusal: string; readonly nodes: readonly string[] }

type CarryingFrom = Parameters<typeof begin>[1] & {
  /** In their order. */
  readonly ran: readonly KeptNode[]
}

/**
 * The results that `graph` goes on with at the node where the execution ended, or a refusal where it would not come to that node by
 * the nodes that have run. Yields where others may have their turn.
 */
export function* carryingTo(graph: Graph, { ran, ...beginning }: CarryingFrom): Generator<undefined, Carrying> {
  const unlike = unlikeIn(graph, ran)
  if (unlike !== undefined) return unlike
  const carried: number[] = []
  let next = 0
  let [state, commands] = begin(graph, beginning)
  for (;;) {
    yield
    for (const command of commands) {
      const expected = ran[next]
      if (expected === undefined) return { carried }
      if (command.kind === 'complete' || command.kind === 'fail') return endsBefore(ran.slice(next), command)
      if (command.kind === 'pause') continue
      // What only computes need not have been kept.
      if (command.kind === 'note' && command.seq < expected.seq) continue
      if (command.seq !== expected.seq || command.step !== expected.step)
        return elsewhere(state, command, ran, expected)
      if (command.kind === 'run') continue
      if (command.error !== undefined && expected.status === 'success') return failsAt(command)
      next += 1
    }
    const last = commands.at(-1)!
    if (last.kind === 'pause') {
      ;[state, commands] = goOn(graph, state)
      continue
    }
    const row = ran[next]
    if (row === undefined || last.kind !== 'run') return { carried }
    const result = resultOf(row)
    const after = result && step(graph, state, result)
    const isEnd = after === undefined || ('error' in result! && endsAt(after[1], row))
    if (isEnd && next === ran.length - 1) return { carried }
    if (isEnd) return endsBefore(ran.slice(next + 1), { kind: 'fail' })
    carried.push(row.seq)
    next += 1
    // The first command is the result itself.
    ;[state, commands] = [after[0], after[1].slice(1)]
  }
}

/** Nodes that have run and are not there, or are something else; the one where the execution ended may be replaced. */
function unlikeIn({ nodes }: Graph, ran: readonly KeptNode[]): Carrying | undefined {
  const missing = idsOf(ran.filter(({ nodeId }) => !nodes.has(nodeId)))
  if (missing.length > 0)
    return { refusal: `The current version lacks nodes that have run: ${missing.join(', ')}`, nodes: missing }
  const kept = ran.at(-1)?.status === 'success' ? ran : ran.slice(0, -1)
  const changed = idsOf(kept.filter(({ nodeId, nodeType }) => nodes.get(nodeId)!.type !== nodeType))
  if (changed.length === 0) return undefined
  return {
    refusal: `Nodes that have run are of another type in the current version: ${changed.join(', ')}`,
    nodes: changed,
  }
}

const idsOf = (ran: readonly KeptNode[]): readonly string[] => [...new Set(ran.map(({ nodeId }) => nodeId))]

/** Undefined for a node that was begun, and no more. */
function resultOf({ status, outputData, errorMessage }: KeptNode): NodeResult | undefined {
  if (status === 'success') return { output: outputData }
  return status === 'failed' ? { error: errorMessage ?? 'failed' } : undefined
}

/** Whether nothing around the node catches its failure. */
const endsAt = ([, second]: readonly StepCommand[], { nodeId }: KeptNode): boolean =>
  second?.kind === 'fail' && second.error.nodeId === nodeId

const failsAt = ({ node: { id } }: Arriving): Carrying => ({
  refusal: `The current version would fail at ${id}, which has run`,
  nodes: [id],
})

function endsBefore(left: readonly KeptNode[], { kind }: { readonly kind: 'complete' | 'fail' }): Carrying {
  const nodes = idsOf(left)
  const end = kind === 'fail' ? 'fail' : 'be complete'
  return { refusal: `The current version would ${end} before nodes that have run: ${nodes.join(', ')}`, nodes }
}

type Arriving = Extract<StepCommand, { kind: 'note' | 'run' }>

function elsewhere(state: State, { seq, node }: Arriving, ran: readonly KeptNode[], expected: KeptNode): Carrying {
  const known = new Set(idsOf(ran))
  // The bodies that it is in were begun before it, and are noted when they end.
  const entered = state.frames.flatMap(({ nodeId }) => (nodeId === undefined || known.has(nodeId) ? [] : [nodeId]))
  const id = seq > expected.seq ? (entered.at(-1) ?? node.id) : node.id
  if (id === expected.nodeId)
    return { refusal: `The current version would run ${id} in another body than it has run in`, nodes: [id] }
  return {
    refusal: `The current version would run ${id} before ${expected.nodeId}, which ran without it`,
    nodes: [id, expected.nodeId],
  }
}
