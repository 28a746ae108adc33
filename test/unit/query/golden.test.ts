import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { compileCount, compileOne, compileStream } from '../../../src/query/compile.ts'
import { parseListQuery } from '../../../src/query/parse.ts'
import { resolveOne } from '../../../src/query/resolve.ts'
import { admin, env } from './support/access.ts'
import { catalog } from './support/catalog.ts'
import { listOf, planOf, readable } from './support/compiled.ts'
import { representative } from './support/representative.ts'

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

  it('a stream of groups and its count', async () => {
    const plan = planOf({ query: { ...representative['group-by-relation']!.query, sort: '-likes' } })
    await expect(readable(compileStream(plan))).toMatchFileSnapshot(golden('stream-groups'))
    await expect(readable(compileCount(plan))).toMatchFileSnapshot(golden('count-groups'))
  })
})
