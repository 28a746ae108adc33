import { setTimeout as delay } from 'node:timers/promises'
import { beforeAll, describe, expect, it } from 'vitest'
import { type Cluster, startCluster, type Web } from '../support/cluster.ts'
import { connect } from '../support/socket.ts'
import { waitFor } from '../support/wait.ts'

/**
 * How long a revocation takes to be effective in every process. The bound of one second is measured and
 * printed, not asserted: how fast the machine runs is not what is tested here, but that it ends, and where.
 */

let cluster: Cluster
let token: string
let userId: string
let roleId: string
const rounds = 5

beforeAll(async () => {
  cluster = await startCluster({ web: 2 })
  const admin = cluster.web[0]!
  await admin.call('POST', '/schemas', { collectionName: 'note', schema: { fields: { text: { type: 'String' } } } })
  await admin.call('POST', '/items/note', { text: 'mine' })
  await admin.call('POST', '/items/note', { text: 'other' })
  roleId = (await admin.call('POST', '/items/svc_Role', { name: 'reader' })).body.data.id
  const account = { firstName: 'R', email: 'reader@example.com', password: 'password of a user', emailVerified: true }
  userId = (await admin.call('POST', '/items/svc_User', account)).body.data.id
  await admin.call('POST', '/items/svc_UserRole', { user_Id: userId, role_Id: roleId })
  token = await signIn()
})

async function signIn(): Promise<string> {
  const body = { email: 'reader@example.com', password: 'password of a user' }
  return (await cluster.web[0]!.call('POST', '/auth/login', body, null)).body.token
}

const read = (web: Web) => web.call('GET', '/items/note?sort=text', undefined, token)

async function grant(more: object = {}): Promise<string> {
  const permission = { role_Id: roleId, collection: 'note', action: 'read', fields: '*', ...more }
  const { body } = await cluster.web[0]!.call('POST', '/permissions', permission)
  for (const web of cluster.web) await waitFor(async () => (await read(web)).body.data?.length > 0)
  return body.id
}

/** Asks every process all the time, until each gives the new answer; how long after `change` each still gave the old one. */
async function staleness(change: () => Promise<unknown>, isNew: (web: Web) => Promise<boolean>): Promise<number[]> {
  const polls = cluster.web.map((web) => {
    let changedAt = Number.POSITIVE_INFINITY
    let lastStale = 0
    const done = (async () => {
      for (;;) {
        const askedAt = performance.now()
        if (await isNew(web)) return Math.max(0, lastStale - changedAt)
        lastStale = askedAt
        await delay(5)
      }
    })()
    const changed = () => {
      changedAt = performance.now()
    }
    return { done, changed }
  })
  await change()
  for (const { changed } of polls) changed()
  return Promise.all(polls.map(({ done }) => done))
}

async function measure(what: string, round: () => Promise<number[]>): Promise<void> {
  const all: number[] = []
  for (let i = 0; i < rounds; i += 1) all.push(...(await round()))
  process.stdout.write(`stale after ${what}: at most ${Math.ceil(Math.max(...all))} ms in ${all.length} measurements\n`)
}

describe('a revocation is effective in both processes', () => {
  it('of a permission', async () => {
    await measure('a permission was deleted', async () => {
      const id = await grant()
      return staleness(
        () => cluster.web[0]!.call('DELETE', `/permissions/${id}`),
        async (web) => (await read(web)).status === 403,
      )
    })
    for (const web of cluster.web) expect((await read(web)).status).toBe(403)
  })

  it('of rows, by a change of the rule', async () => {
    await measure('a row rule was changed', async () => {
      const id = await grant()
      const found = await staleness(
        () => cluster.web[1]!.call('PATCH', `/permissions/${id}`, { conditions: { text: 'mine' } }),
        async (web) => (await read(web)).body.data.length === 1,
      )
      await cluster.web[0]!.call('DELETE', `/permissions/${id}`)
      for (const web of cluster.web) await waitFor(async () => (await read(web)).status === 403)
      return found
    })
  })

  it('of a session, by hand', async () => {
    const id = await grant()
    await measure('a session was deleted in the database', async () => {
      token = await signIn()
      for (const web of cluster.web) expect((await read(web)).status).toBe(200)
      return staleness(
        () => cluster.sql('delete from "svc_Sessions" where "user_Id" = $1', [userId]),
        async (web) => (await read(web)).status === 401,
      )
    })
    token = await signIn()
    await cluster.web[0]!.call('DELETE', `/permissions/${id}`)
  })

  it('of a role, by hand, with the connection for notifications cut a moment before', async () => {
    const id = await grant()
    await measure('a permission was deleted while notifications were cut', async () => {
      await cluster.sql(
        `select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'daybook listen' and datname = current_database()`,
      )
      const found = await staleness(
        () => cluster.sql('delete from "svc_Permission" where id = $1', [id]),
        async (web) => (await read(web)).status === 403,
      )
      await cluster.sql(
        `insert into "svc_Permission" (id, "role_Id", collection, action, fields) values ($1, $2, 'note', 'read', '"*"')`,
        [id, roleId],
      )
      for (const web of cluster.web) await waitFor(async () => (await read(web)).status === 200)
      return found
    })
    await cluster.web[0]!.call('DELETE', `/permissions/${id}`)
  })

  it('of a subscription, at the other process', async () => {
    const id = await grant()
    const socket = await connect(cluster.web[1]!.address, token)
    expect(await socket.subscribe('note')).toMatchObject({ status: 'success' })
    await cluster.web[0]!.call('DELETE', `/permissions/${id}`)
    await waitFor(() => socket.notices.some(({ name, body }) => name === 'unsubscribed' && body.collection === 'note'))
    await cluster.web[0]!.call('POST', '/items/note', { text: 'after' })
    expect((await socket.emit('subscribe', { collection: 'note' })).status).not.toBe('success')
    expect(socket.frames).toEqual([])
  })
})
