import { describe, expect, it } from 'vitest'
import { type Api, type Call, startApi } from '../support/api.ts'
import { type Expected, groupsOf, listOf } from '../support/oracle/answers.ts'
import { randomCaller, randomGrouping, randomQuery } from '../support/oracle/queries.ts'
import { type Random, randomFrom } from '../support/oracle/random.ts'
import { type Caller, Denied, type Place } from '../support/oracle/semantics.ts'
import { type Plan, randomWorld, scalars, type Table } from '../support/oracle/world.ts'

/**
 * Random schemas, rows, permissions and queries, each answer compared with that of an evaluator that looks at every row.
 * `ORACLE_SEED` repeats a run, `ORACLE_CASES` makes it longer.
 */
const seed = Number(process.env.ORACLE_SEED ?? Date.now() % 1_000_000_000)
const cases = Number(process.env.ORACLE_CASES ?? 1_000)
const worlds = 4
const callersPerWorld = 5
/** Of a run whose draws were refused or found nothing more often than most: it goes on until it has proved enough. */
const mostWorlds = 3 * worlds

describe(`with seed ${seed}`, () => {
  it(`${cases} random queries are answered as by looking at every row`, async () => {
    process.stdout.write(`query oracle: ORACLE_SEED=${seed} ORACLE_CASES=${cases}\n`)
    const random = randomFrom(seed)
    const api = await startApi()
    const seen = { answered: 0, denied: 0, rows: 0 }
    // A run that was refused everything, or found nothing, would prove nothing.
    const enough = { answered: cases / 3, denied: 0, rows: cases / 4 }
    const provesLittle = () =>
      seen.answered <= enough.answered || seen.denied <= enough.denied || seen.rows <= enough.rows
    for (let w = 0; w < worlds || (w < mostWorlds && provesLittle()); w++) {
      const plan = randomWorld(random, `w${w}_`)
      await build(api, plan)
      for (let c = 0; c < callersPerWorld; c++) {
        const caller = randomCaller(random, plan.world)
        const call = await signIn(api, caller)
        for (let n = 0; n < cases / worlds / callersPerWorld; n++) await compareOne(random, plan, caller, call, seen)
      }
    }
    expect(seen.answered).toBeGreaterThan(enough.answered)
    expect(seen.denied).toBeGreaterThan(enough.denied)
    expect(seen.rows).toBeGreaterThan(enough.rows)
  })
})

type Seen = { answered: number; denied: number; rows: number }

async function compareOne(random: Random, { world }: Plan, caller: Caller, call: Call, seen: Seen): Promise<void> {
  const table = random.pick([...world.values()])
  const isGrouped = random.chance(0.2)
  const place: Place = { world, caller, root: table.name, paranoid: isGrouped || random.chance(0.85) }
  const granted = caller.admin || caller.grants.has(table.name)
  const query = granted ? (isGrouped ? randomGrouping : randomQuery)(random, table, place) : { fields: ['id'] }
  const expected = granted ? expectedOf(table, query, place) : 'denied'
  const { status, body, text } = await call('GET', `/items/${table.name}?${parametersOf(query)}`)
  const context = `${JSON.stringify({ seed, collection: table.name, query, grants: [...caller.grants] })}\n${text}`
  if (expected === 'denied') {
    expect(status, context).toBe(403)
    seen.denied += 1
    return
  }
  expect(status, context).toBe(200)
  const inAnyOrder = 'groupBy' in query
  expect(inAnyOrder ? asSet(body.data) : body.data, context).toEqual(inAnyOrder ? asSet(expected.data) : expected.data)
  expect(body.totalCount, context).toBe(expected.totalCount)
  seen.answered += 1
  seen.rows += expected.data.length
}

function expectedOf(table: Table, query: any, place: Place): Expected {
  try {
    return 'groupBy' in query ? groupsOf(table, query, place) : listOf(table, query, place)
  } catch (error) {
    if (error instanceof Denied) return 'denied'
    throw error
  }
}

const asSet = (rows: readonly object[]) => rows.map((row) => JSON.stringify(Object.entries(row).sort())).sort()

function parametersOf(query: object): string {
  const parameters = new URLSearchParams()
  for (const [name, value] of Object.entries(query)) {
    if (value === undefined || (Array.isArray(value) && value.length === 0)) continue
    const sent =
      name === 'sort' ? value.map((key: any) => ({ column: key.path, order: key.descending ? 'desc' : 'asc' })) : value
    parameters.set(name, typeof sent === 'object' ? JSON.stringify(sent) : String(sent))
  }
  return parameters.toString()
}

async function build(api: Api, { world, parents, pairing }: Plan): Promise<void> {
  for (const table of world.values()) {
    const own = [...table.fields].map(([name, kind]) => [name, scalars[kind].type])
    const links = parents
      .filter((parent) => parent.table === table.name)
      .map(({ name, target }) => [name, { relType: 'BelongsTo', target, foreignKey: `${name}_id` }])
    const fields = Object.fromEntries([['id', { type: 'Integer', primaryKey: true }], ...own, ...links])
    await made(
      api.admin('POST', '/schemas', {
        collectionName: table.name,
        schema: { timestamps: false, paranoid: table.paranoid, fields },
      }),
    )
  }
  for (const table of world.values()) {
    const back = parents
      .filter((parent) => parent.target === table.name)
      .map(({ back, table: target, name }) => [back, { relType: 'HasMany', target, foreignKey: `${name}_id` }])
    const peers = {
      relType: 'BelongsToMany',
      target: pairing.right,
      through: pairing.through,
      foreignKey: 'left_id',
      otherKey: 'right_id',
    }
    const more = { ...Object.fromEntries(back), ...(pairing.left === table.name && { peers }) }
    const { schema } = (await api.admin('GET', `/schemas/${table.name}`)).body.data
    await made(
      api.admin('PATCH', `/schemas/${table.name}`, { schema: { ...schema, fields: { ...schema.fields, ...more } } }),
    )
  }
  for (const table of world.values()) await fill(api, table)
  for (const pair of pairing.pairs) {
    await api.sql(`insert into "${pairing.through}" ("left_id", "right_id") values ($1, $2)`, [...pair])
  }
}

async function fill(api: Api, table: Table): Promise<void> {
  const rows = table.rows.map(({ deletedAt: _, ...row }) => row)
  if (rows.length > 0) await made(api.admin('POST', `/items/${table.name}/bulk`, rows))
  const deleted = table.rows.filter((row) => typeof row.deletedAt === 'string').map(({ id }) => id)
  await api.sql(
    table.paranoid ? `update "${table.name}" set "deletedAt" = now() where id = any($1)` : 'select $1::int[]',
    [deleted],
  )
}

async function made(answer: ReturnType<Call>): Promise<void> {
  const { status, text } = await answer
  expect([200, 201], text).toContain(status)
}

async function signIn(api: Api, { admin, grants }: Caller): Promise<Call> {
  if (admin) return api.admin
  const permissions = [...grants].map(([collection, grant]) => ({ collection, action: 'read', ...grant }))
  return (await api.user(permissions)).call
}
