import { globSync, readFileSync, statSync } from 'node:fs'
import { mkdtemp, rm, stat, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { beforeEach, describe, expect, it, onTestFinished } from 'vitest'
import { makeDirectory, makeDirectorySync } from '../../src/language/directories.ts'

let base: string

beforeEach(async () => {
  base = await mkdtemp(join(tmpdir(), 'daybook-directories-'))
  onTestFinished(() => rm(base, { recursive: true }))
})

describe.each([
  ['makeDirectory', makeDirectory],
  ['makeDirectorySync', async (path: string) => makeDirectorySync(path)],
])('%s', (_name, make) => {
  it('makes what is missing above, beside others that do so, and leaves what is there', async () => {
    const path = join(base, 'a', 'b', 'c')
    await Promise.all([make(path), make(path), make(join(base, 'a', 'b', 'd'))])
    await make(path)
    expect((await stat(path)).isDirectory()).toBe(true)
    expect((await stat(join(base, 'a', 'b', 'd'))).isDirectory()).toBe(true)
    await make('/')
  })

  it('refuses what cannot be made, with what the system says', async () => {
    await writeFile(join(base, 'file'), '')
    await symlink(join(base, 'nowhere', 'at all'), join(base, 'link'))
    await expect(make(join(base, 'file'))).rejects.toMatchObject({ code: 'EEXIST' })
    await expect(make(join(base, 'file', 'x'))).rejects.toMatchObject({ code: 'ENOTDIR' })
    await expect(make(join(base, 'link', 'x'))).rejects.toMatchObject({ code: 'EEXIST' })
  })

  it.runIf(process.platform === 'linux')('ends where nothing can ever be made', async () => {
    await expect(make('/proc/nothing/x')).rejects.toMatchObject({ code: 'ENOENT', path: '/proc/nothing' })
  })
})

it('gives all that it makes the mode', async () => {
  await makeDirectory(join(base, 'a', 'b'), 0o700)
  expect(['a', 'a/b'].map((name) => statSync(join(base, name)).mode & 0o777)).toEqual([0o700, 0o700])
})

it('is what the program makes directories by', () => {
  const root = join(import.meta.dirname, '../..')
  const files = globSync('src/**/*.ts', { cwd: root })
  const own = files.filter((file) => /\bmkdir(Sync)?\([^)]*recursive/.test(readFileSync(join(root, file), 'utf8')))
  expect(own).toEqual([])
})
