import { beforeAll, describe, expect, it } from 'vitest'
import { workFor } from '../../src/admission/asker.ts'
import { sql, type Tx } from '../../src/db/sql.ts'
import { commit } from '../../src/events/commit.ts'
import { type DomainEvent, systemActor } from '../../src/events/types.ts'
import { type Api, startApi } from '../support/api.ts'
import { waitFor } from '../support/wait.ts'

let api: Api
beforeAll(async () => {
  api = await startApi()
})

const mailQueued = (emailLogId: string): DomainEvent => ({ type: 'mail.queued', data: { emailLogId } })
const insertTenant = (tx: Tx, name: string) => tx.any(sql`insert into "svc_Tenant" (name) values (${name})`)
const tenants = (name: string) => api.sql('select id from "svc_Tenant" where name = $1', [name])

describe('commit', () => {
  it('makes state, events and jobs durable together', async () => {
    const before = await api.position()
    const id = '11111111-1111-4111-8111-111111111111'
    const result = await commit(api.runtime, systemActor, async (tx) => {
      await insertTenant(tx, 'together')
      return { result: 'done', events: [mailQueued(id)] }
    })
    expect(result).toBe('done')
    expect(await tenants('together')).toHaveLength(1)
    expect((await api.log(before)).map(({ type, entity, action }) => [type, entity, action])).toEqual([
      ['data', 'svc_Tenant', 'create'],
      ['mail', 'svc_EmailLog', 'queued'],
    ])
    expect(await api.jobs('mail')).toEqual([{ data: { emailLogId: id } }])
  })

  it('leaves nothing of a transaction whose job cannot be enqueued: a missing queue is an error', async () => {
    const before = await api.position()
    const other = await startApi()
    await other.sql('delete from pgboss.queue where name = $1', ['mail'])
    const position = await other.position()
    const fresh = await startApi({}, other.database)
    await expect(
      commit(fresh.runtime, systemActor, async (tx) => {
        await insertTenant(tx, 'lost')
        return { result: undefined, events: [mailQueued('22222222-2222-4222-8222-222222222222')] }
      }),
    ).rejects.toThrow(/mail/)
    expect(await other.sql(`select id from "svc_Tenant" where name = 'lost'`)).toEqual([])
    expect(
      (await other.log(position)).filter(({ entity }) => entity === 'svc_Tenant' || entity === 'svc_EmailLog'),
    ).toEqual([])
    expect(await api.log(before)).toEqual([])
  })

  it('waits for no connection when its asker is gone, and does not begin when one comes', async () => {
    const free = Promise.withResolvers<void>()
    const write = () => api.runtime.pools().find(({ name }) => name === 'write')!
    const held = Array.from({ length: write().max }, () =>
      commit(api.runtime, systemActor, async () => ({ result: await free.promise })),
    )
    await waitFor(() => write().open - write().idle === write().max)
    const client = new AbortController()
    let hasBegun = false
    const left = workFor({ caller: 'one who leaves', gone: client.signal, places: 0 }, () =>
      commit(api.runtime, systemActor, async () => {
        hasBegun = true
        return { result: undefined }
      }),
    )
    const refused = expect(left).rejects.toMatchObject({ status: 499 })
    await waitFor(() => write().waiting === 1)
    client.abort()
    await refused
    free.resolve()
    await Promise.all(held)
    await waitFor(() => write().waiting === 0 && write().open === write().idle)
    expect(hasBegun).toBe(false)
  })

  it('rolls back what work wrote when it throws, and passes the error on', async () => {
    const before = await api.position()
    const jobs = await api.jobs('mail')
    const failure = new Error('no')
    await expect(
      commit(api.runtime, systemActor, async (tx) => {
        await insertTenant(tx, 'thrown away')
        throw failure
      }),
    ).rejects.toThrow('no')
    expect(await tenants('thrown away')).toEqual([])
    expect(await api.log(before)).toEqual([])
    expect(await api.jobs('mail')).toEqual(jobs)
  })

  it('runs work again after a serialization conflict, and appends once', async () => {
    const before = await api.position()
    let runs = 0
    await commit(api.runtime, systemActor, async (tx) => {
      runs += 1
      await insertTenant(tx, 'again')
      if (runs === 1)
        await tx.any(sql`do $$ begin raise exception 'conflict' using errcode = 'serialization_failure'; end $$`)
      return { result: undefined }
    })
    expect(runs).toBe(2)
    expect(await tenants('again')).toHaveLength(1)
    expect((await api.log(before)).filter(({ entity }) => entity === 'svc_Tenant')).toHaveLength(1)
  })
})
