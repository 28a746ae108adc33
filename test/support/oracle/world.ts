import type { Random } from './random.ts'

/** What the oracle knows of a type: which values occur, in wire form, and how two of them compare. */
type Scalar = { readonly type: object; readonly values: readonly unknown[]; readonly ordered: boolean }

/** Small domains, so that equal values, ties and empty results all occur; large numbers, so that a float would show. */
export const scalars = {
  integer: { type: { type: 'Integer' }, values: [-3, 0, 1, 2, 7, 2147483647], ordered: true },
  bigint: {
    type: { type: 'BigInt' },
    values: [0, 5, 9007199254740991, '9007199254740993', '-9007199254740993'],
    ordered: true,
  },
  decimal: {
    type: { type: 'Decimal', values: { precision: 24, scale: 2 } },
    values: ['0.00', '0.10', '0.30', '-1.50', '12345678901234567890.12', '12345678901234567890.13'],
    ordered: true,
  },
  text: { type: { type: 'String' }, values: ['', 'a', 'ab', 'abc', 'b', '100%', 'a_b', "o'c"], ordered: true },
  boolean: { type: { type: 'Boolean' }, values: [true, false], ordered: true },
  date: { type: { type: 'Date' }, values: ['2023-12-31', '2024-01-01', '2024-02-29'], ordered: true },
  datetime: {
    type: { type: 'DateTime' },
    values: ['2023-12-31T23:59:59.999Z', '2024-01-01T00:00:00.000Z', '2024-03-31T01:30:00.500Z'],
    ordered: true,
  },
  numbers: { type: { type: 'Array_Integer' }, values: [[], [1], [1, 2], [2, 1], [7, 7, 7]], ordered: false },
} satisfies Record<string, Scalar>

export type Kind = keyof typeof scalars
export type Row = Readonly<Record<string, unknown>> & { readonly id: number }
export type Link = {
  readonly name: string
  readonly target: string
  readonly many: boolean
  /** Whether two rows, one of each side, are related. */
  readonly joins: (from: Row, to: Row) => boolean
}
export type Table = {
  readonly name: string
  readonly fields: ReadonlyMap<string, Kind>
  readonly links: Map<string, Link>
  readonly paranoid: boolean
  rows: Row[]
}
export type World = ReadonlyMap<string, Table>

type Parent = { readonly table: string; readonly target: string; readonly name: string; readonly back: string }
type Pairing = {
  readonly left: string
  readonly right: string
  readonly through: string
  readonly pairs: (readonly [number, number])[]
}
export type Plan = { readonly world: World; readonly parents: readonly Parent[]; readonly pairing: Pairing }

/** Four collections with random fields, to-one relations with their to-many sides, and one direct many-to-many. */
export function randomWorld(random: Random, prefix: string): Plan {
  const names = [0, 1, 2, 3].map((n) => `${prefix}c${n}`)
  const world = new Map(names.map((name, n) => [name, randomTable(random, name, n)]))
  const parents = names.flatMap((table, n) => randomParents(random, table, names.slice(0, n + 1)))
  for (const parent of parents) relate(world, parent)
  const [left, right] = [random.pick(names), random.pick(names)]
  const pairing: Pairing = { left, right, through: `${prefix}pairs`, pairs: [] }
  for (const table of world.values()) table.rows = randomRows(random, table, world, parents)
  for (const from of rowsOf(world, left))
    for (const to of rowsOf(world, right)) if (random.chance(0.2)) pairing.pairs.push([from.id, to.id])
  const joined = new Set(pairing.pairs.map(([from, to]) => `${from} ${to}`))
  world.get(left)!.links.set('peers', {
    name: 'peers',
    target: right,
    many: true,
    joins: (from, to) => joined.has(`${from.id} ${to.id}`),
  })
  return { world, parents, pairing }
}

const rowsOf = (world: World, name: string) => world.get(name)!.rows

function randomTable(random: Random, name: string, n: number): Table {
  const kinds = Object.keys(scalars) as Kind[]
  const fields = new Map(random.some(kinds, 0.7).map((kind) => [`${kind}${n}`, kind]))
  fields.set(`title${n}`, 'text')
  return { name, fields, links: new Map(), paranoid: random.chance(0.4), rows: [] }
}

function randomParents(random: Random, table: string, targets: readonly string[]): Parent[] {
  return random.some([0, 1], 0.8).map((n) => {
    const target = random.pick(targets)
    return { table, target, name: `up${n}`, back: `down_${table}_${n}` }
  })
}

function relate(world: World, { table, target, name, back }: Parent): void {
  const key = `${name}_id`
  world.get(table)!.links.set(name, { name, target, many: false, joins: (from, to) => from[key] === to.id })
  world
    .get(target)!
    .links.set(back, { name: back, target: table, many: true, joins: (from, to) => to[key] === from.id })
}

function randomRows(random: Random, table: Table, world: World, parents: readonly Parent[]): Row[] {
  const count = random.below(9)
  const made: Row[] = []
  for (let id = 1; id <= count; id++) {
    const own = [...table.fields].map(([name, kind]) => [
      name,
      random.chance(0.25) ? null : random.pick<unknown>(scalars[kind].values),
    ])
    const keys = parents
      .filter((parent) => parent.table === table.name)
      .map(({ name, target }) => {
        const known = target === table.name ? made : world.get(target)!.rows
        return [`${name}_id`, known.length === 0 || random.chance(0.25) ? null : random.pick(known).id]
      })
    const deletedAt = table.paranoid && random.chance(0.25) ? '2024-01-01T00:00:00.000Z' : null
    made.push({ id, ...Object.fromEntries([...own, ...keys]), ...(table.paranoid && { deletedAt }) })
  }
  return made
}
