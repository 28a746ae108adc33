import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { chownSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { parseEnv } from 'node:util'
import { parse } from 'yaml'
import { freePort, startEmbedded } from '../src/db/embedded/embedded.ts'

/*
 * `node scripts/image-smoke.ts PROJECT ROOT`: starts the processes of an image, whose file system is mounted at ROOT, as the project's
 * compose.yaml says: its commands, its user, its variables, a root that cannot be written, setup first. PostgreSQL is the embedded one. Then it
 * signs in, writes, reads, has a mail sent and a file kept, and ends the processes, which must end by themselves.
 */

const [, , project, root] = process.argv as string[] as [string, string, string, string]
const answerMs = 60_000

type Service = {
  readonly build?: unknown
  readonly profiles?: readonly string[]
  readonly command: readonly string[]
  readonly user: string
  readonly read_only: boolean
  readonly environment: Readonly<Record<string, string | number>>
  readonly stop_grace_period: string
}

const env = parseEnv(readFileSync(join(project, '.env'), 'utf8')) as Record<string, string>
const placed = (text: string) =>
  text.replaceAll(/\$\{([A-Z0-9_]+)(?::-([^}]*))?\}/g, (_whole, name: string, fallback = '') => env[name] ?? fallback)
const compose = parse(placed(readFileSync(join(project, 'compose.yaml'), 'utf8')), { merge: true })
const services = Object.entries<Service>(compose.services).filter(([, { build }]) => build !== undefined)

const work = mkdtempSync('/var/tmp/daybook-smoke-')
const data = join(work, 'data')
mkdirSync(data)
const server = await startEmbedded({ dataDir: join(work, 'database'), log: { info: () => undefined, warn: say } })
const port = await freePort()
/** Those of workers follow METRICS_PORT, here above the port of the web process. */
const firstOfWorkers = await freePortsFrom(port + 1)

const running = new Map<string, ChildProcess>()
try {
  const setup = start('setup')
  const shown: string[] = []
  setup.stdout!.on('data', (chunk) => shown.push(String(chunk)))
  const [code] = await once(setup, 'close')
  check('setup ends well', code === 0)
  const password = /^Password +(\S+) /m.exec(shown.join(''))?.[1]
  check('setup shows the password', password !== undefined)
  for (const [name] of services.filter(([name]) => name !== 'setup')) running.set(name, start(name))
  for (const [name, { environment }] of services.filter(([name]) => name !== 'setup'))
    check(`${name} is ready`, await isReady(portOf(Number(environment.READY_PORT))))
  await use(`http://127.0.0.1:${port}`, password!)
  const ends = [...running].map(async ([name, child]) => {
    const ended = once(child, 'close')
    child.kill('SIGTERM')
    const limit = Number.parseInt(services.find(([one]) => one === name)![1].stop_grace_period, 10) * 1000
    const end = await Promise.race([ended, delay(limit, undefined, { ref: false })])
    check(`${name} ends by itself with 0`, Array.isArray(end) && end[0] === 0)
    running.delete(name)
  })
  await Promise.all(ends)
} finally {
  for (const child of running.values()) child.kill('SIGKILL')
  await server.stop()
  rmSync(work, { recursive: true })
}

/** In name spaces of its own: the root is mounted again for reading only, with what a container has besides. */
function start(name: string): ChildProcess {
  const { command, user, read_only, environment } = services.find(([one]) => one === name)![1]
  check(`${name} has a root that cannot be written`, read_only === true)
  const [uid] = user.split(':')
  chownSync(data, Number(uid), Number(user.split(':')[1]))
  const inside = `set -e
mount --make-rprivate /
mount --bind ${root} ${root}; mount -o remount,ro,bind ${root}
mount -t proc proc ${root}/proc; mount -t tmpfs tmpfs ${root}/tmp; chmod 1777 ${root}/tmp
mount --bind ${data} ${root}/data; mount --bind /dev ${root}/dev; mount --bind /etc/resolv.conf ${root}/etc/resolv.conf 2>/dev/null || true
exec chroot --userspec=${user} ${root} /bin/sh -c 'cd /app && (: > /app/probe) 2>/dev/null && exit 91; exec "$@"' sh "$@"`
  const variables = {
    ...env,
    ...Object.fromEntries(Object.entries(environment).map(([key, value]) => [key, String(value)])),
    DATABASE_URL: server.url,
    HOST: '127.0.0.1',
    PORT: String(port),
    METRICS_PORT: String(firstOfWorkers),
    PATH: '/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin',
  }
  const child = spawn('unshare', ['--mount', '/bin/sh', '-c', inside, 'sh', ...command], {
    env: variables,
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  if (name !== 'setup') child.stdout!.on('data', (chunk) => process.stderr.write(`${name}: ${chunk}`))
  return child
}

function portOf(ready: number): number {
  return ready === 8055 ? port : firstOfWorkers + ready - 9100
}

async function freePortsFrom(first: number): Promise<number> {
  for (let from = first; ; from += 1) {
    const taken = await Promise.all(
      Array.from({ length: 10 }, (_, i) =>
        fetch(`http://127.0.0.1:${from + i}`).then(
          () => true,
          () => false,
        ),
      ),
    )
    if (!taken.includes(true)) return from
  }
}

async function isReady(at: number): Promise<boolean> {
  for (const limit = Date.now() + answerMs; Date.now() < limit; await delay(200)) {
    const answer = await fetch(`http://127.0.0.1:${at}/ready`).catch(() => undefined)
    if (answer?.ok) return true
  }
  return false
}

async function use(url: string, password: string): Promise<void> {
  const ask = async (method: string, path: string, body?: object | FormData, token?: string) => {
    const isForm = body instanceof FormData
    const response = await fetch(`${url}${path}`, {
      method,
      headers: {
        ...(token !== undefined && { authorization: `Bearer ${token}` }),
        ...(body !== undefined && !isForm && { 'content-type': 'application/json' }),
      },
      body: body === undefined ? null : isForm ? body : JSON.stringify(body),
    })
    const text = await response.text()
    if (!response.ok) throw new Error(`${method} ${path} answered ${response.status}: ${text}`)
    return text.startsWith('{') ? JSON.parse(text) : text
  }
  const { token } = await ask('POST', '/auth/login', { email: env.ADMIN_EMAIL, password })
  check('the administrator signs in', typeof token === 'string')
  const fields = { code: { type: 'String', primaryKey: true }, name: { type: 'String' } }
  await ask('POST', '/schemas', { collectionName: 'country', schema: { fields } }, token)
  await ask('POST', '/items/country', { code: 'AQ', name: 'Antarctica' }, token)
  const { data } = await ask('GET', '/items/country', undefined, token)
  check('an item is written and read', data.length === 1 && data[0].name === 'Antarctica')
  check('an extension answers', (await ask('GET', '/hello', undefined, token)).hello === env.ADMIN_EMAIL)
  check('the console is served', String(await ask('GET', '/console')).includes('<html'))
  check('the client is served', String(await ask('GET', '/client.js')).includes('export{'))
  const form = new FormData()
  const picture = readFileSync(new URL('../src/features/messaging/templates/logo.png', import.meta.url))
  form.set('file', new Blob([picture], { type: 'image/png' }), 'logo.png')
  const uploaded = await ask('POST', '/files', form, token)
  const small = await fetch(`${url}/assets/${uploaded.data}?width=16&format=webp`, {
    headers: { authorization: `Bearer ${token}` },
  })
  check('a file is kept, and its picture made smaller', small.ok && small.headers.get('content-type') === 'image/webp')
}

function check(what: string, holds: boolean): void {
  if (!holds) throw new Error(`This does not hold: ${what}`)
  process.stdout.write(`ok  ${what}\n`)
}

function say(message: string): void {
  process.stderr.write(`${message}\n`)
}
