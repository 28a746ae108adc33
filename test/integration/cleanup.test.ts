import { beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { logDoors } from '../../src/events/log.ts'
import { deleteOldSessions } from '../../src/features/accounts/auth/sessions.ts'
import { cleanMailLog } from '../../src/features/messaging/mail/jobs.ts'
import type { Runtime } from '../../src/process/runtime.ts'
import { cleanAuditLog, deleteWhatExpired } from '../../src/workers/log-upkeep.ts'
import { type Api, startApi } from '../support/api.ts'
import { logFaults } from '../support/ledger.ts'
import { withClient } from '../support/server.ts'

/** What the log-cleanup worker removes, and what it must not. */

let api: Api

beforeAll(async () => {
  api = await startApi({ AUDIT_LOG_CLEANUP_ENABLED: 'true', EMAIL_LOG_CLEANUP_ENABLED: 'true' })
})

const never = new AbortController().signal
const stopped = AbortSignal.abort(new Error('the worker is stopping'))
const configured = (change: (config: Runtime['config']) => object): Runtime =>
  Object.create(api.runtime, { config: { value: { ...api.runtime.config, ...change(api.runtime.config) } } })
const column = async (text: string) => (await api.sql(text)).map((row) => Object.values(row)[0])

describe('cleanAuditLog', () => {
  /** Events of a collection's name, `days` old, give or take what comes with it. */
  const append = (entity: string, age: string, count = 1) =>
    api.sql(
      `insert into "svc_AuditLog" (entity, action, "createdAt")
       select $1, 'create', now() - $2::interval from generate_series(1, $3::int)`,
      [entity, age, count],
    )
  const kept = () => column(`select entity from "svc_AuditLog" where entity like 'probe%' order by entity`)

  beforeEach(() =>
    api.sql(
      `${logDoors.retention} begin; delete from "svc_AuditLog" where entity like 'probe%'; update svc_log.floor set removed = '0', "upTo" = '-infinity'; commit`,
    ),
  )

  it('deletes what is older than the retention to the moment, and nothing younger', async () => {
    await append('probe old', '90 days 1 second', 3)
    await append('probe older', '400 days')
    await append('probe young', '89 days 23:58:00')
    await append('probe new', '0')
    const before = await column(`select count(*)::int from "svc_AuditLog" where entity not like 'probe%'`)
    await cleanAuditLog(api.runtime, never)
    expect(await kept()).toEqual(['probe new', 'probe young'])
    expect(await column(`select count(*)::int from "svc_AuditLog" where entity not like 'probe%'`)).toEqual(before)
    expect(await column(`select "upTo" < now() - interval '90 days' from svc_log.floor`)).toEqual([true])
  })

  it('leaves everything where it is not enabled, and what is left when it is stopped', async () => {
    await append('probe old', '100 days')
    await cleanAuditLog(
      configured(({ log }) => ({ log: { ...log, auditCleanupEnabled: false } })),
      never,
    )
    await expect(cleanAuditLog(api.runtime, stopped)).rejects.toThrow('the worker is stopping')
    expect(await kept()).toEqual(['probe old'])
  })

  it('keeps to AUDIT_LOG_RETENTION_DAYS', async () => {
    await append('probe old', '25 hours')
    await append('probe young', '23 hours')
    await cleanAuditLog(
      configured(({ log }) => ({ log: { ...log, auditRetentionDays: 1 } })),
      never,
    )
    expect(await kept()).toEqual(['probe young'])
  })

  it('is done by one worker at a time', async () => {
    await append('probe old', '100 days')
    await withClient(api.database.url, async (client) => {
      await client.query(`select pg_advisory_lock(hashtext('daybook log cleanup'))`)
      await cleanAuditLog(api.runtime, never)
      expect(await kept()).toEqual(['probe old'])
    })
    await Promise.all([1, 2, 3].map(() => cleanAuditLog(api.runtime, never)))
    expect(await kept()).toEqual([])
  })

  it('drops whole months; one in use makes the job come again, and holds up no other work meanwhile', async () => {
    await api.sql(`create table "svc_AuditLog_200101" partition of "svc_AuditLog"
      for values from ('2001-01-01T00:00:00Z') to ('2001-02-01T00:00:00Z')`)
    const partitions = () => column(`select relname from pg_class where relname = 'svc_AuditLog_200101'`)
    await withClient(api.database.url, async (client) => {
      await client.query('begin')
      await client.query('select from "svc_AuditLog_200101"')
      await expect(cleanAuditLog(api.runtime, never)).rejects.toThrow(
        'in use, to be dropped later: svc_AuditLog_200101',
      )
      expect(await partitions()).toHaveLength(1)
      await client.query('rollback')
    })
    await cleanAuditLog(api.runtime, never)
    expect(await partitions()).toEqual([])
  })

  it('makes readers of removed events start over: changes and the past answer 410', async () => {
    await api.admin('POST', '/schemas', { collectionName: 'thing', schema: { fields: { name: { type: 'String' } } } })
    const { cursor } = (await api.admin('GET', '/changes?collections=thing')).body
    const changes = () => api.admin('GET', `/changes?collections=thing&since=${encodeURIComponent(cursor)}`)
    const past = () => api.admin('GET', `/items/thing?asOf=${new Date(Date.now() - 101 * 86_400_000).toISOString()}`)
    await append('probe old', '100 days')
    expect([(await changes()).status, (await past()).status]).toEqual([200, 200])
    await cleanAuditLog(api.runtime, never)
    for (const { status, body } of [await changes(), await past()])
      expect({ status, code: body.error.code }).toEqual({ status: 410, code: 'HISTORY_GONE' })
    expect((await api.admin('GET', '/changes?collections=thing')).status).toBe(200)
  })
})

describe('cleanMailLog', () => {
  const mails = () => column('select subject from "svc_EmailLog" order by subject')
  const mail = (subject: string, status: string, created: string, changed = created) =>
    api.sql(
      `insert into "svc_EmailLog" (email, subject, status, "createdAt", "updatedAt")
       values ('a@mail.example', $1, $2, now() - $3::interval, now() - $4::interval)`,
      [subject, status, created, changed],
    )

  it('deletes finished mails of more than 30 days and says so in the log; never one that waits or is being sent', async () => {
    for (const status of ['sent', 'failed', 'queued', 'sending']) {
      await mail(`${status} old`, status, '30 days 1 minute')
      await mail(`${status} young`, status, '29 days 23:50:00')
    }
    await mail('failed and redriven', 'sent', '40 days', '1 day')
    const before = await api.position()
    await cleanMailLog(
      configured(({ log }) => ({ log: { ...log, emailCleanupEnabled: false } })),
      never,
    )
    expect(await mails()).toHaveLength(9)
    await expect(cleanMailLog(api.runtime, stopped)).rejects.toThrow('the worker is stopping')
    expect(await mails()).toHaveLength(9)
    await cleanMailLog(api.runtime, never)
    expect(await mails()).toEqual([
      'failed and redriven',
      'failed young',
      'queued old',
      'queued young',
      'sending old',
      'sending young',
      'sent young',
    ])
    const events = (await api.log(before)).map(({ entity, action, changes }) => [
      entity,
      action,
      changes.before.subject,
    ])
    expect(events.sort()).toEqual([
      ['svc_EmailLog', 'delete', 'failed old'],
      ['svc_EmailLog', 'delete', 'sent old'],
    ])
    expect(await api.jobs('mail')).toEqual([])
  })

  it('takes as many batches as it needs, and the log agrees with the table', async () => {
    await api.sql(`insert into "svc_EmailLog" (email, subject, status, "createdAt", "updatedAt")
      select 'b@mail.example', 'many', 'sent', now() - interval '31 days', now() - interval '31 days' from generate_series(1, 1201)`)
    await Promise.all([1, 2].map(() => cleanMailLog(api.runtime, never)))
    expect(await column(`select count(*)::int from "svc_EmailLog" where subject = 'many'`)).toEqual([0])
    const faults = await withClient(api.database.url, (client) => logFaults(client as never))
    expect(faults).toEqual([])
  })
})

describe('expired rows', () => {
  it('is deleted of every table that has an expiry, and nothing that still counts', async () => {
    await api.sql(`insert into "svc_Verification" (identifier, value, "expiresAt") values
      ('magic-link:old', 'x', now() - interval '25 hours'), ('magic-link:late', 'y', now() - interval '23 hours')`)
    await api.sql(`insert into "svc_CodeTry" values ('over', 1, now()), ('open', 1, now() + interval '1 minute')`)
    await api.sql(`insert into "svc_Challenge" (identifier, data, "expiresAt") values
      ('2fa:over', '{}', now()), ('2fa:open', '{}', now() + interval '1 minute')`)
    await api.sql(`insert into "svc_IdempotencyKey" (caller, key, step, fingerprint, "expiresAt") values
      ('c', 'over', 0, 'f', now()), ('c', 'open', 0, 'f', now() + interval '1 minute')`)
    await api.sql(`insert into "svc_RateLimit" (key, count, added, "endsAt") values
      ('over', 1, 1, now()), ('open', 1, 1, now() + interval '1 minute')`)
    await api.sql(`insert into "svc_TaskLock" values ('over', 'h', now() - interval '25 hours'), ('open', 'h', now())`)
    await deleteWhatExpired(api.runtime, never)
    expect(await column('select identifier from "svc_Verification"')).toEqual(['magic-link:late'])
    for (const table of ['svc_CodeTry', 'svc_IdempotencyKey', 'svc_RateLimit'])
      expect(await column(`select key from "${table}"`), table).toEqual(['open'])
    expect(await column('select identifier from "svc_Challenge"')).toEqual(['2fa:open'])
    expect(await column('select name from "svc_TaskLock"')).toEqual(['open'])
  })

  it('of more rows than a batch holds, all', async () => {
    await api.sql(`insert into "svc_RateLimit" (key, count, added, "endsAt")
      select 'many ' || i, 1, 1, now() from generate_series(1, 2500) i`)
    await Promise.all([1, 2, 3].map(() => deleteWhatExpired(api.runtime, never)))
    expect(await column(`select count(*)::int from "svc_RateLimit" where key like 'many%'`)).toEqual([0])
  })

  /** A table that is added with an expiry belongs in the cleanup, or here with the reason why not. */
  it('names every column that ends something', async () => {
    const found = await column(`select table_name || '.' || column_name from information_schema.columns
      where table_schema = 'public' and column_name in ('expiresAt', 'endsAt') order by 1`)
    expect(found).toEqual([
      'svc_ApiKey.expiresAt', // shown to its owner as expired
      'svc_Challenge.expiresAt',
      'svc_CodeTry.endsAt',
      'svc_IdempotencyKey.expiresAt',
      'svc_Invite.expiresAt', // kept, as a record of who was invited
      'svc_OAuthClient.expiresAt',
      'svc_OAuthCode.expiresAt',
      'svc_RateLimit.endsAt',
      'svc_Sessions.expiresAt',
      'svc_TaskLock.expiresAt',
      'svc_Upload.expiresAt',
      'svc_Verification.expiresAt',
    ])
  })

  it('of an invitation is said, by an event; accepted and open ones stay as they are', async () => {
    const role = (await column(`select id from "svc_Role" where name = 'user'`))[0]
    const admin = (await column('select id from "svc_User"'))[0]
    await api.sql(
      `insert into "svc_Invite" (email, "role_Id", token, status, "expiresAt", "invitedBy_Id")
       select e || '@mail.example', $1, e, s::text, now() + i::interval, $2
       from (values ('over', 'pending', '-1 minute'), ('open', 'pending', '1 minute'), ('in', 'accepted', '-1 day')) v (e, s, i)`,
      [role, admin],
    )
    const before = await api.position()
    await deleteWhatExpired(api.runtime, never)
    expect(await column(`select email || ' ' || status from "svc_Invite" order by email`)).toEqual([
      'in@mail.example accepted',
      'open@mail.example pending',
      'over@mail.example expired',
    ])
    const events = await api.log(before)
    expect(events.map(({ entity, action, changes }) => [entity, action, changes.before.status])).toEqual([
      ['svc_Invite', 'update', 'pending'],
    ])
  })
})

describe('deleteOldSessions', () => {
  it('deletes expired sessions in batches, unless DISABLE_SESSION_CLEANUP', async () => {
    const user = (await column('select id from "svc_User"'))[0]
    const open = (expires: string, count: number) =>
      api.sql(
        `insert into "svc_Sessions" (token, "user_Id", "expiresAt")
         select gen_random_uuid()::text, $1, now() + $2::interval from generate_series(1, $3::int)`,
        [user, expires, count],
      )
    const counts = () =>
      api.sql(`select count(*) filter (where "expiresAt" <= now())::int as expired,
        count(*) filter (where "expiresAt" > now())::int as live from "svc_Sessions"`)
    const [{ live }] = await counts()
    await open('-1 second', 120)
    await open('1 minute', 3)
    await deleteOldSessions(
      configured(({ auth }) => ({ auth: { ...auth, disableSessionCleanup: true } })),
      never,
    )
    await expect(deleteOldSessions(api.runtime, stopped)).rejects.toThrow('the worker is stopping')
    expect(await counts()).toEqual([{ expired: 120, live: live + 3 }])
    await deleteOldSessions(api.runtime, never)
    expect(await counts()).toEqual([{ expired: 0, live: live + 3 }])
  })
})
