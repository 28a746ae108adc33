import { beforeAll, describe, expect, it } from 'vitest'
import { compileList } from '../../src/query/compile.ts'
import { parseListQuery } from '../../src/query/parse.ts'
import { resolveEnv, resolveList } from '../../src/query/resolve.ts'
import { type Api, startApi } from '../support/api.ts'
import { admin as adminAccess } from '../unit/query/support/access.ts'

/** What a list costs: one statement, however deep, and indexes all the way. */

let api: Api

beforeAll(async () => {
  api = await startApi()
  const id = { type: 'Integer', primaryKey: true }
  const name = { type: 'String' }
  const save = async (method: string, path: string, collectionName: string, fields: object) => {
    const schema = { fields: { id, name, ...fields }, indexes: [{ fields: ['name'] }] }
    const answer = await api.admin(method, path, { collectionName, schema })
    if (answer.status > 201) throw new Error(answer.text)
  }
  const notes = { relType: 'HasMany', target: 'note', foreignKey: 'book_Id' }
  const author = { relType: 'BelongsTo', target: 'author', foreignKey: 'author_Id' }
  await save('POST', '/schemas', 'author', {})
  await save('POST', '/schemas', 'book', { author })
  await save('POST', '/schemas', 'note', { book: { relType: 'BelongsTo', target: 'book', foreignKey: 'book_Id' } })
  await save('PATCH', '/schemas/book', 'book', { author, notes })
  const books = { relType: 'HasMany', target: 'book', foreignKey: 'author_Id' }
  await save('PATCH', '/schemas/author', 'author', { books })
  await api.sql(`insert into author (id, name) select n, 'author ' || n from generate_series(1, 4000) n`)
  await api.sql(
    `insert into book (id, name, "author_Id") select n, 'book ' || n, 1 + n % 4000 from generate_series(1, 8000) n`,
  )
  await api.sql(
    `insert into note (id, name, "book_Id") select n, 'note ' || n, 1 + n % 8000 from generate_series(1, 16000) n`,
  )
  await api.sql('analyze author, book, note')
})

type Node = { 'Node Type': string; 'Relation Name'?: string; Plans?: Node[] }

const nodesOf = (node: Node): Node[] => [node, ...(node.Plans ?? []).flatMap(nodesOf)]

async function scansOf(collection: string, query: Readonly<Record<string, unknown>>): Promise<string[]> {
  const plan = resolveList(
    api.runtime.catalog.current(),
    adminAccess,
    collection,
    parseListQuery(query),
    resolveEnv(api.runtime),
  )
  const { text, values } = compileList(plan)
  const [row] = await api.sql(`explain (format json) ${text}`, [...values])
  const scans = nodesOf(row['QUERY PLAN'][0].Plan).filter((node) => node['Relation Name'] !== undefined)
  return scans.map((node) => `${node['Relation Name']}: ${node['Node Type']}`).sort()
}

describe('a list with two levels of relations', () => {
  const down = { fields: ['name', 'books.name', 'books.notes.name'], sort: 'name', limit: 20 }
  const up = { fields: ['name', 'book.name', 'book.author.name'], sort: '-id', limit: 20 }

  it.each([
    ['to many', 'author', down, { name: 'author 1', books: [{ name: 'book 4000' }, { name: 'book 8000' }] }],
    ['to one', 'note', up, { name: 'note 16000', book: { name: 'book 1', author: { name: 'author 2' } } }],
  ])('is one statement (%s)', async (_kind, collection, query, first) => {
    let statements = 0
    const count = () => {
      statements += 1
    }
    api.runtime.db.pool.on('acquire', count)
    const parameters = new URLSearchParams({ ...query, fields: query.fields.join(), limit: '20' })
    const { body } = await api.admin('GET', `/items/${collection}?${parameters}`)
    api.runtime.db.pool.off('acquire', count)
    expect(statements).toBe(1)
    expect(body.data).toHaveLength(20)
    expect(body.data[0]).toMatchObject(first)
  })

  it('reads every table of it through an index', async () => {
    expect(await scansOf('author', { ...down, count: 'false' })).toEqual([
      'author: Index Scan',
      expect.stringMatching(/^book: (Bitmap Heap|Index) Scan$/),
      expect.stringMatching(/^note: (Bitmap Heap|Index) Scan$/),
    ])
    expect(await scansOf('note', { ...up, count: 'false' })).toEqual([
      'author: Index Scan',
      'book: Index Scan',
      'note: Index Scan',
    ])
  })

  it('and so are conditions on related rows', async () => {
    const scans = await scansOf('author', { fields: 'id', filter: { 'books.notes.id': 7 }, count: 'false', limit: 20 })
    expect(scans.filter((scan) => scan.endsWith('Seq Scan'))).toEqual([])
  })
})
