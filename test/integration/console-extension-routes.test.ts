import { mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import pino from 'pino'
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { loadExtensions } from '../../src/extensions/extensions.ts'
import { openRuntime } from '../../src/process/runtime.ts'
import { type Api, startApi } from '../support/api.ts'
import { testConfig } from '../support/prepare.ts'

let api: Api
const directories: string[] = []

async function extensions(files: Record<string, string>): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), 'daybook-console-extension-routes-'))
  directories.push(directory)
  for (const [name, content] of Object.entries(files)) {
    await mkdir(dirname(join(directory, name)), { recursive: true })
    await writeFile(join(directory, name), content)
  }
  return directory
}

const books = {
  title: 'Books',
  page: { file: 'sub/page.html' },
  editors: { stars: { file: 'stars.html' } },
  collections: { read: ['book', 'writer'], write: ['book'] },
}
const exported = (value: unknown) => `export default ${JSON.stringify(value)}`

beforeAll(async () => {
  const directory = await extensions({
    'svc-console-books/index.js': exported(books),
    'svc-console-books/files/sub/page.html': '<!doctype html><title>Books</title>',
    'svc-console-books/files/stars.html': '<!doctype html>',
    'svc-console-books/files/style.css': 'p {}',
    'svc-console-books/files/.secret.txt': 'a secret',
    'svc-console-books/files/.git/config.txt': 'a secret',
    'svc-console-books/files/source.ts': 'a secret',
    'svc-console-books/secret.txt': 'a secret',
    'svc-console-few/index.js': exported({ title: 'For few', roles: ['few'], page: { file: 'page.html' } }),
    'svc-console-few/files/page.html': '<!doctype html>',
  })
  const files = join(directory, 'svc-console-books/files')
  await symlink('../secret.txt', join(files, 'link.txt'))
  await symlink('..', join(files, 'up'))
  api = await startApi({ EXTENSIONS_DIR: directory, BASE_URL: 'https://books.example' })
  const text = { type: 'String', allowNull: true }
  const make = async (collectionName: string, fields: object) => {
    const { status } = await api.admin('POST', '/schemas', { collectionName, schema: { fields } })
    expect(status).toBe(201)
  }
  await make('writer', { name: text, salary: text })
  await make('shop', { name: text })
  const to = (target: string) => ({ relType: 'BelongsTo', target })
  await make('book', { title: text, writer: to('writer'), shop: to('shop') })
})
afterAll(() => Promise.all(directories.map((directory) => rm(directory, { recursive: true }))))

const listed = async (call = api.admin) => (await call('GET', '/console/extensions.json')).body.data

describe('the list of extensions', () => {
  it('has those that are for the caller, for every signed-in user', async () => {
    const all = await listed()
    expect(all).toEqual([
      {
        name: 'books',
        title: 'Books',
        base: expect.stringMatching(/^\/console\/extension-files\/\d+\.[\w-]{43}\/books\/$/),
        page: 'sub/page.html',
        editors: [{ name: 'stars', file: 'stars.html' }],
        collections: { read: ['book', 'writer'], write: ['book'] },
      },
      expect.objectContaining({ name: 'few', collections: { read: [], write: [] } }),
    ])
    expect((await listed())[0].base).toBe(all[0].base)
    const { call } = await api.user()
    expect((await listed(call)).map(({ name }: { name: string }) => name)).toEqual(['books'])
    expect((await api.anonymous('GET', '/console/extensions.json')).status).toBe(401)
  })
})

describe('files of extensions', () => {
  it('are served with their type, in a sandbox, to every holder of the address', async () => {
    const [{ base }] = await listed()
    const html = await api.anonymous('GET', `${base}sub/page.html`, undefined, { host: 'books.example:8443' })
    expect(html).toMatchObject({ status: 200, text: '<!doctype html><title>Books</title>' })
    expect(html.headers).toMatchObject({
      'content-type': 'text/html; charset=utf-8',
      'x-content-type-options': 'nosniff',
      'access-control-allow-origin': '*',
      'referrer-policy': 'no-referrer',
    })
    const policy = String(html.headers['content-security-policy']).split('; ')
    const own = `http://books.example:8443${base} http://books.example${base}`
    expect(policy).toContain("default-src 'none'")
    expect(policy).toContain(`connect-src ${own}`)
    expect(policy).toContain("frame-ancestors 'self'")
    expect(policy).toContain('sandbox allow-scripts')
    expect(policy.join()).not.toMatch(/unsafe|script-src 'self'|\*/)
    const css = await api.anonymous('GET', `${base}style.css`)
    expect(css.headers['content-type']).toBe('text/css; charset=utf-8')
    const same = { 'if-none-match': String(css.headers.etag) }
    expect((await api.anonymous('GET', `${base}style.css`, undefined, same)).status).toBe(304)
    const { status, text, headers } = await api.anonymous('GET', '/console/extension.js')
    expect([status, headers['access-control-allow-origin']]).toEqual([200, '*'])
    expect(text).toMatch(/export\s*{.*connect/)
    expect((await api.anonymous('GET', '/console/extension.css')).status).toBe(200)
  })

  it('lead nowhere else: no links, no way up, nothing hidden, no sources, no host of others', async () => {
    const [{ base }, few] = await listed()
    const paths = ['link.txt', 'up/secret.txt', 'up/files/style.css', '.secret.txt', '.git/config.txt', 'source.ts']
    const ups = ['../secret.txt', '..%2fsecret.txt', '%2e%2e/secret.txt', '..%5csecret.txt', 'sub/../../secret.txt']
    const odd = ['sub', 'style.css/x.css', 'style.css%00', '%00.css', '/style.css', 'no.html']
    const long = [`${'x'.repeat(200)}.css`, `${'x/'.repeat(190)}y.css`]
    for (const path of [...paths, ...ups, ...odd, ...long]) {
      const answer = await api.anonymous('GET', base + path)
      expect(answer.text).not.toContain('a secret')
      // A client that resolves the dots asks for another address.
      if (!path.includes('../') && !path.includes('%2e/')) expect([path, answer.status]).toEqual([path, 404])
    }
    const [, , , key = ''] = base.split('/')
    const keys = [key.slice(0, -1), `1${key}`, key.replace(/^\d+/, '1'), few.base.split('/')[3], 'x']
    for (const other of keys)
      expect((await api.anonymous('GET', `/console/extension-files/${other}/books/style.css`)).status).toBe(404)
    for (const name of ['few', 'none', '__proto__', 'constructor'])
      expect((await api.anonymous('GET', `/console/extension-files/${key}/${name}/page.html`)).status).toBe(404)
    const host = { host: 'a.example; script-src *' }
    expect((await api.anonymous('GET', `${base}style.css`, undefined, host)).status).toBe(400)
  })
})

describe('requests in the name of an extension', () => {
  const as = (name: string) => ({ 'x-svc-console-extension': name })
  const read = { action: 'read', fields: '*' }

  it('open what both it and the caller may, for administrators too', async () => {
    const writer = await api.admin('POST', '/items/writer', { name: 'Ada', salary: '1' })
    const shop = await api.admin('POST', '/items/shop', { name: 'Corner' })
    const book = { title: 'One', writer_Id: writer.body.data.id, shop_Id: shop.body.data.id }
    const ask = (method: string, path: string, body?: unknown, call = api.admin) =>
      call(method, path, body, as('books'))
    const before = await api.position()
    const { shop_Id, ...open } = book
    const made = await ask('POST', '/items/book', open)
    expect(made.status).toBe(201)
    // Nor is it told by a link whether there is such a row.
    expect((await ask('POST', '/items/book', { title: 'One', shop_Id })).status).toBe(400)
    const path = `/items/book/${made.body.data.id}`
    expect((await ask('GET', `${path}?fields=title,writer.name`)).body.data).toEqual({
      title: 'One',
      writer: { id: book.writer_Id, name: 'Ada' },
    })
    expect((await ask('PATCH', path, { title: 'Two' })).status).toBe(200)
    const report = { aggregate: { n: { function: 'count', field: '*' } } }
    expect((await ask('POST', '/reports/writer', report)).status).toBe(200)
    const refused: [string, string, unknown?][] = [
      ['GET', '/items/shop'],
      ['GET', `${path}?fields=shop.name`],
      ['GET', '/items/book?filter={"shop.name":"Corner"}'],
      ['GET', '/items/book?sort=shop.name'],
      ['GET', '/items/svc_User'],
      ['POST', '/reports/shop', report],
      ['POST', '/items/writer', { name: 'Eve' }],
      ['PATCH', path, { writer: { name: 'Eve' } }],
      ['PATCH', path, { shop: { name: 'Eve' } }],
    ]
    for (const [method, at, body] of refused)
      expect({ at, status: (await ask(method, at, body)).status }).toEqual({ at, status: 403 })
    const closed = [
      ['GET', '/auth/me'],
      ['GET', `${path}/history`],
      ['GET', '/schemas'],
      ['DELETE', '/items/book/bulk'],
      ['GET', '/console/extensions.json'],
      ['POST', '/log/undo'],
    ] as const
    for (const [method, at] of closed)
      expect((await ask(method, at, method === 'GET' ? undefined : {})).body).toMatchObject(
        at.startsWith('/auth') ? { code: 'NOT_FOR_EXTENSIONS' } : { error: { code: 'NOT_FOR_EXTENSIONS' } },
      )
    expect((await ask('DELETE', path)).status).toBe(200)
    expect((await api.log(before)).map(({ entity, action }) => `${entity} ${action}`)).toEqual([
      'book create',
      'book update',
      'book delete',
    ])
    const [{ agent }] = await api.sql(`select agent from "svc_AuditLog" where entity = 'book' limit 1`)
    expect(agent).toEqual({ name: 'console extension', tool: 'books' })
  })

  it('never open more than the caller has, whatever the manifest names, nor what a grant names of others', async () => {
    const fields = ['title', 'writer.name', 'shop.name']
    const { call } = await api.user([
      { collection: 'book', action: 'read', fields },
      { collection: 'shop', ...read },
    ])
    expect((await call('GET', '/items/book?fields=shop.name')).status).toBe(200)
    const ask = (method: string, path: string, body?: unknown) => call(method, path, body, as('books'))
    expect((await ask('GET', '/items/book?fields=title,writer.name')).status).toBe(200)
    for (const path of ['/items/shop', '/items/book?fields=shop.name', '/items/book?fields=writer.salary'])
      expect((await ask('GET', path)).status).toBe(403)
    expect((await ask('POST', '/items/book', { title: 'x' })).status).toBe(403)
    expect((await call('GET', '/items/book', undefined, as('few'))).body.error.code).toBe('NOT_FOR_EXTENSIONS')
    expect((await call('GET', '/items/book', undefined, as('none'))).status).toBe(400)
    // An answer that was read without it does not come to it from memory.
    for (let i = 0; i < 5; i += 1) expect((await call('GET', '/items/shop')).status).toBe(200)
    expect((await ask('GET', '/items/shop')).status).toBe(403)
  })
})

describe('a wrong extension of the console', () => {
  const html = { 'svc-console-x/files/page.html': '' }
  const page = { title: 'X', page: { file: 'page.html' } }

  it.each<[string, Record<string, string>, string]>([
    ['no object', { 'svc-console-x/index.js': 'export default 7', ...html }, 'must export { title'],
    ['an unknown member', { 'svc-console-x/index.js': exported({ ...page, pages: [] }), ...html }, '"pages"'],
    ['no title', { 'svc-console-x/index.js': exported({ page: page.page }), ...html }, 'has a wrong title'],
    ['odd roles', { 'svc-console-x/index.js': exported({ ...page, roles: 'few' }), ...html }, 'has a wrong roles'],
    ['nothing', { 'svc-console-x/index.js': exported({ title: 'X' }), ...html }, 'neither a page nor editors'],
    ['no files', { 'svc-console-x/index.js': exported(page) }, 'has no folder files'],
    ['no page', { 'svc-console-x/index.js': exported(page), 'svc-console-x/files/x': '' }, 'names page.html, which'],
    ['no name', { 'svc-console-X y/index.js': exported(page), 'svc-console-X y/files/page.html': '' }, 'lowercase'],
    [
      'a page outside',
      { 'svc-console-x/index.js': exported({ title: 'X', page: { file: '../page.html' } }), ...html },
      'names ../page.html, which',
    ],
    [
      'an odd editor',
      { 'svc-console-x/index.js': exported({ title: 'X', editors: { 'A b': page.page } }), ...html },
      'which cannot be a name',
    ],
  ])('with %s stops the start in one line', async (_what, files, words) => {
    const config = testConfig(api.database.url, { EXTENSIONS_DIR: await extensions(files) })
    const runtime = await openRuntime({ config, log: pino({ level: 'silent' }), name: 'web', worker: false })
    onTestFinished(() => runtime.close())
    const error = await loadExtensions(runtime).then(
      () => undefined,
      (one: Error) => one,
    )
    expect(error?.message).toContain('EXTENSIONS_DIR: ')
    expect(error?.message).toContain(words)
    expect(error?.message).not.toContain('\n')
  })
})
