import { type Flow, type FlowEdge, handleOf, handlesOf, isReturn, type Point } from './flow.ts'

export const nodeSize = { width: 184, height: 60 }
const gap = { x: 76, y: 28 }
const margin = 24

export type Layout = {
  readonly width: number
  readonly height: number
  readonly places: ReadonlyMap<string, Point>
  readonly lines: readonly {
    readonly edge: FlowEdge
    readonly handle: string
    readonly path: string
    readonly middle: Point
  }[]
}

/**
 * Where nodes and edges are drawn: as they are stored, where every node has a place of its own, else in columns in the order of
 * running. Pure, and the same for the same flow.
 */
export function layoutOf(flow: Flow): Layout {
  const places = storedPlaces(flow) ?? arranged(flow)
  const points = [...places.values()]
  return {
    width: Math.max(0, ...points.map(({ x }) => x)) + nodeSize.width + margin * 2,
    height: Math.max(0, ...points.map(({ y }) => y)) + nodeSize.height + margin * 2,
    places,
    lines: flow.edges.map((edge) => lineOf(flow, edge, places)),
  }
}

/** Moved so that nothing stands left of the edge or above it. */
function storedPlaces({ nodes }: Flow): ReadonlyMap<string, Point> | undefined {
  const known = nodes.flatMap(({ id, position }) => (position === undefined ? [] : [[id, position] as const]))
  const isEach =
    known.length === nodes.length && new Set(known.map(([, { x, y }]) => `${x} ${y}`)).size === nodes.length
  if (!isEach || nodes.length === 0) return undefined
  const left = Math.min(margin, ...known.map(([, { x }]) => x))
  const top = Math.min(margin, ...known.map(([, { y }]) => y))
  return new Map(known.map(([id, { x, y }]) => [id, { x: x - left + margin, y: y - top + margin }]))
}

function arranged(flow: Flow): ReadonlyMap<string, Point> {
  const forward = flow.edges.filter((edge) => !isReturn(flow, edge))
  const columns = columnsOf(flow, forward)
  const heights = columns.map((ids) => ids.length * (nodeSize.height + gap.y))
  const tallest = Math.max(0, ...heights)
  return new Map(
    columns.flatMap((ids, column) =>
      ids.map((id, row) => [
        id,
        {
          x: margin + column * (nodeSize.width + gap.x),
          y: margin + (tallest - heights[column]!) / 2 + row * (nodeSize.height + gap.y),
        },
      ]),
    ),
  )
}

/** The longest way to each node; a way that closes a circle counts for nothing. Each column in the order of what leads into it. */
function columnsOf(flow: Flow, forward: readonly FlowEdge[]): readonly (readonly string[])[] {
  const into = Map.groupBy(forward, ({ target }) => target)
  const depths = new Map<string, number>()
  const open = new Set<string>()
  const depthOf = (id: string): number => {
    const known = depths.get(id)
    if (known !== undefined) return known
    open.add(id)
    const before = (into.get(id) ?? []).filter(({ source }) => !open.has(source))
    const depth = Math.max(0, ...before.map(({ source }) => depthOf(source) + 1))
    open.delete(id)
    depths.set(id, depth)
    return depth
  }
  const ids = flow.nodes.map(({ id }) => id)
  for (const id of ids) depthOf(id)
  const columns: string[][] = Array.from({ length: Math.max(-1, ...depths.values()) + 1 }, () => [])
  for (const id of ids) columns[depths.get(id)!]!.push(id)
  const rank = new Map<string, number>()
  for (const column of columns) {
    const rankOf = (id: string) => {
      const ranks = (into.get(id) ?? []).flatMap((edge) => {
        const before = rank.get(edge.source)
        const type = flow.nodes.find((node) => node.id === edge.source)!.type
        return before === undefined ? [] : [before + handlesOf(type).indexOf(handleOf(flow, edge)) / 10]
      })
      return ranks.length === 0 ? ids.length : ranks.reduce((sum, one) => sum + one, 0) / ranks.length
    }
    const ranks = new Map(column.map((id) => [id, rankOf(id)]))
    column.sort((a, b) => ranks.get(a)! - ranks.get(b)!)
    for (const [row, id] of column.entries()) rank.set(id, row)
  }
  return columns
}

/** Where a handle stands: at the right side, one below the other. */
export function portOf({ x, y }: Point, type: string, handle: string): Point {
  const handles = handlesOf(type)
  const share = (Math.max(0, handles.indexOf(handle)) + 1) / (handles.length + 1)
  return { x: x + nodeSize.width, y: y + nodeSize.height * share }
}

function lineOf(flow: Flow, edge: FlowEdge, places: ReadonlyMap<string, Point>) {
  const handle = handleOf(flow, edge)
  const source = flow.nodes.find(({ id }) => id === edge.source)!
  const from = portOf(places.get(edge.source)!, source.type, handle)
  const target = places.get(edge.target)!
  const to = { x: target.x, y: target.y + nodeSize.height / 2 }
  if (to.x > from.x) {
    const bend = Math.max(24, (to.x - from.x) / 2)
    const path = `M ${from.x} ${from.y} C ${from.x + bend} ${from.y}, ${to.x - bend} ${to.y}, ${to.x} ${to.y}`
    return { edge, handle, path, middle: { x: (from.x + to.x) / 2, y: (from.y + to.y) / 2 } }
  }
  // Back: below both.
  const low = Math.max(from.y, target.y + nodeSize.height) + 40
  const end = { x: target.x + nodeSize.width / 2, y: target.y + nodeSize.height }
  const path = `M ${from.x} ${from.y} C ${from.x + 50} ${low}, ${end.x} ${low}, ${end.x} ${end.y}`
  return { edge, handle, path, middle: { x: (from.x + end.x) / 2, y: low - 12 } }
}
