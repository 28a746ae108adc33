import { createHmac } from 'node:crypto'
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import pino from 'pino'
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { serializers } from '../../src/adapters/logger.ts'
import { buildServer } from '../../src/api/server.ts'
import { loadExtensions } from '../../src/extensions/extensions.ts'
import { openRuntime } from '../../src/process/runtime.ts'
import { type Api, startApi } from '../support/api.ts'
import { administrator, testConfig } from '../support/prepare.ts'
import { root } from '../support/processes.ts'

let api: Api
const directories: string[] = []

beforeAll(async () => {
  api = await startApi({ EXTENSIONS_DIR: join(root, 'extensions/examples') })
  const fields = { title: { type: 'String' }, slug: { type: 'String', unique: true } }
  expect((await api.admin('POST', '/schemas', { collectionName: 'article', schema: { fields } })).status).toBe(201)
})

afterAll(() => Promise.all(directories.map((directory) => rm(directory, { recursive: true }))))

/** A directory with these files in it. */
async function extensions(files: Record<string, string>): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), 'daybook-extensions-'))
  directories.push(directory)
  for (const [name, content] of Object.entries(files)) {
    await mkdir(dirname(join(directory, name)), { recursive: true })
    await writeFile(join(directory, name), content)
  }
  return directory
}

/** Another web process with the extensions of a directory. */
async function started(directory: string, log = pino({ level: 'silent' })) {
  const config = testConfig(api.database.url, { EXTENSIONS_DIR: directory })
  const runtime = await openRuntime({ config, log, name: 'web', worker: false })
  onTestFinished(() => runtime.close())
  const loaded = await loadExtensions(runtime)
  const app = await buildServer(runtime, loaded)
  onTestFinished(() => app.close())
  await app.ready()
  return { runtime, app, loaded }
}

describe('the samples', () => {
  it('fill a slug, keep it, and count as the caller', async () => {
    const post = await api.admin('POST', '/items/article?fields=slug', { title: 'Déjà vu: a Tale' })
    expect(post).toMatchObject({ status: 201, body: { data: { slug: 'deja-vu-a-tale' } } })
    const [{ id }] = await api.sql('select id from article')
    expect(await api.admin('PATCH', `/items/article/${id}`, { slug: 'other' })).toMatchObject({
      status: 400,
      body: { error: { message: 'The slug of an article is part of its address and stays', code: 'HOOK_REFUSED' } },
    })
    expect((await api.admin('PATCH', `/items/article/${id}`, { title: 'New' })).status).toBe(200)
    expect((await api.admin('GET', '/digest/article')).body).toEqual({ data: { for: 'admin@example.com', items: 1 } })
    expect((await api.anonymous('GET', '/digest/article')).status).toBe(403)
    const none = { title: { eq: 'none' } }
    const { call, email } = await api.user([{ collection: 'article', action: 'read', conditions: none }])
    expect((await call('GET', '/digest/article')).body).toEqual({ data: { for: email, items: 0 } })
  })

  it('are not loaded where they ship', async () => {
    const { runtime, loaded } = await started(join(root, 'extensions'))
    expect(runtime.hooks.isEmpty()).toBe(true)
    expect(loaded).toEqual({ hooks: [], endpoints: [], schedules: [], tasks: [], consoles: [] })
  })
})

describe('a preview', () => {
  it('is written in by no extension, neither as the caller nor as the platform', async () => {
    const { app } = await started(
      await extensions({
        'svc-hook-seen/index.js': `export default async (hooks, { ItemsService }) => {
          const note = (title) => new ItemsService('article').createOne({ title, slug: title })
          hooks.registerHook('article', 'items.read.after', () => note('seen'))
          hooks.registerHook('article', 'items.read.one', () => note('about to be seen'))
        }`,
        'svc-endpoint-seen/index.js': `export default {
          id: 'seen',
          handler: (app, { ItemsService, db }) => {
            app.get('/items', () => new ItemsService('article').createOne({ title: 'asked', slug: 'asked' }))
            app.get('/sql', () => db.transaction((tx) => tx.query("insert into article (title, slug) values ('sql', 'sql')")))
          },
        }`,
      }),
    )
    const { body } = await api.anonymous('POST', '/auth/login', administrator)
    const ada = await api.user([{ collection: 'article', action: 'read' }])
    const [{ id }] = await api.sql('select id from article limit 1')
    const ask = async (url: string) => {
      const answer = await app.inject({ url, headers: { authorization: `Bearer ${body.token}` } })
      return [answer.statusCode, /"code":"(\w+)"/.exec(answer.body)?.[1]]
    }
    expect((await api.as(body.token)('POST', '/auth/preview', { user: ada.id })).status).toBe(200)
    const before = await api.position()
    expect(await ask('/items/article')).toEqual([200, undefined])
    for (const url of [`/items/article/${id}`, '/seen/items', '/seen/sql'])
      expect([url, ...(await ask(url))]).toEqual([url, 403, 'PREVIEW_READ_ONLY'])
    expect(await api.log(before)).toEqual([])
    await api.as(body.token)('DELETE', '/auth/preview')
    for (const url of [`/items/article/${id}`, '/seen/items', '/seen/sql']) expect((await ask(url))[0]).toBe(200)
    await api.sql(`delete from article where slug in ('seen', 'about to be seen', 'asked', 'sql')`)
  })
})

describe('loading', () => {
  it('takes JavaScript and TypeScript in the order of names, collects schedules and leaves other entries alone', async () => {
    const hook = (name: string) =>
      `export default async (hooks) => hooks.registerHook('article', 'items.create', ({ data }) => ({ data: { ...data, title: data.title + '${name}' } }))`
    const { app, loaded } = await started(
      await extensions({
        'svc-hook-2/index.ts': `const n: number = 1\n${hook('2')}\nvoid n`,
        'svc-hook-1/index.js': hook('1'),
        'svc-endpoint-x/index.mjs': `const thrown = {
          object: () => ({ status: 403 }),
          words: () => ({ status: 403, message: 'Not yours' }),
          error: () => Object.assign(new Error('Not yours'), { status: 403, code: 'NOT_YOURS' }),
          type: () => Object.assign(new TypeError('Not yours'), { status: 409 }),
          plain: () => new Error('a secret'),
          fault: () => Object.assign(new Error('a secret'), { status: 500 }),
          odd: () => Object.assign(new Error('a secret'), { status: 'no' }),
          text: () => 'a secret',
          field: () => ({ status: 422, code: 'INVALID', details: { errors: [{ field: 'x', message: 'Too dear', at: new Date(0) }] } }),
          circular: () => { const details = {}; details.self = details; return { status: 422, details } },
          long: () => ({ status: 422, details: 'x'.repeat(20_000) }),
        }
        export default { id: 'x', handler: (app, { ItemsService }) => {
          app.addHook('onSend', async (request, reply) => { reply.header('x-own', '1') })
          app.post('/make', async (request) => new ItemsService('article', { accountability: request.accountability }).createOne(request.body))
          app.get('/refuses/:kind', async ({ params }) => { throw thrown[params.kind]() })
          app.get('/refuses-now/:kind', ({ params }) => { throw thrown[params.kind]() })
          app.get('/sends/:kind', ({ params }, reply) => { reply.send(thrown[params.kind]()) })
          const querystring = { type: 'object', properties: { n: { type: 'integer', default: 7 } }, required: ['n'] }
          const headers = { type: 'object', properties: { 'X-Day': { type: 'string', format: 'date' } }, required: ['X-Day'] }
          app.get('/shaped', { schema: { querystring, headers } }, ({ query }) => query)
          app.get('/fails', () => { throw Object.assign(new Error('Own words'), { statusCode: 418 }) })
        } }`,
        'svc-schedule-a/index.js': `export default { id: 'a', schedule: '0 3 * * *', handler() {} }`,
        'svc-schedule-b/index.js': 'export default () => { throw new Error("not run yet") }',
        'templates/logo/logo.svg': '',
        'README.md': '',
      }),
    )
    expect(loaded.schedules.map(({ name }) => name)).toEqual(['svc-schedule-a', 'svc-schedule-b'])
    const call = (method: 'POST' | 'GET', url: string, token?: string, key = 'none') =>
      app.inject({
        method,
        url,
        headers: { ...(token && { authorization: `Bearer ${token}` }), 'idempotency-key': key },
        ...(method === 'POST' && { payload: { title: 't' } }),
      })
    const { token } = await api.user([{ collection: 'article', action: 'create', fields: '*' }])
    expect((await call('POST', '/x/make')).statusCode).toBe(403)
    const position = await api.position()
    const made = await call('POST', '/x/make', token, 'once')
    expect([made.statusCode, made.headers['x-own']]).toEqual([200, '1'])
    expect((await call('POST', '/x/make', token, 'once')).body).toBe(made.body)
    expect(await api.log(position)).toMatchObject([
      { entity: 'article', action: 'create', changes: { after: { title: 't12' } } },
    ])
    expect((await call('GET', '/x/fails')).json()).toMatchObject({ error: { message: 'Own words', statusCode: 418 } })
    const shaped = async (query: string, headers: Record<string, string>) => {
      const { statusCode, body } = await app.inject({ url: `/x/shaped${query}`, headers })
      if (statusCode === 200) return [statusCode, body]
      const { message, details } = JSON.parse(body).error
      return [statusCode, details ?? message]
    }
    // Ajv as Fastify brings it: defaults, coercion, formats, and headers in any case.
    expect(await shaped('', { 'x-day': '2026-01-31' })).toEqual([200, '{"n":7}'])
    expect(await shaped('?n=8', { 'X-DAY': '2026-01-31' })).toEqual([200, '{"n":8}'])
    expect(await shaped('?n=8', {})).toEqual([400, expect.stringMatching(/x-day/)])
    expect(await shaped('?n=8', { 'x-day': 'today' })).toEqual([400, expect.stringMatching(/date/)])
    expect(await shaped('?n=x', { 'x-day': '2026-01-31' })).toEqual([400, 'n: expected a whole number'])
    expect((await call('GET', '/')).headers).not.toHaveProperty('x-own')
    const refused = async (path: string) => {
      const { statusCode, body, headers } = await call('GET', path)
      expect(headers['x-own']).toBe('1')
      const { message, code } = JSON.parse(body).error
      return [statusCode, message, code]
    }
    for (const way of ['/x/refuses', '/x/refuses-now']) {
      expect(await refused(`${way}/object`)).toEqual([403, 'Forbidden', 'FORBIDDEN'])
      expect(await refused(`${way}/words`)).toEqual([403, 'Not yours', 'FORBIDDEN'])
      expect(await refused(`${way}/text`)).toEqual([500, 'Internal server error', 'INTERNAL_SERVER_ERROR'])
    }
    for (const way of ['/x/refuses', '/x/refuses-now', '/x/sends']) {
      expect(await refused(`${way}/error`)).toEqual([403, 'Not yours', 'NOT_YOURS'])
      expect(await refused(`${way}/type`)).toEqual([409, 'Not yours', 'CONFLICT'])
      for (const fault of ['plain', 'fault', 'odd'])
        expect(await refused(`${way}/${fault}`)).toEqual([500, 'Internal server error', 'INTERNAL_SERVER_ERROR'])
    }
    const detailsOf = async (kind: string) => {
      const { statusCode, body } = await call('GET', `/x/refuses/${kind}`)
      return [statusCode, JSON.parse(body).error.details]
    }
    const errors = [{ field: 'x', message: 'Too dear', at: '1970-01-01T00:00:00.000Z' }]
    expect(await detailsOf('field')).toEqual([422, { errors }])
    expect(await detailsOf('circular')).toEqual([422, 'The details of this refusal are not JSON'])
    expect(await detailsOf('long')).toEqual([422, 'The details of this refusal are longer than 20000 characters'])
    expect(await detailsOf('error')).toEqual([403, null])
  })

  it('an error that cannot be changed is answered and logged as any other', async () => {
    const lines: { msg: string; err?: { message: string } }[] = []
    const log = pino({ level: 'error', serializers }, { write: (line) => void lines.push(JSON.parse(line)) })
    const { app } = await started(
      await extensions({
        'svc-endpoint-frozen/index.js': `const thrown = {
          fault: () => new Error('a secret'),
          refusal: () => Object.assign(new Error('Not now'), { status: 409, code: 'NOT_NOW' }),
          cause: () => new Error('outer', { cause: Object.freeze(new Error('a secret')) }),
          all: () => new AggregateError([Object.freeze(new Error('a secret'))], 'outer'),
          member: () => Object.assign(new Error('outer'), { inner: Object.freeze(new Error('a secret')) }),
        }
        export default { id: 'frozen', handler(app) {
          app.get('/throws/:kind', async ({ params }) => { throw Object.freeze(thrown[params.kind]()) })
          app.get('/sends/:kind', ({ params }, reply) => void reply.send(Object.freeze(thrown[params.kind]())))
        } }`,
        'svc-hook-frozen/index.js': `export default (hooks) =>
          hooks.registerHook('article', 'items.create', () => { throw Object.freeze(new TypeError('a secret')) })`,
      }),
      log,
    )
    const { body: session } = await api.anonymous('POST', '/auth/login', administrator)
    const headers = { authorization: `Bearer ${session.token}` }
    for (const way of ['/frozen/throws', '/frozen/sends']) {
      const refusal = await app.inject(`${way}/refusal`)
      expect(refusal.json().error).toMatchObject({ message: 'Not now', code: 'NOT_NOW', statusCode: 409 })
      for (const kind of ['fault', 'cause', 'all', 'member']) {
        lines.length = 0
        const fault = await app.inject(`${way}/${kind}`)
        expect(fault.json().error).toMatchObject({ code: 'INTERNAL_SERVER_ERROR', statusCode: 500 })
        expect(lines[0]?.err?.message).toContain(kind === 'fault' ? 'a secret' : 'outer')
      }
    }
    lines.length = 0
    const position = await api.position()
    const refused = await app.inject({ method: 'POST', url: '/items/article', headers, payload: { title: 't' } })
    expect(refused.json().error).toMatchObject({ code: 'INTERNAL_SERVER_ERROR', statusCode: 500 })
    expect(lines[0]).toMatchObject({ msg: 'a hook failed', err: { message: 'a secret' } })
    expect(await api.log(position)).toEqual([])
  })

  it('gives routes of endpoints the bytes of their bodies, and takes the forms that they read', async () => {
    const { app } = await started(
      await extensions({
        'svc-endpoint-hooks/index.js': `import { createHmac } from 'node:crypto'
        import multipart from '${import.meta.resolve('@fastify/multipart')}'
        const sign = (bytes) => createHmac('sha256', 'secret').update(bytes).digest('hex')
        export default { id: 'hooks', handler(app) {
          app.post('/paid', { config: { rawBody: true } }, async ({ headers, rawBody, body }) => {
            if (headers['x-signature'] !== sign(rawBody)) throw { status: 401, message: 'Not signed' }
            return body
          })
          app.post('/short', { config: { rawBody: true }, bodyLimit: 10 }, async ({ rawBody }) => rawBody.length)
          app.post('/plain', async ({ rawBody }) => ({ has: rawBody !== undefined }))
          app.register(async (scope) => {
            scope.addContentTypeParser('application/x-www-form-urlencoded', { parseAs: 'string' }, (request, text, done) =>
              done(null, Object.fromEntries(new URLSearchParams(text))))
            scope.post('/form', { config: { rawBody: true } }, async ({ body, rawBody }) => ({ body, raw: String(rawBody) }))
          })
          app.register(async (scope) => {
            await scope.register(multipart, { limits: { fileSize: 1000 } })
            scope.post('/file', async (request) => {
              const file = await request.file()
              return { name: file.filename, size: (await file.toBuffer()).length }
            })
          })
          app.register(async (scope) => {
            scope.removeContentTypeParser('application/json')
            scope.addContentTypeParser('application/json', { parseAs: 'buffer' }, (request, bytes, done) => done(null, bytes))
            scope.post('/bytes', async ({ body }) => ({ bytes: Buffer.isBuffer(body) && String(body) }))
          })
        } }`,
      }),
    )
    const post = async (url: string, payload: string | Buffer, headers: Record<string, string> = {}) => {
      const answer = await app.inject({
        ...{ method: 'POST' as const, url: `/hooks${url}`, payload },
        headers: { 'content-type': 'application/json', ...headers },
      })
      return [answer.statusCode, answer.statusCode === 200 ? answer.json() : answer.json().error.message]
    }
    const text = '{"total": 1.50,  "name": "Zoë"}'
    const signature = createHmac('sha256', 'secret').update(text).digest('hex')
    expect(await post('/paid', text, { 'x-signature': signature })).toEqual([200, { total: 1.5, name: 'Zoë' }])
    expect(await post('/paid', text.replace('  ', ' '), { 'x-signature': signature })).toEqual([401, 'Not signed'])
    expect(await post('/paid', '{"total":', { 'x-signature': signature })).toEqual([
      400,
      expect.stringMatching(/not valid JSON/),
    ])
    expect(await post('/short', '{"a":1}')).toEqual([200, 7])
    expect(await post('/short', text)).toEqual([413, 'Request body is too large'])
    expect(await post('/plain', text)).toEqual([200, { has: false }])
    const form = { 'content-type': 'application/x-www-form-urlencoded' }
    expect(await post('/form', 'a=1&b=%C3%AB', form)).toEqual([200, { body: { a: '1', b: 'ë' }, raw: 'a=1&b=%C3%AB' }])
    expect((await post('/plain', 'a=1', form))[0]).toBe(415)
    const part = '--x\r\ncontent-disposition: form-data; name="f"; filename="a.txt"\r\n\r\nbytes\r\n--x--\r\n'
    const multipart = { 'content-type': 'multipart/form-data; boundary=x' }
    expect(await post('/file', part, multipart)).toEqual([200, { name: 'a.txt', size: 5 }])
    expect(await post('/bytes', text)).toEqual([200, { bytes: text }])
    expect(await post('/paid', text, { 'x-signature': signature })).toEqual([200, { total: 1.5, name: 'Zoë' }])
  })

  const endpoint = (id: string) => `export default { id: '${id}', handler(app) { app.get('/', () => 1) } }`
  it.each<[why: string, files: Record<string, string>, says: RegExp]>([
    [
      'does not parse',
      { 'svc-hook-a/index.js': 'export default (' },
      /svc-hook-a\/index\.js cannot be loaded: [^\n]+$/,
    ],
    [
      'throws when it is loaded',
      { 'svc-hook-a/index.js': 'throw new Error("no\\nkey")' },
      /index\.js cannot be loaded: no$/,
    ],
    ['exports nothing', { 'svc-hook-a/index.js': '' }, /index\.js must export a function/],
    [
      'throws when it registers',
      { 'svc-hook-a/index.js': 'export default async () => { throw new Error("no") }' },
      /index\.js failed: no$/,
    ],
    [
      'throws an object',
      { 'svc-hook-a/index.js': 'export default () => { throw { message: "no key" } }' },
      /index\.js failed: no key$/,
    ],
    [
      'names an unknown event',
      { 'svc-hook-a/index.js': 'export default (hooks) => hooks.registerHook("x", "items.creat", () => {})' },
      /index\.js failed: there is no hook event items\.creat; /,
    ],
    ['has no entry file', { 'svc-hook-a/main.js': '' }, /svc-hook-a has none of index\.ts/],
    [
      'has two entry files',
      { 'svc-hook-a/index.js': '', 'svc-hook-a/index.ts': '' },
      /has both index\.ts and index\.js/,
    ],
    ['is a file', { 'svc-hook-a.js': '' }, /svc-hook-a\.js is not a folder/],
    ['is of an unknown kind', { 'svc-hooks-a/index.js': '' }, /svc-hooks-a is no kind of extension/],
    ['is no endpoint', { 'svc-endpoint-a/index.js': 'export default { id: "a" }' }, /must export \{ id, handler/],
    ['has an id that is no path', { 'svc-endpoint-a/index.js': endpoint('a/b') }, /which cannot be a path/],
    [
      'has a path of the platform',
      { 'svc-endpoint-a/index.js': endpoint('items') },
      /has the id items, a path of the platform/,
    ],
    [
      'fails when it registers routes',
      { 'svc-endpoint-a/index.js': 'export default { id: "a", handler() { throw new Error("no") } }' },
      /index\.js failed: no$/,
    ],
    [
      'fails in a scope of its own routes',
      {
        'svc-endpoint-a/index.js': `export default { id: 'a', handler(app) {
          app.register(async (scope) => scope.addContentTypeParser('application/json', (request, payload, done) => done(null)))
        } }`,
      },
      /svc-endpoint-a\/index\.js failed: Content type parser 'application\/json' already present\.$/,
    ],
    [
      'has a route twice in a scope',
      {
        'svc-endpoint-a/index.js': endpoint('first'),
        'svc-endpoint-b/index.js': `export default { id: 'b', handler(app) {
          app.get('/x', () => 1)
          app.register(async (scope) => { scope.get('/x', () => 1) })
        } }`,
        'svc-endpoint-c/index.js': endpoint('last'),
      },
      /svc-endpoint-b\/index\.js failed: Method 'GET' already declared for route '\/b\/x'/,
    ],
    [
      'has the id of another endpoint',
      { 'svc-endpoint-a/index.js': endpoint('same'), 'svc-endpoint-b/index.js': endpoint('Same') },
      /svc-endpoint-b\/index\.js has the id same of .*svc-endpoint-a\/index\.js$/,
    ],
    [
      'has the id of another schedule',
      {
        'svc-schedule-a/index.js': 'export default { id: "s", schedule: "* * * * *", handler() {} }',
        'svc-schedule-b/index.js': 'export default { id: "s", schedule: "* * * * *", handler() {} }',
      },
      /svc-schedule-b\/index\.js has the id s of .*svc-schedule-a/,
    ],
    [
      'is no schedule',
      { 'svc-schedule-a/index.js': 'export default { id: "s" }' },
      /must export a function \(schedule/,
    ],
  ])('is refused in one line when an extension %s', async (_why, files, says) => {
    const failure = await started(await extensions(files)).then(
      () => undefined,
      (error: Error) => error,
    )
    expect(failure).toMatchObject({ name: 'ConfigError', message: expect.stringMatching(/^EXTENSIONS_DIR: [^\n]+$/) })
    expect(failure!.message).toMatch(says)
  })

  it('leaves the Authorization header to a route that reads it itself', async () => {
    const { app } = await started(
      await extensions({
        'svc-endpoint-y/index.mjs': `export default { id: 'y', handler: (app) => {
          const who = (request) => ({ user: request.accountability?.user?.id ?? null, header: request.headers.authorization })
          app.get('/own', { config: { ownAuthorization: true } }, async (request) => who(request))
          app.get('/ours', async (request) => who(request))
        } }`,
      }),
    )
    const call = async (url: string, authorization: string, cookie = '') =>
      (await app.inject({ url, headers: { authorization, cookie } })).json()
    const user = await api.user()
    const login = await api.anonymous('POST', '/auth/login', {
      email: user.email,
      password: 'password of a user',
      authMode: 'cookie',
    })
    const cookie = String(login.headers['set-cookie']).split(';')[0]!
    const header = 'Bearer a secret of the caller’s own'.replace('’', "'")
    expect(await call('/y/own', header)).toEqual({ user: null, header })
    expect(await call('/y/own', `Bearer ${user.token}`)).toMatchObject({ user: null })
    expect(await call('/y/own', header, cookie)).toEqual({ user: user.id, header })
    expect(await call('/y/ours', header, cookie)).toMatchObject({ error: { code: 'INVALID_TOKEN', statusCode: 401 } })
    expect(await call('/y/ours', `Bearer ${user.token}`)).toMatchObject({ user: user.id })
  })

  it('is refused for a configured directory that is not there', async () => {
    await expect(started('/no/such/directory')).rejects.toThrow('EXTENSIONS_DIR: /no/such/directory does not exist')
  })
})
