import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Cluster, startCluster, type Web } from '../support/cluster.ts'
import { waitFor } from '../support/processes.ts'

const files = {
  'svc-endpoint-faults/index.js': `export default { id: 'faults', handler(app, { ItemsService, db }) {
    const none = new ItemsService('none')
    app.get('/waits', async () => (await db.query('select pg_advisory_xact_lock(7)::text as lock')).length)
    app.get('/forgets', async () => { void none.createOne({}); return 'done' })
    app.post('/forgets', async () => { void fetch('http://127.0.0.1:1/'); return 'done' })
    app.get('/frozen', async () => { void Promise.reject({ message: 'an object' }); return 'done' })
    app.get('/timer', async () => { setTimeout(() => { throw new Error('too late') }, 1); return 'done' })
  } }`,
  'svc-hook-faults/index.js': `export default (hooks) => {
    hooks.registerHook('note', 'items.create', () => void Promise.reject(new Error('before')))
    hooks.registerHook('note', 'items.create.after', () => void Promise.reject(new Error('after')))
  }`,
}

describe('a web process with an extension', () => {
  let directory: string
  let cluster: Cluster
  let web: Web

  beforeAll(async () => {
    directory = await mkdtemp(join(tmpdir(), 'daybook-extensions-'))
    for (const [name, content] of Object.entries(files)) {
      await mkdir(dirname(join(directory, name)), { recursive: true })
      await writeFile(join(directory, name), content)
    }
    cluster = await startCluster({ env: { EXTENSIONS_DIR: directory, SHUTDOWN_GRACE: '0' } })
    web = cluster.web[0]!
    await web.call('POST', '/schemas', { collectionName: 'note', schema: { fields: { text: { type: 'Text' } } } })
  })

  afterAll(() => rm(directory, { recursive: true }))

  /** A request that runs until it is released. */
  async function requestThatWaits() {
    const blocker = await cluster.connect()
    await blocker.query('select pg_advisory_lock(7)')
    const answer = web.call('GET', '/faults/waits')
    answer.catch(() => undefined)
    const waiting = `select from pg_locks where locktype = 'advisory' and not granted`
    await waitFor(async () => (await cluster.sql(waiting)).length === 1, { what: 'the request to wait' })
    return { answer, release: () => blocker.query('select pg_advisory_unlock(7)') }
  }

  it('goes on when the extension has not awaited what is rejected, and names the extension in its log', async () => {
    const { answer, release } = await requestThatWaits()
    const { pid } = web
    for (const [method, path] of [
      ['GET', '/faults/forgets'],
      ['POST', '/faults/forgets'],
      ['GET', '/faults/frozen'],
    ] as const)
      expect(await web.call(method, path)).toMatchObject({ status: 200, text: 'done' })
    expect((await web.call('POST', '/items/note', { text: 'a' })).status).toBe(201)
    const told = (extension: string, words: RegExp) =>
      web.waitForLine(
        ({ msg, err, ...line }) =>
          msg === 'an extension has not awaited a promise, which was rejected' &&
          line.extension === extension &&
          words.test((err as Error).message),
      )
    for (const words of [/Model none not found/, /fetch failed/, /an object/])
      expect(await told('svc-endpoint-faults', words)).toMatchObject({ level: 'error' })
    for (const words of [/^before$/, /^after$/]) await told('svc-hook-faults', words)
    await release()
    expect(await answer).toMatchObject({ status: 200, text: '1' })
    expect(web.pid).toBe(pid)
  })

  it('answers what runs and ends when a timer of the extension throws', async () => {
    const { answer, release } = await requestThatWaits()
    expect((await web.call('GET', '/faults/timer')).text).toBe('done')
    expect(
      await web.waitForLine(({ msg }) => msg === 'an error was thrown that nothing catches: the process ends'),
    ).toMatchObject({ level: 'fatal', extension: 'svc-endpoint-faults', err: { message: 'too late' } })
    const isRefused = () =>
      web.call('GET', '/health').then(
        () => false,
        () => true,
      )
    await waitFor(isRefused, { what: 'new connections to be refused' })
    await release()
    expect(await answer).toMatchObject({ status: 200, text: '1' })
    expect(await web.ended()).toEqual({ code: 1, signal: null })
    await web.restart()
    expect((await web.call('GET', '/health')).status).toBe(200)
  })
})
