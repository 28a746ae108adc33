import { once } from 'node:events'
import { Agent, type IncomingMessage, request } from 'node:http'
import { setTimeout as delay } from 'node:timers/promises'
import {
  type Asked,
  type ClientLoad,
  type ClientLoadResult,
  type Kind,
  kinds,
  reportRequest,
} from './overload-clients.ts'

/*
 * Clients of the overload, in a process of their own: one that measures must not stand still while another one asks a
 * thousand times, or while the test collects its garbage.
 */

process.on('message', async (load: ClientLoad) => process.send!(await ask(load)))
process.once('disconnect', () => process.exit())

async function ask(load: ClientLoad): Promise<ClientLoadResult> {
  const end = performance.now() + load.seconds * 1000
  const seen: Record<Kind, Asked[]> = { light: [], health: [], heavy: [], logins: [] }
  const before = process.cpuUsage()
  const note = async (kind: Kind, answer: Promise<Asked>) => void seen[kind].push(await answer)
  const again = async (pauseMs: number, once: () => Promise<void>) => {
    while (performance.now() < end) {
      await once()
      if (pauseMs > 0) await delay(pauseMs)
    }
  }
  const lines = (count: number, pauseMs: number, once: () => Promise<void>) =>
    Array.from({ length: count }, () => again(pauseMs, once))
  const { ids } = load
  await Promise.all([
    ...lines(load.light, 20, () =>
      note('light', answer(load, 'light', 'GET', `/items/sale/${ids[seen.light.length % ids.length]}`)),
    ),
    ...lines(load.health, 100, () => note('health', answer(load, 'health', 'GET', '/health'))),
    ...lines(load.heavy, 0, () =>
      note('heavy', answer(load, 'heavy', 'POST', '/reports/sale', reportRequest(seen.heavy.length))),
    ),
    flood(end, load.loginsPerSecond, (n) => note('logins', answer(load, 'logins', 'POST', '/auth/login', wrong(n)))),
  ])
  const { user, system } = process.cpuUsage(before)
  return { seen, cpuSeconds: (user + system) / 1e6 }
}

/** So many a second, whether they are answered or not. */
async function flood(end: number, perSecond: number, login: (n: number) => Promise<void>): Promise<void> {
  const under: Promise<void>[] = []
  const began = performance.now()
  for (let sent = 0; perSecond > 0 && performance.now() < end; await delay(10))
    for (const due = ((performance.now() - began) / 1000) * perSecond; sent < due; sent += 1) under.push(login(sent))
  await Promise.all(under)
}

const wrong = (n: number) => ({ email: `nobody${n}@example.com`, password: 'not the right one' })

/** Connections are kept for the next request of the same kind, as clients keep theirs. */
const agents = Object.fromEntries(kinds.map((kind) => [kind, new Agent({ keepAlive: true })]))

const longestAnswerMs = 40_000

async function answer(load: ClientLoad, kind: Kind, method: string, path: string, body?: object): Promise<Asked> {
  const began = performance.now()
  const text = body === undefined ? undefined : JSON.stringify(body)
  const headers = {
    ...((kind === 'light' || kind === 'heavy') && { authorization: `Bearer ${load.token}` }),
    ...(text !== undefined && { 'content-type': 'application/json', 'content-length': Buffer.byteLength(text) }),
  }
  const options = { method, headers, agent: agents[kind]!, signal: AbortSignal.timeout(longestAnswerMs) }
  try {
    const asking = request(`${load.address}${path}`, options)
    asking.end(text)
    const [response] = (await once(asking, 'response')) as [IncomingMessage]
    const received = await textOf(response)
    const ms = performance.now() - began
    const { statusCode: status = 0 } = response
    const wrong = isAllowed[kind](response, received) ? {} : { wrong: `${status} ${received.slice(0, 200)}` }
    return { ms, status, ...wrong }
  } catch (error) {
    return { ms: performance.now() - began, status: 0, wrong: String(error) }
  }
}

async function textOf(response: IncomingMessage): Promise<string> {
  let text = ''
  response.setEncoding('utf8')
  for await (const piece of response) text += piece
  return text
}

function isRefusal({ statusCode, headers }: IncomingMessage, text: string): boolean {
  if (statusCode !== 503 || !(Number(headers['retry-after']) > 0)) return false
  const { code, error } = JSON.parse(text)
  return (code ?? error.code) === 'OVERLOADED'
}

const isAllowed: Readonly<Record<Kind, (response: IncomingMessage, text: string) => boolean>> = {
  light: ({ statusCode }) => statusCode === 200,
  health: ({ statusCode }) => statusCode === 200,
  heavy: (response, text) => response.statusCode === 200 || isRefusal(response, text),
  logins: (response, text) => response.statusCode === 400 || isRefusal(response, text),
}
