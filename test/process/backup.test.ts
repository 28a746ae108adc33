import { execFile } from 'node:child_process'
import { createHash } from 'node:crypto'
import { chmod, mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { asSuperuser } from '../support/log.ts'
import { createDatabase, createEmptyDatabase, type TestDatabase } from '../support/postgres.ts'
import { testEnv } from '../support/prepare.ts'
import { root, startProcess, waitFor } from '../support/processes.ts'
import { withClient } from '../support/server.ts'

/** Backup and restore as commands, killed at every step (docs/decisions/0062). */

let dir: string
let file: string
let source: TestDatabase

const hashOf = async (path: string) =>
  createHash('sha256')
    .update(await readFile(path))
    .digest('hex')
const count = (url: string, from: string): Promise<number> =>
  withClient(url, async (client) => (await client.query(`select count(*)::int as n from ${from}`)).rows[0].n)
const daybook = (args: readonly string[], env: Record<string, string>, cwd?: string) =>
  startProcess('src/cli/main.ts', args, env, cwd === undefined ? {} : { cwd })
const ended = async (process: ReturnType<typeof daybook>) => {
  const { code } = await process.exited
  return { code, text: process.lines.map(({ text }) => text).join('\n') }
}

beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), 'daybook-backups-'))
  await chmod(dir, 0o755)
  file = join(dir, 'whole.daybook')
  source = await createDatabase()
  // Some seconds of work, of which little can be compressed.
  await withClient(source.url, (client) =>
    client.query(`create table much as select i as id, md5(i::text) || md5((-i)::text) as text from generate_series(1, 400000) i;
      alter table much add primary key (id); create index on much (text)`),
  )
})

afterAll(() => rm(dir, { recursive: true }))

describe('a backup that is killed', () => {
  it('leaves the one from before, and nothing that could be taken for one', async () => {
    const env = testEnv(source.url)
    expect(await ended(daybook(['backup', file, '--verify-by-restore'], env))).toMatchObject({
      code: 0,
      text: expect.stringContaining('written and read again'),
    })
    const first = await hashOf(file)
    let before = first
    const whole = (await stat(file)).size
    await withClient(source.url, (client) => client.query(`update much set text = 'other' where id = 1`))
    let inTime = 0
    let isUnnamed = false
    for (const share of [0, 0.1, 0.5, 0.9, 1]) {
      const killed = daybook(['backup', file], env)
      const partial = join(dir, `.whole.daybook.${killed.pid}.partial`)
      const isThere = async () => ((await stat(partial).catch(() => undefined))?.size ?? -1) >= share * whole * 0.99
      await Promise.race([waitFor(isThere), killed.exited])
      const { signal } = (await killed.kill('SIGKILL'))!
      isUnnamed = (await stat(partial).catch(() => undefined)) !== undefined
      if (isUnnamed) inTime += 1
      // Towards its end it may have its name, or be done, before it is killed.
      else before = await hashOf(file)
      expect(await hashOf(file)).toBe(before)
      if (signal === null) expect(isUnnamed).toBe(false)
    }
    expect(inTime).toBeGreaterThanOrEqual(3)
    // Each one removes what a dead one has left.
    expect((await readdir(dir)).filter((name) => name.endsWith('.partial'))).toHaveLength(isUnnamed ? 1 : 0)
    expect(await ended(daybook(['backup', file], env))).toMatchObject({ code: 0 })
    expect(await readdir(dir)).toEqual(['whole.daybook'])
    expect(await hashOf(file)).not.toBe(first)
  })
})

/** A command as a shell runs it, which can limit the size of files; what it says on standard error. */
const inShell = async (before: string, args: string, url = source.url) => {
  const command = `${before} exec "$0" src/cli/main.ts ${args}`
  const ran = promisify(execFile)('bash', ['--norc', '-c', command, process.execPath], {
    cwd: root,
    env: { PATH: process.env.PATH, ...testEnv(url) },
  })
  return ran.then(
    ({ stderr }) => ({ code: 0, said: stderr }),
    ({ code, stderr }) => ({ code, said: stderr as string }),
  )
}

describe('a place without room', () => {
  it('is named in one line, and nothing is left there', async () => {
    const own = await mkdtemp(join(dir, 'full-'))
    const place = join(own, 'whole.daybook')
    expect(await inShell('ulimit -f 64;', `backup ${place}`)).toEqual({
      code: 1,
      said: `${place} cannot be written to: EFBIG: file too large, write\n`,
    })
    expect(await readdir(own)).toEqual([])
  })

  it.runIf(process.platform === 'linux')('is named where it is standard output', async () => {
    expect(await inShell('', 'backup - > /dev/full')).toEqual({
      code: 1,
      said: 'standard output cannot be written to: ENOSPC: no space left on device, write\n',
    })
  })

  it('is named where the keys of a restore are to go there, and nothing is restored', async () => {
    const small = await createDatabase()
    const [own, target] = [await mkdtemp(join(dir, 'keys-')), await createEmptyDatabase()]
    const [backup, keys, passphrase] = ['small.daybook', 'keys.env', 'passphrase'].map((name) => join(own, name))
    await writeFile(passphrase!, 'a passphrase')
    const open = `--passphrase-file ${passphrase}`
    expect(await inShell('', `backup ${backup} -q ${open}`, small.url)).toMatchObject({ code: 0 })
    const restore = `restore ${backup} -q --no-verify ${open} --keys-to ${keys}`
    expect(await inShell('ulimit -f 0;', restore, target.url)).toEqual({
      code: 1,
      said: `${keys} cannot be written to: EFBIG: file too large, write\n`,
    })
    expect((await readdir(own)).sort()).toEqual(['passphrase', 'small.daybook'])
    expect(await count(target.url, `pg_class where relnamespace = 'public'::regnamespace`)).toBe(0)
    // With room it goes on as if nothing had been.
    expect(await inShell('', restore, target.url)).toMatchObject({ code: 0 })
    expect(await readFile(keys!, 'utf8')).toContain('SECRET_KEY=')
  })

  it('is named where the embedded database of a restore is to go there', async () => {
    const own = await mkdtemp(join(dir, 'embedded-'))
    await chmod(own, 0o755)
    const data = join(own, 'data')
    const before = `unset DATABASE_URL; export DAYBOOK_DATA_DIR=${data}; ulimit -f 0;`
    expect(await inShell(before, `restore ${file} -q --no-verify`)).toEqual({
      code: 1,
      said: expect.stringMatching(
        /^\/\S+\/data\/launcher\.pid\.\S+ cannot be written to: EFBIG: file too large, write\n$/,
      ),
    })
    expect(await readdir(data)).toEqual([])
  })

  it('is named where the database has none, and nothing is restored', async () => {
    const [small, target] = [await createDatabase(), await createEmptyDatabase()]
    const backup = join(dir, 'filled.daybook')
    await withClient(small.url, (client) => client.query('create table filled as select 1 as id'))
    expect(await inShell('', `backup ${backup} -q`, small.url)).toMatchObject({ code: 0 })
    // Rows find the disk full, as PostgreSQL says it.
    await withClient(asSuperuser(target.url), (client) =>
      client.query(`create schema fault;
        create function fault.full() returns trigger language plpgsql as
          $$ begin raise exception 'could not extend file: No space left on device' using errcode = 'disk_full'; end $$;
        create function fault.prepare() returns event_trigger language plpgsql as $$ begin
          if exists (select from pg_event_trigger_ddl_commands() where object_identity = 'public.filled') then
            create trigger fault before insert on public.filled execute function fault.full();
          end if; end $$;
        create event trigger prepare on ddl_command_end when tag in ('CREATE TABLE') execute function fault.prepare();
        grant usage on schema fault to public`),
    )
    expect(await inShell('', `restore ${backup} -q --no-verify`, target.url)).toEqual({
      code: 1,
      said: 'The database has no room: could not extend file: No space left on device\n',
    })
    expect(await count(target.url, `pg_class where relnamespace = 'public'::regnamespace`)).toBe(0)
  })
})

describe('a restore that is killed', () => {
  it('leaves the database empty, and can be made again', async () => {
    const target = await createEmptyDatabase()
    const env = testEnv(target.url)
    const doing = (what: RegExp) =>
      withClient(target.url, async (client) => {
        const { rows } = await client.query(
          `select query from pg_stat_activity where application_name = 'daybook restore' and datname = current_database()`,
        )
        return rows.some(({ query }) => what.test(query))
      })
    for (const step of [/./, /^copy public\.much/, /^(CREATE INDEX|alter table only public.much)/]) {
      const killed = daybook(['restore', file], env)
      await Promise.race([waitFor(() => doing(step)), killed.exited])
      await killed.kill('SIGKILL')
      await waitFor(async () => !(await doing(/./)))
      expect(await count(target.url, `pg_class where relnamespace = 'public'::regnamespace`)).toBe(0)
    }
    const { code, text } = await ended(daybook(['restore', file], env))
    expect(text).toContain('rows are what the log says')
    expect(code).toBe(0)
    expect(await count(target.url, 'much')).toBe(400_000)
    const part = await ended(daybook(['restore', '--collection', 'svc_Page', '--from', file, '--dry-run'], env))
    expect(part).toMatchObject({
      code: 0,
      text: expect.stringContaining('Nothing differs from the state by the backup'),
    })
    const refused = async (args: string[], text: string) =>
      expect(await ended(daybook(['restore', ...args], env))).toMatchObject({
        code: 2,
        text: expect.stringContaining(text),
      })
    await refused(['--collection', 'svc_Page'], '--at TIME or --from FILE')
    await refused(['--collection', 'svc_Page', '--at', 'tomorrow'], '--at: "tomorrow" is neither a time such as')
    // Each form refuses what only the other one does: nothing is done for real that was to be tried.
    await refused([file, '--dry-run'], "'--dry-run'")
    await refused(['--collection', 'svc_Page', '--from', file, '--hold'], "'--hold'")
    expect(await ended(daybook(['restore', file], env))).toMatchObject({
      code: 1,
      text: expect.stringContaining('empty database'),
    })
  })
})

describe('an installation on the embedded server', () => {
  it('is restored and backed up while it is stopped', async () => {
    const { DATABASE_URL: _, ...env } = testEnv(source.url)
    const own = { ...env, DAYBOOK_DATA_DIR: join(dir, 'data'), LOCAL_STORAGE_PATH: join(dir, 'files') }
    const restored = await ended(daybook(['restore', file], own, dir))
    expect(restored).toMatchObject({ code: 0, text: expect.stringContaining('rows are what the log says') })
    const again = await ended(daybook(['backup', join(dir, 'again.daybook'), '--json'], own, dir))
    expect(again.code).toBe(0)
    expect(again.text).toContain('"verified": true')
    expect(await ended(daybook(['backup'], own, dir))).toMatchObject({ code: 2 })
  })
})

describe('the export of a tenant', () => {
  let env: Record<string, string>

  beforeAll(async () => {
    const { url } = await createDatabase()
    env = { ...testEnv(url), MULTI_TENANT: 'true' }
    await withClient(asSuperuser(url), async (client) => {
      await client.query('set session_replication_role = replica')
      const { rows } = await client.query(`insert into "svc_Tenant" (name) values ('Bakery'), ('Mill') returning id`)
      const [{ id }] = rows
      // Many rows, and one that is larger than many of them.
      await client.query(
        `insert into "svc_Page" (name, slug, description, "tenant_Id")
         select 'p' || i, 's' || i, repeat(md5(i::text), case i when 70000 then 300000 else 30 end), $1 from generate_series(1, 150000) i`,
        [id],
      )
    })
  })

  it('that is killed has no name, and goes on in less than 200 MiB', async () => {
    const own = await mkdtemp(join(dir, 'tenant-'))
    const out = join(own, 'bakery')
    const args = ['export-tenant', 'Bakery', '--out', out]
    const killed = daybook(args, env)
    const rows = join(own, `.bakery.${killed.pid}.partial/collections/svc_Page.ndjson`)
    await waitFor(async () => ((await stat(rows).catch(() => undefined))?.size ?? 0) > 10_000_000)
    await killed.kill('SIGKILL')
    expect(await readdir(own)).toEqual([`.bakery.${killed.pid}.partial`])
    const whole = daybook(args, env)
    let mebibytes = 0
    const sampling = setInterval(async () => {
      const status = await readFile(`/proc/${whole.pid}/status`, 'utf8').catch(() => '')
      mebibytes = Math.max(mebibytes, Number(/VmHWM:\s+(\d+)/.exec(status)?.[1] ?? 0) / 1024)
    }, 20)
    const { code, text } = await ended(whole)
    clearInterval(sampling)
    expect([code, text]).toEqual([0, expect.stringMatching(/150001 rows and 0 contents of files .* of Bakery as of/)])
    expect(await readdir(own)).toEqual(['bakery'])
    expect((await readFile(join(out, 'collections/svc_Page.ndjson'), 'utf8')).split('\n')).toHaveLength(150_001)
    if (process.platform === 'linux') {
      process.stderr.write(`an export of 160 MB: ${mebibytes.toFixed(0)} MiB at most\n`)
      expect(mebibytes).toBeGreaterThan(20)
      expect(mebibytes).toBeLessThan(200)
    }
    expect(await ended(daybook(args, env))).toMatchObject({ code: 1, text: expect.stringContaining('already') })
    expect(await ended(daybook(['export-tenant', 'Bakery'], env))).toMatchObject({ code: 2 })
    const json = await ended(daybook(['export-tenant', 'Mill', '--out', join(own, 'mill'), '--json', '--quiet'], env))
    expect(json).toMatchObject({ code: 0, text: expect.stringContaining('"collection": "svc_Page"') })
  })
})
