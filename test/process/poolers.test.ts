import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, it, onTestFinished } from 'vitest'
import { type Answer, type Cluster, startCluster, type Web } from '../support/cluster.ts'
import { chain, node } from '../support/flows.ts'
import { describeWithPgbouncer, startPgbouncer, type TestPgbouncer } from '../support/pgbouncer.ts'
import { createDatabase } from '../support/postgres.ts'
import { administrator, testEnv } from '../support/prepare.ts'
import { startProcess } from '../support/processes.ts'
import { startReceiver } from '../support/receiver.ts'
import { withClient } from '../support/server.ts'
import { connect } from '../support/socket.ts'
import { untilAdmitted, waitFor } from '../support/wait.ts'

const collections = Array.from({ length: 8 }, (_, i) => `thing${i}`)
const rowsOfEach = 5

/**
 * What two web processes and the workers do through few connections of a pooler: with one of them whatever would hold a
 * connection while it waits for another one would wait for ever.
 */
for (const size of [4, 1])
  describeWithPgbouncer(`two web processes behind PgBouncer with ${size} connections`, () => {
    let cluster: Cluster
    let env: Record<string, string>
    let pooler: TestPgbouncer
    let one: Web
    let two: Web

    beforeAll(async () => {
      const database = await createDatabase()
      // So that settings which do not arrive, and those that stay, are seen.
      await withClient(database.url, (client) =>
        client.query(`alter database ${database.name} set timezone = 'Asia/Tokyo'`),
      )
      pooler = await startPgbouncer(database.url, { default_pool_size: size })
      env = {
        ...{ DATABASE_URL: pooler.url, DATABASE_DIRECT_URL: database.url, SSRF_ALLOW_PRIVATE_URL_FETCH: 'true' },
        ...{ LOG_SEAL_KEY: 'a key of the seals, for tests only' },
      }
      const workers = ['mail', 'webhooks', 'workflows', 'log-cleanup']
      cluster = await startCluster({ database, web: 2, workers, env })
      ;[one, two] = cluster.web as [Web, Web]
      for (const name of collections)
        expect((await one.call('POST', '/schemas', { collectionName: name, schema: schemaOf(name) })).status).toBe(201)
      for (const name of collections) {
        const rows = Array.from({ length: rowsOfEach }, (_, n) => ({ n, [`of_${name}`]: `${name} ${n}` }))
        expect((await two.call('POST', `/items/${name}/bulk`, rows)).status).toBe(201)
      }
    })

    afterAll(() => Promise.all([...cluster.web, ...cluster.workers].map((member) => member.kill())))

    it('say so when they are asked whether they are ready', async () => {
      for (const web of cluster.web) {
        const { status, body } = await web.call('GET', '/ready', undefined, null)
        expect(status).toBe(200)
        expect(body.database).toEqual({ ok: true, pooler: true, preparedStatements: false })
        await waitFor(async () => (await web.call('GET', '/ready', undefined, null)).body.notifications.live)
      }
    })

    it('answer a storm of reads, writes, sign-ins and changes of rights, each with what was asked for', async () => {
      const role = (await one.call('POST', '/items/svc_Role', { name: 'reader' })).body.data.id
      const account = { email: 'reader@example.com', password: 'long enough', firstName: 'R', emailVerified: true }
      const user = (await one.call('POST', '/items/svc_User', account)).body.data.id
      await one.call('POST', '/items/svc_UserRole', { user_Id: user, role_Id: role })
      const { token } = (await one.call('POST', '/auth/login', account, null)).body
      const unexpected: string[] = []
      const expectOf = ({ status, text }: Answer, right: boolean, what: string) => {
        if (!right) unexpected.push(`${what}: ${status} ${text.slice(0, 200)}`)
      }
      const web = (i: number) => cluster.web[i % 2]!
      const name = (i: number) => collections[i % collections.length]!
      let written = 0

      const list = async (i: number) => {
        const answer = await web(i).call('GET', `/items/${name(i)}?sort=n&limit=${rowsOfEach}`)
        const texts = answer.body?.data?.map((row: Record<string, unknown>) => row[`of_${name(i)}`])
        expectOf(
          answer,
          String(texts) === String(Array.from({ length: rowsOfEach }, (_, n) => `${name(i)} ${n}`)),
          'list',
        )
      }
      const key = async (i: number) => {
        const answer = await web(i).call('GET', `/items/${name(i)}/${i % rowsOfEach}?fields=of_${name(i)}`)
        expectOf(answer, answer.text === `{"data":{"of_${name(i)}":"${name(i)} ${i % rowsOfEach}"}}`, 'by key')
      }
      const whole = async (i: number) => {
        // With four connections there is one place for exports.
        const answer = await untilAdmitted(() => web(i).call('GET', `/items/${name(i)}/export?format=json&fields=n`))
        expectOf(answer, answer.status === 200, 'export')
      }
      const write = async (i: number) => {
        const made = await web(i).call('POST', `/items/${name(i)}`, { n: 1000 + i, [`of_${name(i)}`]: `later ${i}` })
        expectOf(made, made.status === 201, 'insert')
        written += 1
        const changed = await web(i + 1).call('PATCH', `/items/${name(i)}/${made.body?.data?.id}`, {
          [`of_${name(i)}`]: `changed ${i}`,
        })
        expectOf(changed, changed.status === 200, 'update')
      }
      const signIn = async (i: number) => {
        const answer = await web(i).call('POST', '/auth/login', i % 3 ? account : administrator, null)
        expectOf(answer, answer.status === 200, 'sign-in')
        const check = await web(i + 1).call('GET', '/auth/check', undefined, answer.body?.token)
        expectOf(check, check.status === 200, 'check')
      }
      const grant = async (i: number) => {
        const wanted = { role_Id: role, collection: name(i), action: 'read', fields: '*' }
        const given = await web(i).call('POST', '/permissions', wanted)
        expectOf(given, given.status === 201 || given.status === 409, 'grant')
        const read = await web(i + 1).call('GET', `/items/${name(i)}?limit=1&sort=n`, undefined, token)
        expectOf(
          read,
          read.status === 403 || read.body?.data?.[0]?.[`of_${name(i)}`] === `${name(i)} 0`,
          'read by somebody else',
        )
        if (given.status === 201) {
          const taken = await web(i + 1).call('DELETE', `/permissions/${given.body.id}`)
          expectOf(taken, taken.status === 200 || taken.status === 204, 'revoke')
        }
      }
      const kinds = [list, key, list, key, write, whole, list, key, signIn, grant]
      let next = 0
      await Promise.all(
        Array.from({ length: 24 }, async () => {
          while (next < 300) {
            const i = next
            next += 1
            await kinds[i % kinds.length]!(Math.floor(i / kinds.length) + i)
          }
        }),
      )
      expect(unexpected).toEqual([])
      let rows = 0
      for (const collection of collections) {
        const [{ n }] = await cluster.sql(`select count(*)::int as n from "${collection}"`)
        const [event] = await cluster.sql(
          `select count(*)::int as n from "svc_AuditLog" where entity = $1 and action = 'create' and type = 'data'`,
          [collection],
        )
        expect(event.n).toBe(n)
        rows += n
      }
      expect(rows).toBe(collections.length * rowsOfEach + written)
      const [pool] = (await pooler.console('show pools')).filter(({ database }) => database !== 'pgbouncer')
      expect(Number(pool.sv_active) + Number(pool.sv_idle) + Number(pool.sv_used)).toBeLessThanOrEqual(size)
    })

    const ok = async (asked: Promise<Answer>): Promise<Answer> => {
      const answer = await asked
      expect(answer.status, answer.text).toBeLessThan(300)
      return answer
    }
    const command = async (...args: string[]) => {
      const ran = startProcess('src/cli/main.ts', args, { ...testEnv(pooler.url), ...env })
      const { code } = await ran.exited
      return { code, text: ran.lines.map(({ text }) => text).join('\n') }
    }

    it('have webhooks and workflows follow what either writes', async () => {
      const receiver = await startReceiver()
      onTestFinished(() => receiver.close())
      await ok(one.call('POST', '/webhooks', { name: 'all', url: receiver.url, collections: ['thing1'] }))
      const copying = node('copy', 'service', {
        ...{ operation: 'create', collection: 'thing2' },
        data: { n: '{{trigger.n}}', of_thing2: 'copied' },
      })
      await ok(
        two.call('POST', '/workflows', { id: 'copy', name: 'copy', status: 'active', flow_data: chain(copying) }),
      )
      const numbers = Array.from({ length: 12 }, (_, i) => 2000 + i)
      await Promise.all(
        numbers.flatMap((n) => [
          ok(cluster.web[n % 2]!.call('POST', '/items/thing1', { n, of_thing1: 'told' })),
          ok(cluster.web[n % 2]!.call('POST', '/workflows/copy/execute', { n })),
        ]),
      )
      await waitFor(() => receiver.accepted.length === numbers.length)
      expect(receiver.accepted.map(({ body }) => body.data.n).sort()).toEqual(numbers)
      const copies = `select n from thing2 where of_thing2 = 'copied' order by n`
      await waitFor(async () => (await cluster.sql(copies)).length === numbers.length)
      expect((await cluster.sql(copies)).map(({ n }) => n)).toEqual(numbers)
    })

    it('keep files, undo requests, repeat a key, answer repeats as things are, and seal the log', async () => {
      const form = new FormData()
      form.append('file', new Blob(['what is in it']), 'a.txt')
      const headers = { authorization: `Bearer ${cluster.token}` }
      const uploaded = await fetch(`${one.address}/files`, { method: 'POST', headers, body: form })
      const { data: id } = (await uploaded.json()) as { data: string }
      const { text } = await ok(two.call('GET', `/assets/${id}`))
      expect(text).toBe('what is in it')

      const deleted = await ok(one.call('DELETE', '/items/thing3/0'))
      expect((await two.call('GET', '/items/thing3/0')).status).toBe(403)
      await ok(two.call('POST', '/log/undo', { requestId: deleted.headers.get('x-request-id') }))
      expect((await ok(one.call('GET', '/items/thing3/0'))).body.data.of_thing3).toBe('thing3 0')

      const total = { aggregate: { sum: { function: 'sum', field: 'n' } } }
      const sum = async (web: Web) =>
        Number((await untilAdmitted(() => web.call('POST', '/reports/thing4', total))).body.data[0].sum)
      const [{ sum: before }] = await cluster.sql('select sum(n)::int as sum from thing4')
      for (let i = 1; i <= 5; i += 1) {
        await ok(cluster.web[i % 2]!.call('POST', '/items/thing4', { n: 3000 + i, of_thing4: 'more' }))
        for (const web of [one, two, one, two]) expect(await sum(web)).toBe(before + i * 3000 + (i * (i + 1)) / 2)
      }
      const repeated = (web: Web) =>
        fetch(`${web.address}/items/thing5`, {
          method: 'POST',
          headers: { ...headers, 'content-type': 'application/json', 'idempotency-key': 'once' },
          body: '{"n": 4000}',
        })
      const answers = [await repeated(one), await repeated(two)]
      expect(answers.map(({ status }) => status)).toEqual([201, 201])
      expect(await cluster.sql('select n from thing5 where n = 4000')).toHaveLength(1)

      await waitFor(async () => {
        const { code, text: said } = await command('log', 'verify', '--seals', '--json')
        return code === 0 && JSON.parse(said).unsealed === 0
      })
      expect(await command('log', 'verify')).toMatchObject({ code: 0 })
    })

    it('are backed up and restored', async () => {
      const dir = await mkdtemp(join(tmpdir(), 'daybook-pooled-'))
      onTestFinished(() => rm(dir, { recursive: true }))
      const { code, text } = await command('backup', join(dir, 'one.daybook'), '--verify-by-restore')
      expect(text).toContain('written and read again')
      expect(code).toBe(0)
    })

    it('leave nothing to the sessions that they have used', async () => {
      const look = () =>
        withClient(pooler.url, async (client) => {
          await client.query('begin')
          const { rows } = await client.query(`select current_setting('timezone') as zone,
            current_setting('transaction_read_only') as only, coalesce(current_setting('svc.actor', true), '') as actor,
            (select count(*)::int from pg_prepared_statements where name not like 'svc_look%') as prepared`)
          return rows[0]
        })
      const sessions = await Promise.all(Array.from({ length: size }, look))
      expect(sessions).toEqual(sessions.map(() => ({ zone: 'Asia/Tokyo', only: 'off', actor: '', prepared: 0 })))
    })

    it('deliver what either writes', async () => {
      const sockets = await Promise.all(cluster.web.map(({ address }) => connect(address, cluster.token)))
      for (const socket of sockets) await socket.subscribe('thing0')
      await one.call('POST', '/items/thing0', { n: 901, of_thing0: 'by one' })
      await two.call('POST', '/items/thing0', { n: 902, of_thing0: 'by two' })
      for (const socket of sockets) {
        await socket.frame(({ data }) => data.of_thing0 === 'by two')
        expect(socket.frames.map(({ data }) => data.of_thing0).sort()).toEqual(['by one', 'by two'])
      }
    })
  })

const schemaOf = (name: string) => ({
  fields: { n: { type: 'Integer', primaryKey: true }, [`of_${name}`]: { type: 'String' } },
})
