import type { Random } from './random.ts'
import { type Caller, type FilterText, type Grant, mayEnter, mayRead, operatorsOf, type Place } from './semantics.ts'
import { type Kind, type Link, scalars, type Table, type World } from './world.ts'

/** A query of a list, as JSON values; `undefined` members are not sent. */
export type Query = {
  readonly fields: readonly string[]
  readonly filter: FilterText | undefined
  readonly sort: readonly SortKey[]
  readonly limit: number | undefined
  readonly page: number | undefined
  readonly paranoid: false | undefined
}
export type SortKey = { readonly path: string; readonly descending: boolean }
export type Grouping = {
  readonly filter: FilterText | undefined
  readonly groupBy: readonly string[]
  readonly aggregate: Readonly<Record<string, { readonly function: string; readonly field: string }>>
}

/** An administrator, or a role that may read some collections in part. */
export function randomCaller(random: Random, world: World): Caller {
  if (random.chance(0.25)) return { admin: true, grants: new Map() }
  const tables = random.some([...world.values()], 0.65)
  return { admin: false, grants: new Map(tables.map((table) => [table.name, randomGrant(random, table, world)])) }
}

function randomGrant(random: Random, table: Table, world: World): Grant {
  const own = random.chance(0.5) ? [random.chance(0.4) ? '*.*' : '*'] : random.some([...table.fields.keys()], 0.7)
  const reached = random.some([...table.links.values()], 0.5).flatMap((link) => specsBehind(random, link, world, 2))
  const fields = [...own, ...reached]
  const conditions = random.chance(0.5) ? randomFilter(random, table, world, 1) : null
  return { fields: fields.length === 0 ? ['id'] : fields, conditions }
}

function specsBehind(random: Random, link: Link, world: World, depth: number): string[] {
  const target = world.get(link.target)!
  if (random.chance(0.1)) return [link.name]
  const own = random.chance(0.4) ? ['*'] : random.some([...target.fields.keys()], 0.5)
  const further =
    depth > 1
      ? random.some([...target.links.values()], 0.3).flatMap((next) => specsBehind(random, next, world, depth - 1))
      : []
  return [...own, ...further].map((spec) => `${link.name}.${spec}`)
}

/** Mostly what the caller may ask, sometimes what it may not. */
export function randomQuery(random: Random, table: Table, place: Place): Query {
  const filter = random.chance(0.8) ? randomFilter(random, table, place.world, 2, place) : undefined
  return {
    fields: randomFields(random, table, [], place),
    filter,
    sort: random.some([0, 1, 2], 0.4).map(() => randomSortKey(random, table, place)),
    limit: random.chance(0.5) ? random.pick([-1, 0, 1, 2, 3, 50]) : undefined,
    page: random.chance(0.3) ? 1 + random.below(3) : undefined,
    paranoid: place.paranoid ? undefined : false,
  }
}

export function randomGrouping(random: Random, table: Table, place: Place): Grouping {
  return random.chance(0.4) ? randomRelatedGrouping(random, table, place) : randomOwnGrouping(random, table, place)
}

/** One aggregate of a related column; more of them would count each other's rows. */
function randomRelatedGrouping(random: Random, table: Table, place: Place): Grouping {
  const links = readableLinks(random, table, [], place)
  if (links.length === 0) return randomOwnGrouping(random, table, place)
  const link = random.pick(links)
  const target = place.world.get(link.target)!
  const names = readableFields(random, target, [link.name], place).filter((name) => kindOf(target, name) !== 'numbers')
  const { function: fn, field } = randomAggregate(random, target, names)
  const grouping = randomOwnGrouping(random, table, place)
  return { ...grouping, aggregate: { a0: { function: fn, field: `${link.name}.${field}` } } }
}

function randomOwnGrouping(random: Random, table: Table, place: Place): Grouping {
  const readable = readableFields(random, table, [], place)
  const plain = readable.filter((name) => kindOf(table, name) !== 'numbers')
  const aggregate = Object.fromEntries(
    [0, 1, 2].map((n) => [
      `a${n}`,
      random.chance(0.3) || plain.length === 0
        ? { function: 'count', field: '*' }
        : randomAggregate(random, table, plain),
    ]),
  )
  return {
    filter: random.chance(0.5) ? randomFilter(random, table, place.world, 1, place) : undefined,
    groupBy: random.some(plain, 0.3).slice(0, 2),
    aggregate,
  }
}

function randomAggregate(random: Random, table: Table, plain: readonly string[]) {
  const field = random.pick(plain)
  const summed = ['integer', 'decimal', 'bigint'].includes(kindOf(table, field)!)
  const ordered = kindOf(table, field) !== 'boolean'
  return {
    function: random.pick(['count', 'distinct', ...(summed ? ['sum'] : []), ...(ordered ? ['min', 'max'] : [])]),
    field,
  }
}

const kindOf = (table: Table, name: string): Kind | undefined => (name === 'id' ? 'integer' : table.fields.get(name))

/** Names to use; one in twenty times all of them, so that refusals occur too. */
function readableFields(random: Random, table: Table, path: readonly string[], place: Place | undefined): string[] {
  const names = ['id', ...table.fields.keys()]
  return place === undefined || random.chance(0.02) ? names : names.filter((name) => mayRead(table, path, name, place))
}

function readableLinks(random: Random, table: Table, path: readonly string[], place: Place | undefined): Link[] {
  const links = [...table.links.values()]
  return place === undefined || random.chance(0.02) ? links : links.filter((link) => mayEnter(link, path, place))
}

function randomFields(random: Random, table: Table, path: readonly string[], place: Place): string[] {
  const own = random.some(readableFields(random, table, path, place), 0.5)
  const below = path.length >= 3 ? [] : random.some(readableLinks(random, table, path, place), 0.45)
  const nested = below.flatMap((link) => {
    const inner = randomFields(random, place.world.get(link.target)!, [...path, link.name], place)
    return inner.map((name) => `${link.name}.${name}`)
  })
  const names = [...own, ...nested]
  return names.length === 0 ? ['id'] : names
}

function randomSortKey(random: Random, table: Table, place: Place): SortKey {
  const path: string[] = []
  let here = table
  while (path.length < 2 && random.chance(0.35)) {
    const links = readableLinks(random, here, path, place)
    if (links.length === 0) break
    const link = random.pick(links)
    path.push(link.name)
    here = place.world.get(link.target)!
  }
  const names = readableFields(random, here, path, place).filter((name) => kindOf(here, name) !== 'numbers')
  return { path: [...path, random.pick(names)].join('.'), descending: random.chance(0.5) }
}

/** The collection that a filter is about; `$COL(…)` names one of its fields. */
type About = { readonly table: Table; readonly path: readonly string[] }

/** A filter over a collection's fields and relations; without a place, the text of a stored condition. */
export function randomFilter(
  random: Random,
  table: Table,
  world: World,
  depth: number,
  place?: Place,
  path: readonly string[] = [],
): FilterText {
  const members = random.some([0, 1, 2], 0.6).map((): [string, unknown] => {
    if (depth > 0 && random.chance(0.3)) return randomLogic(random, table, world, depth, place, path)
    return randomEntry(random, table, world, depth, place, path)
  })
  return Object.fromEntries(members.length === 0 ? [randomEntry(random, table, world, depth, place, path)] : members)
}

function randomLogic(
  random: Random,
  table: Table,
  world: World,
  depth: number,
  place: Place | undefined,
  path: readonly string[],
): [string, unknown] {
  const part = () => randomFilter(random, table, world, depth - 1, place, path)
  const word = random.pick(['AND', 'OR', 'NOT'])
  return [word, word === 'NOT' && random.chance(0.5) ? part() : [part(), part()]]
}

function randomEntry(
  random: Random,
  table: Table,
  world: World,
  depth: number,
  place: Place | undefined,
  path: readonly string[],
  about: About = { table, path },
): [string, unknown] {
  const links = readableLinks(random, table, path, place)
  if (path.length < longestPath && links.length > 0 && random.chance(0.35)) {
    const link = random.pick(links)
    const [target, further] = [world.get(link.target)!, [...path, link.name]]
    if (random.chance(0.2))
      return [link.name, random.pick([null, { isNull: true }, { isNull: false }, { isNotNull: true }])]
    if (depth > 0 && random.chance(0.4))
      return [link.name, randomFilter(random, target, world, depth - 1, place, further)]
    const [name, tests] = randomEntry(random, target, world, 0, place, further, about)
    return [`${link.name}.${name}`, tests]
  }
  const name = random.pick(readableFields(random, table, path, place))
  return [name, randomTests(random, kindOf(table, name)!, about, place)]
}

function randomTests(random: Random, kind: Kind, about: About, place: Place | undefined): unknown {
  const operators = random.chance(0.2)
    ? [random.pick(operatorsOf(kind)), random.pick(operatorsOf(kind))]
    : [random.pick(operatorsOf(kind))]
  return Object.fromEntries(
    operators.map((operator) => [operator, randomOperand(random, kind, operator, about, place)]),
  )
}

/** Within the language's own limit of relations in a path. */
const longestPath = 5

const comparisons = ['eq', 'ne', 'gt', 'gte', 'lt', 'lte']

function randomOperand(
  random: Random,
  kind: Kind,
  operator: string,
  { table, path }: About,
  place: Place | undefined,
): unknown {
  const value = () => random.pick<unknown>(scalars[kind].values)
  if (operator === 'isNull' || operator === 'isNotNull') return random.chance(0.5)
  if (operator === 'arraylength') return random.below(4)
  if (['in', 'notIn'].includes(operator))
    return [0, 1, 2].slice(random.below(4)).map(() => (random.chance(0.1) ? null : value()))
  if (['between', 'notBetween'].includes(operator)) return [value(), value()]
  if (['eq', 'ne'].includes(operator) && random.chance(0.1)) return null
  if (comparisons.includes(operator) && kind !== 'numbers' && random.chance(0.15)) {
    const others = readableFields(random, table, path, place).filter((name) => kindOf(table, name) === kind)
    if (others.length > 0) return `$COL(${random.pick(others)})`
  }
  if (kind === 'text') return random.pick(['a', 'AB', 'b', '%', '_', "'", '', 'c'])
  return value()
}
