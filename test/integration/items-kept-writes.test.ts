import { randomUUID } from 'node:crypto'
import fc from 'fast-check'
import { beforeAll, describe, expect, it } from 'vitest'
import { systemActor } from '../../src/events/types.ts'
import { callerOfToken, type FoundCaller } from '../../src/features/accounts/auth/auth.ts'
import type { Write } from '../../src/features/data/items/context.ts'
import { insertOf, updateOf } from '../../src/features/data/items/kept-writes.ts'
import { type Payload, readPayload } from '../../src/features/data/items/payload.ts'
import { openWrite } from '../../src/features/data/items/plan.ts'
import { insertStatement, updateStatement } from '../../src/features/data/items/statements.ts'
import { type Api, startApi } from '../support/api.ts'
import { createRole, createTenant, createUser, grant, type TenantUser } from '../support/tenants.ts'

/** Statements of writes are kept by the shape of their rows, and results are the same. */

let api: Api

const fields = {
  title: { type: 'String' },
  count: { type: 'BigInt' },
  price: { type: 'Decimal' },
  tags: { type: 'Array_String' },
  more: { type: 'JSON' },
  at: { type: 'DateTime' },
  state: { type: 'TOKEN' },
  owner_Id: { type: 'UUID' },
  tenant_Id: { type: 'UUID' },
}
const rule = { OR: [{ owner_Id: '$CURRENT_USER' }, { title: { in: ['all', 'any'] } }] }
const all = (conditions: object | null, collection = 'page') =>
  ['create', 'read', 'update'].map((action) => ({ collection, action, fields: ['*'], conditions }))

beforeAll(async () => {
  api = await startApi({ MULTI_TENANT: 'true', STRICT_TENANT_ISOLATION: 'false' })
  for (const [collectionName, schema] of [
    ['page', { fields: { ...fields, parent: { relType: 'BelongsTo', target: 'page', foreignKey: 'parent_Id' } } }],
    ['twin', { fields }],
    ['step', { fields, sortEnabled: true, usertrack: true, paranoid: true }],
  ] as const) {
    const made = await api.admin('POST', '/schemas', { collectionName, schema })
    if (made.status !== 201) throw new Error(made.text)
  }
})

const writer = (roleId: string, tenantId: string | null = null): Promise<TenantUser> =>
  createUser(api, roleId, tenantId)

async function roleWith(conditions: object | null, more: object = { isTenantSpecific: false }): Promise<string> {
  const role = await createRole(api, more)
  await grant(api, role, ...all(conditions), ...all(conditions, 'twin'), ...all(conditions, 'step'))
  return role
}

const text = fc.oneof(fc.constantFrom('all', '', '$1', "'"), fc.string({ maxLength: 8 }))
const members = fc.record(
  {
    title: fc.option(text),
    count: fc.option(fc.integer()),
    price: fc.option(fc.integer().map((cents) => `${cents}.50`)),
    tags: fc.option(fc.array(text, { maxLength: 2 })),
    more: fc.option(fc.jsonValue({ maxDepth: 1 })),
    owner_Id: fc.option(fc.uuid()),
    at: fc.option(fc.constant('2026-01-02T03:04:05.000Z')),
    state: fc.option(fc.constantFrom('new', 'old')),
    parent: fc.option(fc.uuid()),
    parent_Id: fc.option(fc.uuid()),
    updatedAt: fc.constant('2026-01-02T03:04:05.000Z'),
  },
  { requiredKeys: [] },
)

/** Of the two names of a foreign key one: no stored row says here which of two values is meant. */
const payloads = members.map(({ parent, ...more }) => ('parent_Id' in more ? more : { ...more, parent }))

it('a kept statement is the one that would be made, with its values', async () => {
  const tenants = [await createTenant(api, 'here'), await createTenant(api, 'there')] as const
  const [own, bound] = [await roleWith(rule), await roleWith({ price: { gt: 1 } }, {})]
  const [{ id: administrator }] = await api.sql(`select id from "svc_Role" where name = 'administrator'`)
  const timed = await roleWith({ at: { lt: '$NOW' } })
  const users = await Promise.all([
    writer(own),
    writer(own),
    writer(bound, tenants[0]),
    writer(bound, tenants[1]),
    writer(timed),
    writer(administrator),
  ])
  const accesses = await Promise.all(
    users.map(async ({ token }) => ((await callerOfToken(api.runtime, token)) as FoundCaller).caller.access),
  )
  const pairs = (payload: object, access: (typeof accesses)[number], name: string, id: string): [Write, Write][] => {
    const of = <A extends 'create' | 'update'>(action: A): [ReturnType<typeof openWrite<A>>, Payload] => {
      const context = openWrite(api.runtime, { actor: systemActor, access }, name, action)
      return [context, readPayload(context, payload)]
    }
    const [created, row] = of('create')
    const [changed, cells] = of('update')
    return [
      [insertOf(created, row), insertStatement(created, [row])],
      [updateOf(changed, id, cells), updateStatement(changed, [id], cells)],
    ]
  }
  const compare = (payload: object, index: number, name: string, id: string) => {
    for (const [kept, fresh] of pairs(payload, accesses[index]!, name, id))
      expect({ text: kept.text, values: kept.values }).toEqual(fresh)
  }
  const index = fc.nat({ max: accesses.length - 1 })
  fc.assert(
    fc.property(
      payloads,
      payloads,
      index,
      index,
      fc.constantFrom('page', 'twin', 'step'),
      fc.uuid(),
      (a, b, i, j, name, id) => {
        // The same columns with other values, by others, and by the first again.
        const same = Object.fromEntries(Object.keys(a).map((key) => [key, (b as never)[key] ?? (a as never)[key]]))
        for (const [payload, who] of [
          [a, i],
          [same, i],
          [same, j],
          [b, j],
          [a, i],
        ] as const)
          compare(payload, who, name, id)
      },
    ),
    { numRuns: 150 },
  )
})

describe('with a statement that is kept', () => {
  const page = async (who: TenantUser, title: string) => who.call('POST', '/items/page', { title, owner_Id: who.id })
  const rename = (who: TenantUser, id: string, title: string) => who.call('PATCH', `/items/page/${id}`, { title })

  it('each user writes the own rows only, and a changed rule counts at once', async () => {
    const role = await roleWith({ owner_Id: '$CURRENT_USER' })
    const [one, other] = [await writer(role), await writer(role)]
    const made = new Map<TenantUser, string>()
    for (const who of [one, other, one, other]) made.set(who, (await page(who, 'mine')).body.data.id)
    for (const who of [one, other, one]) {
      const foreign = made.get(who === one ? other : one)!
      expect((await rename(who, made.get(who)!, 'again')).status).toBe(200)
      expect((await rename(who, foreign, 'taken')).status).toBe(403)
      expect((await who.call('POST', '/items/page', { title: 'x', owner_Id: randomUUID() })).status).toBe(403)
    }
    const rows = await api.sql('select id from "svc_Permission" where "role_Id" = $1 and action = $2', [role, 'update'])
    for (const { id } of rows) await api.admin('PATCH', `/permissions/${id}`, { conditions: { title: 'open' } })
    expect((await rename(one, made.get(one)!, 'closed')).status).toBe(403)
    await api.sql(`update page set title = 'open' where id = $1`, [made.get(other)])
    expect((await rename(one, made.get(other)!, 'open')).status).toBe(200)
    expect((await rename(one, made.get(other)!, 'closed')).status).toBe(403)
    for (const { id } of rows) await api.admin('DELETE', `/permissions/${id}`)
    expect((await rename(one, made.get(other)!, 'open')).status).toBe(403)
  })

  it('every row has its own values, in the log too', async () => {
    const before = await api.position()
    for (const n of [1, 2, 3]) {
      const { id } = (await api.admin('POST', '/items/page', { title: `t${n}`, count: n })).body.data
      await api.admin('PATCH', `/items/page/${id}`, { count: n * 10, title: null })
      await api.admin('PATCH', `/items/page/${id}`, { title: `u${n}`, count: null })
    }
    const events = (await api.log(before)).map(({ action, changes }) => [
      action,
      changes.after.title,
      changes.after.count,
    ])
    expect(events).toEqual(
      [1, 2, 3].flatMap((n) => [
        ['create', `t${n}`, n],
        ['update', null, n * 10],
        ['update', `u${n}`, null],
      ]),
    )
  })

  it('a changed collection is written as it is then', async () => {
    const schema = (type: string) => ({ schema: { fields: { size: { type } } } })
    const define = async (type: string) =>
      (await api.admin('POST', '/schemas', { collectionName: 'sheet', ...schema(type) })).status
    const write = async (size: unknown) => (await api.admin('POST', '/items/sheet', { size })).body.data.id
    expect(await define('String')).toBe(201)
    for (const size of ['a', 'b']) await write(size)
    expect((await api.admin('DELETE', '/schemas/sheet')).status).toBe(200)
    expect(await define('Integer')).toBe(201)
    for (const size of [5, 6])
      expect((await api.admin('GET', `/items/sheet/${await write(size)}`)).body.data.size).toBe(size)
  })
})
