import { beforeAll, describe, expect, it } from 'vitest'
import { type Cluster, type Member, startCluster, type Web } from '../support/cluster.ts'
import { connect, type TestSocket } from '../support/socket.ts'
import { waitFor } from '../support/wait.ts'

/**
 * A session that has ended is refused by the first request to any process after the answer that ended it: nothing there
 * waits before it asks. Sockets are closed by a notification, so these are waited for.
 */

let cluster: Cluster
let one: Web
let two: Web
let roleId: string
let tenants: string[]
const password = 'password of a user'
let users = 0

beforeAll(async () => {
  cluster = await startCluster({ web: 2, workers: ['log-cleanup'], env: { MULTI_TENANT: 'true' } })
  ;[one, two] = cluster.web as [Web, Web]
  roleId = (await one.call('POST', '/items/svc_Role', { name: 'member' })).body.data.id
  const made = await cluster.sql(`insert into "svc_Tenant" (name) values ('one'), ('two') returning id`)
  tenants = made.map(({ id }) => id)
})

type Subject = { id: string; email: string; token: string; sockets: TestSocket[] }

/** A member of both tenants, signed in at the first, known to both processes and with a socket at each. */
async function signedIn(): Promise<Subject> {
  users += 1
  const email = `member${users}@example.com`
  const account = { firstName: 'M', email, password, emailVerified: true }
  const { id } = (await one.call('POST', '/items/svc_User', account)).body.data
  for (const tenant of tenants)
    await cluster.sql('insert into "svc_UserRole" ("user_Id", "role_Id", "tenant_Id") values ($1, $2, $3)', [
      id,
      roleId,
      tenant,
    ])
  const { token } = (await one.call('POST', '/auth/login', { email, password }, null)).body
  for (const web of cluster.web) expect((await check(web, token)).status).toBe(200)
  const sockets = await Promise.all(cluster.web.map((web) => connect(web.address, token)))
  return { id, email, token, sockets }
}

const check = (web: Web, token: string) => web.call('GET', '/auth/check', undefined, token)
const sessionIdOf = async (token: string) =>
  (await one.call('GET', '/auth/sessions', undefined, token)).body.sessions.find(({ current }: any) => current).id
const sqlOf = (text: string) => (subject: Subject) => cluster.sql(text, [subject.id])
const cutNotifications = () =>
  cluster.sql(
    `select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'daybook listen' and datname = current_database()`,
  )

const ends: [string, (subject: Subject) => Promise<unknown>][] = [
  ['logout', ({ token }) => one.call('POST', '/auth/logout', undefined, token)],
  ['refresh', ({ token }) => one.call('POST', '/auth/refresh', undefined, token)],
  ['a change of the tenant', ({ token }) => one.call('POST', '/auth/switch-tenant', { tenant_Id: tenants[1] }, token)],
  [
    'its user, from another session',
    async ({ email, token }) => {
      const { body } = await one.call('POST', '/auth/login', { email, password }, null)
      await one.call('DELETE', `/auth/sessions/${await sessionIdOf(token)}`, undefined, body.token)
    },
  ],
  ['an administrator', ({ id }) => one.call('DELETE', `/auth/admin/users/${id}/sessions`)],
  ['suspension', ({ id }) => one.call('PATCH', `/items/svc_User/${id}`, { status: 'suspended' })],
  [
    'a password that an administrator sets',
    ({ id }) => one.call('PATCH', `/items/svc_User/${id}`, { password: 'another password' }),
  ],
  ['deletion of the user', ({ id }) => one.call('DELETE', `/items/svc_User/${id}`)],
]

// A change by hand does not wait for the processes; the notification arrives in milliseconds.
const endsByHand: typeof ends = [
  ['the loss of the role', sqlOf('delete from "svc_UserRole" where "user_Id" = $1')],
  ['deletion of the row', sqlOf('delete from "svc_Sessions" where "user_Id" = $1')],
  ['suspension', sqlOf(`update "svc_User" set status = 'suspended' where id = $1`)],
]

describe('a session ended by', () => {
  it.each(ends)('%s is refused by every process at once, and its sockets are closed', async (_what, end) => {
    const subject = await signedIn()
    await end(subject)
    const [there, here] = await Promise.all([check(two, subject.token), check(one, subject.token)])
    expect([there.status, here.status]).toEqual([401, 401])
    for (const { socket } of subject.sockets) await waitFor(() => socket.disconnected)
    for (const web of cluster.web) await expect(connect(web.address, subject.token)).rejects.toThrow()
  })
})

describe('a session ended by psql,', () => {
  it.each(endsByHand)('by %s, is refused by every process as soon as it has heard of it', async (_what, end) => {
    const subject = await signedIn()
    await end(subject)
    for (const web of cluster.web) await waitFor(async () => (await check(web, subject.token)).status === 401)
    for (const { socket } of subject.sockets) await waitFor(() => socket.disconnected)
  })
})

describe('while notifications are cut', () => {
  it('an end counts at once all the same', async () => {
    const subject = await signedIn()
    await cutNotifications()
    await one.call('POST', '/auth/logout', undefined, subject.token)
    expect((await check(two, subject.token)).status).toBe(401)
    for (const { socket } of subject.sockets) await waitFor(() => socket.disconnected)
  })
})

// Soon after its start and then for an hour no more: what expires from here on stays.
describe('the cleanup worker', () => {
  it('deletes expired sessions soon after its start', async () => {
    const [worker] = cluster.workers as [Member]
    await worker.kill()
    await cluster.sql(
      `insert into "svc_Sessions" (token, "user_Id", "expiresAt") select 'old ' || i, u.id, now()
       from (select id from "svc_User" limit 1) u, generate_series(1, 60) i`,
    )
    await worker.restart()
    const old = () => cluster.sql(`select id from "svc_Sessions" where token like 'old %'`)
    await waitFor(async () => (await old()).length === 0)
  })
})

describe('a socket', () => {
  it('is closed when its session expires, although no notification says so', async () => {
    const subject = await signedIn()
    await cluster.sql(`update "svc_Sessions" set "expiresAt" = now() + interval '1 second' where "user_Id" = $1`, [
      subject.id,
    ])
    for (const { socket } of subject.sockets) await waitFor(() => socket.disconnected)
    expect(await cluster.sql('select id from "svc_Sessions" where "user_Id" = $1', [subject.id])).toHaveLength(1)
  })

  it('of another session stays', async () => {
    const [leaving, staying] = [await signedIn(), await signedIn()]
    await one.call('POST', '/auth/logout', undefined, leaving.token)
    for (const { socket } of leaving.sockets) await waitFor(() => socket.disconnected)
    for (const { socket } of staying.sockets) expect(socket.connected).toBe(true)
  })
})

// The administrator's is among them, so nothing follows.
describe('all sessions, truncated by psql,', () => {
  it('are refused by every process as soon as it has heard of it', async () => {
    const subject = await signedIn()
    await cluster.sql('truncate "svc_Sessions" cascade')
    for (const web of cluster.web) await waitFor(async () => (await check(web, subject.token)).status === 401)
    for (const { socket } of subject.sockets) await waitFor(() => socket.disconnected)
  })
})
