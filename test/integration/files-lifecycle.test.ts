import { existsSync } from 'node:fs'
import { mkdtemp, readFile, rm, unlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { clientError } from '../../src/db/errors.ts'
import { systemActor } from '../../src/events/types.ts'
import {
  contentConsumer,
  moveFiles,
  removeDueContent,
  saveFile,
  toService,
  verifyFiles,
} from '../../src/features/files/files/files.ts'
import { systemAccess } from '../../src/query/access.ts'
import { type Consumers, openConsumers } from '../../src/workers/consumers.ts'
import { type Api, startApi } from '../support/api.ts'
import { administrator } from '../support/prepare.ts'
import { type Part, upload } from '../support/upload.ts'
import { waitFor } from '../support/wait.ts'

/** What becomes of content when its row goes, comes back or moves (docs/decisions/0043). */

let api: Api
let token: string
let base: string
let consumers: Consumers

beforeAll(async () => {
  base = await mkdtemp(join(tmpdir(), 'daybook-lifecycle-'))
  api = await startApi({
    STORAGE_SERVICES_ENABLED: 'local,second',
    LOCAL_STORAGE_PATH: join(base, 'local'),
    SECOND_STORAGE_DRIVER: 'LOCAL',
    SECOND_STORAGE_PATH: join(base, 'second'),
    FILE_RETENTION_DAYS: '1',
  })
  token = (await api.anonymous('POST', '/auth/login', administrator)).body.token
  consumers = await openConsumers(api.runtime, [contentConsumer(api.runtime)], {
    leaseMs: 800,
    lookMs: 20,
    keepMs: 100,
  })
})

afterAll(async () => {
  await consumers?.stop(2000)
  await rm(base, { recursive: true })
})

type Row = { id: string; storage: string; storage_folder: string | null; filename: string; title: string }

const part = (content: string): Part => ({ name: 'file', filename: 'a.txt', type: 'text/plain', content })
const read = async (id: string): Promise<Row> => (await api.admin('GET', `/files/${id}`)).body.data
const make = async (content = 'content'): Promise<Row> =>
  read((await upload(api, token, '/files', [part(content)])).body.data)
const pathOf = ({ storage, storage_folder, filename }: Row) => join(base, storage, storage_folder ?? '', filename)
const keyOf = ({ storage_folder, filename }: Row) => (storage_folder ? `${storage_folder}/${filename}` : filename)
/** Seconds until the content is removed; undefined where nothing of it is planned. */
const due = async (row: Row): Promise<number | undefined> =>
  (
    await api.sql(`select extract(epoch from "dueAt" - now())::int as s from "svc_FileRemoval" where key = $1`, [
      keyOf(row),
    ])
  )[0]?.s
const planned = (row: Row) => waitFor(async () => ((await due(row)) === undefined ? undefined : { is: await due(row) }))
const allDue = () => api.sql(`update "svc_FileRemoval" set "dueAt" = now() - interval '1 second'`)
const removeNow = async () => {
  await allDue()
  await removeDueContent(api.runtime, new AbortController().signal)
}
const differences = async () => (await verifyFiles(api.runtime, { hashes: true })).differences
const daySeconds = 86_400

describe('content', () => {
  it('goes after its row, by any deleter, with its variants, and not at once', async () => {
    const [one, two, three] = [await make(), await make(), await make('old')]
    await writeFile(join(base, 'local', 'variant'), 'smaller')
    await api.sql(`insert into "svc_FileVariant" (storage, key, original) values ('local', 'variant', $1)`, [
      one.filename,
    ])
    await api.admin('DELETE', `/items/svc_File/${one.id}`)
    await api.sql('delete from "svc_File" where id = $1', [two.id])
    await upload(api, token, `/files/${three.id}`, [part('new')], {}, 'PATCH')
    for (const row of [one, two, three]) {
      expect((await planned(row)).is).toBeGreaterThan(daySeconds - 60)
      expect(existsSync(pathOf(row))).toBe(true)
    }
    expect(await differences()).toEqual([])
    await removeNow()
    for (const row of [one, two, three]) expect(existsSync(pathOf(row))).toBe(false)
    expect(existsSync(join(base, 'local', 'variant'))).toBe(false)
    expect(await api.sql('select from "svc_FileRemoval" union all select from "svc_FileVariant"')).toEqual([])
    expect(await readFile(pathOf(await read(three.id)), 'utf8')).toBe('new')
    expect(await differences()).toEqual([])
  })

  it('stays when only words change, and when a row names it although it is due', async () => {
    const row = await make()
    const marker = await make()
    await api.admin('PATCH', `/files/${row.id}`, { title: 'other' })
    await api.admin('DELETE', `/files/${marker.id}`)
    await planned(marker)
    expect(await due(row)).toBeUndefined()
    await api.sql(`insert into "svc_FileRemoval" (storage, key, "dueAt") values ('local', $1, now())`, [keyOf(row)])
    await removeNow()
    expect(existsSync(pathOf(row))).toBe(true)
    expect(await due(row)).toBeUndefined()
  })

  it('without a hold gets no row', async () => {
    const position = await api.position()
    async function* slow() {
      yield Buffer.from('late')
      await allDue()
    }
    const late = saveFile(
      api.runtime,
      { actor: systemActor, access: systemAccess },
      { content: slow(), name: 'late.txt', declared: 'text/plain' },
    )
    const refused = clientError(
      await late.then(
        () => undefined,
        (error: unknown) => error,
      ),
    )
    expect(refused).toMatchObject({ status: 503, message: 'The upload took too long' })
    expect(await api.log(position)).toEqual([])
    expect(await api.sql(`select from "svc_File" where title = 'late.txt'`)).toEqual([])
    await removeNow()
    expect(await differences()).toEqual([])
  })

  it('comes back with its row, while it is kept', async () => {
    const row = await make('precious')
    const [{ id: event }] = (await api.admin('GET', `/items/svc_File/${row.id}/history`)).body.data
    await api.admin('DELETE', `/files/${row.id}`)
    await planned(row)
    const position = await api.position()
    const restored = await api.admin('POST', `/items/svc_File/${row.id}/restore`, { event })
    expect(restored).toMatchObject({ status: 200, body: { data: { id: row.id } } })
    expect((await api.log(position)).map(({ entity, action }) => `${entity} ${action}`)).toEqual(['svc_File create'])
    const { createdAt: _c, updatedAt: _u, ...same } = row as Row & { createdAt: string; updatedAt: string }
    expect(await read(row.id)).toMatchObject(same)
    expect(await due(row)).toBeUndefined()
    await removeNow()
    expect(await readFile(pathOf(row), 'utf8')).toBe('precious')
    // And by going back to before a replacement.
    await upload(api, token, `/files/${row.id}`, [part('worse')], {}, 'PATCH')
    await planned(row)
    expect(await api.admin('POST', `/items/svc_File/${row.id}/restore`, { event })).toMatchObject({ status: 200 })
    expect(await read(row.id)).toMatchObject({ filename: row.filename, size: 8 })
    // Until its removal is planned, the replacement is nobody's.
    await waitFor(async () => (await differences()).length === 0)
  })

  it('comes back when a request is undone, and is named where it is gone', async () => {
    const [kept, replaced, gone] = [await make('kept'), await make('first'), await make('gone')]
    const deleted = await api.admin('DELETE', '/items/svc_File/bulk', [kept.id, gone.id])
    expect(deleted.status).toBe(204)
    await upload(api, token, `/files/${replaced.id}`, [part('second')], {}, 'PATCH')
    const [{ position }] = await api.sql(
      `select position::text from "svc_AuditLog" where entity = 'svc_File' and "entityId" = $1 order by "svc_AuditLog".position desc limit 1`,
      [replaced.id],
    )
    for (const row of [kept, replaced, gone]) await planned(row)
    await api.sql(`update "svc_FileRemoval" set "dueAt" = now() - interval '1 second' where key = $1`, [keyOf(gone)])
    await removeDueContent(api.runtime, new AbortController().signal)
    const undo = (body: object) => api.admin('POST', '/log/undo', body)
    const requestId = deleted.headers['x-request-id']
    const { data: look } = (await undo({ requestId, dryRun: true })).body
    expect(look.rows).toMatchObject([{ collection: 'svc_File', id: kept.id, action: 'create' }])
    expect(look.notUndone).toEqual([{ collection: 'svc_File', rows: 1, reason: 'content gone' }])
    const undone = await undo({ requestId, plan: look.plan })
    expect(undone.status, undone.text).toBe(200)
    const { createdAt: _c, updatedAt: _u, ...same } = kept as Row & { createdAt: string; updatedAt: string }
    expect(await read(kept.id)).toMatchObject(same)
    const byPosition = await undo({ position })
    expect(byPosition.status, byPosition.text).toBe(200)
    expect(await read(replaced.id)).toMatchObject({ filename: replaced.filename, size: 5 })
    expect((await api.admin('GET', `/files/${gone.id}`)).status).not.toBe(200)
    await removeNow()
    expect(await readFile(pathOf(kept), 'utf8')).toBe('kept')
    expect(await readFile(pathOf(replaced), 'utf8')).toBe('first')
    await waitFor(async () => (await differences()).length === 0)
  })

  it('is replaced again by the undo of an undo, also where the file was deleted and came back since', async () => {
    const row = await make('first')
    const undo = async (requestId: unknown) => {
      const { status, text, headers } = await api.admin('POST', '/log/undo', { requestId })
      expect(status, text).toBe(200)
      return headers['x-request-id']
    }
    await upload(api, token, `/files/${row.id}`, [part('second')], {}, 'PATCH')
    const [{ id }] = await api.sql(
      `select "logRequestId" as id from "svc_AuditLog" where entity = 'svc_File' and "entityId" = $1 order by position desc limit 1`,
      [row.id],
    )
    const back = await undo(id)
    await undo((await api.admin('DELETE', `/items/svc_File/${row.id}`)).headers['x-request-id'])
    await undo(back)
    expect(await readFile(pathOf(await read(row.id)), 'utf8')).toBe('second')
    await removeNow()
    await waitFor(async () => (await differences()).length === 0)
  })

  it('that is gone cannot come back: 409, and nothing is written', async () => {
    const row = await make()
    const [{ id: event }] = (await api.admin('GET', `/items/svc_File/${row.id}/history`)).body.data
    await api.admin('DELETE', `/files/${row.id}`)
    await planned(row)
    await removeNow()
    const position = await api.position()
    const refused = { status: 409, body: { error: { message: 'content is gone', code: 'CONTENT_GONE' } } }
    expect(await api.admin('POST', `/items/svc_File/${row.id}/restore`, { event })).toMatchObject(refused)
    // Also while it is being removed.
    await api.sql(
      `insert into "svc_FileRemoval" (storage, key, "dueAt", attempts) values ('local', $1, now() + interval '1 minute', 1)`,
      [keyOf(row)],
    )
    expect(await api.admin('POST', `/items/svc_File/${row.id}/restore`, { event })).toMatchObject(refused)
    expect(await api.log(position)).toEqual([])
    await removeNow()
  })

  it('is removed at once by an erasure: of deleted rows, and of what was replaced', async () => {
    const [gone, kept] = [await make('secret'), await make('first')]
    await api.admin('DELETE', `/files/${gone.id}`)
    await upload(api, token, `/files/${kept.id}`, [part('second')], {}, 'PATCH')
    for (const { id } of [gone, kept])
      expect((await api.admin('DELETE', `/items/svc_File/${id}/history`)).status).toBe(200)
    expect((await api.jobs('file-removal')).length).toBeGreaterThan(0)
    await removeDueContent(api.runtime, new AbortController().signal)
    expect([existsSync(pathOf(gone)), existsSync(pathOf(kept))]).toEqual([false, false])
    expect(await readFile(pathOf(await read(kept.id)), 'utf8')).toBe('second')
    expect(await differences()).toEqual([])
  })

  it('of a service that is away waits for it, and holds nothing else up', async () => {
    const row = await make()
    await api.admin('DELETE', `/files/${row.id}`)
    await planned(row)
    await api.sql(`insert into "svc_FileRemoval" (storage, key, "dueAt") values ('elsewhere', 'x', now())`)
    await removeNow()
    expect(existsSync(pathOf(row))).toBe(false)
    expect(await api.sql(`select storage, attempts, "dueAt" > now() as later from "svc_FileRemoval"`)).toEqual([
      { storage: 'elsewhere', attempts: 1, later: true },
    ])
    await api.sql(`delete from "svc_FileRemoval"`)
  })

  it('whose upload took longer than its hold is refused', async () => {
    const before = (await verifyFiles(api.runtime, { hashes: false })).rows
    let over = false
    const unhold = setInterval(() => {
      if (!over) void api.sql(`update "svc_FileRemoval" set "dueAt" = now() - interval '1 hour'`)
    }, 5)
    // The hold may be over before the commit or after it; the row is there with its content, or neither is.
    const answers = await Promise.all(Array.from({ length: 5 }, () => upload(api, token, '/files', [part('slow')])))
    over = true
    clearInterval(unhold)
    for (const { status } of answers) expect([200, 503]).toContain(status)
    await removeNow()
    expect(await differences()).toEqual([])
    const made = answers.filter(({ status }) => status === 200).length
    expect((await verifyFiles(api.runtime, { hashes: false })).rows).toBe(before + made)
  })
})

describe('verification', () => {
  it('finds what rows and storage do not agree on', async () => {
    const [missing, short, other] = [await make(), await make('longer'), await make('abc')]
    await unlink(pathOf(missing))
    await writeFile(pathOf(short), 'x')
    await writeFile(pathOf(other), 'abd')
    await writeFile(join(base, 'second', 'stray'), 'x').catch(async () => {
      await api.runtime.storages.named('second').write('stray', (async function* () {})())
    })
    await api.sql(`update "svc_FileUsage" set bytes = bytes + 1 where storage = 'local'`)
    const found = await differences()
    const { filename: key } = missing
    expect(found).toEqual(
      expect.arrayContaining([
        { kind: 'missing', storage: 'local', key },
        { kind: 'size', storage: 'local', key: short.filename },
        { kind: 'hash', storage: 'local', key: other.filename },
        { kind: 'orphan', storage: 'second', key: 'stray' },
        expect.objectContaining({ kind: 'usage', storage: 'local' }),
      ]),
    )
    expect(found).toHaveLength(5)
    await unlink(join(base, 'second', 'stray'))
    await api.sql(`update "svc_FileUsage" set bytes = bytes - 1 where storage = 'local'`)
    await api.sql('delete from "svc_File" where id = any($1)', [[missing.id, short.id, other.id]])
    await planned(other)
    await removeNow()
    expect(await differences()).toEqual([])
  })
})

describe('a move', () => {
  it('into folders is planned, made, and found made', async () => {
    const ids = [(await make('1')).id, (await make('2')).id]
    const call = (query = '') => api.admin('POST', `/files/migrate-storage-structure${query}`)
    const flat = (await api.sql('select count(*)::int as n from "svc_File" where storage_folder is null'))[0].n
    expect((await call('?dryRun=true')).body).toEqual({ data: { dryRun: true, scanned: flat, planned: flat } })
    const before = await Promise.all(ids.map(read))
    expect((await call()).body).toEqual({
      data: { dryRun: false, scanned: flat, moved: flat, skipped: 0, failed: 0, errors: [] },
    })
    for (const row of before) {
      const after = await read(row.id)
      expect(after.storage_folder).toMatch(/^users\/[0-9a-f-]{36}$/)
      expect(await readFile(pathOf(after), 'utf8')).toBe(await readFile(pathOf(row), 'utf8'))
      expect(await due(row)).toBeLessThanOrEqual(60)
    }
    expect((await call()).body).toMatchObject({ data: { scanned: 0, moved: 0 } })
    await removeNow()
    expect(before.map((row) => existsSync(pathOf(row)))).toEqual([false, false])
    expect(await differences()).toEqual([])
    const user = await api.user([{ collection: 'svc_File', action: 'update', fields: ['*'] }])
    expect((await user.call('POST', '/files/migrate-storage-structure')).status).toBe(403)
  })

  it('to another service keeps every byte; one at a time; what is gone is told', async () => {
    const row = await make('moves')
    const lost = await make('lost')
    await unlink(pathOf(lost))
    await api.sql(
      `insert into "svc_TaskLock" (name, holder, "expiresAt") values ('files: a move', 'x', now() + interval '1 hour')`,
    )
    await expect(moveFiles(api.runtime, systemActor, toService(api.runtime, 'second'))).rejects.toMatchObject({
      status: 409,
    })
    await api.sql(`delete from "svc_TaskLock"`)
    const moved = await moveFiles(api.runtime, systemActor, toService(api.runtime, 'second'))
    expect(moved).toMatchObject({ failed: 1, errors: [{ id: lost.id, message: 'content is gone' }] })
    expect(moved.moved).toBe(moved.scanned - 1)
    const after = await read(row.id)
    expect(after).toMatchObject({ storage: 'second', storage_folder: row.storage_folder })
    expect(await readFile(pathOf(after), 'utf8')).toBe('moves')
    await api.sql('delete from "svc_File" where id = $1', [lost.id])
    await planned(lost)
    await removeNow()
    expect(await differences()).toEqual([])
    expect(() => toService(api.runtime, 'nowhere')).toThrow(expect.objectContaining({ status: 400 }))
  })

  it('ends when another one has begun', async () => {
    for (let i = 0; i < 13; i += 1) await make(`${i}`)
    let told = 0
    let taken: Promise<unknown> | undefined
    const move = moveFiles(api.runtime, systemActor, toService(api.runtime, 'second'), () => {
      told += 1
      taken ??= api.sql(`update "svc_TaskLock" set holder = 'x' where name = 'files: a move'`)
    })
    await expect(move).rejects.toMatchObject({ status: 409 })
    await taken
    expect(told).toBeLessThan(4)
    expect(await api.sql('select holder from "svc_TaskLock"')).toEqual([{ holder: 'x' }])
    await api.sql('delete from "svc_TaskLock"')
  })
})
