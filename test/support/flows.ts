/** An edge: from, to, and the handles where they matter. */
export type Edge = readonly [from: string, to: string, sourceHandle?: string, targetHandle?: string]

export const node = (id: string, type: string, data: object = {}) => ({ id, type, position: { x: 0, y: 0 }, data })

/** The graph of a workflow; its trigger is `start`. */
export const flowOf = (nodes: readonly object[], edges: readonly Edge[]) => ({
  nodes: [node('start', 'trigger'), ...nodes],
  edges: edges.map(([source, target, sourceHandle, targetHandle], i) => ({
    ...{ id: `e${i}`, source, target },
    ...(sourceHandle && { sourceHandle }),
    ...(targetHandle && { targetHandle }),
  })),
})

/** Nodes one after the other. */
export const chain = (...nodes: readonly { readonly id: string }[]) =>
  flowOf(
    nodes,
    nodes.map(({ id }, i): Edge => [i === 0 ? 'start' : nodes[i - 1]!.id, id]),
  )
