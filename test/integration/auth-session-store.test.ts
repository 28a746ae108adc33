import jwt from 'jsonwebtoken'
import pino from 'pino'
import { beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { openLeases } from '../../src/db/leases.ts'
import { openListener } from '../../src/db/listener.ts'
import type { Database } from '../../src/db/pools.ts'
import { type Concerns, openSessionStore, type SessionStore } from '../../src/features/accounts/auth/session-store.ts'
import { type Api, startApi } from '../support/api.ts'
import { waitFor } from '../support/wait.ts'

let api: Api
beforeAll(async () => {
  api = await startApi()
})

type Watched = {
  store: SessionStore
  /** Sessions read. */
  reads: () => number
  /** Of each notice: whether it concerns exactly this session, its user, or everybody. */
  ended: Concerns[]
  hold: () => () => void
  cut: () => Promise<void>
  isLive: () => boolean
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

const log = pino({ level: 'silent' })

/** A store of its own on the database, whose statements are counted; between `hold` and release their answers are late. */
async function watchedStore(): Promise<Watched> {
  const { config, reserved, catalog, access } = api.runtime
  const before = await listeners()
  const listener = await openListener({ config, log, db: reserved, leased: true })
  const leases = openLeases({ db: reserved, listener, log })
  const [pid] = (await listeners()).filter((one) => !before.includes(one))
  let closed = false
  const cut = async () => {
    if (!closed) await listener.close()
    closed = true
  }
  onTestFinished(cut)
  let reads = 0
  let gate = Promise.resolve()
  const run: Database['run'] = async (text, values, name) => {
    reads += 1
    const rows = await reserved.run(text, values, name)
    await gate
    return rows as never
  }
  const ended: Concerns[] = []
  const store = openSessionStore({ db: { ...reserved, run }, listener, leases, catalog, access, config, log })
  store.onEnded((concerns) => ended.push(concerns))
  const hold = () => {
    const { promise, resolve } = Promise.withResolvers<void>()
    gate = promise
    return resolve
  }
  await waitFor(() => listener.isLive())
  return { store, reads: () => reads, ended, hold, cut, isLive: () => listener.isLive(), pid: pid! }
}

async function session() {
  const { token, id: userId, roleId } = await api.user()
  const { sessionToken } = jwt.decode(token) as { sessionToken: string }
  const [{ id }] = await api.sql('select id from "svc_Sessions" where "user_Id" = $1', [userId])
  return { id, userId, roleId, sessionToken }
}

type Who = { id: string; userId: string }

/** Whether a notice means this session or user alone; all of them where neither is given. */
function told(concerns: Concerns, { id, userId }: Partial<Who>): boolean {
  const somebodyElse = concerns({ id: 'another', userId: 'another' })
  const meant = concerns({ id: id ?? 'another', userId: userId ?? 'another' })
  return id === undefined && userId === undefined ? somebodyElse : meant && !somebodyElse
}

const end = (id: string) => api.sql('delete from "svc_Sessions" where id = $1', [id])

describe('the session store', () => {
  it('finds the user a session stands for, by a statement of the moment', async () => {
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

  it('answers from memory what it has read', async () => {
    const { store, reads } = await watchedStore()
    const { sessionToken, id } = await session()
    // On a slow machine the server may not be heard in time, and meanwhile nothing is kept or recalled.
    await waitFor(async () => {
      expect((await store.find(sessionToken))?.id).toBe(id)
      return store.recall(sessionToken)?.id === id
    })
    await waitFor(async () => {
      const before = reads()
      for (let i = 0; i < 10; i += 1) await store.find(sessionToken)
      return reads() === before
    })
  })

  it('reads once for all callers that come while it is read', async () => {
    const { store, reads, hold, isLive } = await watchedStore()
    const { sessionToken, id } = await session()
    const release = hold()
    // Without word from the server in time each caller reads for itself.
    await waitFor(isLive)
    const found = Array.from({ length: 20 }, () => store.find(sessionToken))
    release()
    expect((await Promise.all(found)).map((one) => one?.id)).toEqual(Array.from({ length: 20 }, () => id))
    expect(reads()).toBe(1)
  })

  it('recalls nothing that has ended, and nothing once it cannot hear', async () => {
    const { store, ended, cut } = await watchedStore()
    const [gone, staying] = [await session(), await session()]
    await Promise.all([store.find(gone.sessionToken), store.find(staying.sessionToken)])
    await end(gone.id)
    await waitFor(() => ended.some((concerns) => told(concerns, { id: gone.id })))
    expect(store.recall(gone.sessionToken)).toBeUndefined()
    await waitFor(async () => (await store.find(staying.sessionToken)) && store.recall(staying.sessionToken))
    await cut()
    expect(store.recall(staying.sessionToken)).toBeUndefined()
    expect((await store.find(staying.sessionToken))?.id).toBe(staying.id)
  })

  it('recalls no session that expires meanwhile', async () => {
    const { store } = await watchedStore()
    const { id, sessionToken } = await session()
    await api.sql(`update "svc_Sessions" set "expiresAt" = now() + interval '300 milliseconds' where id = $1`, [id])
    await store.find(sessionToken)
    await waitFor(async () => (await store.find(sessionToken)) === undefined)
    expect(store.recall(sessionToken)).toBeUndefined()
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
    const { store, reads, ended, hold } = await watchedStore()
    const { id, sessionToken } = await session()
    const release = hold()
    const early = store.find(sessionToken)
    await waitFor(() => reads() === 1)
    await end(id)
    await waitFor(() => ended.some((concerns) => told(concerns, { id })))
    release()
    await early
    expect(await store.find(sessionToken)).toBeUndefined()
  })

  it('does not let a caller share a read that began before an end it heard of', async () => {
    const { store, reads, ended, hold } = await watchedStore()
    const { id, sessionToken } = await session()
    const release = hold()
    const early = store.find(sessionToken)
    await waitFor(() => reads() === 1)
    await end(id)
    await waitFor(() => ended.some((concerns) => told(concerns, { id })))
    const late = store.find(sessionToken)
    release()
    await early
    expect(await late).toBeUndefined()
  })

  it('makes an end known here and waits until the other processes have heard of it', async () => {
    const [here, there] = [await watchedStore(), await watchedStore()]
    const { id, sessionToken } = await session()
    await Promise.all([here.store.find(sessionToken), there.store.find(sessionToken)])
    await end(id)
    await here.store.ended([`session:${id}`])
    for (const { store, ended } of [here, there]) {
      expect(ended.some((concerns) => told(concerns, { id }))).toBe(true)
      expect(store.recall(sessionToken)).toBeUndefined()
    }
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
    ['everybody when roles change', `update "svc_Role" set description = $1`, () => ({})],
  ])('tells its watchers of %s', async (_what, statement, whom) => {
    const { ended } = await watchedStore()
    const who = await session()
    // Notices of the preparation may still be on their way; the test waits for the row's own.
    ended.length = 0
    await api.sql(statement, [who.id])
    await waitFor(() => ended.some((concerns) => told(concerns, whom(who))))
  })

  it('tells its watchers of everybody after the notification connection was lost', async () => {
    const { ended, pid } = await watchedStore()
    await api.sql('select pg_terminate_backend($1)', [pid])
    await waitFor(() => ended.some((concerns) => told(concerns, {})))
  })

  it('answers 503 when the database can not tell', async () => {
    const { runtime } = api
    const broken: Database = { ...runtime.reserved, run: () => Promise.reject(new Error('connection terminated')) }
    const leases = openLeases({ ...runtime, db: runtime.reserved })
    const store = openSessionStore({ ...runtime, db: broken, leases, log })
    await expect(store.find((await session()).sessionToken)).rejects.toMatchObject({ status: 503 })
  })
})
