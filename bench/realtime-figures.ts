import pg from 'pg'
import { type Prepared, startDaybook } from './daybook.ts'
import type { Figure } from './figures.ts'
import type { BenchOptions } from './options.ts'
import { startServer } from './processes.ts'
import {
  commitToSocket,
  exampleMessage,
  type FanOut,
  fanOut,
  feedSource,
  idleConnections,
  plainFanOut,
  prepareRealtime,
  type RowRules,
  rowRules,
  type Target,
} from './realtime.ts'
import { quantile } from './rounds.ts'

type Sizes = {
  readonly idle: number
  /** Changes that come alone, whose way is timed. */
  readonly alone: number
  readonly rules: RowRules
  readonly fanOut: FanOut
}

const whole: Sizes = {
  idle: 5_000,
  alone: 300,
  rules: { subscribers: 500, users: 25, perSecond: 400, seconds: 10 },
  fanOut: { subscribers: 500, changes: 200 },
}
const quick: Sizes = {
  idle: 500,
  alone: 50,
  rules: { subscribers: 100, users: 5, perSecond: 400, seconds: 1 },
  fanOut: { subscribers: 100, changes: 50 },
}

/** With `--large`: what one web process is meant to hold. */
const large: Sizes = {
  ...whole,
  idle: 10_000,
  rules: { subscribers: 5_000, users: 500, perSecond: 1_000, seconds: 10 },
}

/** W10: the realtime channel of a web process of its own; the ceiling of its fan-out is a plain socket.io server. */
export async function measureRealtime(
  prepared: Prepared,
  options: Pick<BenchOptions, 'quick' | 'large'>,
): Promise<readonly Figure[]> {
  await using cleanup = new AsyncDisposableStack()
  const target = await openTarget(prepared, cleanup)
  await prepareRealtime(target)
  const sizes = options.large ? large : options.quick ? quick : whole
  return [
    ...(await idle(target, sizes.idle)),
    ...(await alone(target, 1, sizes.alone)),
    ...(await alone(target, 50, sizes.alone)),
    ...(await ruled(target, sizes.rules)),
    await spread(target, sizes.fanOut, cleanup),
  ]
}

const figure = (title: string, unit: string, daybook: number): Figure => ({ id: 'W10', title, unit, daybook })

async function idle(target: Target, count: number): Promise<readonly Figure[]> {
  const { each, all } = await idleConnections(target, count)
  const connections = `${count.toLocaleString('en')} idle connections`
  return [
    figure(`resident memory of each of ${connections}`, 'kB', each / 1024),
    figure(`resident memory of a web process with ${connections}`, 'MB', all / 1024 ** 2),
  ]
}

async function alone(target: Target, subscribers: number, changes: number): Promise<readonly Figure[]> {
  const { whole, afterCommit } = await commitToSocket(target, subscribers, changes)
  const sockets = subscribers === 1 ? 'a socket' : `the last of ${subscribers} sockets`
  const by = await feedSource(target)
  return [
    ...quantiles(`INSERT to ${sockets} by ${by}`, whole),
    ...quantiles(`commit to ${sockets} by ${by}`, afterCommit),
  ]
}

async function ruled(target: Target, sizes: RowRules): Promise<readonly Figure[]> {
  const { latencies, missing, perSecond, cores } = await rowRules(target, sizes)
  const title = `${sizes.subscribers} subscribers with row rules`
  return [
    figure(`${title}, changes written`, 'changes/s', perSecond),
    ...quantiles(`${title}, INSERT to socket`, latencies),
    figure(`${title}, changes that did not arrive`, 'changes', missing),
    figure(`${title}, processor time of the web process`, 'cores', cores),
  ]
}

async function spread(target: Target, sizes: FanOut, cleanup: AsyncDisposableStack): Promise<Figure> {
  const daybook = await fanOut(target, sizes)
  const message = await exampleMessage(target)
  const { url } = await startServer({ script: 'bench/realtime-plain.ts', env: {} }, cleanup)
  const ceiling = await plainFanOut(url, message, sizes)
  return { ...figure(`fan-out to ${sizes.subscribers} subscribers`, 'messages/s', daybook), ceiling }
}

const quantiles = (title: string, ms: Float64Array): readonly Figure[] =>
  [50, 99].map((percent) => figure(`${title}, p${percent}`, 'ms', quantile(ms, percent / 100)))

async function openTarget(prepared: Prepared, cleanup: AsyncDisposableStack): Promise<Target> {
  const variables = {
    SOCKET_ENABLED: 'true',
    REALTIME_ROW_LEVEL_SCOPING: 'true',
    SOCKET_LIMIT_PER_USER: '100000',
    SOCKET_LIMIT_PER_ADDRESS: '0',
    SOCKET_CONNECT_LIMIT: '0',
  }
  const server = await startDaybook(prepared, variables, cleanup)
  const sql = new pg.Pool({ connectionString: prepared.env.DATABASE_URL, max: 8 })
  cleanup.defer(() => sql.end())
  return { server, sql, admin: prepared.accounts.admin }
}
