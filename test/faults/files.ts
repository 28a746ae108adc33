import { createHash, randomBytes } from 'node:crypto'
import { setTimeout as delay } from 'node:timers/promises'
import { sql } from '../../src/db/sql.ts'
import { removeDueContent, verifyFiles } from '../../src/features/files/files/files.ts'
import { openRuntime, type Runtime } from '../../src/process/runtime.ts'
import { type Cluster, startCluster } from '../support/cluster.ts'
import { seededRandom } from '../support/ledger.ts'
import { silent } from '../support/log.ts'
import { createDatabase } from '../support/postgres.ts'
import { testConfig } from '../support/prepare.ts'
import { waitFor } from '../support/wait.ts'
import type { Result } from './scenario.ts'

/** `kills` of a process at each of the {@link kinds} of work. */
export type Size = { readonly kills: number }

const kinds = ['upload', 'replace', 'delete', 'move', 'removal'] as const
type Kind = (typeof kinds)[number]

const writers = 4
const largest = 300_000

/** What a file may be: content by its hash, or null for one that is gone. More than one where no answer came. */
type Known = Map<string, Set<string | null>>

/**
 * F-42: web processes and the worker are killed while files are uploaded, replaced, deleted and moved into folders. Every
 * row has its content, no content is without a row when what was left is removed, and what was answered is so.
 */
export async function runF42(seed: number, { kills }: Size): Promise<Result> {
  const random = seededRandom('F-42', seed)
  const database = await createDatabase()
  const cluster = await startCluster({ database, web: 2, workers: ['log-cleanup'] })
  const known: Known = new Map()
  const counts = { answered: 0, unknown: 0 }
  const underWay: UnderWay = cluster.web.map(() => [])
  const struck = new Map<Kind, number>(kinds.map((kind) => [kind, 0]))
  const stop = new AbortController()
  const work = Array.from({ length: writers }, (_, i) =>
    changeOften(cluster, { known, counts, underWay, at: i, random }, stop.signal),
  )
  const moving = moveOften(cluster, underWay, stop.signal)
  const runtime = await openRuntime({ config: testConfig(database.url), log: silent, name: 'faults', worker: true })
  try {
    for (let n = 0; n < kills * kinds.length; n += 1) {
      const from = counts.answered
      await waitFor(() => counts.answered > from + 2, { what: 'more changes of files' })
      const kind = kinds[n % kinds.length]!
      const { victim, hit } = await victimAt(kind, { cluster, underWay, runtime, random })
      const kill = victim.kill('SIGKILL')
      for (const one of new Set(hit())) struck.set(one, struck.get(one)! + 1)
      await kill
      await victim.restart()
    }
    stop.abort()
    await Promise.all([...work, moving])
    await removeWhatIsLeft(cluster, runtime)
    const faults = [...(await differences(runtime)), ...(await broken(runtime, known))]
    const files = [...known.values()].filter((states) => !states.has(null)).length
    const killed = Object.fromEntries([...struck].map(([kind, times]) => [`killed in the middle: ${kind}`, times]))
    return { faults, figures: { kills: kills * kinds.length, ...killed, ...counts, files } }
  } finally {
    await runtime.close()
    await Promise.all([...cluster.web, ...cluster.workers].map((member) => member.kill()))
  }
}

/** Of each web process the requests that have not been answered. */
type UnderWay = (readonly Kind[])[]

type Aim = {
  readonly cluster: Cluster
  readonly underWay: UnderWay
  readonly runtime: Runtime
  readonly random: () => number
}

/** A process in the middle of such work, and what it is doing at the moment when it is asked. */
async function victimAt(kind: Kind, { cluster: { web, workers, sql }, underWay, runtime, random }: Aim) {
  if (kind === 'removal') {
    // What waits for readers to finish, and the holds of uploads besides: those are refused then.
    await sql(`update "svc_FileRemoval" set "dueAt" = now() where "dueAt" < now() + interval '2 minutes'`)
    await (await runtime.boss()).send('file-removal', {})
    await delay(random() * 400)
    return { victim: workers[0]!, hit: (): readonly Kind[] => ['removal'] }
  }
  const limit = performance.now() + 60_000
  let at = -1
  // Some of it takes few milliseconds.
  for (; at < 0; at = underWay.findIndex((list) => list.includes(kind))) {
    if (performance.now() > limit) throw new Error(`waited in vain for work of the kind ${kind}`)
    await delay(1)
  }
  await delay(random() * 25)
  return { victim: web[at]!, hit: () => underWay[at]! }
}

type Work = {
  readonly known: Known
  readonly underWay: UnderWay
  readonly counts: { answered: number; unknown: number }
  at: number
  readonly random: () => number
}

async function changeOften(cluster: Cluster, work: Work, signal: AbortSignal): Promise<void> {
  const own: string[] = []
  while (!signal.aborted) {
    const content = randomBytes(1 + Math.floor(work.random() * largest))
    const hash = createHash('sha256').update(content).digest('hex')
    const id = own.length > 0 && work.random() < 0.5 ? own[Math.floor(work.random() * own.length)]! : undefined
    const isDelete = id !== undefined && work.random() < 0.4
    const before = id === undefined ? undefined : new Set(work.known.get(id))
    const outcome = isDelete ? null : hash
    if (id !== undefined) work.known.get(id)!.add(outcome)
    const kind = id === undefined ? 'upload' : isDelete ? 'delete' : 'replace'
    const path = `/files${id === undefined ? '' : `/${id}`}`
    const answer = await during(kind, cluster, work, () =>
      send(cluster, work.at, methods[kind], path, isDelete ? undefined : content),
    )
    if (answer === undefined) {
      work.counts.unknown += 1
      work.at += 1
      await delay(20)
    } else if (answer.status === 200) {
      work.counts.answered += 1
      const named = id ?? (answer.body.data as string)
      work.known.set(named, new Set([outcome]))
      if (id === undefined) own.push(named)
      if (isDelete) own.splice(own.indexOf(named), 1)
    } else if (id !== undefined && before !== undefined && answer.status < 500) work.known.set(id, before)
  }
}

const methods = { upload: 'POST', replace: 'PATCH', delete: 'DELETE' } as const

async function moveOften(cluster: Cluster, underWay: UnderWay, signal: AbortSignal): Promise<void> {
  for (let at = 0; !signal.aborted; at += 1) {
    await during('move', cluster, { at, underWay }, () => send(cluster, at, 'POST', '/files/migrate-storage-structure'))
    await delay(200)
  }
}

/** Notes what a web process is doing. */
async function during<Result>(
  kind: Kind,
  { web }: Cluster,
  { at, underWay }: Pick<Work, 'at' | 'underWay'>,
  work: () => Promise<Result>,
): Promise<Result> {
  const n = at % web.length
  underWay[n] = [...underWay[n]!, kind]
  try {
    return await work()
  } finally {
    const list = [...underWay[n]!]
    list.splice(list.indexOf(kind), 1)
    underWay[n] = list
  }
}

/** Undefined where no answer came, or the answer does not say what became of the request. */
async function send({ web, token }: Cluster, at: number, method: string, path: string, content?: Buffer) {
  const form = new FormData()
  if (content !== undefined) form.append('file', new Blob([content as never]), 'a.bin')
  try {
    const response = await fetch(`${web[at % web.length]!.address}${path}`, {
      method,
      headers: { authorization: `Bearer ${token}` },
      ...(content !== undefined && { body: form }),
    })
    const body = (await response.json()) as any
    return body.error?.code === 'OUTCOME_UNKNOWN' ? undefined : { status: response.status, body }
  } catch {
    return undefined
  }
}

/** Everything that is to go goes now: first what the consumer has not seen yet is waited for. */
async function removeWhatIsLeft(cluster: Cluster, runtime: Runtime): Promise<void> {
  const marker = await send(cluster, 0, 'POST', '/files', Buffer.from('marker'))
  const [{ filename }] = await cluster.sql('select filename from "svc_File" where id = $1', [marker!.body.data])
  await cluster.sql('delete from "svc_File" where id = $1', [marker!.body.data])
  await waitFor(
    async () => (await cluster.sql('select from "svc_FileRemoval" where key = $1', [filename])).length > 0,
    {
      timeout: 60_000,
      what: 'the consumer to reach the last deletion',
    },
  )
  for (let round = 0; round < 3; round += 1) {
    await cluster.sql(`update "svc_FileRemoval" set "dueAt" = now() - interval '1 second'`)
    await removeDueContent(runtime, new AbortController().signal)
  }
}

async function differences(runtime: Runtime): Promise<string[]> {
  const left = await runtime.db.any<{ key: string }>(sql`select key from "svc_FileRemoval"`)
  const found = await verifyFiles(runtime, { hashes: true })
  return [
    ...found.differences.map(({ kind, key }) => `${kind}: ${key}`),
    ...left.map(({ key }) => `still to be removed: ${key}`),
  ]
}

/** Files that are not what was answered. */
async function broken(runtime: Runtime, known: Known): Promise<string[]> {
  const rows = await runtime.db.any<{ id: string; hash: string }>(sql`select id, hash from "svc_File"`)
  const hashes = new Map(rows.map(({ id, hash }) => [id, hash]))
  return [...known].flatMap(([id, states]) =>
    states.has(hashes.get(id) ?? null) ? [] : [`${id} is not what was answered`],
  )
}
