import { beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { type Client, createClient, type LiveView } from '../../clients/client.ts'
import { type Api, startApi } from '../support/api.ts'
import { describeWithBrowser, startBrowser } from '../support/browser.ts'
import { createRole, createTenant, createUser, grant } from '../support/tenants.ts'
import { waitFor } from '../support/wait.ts'

/** Each tenant has a note of its own: Bo is at both, Cy at the second. */
let api: Api
let url: string
let tenants: string[]
const password = 'password of a user'
let bo: { email: string; password: string; tenant_Id: string }
let cy: { email: string; password: string; tenant_Id: string }

beforeAll(async () => {
  api = await startApi({ SOCKET_ENABLED: 'true', MULTI_TENANT: 'true' })
  url = await api.app.listen({ host: '127.0.0.1', port: 0 })
  const schema = { fields: { title: { type: 'String' } } }
  for (const collectionName of ['note', 'memo']) {
    const made = await api.admin('POST', '/schemas', { collectionName, schema })
    expect(made.status, made.text).toBe(201)
  }
  const role = await createRole(api, { isTenantSpecific: true })
  const may = (collection: string, action: string) => ({ collection, action, fields: '*' })
  await grant(api, role, may('note', 'read'), may('note', 'create'), may('memo', 'read'))
  tenants = [await createTenant(api, 'one'), await createTenant(api, 'two')]
  const users = [await createUser(api, role, tenants[0]!), await createUser(api, role, tenants[1]!)]
  await api.sql('insert into "svc_UserRole" ("user_Id", "role_Id", "tenant_Id") values ($1, $2, $3)', [
    users[0]!.id,
    role,
    tenants[1],
  ])
  bo = { email: users[0]!.email, password, tenant_Id: tenants[0]! }
  cy = { email: users[1]!.email, password, tenant_Id: tenants[1]! }
  for (const [n, tenant_Id] of tenants.entries())
    await api.admin('POST', '/items/note', { title: n === 0 ? 'first' : 'second', tenant_Id })
})

function clientOf(options: Parameters<typeof createClient>[0] = {}): Client {
  const client = createClient({ url, ...options })
  onTestFinished(() => client.close())
  return client
}

const titlesOf = ({ rows }: LiveView<any>) => rows.map(({ title }) => title).join()

/** Live rows and a live report of the notes, and every combination of rows that has been seen. */
async function opened(client: Client) {
  const live = client.live({ collection: 'note', sort: ['title'] })
  const report = client.liveReport({
    collection: 'note',
    aggregate: { title: { function: 'max', field: 'title' } },
  })
  const seen = new Set<string>()
  live.subscribe(() => seen.add(titlesOf(live.view)))
  const shows = async (title: string) => {
    await waitFor(() => {
      const are = [live.view, report.view].every((view) => view.status === 'live' && titlesOf(view) === title)
      return are ? true : undefined
    })
  }
  return { live, report, seen, shows }
}

describe('live rows and reports', () => {
  it('begin anew at another tenant', async () => {
    const client = clientOf()
    await client.auth.login(bo)
    const { live, seen, shows } = await opened(client)
    await shows('first')
    const { realtime } = client
    const told: unknown[] = []
    const ignore = () => undefined
    const onError = (error: unknown) => told.push(error)
    realtime.subscribe('memo', { onChange: ignore, onRemove: ignore, onResync: ignore, onError })
    await client.auth.switchTenant(tenants[1]!)
    await shows('second')
    // The server may have hung up before.
    expect(told.at(-1)).toMatchObject({ final: true, message: expect.stringMatching('tenant') })
    expect(client.realtime).not.toBe(realtime)
    expect(realtime.socket.connected).toBe(false)
    onTestFinished(() => api.sql(`delete from note where title = 'third'`).then(ignore))
    await live.create({ title: 'third' })
    await waitFor(() => (titlesOf(live.view) === 'second,third' ? true : undefined))
    expect([...seen].filter((titles) => titles.includes('first') && titles !== 'first')).toEqual([])
  })

  it('begin anew with another user, also of another client of the store', async () => {
    const kept = new Map<string, string>()
    const store = {
      getItem: (name: string) => kept.get(name) ?? null,
      setItem: (name: string, value: string) => void kept.set(name, value),
      removeItem: (name: string) => void kept.delete(name),
    }
    const [one, other] = [clientOf({ auth: { store } }), clientOf({ auth: { store } })]
    await one.auth.login(bo)
    const [first, second] = [await opened(one), await opened(other)]
    await Promise.all([first.shows('first'), second.shows('first')])
    await one.auth.login(cy)
    expect(titlesOf(first.live.view)).toBe('')
    await first.shows('second')
    expect((await other.items('note').list({ fields: ['title'] })).data).toMatchObject([{ title: 'second' }])
    await second.shows('second')
    for (const { seen } of [first, second]) expect([...seen].filter((titles) => titles.includes('first,'))).toEqual([])
  })
})

/** As text: what loads modules for the tests has no business in a page. */
const load = (auth: object) => `import('/client.js').then(({ createClient }) => {
  const client = createClient({ auth: ${JSON.stringify(auth)} })
  const told = []
  client.auth.onChange((state) => told.push(state))
  Object.assign(window, { client, told })
})`
const look = () => {
  const live = (window as any).client.live({ collection: 'note', sort: ['title'] })
  Object.assign(window, { live })
}
const shown = () => {
  const { client, live, told } = window as any
  const titles = live.view.rows.map(({ title }: { title: string }) => title).join()
  return { state: client.auth.state, status: live.view.status, titles, told }
}

/** The titles of all rows that the browser keeps. */
const kept = async (name: string) => {
  const done = (request: any) =>
    new Promise<any>((resolve) => request.addEventListener('success', () => resolve(request.result)))
  const { indexedDB } = globalThis as any
  const database = await done(indexedDB.open(name))
  const all = await done(database.transaction('live').objectStore('live').getAll())
  database.close()
  return all.flatMap(({ rows }: { rows: { title: string }[] }) => rows.map(({ title }) => title))
}

describeWithBrowser('in a browser', () => {
  it.each([{ mode: 'cookie' }, {}])('live rows are those of who has signed in in any tab, with %j', async (auth) => {
    const browser = await startBrowser()
    const context = await browser.newContext()
    onTestFinished(() => context.close())
    const pages = [await context.newPage(), await context.newPage()] as const
    const [first, second] = pages
    for (const page of pages) {
      await page.goto(`${url}/docs`)
      await page.evaluate(load(auth))
    }
    const login = (who: object) => first.evaluate((one) => (window as any).client.auth.login(one), who)
    const show = async (of: readonly (typeof first)[], wanted: object) => {
      for (const page of of) await expect.poll(() => page.evaluate(shown)).toMatchObject(wanted)
    }
    await login(bo)
    for (const page of pages) await page.evaluate(look)
    await show(pages, { state: 'signed in', status: 'live', titles: 'first', told: ['signed in'] })
    await login(cy)
    await show(pages, { state: 'signed in', status: 'live', titles: 'second', told: ['signed in', 'signed in'] })
    await expect.poll(() => first.evaluate(kept, `daybook:${url}`)).toEqual(['second'])
    // Whose session it is, a page learns from its connection too.
    await second.reload()
    await second.evaluate(load(auth))
    await second.evaluate(look)
    await show([second], { state: 'signed in', status: 'live', titles: 'second' })
    await first.evaluate(() => (window as any).client.auth.logout())
    await show(pages, { state: 'signed out', status: 'ended', titles: '' })
    expect((await second.evaluate(shown)).told.at(-1)).toBe('signed out')
    await login(bo)
    for (const page of pages) await page.evaluate(look)
    await show(pages, { state: 'signed in', status: 'live', titles: 'first' })
  })
})
