import { beforeAll, describe, expect, it } from 'vitest'
import { hashSecret, newSecret, signToken } from '../../src/adapters/tokens.ts'
import { type Cluster, startCluster, type Web } from '../support/cluster.ts'
import { createDatabase } from '../support/postgres.ts'
import { administrator, testConfig } from '../support/prepare.ts'
import { waitFor } from '../support/wait.ts'

/**
 * Both processes answer for sessions from memory (ADR 25). Whatever happens to one of them while a session ends at the
 * other, its first answer to the old token after the answer to the logout is 401: nothing here waits before it asks.
 */

let cluster: Cluster
let one: Web
let two: Web
let databaseUrl: string

beforeAll(async () => {
  const database = await createDatabase()
  databaseUrl = database.url
  cluster = await startCluster({ database, web: 2 })
  ;[one, two] = cluster.web as [Web, Web]
})

/** Tokens of that many new sessions of the administrator, known to both processes. */
async function sessions(count: number): Promise<string[]> {
  const config = testConfig(databaseUrl)
  const [found] = await cluster.sql(
    `select u.id as "userId", ur."role_Id" as "roleId" from "svc_User" u join "svc_UserRole" ur on ur."user_Id" = u.id where email = $1`,
    [administrator.email],
  )
  const secrets = Array.from({ length: count }, newSecret)
  await cluster.sql(
    `insert into "svc_Sessions" (token, "user_Id", "role_Id", "expiresAt", type)
     select token, $1, $2, now() + interval '1 hour', 'default' from unnest($3::text[]) token`,
    [found.userId, found.roleId, secrets.map(hashSecret)],
  )
  const tokens = secrets.map((sessionToken) =>
    signToken(config, { ...found, tenantId: undefined, sessionToken }, new Date()),
  )
  for (const token of tokens) for (const web of cluster.web) expect((await check(web, token)).status).toBe(200)
  return tokens
}

const check = (web: Web, token: string) => web.call('GET', '/auth/check', undefined, token)
const logout = (web: Web, token: string) => web.call('POST', '/auth/logout', undefined, token)
const cutNotifications = () =>
  cluster.sql(
    `select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'daybook listen' and datname = current_database()`,
  )

async function timed<T>(what: string, work: () => Promise<T>): Promise<T> {
  const startedAt = performance.now()
  const result = await work()
  process.stdout.write(`${what}: ${(performance.now() - startedAt).toFixed(1)} ms\n`)
  return result
}

/** Ends each at one of the two, in turns, and asks the other one; the answers. */
async function endInTurns(tokens: readonly string[], meanwhile = async () => {}): Promise<number[]> {
  const answers: number[] = []
  for (const [i, token] of tokens.entries()) {
    const [ending, asked] = i % 2 === 0 ? [one, two] : [two, one]
    await meanwhile()
    expect((await logout(ending, token)).status).toBe(200)
    answers.push((await check(asked, token)).status)
  }
  return answers
}

const refused = (count: number) => Array.from({ length: count }, () => 401)

describe('a session that ends at one process', () => {
  it('is refused by the other one, a hundred times', async () => {
    const tokens = await sessions(100)
    expect(await timed('100 logouts and checks', () => endInTurns(tokens))).toEqual(refused(100))
  })

  it('is refused while other callers keep both busy', async () => {
    const tokens = await sessions(20)
    let done = false
    const [busy] = await sessions(1)
    const load = Promise.all(
      cluster.web
        .flatMap((web) => [web, web, web])
        .map(async (web) => {
          while (!done) await check(web, busy!)
        }),
    )
    const answers = await endInTurns(tokens).finally(() => {
      done = true
    })
    await load
    expect(answers).toEqual(refused(20))
  })

  it('is refused while the notification connections are cut', async () => {
    const tokens = await sessions(6)
    expect(await endInTurns(tokens, async () => void (await cutNotifications()))).toEqual(refused(6))
  })
})

describe('a process that is stopped while a session ends', () => {
  it('refuses it with its first answer when it goes on', async () => {
    const tokens = await sessions(3)
    for (const token of tokens) {
      two.freeze()
      expect((await timed('logout beside a stopped process', () => logout(one, token))).status).toBe(200)
      const asked = check(two, token)
      two.thaw()
      expect((await asked).status).toBe(401)
      await waitFor(async () => (await check(two, cluster.token)).status === 200)
    }
  })

  it('and stays so delays no more logouts', async () => {
    const tokens = await sessions(2)
    two.freeze()
    await logout(one, tokens[0]!)
    await waitFor(async () => {
      const [{ old }] = await cluster.sql(
        `select count(*) filter (where "seenAt" < clock_timestamp() - interval '6 seconds') as old from "svc_Lease"`,
      )
      return Number(old) > 0
    })
    await timed('logout beside a process that was stopped long ago', () => logout(one, tokens[1]!))
    const asked = tokens.map((token) => check(two, token))
    two.thaw()
    expect((await Promise.all(asked)).map(({ status }) => status)).toEqual(refused(2))
  })
})

describe('a process that is killed after the commit, before it could answer', () => {
  it('leaves an ended session that the other one refuses', async () => {
    let token: string
    let isAnswered: boolean
    // The answer waits a second for the frozen one's lease; what takes longer to notice the commit has come too late.
    do {
      token = (await sessions(1))[0]!
      two.freeze()
      const answered = logout(one, token).then(
        () => true,
        () => false,
      )
      await waitFor(() => isGone(token))
      await one.kill('SIGKILL')
      two.thaw()
      isAnswered = await answered
      await waitFor(async () => (await check(two, token)).status === 401)
      await one.restart()
      expect((await check(one, token)).status).toBe(401)
    } while (isAnswered)
  })

  async function isGone(token: string): Promise<boolean> {
    const { sessionToken } = JSON.parse(Buffer.from(token.split('.')[1]!, 'base64url').toString())
    return (await cluster.sql(`select from "svc_Sessions" where token = $1`, [hashSecret(sessionToken)])).length === 0
  }
})
