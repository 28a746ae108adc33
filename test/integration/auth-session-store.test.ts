import jwt from 'jsonwebtoken'
import pino from 'pino'
import { beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { openListener } from '../../src/db/listener.ts'
import type { Database } from '../../src/db/pools.ts'
import { type Concerns, openSessionStore, type SessionStore } from '../../src/features/auth/session-store.ts'
import { type Api, startApi } from '../support/api.ts'
import { waitFor } from '../support/wait.ts'

let api: Api
beforeAll(async () => {
  api = await startApi()
})

type Watched = {
  store: SessionStore
  /** Sessions read whole. */
  reads: () => number
  /** Statements that asked whether sessions are live. */
  checks: () => number
  /** Of each notice: whether it concerns exactly this session, its user, or everybody. */
  ended: Concerns[]
  hold: () => () => void
  cut: () => Promise<void>
  /** Process id of its notification connection at the server. */
  pid: number
}

/** Process ids of the notification connections to the database. */
async function listeners(): Promise<number[]> {
  const rows = await api.sql(
    `select pid from pg_stat_activity where application_name = 'daybook listen' and datname = current_database()`,
  )
  return rows.map(({ pid }) => pid)
}

/** A store of its own on the database, whose statements are counted; between `hold` and release their answers are late. */
async function watchedStore(): Promise<Watched> {
  const { config, reserved, catalog, access } = api.rt
  const log = pino({ level: 'silent' })
  const before = await listeners()
  const listener = await openListener(config, log)
  const [pid] = (await listeners()).filter((one) => !before.includes(one))
  let closed = false
  const cut = async () => {
    if (!closed) await listener.close()
    closed = true
  }
  onTestFinished(cut)
  let reads = 0
  let checks = 0
  let gate = Promise.resolve()
  const run: Database['run'] = async (text, values, name) => {
    if (text.includes('any($1::text[])')) checks += 1
    else reads += 1
    const rows = await reserved.run(text, values, name)
    await gate
    return rows as never
  }
  const ended: Concerns[] = []
  const store = openSessionStore({ db: { ...reserved, run }, listener, catalog, access, config, log })
  store.onEnded((concerns) => ended.push(concerns))
  const hold = () => {
    const { promise, resolve } = Promise.withResolvers<void>()
    gate = promise
    return resolve
  }
  return { store, reads: () => reads, checks: () => checks, ended, hold, cut, pid: pid! }
}

async function session() {
  const { token, id: userId, roleId } = await api.user()
  const { sessionToken } = jwt.decode(token) as { sessionToken: string }
  const [{ id }] = await api.sql('select id from "svc_Sessions" where "user_Id" = $1', [userId])
  return { id, userId, roleId, sessionToken }
}

type Who = { id: string; userId: string }

/** Whether a notice means this session or user and nobody else; everybody where neither is given. */
function told(concerns: Concerns, { id, userId }: Partial<Who>): boolean {
  const somebodyElse = concerns({ id: 'another', userId: 'another' })
  const meant = concerns({ id: id ?? 'another', userId: userId ?? 'another' })
  return id === undefined && userId === undefined ? somebodyElse : meant && !somebodyElse
}

const end = (id: string) => api.sql('delete from "svc_Sessions" where id = $1', [id])

describe('the session store', () => {
  it('finds whom a session stands for, by statement of the moment', async () => {
    const { store } = await watchedStore()
    const { id, userId, roleId, sessionToken } = await session()
    const found = await store.find(sessionToken)
    expect(found).toMatchObject({
      id,
      userId,
      type: 'default',
      tenantId: undefined,
      tenant: undefined,
      extendable: false,
    })
    expect(found).toMatchObject({
      role: { id: roleId },
      user: { id: userId },
      userRole: { user_Id: userId, role_Id: roleId },
    })
    expect(JSON.stringify(found)).not.toContain('b1:$2')
    expect(await store.find(`${sessionToken.slice(1)}0`)).toBeUndefined()
  })

  it('asks for every caller whether the session is live, and reads it whole only once in a while', async () => {
    const { store, reads, checks } = await watchedStore()
    const { sessionToken } = await session()
    for (let i = 0; i < 10; i += 1) await store.find(sessionToken)
    expect(checks()).toBe(10)
    // What is kept lives for a second, so a slow machine may read twice.
    expect(reads()).toBeLessThanOrEqual(3)
  })

  it('asks once for all callers that come while it waits for an answer', async () => {
    const { store, reads, checks, hold } = await watchedStore()
    const { sessionToken, id } = await session()
    const another = await session()
    await Promise.all([store.find(sessionToken), store.find(another.sessionToken)])
    const before = { reads: reads(), checks: checks() }
    const release = hold()
    const first = store.find(sessionToken)
    const others = Array.from({ length: 20 }, (_, i) => store.find(i % 2 ? sessionToken : another.sessionToken))
    release()
    expect((await first)?.id).toBe(id)
    expect((await Promise.all(others)).map((found) => found?.id)).toEqual(
      Array.from({ length: 20 }, (_, i) => (i % 2 ? id : another.id)),
    )
    expect(checks()).toBe(before.checks + 2)
    expect(reads()).toBeLessThanOrEqual(before.reads + 4)
  })

  it('answers with what was committed before the question, though an earlier one still waits', async () => {
    const { store, checks, hold } = await watchedStore()
    const { sessionToken, id } = await session()
    await store.find(sessionToken)
    const before = checks()
    const release = hold()
    const early = store.find(sessionToken)
    await waitFor(() => checks() === before + 1)
    await end(id)
    const late = store.find(sessionToken)
    release()
    await early
    expect(await late).toBeUndefined()
  })

  it.each([
    ['a session that has ended', `delete from "svc_Sessions" where id = $1`],
    ['a session that has expired', `update "svc_Sessions" set "expiresAt" = now() where id = $1`],
    [
      'one whose user was suspended',
      `update "svc_User" set status = 'suspended' where id = (select "user_Id" from "svc_Sessions" where id = $1)`,
    ],
    [
      'one whose user has lost the role',
      `delete from "svc_UserRole" where "user_Id" = (select "user_Id" from "svc_Sessions" where id = $1)`,
    ],
  ])('finds no more %s, though no notification can arrive', async (_what, statement) => {
    const { store, cut } = await watchedStore()
    const { id, sessionToken } = await session()
    expect((await store.find(sessionToken))?.id).toBe(id)
    await cut()
    await api.sql(statement, [id])
    expect(await store.find(sessionToken)).toBeUndefined()
  })

  it('follows a change of the role and of the user at once, though no notification can arrive', async () => {
    const { store, cut } = await watchedStore()
    const { userId, sessionToken } = await session()
    await store.find(sessionToken)
    await cut()
    await api.sql(`update "svc_User" set "firstName" = 'Changed' where id = $1`, [userId])
    expect((await store.find(sessionToken))?.user).toMatchObject({ firstName: 'Changed' })
    const [{ id: roleId }] = await api.sql(`select id from "svc_Role" where name = 'user'`)
    await api.sql(`update "svc_UserRole" set "role_Id" = $2 where "user_Id" = $1`, [userId, roleId])
    expect((await store.find(sessionToken))?.role.id).toBe(roleId)
  })

  it('does not keep what was read before an end it heard of while reading', async () => {
    const { store, checks, ended, hold } = await watchedStore()
    const { id, sessionToken } = await session()
    const release = hold()
    const early = store.find(sessionToken)
    await waitFor(() => checks() === 1)
    await end(id)
    await waitFor(() => ended.some((concerns) => told(concerns, { id })))
    release()
    await early
    expect(await store.find(sessionToken)).toBeUndefined()
  })

  it('does not let a caller share a read that began before an end it heard of', async () => {
    const { store, checks, ended, hold } = await watchedStore()
    const { id, sessionToken } = await session()
    const release = hold()
    const early = store.find(sessionToken)
    await waitFor(() => checks() === 1)
    await end(id)
    await waitFor(() => ended.some((concerns) => told(concerns, { id })))
    const late = store.find(sessionToken)
    release()
    await early
    expect(await late).toBeUndefined()
  })

  it('forgets at once what its own process ended', async () => {
    const { store, ended } = await watchedStore()
    const { id, sessionToken } = await session()
    await store.find(sessionToken)
    await end(id)
    store.forget(id)
    expect(ended.some((concerns) => told(concerns, { id }))).toBe(true)
    expect(await store.find(sessionToken)).toBeUndefined()
  })

  it.each([
    ['the session when one ends', 'delete from "svc_Sessions" where id = $1', ({ id }: Who) => ({ id })],
    [
      'the session when one changes',
      `update "svc_Sessions" set "expiresAt" = now() where id = $1`,
      ({ id }: Who) => ({ id }),
    ],
    [
      'the user who is suspended',
      `update "svc_User" set status = 'suspended' where id = (select "user_Id" from "svc_Sessions" where id = $1)`,
      ({ userId }: Who) => ({ userId }),
    ],
    [
      'the user who loses a role',
      `delete from "svc_UserRole" where "user_Id" = (select "user_Id" from "svc_Sessions" where id = $1)`,
      ({ userId }: Who) => ({ userId }),
    ],
    ['everybody when a role changes', `update "svc_Role" set description = $1`, () => ({})],
  ])('tells its watchers of %s', async (_what, statement, whom) => {
    const { ended } = await watchedStore()
    const who = await session()
    // What preparing the session notified may still be on its way; the row's own notice is what is waited for.
    ended.length = 0
    await api.sql(statement, [who.id])
    await waitFor(() => ended.some((concerns) => told(concerns, whom(who))))
  })

  it('tells its watchers of everybody after the notification connection was lost', async () => {
    const { ended, pid } = await watchedStore()
    await api.sql('select pg_terminate_backend($1)', [pid])
    await waitFor(() => ended.some((concerns) => told(concerns, {})))
  })

  it('answers 503 when the database can not tell (decisions F20)', async () => {
    const { rt } = api
    const broken: Database = { ...rt.reserved, run: () => Promise.reject(new Error('connection terminated')) }
    const log = pino({ level: 'silent' })
    const store = openSessionStore({ ...rt, db: broken, log })
    await expect(store.find((await session()).sessionToken)).rejects.toMatchObject({ status: 503 })
  })
})
