import { beforeAll, expect, it } from 'vitest'
import { type Cluster, startCluster, type Web } from '../support/cluster.ts'
import { mulberry } from '../support/random.ts'
import { untilAdmitted } from '../support/wait.ts'

/**
 * Three web processes answer from memory without being asked to keep anything, while rows are changed through all of them and by psql.
 * Counters only grow, and each has one writer, so an answer tells how old it is: none is older than what any
 * writer was told of before it was asked for. `TEST_ANSWERS` is how many are checked.
 */

const seed = Number(process.env.TEST_SEED ?? Date.now() % 1_000_000)
const wanted = Number(process.env.TEST_ANSWERS ?? 3_000)
const counters = 6
const rows = 20_000

let cluster: Cluster
let ids: string[]
/** The greatest value that a writer was told of. */
const acknowledged = Array.from({ length: counters }, () => 0)

beforeAll(async () => {
  cluster = await startCluster({ web: 3 })
  const psql = await cluster.connect()
  const number = { type: 'Integer' }
  const fields = { value: number, place: number, text: { type: 'String' } }
  const made = await cluster.web[0]!.call('POST', '/schemas', { collectionName: 'tally', schema: { fields } })
  expect(made.status, made.text).toBe(201)
  await psql.query(
    `insert into tally (id, value, place, text, "createdAt", "updatedAt")
     select gen_random_uuid(), 0, i, repeat(md5(i::text), 4), now(), now() from generate_series(0, $1::int - 1) i`,
    [rows],
  )
  await psql.query('analyze tally')
  const { rows: found } = await psql.query('select id from tally where place < $1 order by place', [counters])
  ids = found.map(({ id }) => id)
})

const list = `/items/tally?sort=place&limit=${counters}&fields=value&filter=${encodeURIComponent('{"text":{"neq":"x"}}')}`
const report = {
  aggregate: { top: { function: 'max', field: 'value' } },
  groupBy: ['place'],
  sort: ['place'],
  limit: counters,
}

/** All counters as a process shows them, and whether that came from memory; none where it had too much to do to answer. */
async function read(web: Web, way: 'list' | 'report') {
  const answer = await (way === 'list' ? web.call('GET', list) : web.call('POST', '/reports/tally', report))
  if (answer.status === 503) {
    expect(answer.body.error.code, answer.text).toBe('OVERLOADED')
    return undefined
  }
  expect(answer.status, answer.text).toBe(200)
  const values: number[] = answer.body.data.map((row: any) => Number(way === 'list' ? row.value : row.top))
  expect(values).toHaveLength(counters)
  return { values, state: answer.headers.get('x-cache')! }
}

it(`three processes answer nothing older than what psql or any of them was told (seed ${seed})`, async () => {
  const random = mulberry(seed)
  const pick = <T>(from: readonly T[]): T => from[Math.floor(random() * from.length)]!
  const states: Record<string, number> = {}
  const old: string[] = []
  let answers = 0
  let refused = 0
  let writes = 0
  let isOver = false

  const waiting = new Set<{ readonly until: number; readonly go: () => void }>()
  const answered = (until: number) =>
    new Promise<void>((go) => {
      if (isOver) go()
      else waiting.add({ until, go })
    })
  const release = () => {
    for (const one of waiting)
      if (isOver || answers >= one.until) {
        waiting.delete(one)
        one.go()
      }
  }

  const reader = async () => {
    while (answers < wanted) {
      const least = [...acknowledged]
      const way = pick(['list', 'report'] as const)
      const answer = await read(pick(cluster.web), way)
      if (answer === undefined) {
        refused += 1
        continue
      }
      const { values, state } = answer
      answers += 1
      release()
      states[state] = (states[state] ?? 0) + 1
      for (const [place, value] of values.entries())
        if (value < least[place]!) old.push(`${way} ${state}: ${value} for ${least[place]}`)
    }
  }
  const writer = async (place: number) => {
    const own = await cluster.connect()
    while (!isOver) {
      const value = acknowledged[place]! + 1
      if (place % 2 === 0) await own.query('update tally set value = $1 where id = $2', [value, ids[place]])
      else {
        const web = pick(cluster.web)
        const { status, text } = await untilAdmitted(() => web.call('PATCH', `/items/tally/${ids[place]}`, { value }))
        expect(status, text).toBe(200)
      }
      acknowledged[place] = value
      writes += 1
      // Memory is of use between writes.
      await answered(answers + Math.ceil(random() * 200))
    }
  }
  const readers = Promise.all(Array.from({ length: 8 }, reader)).finally(() => {
    isOver = true
    release()
  })
  await Promise.all([readers, ...acknowledged.keys().map(writer)])
  process.stdout.write(
    `automatic cache, three processes, seed ${seed}: ${answers} answers, ${writes} writes, ${refused} refused, ${JSON.stringify(states)}, ${old.length} old\n`,
  )
  expect(old).toEqual([])
  expect(states.HIT).toBeGreaterThan(0)
  expect(writes).toBeGreaterThan(counters)
})
