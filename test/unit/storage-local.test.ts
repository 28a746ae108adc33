import { mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { buffer } from 'node:stream/consumers'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { parseConfig } from '../../src/config/config.ts'
import { openStorages, type Storage } from '../../src/features/files/storage/storage.ts'

/** A LOCAL service on a real directory. */

let base: string
let root: string

beforeEach(async () => {
  base = await mkdtemp(join(tmpdir(), 'daybook-storage-'))
  root = join(base, 'root')
})

afterEach(() => rm(base, { recursive: true }))

function open(more: Record<string, string> = {}): Storage {
  const env = { SECRET_KEY: 'x'.repeat(32), STORAGE_SERVICES_ENABLED: 'disk', DISK_STORAGE_DRIVER: 'LOCAL' }
  return openStorages(parseConfig({ ...env, DISK_STORAGE_PATH: root, ...more })).usual()
}

async function* pieces(...texts: string[]): AsyncGenerator<Buffer> {
  for (const text of texts) yield Buffer.from(text)
}

const textOf = async (storage: Storage, key: string, range?: { start: number; end: number }) => {
  const content = await storage.read(key, range)
  return content && String(await buffer(content))
}

async function keysOf(storage: Storage, prefix: string): Promise<string[]> {
  const found: string[] = []
  for await (const { key } of storage.list(prefix)) found.push(key)
  return found.sort()
}

describe('a LOCAL storage', () => {
  it('writes, reads in parts, measures, copies, lists and deletes', async () => {
    const storage = open()
    await storage.write('a.txt', pieces('one ', 'two'))
    await storage.write('tenants/t/users/u/b.txt', pieces('b'))
    expect(await textOf(storage, 'a.txt')).toBe('one two')
    expect(await textOf(storage, 'a.txt', { start: 4, end: 5 })).toBe('tw')
    expect(await storage.stat('a.txt')).toMatchObject({ size: 7, modifiedAt: expect.any(Date) })
    await storage.copy('a.txt', 'system/a.txt')
    expect(await textOf(storage, 'system/a.txt')).toBe('one two')
    expect(await keysOf(storage, '')).toEqual(['a.txt', 'system/a.txt', 'tenants/t/users/u/b.txt'])
    expect(await keysOf(storage, 'tenants/t/users/u/b')).toEqual(['tenants/t/users/u/b.txt'])
    await storage.delete('a.txt')
    await storage.delete('a.txt')
    expect(await storage.stat('a.txt')).toBeUndefined()
    expect(await storage.read('a.txt')).toBeUndefined()
    expect(await storage.read('tenants')).toBeUndefined()
    expect(await storage.presign('system/a.txt', { expiresInSeconds: 1 })).toBeUndefined()
  })

  it('takes what many write into one folder at a time, in pieces of every size', async () => {
    const storage = open()
    const contents = [0, 1, 300, 262_144, 262_145, 900_001].map((size, at) => String(at).repeat(size))
    const keys = await Promise.all(
      Array.from({ length: 48 }, async (_, at) => {
        const text = contents[at % contents.length]!
        const halves = [text.slice(0, at * 1000), text.slice(at * 1000)]
        await storage.write(`shared/${at}.txt`, pieces(...halves))
        return `shared/${at}.txt`
      }),
    )
    expect(await keysOf(storage, 'shared/')).toEqual([...keys].sort())
    for (const [at, key] of keys.entries())
      expect((await textOf(storage, key)) === contents[at % contents.length], key).toBe(true)
  })

  it('leaves nothing of content that breaks off, and throws what the content threw', async () => {
    const storage = open()
    async function* broken() {
      yield Buffer.from('part')
      throw new Error('the client is gone')
    }
    await expect(storage.write('x/a.txt', broken())).rejects.toThrow('the client is gone')
    expect(await readdir(join(root, 'x'))).toEqual([])
  })

  it('never writes over what is there', async () => {
    const storage = open()
    await storage.write('a.txt', pieces('first'))
    await expect(storage.write('a.txt', pieces('second'))).rejects.toMatchObject({ status: 503 })
    expect(await textOf(storage, 'a.txt')).toBe('first')
  })

  it.each([
    ...['../a', 'a/../../b', '/etc/passwd', 'a//b', './a', 'a/.', '', 'a\0b', 'a\\..\\b', `${'a'.repeat(256)}`],
    ...['a/b\nc', 'ä'.repeat(128)],
  ])('refuses the key %j everywhere', async (key) => {
    const storage = open()
    const refused = { status: 400, code: 'INVALID_PATH' }
    await expect(storage.write(key, pieces('x'))).rejects.toMatchObject(refused)
    await expect(storage.read(key)).rejects.toMatchObject(refused)
    await expect(storage.stat(key)).rejects.toMatchObject(refused)
    await expect(storage.delete(key)).rejects.toMatchObject(refused)
    await expect(storage.presign(key, { expiresInSeconds: 1 })).rejects.toMatchObject(refused)
    expect(await readdir(base)).toEqual([])
  })

  it('follows no link beneath the root: not of a folder, not of a file', async () => {
    await mkdir(join(base, 'root-evil'), { recursive: true })
    await writeFile(join(base, 'root-evil', 'secret.txt'), 'secret')
    const storage = open()
    await storage.write('own.txt', pieces('own'))
    await symlink(join(base, 'root-evil'), join(root, 'folder'))
    await symlink(join(base, 'root-evil', 'secret.txt'), join(root, 'file.txt'))
    await symlink('own.txt', join(root, 'inside.txt'))
    const refused = { status: 400, code: 'INVALID_PATH' }
    await expect(storage.read('folder/secret.txt')).rejects.toMatchObject(refused)
    await expect(storage.stat('folder/secret.txt')).rejects.toMatchObject(refused)
    await expect(storage.write('folder/new.txt', pieces('x'))).rejects.toMatchObject(refused)
    await expect(storage.delete('folder/secret.txt')).rejects.toMatchObject(refused)
    await expect(storage.read('file.txt')).rejects.toMatchObject(refused)
    expect(await storage.stat('inside.txt')).toBeUndefined()
    expect(await keysOf(storage, '')).toEqual(['own.txt'])
    expect(await readFile(join(base, 'root-evil', 'secret.txt'), 'utf8')).toBe('secret')
    // Deleting a link's name takes away the link.
    await storage.delete('file.txt')
    expect(await readdir(join(base, 'root-evil'))).toEqual(['secret.txt'])
  })

  it('follows links of the operator where STORAGE_PATH_CONFINEMENT is off', async () => {
    await mkdir(join(base, 'elsewhere'))
    await mkdir(root)
    await symlink(join(base, 'elsewhere'), join(root, 'folder'))
    const storage = open({ STORAGE_PATH_CONFINEMENT: 'false' })
    await storage.write('folder/a.txt', pieces('a'))
    expect(await readFile(join(base, 'elsewhere', 'a.txt'), 'utf8')).toBe('a')
    await expect(storage.read('a\0')).rejects.toMatchObject({ status: 400 })
  })

  it('is not available where its root is none, and says no more to a client', async () => {
    await writeFile(root, 'a file')
    await expect(open().write('a.txt', pieces('a'))).rejects.toMatchObject({
      status: 503,
      code: 'STORAGE_UNAVAILABLE',
      message: 'Storage service disk is not available',
    })
  })
})

describe('storage services', () => {
  it('are found by name in any case; unknown names are 400, and 503 where a row names them', () => {
    const storages = openStorages(parseConfig({ SECRET_KEY: 'x'.repeat(32), DAYBOOK_DATA_DIR: base }))
    expect(storages.named('LOCAL').name).toBe('local')
    expect(() => storages.named('../x')).toThrow(
      expect.objectContaining({ status: 400, message: 'Storage service ../x not found' }),
    )
    expect(() => storages.holding('s3')).toThrow(expect.objectContaining({ status: 503 }))
  })
})
