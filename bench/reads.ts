import type { Asked, Case, Request } from './cases.ts'
import type { Role } from './daybook.ts'
import { categories, idOf, ownedBy, type Twin } from './shape.ts'

const both: readonly Role[] = ['admin', 'limited']
const query = (parameters: Readonly<Record<string, unknown>>): string =>
  Object.entries(parameters)
    .map(
      ([name, value]) =>
        `${name}=${encodeURIComponent(typeof value === 'object' ? JSON.stringify(value) : String(value))}`,
    )
    .join('&')
const get = (path: string): Request => ({ method: 'GET', path })
const sameAll = (body: unknown): unknown => body
const isList = (body: string): boolean => body.length > 2000 && body.startsWith('{"data":[{')

/** Numbers below `below` that look random, the same in every run. */
export function scattered(n: number, below: number): number {
  let x = Math.imul(n + 1, 0x9e3779b1)
  x = Math.imul(x ^ (x >>> 16), 0x85ebca6b)
  x = Math.imul(x ^ (x >>> 13), 0xc2b2ae35)
  return ((x ^ (x >>> 16)) >>> 0) % below
}

/** The n-th of the rows that the caller may see, in any order. */
export function someRow({ n, role }: Pick<Asked, 'n' | 'role'>, rows: number): string {
  if (role === 'admin') return idOf(scattered(n, rows) + 1)
  return idOf(ownedBy(0, scattered(n, Math.floor(rows / 10) - 20) + 1))
}

/** Read one; a category in a price window; nested. `products` is how many rows the table has. */
export function readCases(products: number): readonly Case[] {
  return [
    {
      id: 'W1',
      title: 'read one',
      roles: both,
      connections: 16,
      status: 200,
      request: (asked) => {
        const id = someRow(asked, products)
        return get(asked.kind === 'daybook' ? `/items/product/${id}` : `/product/${id}`)
      },
      accepts: (body) => body.length > 300 && body.startsWith('{"data":{"id":'),
      comparable: sameAll,
    },
    { ...windows('product'), id: 'W2', title: 'list 25 of a category and price window, sorted, with total' },
    {
      ...windows('product', 20),
      id: 'W2',
      title: 'the same, 20 repeated parameter sets',
    },
    ...[true, false].map((counted) => nested(counted)),
  ]
}

/** Windows of a tenth of all prices, all of them distinct unless `repeated` says how many there are. */
export function windows(table: Twin, repeated = Infinity): Omit<Case, 'id' | 'title'> {
  return {
    roles: both,
    connections: 16,
    status: 200,
    request: ({ n, kind }) => {
      const set = repeated === Infinity ? n : n % repeated
      const category = idOf(scattered(set, categories) + 1)
      const from = scattered(set + 7, 90_000) / 100
      const to = from + 100
      if (kind === 'ceiling') return get(`/${table}?${query({ category, from: from.toFixed(2), to: to.toFixed(2) })}`)
      const filter = { category_Id: category, price: { gte: from.toFixed(2), lt: to.toFixed(2) } }
      return get(`/items/${table}?${query({ filter, sort: 'price', limit: 25 })}`)
    },
    accepts: isList,
    comparable: sameAll,
  }
}

function nested(counted: boolean): Case {
  const fields = 'id,sku,name,price,category.name,category.slug'
  return {
    id: 'W3',
    title: `list 25 with nested category, ${counted ? 'with' : 'without'} total`,
    roles: both,
    connections: 16,
    status: 200,
    request: ({ kind }) =>
      get(
        kind === 'ceiling'
          ? `/product/nested?count=${counted}`
          : `/items/product?${query({ fields, sort: 'sku', limit: 25, count: counted })}`,
      ),
    accepts: isList,
    comparable: sameAll,
  }
}
