import { execFile, execFileSync } from 'node:child_process'
import { existsSync, globSync, readFileSync, realpathSync, statSync } from 'node:fs'
import { chmod, cp, mkdir, mkdtemp, readFile, rename, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { delimiter, dirname, join } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { processesWith, root, startProcess, survivors, type TestProcess, waitFor } from '../support/processes.ts'

/*
 * What is packed, installed into an empty directory by a user with an empty home, and used. One installation for all: it takes half a
 * minute. npm runs no install script at first, as npm 12 does without allowScripts; later it runs them.
 */

const execute = promisify(execFile)

/** Without what belongs to the checkout: the Node that came with the machine's npm. */
const machinePath = process.env
  .PATH!.split(delimiter)
  .filter((dir) => !dir.includes('node_modules'))
  .join(delimiter)
const ofTheMachine = (name: string) =>
  realpathSync(
    machinePath
      .split(delimiter)
      .map((dir) => join(dir, name))
      .find((file) => existsSync(file))!,
  )
const [npm, npx] = [ofTheMachine('npm'), ofTheMachine('npx')]

let place: string
let app: string
let env: Record<string, string>
let tarball: string
let files: readonly string[]

/** A command of a user in the project; the machine's Node unless `ours` brings the checkout's. */
async function said(command: string, args: readonly string[], { ours = false, cwd = app } = {}) {
  const PATH = ours ? `${dirname(process.execPath)}${delimiter}${machinePath}` : machinePath
  const done = execute(command, args, { cwd, env: { ...env, PATH }, maxBuffer: 10_000_000 })
  const { stdout, stderr, code } = await done.then(
    (output) => ({ ...output, code: 0 }),
    (error: { stdout: string; stderr: string; code: number }) => error,
  )
  return { code, stdout, stderr }
}

async function done(command: string, args: readonly string[], options?: { ours?: boolean; cwd?: string }) {
  const { code, stdout, stderr } = await said(command, args, options)
  if (code !== 0) throw new Error(`${command} ${args.join(' ')} ended with ${code}: ${stderr}${stdout}`)
  return stdout
}

beforeAll(async () => {
  place = await mkdtemp(join(tmpdir(), 'daybook-package-'))
  await chmod(place, 0o755)
  app = join(place, 'my-app')
  await mkdir(join(place, 'home'))
  const setting = (name: string) => execFileSync(npm, ['config', 'get', name], { encoding: 'utf8', cwd: root }).trim()
  env = {
    PATH: machinePath,
    HOME: join(place, 'home'),
    TMPDIR: tmpdir(),
    // The registry of the machine, and what was fetched from it already.
    npm_config_registry: setting('registry'),
    npm_config_cache: setting('cache'),
    ...(setting('cafile') !== 'null' && { npm_config_cafile: setting('cafile') }),
    // The files are at another path each time: of use to this run alone.
    NODE_COMPILE_CACHE: join(place, 'compiled'),
    npm_config_prefer_offline: 'true',
    npm_config_audit: 'false',
    npm_config_fund: 'false',
    npm_config_update_notifier: 'false',
  }
  if (isStale()) await execute(process.execPath, ['scripts/build.ts'], { cwd: root })
  tarball = await pack(root)
  files = (await done('tar', ['-tzf', tarball], { cwd: place })).trim().split('\n')
  await done('tar', ['-xzf', tarball], { cwd: place })
})

afterAll(async () => {
  for (const pid of survivors()) process.kill(pid, 'SIGKILL')
  await rm(place, { recursive: true })
})

/** Whether a source is newer than what was built last. */
function isStale(): boolean {
  const built = statSync(join(root, 'dist/package.json'), { throwIfNoEntry: false })?.mtimeMs ?? 0
  const sources = ['src', 'clients', 'migrations', 'templates', 'console/src'].map((dir) => `${dir}/**/*`)
  return globSync([...sources, 'package.json', 'scripts/build.ts'], { cwd: root }).some(
    (file) => statSync(join(root, file)).mtimeMs > built,
  )
}

async function pack(directory: string): Promise<string> {
  const args = ['pack', directory, '--ignore-scripts', '--json', '--pack-destination', place]
  return join(place, JSON.parse(await done(npm, args, { cwd: place }))[0].filename)
}

type Installed = { readonly process: TestProcess; readonly url: string; readonly rows: Record<string, string> }

/** `npm start`, until its banner is there. */
async function start({ ours = false } = {}): Promise<Installed> {
  const PATH = ours ? `${dirname(process.execPath)}${delimiter}${machinePath}` : machinePath
  const started = startProcess(npm, ['start'], { ...env, PATH, NODE_ENV: 'development', PORT: '0' }, { cwd: app })
  await started.waitForLine(({ text }) => text.includes('Ctrl-C stops everything'))
  const lines = started.lines.map(({ text }) => /^ {4}([A-Z][\w-]+) +(.*)$/.exec(text)).filter((row) => row !== null)
  const rows = Object.fromEntries(lines.map(([, label, value]) => [label!, value!]))
  return { process: started, url: rows.URL!, rows }
}

async function stop({ process }: Installed): Promise<void> {
  await process.kill('SIGTERM')
  await waitFor(() => survivors().length === 0 && processesWith(app).length === 0)
}

describe('the package', () => {
  it('holds compiled code with maps, and neither tests nor sources', () => {
    const kinds = new Set(files.map((file) => /^package\/([^/]+)/.exec(file)![1]))
    expect([...kinds].sort()).toEqual(['CHANGELOG.md', 'LICENSE', 'README.md', 'bin', 'dist', 'docs', 'package.json'])
    const typescript = files.filter((file) => /(?<!\.d)\.tsx?$/.test(file))
    expect(typescript).toEqual(['package/dist/templates/project/extensions/svc-endpoint-hello/index.ts'])
    const scripts = files.filter((file) => /^package\/dist\/(src|migrations|clients)\/.*\.js$/.test(file))
    const unmapped = scripts.filter((file) => !/\/page\/|clients\/dist\//.test(file) && !files.includes(`${file}.map`))
    expect([scripts.length > 300, unmapped]).toEqual([true, []])
    for (const part of [
      'clients/dist/client.js',
      'clients/dist/console-extension.js',
      'clients/console-extension.css',
      'console/dist/index.html',
      'src/features/messaging/templates/logo.png',
    ])
      expect(files).toContain(`package/dist/${part}`)
  })

  it('names nothing that is not there, of itself or of others', async () => {
    const { exports, bin } = JSON.parse(await readFile(join(place, 'package/package.json'), 'utf8'))
    const named = Object.values<string | Record<string, string>>({ ...exports, bin }).flatMap((one) =>
      typeof one === 'string' ? one : Object.values(one),
    )
    expect(named.filter((path) => !existsSync(join(place, 'package', path)))).toEqual([])
    const client = JSON.parse(await readFile(join(place, 'package/dist/clients/package.json'), 'utf8'))
    expect([client.name, Object.keys(client.dependencies)]).toEqual(['@daybook/client', ['socket.io-client']])
  })
})

describe('a project', () => {
  let running: Installed
  let token: string
  const bin = () => join(app, 'node_modules/.bin/daybook')

  const call = async (method: string, path: string, body?: object) => {
    const response = await fetch(`${running.url}${path}`, {
      method,
      headers: {
        ...(token !== undefined && { authorization: `Bearer ${token}` }),
        ...(body !== undefined && { 'content-type': 'application/json' }),
      },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    })
    return { status: response.status, body: (await response.json()) as any }
  }

  it('is made by init, on any Node that npm comes with, with keys of its own', async () => {
    const init = (...args: string[]) =>
      said('node', [join(place, 'package/bin/daybook.js'), 'init', ...args], { cwd: place })
    expect(await init('my-app', '--from', tarball)).toMatchObject({
      code: 0,
      stdout: expect.stringContaining('npm start'),
    })
    expect(await init('my-app')).toMatchObject({ code: 2, stderr: expect.stringContaining('not empty') })
    expect(await init()).toMatchObject({ code: 2, stderr: expect.stringMatching(/^Usage: daybook init/) })
    expect((await init('other', '--from', 'nothing.tgz')).stderr).toContain('--from: nothing.tgz is no package')
    expect(await init('other', '--name', '7_b.c')).toMatchObject({ code: 0 })
    const of = (name: string, file: string) => readFileSync(join(place, name, file), 'utf8')
    expect(of('other', 'deploy/kubernetes/setup.yaml')).toContain('\n  name: app-7-b-c-setup\n')
    const secrets = (name: string) =>
      [...of(name, '.env').matchAll(/^(?:# )?(\w+)=([\w-]{20,})$/gm)].map(([, , value]) => value)
    expect(secrets('my-app').length).toBe(6)
    expect(secrets('my-app').filter((secret) => secrets('other').includes(secret))).toEqual([])
    expect(statSync(join(app, '.env')).mode & 0o777).toBe(0o600)
    expect(of('my-app', '.gitignore')).toMatch(/^\.daybook\/\n\.env$/m)
    const versions = ['my-app', 'other'].map((name) => JSON.parse(of(name, 'package.json')).dependencies.daybook)
    const { version } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'))
    expect(versions).toEqual([`file:daybook-${version}.tgz`, `^${version}`])
    const filled = globSync(['**/*', '.*'], { cwd: app, exclude: (name) => name.endsWith('.tgz') })
    const left = filled.filter(
      (file) => statSync(join(app, file)).isFile() && /\{\{\w+\}\}|node_modules\/daybook/.test(of('my-app', file)),
    )
    expect(left).toEqual([])
  })

  it('starts where npm has run no install script, and says what it lacks on an older Node', async () => {
    await done(npm, ['install', '--ignore-scripts'])
    const [major] = (await done('node', ['--version'])).slice(1).split('.')
    if (Number(major) < 24)
      expect(await said(bin(), ['start'])).toMatchObject({
        code: 1,
        stderr: expect.stringMatching(/^Daybook needs Node 24 .*npm rebuild node\n$/),
      })
    // What npm leaves out on a Node that is too old for it, and what comes with the scripts, is not needed for this.
    running = await start({ ours: true })
    expect(running.rows.Password).toMatch(/^\S{16,} +\(shown only this once\)$/)
    expect(running.rows['Sign-in']).toMatch(/\/console\/welcome#[0-9a-f]+ /)
    expect(await (await fetch(`${running.url}/client.js`)).text()).toContain('export{')
    for (const page of ['/docs', '/console']) expect((await fetch(`${running.url}${page}`)).status).toBe(200)
  })

  it('is used: a collection, items, an extension, a migration, mail', async () => {
    const password = running.rows.Password!.split(' ')[0]
    const session = await call('POST', '/auth/login', { email: running.rows.Admin, password })
    token = session.body.token
    expect(token).toBeTypeOf('string')
    const fields = { title: { type: 'String', allowNull: false }, done: { type: 'Boolean' } }
    const made = await call('POST', '/schemas', {
      collectionName: 'task',
      schema: {
        fields: { id: { type: 'Integer', primaryKey: true, defaultValue: { type: 'AUTOINCREMENT' } }, ...fields },
      },
    })
    expect(made.status, JSON.stringify(made.body)).toBe(201)
    expect((await call('POST', '/items/task', { title: 'Sweep' })).status).toBe(201)
    expect((await call('GET', '/hello')).body).toEqual({ hello: 'admin@example.com' })
    // Written in a thread of its own.
    const asked = await call('POST', '/auth/magiclink', { email: running.rows.Admin, mode: 'code' })
    expect(asked.status).toBe(200)
    await waitFor(async () => JSON.stringify((await call('GET', '/items/svc_EmailLog')).body).includes('"sent"'))
  })

  it('has types for what it writes, of its own collections too', async () => {
    await done(bin(), ['types', '--out', 'src/schema.ts'], { ours: true })
    await done(bin(), ['migrate', 'create', 'add rank'], { ours: true })
    await writeFile(
      join(app, 'src/app.ts'),
      `import { version } from 'daybook'
import { createClient } from 'daybook/client'
import type { HookExtension } from 'daybook/extensions'
import type { Schema } from './schema.ts'

const client = createClient<Schema>({ url: '${running.url}', auth: { token: process.env.TOKEN ?? '' } })
const { data } = await client.items('task').list({ fields: ['title'] })
process.stdout.write(\`\${version} \${data.map(({ title }) => title.toUpperCase()).join()}\\n\`)
// @ts-expect-error: it was not asked for
data[0]?.done
// @ts-expect-error: a hook is given a service
export const hook: HookExtension = (service: number) => service
`,
    )
    const checked = await said(join(app, 'node_modules/.bin/tsc'), [], { ours: true })
    expect(checked).toMatchObject({ code: 0, stdout: '' })
    env = { ...env, TOKEN: token }
    expect(await done(process.execPath, ['src/app.ts'])).toMatch(/^\d+\.\d+\.\d+\S* SWEEP\n$/)
    expect(await said(npx, ['daybook', 'migrate', 'status'], { ours: true })).toMatchObject({
      code: 3,
      stdout: expect.stringContaining('add_rank'),
    })
  })

  it('runs its commands beside the start, and by themselves', async () => {
    const worker = startProcess(bin(), ['worker', 'mail'], env, { cwd: app })
    await worker.waitForLine(({ msg }) => msg === 'ready')
    expect(await worker.kill('SIGTERM')).toEqual({ code: 0, signal: null })
    await stop(running)
    expect(await said(bin(), ['web'], { ours: true })).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('no database runs here'),
    })
    // Its database runs as long as the command does.
    const { code, stdout } = await said(bin(), ['migrate', 'run'], { ours: true })
    expect([code, stdout]).toEqual([0, expect.stringContaining('completed')])
    expect(await said(bin(), ['log', 'verify'], { ours: true })).toMatchObject({ code: 0 })
    expect(processesWith(app)).toEqual([])
  })

  it('is upgraded by a new version and a start, and not taken by the old one again', async () => {
    // From here on with the project's own Node.
    await done(npm, ['rebuild'])
    const [installed, old] = [join(app, 'node_modules/daybook'), join(place, 'old')]
    await cp(installed, old, { recursive: true })
    await done(npm, ['install', await nextVersion()])
    running = await start()
    const applied = (await call('GET', '/migrations/0.99.1')).body
    expect(applied.data).toMatchObject({ status: 'completed', metadata: { setUpBy: '0.99.2' } })
    expect((await call('GET', '/items/task')).body.data).toMatchObject([{ title: 'Sweep' }])
    expect((await call('GET', '/migrations/status')).body.data.drifted).toEqual([])
    await stop(running)
    await rm(installed, { recursive: true })
    await rename(old, installed)
    const refused = startProcess(npm, ['start'], { ...env, NODE_ENV: 'development', PORT: '0' }, { cwd: app })
    expect((await refused.exited).code).toBe(1)
    expect(refused.lines.map(({ text }) => text).join('\n')).toContain(
      'Daybook 0.99.2 has set this database up (migration 0.99.1), and this is',
    )
  })

  /** This one with another version and one more system migration. */
  async function nextVersion(): Promise<string> {
    const unpacked = join(place, 'package')
    for (const file of ['package.json', 'dist/package.json']) {
      const manifest = JSON.parse(await readFile(join(unpacked, file), 'utf8'))
      await writeFile(join(unpacked, file), JSON.stringify({ ...manifest, version: '0.99.2' }))
    }
    await writeFile(
      join(unpacked, 'dist/migrations/0.99.1_later.js'),
      `export const version = '0.99.1'
export const name = 'later'
export async function up({ sql }) {
  await sql('create table later (n int)')
  return { success: true }
}
`,
    )
    const packed = join(place, 'next.tar')
    await done('tar', ['-cf', packed, 'package'], { cwd: place })
    return packed
  }
})

describe('the client on its own', () => {
  let own: string

  beforeAll(async () => {
    own = join(place, 'front-end')
    await mkdir(own)
    await writeFile(join(own, 'package.json'), JSON.stringify({ private: true, type: 'module' }))
    const packed = await pack(join(place, 'package/dist/clients'))
    // Of what npm has fetched before: the package names nothing else.
    await done(npm, ['install', '--offline', packed], { cwd: own })
  })

  it('is installed into an empty directory without a line to any registry, and brings the client alone', async () => {
    const at = join(own, 'node_modules/@daybook/client')
    const { name, version, sideEffects, dependencies, peerDependenciesMeta } = JSON.parse(
      await readFile(join(at, 'package.json'), 'utf8'),
    )
    const whole = JSON.parse(await readFile(join(root, 'package.json'), 'utf8'))
    expect({ name, version, sideEffects, dependencies, peerDependenciesMeta }).toEqual({
      name: '@daybook/client',
      version: whole.version,
      sideEffects: false,
      dependencies: { 'socket.io-client': whole.dependencies['socket.io-client'] },
      peerDependenciesMeta: { react: { optional: true } },
    })
    const held = globSync('**/*', { cwd: at }).filter((file) => !file.endsWith('.map'))
    expect(held.filter((file) => /console|^dist/.test(file))).toEqual([])
    expect(held).toEqual(expect.arrayContaining(['LICENSE', 'client.js', 'client.d.ts', 'react.js', 'react.d.ts']))
    const installed = globSync('*', { cwd: join(own, 'node_modules') })
    expect(installed).not.toContain('react')
    expect(installed).not.toContain('daybook')
  })

  it('is imported, and its types hold for a program that checks those of libraries too', async () => {
    await writeFile(
      join(own, 'app.ts'),
      `import { createClient, DaybookError } from '@daybook/client'

const client = createClient<any>({ url: 'http://127.0.0.1:9', auth: { token: 'none' } })
const failed: unknown = await client.items('task').list({}).catch((error: unknown) => error)
const kind: string = failed instanceof Error ? 'an error' : 'nothing'
console.log(kind, typeof DaybookError, Object.keys(client).length > 3)
// @ts-expect-error: an address is a text
export const wrong = () => createClient<any>({ url: 7 })
`,
    )
    const lib = ['es2024', 'dom', 'dom.iterable', 'esnext.iterator', 'esnext.disposable']
    const compilerOptions = {
      strict: true,
      noEmit: true,
      skipLibCheck: false,
      // Those of the language take seconds, and are not ours.
      skipDefaultLibCheck: true,
      module: 'nodenext',
      target: 'es2024',
      lib,
    }
    await writeFile(
      join(own, 'tsconfig.json'),
      JSON.stringify({ compilerOptions: { ...compilerOptions, types: [] }, include: ['app.ts'] }),
    )
    const tsc = join(root, 'node_modules/typescript/bin/tsc')
    const checked = await said(process.execPath, [tsc], { cwd: own })
    expect(checked).toMatchObject({ code: 0, stdout: '' })
    expect(await done(process.execPath, ['app.ts'], { cwd: own })).toBe('an error function true\n')
  })
})
