import { beforeAll, describe, expect, it } from 'vitest'
import { rawQuery, sql } from '../../src/db/sql.ts'
import { commit } from '../../src/events/commit.ts'
import { systemActor } from '../../src/events/types.ts'
import { queueMail } from '../../src/features/messaging/mail/mail.ts'
import { type Api, startApi } from '../support/api.ts'

let api: Api

beforeAll(async () => {
  api = await startApi({ SOCKET_ENABLED: 'true' })
  await api.admin('POST', '/schemas', { collectionName: 'note', schema: { fields: { text: { type: 'String' } } } })
  await api.sql(`insert into note (text) values ('kept')`)
})

const readOnlyTransaction = '25006'
const notes = async () => (await api.sql('select text from note')).map(({ text }) => text)

describe('the connections that a route holds', () => {
  const writes = {
    insert: `insert into note (text) values ('stray') returning id`,
    update: `update note set text = 'stray'`,
    delete: `delete from note`,
    'a write in a CTE': `with gone as (delete from note returning id) select count(*) from gone`,
    'a write to the log': `insert into "svc_AuditLog" (entity, action) values ('note', 'create')`,
    DDL: `drop table note`,
    'a write of a session': `delete from "svc_Sessions"`,
  }

  it('say who has asked when a statement fails', async () => {
    const failed = await api.runtime.db.run('select 1 / 0', []).catch((error: unknown) => error)
    expect((failed as Error).stack).toContain(import.meta.filename)
  })

  describe.each(['db', 'reserved', 'feedDb'] as const)('runtime.%s', (pool) => {
    it.each(Object.entries(writes))('refuses %s', async (_what, text) => {
      const before = await api.position()
      await expect(api.runtime[pool].any(rawQuery(text, []))).rejects.toMatchObject({ code: readOnlyTransaction })
      await expect(api.runtime[pool].run(text, [])).rejects.toMatchObject({ code: readOnlyTransaction })
      expect(await notes()).toEqual(['kept'])
      expect(await api.position()).toBe(before)
    })
  })
})

describe('commit', () => {
  it('leaves no row, no event and no job when the database refuses its end', async () => {
    await api.sql(
      `create function refuse() returns trigger language plpgsql as 'begin raise exception ''refused''; end'`,
    )
    await api.sql(`create constraint trigger refuse after insert on note deferrable initially deferred
      for each row execute function refuse()`)
    const before = await api.position()
    const failing = commit(api.runtime, systemActor, async (tx) => {
      await tx.any(sql`insert into note (text) values ('half')`)
      const mail = { type: 'verification', to: 'a@mail.example', context: { link: 'https://app.example' } } as const
      const { event } = await queueMail(tx, mail)
      return { result: undefined, events: [event] }
    })
    await expect(failing).rejects.toThrow('refused')
    expect(await notes()).toEqual(['kept'])
    expect(await api.position()).toBe(before)
    expect(await api.jobs('mail')).toEqual([])
    expect(await api.sql('select from "svc_EmailLog"')).toEqual([])
  })
})
