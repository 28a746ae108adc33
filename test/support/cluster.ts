import pg from 'pg'
import { afterAll } from 'vitest'
import { freePort } from '../../src/db/embedded/embedded.ts'
import { createDatabase } from './postgres.ts'
import { administrator, testEnv } from './prepare.ts'
import { type Exit, type OutputLine, startProcess, type TestProcess } from './processes.ts'

/** A process of ours that can be ended, however roughly, and started again. */
export type Member = {
  readonly pid: number
  /** What it has written in all its lives. */
  readonly lines: readonly OutputLine[]
  /** Sends a signal (default SIGTERM) and waits for the end. */
  kill(signal?: NodeJS.Signals): Promise<Exit>
  /** Freezes it between two instructions; only `kill('SIGKILL')` ends it then. */
  freeze(): void
  /** Lets a frozen one go on. */
  thaw(): void
  /** Starts it again after its end, with the same variables. */
  restart(): Promise<void>
  waitForLine: TestProcess['waitForLine']
  /** Its end, which it comes to by itself. */
  ended(): Promise<Exit>
}

/** A web process keeps its port when it is started again, as behind a load balancer. */
export type Web = Member & {
  readonly address: string
  /** Requests with this token, of the administrator's session by default; null for none. */
  call(method: string, path: string, body?: unknown, token?: string | null): Promise<Answer>
}

export type Answer = { readonly status: number; readonly text: string; readonly body: any; readonly headers: Headers }

export type ClusterOptions = {
  /** Default: a database of its own. */
  database?: { readonly url: string }
  /** Variables of all processes, over those of `testEnv`. */
  env?: Readonly<Record<string, string>>
  /** How many web processes; default 1. */
  web?: number
  /** Names of worker processes, e.g. `['mail', 'mail']`; default none. */
  workers?: readonly string[]
}

export type Cluster = {
  readonly web: readonly Web[]
  readonly workers: readonly Member[]
  /** Of the administrator's session. */
  readonly token: string
  /** A statement as from psql, over a connection of its own. */
  sql(text: string, values?: unknown[]): Promise<any[]>
  /** A further such connection, for transactions and locks. */
  connect(): Promise<pg.Client>
}

/** Starts processes on one database and signs in; what still runs after the test file is ended. */
export async function startCluster(options: ClusterOptions = {}): Promise<Cluster> {
  const { env = {}, web: webs = 1, workers: names = [] } = options
  const { url } = options.database ?? (await createDatabase())
  const variables = { ...testEnv(url), ...unlimited, ...env }
  const [web, workers] = await Promise.all([
    Promise.all(Array.from({ length: webs }, () => startWeb(variables, () => token))),
    Promise.all(names.map((name) => startMember('src/workers/main.ts', [name], variables))),
  ])
  const token: string = webs === 0 ? '' : await signIn(web[0]!)
  const connect = () => openClient(url)
  let client: pg.Client | undefined
  const connectSql = async () => {
    const opened = await connect()
    // By a server that a test has crashed.
    opened.once('end', () => {
      client = undefined
    })
    return opened
  }
  const sql = async (text: string, values: unknown[] = []) => {
    client ??= await connectSql()
    return (await client.query(text, values)).rows
  }
  return { web, workers, token, sql, connect }
}

const longestAnswerMs = 40_000

/** Requests to an address with a token; rejects when the line breaks, or time is over, before the answer is complete. */
export async function request(
  address: string,
  token: string | null,
  method: string,
  path: string,
  body?: unknown,
): Promise<Answer> {
  const response = await fetch(`${address}${path}`, {
    method,
    headers: {
      ...(token !== null && { authorization: `Bearer ${token}` }),
      ...(body !== undefined && { 'content-type': 'application/json' }),
    },
    body: body === undefined ? null : typeof body === 'string' ? body : JSON.stringify(body),
    signal: AbortSignal.timeout(longestAnswerMs),
  })
  const text = await response.text()
  const isJson = response.headers.get('content-type')?.includes('json') && text !== ''
  return { status: response.status, text, body: isJson ? JSON.parse(text) : undefined, headers: response.headers }
}

/** So that several processes fit on one server, and no limit but those under test is met. */
const unlimited = { DATABASE_POOL_MAX: '10', RATE_LIMIT: '1000000', SOCKET_ENABLED: 'true' }

async function startWeb(env: Readonly<Record<string, string>>, token: () => string): Promise<Web> {
  const { port, member } = await startOnFreePort(env)
  const address = `http://127.0.0.1:${port}`
  return Object.defineProperties(
    {
      address,
      call: (method: string, path: string, body?: unknown, given: string | null = token()) =>
        request(address, given, method, path, body),
    },
    Object.getOwnPropertyDescriptors(member),
  ) as Web
}

/** Another test may have taken the port by the time that the process asks for it. */
async function startOnFreePort(env: Readonly<Record<string, string>>): Promise<{ port: string; member: Member }> {
  for (let tries = 1; ; tries += 1) {
    const port = String(await freePort())
    try {
      return { port, member: await startMember('src/api/main.ts', [], { ...env, PORT: port }) }
    } catch (error) {
      if (tries === 3 || !String(error).includes(`:${port} is taken by another program`)) throw error
    }
  }
}

async function startMember(
  script: string,
  args: readonly string[],
  env: Readonly<Record<string, string>>,
): Promise<Member> {
  const lives: TestProcess[] = []
  const life = () => lives.at(-1)!
  const restart = async () => {
    lives.push(startProcess(script, args, env))
    await life().waitForLine(isReady)
  }
  await restart()
  return {
    get pid() {
      return life().pid
    },
    get lines() {
      return lives.flatMap(({ lines }) => lines)
    },
    kill: async (signal) => {
      await life().kill(signal)
      return life().exited
    },
    freeze: () => void life().kill('SIGSTOP'),
    thaw: () => void life().kill('SIGCONT'),
    waitForLine: (predicate, options) => life().waitForLine(predicate, options),
    ended: () => life().exited,
    restart,
  }
}

function isReady({ msg }: OutputLine): boolean {
  return msg === 'ready'
}

async function signIn({ address }: Web): Promise<string> {
  const { body } = await request(address, null, 'POST', '/auth/login', administrator)
  return body.token
}

async function openClient(url: string): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: url, application_name: 'test client' })
  // A server that a test stops cuts the line; the next statement tells.
  client.on('error', () => undefined)
  await client.connect()
  clients.push(client)
  return client
}

const clients: pg.Client[] = []

// Hooks run in reverse: this one before the database is dropped, the processes are ended in between.
afterAll(() => Promise.all(clients.map((client) => client.end())))
