import pino from 'pino'
import { afterAll, describe, expect, it } from 'vitest'
import { AppError } from '../../src/errors.ts'
import {
  openScripts,
  type Script,
  type ScriptCalls,
  type ScriptError,
  type ScriptRequest,
} from '../../src/features/work/scripts/scripts.ts'
import { waitFor } from '../support/wait.ts'

const scripts = openScripts({ log: pino({ level: 'silent' }), processes: 2 })
afterAll(() => scripts.close())

const noItems: ScriptCalls = {
  items: async (method) => {
    throw new AppError(403, `No ${method} here`, { code: 'FORBIDDEN' })
  },
}

const run = (code: string, more: Partial<Script> = {}, calls = noItems) =>
  scripts.run({ code, context: {}, turn: 'a', ...more }, calls)

/** What is said of a script that has no result. */
const failure = (code: string, more: Partial<Script> = {}, calls = noItems) =>
  run(code, more, calls).then(
    ({ value }) => expect.fail(`it gave ${JSON.stringify(value)}`),
    (error: ScriptError) => error.failure,
  )

const value = async (code: string, more: Partial<Script> = {}, calls = noItems) => (await run(code, more, calls)).value

describe('a script', () => {
  it('sees its context and libraries, and gives what it returns', async () => {
    const context = { trigger: { body: { price: 3 } }, outputs: { first: [1, 2] }, variables: { vat: 0.2 } }
    const code = `
      const _ = require('lodash')
      const total = trigger.body.price * (1 + variables.vat)
      return { total, sum: _.sum(outputs.first), year: dayjs('2026-01-31').year(), same: context.trigger === trigger }`
    expect(await value(code, { context })).toEqual({ total: 3.5999999999999996, sum: 3, year: 2026, same: true })
    expect(await value('context.x = 1')).toBeUndefined()
  })

  it('says what it logs, in order', async () => {
    const { logs } = await run(`log.info('a', { b: 1 }); console.log(2); log.error(new Error('c').message)`)
    expect(logs).toEqual([
      { level: 'info', text: 'a {"b":1}' },
      { level: 'info', text: '2' },
      { level: 'error', text: 'c' },
    ])
    const many = await run(`for (let n = 0; n < 1000; n++) log.warn('x'.repeat(5000))`)
    expect(many.logs).toHaveLength(200)
    expect(many.logs[0]!.text).toHaveLength(2000)
  })

  it('asks its host for items, and hears why it may not', async () => {
    const calls: ScriptCalls = {
      items: async (method, args) => {
        if (method === 'delete') throw new AppError(403, 'Not this one', { code: 'FORBIDDEN' })
        if (method === 'update') throw new Error('secret of the host')
        return { method, args }
      },
    }
    const code = `
      const read = await items.read('task', { limit: 1 })
      const refused = await items.delete('task', 7).catch(({ message, status, code }) => ({ message, status, code }))
      const hidden = await items.update('task', 7, {}).catch(({ message }) => message)
      return { read, refused, hidden }`
    expect(await value(code, {}, calls)).toEqual({
      read: { method: 'read', args: ['task', { limit: 1 }] },
      refused: { message: 'Not this one', status: 403, code: 'FORBIDDEN' },
      hidden: 'This call has failed',
    })
  })

  it('reaches the network through its host, by fetch and by axios', async () => {
    const asked: ScriptRequest[] = []
    const fetch = async (request: ScriptRequest) => {
      asked.push(request)
      const status = request.url.endsWith('/missing') ? 404 : 200
      return { status, statusText: 'x', headers: { etag: '1' }, text: '{"n":1}' }
    }
    const code = `
      const plain = await fetch('https://a.test/', { method: 'PUT', headers: { a: 'b' }, body: 'text' })
      const posted = await axios.post('https://a.test/things', { n: 2 }, { params: { q: 'ä b' } })
      const missing = await axios.get('https://a.test/missing').catch((error) => [error.message, error.response.status])
      return { ok: plain.ok, n: (await plain.json()).n, posted: posted.data, etag: posted.headers.etag, missing }`
    expect(await value(code, {}, { ...noItems, fetch })).toEqual({
      ok: true,
      n: 1,
      posted: { n: 1 },
      etag: '1',
      missing: ['Request failed with status code 404', 404],
    })
    expect(asked).toEqual([
      { url: 'https://a.test/', method: 'PUT', headers: { a: 'b' }, body: 'text' },
      {
        url: 'https://a.test/things?q=%C3%A4%20b',
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: '{"n":2}',
      },
      { url: 'https://a.test/missing', method: 'GET', headers: {} },
    ])
    expect(await failure(`await fetch('https://a.test')`)).toMatchObject({ fault: 'thrown', status: 400 })
  })

  it('calls functions of extensions, and none that they inherit', async () => {
    const modules = { geo: { distance: (a: number, b: number) => Math.abs(a - b) } }
    const calls = { ...noItems, modules }
    expect(await value(`return require('geo').distance(2, 5)`, {}, calls)).toBe(3)
    expect(await failure(`return require('fs')`, {}, calls)).toMatchObject({
      message: "There is no module 'fs': scripts may require geo, lodash, dayjs, axios",
    })
  })

  it('waits', async () => {
    expect(await value(`return new Promise((done) => setTimeout(done, 5, 'later'))`)).toBe('later')
  })
})

describe('a faulty script', () => {
  it('is told by its own line', async () => {
    expect(await failure(`const a = 1\n\n  null.foo`)).toEqual({
      fault: 'thrown',
      message: "Cannot read properties of null (reading 'foo')",
      stack: ['script.js:3:8'],
    })
    expect(await failure(`throw Object.assign(new Error('Too late'), { status: 409 })`)).toMatchObject({
      ...{ fault: 'thrown', message: 'Too late', status: 409 },
    })
    expect(await failure(`throw 'text'`)).toMatchObject({ fault: 'thrown', message: 'text' })
    expect(await failure(`const a = 1\nconst a = 2`)).toMatchObject({ fault: 'syntax', stack: ['script.js:2:7'] })
  })

  it('can be found out without running it', async () => {
    expect(await scripts.check('return await items.read()')).toBeUndefined()
    expect(await scripts.check('return }')).toMatchObject({ fault: 'syntax', message: "Unexpected token '}'" })
    expect(await scripts.check('for (;;);')).toBeUndefined()
  })
})

describe('a hostile script', () => {
  const little = { limits: { computeMs: 100, passedMs: 1000 } }

  it('that never yields is ended, also after an await and in a pattern', async () => {
    for (const code of [
      'for (;;);',
      `await 1; for (;;);`,
      `/^(a+)+$/.test('a'.repeat(40) + 'b')`,
      `try { for (;;); } catch {} finally { for (;;); }`,
    ])
      expect(await failure(code, little), code).toMatchObject({ fault: 'computing' })
    const idle = { limits: { passedMs: 100 } }
    expect(await failure('await new Promise(() => {})', idle)).toMatchObject({ fault: 'time' })
    expect(await failure('await new Promise((done) => setTimeout(done, 60_000))', idle)).toMatchObject({
      fault: 'time',
    })
  })

  it('that takes memory is ended', async () => {
    for (const code of [
      'const all = []; for (;;) all.push(new Array(10_000).fill(1))',
      `let s = 'x'; for (;;) s += s + s.length; return s`,
      'const all = []; for (;;) all.push(new Uint8Array(1_000_000).fill(1))',
      `return 'x'.repeat(400_000_000).split('')`,
    ])
      expect((await failure(code)).fault, code).toMatch(/memory|thrown|computing/)
    expect(await value('return 1')).toBe(1)
  })

  it('that returns or hands over too much is refused', async () => {
    expect(await failure(`return 'x'.repeat(1_000_001)`)).toMatchObject({ fault: 'output' })
    expect(await failure(`await items.create('a', { x: 'x'.repeat(1_000_001) })`)).toMatchObject({ fault: 'thrown' })
    const large = { items: async () => 'x'.repeat(1_000_001) }
    expect(await failure(`return items.read('a')`, {}, large)).toMatchObject({
      message: 'The answer has more than 1000000 characters of JSON',
    })
  })

  it('that asks too often is refused', async () => {
    const calls = { items: async () => 1 }
    const many = `for (let n = 0; n < 1001; n++) await items.read('a')`
    expect(await failure(many, {}, calls)).toMatchObject({ message: 'A script may ask 1000 times' })
    const { promise: refused, resolve: onRefused } = Promise.withResolvers<void>()
    const slow = { items: () => refused }
    const atOnce = `
      const asked = Array.from({ length: 101 }, () => items.read('a'))
      return asked.at(-1).catch((error) => error.message)`
    expect(await value(atOnce, {}, slow)).toBe('A script may ask for 100 things at once')
    onRefused()
  })

  it('finds no way out', async () => {
    const found = await value(`
      const ways = {}
      for (const name of ['process', 'require', 'module', 'global', 'WebAssembly', 'SharedArrayBuffer', 'Atomics', '__start', '__modules'])
        ways[name] = typeof globalThis[name]
      ways.constructor = typeof items.read.constructor('return typeof process')()
      ways.outer = items.read.constructor('return typeof this.process')()
      ways.log = typeof log.info.constructor('return typeof process')()
      return ways`)
    expect(found).toMatchObject({ process: 'undefined', WebAssembly: 'undefined', SharedArrayBuffer: 'undefined' })
    expect(found).toMatchObject({ Atomics: 'undefined', module: 'undefined', __start: 'undefined', outer: 'undefined' })
    // Code that breaks out of the script's function runs in the same isolate, and has nothing there.
    expect(await failure(`}), (() => { throw new Error(typeof process) })(), (async () => {`)).toMatchObject({
      message: expect.stringMatching(/undefined|token/),
    })
  })

  it('changes nothing for the next one', async () => {
    await value(`globalThis.left = 1; JSON.stringify = () => 'x'; Object.prototype.polluted = 1; Promise.prototype.then = 1
      Array.prototype.map = () => [] ; return 1`).catch(() => undefined)
    expect(await value('return [typeof left, {}.polluted, JSON.stringify([1].map((n) => n + 1))]')).toEqual([
      'undefined',
      null,
      '[2]',
    ])
  })

  it('does not stop others', async () => {
    const bad = failure('for (;;);', { turn: 'bad', limits: { computeMs: 300 } })
    const good = Array.from({ length: 20 }, (_, n) => value(`return ${n}`, { turn: 'good' }))
    expect(await Promise.all(good)).toEqual(good.map((_, n) => n))
    await bad
  })
})

describe('the processes', () => {
  it('are started by the first script, or before it, and end', async () => {
    const own = openScripts({ log: pino({ level: 'silent' }), processes: 1 })
    expect(own.load()).toEqual({ waiting: 0, processes: 0 })
    own.warmUp()
    expect(own.load()).toEqual({ waiting: 0, processes: 1 })
    expect((await own.run({ code: 'return 1', context: {}, turn: 'a' }, noItems)).value).toBe(1)
    await own.close()
    await waitFor(async () => (own.load().processes <= 1 ? true : undefined))
    await expect(own.run({ code: 'return 1', context: {}, turn: 'a' }, noItems)).rejects.toMatchObject({ status: 503 })
  })

  it('have nothing of the environment', async () => {
    const script = { code: 'return 1', context: {}, turn: 'a' }
    await scripts.run(script, noItems)
    const { pid } = process
    const { readdir, readFile } = await import('node:fs/promises')
    const children = (await readFile(`/proc/${pid}/task/${pid}/children`, 'utf8').catch(() => '')).trim().split(' ')
    for (const child of children.filter(Boolean)) {
      const line = await readFile(`/proc/${child}/cmdline`, 'utf8').catch(() => '')
      if (!line.includes('script-process')) continue
      const names = (await readFile(`/proc/${child}/environ`, 'utf8')).split('\0').map((one) => one.split('=')[0])
      expect(names.filter((name) => name !== '' && !name!.startsWith('NODE_CHANNEL'))).toEqual([])
      const sockets = await readdir(`/proc/${child}/fd`)
      expect(sockets.length).toBeLessThan(40)
    }
  })
})
