import { mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { type Change, createRealtime, type RealtimeError, type Removal } from '../../clients/realtime.ts'
import { type Cluster, startCluster, type Web } from '../support/cluster.ts'
import { changesOf } from '../support/ledger.ts'
import { administrator } from '../support/prepare.ts'
import { root, startProcess, waitFor } from '../support/processes.ts'

type Country = { code: string; name: string; continent_Id: string }
type Told = Change<Country> | Removal<Country>

let cluster: Cluster
let web: Web

beforeAll(async () => {
  cluster = await startCluster({ env: { REALTIME_ROW_LEVEL_SCOPING: 'true', SOCKET_MESSAGE_LIMIT: '50' } })
  web = cluster.web[0]!
  const code = { type: 'String', primaryKey: true }
  const continent = { relType: 'BelongsTo', target: 'continent' }
  const fields = { continent: { code }, country: { code, name: { type: 'String' }, continent } }
  for (const [collectionName, own] of Object.entries(fields))
    expect((await web.call('POST', '/schemas', { collectionName, schema: { fields: own } })).status).toBe(201)
  await cluster.sql(`insert into continent values ('EU'), ('AS')`)
  await cluster.sql(
    `insert into country (code, name, "continent_Id") values ('CH', 'Switzerland', 'EU'), ('JP', 'Japan', 'AS')`,
  )
})

const backoff = { firstMs: 20, longestMs: 100 }
const rename = (code: string, name: string) => cluster.sql('update country set name = $2 where code = $1', [code, name])
const signIn = async () => (await web.call('POST', '/auth/login', administrator, null)).body.token as string

async function killWhile(work: () => Promise<unknown>): Promise<void> {
  await web.kill('SIGKILL')
  await work()
  await web.restart()
}

/** A client that keeps the names of countries and notes what it is told. */
function observe(
  options: { token?: string | (() => string | Promise<string>); filter?: object; snapshot?: boolean } = {},
) {
  const { token = cluster.token, snapshot = true, ...subscription } = options
  const realtime = createRealtime({ url: web.address, token, backoff })
  onTestFinished(() => realtime.close())
  const names = new Map<string, string>()
  const told: Told[] = []
  const errors: RealtimeError[] = []
  const counts = { snapshots: 0, resyncs: 0 }
  const rest = {
    ...subscription,
    onChange: (change: Change<Country>) => {
      told.push(change)
      names.set(change.data.code, change.data.name)
    },
    onRemove: (change: Removal<Country>) => {
      told.push(change)
      names.delete(change.data.code!)
    },
    onError: (error: RealtimeError) => void errors.push(error),
  }
  const onSnapshot = (rows: Country[]) => {
    counts.snapshots += 1
    names.clear()
    for (const { code, name } of rows) names.set(code, name)
  }
  const onResync = () => {
    counts.resyncs += 1
  }
  const handle = realtime.subscribe<Country>(
    'country',
    snapshot ? { ...rest, snapshot: true, onSnapshot } : { ...rest, onResync },
  )
  const begun = () => waitFor(() => handle.cursor, { what: 'the subscription' })
  return { realtime, handle, names, told, errors, counts, begun }
}

describe('the example of the quickstart', () => {
  it('shows rows, changes and what happened while the server was away', async () => {
    const directory = await mkdtemp(join(tmpdir(), 'daybook-client-'))
    onTestFinished(() => rm(directory, { recursive: true }))
    await symlink(join(root, 'clients'), join(directory, 'clients'))
    const section = (await readFile(join(root, 'docs/quickstart.md'), 'utf8')).split('## Changes on a socket')[1]!
    const example = /```js file=watch.mjs\n(.*?)```/s.exec(section)![1]!
    const script = join(directory, 'watch.mjs')
    await writeFile(script, example)
    const watch = startProcess(script, [], { URL: web.address, TOKEN: cluster.token })
    await watch.waitForLine(({ text }) => text === 'holding 2 rows')
    await rename('CH', 'Helvetia')
    await watch.waitForLine(({ text }) => text.startsWith('update CH'))
    await killWhile(() => cluster.sql(`delete from country where code = 'JP'`))
    await watch.waitForLine(({ text }) => text.startsWith('delete'))
    await cluster.sql(`insert into country (code, name, "continent_Id") values ('JP', 'Japan', 'AS')`)
    await watch.waitForLine(({ text }) => text.startsWith('create'))
    await watch.kill()
  })
})

describe('createRealtime', () => {
  it('goes on after its last change, tells each once, and one failure once', async () => {
    const { begun, told, errors, names, counts } = observe()
    await begun()
    const before = (await changesOf(cluster, 'country')).length
    // One that is open for long must not make anything come again.
    const open = await cluster.connect()
    await open.query(`begin; update continent set code = code; insert into continent values ('AF')`)
    await rename('CH', 'one')
    await rename('CH', 'two')
    await waitFor(() => told.length === 2)
    await killWhile(() => rename('CH', 'three'))
    await open.query('commit')
    await rename('CH', 'four')
    await waitFor(() => names.get('CH') === 'four')
    const committed = (await changesOf(cluster, 'country')).slice(before)
    expect(told.map(({ position }) => position)).toEqual(committed.map(({ position }) => position))
    expect(told.map(({ data }) => data.name)).toEqual(['one', 'two', 'three', 'four'])
    expect(counts.snapshots).toBe(1)
    expect(new Set(errors.map(({ message }) => message)).size).toBe(errors.length)
    expect(errors.map(({ final, message }) => [final, message])).toContainEqual([
      false,
      expect.stringContaining('lost'),
    ])
  })

  it('reads again, or has the application do so, when more has changed than events tell', async () => {
    const filter = { 'continent.code': { in: ['EU', 'EX'] } }
    const [rows, plain] = [observe({ filter }), observe({ filter, snapshot: false })]
    await Promise.all([rows.begun(), plain.begun()])
    expect([...rows.names.keys()]).toEqual(['CH'])
    await cluster.sql(`insert into continent values ('XX')`)
    await waitFor(() => rows.counts.snapshots === 2 && plain.counts.resyncs === 1)
    await rename('CH', 'nine')
    await waitFor(() => rows.names.get('CH') === 'nine' && plain.names.get('CH') === 'nine')
    expect([...rows.errors, ...plain.errors]).toEqual([])
  })

  it('fetches another token when the session has ended, and ends with a token that is a text', async () => {
    const tokens: string[] = []
    const token = async () => {
      tokens.push(await signIn())
      return tokens.at(-1)!
    }
    const given = await signIn()
    const [refreshing, fixed] = [observe({ token }), observe({ token: given })]
    await Promise.all([refreshing.begun(), fixed.begun()])
    for (const ended of [given, tokens[0]!])
      expect((await web.call('POST', '/auth/logout', undefined, ended)).status).toBe(200)
    await waitFor(() => tokens.length === 2 && fixed.errors.at(-1)?.final)
    await rename('CH', 'ten')
    await waitFor(() => refreshing.names.get('CH') === 'ten')
    expect(refreshing.counts.snapshots).toBe(1)
    expect(fixed.errors.map(({ message, final }) => [message, final])).toEqual([
      ['The connection was lost: io server disconnect', false],
      ['Invalid or expired token', true],
    ])
    expect(() => fixed.realtime.subscribe('country', {} as never)).toThrow('Invalid or expired token')
  })

  it('offers its connection for live reports', async () => {
    const realtime = createRealtime({ url: web.address, token: cluster.token, backoff })
    onTestFinished(() => realtime.close())
    const report = { collection: 'country', aggregate: { n: { function: 'count', field: '*' } } }
    const answer = await realtime.socket.emitWithAck('report:subscribe', report)
    expect(answer).toMatchObject({ status: 'success', data: [{ n: expect.any(Number) }] })
  })

  it('ends what is refused, and what its own handler fails at, before that change', async () => {
    const realtime = createRealtime({ url: web.address, token: cluster.token, backoff })
    onTestFinished(() => realtime.close())
    const errors: RealtimeError[] = []
    const onError = (error: RealtimeError) => void errors.push(error)
    const ignore = () => undefined
    const subscription = { onChange: ignore, onRemove: ignore, onResync: ignore, onError }
    realtime.subscribe('nowhere', subscription)
    await waitFor(() => errors.length === 1)
    expect(errors.splice(0)).toMatchObject([{ final: true, message: 'No permission to subscribe to this collection' }])
    const broken = () => {
      throw new Error('no room left')
    }
    const handle = realtime.subscribe('country', { ...subscription, onChange: broken })
    expect(() => realtime.subscribe('country', subscription)).toThrow('followed already')
    const start = await waitFor(() => handle.cursor)
    await rename('CH', 'eleven')
    await waitFor(() => errors.length === 1)
    expect(errors).toMatchObject([{ final: true, message: expect.stringContaining('no room left') }])
    expect(handle.cursor).toBe(start)
    const names: unknown[] = []
    realtime.subscribe('country', { ...subscription, since: start, onChange: ({ data }) => void names.push(data.name) })
    await waitFor(() => names.includes('eleven'))
  })

  it('keeps its cursor where it is told to', async () => {
    const kept: string[] = []
    const store = { load: () => kept.at(-1), save: async (cursor: string) => void kept.push(cursor) }
    const follow = () => {
      const realtime = createRealtime({ url: web.address, token: cluster.token, backoff })
      const names: unknown[] = []
      const subscription = {
        onRemove: () => undefined,
        onResync: () => undefined,
        onError: (error: Error) => names.push(error),
      }
      realtime.subscribe('country', { ...subscription, store, onChange: ({ data }) => void names.push(data.name) })
      return { names, realtime }
    }
    const first = follow()
    await waitFor(() => kept.length > 0)
    await rename('CH', 'twelve')
    await waitFor(() => kept.length > 1)
    first.realtime.close()
    await rename('CH', 'thirteen')
    const second = follow()
    onTestFinished(() => second.realtime.close())
    await waitFor(() => second.names.includes('thirteen'))
    expect([...first.names, ...second.names].filter((name) => name instanceof Error)).toEqual([])
  })
})
