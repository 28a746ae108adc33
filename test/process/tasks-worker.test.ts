import { readFile } from 'node:fs/promises'
import { constants, getPriority } from 'node:os'
import { join } from 'node:path'
import { beforeAll, describe, expect, it } from 'vitest'
import { root, type TestProcess, waitFor } from '../support/processes.ts'
import { type TaskBed, taskBed } from '../support/tasks.ts'

const handler = (type: string, body: string, more = '') =>
  `export default { type: '${type}', ${more} async handler(task, context) { ${body} } }`

let bed: TaskBed

beforeAll(async () => {
  bed = await taskBed({
    'svc-task-count/index.ts': await readFile(join(root, 'extensions/examples/svc-task-item-count/index.ts'), 'utf8'),
    'svc-task-healthy/index.js': handler('healthy', `return { data: task.data, attempt: task.retry_count }`),
    'svc-task-attach/index.js': handler(
      'attach',
      `return { id: await context.storageService.createFile({ content: 'a bill', filename: 'bill.txt' }) }`,
    ),
    'svc-task-attached/index.js': handler(
      'attached',
      `const { content, filename } = await context.storageService.readFile(task.attachment_id)
      let text = ''; for await (const piece of content) text += piece
      return { filename, text }`,
    ),
    'svc-task-poison/index.js': handler('poison', `throw new Error('the poison: ' + '\\0'.repeat(3))`),
    'svc-task-object/index.js': handler('object', `throw { message: 'the object', code: 5 }`),
    'svc-task-mute/index.js': handler('mute', `throw { code: 5 }`),
    'svc-task-odd/index.js': handler('odd', `throw { get message() { throw 1 }, toString() { throw 2 } }`),
    'svc-task-cycle/index.js': handler('cycle', `const a = {}; a.a = a; return a`),
    'svc-task-nul/index.js': handler('nul', `return { text: 'a\\0b' }`),
    'svc-task-crash/index.js': handler(
      'crash',
      `setTimeout(() => { throw new Error('later') }, 1); await new Promise(() => {})`,
    ),
    'svc-task-at-times/index.js': `import { getPriority } from 'node:os'
      export default { type: 'at-times', async handler(task) {
        if (task.retry_count < (task.data?.crashes ?? 0)) process.exit(1)
        await new Promise((r) => setTimeout(r, 50))
        return { priority: getPriority() }
      } }`,
    'svc-task-endless/index.js': handler('endless', `for (;;) {}`, 'timeoutSeconds: 0.5,'),
    'svc-task-never/index.js': handler('never', `await new Promise(() => {})`, 'timeoutSeconds: 0.5,'),
    'svc-task-memory/index.js': handler(
      'memory',
      `const kept = []; for (;;) kept.push(Buffer.alloc(16 << 20, 1))`,
      'timeoutSeconds: 30,',
    ),
    'svc-task-signal/index.js': handler('signal', `task.progress(2, 'held'); await new Promise(() => {})`),
  })
})

async function ended(id: number): Promise<Record<string, any>> {
  return waitFor(
    async () => {
      const row = await bed.row(id)
      return ['Completed', 'Error'].includes(row.task_status) ? row : undefined
    },
    { what: `the end of task ${id}` },
  )
}

describe('the task worker', () => {
  let worker: TestProcess

  beforeAll(async () => {
    worker = await bed.start({ TASK_CONCURRENCY: '2', TASK_MEMORY_LIMIT: '300' })
  })

  it('runs the sample, stores its result and its last progress, and the log has every step', async () => {
    const id = await bed.add('item-count', { task_data: { collections: ['svc_User', 'svc_Role'] } })
    const row = await ended(id)
    expect(row).toMatchObject({
      task_status: 'Completed',
      result_data: { svc_User: 1, svc_Role: expect.any(Number) },
      started_at: null,
      attempt_token: null,
      heartbeat_at: null,
      error_data: null,
      progress: 1,
    })
    const log = await bed.sql(
      `select action, changes->'after'->>'task_status' as status, "userAgent" from "svc_AuditLog"
       where entity = 'svc_Tasks' and "entityId" = $1 order by position`,
      [String(id)],
    )
    expect(log).toEqual([
      { action: 'create', status: 'Not started', userAgent: null },
      { action: 'update', status: 'Running', userAgent: 'daybook tasks' },
      { action: 'update', status: 'Completed', userAgent: 'daybook tasks' },
    ])
  })

  it('gives a handler the file that the task names, and none where it is gone', async () => {
    const { result_data: file } = await ended(await bed.add('attach'))
    const of = async (id: number) => {
      const { task_status, result_data, attachment_id } = await ended(id)
      return { task_status, result_data, attachment_id }
    }
    expect(await of(await bed.add('attached', { attachment_id: file.id }))).toEqual({
      task_status: 'Completed',
      result_data: { filename: 'bill.txt', text: 'a bill' },
      attachment_id: file.id,
    })
    const later = new Date(Date.now() + 3_600_000).toISOString()
    const waiting = await bed.add('attached', { attachment_id: file.id, scheduled_time: later, max_retries: 0 })
    await bed.sql('delete from "svc_File" where id = $1', [file.id])
    await bed.sql('update "svc_Tasks" set scheduled_time = now() where id = $1', [waiting])
    expect(await of(waiting)).toMatchObject({ task_status: 'Error', attachment_id: null })
  })

  it('survives whatever a handler does, and runs the healthy tasks beside it', async () => {
    const expected: [type: string, message: RegExp][] = [
      ['poison', /^the poison: $/],
      ['object', /^the object$/],
      ['mute', /^\{"code":5\}$/],
      ['odd', /^something was thrown that cannot be shown$/],
      ['cycle', /circular/],
      ['nul', /^the result cannot be stored as JSON$/],
      ['crash', /exit code 1/],
      ['endless', /longer than 0.5 s/],
      ['never', /longer than 0.5 s/],
      ['memory', /signal SIG/],
    ]
    const bad = await Promise.all(expected.map(([type]) => bed.add(type)))
    const healthy: number[] = []
    for (let n = 0; n < 10; n += 1) healthy.push(await bed.add('healthy', { task_data: { n } }))
    for (const [i, id] of healthy.entries())
      expect(await ended(id)).toMatchObject({ task_status: 'Completed', result_data: { data: { n: i }, attempt: 0 } })
    for (const [i, id] of bad.entries()) {
      const row = await ended(id)
      expect(row).toMatchObject({ type: expected[i]![0], task_status: 'Error', retry_count: 0 })
      expect(row.error_data.message).toMatch(expected[i]![1])
    }
    expect(worker.lines.some(({ msg }) => msg === 'stopping')).toBe(false)
  })

  it('retries what broke as often as the row says, with pauses, and not what was thrown', async () => {
    const crash = await bed.add('crash', { max_retries: 1 })
    const poison = await bed.add('poison', { max_retries: 3 })
    await waitFor(async () => (await bed.row(crash)).retry_count === 1)
    expect(await bed.row(crash)).toMatchObject({ error_data: { stalled_at: expect.any(String) } })
    expect(await ended(crash)).toMatchObject({ task_status: 'Error', retry_count: 1 })
    expect(await ended(poison)).toMatchObject({ task_status: 'Error', retry_count: 0 })
    const starts = await bed.sql(
      `select "createdAt" from "svc_AuditLog" where entity = 'svc_Tasks' and "entityId" = $1
       and changes->'after'->>'task_status' = 'Running' order by position`,
      [String(crash)],
    )
    expect(starts).toHaveLength(2)
    expect(starts[1].createdAt - starts[0].createdAt).toBeGreaterThanOrEqual(2000)
  })

  it('runs what is likely to break apart, one at a time and after all others', async () => {
    const add = (crashes: number) => bed.add('at-times', { task_data: { crashes }, max_retries: 1 })
    const result = async (id: number) => (await ended(id)).result_data
    // Nothing comes after the last place, which the user who runs the tests may be near.
    const behind = Math.min(getPriority() + 10, constants.priority.PRIORITY_LOW)
    expect(await result(await add(0))).toEqual({ priority: getPriority() })
    const broken = await add(1)
    await worker.waitForLine(({ msg, type }) => type === 'at-times' && /fewer slots/.test(String(msg)))
    const [{ id: before }] = await bed.sql('select max(position) as id from "svc_AuditLog"')
    const suspects: number[] = []
    for (let n = 0; n < 5; n += 1) suspects.push(await add(0))
    expect(await ended(await bed.add('healthy'))).toMatchObject({ task_status: 'Completed' })
    for (const id of suspects) expect(await result(id)).toEqual({ priority: behind })
    const steps = await bed.sql(
      `select "entityId" as id, changes->'after'->>'task_status' as status from "svc_AuditLog"
       where entity = 'svc_Tasks' and action = 'update' and position > $1 and "entityId" = any($2) order by position`,
      [before, suspects.map(String)],
    )
    expect(steps.map(({ status }) => status)).toEqual(suspects.flatMap(() => ['Running', 'Completed']))
    expect(await result(broken)).toEqual({ priority: behind })
    await worker.waitForLine(({ msg, type }) => type === 'at-times' && /all slots/.test(String(msg)))
    expect(await result(await add(0))).toEqual({ priority: getPriority() })
  })

  it('starts a task at its time, an earlier one without being asked, and none that was put off, archived or deleted', async () => {
    const at = (ms: number) => new Date(Date.now() + ms).toISOString()
    const due = await bed.add('healthy', { scheduled_time: at(1500) })
    const earlier = await bed.add('healthy', { scheduled_time: at(3_600_000) })
    const far = await bed.add('healthy', { scheduled_time: at(5 * 3_600_000) })
    const [later, archived, deleted] = [
      await bed.add('healthy', { scheduled_time: at(1500) }),
      await bed.add('healthy', { scheduled_time: at(1500) }),
      await bed.add('healthy', { scheduled_time: at(1500) }),
    ]
    await bed.sql('update "svc_Tasks" set scheduled_time = $2 where id = $1', [later, at(3_600_000)])
    await bed.sql(`update "svc_Tasks" set status = 'archived' where id = $1`, [archived])
    await bed.sql('delete from "svc_Tasks" where id = $1', [deleted])
    await bed.sql('update "svc_Tasks" set scheduled_time = now() where id = $1', [earlier])
    await ended(earlier)
    const row = await ended(due)
    const [{ late }] = await bed.sql(
      `select extract(epoch from min("createdAt") - $2::timestamptz)::float8 as late from "svc_AuditLog"
       where entity = 'svc_Tasks' and "entityId" = $1 and changes->'after'->>'task_status' = 'Running'`,
      [String(due), row.scheduled_time],
    )
    expect(late).toBeGreaterThanOrEqual(0)
    for (const id of [later, archived, far]) expect((await bed.row(id)).task_status).toBe('Not started')
    const [{ runs }] = await bed.sql(
      `select count(*)::int as runs from "svc_AuditLog" where entity = 'svc_Tasks' and "entityId" = any($1)
       and changes->'after'->>'task_status' = 'Running'`,
      [[later, archived, deleted, far].map(String)],
    )
    expect(runs).toBe(0)
  })

  it('ends with 0 on SIGTERM and gives back what it cannot wait for', async () => {
    const second = await bed.start({ TASK_SHUTDOWN_WAIT_TIME: '0' })
    await worker.kill()
    const id = await bed.add('signal')
    await waitFor(async () => (await bed.row(id)).progress_message === 'held')
    expect(await bed.row(id)).toMatchObject({ task_status: 'Running', progress: 1 })
    expect(await second.kill()).toEqual({ code: 0, signal: null })
    expect(await bed.row(id)).toMatchObject({ task_status: 'Not started', retry_count: 0, attempt_token: null })
    await bed.sql('delete from "svc_Tasks" where id = $1', [id])
  })
})
