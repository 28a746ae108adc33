import { execFile } from 'node:child_process'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { describe, expect, it, onTestFinished } from 'vitest'
import { asSuperuser } from '../support/log.ts'
import { createDatabase, createEmptyDatabase } from '../support/postgres.ts'
import { administrator, testEnv } from '../support/prepare.ts'
import { root, startProcess } from '../support/processes.ts'
import { withClient } from '../support/server.ts'
import { waitFor } from '../support/wait.ts'

const run = async (args: readonly string[], env: Record<string, string> = {}) => {
  const daybook = startProcess('src/cli/main.ts', args, env)
  const { code } = await daybook.exited
  return { code, lines: daybook.lines.map(({ text }) => text) }
}

it('erases an item and exports what is left about a user', async () => {
  const { url } = await createDatabase()
  const env = testEnv(url)
  const id = await withClient(url, async (client) => (await client.query('select id from "svc_User"')).rows[0].id)
  const exported = async () => {
    const { code, lines } = await run(['export-user', '--id', id], env)
    expect(code).toBe(0)
    return lines.map((line) => JSON.parse(line)).filter(({ type, entity }) => type === 'data' && entity === 'svc_User')
  }
  expect((await exported())[0].changes.after.id).toBe(id)
  expect(await run(['erase', '--collection', 'svc_User', '--id', id], env)).toEqual({
    code: 0,
    lines: [expect.stringMatching(/^[1-9]\d* events erased$/)],
  })
  expect((await exported()).every(({ changes }) => changes.erased)).toBe(true)
  expect(await run(['erase', '--collection', 'svc_User', '--id', crypto.randomUUID()], env)).toEqual({
    code: 1,
    lines: ['The log holds nothing about this item of svc_User'],
  })
})

it('lists consumers of the log, and tells them where to go on', async () => {
  const { url } = await createDatabase()
  const env = testEnv(url)
  await withClient(url, async (client) => {
    await client.query(`insert into svc_log.consumer (name, snapshot, "upTo", state, reason, "failedPosition") values
      ('a', '3:3:', null, 'stopped', 'log removed', null), ('b', '3:3:', '9:9:', 'halted', 'no use', 2)`)
    await client.query(`insert into svc_log.set_aside values ('a', 1, 'no number')`)
  })
  const said = async (...args: string[]) => {
    const { code, lines } = await run(['consumers', ...args], env)
    return [code, lines.join('\n')]
  }
  expect(await said('list')).toEqual([
    0,
    expect.stringMatching(
      /a +stopped: log removed, \d+ s behind, 1 set aside\nb +halted: no use.*\n +a set aside 1 .*: no number/s,
    ),
  ])
  expect(await said('reset', 'a', '--to', 'now')).toEqual([0, 'a goes on at now'])
  expect(await said('skip', 'b')).toEqual([0, 'b goes on after position 2, which is set aside'])
  expect((await said('skip'))[0]).toBe(2)
  for (const args of [
    ['skip', 'c'],
    ['skip', 'c', '--position', 'all'],
    ['retry', 'c'],
  ])
    expect(await said(...args)).toEqual([1, 'There is no consumer "c"'])
  const state = await withClient(
    url,
    async (client) => (await client.query('select name, state from svc_log.consumer order by name')).rows,
  )
  expect(state).toEqual([
    { name: 'a', state: 'running' },
    { name: 'b', state: 'running' },
  ])
})

it('shows, follows, exports and proves the log', async () => {
  const { url } = await createDatabase()
  const dir = await mkdtemp(join(tmpdir(), 'daybook-log-'))
  onTestFinished(() => rm(dir, { recursive: true }))
  const heads = join(dir, 'heads.ndjson')
  const env = { ...testEnv(url), LOG_SEAL_FILE: heads }
  const sql = (text: string, values: unknown[] = []) =>
    withClient(url, async (client) => (await client.query(text, values)).rows)
  const say = (name: string) => sql(`insert into "svc_Role" (name) values ($1)`, [name])
  const roles = ['--collection', 'svc_Role']
  const names = (lines: readonly string[]) => lines.map((line) => JSON.parse(line).changes.after.name)
  await say('first')
  await say('second')

  expect(await run(['log', 'tail', ...roles, '--lines', '2', '--json'], env)).toMatchObject({ code: 0 })
  const tail = await run(['log', 'tail', ...roles, '--lines', '1'], env)
  expect(tail).toEqual({ code: 0, lines: [expect.stringMatching(/^2\d\d\d-\S+Z {2}create svc_Role \S+ {2}.*name/)] })

  // What comes while it follows, once each and in order; it ends by itself when it is interrupted.
  const following = startProcess(
    'src/cli/main.ts',
    ['log', 'tail', ...roles, '--lines', '0', '--follow', '--json'],
    env,
  )
  let said = 0
  await waitFor(async () => {
    if (following.lines.length > 0) return true
    said += 1
    await say(`while ${said}`)
    return false
  })
  for (const name of ['a', 'b', 'c']) await say(name)
  await waitFor(() => names(following.lines.map(({ text }) => text)).at(-1) === 'c')
  expect(await following.kill('SIGINT')).toMatchObject({ code: 0 })
  const shown = names(following.lines.map(({ text }) => text))
  expect(shown.slice(-3)).toEqual(['a', 'b', 'c'])
  expect(new Set(shown).size).toBe(shown.length)

  // An export goes on right after any of its lines, and a cut one from its last whole line.
  const file = join(dir, 'log.ndjson')
  const exported = async (...more: string[]) => {
    const { code, lines } = await run(['log', 'export', ...roles, ...more, '--output', file], env)
    expect([code, lines]).toEqual([0, []])
    return (await readFile(file, 'utf8')).split('\n').slice(0, -1)
  }
  const all = await exported()
  const cursorOf = (line: string) => JSON.parse(line).cursor as string
  const positionsOf = (lines: readonly string[]) => lines.map((line) => JSON.parse(line).position as string)
  for (const at of [0, 2, all.length - 1])
    expect(positionsOf(await exported('--since', cursorOf(all[at]!)))).toEqual(positionsOf(all.slice(at + 1)))
  await say('later')
  expect(names(await exported('--since', cursorOf(all.at(-1)!)))).toEqual(['later'])
  expect((await run(['log', 'export', '--since', 'nothing'], env)).code).not.toBe(0)

  expect(await run(['log', 'head'], env)).toEqual({ code: 1, lines: ['Nothing of the log is sealed yet'] })
  const worker = startProcess('src/workers/main.ts', ['log-cleanup'], env)
  const isSealed = async () => {
    const newest = (await readFile(heads, 'utf8').catch(() => '')).split('\n').at(-2)
    const [state] = await sql('select number::int, sweep is null as "isWhole" from svc_log.seal_state')
    return state.number > 0 && state.isWhole && newest !== undefined && JSON.parse(newest).number === state.number
  }
  await waitFor(isSealed, { what: 'the head of the seals' })
  await worker.kill()
  const head = await run(['log', 'head'], env)
  expect(head.code).toBe(0)
  const kept = join(dir, 'kept.json')
  await writeFile(kept, head.lines.join(''))
  const verify = async (held: string) => {
    const verified = startProcess('scripts/log-verify.ts', ['--seals', '--head', held], env)
    const { code } = await verified.exited
    return { code, lines: verified.lines.map(({ text }) => text) }
  }
  for (const held of [heads, kept])
    expect(await verify(held)).toMatchObject({
      code: 0,
      lines: expect.arrayContaining([expect.stringMatching(/^[1-9]\d* heads are in the chain/)]),
    })
  const torn = join(dir, 'torn.ndjson')
  await writeFile(torn, `${head.lines.join('')}\n{"number": 1, "hash"`)
  expect((await verify(torn)).lines).toContain(`--head ${torn}: line 2 is cut off and left out`)
  const [{ position }] = await sql(
    `select position::text from "svc_AuditLog" where entity = 'svc_Role' and changes->'after'->>'name' = 'second'`,
  )
  await withClient(asSuperuser(url), (root) =>
    root.query(
      `set session_replication_role = replica;
       update "svc_AuditLog" set changes = jsonb_set(changes, '{after,name}', '"third"') where position = ${position}`,
    ),
  )
  const { code, lines } = await verify(kept)
  expect([code, lines[0]]).toEqual([1, `CHANGED event ${position}: is not what was sealed`])
  expect((await run(['log', 'verify', '--seals', '--head', join(dir, 'nothing')], env)).code).toBe(2)
})

it('finds the embedded database by every command, with neither address nor key in its variables', async () => {
  const { url } = await createDatabase()
  const dir = await mkdtemp(join(tmpdir(), 'daybook-cli-'))
  onTestFinished(() => rm(dir, { recursive: true }))
  const env = { DAYBOOK_DATA_DIR: dir }
  const id = await withClient(url, async (client) => (await client.query('select id from "svc_User"')).rows[0].id)
  const all = [
    ['export-user', '--id', id],
    ['erase', '--collection', 'svc_User', '--id', id],
    ['migrate', 'status'],
    ['consumers', 'list'],
    ['doctor'],
  ]
  const verify = async () => (await startProcess('scripts/log-verify.ts', [], env).exited).code
  for (const args of all) {
    const { code, lines } = await run(args, env)
    expect([code, lines.join('\n')]).toEqual([1, expect.stringContaining('DATABASE_URL')])
  }
  expect(await verify()).toBe(1)
  // As `npm start` leaves them.
  await writeFile(join(dir, 'database-url'), `${url}\n`)
  await writeFile(join(dir, 'secret-key'), `${'0123456789abcdef'.repeat(3)}\n`)
  for (const args of all) expect([args, (await run(args, env)).code]).toEqual([args, 0])
  expect(await verify()).toBe(0)
})

it('shows its commands to who asks for them', async () => {
  const { code, lines } = await run(['--help'])
  expect({ code, first: lines[0] }).toEqual({ code: 0, first: 'Usage:' })
  expect(lines.join('\n')).toMatch(/daybook erase +erases the recorded values/)
})

it.each<[args: string[], says: string]>([
  [['toString'], 'unknown command daybook toString. daybook --help says more'],
  [['bakcup', 'x'], 'unknown command daybook bakcup: did you mean backup? daybook --help says more'],
  [['nonsense', '--help'], 'unknown command daybook nonsense. daybook --help says more'],
  [
    ['migrate', 'stauts'],
    'unknown command daybook migrate stauts: did you mean status? daybook migrate --help says more',
  ],
  [['worker', 'foo'], 'unknown command daybook worker foo. daybook worker --help says more'],
  [['files', 'foo'], 'unknown command daybook files foo. daybook files --help says more'],
  [['files'], 'daybook files needs one of verify, migrate. daybook files --help says more'],
  [['log', 'verfiy'], 'unknown command daybook log verfiy: did you mean verify? daybook log --help says more'],
  [
    ['consumers', 'lst'],
    'unknown command daybook consumers lst: did you mean list? daybook consumers --help says more',
  ],
  [['consumers', 'reset', 'nope'], 'daybook consumers reset needs --to. daybook consumers --help says more'],
  [['export-tenant', 'nope'], 'daybook export-tenant needs --out. daybook export-tenant --help says more'],
  [['erase', '--id', '1'], 'daybook erase needs --collection. daybook erase --help says more'],
])('says in one line what is wrong with %j', async (args, says) => {
  const { code, lines } = await run(args)
  expect([code, ...lines]).toEqual([2, says])
})

it.each([
  [['erase', '--id', '1']],
  [['erase', '--collection', 'c', '--id', '1', '--more', '2']],
  [['files', 'migrate']],
])('does not guess what is meant by %j, and says so before it loads the program', async (args) => {
  const NODE_OPTIONS = `--import=${join(root, 'test/support/loaded-packages.ts')}`
  const daybook = startProcess('src/cli/main.ts', args, { NODE_OPTIONS })
  expect(await daybook.exited).toMatchObject({ code: 2 })
  const sources = daybook.lines.flatMap((line) => (line.sources as string[] | undefined) ?? [])
  expect(sources).toContain('src/cli/installation.ts')
  expect(sources.filter((file) => file.startsWith('src/features/'))).toEqual([])
})

it('says what it lacks', async () => {
  // The checkout may have a database of its own, where somebody has called npm start.
  const { code, lines } = await run(['export-user', '--id', '1'], {
    DAYBOOK_DATA_DIR: join(tmpdir(), 'daybook-nowhere'),
  })
  expect(code).toBe(1)
  expect(lines.join('\n')).toMatch(/DATABASE_URL/)
})

it('ends in silence where the reader of the log has seen enough, and says what else befalls its output', async () => {
  const { url } = await createDatabase()
  // More than a pipe holds.
  await withClient(url, (client) =>
    client.query(
      `insert into "svc_Role" (name, description) select 'role ' || i, repeat('much', 100) from generate_series(1, 5000) i`,
    ),
  )
  const piped = (command: string) =>
    promisify(execFile)('bash', ['--norc', '-c', `set -o pipefail; ${command}`, process.execPath], {
      cwd: root,
      env: { PATH: process.env.PATH, ...testEnv(url) },
    }).then(
      ({ stdout, stderr }) => ({ code: 0, lines: stdout.split('\n').length - 1, stderr }),
      ({ code, stderr }) => ({ code, lines: 0, stderr }),
    )
  for (const command of ['export', 'tail --lines 5000 --json'])
    expect(await piped(`"$0" src/cli/main.ts log ${command} | head -1`)).toEqual({ code: 0, lines: 1, stderr: '' })
  if (process.platform === 'linux')
    for (const command of ['export', 'tail'])
      expect(await piped(`"$0" src/cli/main.ts log ${command} > /dev/full`)).toEqual({
        code: 1,
        lines: 0,
        stderr: expect.stringMatching(/^standard output cannot be written to: ENOSPC.*\n$/),
      })
})

it.each([
  ['log', 'head'],
  ['log', 'verify'],
  ['log', 'verify', '--seals'],
  ['migrate', 'status'],
  ['migrate', 'run'],
  ['migrate', 'lint'],
  ['backup', '-'],
  ['export-tenant', 'x', '--out', join(tmpdir(), `export-${crypto.randomUUID()}`)],
])('says in one line of a database without an installation what to do: %s %s', async (...args) => {
  const { url } = await createEmptyDatabase()
  expect(await run(args, { ...testEnv(url), MULTI_TENANT: 'true' })).toEqual({
    code: 1,
    lines: ['DATABASE_URL: this database has not been set up yet: run npx daybook setup'],
  })
})

it('names a file that is not there, in one line', async () => {
  const { code, lines } = await run(['types', '--file', 'no-such-file.json'])
  expect({ code, lines }).toEqual({ code: 1, lines: [expect.stringMatching(/ENOENT.*no-such-file\.json/)] })
})

describe('daybook doctor', () => {
  it('says of an installation that it works, with the exit code 0', async () => {
    const { url } = await createDatabase()
    const { code, lines } = await run(['doctor'], testEnv(url))
    expect({ code, problems: lines.filter((line) => line.startsWith('problem')) }).toEqual({ code: 0, problems: [] })
    expect(lines).toContain('ok       notifications     NOTIFY reaches LISTEN')
  })

  it('says what does not work and how to fix it, with the exit code 1, and no secret', async () => {
    const env: Record<string, string> = { ...testEnv('postgres://u:pass9word@127.0.0.1:1/d'), PORT: 'many' }
    const { code, lines } = await run(['doctor', '--json'], env)
    const { findings } = JSON.parse(lines.join('\n'))
    expect(code).toBe(1)
    expect(findings[0]).toEqual({
      check: 'configuration',
      status: 'problem',
      says: 'PORT "many" is not a whole number from 0 to 65535',
      remedy: expect.stringMatching(/^correct PORT/),
    })
    expect(findings).toContainEqual(expect.objectContaining({ check: 'database', status: 'problem' }))
    for (const secret of ['pass9word', env.SECRET_KEY, administrator.password])
      expect(lines.join('')).not.toContain(secret)
  })

  it('wants no argument that it does not know', async () => {
    expect(await run(['doctor', '--fix'])).toMatchObject({ code: 2 })
  })
})
