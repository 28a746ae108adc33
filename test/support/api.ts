import pg from 'pg'
import pino, { type Logger } from 'pino'
import { afterAll } from 'vitest'
import { buildServer } from '../../src/api/server.ts'
import { loadExtensions } from '../../src/extensions/extensions.ts'
import type { App } from '../../src/http/http.ts'
import { openRuntime, type Runtime } from '../../src/process/runtime.ts'
import './declared-answers.ts'
import { checkDescribedAnswers } from './described-answers.ts'
import { createDatabase, type TestDatabase } from './postgres.ts'
import { administrator, testConfig, testEnv } from './prepare.ts'
import { settled } from './settled.ts'

export type Answer = { status: number; body: any; text: string; headers: Record<string, unknown> }
export type Call = (method: string, path: string, body?: unknown, headers?: Record<string, string>) => Promise<Answer>

export type LogRow = {
  type: string
  entity: string
  entityId: string | null
  action: string
  changes: any
  userId: string | null
}

export type Api = {
  readonly database: TestDatabase
  readonly runtime: Runtime
  readonly app: App
  /** Without a token. */
  readonly anonymous: Call
  readonly admin: Call
  /** With a token. */
  as(token: string): Call
  /** Creates a user with a role of its own and signs in; `permissions` are rows without role_Id. */
  user(
    permissions?: readonly object[],
  ): Promise<{ call: Call; id: string; roleId: string; email: string; token: string }>
  /** The log's rows, oldest first, from the given position on. */
  log(after?: bigint): Promise<LogRow[]>
  position(): Promise<bigint>
  /** Jobs of a queue that are not finished. */
  jobs(queue: string): Promise<{ data: any }[]>
  /** See `settled.ts`. */
  settled(): Promise<void>
  /** A superuser's statement, as from psql; what it notifies has arrived when it resolves. */
  sql(text: string, values?: unknown[]): Promise<any[]>
}

const closers: (() => Promise<void>)[] = []

// Registered after postgres.ts's own, and hooks run in reverse: connections close before their database is dropped.
afterAll(async () => {
  await Promise.all(closers.map((close) => close()))
})

/** The web process in this process, on a database of its own; everything is closed after the file. */
export async function startApi(
  env: Record<string, string> = {},
  database?: TestDatabase,
  log: Logger = pino({ level: process.env.TEST_LOG_LEVEL ?? 'fatal' }),
): Promise<Api> {
  const own = database ?? (await createDatabase())
  const config = testConfig(own.url, env)
  const runtime = await openRuntime({
    config,
    log,
    name: 'web',
    worker: false,
    env: { ...testEnv(own.url), ...env },
  })
  const app = await buildServer(runtime, await loadExtensions(runtime))
  checkDescribedAnswers(app, runtime)
  await app.ready()
  const client = new pg.Pool({ connectionString: own.url, max: 2 })
  // A server that a test stops cuts the line; the next statement tells.
  client.on('error', () => undefined)
  closers.push(async () => {
    await app.close()
    await runtime.close()
    await client.end()
  })
  const sql = async (text: string, values: unknown[] = []) => {
    const { rows } = await client.query(text, values)
    // Answered when this process has handled what the statement notified.
    await runtime.listener.notify(runtime.listener.id, 'nothing')
    return rows
  }
  const as = (token?: string): Call => call(app, token)
  const anonymous = as()
  const login = await anonymous('POST', '/auth/login', administrator)
  if (login.status !== 200) throw new Error(`the administrator cannot sign in: ${login.text}`)
  const admin = as(login.body.token)
  let users = 0
  return {
    database: own,
    runtime,
    app,
    anonymous,
    admin,
    as,
    sql,
    user: async (permissions = []) => {
      users += 1
      const email = `user${users}@example.com`
      const password = 'password of a user'
      const make = async (path: string, row: object) => {
        const { status, body, text } = await admin('POST', path, row)
        if (status !== 201) throw new Error(`no row by ${path}: ${text}`)
        return body
      }
      const role = await make('/items/svc_Role', { name: `role${users}` })
      const roleId = role.data.id
      for (const permission of permissions) await make('/permissions', { role_Id: roleId, ...permission })
      const account = { firstName: 'U', lastName: `${users}`, email, password, emailVerified: true }
      const created = await make('/items/svc_User', account)
      const id = created.data.id
      await make('/items/svc_UserRole', { user_Id: id, role_Id: roleId })
      const { status, body, text } = await anonymous('POST', '/auth/login', { email, password })
      if (status !== 200) throw new Error(`the user cannot sign in: ${text}`)
      return { call: as(body.token), id, roleId, email, token: body.token }
    },
    log: (after = 0n) =>
      sql(
        'select type, entity, "entityId", action, changes, "userId" from "svc_AuditLog" where position > $1 order by position',
        [String(after)],
      ),
    position: async () => BigInt((await sql('select coalesce(max(position), 0) as p from "svc_AuditLog"'))[0].p),
    settled: () => settled(client),
    jobs: (queue) =>
      sql(`select data - 'cause' as data from pgboss.job where name = $1 and state in ('created', 'retry', 'active')`, [
        queue,
      ]),
  }
}

/** Requests to a web process in this process; without a token, anonymous. */
export function call(app: App, token: string | undefined): Call {
  return async (method, path, body, headers = {}) => {
    const response = await app.inject({
      method: method as 'GET',
      url: path,
      headers: { ...(token !== undefined && { authorization: `Bearer ${token}` }), ...headers },
      ...(body !== undefined && { payload: body as object }),
    })
    const text = response.body
    const isJson = String(response.headers['content-type'] ?? '').includes('/json')
    return {
      status: response.statusCode,
      body: isJson && text !== '' ? JSON.parse(text) : undefined,
      text,
      headers: response.headers,
    }
  }
}
