import { existsSync, constants as flags } from 'node:fs'
import { type FileHandle, link, lstat, mkdir, open, opendir, realpath, unlink } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import type { Readable } from 'node:stream'
import { type ByteRange, openBucket, type Presigned, type StoredObject } from '../../../adapters/s3.ts'
import type { Config } from '../../../config/config.ts'
import { type StorageServiceConfig, variablePrefix } from '../../../config/families.ts'
import { AppError } from '../../../errors.ts'
import { makeDirectory } from '../../../language/directories.ts'

export type { ByteRange } from '../../../adapters/s3.ts'

/** All configured services. */
type Storages = {
  readonly all: readonly Storage[]
  /** Of files that name none. 503 where there is none. */
  usual(): Storage
  /** 400 for a name that is not configured; upper and lower case are the same. */
  named(name: string): Storage
  /** The service of stored content, whose row names it. 503 where it is not configured any more. */
  holding(name: string): Storage
  close(): void
}

/** The storage services of the process. */
export type StorageServices = { readonly storages: Storages }

/** Opens nothing yet: a service is connected to by what is asked of it first. */
export function openStorages({ storage }: Pick<Config, 'storage'>): Storages {
  const opened = Object.values(storage.services).map((service) => {
    const driver = driverOf(service, storage.pathConfinement)
    return { service, driver, open: guarded(service, driver) }
  })
  const find = (name: string) =>
    opened.find(({ service }) => variablePrefix(service.name) === variablePrefix(name))?.open
  return {
    all: opened.map(({ open }) => open),
    usual: () => {
      const usual = storage.defaultService === undefined ? undefined : find(storage.defaultService)
      if (usual === undefined)
        throw new AppError(503, 'No storage service is configured', { code: 'STORAGE_NOT_CONFIGURED' })
      return usual
    },
    named: (name) => {
      const found = find(name)
      if (found === undefined)
        throw new AppError(400, `Storage service ${shown(name)} not found`, { code: 'UNKNOWN_STORAGE' })
      return found
    },
    holding: (name) => {
      const found = find(name)
      if (found === undefined) throw unavailable(name, undefined)
      return found
    },
    close: () => {
      for (const { driver } of opened) driver.close()
    },
  }
}

/** Where backups are kept in a service, beside content or alone. */
export const backupsFolder = 'backups/'

/** The key of content that a row of svc_File names. */
export const keyOf = (folder: string | null, filename: string): string =>
  folder === null || folder === '' ? filename : `${folder}/${filename}`

function driverOf(service: StorageServiceConfig, confined: boolean): Driver {
  return service.driver === 'LOCAL' ? openDirectory(service.path, { confined }) : openBucket(service)
}

function guarded({ name, driver: kind }: StorageServiceConfig, driver: Driver): Storage {
  const tried = async <T>(key: string, work: () => Promise<T>): Promise<T> => {
    checkKey(key)
    try {
      return await work()
    } catch (error) {
      throw faultOf(name, error)
    }
  }
  return {
    name,
    driver: kind,
    write: async (key, content, more) => {
      checkKey(key)
      const source = watched(content)
      try {
        await driver.write(key, source.content, more)
      } catch (error) {
        throw source.failure() ?? faultOf(name, error)
      }
    },
    read: (key, range) => tried(key, () => driver.read(key, range)),
    stat: (key) => tried(key, () => driver.stat(key)),
    copy: (from, to) => {
      checkKey(to)
      return tried(from, () => driver.copy(from, to))
    },
    delete: (key) => tried(key, () => driver.delete(key)),
    list: (prefix) => listed(name, driver, prefix),
    presign: (key, wanted) => tried(key, () => driver.presign(key, wanted)),
  }
}

async function* listed(name: string, driver: Driver, prefix: string): AsyncGenerator<Listed> {
  if (prefix !== '') checkKey(prefix.replace(/\/$/, ''))
  try {
    yield* driver.list(prefix)
  } catch (error) {
    throw faultOf(name, error)
  }
}

/** Tells what the content threw from what the service did. */
function watched(content: AsyncIterable<Uint8Array>) {
  let failed: { readonly error: unknown } | undefined
  async function* pieces(): AsyncGenerator<Uint8Array> {
    try {
      yield* content
    } catch (error) {
      failed = { error }
      throw error
    }
  }
  return { content: pieces(), failure: () => failed?.error }
}

/** Names that every system can have: no step upwards, nothing invisible, at most 255 bytes each. */
function checkKey(key: string): void {
  const isName = (part: string) => !/^\.{0,2}$|[\x00-\x1f\x7f\\]/.test(part) && Buffer.byteLength(part) <= 255
  if (key.length > 1024 || !key.split('/').every(isName)) throw badPath()
}

function faultOf(name: string, error: unknown): AppError {
  if (error instanceof AppError) return error
  const { code } = error as NodeJS.ErrnoException
  if (code === 'ENOSPC' || code === 'EDQUOT' || code === 'EFBIG')
    return new AppError(507, `Storage service ${name} is full`, { code: 'STORAGE_FULL', cause: error })
  return unavailable(name, error)
}

const unavailable = (name: string, cause: unknown): AppError =>
  new AppError(503, `Storage service ${shown(name)} is not available`, {
    code: 'STORAGE_UNAVAILABLE',
    headers: { 'retry-after': '5' },
    cause,
  })

/** Names come from clients too. */
const shown = (name: string): string => JSON.stringify(name.slice(0, 64)).slice(1, -1)

/**
 * Content in files beneath a directory. No link beneath the root is followed, also not one that is made between a
 * look and the use: on Linux each folder is opened from the one above it, and files are named from the open folder.
 */
export function openDirectory(path: string, { confined }: { readonly confined: boolean }): Driver {
  const root = resolve(path)
  /** Does something with a file by a name for it that leads nowhere else. */
  const at = async <T>(key: string, mode: Mode, work: (file: string, folder: Folder) => Promise<T>): Promise<T> => {
    const folders = key.split('/')
    const leaf = folders.pop()!
    const folder = confined ? await enter(root, folders, mode) : await plain(root, folders, mode)
    try {
      return await work(join(folder.path, leaf), folder)
    } finally {
      await folder.close()
    }
  }
  return {
    write: (key, content) => at(key, 'make', (file, folder) => writeNew(file, folder, content)),
    read: (key, range) => orNothing(at(key, 'find', (file) => readPart(file, noLink(confined), range))),
    stat: (key) =>
      orNothing(
        at(key, 'find', async (file) => {
          const found = await lstat(file)
          return found.isFile() ? { size: found.size, modifiedAt: found.mtime } : undefined
        }),
      ),
    copy: (from, to) =>
      at(from, 'find', (source) =>
        at(to, 'make', async (target, folder) => {
          // Content is never changed, so a second name for it is a copy.
          await link(source, target)
          await folder.sync()
        }),
      ),
    delete: async (key) => {
      await orNothing(
        at(key, 'find', async (file, folder) => {
          await unlink(file)
          await folder.sync()
          return undefined
        }),
      )
    },
    list: (prefix) => list(root, prefix, confined),
    presign: async () => undefined,
    close: () => undefined,
  }
}

/** On the disk when this resolves, or not there. */
async function writeNew(file: string, folder: Folder, content: AsyncIterable<Uint8Array>): Promise<void> {
  const handle = await open(file, flags.O_WRONLY | flags.O_CREAT | flags.O_EXCL | flags.O_NOFOLLOW, 0o640)
  try {
    for await (const pieces of gathered(content)) await writeWhole(handle, pieces)
    await handle.sync()
    await handle.close()
    await folder.sync()
  } catch (error) {
    await handle.close().catch(() => undefined)
    await unlink(file)
    throw error
  }
}

async function readPart(
  file: string,
  noLink: number,
  range?: Parameters<Driver['read']>[1],
): Promise<Readable | undefined> {
  const handle = await open(file, flags.O_RDONLY | noLink)
  if (!(await handle.stat()).isFile()) {
    await handle.close()
    return undefined
  }
  return handle.createReadStream({ ...range, highWaterMark: readAtOnce })
}

const readAtOnce = 256 * 1024
const noLink = (confined: boolean): number => (confined ? flags.O_NOFOLLOW : 0)

/** An open folder; `path` names it until it is closed. */
type Folder = { readonly path: string; sync(): Promise<void>; close(): Promise<void> }
type Mode = 'find' | 'make'

/** Linux names what a descriptor stands for, so a path can begin at an open folder. */
const descriptors = '/proc/self/fd'
const hasDescriptors = existsSync(descriptors)

async function enter(root: string, folders: readonly string[], mode: Mode): Promise<Folder> {
  if (mode === 'make' && !existsSync(root)) await makeDirectory(root, 0o750)
  // Nothing is between the root and the file; the root itself is the operator's and may be a link.
  if (folders.length === 0) return named(root)
  if (!hasDescriptors) return enterByName(root, folders, mode)
  let handle = await open(root, flags.O_RDONLY | flags.O_DIRECTORY)
  try {
    for (const folder of folders) {
      const inner = await enterOne(handle, folder, mode)
      await handle.close()
      handle = inner
    }
  } catch (error) {
    await handle.close()
    throw error
  }
  return { path: `${descriptors}/${handle.fd}`, sync: () => syncShared(handle), close: () => handle.close() }
}

async function enterOne(above: FileHandle, name: string, mode: Mode): Promise<FileHandle> {
  const path = `${descriptors}/${above.fd}/${name}`
  try {
    return await open(path, flags.O_RDONLY | flags.O_DIRECTORY | flags.O_NOFOLLOW)
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    if (code === 'ELOOP' || code === 'ENOTDIR') throw badPath(error)
    if (code !== 'ENOENT' || mode === 'find') throw error
  }
  await mkdir(path, { mode: 0o750 }).catch(unlessThere)
  await above.sync()
  return enterOne(above, name, 'find')
}

/** Where descriptors have no names: each folder is looked at before it is used. */
async function enterByName(root: string, folders: readonly string[], mode: Mode): Promise<Folder> {
  let path = await realpath(root)
  for (const folder of folders) {
    const above = path
    path = join(path, folder)
    if (mode === 'make') {
      await mkdir(path, { mode: 0o750 }).catch(unlessThere)
      await named(above).sync()
    }
    if (!(await lstat(path)).isDirectory()) throw badPath()
  }
  return named(path)
}

/** STORAGE_PATH_CONFINEMENT=false: links are followed. */
async function plain(root: string, folders: readonly string[], mode: Mode): Promise<Folder> {
  const path = join(root, ...folders)
  if (mode === 'make') await makeDirectory(path, 0o750)
  return named(path)
}

const named = (path: string): Folder => ({
  path,
  close: async () => undefined,
  sync: async () => {
    const handle = await open(path, flags.O_RDONLY | flags.O_DIRECTORY)
    try {
      await syncShared(handle)
    } finally {
      await handle.close()
    }
  },
})

type Sync = { readonly running: Promise<void>; next: Promise<void> | undefined }
const syncs = new Map<string, Sync>()

/**
 * Syncs an open folder. Those who ask while one sync of it runs share the next: it begins after all of them have asked, and
 * the disk takes as long for one name as for many.
 */
async function syncShared(handle: FileHandle): Promise<void> {
  const { dev, ino } = await handle.stat()
  const folder = `${dev}:${ino}`
  const sync = syncs.get(folder)
  if (sync === undefined) return startSync(folder, handle)
  // The handle stays open until its own call has ended.
  sync.next ??= sync.running.then(ignore, ignore).then(() => startSync(folder, handle))
  return sync.next
}

function startSync(folder: string, handle: FileHandle): Promise<void> {
  const sync: Sync = { running: handle.sync(), next: undefined }
  syncs.set(folder, sync)
  const end = () => {
    if (sync.next === undefined) syncs.delete(folder)
  }
  sync.running.then(end, end)
  return sync.running
}

const ignore = () => undefined

function unlessThere(error: NodeJS.ErrnoException): void {
  if (error.code !== 'EEXIST') throw error
}

async function orNothing<T>(work: Promise<T | undefined>): Promise<T | undefined> {
  try {
    return await work
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    if (code === 'ENOENT') return undefined
    // The file itself is a link.
    if (code === 'ELOOP') throw badPath(error)
    throw error
  }
}

/** A write waits for a thread, so a few pieces are worth one. Bytes. */
const writtenAtOnce = 256 * 1024

async function* gathered(content: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array[]> {
  let pieces: Uint8Array[] = []
  let size = 0
  for await (const piece of content) {
    pieces.push(piece)
    size += piece.length
    if (size < writtenAtOnce) continue
    yield pieces
    pieces = []
    size = 0
  }
  if (size > 0) yield pieces
}

async function writeWhole(handle: FileHandle, pieces: Uint8Array[]): Promise<void> {
  const { bytesWritten } = await handle.writev(pieces)
  if (bytesWritten === pieces.reduce((sum, { length }) => sum + length, 0)) return
  // A disk that is nearly full takes a part; what follows says why.
  const rest = Buffer.concat(pieces)
  for (let written = bytesWritten; written < rest.length; )
    written += (await handle.write(rest, written, rest.length - written)).bytesWritten
}

async function* list(root: string, prefix: string, confined: boolean): AsyncGenerator<Listed> {
  const folders = prefix.split('/')
  const beginning = folders.pop()!
  yield* listFolder(root, folders, beginning, confined)
}

async function* listFolder(
  root: string,
  folders: readonly string[],
  beginning: string,
  confined: boolean,
): AsyncGenerator<Listed> {
  const folder = await orNothing(confined ? enter(root, folders, 'find') : plain(root, folders, 'find'))
  if (folder === undefined) return
  const inner: string[] = []
  try {
    const entries = await orNothing(opendir(folder.path))
    if (entries === undefined) return
    for await (const entry of entries) {
      if (!entry.name.startsWith(beginning)) continue
      if (entry.isDirectory()) inner.push(entry.name)
      // Deleted meanwhile, it is not listed.
      const found = entry.isFile() ? await orNothing(storedAt(join(folder.path, entry.name))) : undefined
      if (found !== undefined) yield { key: [...folders, entry.name].join('/'), ...found }
    }
  } finally {
    await folder.close()
  }
  for (const name of inner) yield* listFolder(root, [...folders, name], '', confined)
}

async function storedAt(path: string): Promise<StoredObject> {
  const { size, mtime } = await lstat(path)
  return { size, modifiedAt: mtime }
}

/**
 * A place for content. Content is never changed: it is written under a key of its own, read, and deleted.
 *
 * A key is a relative path, `tenants/…/{id}-name.png`, whose parts are names (400 for others, and for a key that leads
 * out of the service). Where the service itself does not answer, every verb is a 503, `STORAGE_UNAVAILABLE`.
 */
export type Storage = {
  readonly name: string
  readonly driver: StorageServiceConfig['driver']
  /**
   * Stores what comes, piece by piece, under a key that is not taken. Durable when it resolves. Nothing is left where it
   * throws; what the content itself throws is thrown on.
   */
  write(key: string, content: AsyncIterable<Uint8Array>, more?: { readonly type?: string }): Promise<void>
  /** The content, or a part of it; undefined where there is none. Must be read to its end or destroyed. */
  read(key: string, range?: ByteRange): Promise<Readable | undefined>
  stat(key: string): Promise<StoredObject | undefined>
  /** Within the service; the source stays. */
  copy(from: string, to: string): Promise<void>
  /** Nothing happens where there is none. */
  delete(key: string): Promise<void>
  /** All whose key begins so, in no order. */
  list(prefix: string): AsyncIterable<Listed>
  /** An address that reads the content for a while, without us; undefined where the service has none. */
  presign(key: string, wanted: Presigned): Promise<string | undefined>
}

type Listed = StoredObject & { readonly key: string }

/** The work of a driver, with the errors of its system; keys are checked before. */
type Driver = Omit<Storage, 'name' | 'driver'> & { close(): void }

/** The refusal of an invalid key, or of one that leads out of the service by a link. */
const badPath = (cause?: unknown): AppError =>
  new AppError(400, 'The path is not valid', { code: 'INVALID_PATH', cause })
