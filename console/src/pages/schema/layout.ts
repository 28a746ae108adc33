import { columnsOf, type Definition, isAdded, relationsOf } from './definitions.ts'

/** A relation as a line: from the collection with the key to the one that it names, or between two by a junction. */
export type Line = {
  readonly from: string
  readonly to: string
  readonly names: readonly string[]
  readonly isMany: boolean
}

export type Box = {
  readonly name: string
  readonly x: number
  readonly y: number
  readonly height: number
  readonly rows: readonly { readonly name: string; readonly type: string; readonly leads: boolean }[]
  readonly more: number
}

export type Layout = {
  readonly width: number
  readonly height: number
  readonly boxes: readonly Box[]
  readonly lines: readonly (Line & { readonly path: string })[]
}

export const boxWidth = 200
export const rowHeight = 18
export const headHeight = 30
const mostRows = 8
const gap = { x: 90, y: 28 }
const margin = 16

/** The lines between the collections that are shown. Junctions are lines themselves, unless they link less than two. */
export function linesOf(all: readonly Definition[], isShown: (collection: string) => boolean): readonly Line[] {
  const lines = new Map<string, Line>()
  const add = (from: string, to: string, name: string, isMany: boolean) => {
    if (!isShown(from) || !isShown(to)) return
    const key = isMany ? `many ${[from, to].sort().join(' ')}` : `${from} ${to}`
    const names = [...(lines.get(key)?.names ?? []), name]
    lines.set(key, { from: lines.get(key)?.from ?? from, to: lines.get(key)?.to ?? to, names, isMany })
  }
  for (const definition of all) {
    const holders = holdersOf(definition)
    const [first, ...others] = holders
    if (isLine(definition) && first !== undefined)
      for (const other of others) add(first.target, other.target, definition.collectionName, true)
    else for (const { name, target } of holders) add(definition.collectionName, target, name, false)
  }
  return [...lines.values()]
}

/** Whether a collection is shown as lines between others. */
const isLine = (definition: Definition): boolean =>
  definition.schema.isJunction === true && holdersOf(definition).length > 1

function holdersOf({ schema }: Definition) {
  return relationsOf(schema)
    .filter(({ entry }) => entry.relType === 'BelongsTo' && !isAdded(entry))
    .map(({ name, entry }) => ({ name, target: String(entry.target) }))
}

/**
 * Collections in columns, each left of those that its keys name, in the order that has few crossings; what nothing links
 * stands below. Pure, and the same for the same definitions.
 */
export function layoutOf(all: readonly Definition[], shown: readonly Definition[]): Layout {
  const boxed = shown.filter((definition) => !isLine(definition))
  const names = boxed.map(({ collectionName }) => collectionName).sort()
  const lines = linesOf(all, (name) => names.includes(name))
  const linked = names.filter((name) => lines.some(({ from, to }) => from === name || to === name))
  const alone = names.filter((name) => !linked.includes(name))
  const columns = arranged(columnsFor(linked, lines), lines)
  const byName = new Map(boxed.map((definition) => [definition.collectionName, definition]))
  const sizeOf = (name: string) => contentOf(byName.get(name)!)
  const placed = [...placedColumns(columns, sizeOf)]
  const below = Math.max(0, ...placed.map(({ y, height }) => y + height + gap.y))
  placed.push(...placedRows(alone, sizeOf, { top: Math.max(below, margin), perRow: Math.max(columns.length, 4) }))
  const at = new Map(placed.map((box) => [box.name, box]))
  return {
    width: Math.max(...placed.map(({ x }) => x + boxWidth)) + margin,
    height: Math.max(...placed.map(({ y, height }) => y + height)) + margin,
    boxes: placed,
    lines: lines.map((line) => ({ ...line, path: pathBetween(at.get(line.from)!, at.get(line.to)!) })),
  }
}

function contentOf({ collectionName, schema }: Definition): Omit<Box, 'x' | 'y'> {
  const keys = new Map(
    relationsOf(schema)
      .filter(({ entry }) => entry.relType === 'BelongsTo')
      .map(({ name, entry }) => [String(entry.foreignKey ?? `${name}_Id`), name]),
  )
  const columns = columnsOf(schema).map(({ name, entry }) => ({
    name,
    type: String(entry.type),
    leads: keys.has(name),
  }))
  const rows = columns.slice(0, mostRows)
  const more = columns.length - rows.length
  const height = headHeight + (rows.length + (more > 0 ? 1 : 0)) * rowHeight + 8
  return { name: collectionName, rows, more, height }
}

/** The longest way to each; a line that would close a circle counts for nothing. */
function columnsFor(names: readonly string[], lines: readonly Line[]): readonly (readonly string[])[] {
  const depths = new Map<string, number>()
  const open = new Set<string>()
  const depthOf = (name: string): number => {
    const known = depths.get(name)
    if (known !== undefined) return known
    open.add(name)
    const next = lines.filter(({ from, to }) => from === name && to !== name && !open.has(to))
    const depth = Math.max(0, ...next.map(({ to }) => depthOf(to) + 1))
    open.delete(name)
    depths.set(name, depth)
    return depth
  }
  for (const name of names) depthOf(name)
  const deepest = Math.max(-1, ...depths.values())
  return Array.from({ length: deepest + 1 }, (_, place) => names.filter((name) => depths.get(name) === deepest - place))
}

/** Each column sorted by where its neighbours stand, there and back a few times. */
function arranged(columns: readonly (readonly string[])[], lines: readonly Line[]): readonly (readonly string[])[] {
  const result = columns.map((column) => [...column])
  const neighbours = (name: string) =>
    lines.flatMap(({ from, to }) => (from === name ? [to] : to === name ? [from] : [])).filter((one) => one !== name)
  for (let round = 0; round < 4; round += 1) {
    const order = round % 2 === 0 ? result.keys() : [...result.keys()].reverse()
    for (const column of order) {
      const places = new Map(result.flatMap((names) => names.map((name, place) => [name, place / names.length])))
      const middle = (name: string) => {
        const near = neighbours(name).map((one) => places.get(one) ?? 0)
        return near.length === 0 ? (places.get(name) ?? 0) : near.reduce((sum, one) => sum + one, 0) / near.length
      }
      const middles = new Map(result[column]!.map((name) => [name, middle(name)]))
      result[column]!.sort((a, b) => middles.get(a)! - middles.get(b)! || a.localeCompare(b))
    }
  }
  return result
}

type SizeOf = (name: string) => Omit<Box, 'x' | 'y'>

function placedColumns(columns: readonly (readonly string[])[], sizeOf: SizeOf): Box[] {
  const heights = columns.map((names) => names.reduce((sum, name) => sum + sizeOf(name).height + gap.y, -gap.y))
  const tallest = Math.max(0, ...heights)
  return columns.flatMap((names, column) => {
    let y = margin + (tallest - heights[column]!) / 2
    return names.map((name) => {
      const box = { ...sizeOf(name), x: margin + column * (boxWidth + gap.x), y }
      y += box.height + gap.y
      return box
    })
  })
}

function placedRows(
  names: readonly string[],
  sizeOf: SizeOf,
  { top, perRow }: { readonly top: number; readonly perRow: number },
): Box[] {
  let y = top
  const boxes: Box[] = []
  for (let start = 0; start < names.length; start += perRow) {
    const row = names.slice(start, start + perRow).map(sizeOf)
    boxes.push(...row.map((box, column) => ({ ...box, x: margin + column * (boxWidth + gap.x / 2), y })))
    y += Math.max(...row.map(({ height }) => height)) + gap.y
  }
  return boxes
}

/** From side to side, or around the right side where both stand in one column. */
function pathBetween(from: Box, to: Box): string {
  const y1 = from.y + headHeight / 2
  const y2 = to.y + headHeight / 2
  if (from.x === to.x) {
    const x = from.x + boxWidth
    const out = x + gap.x / 2
    const end = from === to ? y1 + rowHeight * 1.5 : y2
    return `M ${x} ${y1} C ${out} ${y1}, ${out} ${end}, ${x} ${end}`
  }
  const isRight = to.x > from.x
  const x1 = isRight ? from.x + boxWidth : from.x
  const x2 = isRight ? to.x : to.x + boxWidth
  const middle = (x1 + x2) / 2
  return `M ${x1} ${y1} C ${middle} ${y1}, ${middle} ${y2}, ${x2} ${y2}`
}
