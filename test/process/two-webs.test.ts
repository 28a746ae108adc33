import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Cluster, startCluster, type Web } from '../support/cluster.ts'
import { hasPgbouncer, startPgbouncer } from '../support/pgbouncer.ts'
import { createDatabase } from '../support/postgres.ts'
import { administrator } from '../support/prepare.ts'
import { hasRedis, startRedis } from '../support/redis.ts'
import { connect } from '../support/socket.ts'
import { waitFor } from '../support/wait.ts'

/**
 * The set-ups of docs/scaling.md and docs/poolers.md: two web processes that share nothing but PostgreSQL, or Redis as well,
 * or four connections of a pooler.
 */
const setUps: [name: string, skipped: boolean, env: (url: string) => Promise<Record<string, string>>][] = [
  ['without Redis', false, async () => ({})],
  ['with Redis', !hasRedis, async () => ({ RATE_LIMIT_REDIS_URL: (await startRedis()).url })],
  [
    'behind PgBouncer',
    !hasPgbouncer,
    async (url) => ({ DATABASE_URL: (await startPgbouncer(url)).url, DATABASE_DIRECT_URL: url }),
  ],
]

for (const [setUp, isSkipped, env] of setUps)
  describe.skipIf(isSkipped)(`two web processes ${setUp}`, () => {
    let cluster: Cluster
    let one: Web
    let two: Web

    beforeAll(async () => {
      const limited = { AUTH_RATE_LIMIT_DISABLED: 'false', RATE_LIMIT_DISABLED: 'false' }
      const database = await createDatabase()
      cluster = await startCluster({ database, web: 2, env: { ...limited, ...(await env(database.url)) } })
      ;[one, two] = cluster.web as [Web, Web]
      await one.call('POST', '/schemas', { collectionName: 'note', schema: fields('text') })
    })

    afterAll(() => Promise.all(cluster.web.map((web) => web.kill())))

    it('count attempts together', async () => {
      const guess = (web: Web) => web.call('GET', '/auth/email/verify/guess', undefined, null)
      const answers = await Promise.all(Array.from({ length: 16 }, (_, i) => guess(i % 2 === 0 ? one : two)))
      const refused = answers.filter(({ status }) => status === 429)
      expect(refused).toHaveLength(6)
      for (const { headers } of refused) expect(Number(headers.get('retry-after'))).toBeGreaterThan(0)
    })

    it('know a collection as soon as its change is answered', async () => {
      await one.call('PATCH', '/schemas/note', { schema: fields('text', 'more') })
      const { status, body } = await two.call('POST', '/items/note', { text: 'a', more: 'b' })
      expect(status).toBe(201)
      const read = await one.call('GET', `/items/note/${body.data.id}?fields=text,more`)
      expect(read.body.data).toEqual({ text: 'a', more: 'b' })
    })

    it('answer alike while both write', async () => {
      const made = await Promise.all(
        Array.from({ length: 20 }, (_, i) => (i % 2 ? one : two).call('POST', '/items/note', { text: `${i}` })),
      )
      expect(made.map(({ status }) => status)).toEqual(made.map(() => 201))
      const list = (web: Web) => web.call('GET', '/items/note?sort=id&fields=id,text')
      const [here, there] = await Promise.all([list(one), list(two)])
      expect(here.body.totalCount).toBe(21)
      expect(there.text).toBe(here.text)
    })

    it('follow a revoked permission and an ended session', async () => {
      const role = (await one.call('POST', '/items/svc_Role', { name: 'member' })).body.data.id
      const account = { email: 'm@example.com', password: 'long enough', firstName: 'M', emailVerified: true }
      const user = (await one.call('POST', '/items/svc_User', account)).body.data.id
      await one.call('POST', '/items/svc_UserRole', { user_Id: user, role_Id: role })
      const grant = { role_Id: role, collection: 'note', action: 'read', fields: '*' }
      const permission = (await one.call('POST', '/permissions', grant)).body.id
      const { token } = (await two.call('POST', '/auth/login', account, null)).body
      const read = async (web: Web) => (await web.call('GET', '/items/note', undefined, token)).status
      for (const web of cluster.web) await waitFor(async () => (await read(web)) === 200)
      const revokedAt = performance.now()
      await one.call('DELETE', `/permissions/${permission}`)
      await waitFor(async () => (await read(two)) === 403)
      process.stdout.write(`${setUp}: revoked in ${Math.round(performance.now() - revokedAt)} ms\n`)
      expect(await read(one)).toBe(403)
      await two.call('POST', '/auth/logout', undefined, token)
      expect((await one.call('GET', '/auth/check', undefined, token)).status).toBe(401)
    })

    it('deliver to the sockets of both what either writes', async () => {
      const sockets = await Promise.all(cluster.web.map(({ address }) => connect(address, cluster.token)))
      for (const socket of sockets) await socket.subscribe('note')
      await one.call('POST', '/items/note', { text: 'by one' })
      await two.call('POST', '/items/note', { text: 'by two' })
      for (const socket of sockets) {
        await socket.frame(({ data }) => data.text === 'by two')
        expect(socket.frames.map(({ data }) => data.text).sort()).toEqual(['by one', 'by two'])
      }
      expect((await two.call('POST', '/auth/login', administrator, null)).status).toBe(200)
    })
  })

const fields = (...names: string[]) => ({
  fields: Object.fromEntries(names.map((name) => [name, { type: 'String' }])),
})
