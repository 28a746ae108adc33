import { beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { contextFor } from '../../src/extensions/context.ts'
import { type Api, startApi } from '../support/api.ts'
import { undoBed } from '../support/undo.ts'

/** Undo together with its consequences, where hooks change rows that the undo brings back too (docs/undo.md). */

let api: Api
const collections = ['product', 'res', 'ball'] as const
const { all, ok, make, undo, clear } = undoBed(() => api, collections)

const text = { type: 'String' }
const integer = { type: 'Integer' }
const serial = { type: 'Integer', primaryKey: true, defaultValue: { type: 'AUTOINCREMENT' } }

beforeAll(async () => {
  api = await startApi()
  const product = { relType: 'BelongsTo', target: 'product', foreignKey: 'product_id', allowNull: false }
  const schemas: [string, object][] = [
    ['product', { id: serial, name: text, stock: integer, edits: integer }],
    ['res', { id: serial, qty: integer, product }],
    ['ball', { id: serial, name: text, at: integer }],
  ]
  for (const [collectionName, fields] of schemas)
    expect((await api.admin('POST', '/schemas', { collectionName, schema: { fields } })).text).toMatch(/success/)
  registerHooks()
})

function registerHooks(): void {
  const { ItemsService } = contextFor(api.runtime, 'svc-hook-stock')
  const hook = (collection: string, event: string, run: (context: any) => unknown) =>
    api.runtime.hooks.register('svc-hook-stock', collection, event, run)
  const products = new ItemsService('product')
  const move = async (id: number, by: number) => {
    const { stock } = await products.readOne(id)
    await products.updateOne(id, { stock: Number(stock) + by })
  }
  hook('res', 'items.create', ({ data }) => move(data.product_id, -data.qty))
  hook('res', 'items.delete', ({ document }) => move(document.product_id, document.qty))
  // A field of its own that no undo brings back.
  hook('product', 'items.update', ({ data, previousDocument }) => ({
    data: { ...data, edits: (previousDocument.edits ?? 0) + 1 },
  }))
  hook('ball', 'items.update', async ({ data, previousDocument, db }) => {
    await db.query('update "ball" set at = $1 where id <> $2', [data.at + 10, previousDocument.id])
  })
}

beforeEach(clear)

const stock = async () => (await api.sql('select stock from "product"')).map((row) => row.stock)
const reserved = async () => (await api.sql('select qty from "res"')).map(({ qty }) => qty)

describe('what a hook changed, and changes again as its cause is undone', () => {
  it('is in the end what it was, and so after the undo of the undo', async () => {
    const product_id = await make('product', { name: 'p', stock: 10 })
    const made = await ok(api.admin('POST', '/items/res', { product_id, qty: 3 }))
    expect(await stock()).toEqual([7])
    const position = await api.position()
    const undone = await ok(undo({ requestId: made.id, include: 'caused' }))
    expect([await stock(), await reserved()]).toEqual([[10], []])
    const events = (await api.log(position)).map(({ entity, action }) => `${action} ${entity}`)
    expect(events).toEqual(['update product', 'delete res', 'update product', 'undone svc_AuditLog'])
    const redone = await ok(undo({ requestId: undone.id }))
    expect([await stock(), await reserved()]).toEqual([[7], [3]])
    await ok(undo({ requestId: redone.id, include: 'caused' }))
    expect([await stock(), await reserved()]).toEqual([[10], []])
  })

  it('is so also where the row has to be there before the one with the hook', async () => {
    const product_id = await make('product', { name: 'p', stock: 10 })
    const res = await make('res', { product_id, qty: 3 })
    const now = async () => (await api.sql(`select to_json(clock_timestamp())#>>'{}' as now`))[0].now
    const from = await now()
    await ok(api.admin('DELETE', `/items/res/${res}`))
    await ok(api.admin('DELETE', `/items/product/${product_id}`))
    const [{ id: actor }] = await api.sql(`select id from "svc_User" where email = 'admin@example.com'`)
    const body = { actor, from, to: await now(), include: 'caused', collections: ['product', 'res'] }
    await ok(undo(body))
    expect([await stock(), await reserved()]).toEqual([[7], [3]])
  })

  it('is refused where hooks undo each other’s rows without an end', async () => {
    const [a, b] = [await make('ball', { name: 'a', at: 1 }), await make('ball', { name: 'b', at: 2 })]
    expect([a, b]).toEqual([expect.any(Number), expect.any(Number)])
    const moved = await ok(api.admin('PATCH', `/items/ball/${a}`, { at: 5 }))
    const before = await all()
    const position = await api.position()
    const refused = await undo({ requestId: moved.id, include: 'caused' })
    expect(refused).toMatchObject({ status: 409, body: { error: { code: 'UNDO_HOOKS' } } })
    expect([await all(), await api.log(position)]).toEqual([before, []])
  })
})
