import { randomUUID } from 'node:crypto'
import type pg from 'pg'
import type { Asked, Case, Kind, Request } from './cases.ts'
import { scattered, someRow } from './reads.ts'
import { categories, idOf, type Twin } from './shape.ts'

const each = { roles: ['admin', 'limited'], connections: 16 } as const
const isId = (body: string): boolean => /^\{"data":\{"id":"[0-9a-f-]{36}"\}\}$/.test(body)

/** Create, update, delete and create by the thousand. `rows` is how many the table is seeded with. */
export function writeCases(rows: number): readonly Case[] {
  return [
    { id: 'W4', title: 'create', ...createIn('article') },
    {
      ...each,
      id: 'W5',
      title: 'update',
      status: 200,
      request: (asked) => {
        const path = `${asked.kind === 'daybook' ? '/items/article' : '/article'}/${someRow(asked, rows)}`
        return { method: 'PATCH', path, body: JSON.stringify({ name: `Renamed by ${asked.n}`, stock: asked.n % 5000 }) }
      },
      accepts: isId,
      comparable: (body) => body,
    },
    deleteCase(),
    {
      ...each,
      connections: 2,
      id: 'W12',
      title: 'bulk create of 1,000, rows',
      status: 201,
      rowsEach: 1000,
      request: (asked) =>
        post(
          asked,
          'article/bulk',
          Array.from({ length: 1000 }, (_, i) => newRow(asked, asked.n * 1000 + i)),
        ),
      accepts: (body) => body.length > 36_000 && body.startsWith('{"data":["'),
      comparable: ({ data }: { data: string[] }) => data.length,
    },
  ]
}

/** W4d: every request has a row of its own, made before the round; the seeded rows stay. */
function deleteCase(): Case {
  return {
    ...each,
    id: 'W4D',
    title: 'delete',
    status: 200,
    prepare: async (sql, { as, kind }, requests) => {
      const ids = Array.from({ length: requests }, () => randomUUID())
      await makeRows(sql, kind, as.id, ids)
      doomed[kind].push(...ids)
    },
    request: ({ kind }) => {
      const id = doomed[kind].pop() ?? 'none'
      return { method: 'DELETE', path: `${kind === 'daybook' ? '/items' : ''}/article/${id}` }
    },
    accepts: isId,
    comparable: () => 'an id',
  }
}

/** Rows that are there to be deleted, of each side. */
const doomed: Readonly<Record<Kind, string[]>> = { ceiling: [], daybook: [] }

async function makeRows(sql: pg.Client, kind: Kind, owner: string, ids: readonly string[]): Promise<void> {
  await sql.query(
    `insert into ${kind === 'ceiling' ? 'ceiling' : 'public'}.article (id, sku, name, price, stock, "owner_Id", "category_Id", "createdAt", "updatedAt")
     select id, 'DOOMED-' || id, 'Product to be deleted', 1, 1, $2, $3, now(), now() from unnest($1::uuid[]) id`,
    [ids, owner, idOf(1)],
  )
}

export function createIn(table: Twin): Omit<Case, 'id' | 'title'> {
  return {
    ...each,
    status: 201,
    request: (asked) => post(asked, table, newRow(asked, asked.n)),
    accepts: isId,
    comparable: () => 'an id',
  }
}

function post({ kind }: Asked, path: string, body: unknown): Request {
  return { method: 'POST', path: `${kind === 'daybook' ? '/items' : ''}/${path}`, body: JSON.stringify(body) }
}

/** Article numbers are unique, also between the sides that share a table. */
let made = 0

function newRow({ as }: Asked, n: number): Record<string, unknown> {
  made += 1
  return {
    sku: `NEW-${made}`,
    name: `New product number ${n}`,
    description: 'A thing of some use. '.repeat(8),
    price: (scattered(n, 100_000) / 100).toFixed(2),
    stock: n % 1000,
    releasedAt: '2026-05-01T10:00:00.000Z',
    owner_Id: as.id,
    category_Id: idOf(scattered(n, categories) + 1),
  }
}
