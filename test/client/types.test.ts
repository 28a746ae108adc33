import { describe, expect, expectTypeOf, it } from 'vitest'
import type { Client, Row } from '../../clients/client.ts'
import { useLive } from '../../clients/react.ts'
import type { OperatorName } from '../../clients/schema.ts'
import { operatorNames } from '../../src/query/operators.ts'

/** As `npx daybook types` writes it. */
type Schema = {
  project: {
    key: string
    row: { readonly id: string; readonly name: string; readonly budget: string | null }
    create: { name: string; budget?: string | number | null }
    update: { name?: string; budget?: string | number | null }
    relations: { tasks: { to: 'task'; many: true; nullable: false } }
  }
  task: {
    key: string
    row: {
      readonly id: string
      readonly title: string
      readonly status: 'open' | 'done'
      readonly points: number | null
      readonly project_Id: string | null
    }
    create: { title: string; status?: 'open' | 'done'; project_Id?: string | null }
    update: { title?: string; status?: 'open' | 'done' }
    relations: {
      project: { to: 'project'; many: false; nullable: true }
      editor: { to: 'person'; many: false; nullable: true }
    }
  }
  person: {
    key: string
    keyName: 'email'
    row: { readonly email: string; readonly name: string }
    create: { email: string; name: string }
    update: { name?: string }
    relations: Readonly<Record<never, never>>
  }
}

declare const client: Client<Schema>

/** Compiled, never run: what is wrong in it does not compile. */
const compiled = (_name: string, _work: () => Promise<void>) => undefined

type Words<T extends string> = T extends `${infer First} ${infer Rest}` ? First | Words<Rest> : T

const operators = [
  'eq ne not gt gte lt lte in notIn is isNull isNotNull empty between notBetween like notLike iLike notILike',
  'startsWith endsWith startsWiths endsWiths nstartsWith nendsWith nstartsWiths nendsWiths regex arraycontains',
  'arraycontained overlaps arraylength arrayempty jsonbContains jsonbContainedBy jsonbNotContains jsonbHasKey',
  'jsonbHasAnyKeys jsonbHasAllKeys jsonbPathExists jsonbPathMatch jsonbKeyEquals jsonbKeyNotEquals jsonbKeyGt',
  'jsonbKeyGte jsonbKeyLt jsonbKeyLte jsonbKeyIn jsonbKeyNotIn jsonbKeyLike jsonbKeyIsNull jsonbKeyIsNotNull',
  'jsonbArrayLength jsonbTypeOf jsonbDeepValue within containsGEO intersects nIntersects dwithin vectorL2',
  'vectorCosine vectorInnerProduct vectorL1 neq nin nbetween ilike contains icontains ncontains',
  'arraycontainsany arrayoverlap jsoncontains jsonhaskey jsonhasanykeys jsonhasallkeys jsonpath',
] as const

describe('types', () => {
  it('know the operators of the query language', () => {
    expectTypeOf<Words<(typeof operators)[number]>>().toEqualTypeOf<OperatorName>()
    expect(operators.join(' ').split(' ').sort()).toEqual([...operatorNames()].sort())
  })

  it('follow from the query', () => {
    compiled('lists', async () => {
      const { data } = await client.items('task').list({ fields: ['title', 'project.name'] })
      expectTypeOf(data[0]!).toEqualTypeOf<{
        readonly title: string
        readonly project: { readonly id: string; readonly name: string } | null
      }>()
      const all = await client.items('task').list()
      expectTypeOf(all.data[0]!.status).toEqualTypeOf<'open' | 'done'>()
      const nested = await client.items('project').list({ fields: ['*', 'tasks.title', 'tasks.project.name'] })
      expectTypeOf(nested.data[0]!.tasks[0]!.project).toEqualTypeOf<{
        readonly id: string
        readonly name: string
      } | null>()
      const without = await client.items('task').read('1', { fields: ['*', '-points'] })
      expectTypeOf(without).not.toHaveProperty('points')
    })
    compiled('what a list names', async () => {
      const { data } = await client.items('task').list({ fields: ['title', 'editor'] })
      expectTypeOf(data[0]!).toEqualTypeOf<{
        readonly title: string
        readonly editor: { readonly email: string; readonly name: string } | null
      }>()
      const keyed = await client.items('task').list({ fields: ['editor.name'] })
      expectTypeOf(keyed.data[0]!.editor).toEqualTypeOf<{ readonly name: string; readonly email: string } | null>()
      const without = await client.items('project').list({ fields: ['-budget'] })
      expectTypeOf(without.data[0]!).toEqualTypeOf<{ readonly id: string; readonly name: string }>()
      const related = await client.items('project').list({ fields: ['*.*'] })
      expectTypeOf(related.data[0]!.budget).toEqualTypeOf<string | null>()
      expectTypeOf(related.data[0]!.tasks[0]!).toEqualTypeOf<Row<Schema, 'task'>>()
      const deeper = await client.items('project').list({ fields: ['*.*.*'] })
      expectTypeOf(deeper.data[0]!.tasks[0]!.editor).toEqualTypeOf<Row<Schema, 'person'> | null>()
    })
    compiled('extremes and groups', async () => {
      const { data } = await client.items('project').report({
        aggregate: { most: { function: 'max', field: 'budget' }, last: { function: 'max', field: 'name' } },
      })
      expectTypeOf(data[0]!.most).toEqualTypeOf<number | string | null>()
      expectTypeOf(data[0]!.last).toEqualTypeOf<string | null>()
      const grouped = await client.items('task').report({
        aggregate: { n: { function: 'count', field: '*' } },
        groupBy: ['project.name', 'date:year:createdAt'],
      })
      expectTypeOf(grouped.data[0]!['project.name']).toEqualTypeOf<string | null>()
      expectTypeOf(grouped.data[0]!.project_name).toEqualTypeOf<string | null>()
      expectTypeOf(grouped.data[0]!.project).toEqualTypeOf<{ readonly id: string; readonly name: string } | null>()
      expectTypeOf(grouped.data[0]!['date:year:createdAt']).toEqualTypeOf<number | null>()
      expectTypeOf(grouped.data[0]!.year_createdAt).toEqualTypeOf<number | null>()
    })
    compiled('reports', async () => {
      const { data } = await client.items('task').report({
        aggregate: { n: { function: 'count', field: '*' }, most: { function: 'max', field: 'points' } },
        groupBy: ['status', 'date:year:createdAt'],
      })
      expectTypeOf(data[0]!.n).toEqualTypeOf<number>()
      expectTypeOf(data[0]!.most).toEqualTypeOf<number | null>()
      expectTypeOf(data[0]!.status).toEqualTypeOf<'open' | 'done'>()
      expectTypeOf(data[0]!.year_createdAt).toEqualTypeOf<number | null>()
    })
    compiled('reports with related fields', async () => {
      const { data, totalCount } = await client.items('task').report({
        aggregate: { total: { function: 'count', field: '*' } },
        groupBy: ['project_Id'],
        fields: ['project.name'],
        having: { total: { gt: 15 } },
        sort: ['-total'],
      })
      expectTypeOf(data[0]!).toEqualTypeOf<{
        readonly total: number
        readonly project_Id: string | null
        readonly project: { readonly id: string; readonly name: string } | null
      }>()
      expectTypeOf(totalCount).toEqualTypeOf<number | undefined>()
      const aggregate = { n: { function: 'count', field: '*' } } as const
      const own = await client.items('task').report({ aggregate, groupBy: ['status'], fields: ['status', 'title'] })
      expectTypeOf(own.data[0]!).toEqualTypeOf<{ readonly n: number; readonly status: 'open' | 'done' }>()
      await client.items('task').report({
        aggregate,
        ...{ page: 2, offset: 5, limit: 10, count: false, paranoid: false, sort: { n: 'desc' } },
        ...{
          search: 'sweep',
          searchFields: ['title'],
          sortByRelevance: true,
          relConditions: { project: { name: 'a' } },
        },
      })
      const live = client.liveReport({ collection: 'task', aggregate, groupBy: ['status'], fields: ['project.name'] })
      expectTypeOf(live.view.rows[0]!.project).toEqualTypeOf<{ readonly id: string; readonly name: string } | null>()
    })
    compiled('searches', async () => {
      await client.items('task').list({ search: 'sweep', sortByRelevance: true })
    })
    compiled('filters', async () => {
      const tasks = client.items('task')
      const some = [1, 2] as number[]
      await tasks.list({ filter: { status: { in: ['open', '$CURRENT_USER.status'] }, points: { gte: 3, lt: '5' } } })
      await tasks.list({
        filter: { points: { in: some }, title: { startsWith: 'a', cast: null }, status: '$COL(title)' },
      })
      await tasks.list({ filter: { points: { startsWith: '1', cast: 'text' }, status: { contains: 'op', ne: null } } })
      await tasks.list({ filter: { title: { gt: '$NOW-DAYS_7', between: [new Date(), '$NOW'] }, points: null } })
      await tasks.list({
        filter: { OR: [{ status: 'done' }, { project: { name: 'a' } }], not: { points: { isNull: true } } },
      })
      await client.items('project').list({ filter: { budget: { gt: 12.5 }, 'tasks.title': { anything: 1 } } })
      await (client as unknown as Client)
        .items('any')
        .list({ filter: { a: { gt: 1 }, b: { c: { d: 'e' } }, OR: [{ a: 1 }] } })
      // @ts-expect-error no such word
      await tasks.list({ filter: { status: 'opened' } })
      // @ts-expect-error no such word
      await tasks.list({ filter: { status: { in: ['opened'] } } })
      // @ts-expect-error no number
      await tasks.list({ filter: { points: 'many' } })
      // @ts-expect-error no number
      await tasks.list({ filter: { points: { gt: true } } })
      // @ts-expect-error no such operator
      await tasks.list({ filter: { points: { greater: 3 } } })
      // @ts-expect-error no operator of numbers
      await tasks.list({ filter: { points: { startsWith: '1' } } })
      // @ts-expect-error a range has two ends
      await tasks.list({ filter: { points: { between: [1] } } })
      // @ts-expect-error of a related row
      await tasks.list({ filter: { project: { tasks: { status: 'opened' } } } })
      // @ts-expect-error in a list of filters
      await tasks.list({ filter: { OR: [{ status: 'opened' }] } })
      // @ts-expect-error in a filter that must not hold
      await tasks.list({ filter: { NOT: { status: { eq: 'opened' } } } })
    })
    compiled('changes', async () => {
      for (const change of (await client.changes()).data) {
        if (change.action === 'delete' || change.action === 'remove')
          expectTypeOf(change.data).toEqualTypeOf<undefined>()
        else if (change.collection === 'task') expectTypeOf(change.data).toEqualTypeOf<Row<Schema, 'task'>>()
        if (change.collection === 'person' && change.data !== undefined) expectTypeOf(change.data.email).toBeString()
        // @ts-expect-error a deletion has no data
        change.data.id
      }
      const two = await client.changes({ collections: ['task', 'person'] })
      expectTypeOf(two.data[0]!.collection).toEqualTypeOf<'task' | 'person'>()
      expectTypeOf(two.resync).toEqualTypeOf<readonly ('task' | 'person')[] | undefined>()
      const { data } = await client.changes({ collections: ['task', 'person'], fields: ['task.title', 'task.status'] })
      for (const change of data) {
        if (change.action !== 'create' && change.action !== 'update') continue
        if (change.collection === 'person') expectTypeOf(change.data).toEqualTypeOf<Row<Schema, 'person'>>()
        else expectTypeOf(change.data).toEqualTypeOf<{ readonly title: string; readonly status: 'open' | 'done' }>()
      }
      const without = (await client.changes({ fields: ['-task.title'] })).data[0]!
      if (without.collection === 'task' && without.data !== undefined)
        expectTypeOf(without.data).not.toHaveProperty('title')
      const any = (await (client as unknown as Client).changes({ collections: ['a'], fields: ['a.b'] })).data[0]!
      if (any.data !== undefined) expectTypeOf(any.data.b).toBeAny()
      const listed = await client.items('task').list({ fields: ['title'], changesCursor: true })
      expectTypeOf(listed.changesCursor).toBeString()
      expectTypeOf(listed.data[0]!).toEqualTypeOf<{ readonly title: string }>()
      // @ts-expect-error it was not asked for
      ;(await client.items('task').list()).changesCursor
      // @ts-expect-error no such collection
      await client.changes({ collections: ['tasks'] })
      // @ts-expect-error no such field
      await client.changes({ fields: ['task.titel'] })
      // @ts-expect-error none of the collections
      await client.changes({ collections: ['task'], fields: ['person.name'] })
    })
    compiled('undone requests', async () => {
      const [gone] = (await client.items('task').deleted()).data
      expectTypeOf(gone!.requestId).toEqualTypeOf<string | null>()
      const [event] = (await client.items('task').history('1')).data
      expectTypeOf(event!.requestId).toEqualTypeOf<string | null>()
    })
    compiled('live rows', async () => {
      const live = client.live({ collection: 'task', filter: { status: 'open' }, sort: ['-title'] })
      expectTypeOf(live.view.rows[0]!).toEqualTypeOf<Row<Schema, 'task'>>()
      const some = client.live({ collection: 'task', fields: ['title'], sort: ['-points'] })
      expectTypeOf(some.view.rows[0]!).toEqualTypeOf<{ readonly id: string; readonly title: string }>()
      const keyed = client.live({ collection: 'person', fields: ['name'] })
      expectTypeOf(keyed.view.rows[0]!).toEqualTypeOf<Row<Schema, 'person'>>()
      const drawn = useLive(client, { collection: 'task', fields: ['title'] })
      expectTypeOf(drawn.rows[0]!).toEqualTypeOf<{ readonly id: string; readonly title: string }>()
      expectTypeOf(drawn.live!.view.rows).toEqualTypeOf(drawn.rows)
      expectTypeOf(useLive(client, { collection: 'task' }).rows[0]!).toEqualTypeOf<Row<Schema, 'task'>>()
      const fields: ('title' | 'points')[] = []
      expectTypeOf(client.live({ collection: 'task', fields }).view.rows[0]!.points).toEqualTypeOf<number | null>()
      const any = (client as unknown as Client).live({ collection: 'task', fields: ['title'], filter: { title: 'a' } })
      expectTypeOf(any.view.rows[0]!.title).toBeAny()
    })
    compiled('the order of reports', async () => {
      const aggregate = { n: { function: 'count', field: '*' } } as const
      await client.items('task').report({
        aggregate,
        groupBy: ['status', 'project.name', 'date:year:createdAt'],
        sort: ['-n', 'status', '-project.name', 'project_name', '-year_createdAt', 'date:year:createdAt'],
      })
      const names: ('status' | 'points')[] = []
      client.liveReport({ collection: 'task', aggregate, groupBy: names, sort: ['n'] })
      const any = client as unknown as Client
      await any.items('task').report({ aggregate, groupBy: ['anything'], sort: ['-nothing'] })
    })
  })

  it('need a link for mails that hold one', () => {
    compiled('mails', async () => {
      await client.auth.forgotPassword('ada@example.com', { mode: 'code' })
      await client.auth.forgotPassword('ada@example.com', { link: 'https://app.example' })
      await client.auth.sendMagicLink('ada@example.com', { mode: 'link', link: 'https://app.example' })
      await client.auth.resendVerification(undefined, 'https://app.example')
      // @ts-expect-error neither a link nor the code
      await client.auth.forgotPassword('ada@example.com')
      // @ts-expect-error no link
      await client.auth.sendMagicLink('ada@example.com', { mode: 'link' })
      // @ts-expect-error no link
      await client.auth.resendVerification('ada@example.com')
    })
  })

  it('refuse what there is not', () => {
    compiled('names', async () => {
      // @ts-expect-error no such collection
      client.items('tasks')
      // @ts-expect-error no such field
      await client.items('task').list({ fields: ['titel'] })
      // @ts-expect-error no such field behind the relation
      await client.items('task').list({ fields: ['project.nam'] })
      // @ts-expect-error no such field
      await client.items('task').list({ filter: { titel: 'a' } })
      // @ts-expect-error no such field
      await client.items('task').list({ sort: ['-titel'] })
      // @ts-expect-error a title is needed
      await client.items('task').create({ status: 'open' })
      // @ts-expect-error no such status
      await client.items('task').update('1', { status: 'closed' })
      // @ts-expect-error no such function
      await client.items('task').report({ aggregate: { n: { function: 'median', field: 'points' } } })
      const aggregate = { n: { function: 'count', field: '*' } } as const
      // @ts-expect-error no such field behind the relation
      await client.items('task').report({ aggregate, groupBy: ['project_Id'], fields: ['project.nam'] })
      // @ts-expect-error no such field to group by
      await client.items('task').report({ aggregate, groupBy: ['statu'] })
      // @ts-expect-error no such field to group by
      client.liveReport({ collection: 'task', aggregate, groupBy: ['status', 'point'] })
      // @ts-expect-error neither an aggregate nor a field
      await client.items('task').report({ aggregate, groupBy: ['status'], sort: ['-nope'] })
      // @ts-expect-error no such field
      client.live({ collection: 'task', fields: ['titel'] })
      // @ts-expect-error it is not among the fields
      client.live({ collection: 'task', fields: ['title'] }).view.rows[0]!.points
      // @ts-expect-error a cursor has no order by relevance
      client.items('task').each({ search: 'sweep', sortByRelevance: true })
    })
  })
})
