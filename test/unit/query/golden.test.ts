import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import {
  compileCount,
  compileList,
  compileListUpTo,
  compileOne,
  compilePage,
  compileStream,
} from '../../../src/query/compile.ts'
import { parseListQuery } from '../../../src/query/parse.ts'
import { resolveOne } from '../../../src/query/resolve.ts'
import { writePageCursor } from '../../../src/query/resolve-sort.ts'
import { admin, env, U1 } from './support/access.ts'
import { catalog } from './support/catalog.ts'
import { listOf, planOf, readable } from './support/compiled.ts'
import { representative } from './support/representative.ts'

type Page = Parameters<typeof compilePage>[0]

const golden = (name: string) => join(import.meta.dirname, '../../golden/query', `${name}.sql`)

describe('the SQL of', () => {
  it.each(Object.entries(representative))('%s', async (name, asked) => {
    await expect(readable(listOf(asked))).toMatchFileSnapshot(golden(name))
  })

  it('one item', async () => {
    const query = parseListQuery({ fields: 'title,owner.name', filter: { stars: 5 } })
    const plan = resolveOne(catalog, admin, 'notes', '1', query, env)
    await expect(readable(compileOne(plan))).toMatchFileSnapshot(golden('one'))
  })

  it('a stream and its count', async () => {
    const plan = planOf({ query: { fields: ['id', 'owner.name'], filter: { stars: 5 }, sort: 'title' } })
    await expect(readable(compileStream(plan))).toMatchFileSnapshot(golden('stream'))
    await expect(readable(compileCount(plan))).toMatchFileSnapshot(golden('count'))
  })

  it('the first page by cursor, and one after a row', async () => {
    const query = { fields: 'title', filter: { stars: 5 }, sort: '-owner.email,title', limit: 25 }
    const first = planOf({ query: { ...query, cursor: '' } }) as Page
    await expect(readable(compilePage(first))).toMatchFileSnapshot(golden('page-first'))
    const cursor = writePageCursor(first.collection, first.sort, ['u@example.com', 'Alpha', '7'])
    await expect(readable(compilePage(planOf({ query: { ...query, cursor } }) as Page))).toMatchFileSnapshot(
      golden('page-after'),
    )
  })

  it('a page whose first key is indexed and may be null, each part for itself', async () => {
    const query = { fields: 'id', sort: 'email', limit: 500, count: false }
    const first = planOf({ collection: 'users', query: { ...query, cursor: '' } })
    const cursor = writePageCursor(first.collection, first.sort, ['u@example.com', U1])
    const plan = planOf({ collection: 'users', query: { ...query, cursor } }) as Page
    await expect(readable(compilePage(plan))).toMatchFileSnapshot(golden('page-in-two-parts'))
  })

  it('a list and a list of groups that may be too long', async () => {
    const list = planOf({ query: { fields: ['id', 'owner.name'], sort: 'title' } })
    await expect(readable(compileListUpTo(list, 1000))).toMatchFileSnapshot(golden('list-up-to'))
    const groups = planOf(representative['group-by-date']!)
    await expect(readable(compileListUpTo(groups, 1000))).toMatchFileSnapshot(golden('groups-up-to'))
  })

  it('a list as of a time, every table in it as it was', async () => {
    const plan = planOf({ query: { fields: ['id', 'owner.name'], limit: 5, asOf: '2024-05-01T10:00:00Z' } })
    await expect(readable(compileList(plan))).toMatchFileSnapshot(golden('list-as-of-time'))
  })

  it('a stream of groups and its count', async () => {
    const plan = planOf({ query: { ...representative['group-by-relation']!.query, sort: '-likes' } })
    await expect(readable(compileStream(plan))).toMatchFileSnapshot(golden('stream-groups'))
    await expect(readable(compileCount(plan))).toMatchFileSnapshot(golden('count-groups'))
  })
})
