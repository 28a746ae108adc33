import { beforeAll, describe, expect, it } from 'vitest'
import { type Api, startApi } from '../support/api.ts'

/** Full-text search in texts as people write them: tickets, addresses, paths, numbers, names. */

let api: Api

beforeAll(async () => {
  api = await startApi()
  const schema = { fields: { title: { type: 'String' }, body: { type: 'Text' } } }
  expect((await api.admin('POST', '/schemas', { collectionName: 'ticket', schema })).status).toBe(201)
})

/** The titles among these that the search finds. */
async function found(search: string, titles: readonly string[], more = {}): Promise<unknown> {
  await api.sql('delete from ticket')
  const rows = titles.map((title) => ({ title, body: '' }))
  expect((await api.admin('POST', '/items/ticket/bulk', rows)).status).toBe(201)
  const parameters = new URLSearchParams({ search, searchFields: 'title,body', fields: 'title', ...more })
  const { status, body } = await api.admin('GET', `/items/ticket?${parameters}`)
  return status === 200 ? body.data.map((row: { title: string }) => row.title) : [status, body]
}

describe('a word', () => {
  it.each([
    ['log-in', 'please log in'],
    ['log in', 'Please log-in again'],
    ['broken', 'printer.broken'],
    ['write', 'read/write'],
    ['syslog', 'see /var/log/syslog'],
    ['/var/log', 'see /var/log/syslog'],
    ['acme', 'mail from cat@acme.example'],
    ['cat@acme.example', 'mail from cat@acme.example'],
    ['example', 'shop.example.org is down'],
    ['001', 'Invoice INV-2026-001'],
    ['inv-2026', 'Invoice INV-2026-001'],
    ['table', 'drop my_table'],
    ['dog', 'cat—dog'],
    ['192.168.1.1', 'ping 192.168.1.10 fails'],
  ])('%j stands in %j after or around punctuation', async (search, title) => {
    expect(await found(search, [title, 'another'])).toEqual([title])
  })

  it.each([
    ['runni', 'running late'],
    ['workin', 'working'],
    ['PRIN', 'the printer'],
    ['ärg', 'Großer Ärger'],
    ['ПРИВ', 'Скажи привет'],
    ['cafe\u0301', 'the CAFE\u0301S here'],
    ['हिन्', 'वह हिन्दी'],
    ['½', '½ cup'],
  ])('%j is the beginning of one in %j', async (search, title) => {
    expect(await found(search, [title, 'another'])).toEqual([title])
  })

  it.each([
    ['printers', 'printer broken'],
    ['runs', 'running late'],
    ['happiness', 'happy users'],
    ['failing printers', 'a printer fails'],
    ['log-in printers', 'log in to the printer'],
  ])('%j is found in %j by its stem', async (search, title) => {
    expect(await found(search, [title, 'another'])).toEqual([title])
  })

  it.each([
    ['rinter', 'printer'],
    ['AT&T', 'at last the attic'],
    ['192.168.1.1', 'ping 192.168.2.1'],
    [`don't`, 'donut tin'],
    ['log-in', 'in the log, login'],
    ['printer offline', 'printer broken'],
    ['the plotter', 'the printer'],
    ['r', 'Bär, cafés'],
  ])('%j is not in %j', async (search, title) => {
    expect(await found(search, [title])).toEqual([])
  })
})

describe('a UUID', () => {
  const uuids = ['0193a1b2-42c3-7d4e-8f50-1a7283940a5b', '1193a1b2-beef-42c3-8f50-417283940a5b']
  const search = async (parameters: Readonly<Record<string, string>>) => {
    const { status, body } = await api.admin('GET', `/items/delivery?${new URLSearchParams(parameters)}`)
    expect(status).toBe(200)
    return body.data.map((row: { code: string }) => row.code)
  }

  beforeAll(async () => {
    const schema = { fields: { note: { type: 'String' }, code: { type: 'UUID' } } }
    expect((await api.admin('POST', '/schemas', { collectionName: 'delivery', schema })).status).toBe(201)
    const rows = uuids.map((code) => ({ note: 'parcel', code }))
    expect((await api.admin('POST', '/items/delivery/bulk', rows)).status).toBe(201)
  })

  it.each([uuids[0], uuids[0]!.toUpperCase(), '0193a1b2', '0193a1b2-42', 'parcel 0193a1b2'])(
    'is found by %j',
    async (words) => expect(await search({ search: words! })).toEqual([uuids[0]]),
  )

  it.each(['1', '42', '0193', 'beef', '42c3'])('is not found by %j, which others are likely to hold', async (words) => {
    expect(await search({ search: words })).toEqual([])
  })

  it('is found by any beginning where its field is named', async () => {
    expect(await search({ search: '0193', searchFields: 'code' })).toEqual([uuids[0]])
  })
})

describe('English stop words', () => {
  it.each([
    [`don't`, `I don't know`],
    [`don't`, 'I don’t know'],
    ['AT&T', 'AT&T outage'],
    ['the who', 'The Who'],
    ['is not', 'user is not running'],
    ['IT', 'IT support'],
    ['A', 'Vitamin A'],
  ])('count where all words are such: %j in %j', async (search, title) => {
    expect(await found(search, [title, 'nothing'])).toEqual([title])
  })

  it.each([
    ['the printer', 'printer broken'],
    [`it's broken`, 'printer broken'],
    ['printers of AT&T', 'printer broken'],
  ])('do not count beside other words: %j in %j', async (search, title) => {
    expect(await found(search, [title, 'the who'])).toEqual([title])
  })
})

describe('relevance', () => {
  const byRelevance = { sortByRelevance: 'true' }

  it('is that of the stems: a row found as it is written comes behind', async () => {
    const titles = ['the shop.broken page', 'broken printer', 'broken, broken and broken']
    expect(await found('the broken', titles, byRelevance)).toEqual([titles[2], titles[1], titles[0]])
  })

  it('is none of stop words', async () => {
    expect(await found('the who', ['The Who', 'who?'], byRelevance)).toEqual(['The Who'])
  })
})
