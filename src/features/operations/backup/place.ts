/** Where a backup is kept: a file, a storage service (`name://key`), or the standard streams (`-`). An export is a directory. */
import { createHash } from 'node:crypto'
import type { Stats } from 'node:fs'
import { type FileHandle, lstat, mkdir, open, readdir, realpath, rename, rm, stat } from 'node:fs/promises'
import { basename, dirname, join, resolve } from 'node:path'
import { PassThrough, type Readable } from 'node:stream'
import { AppError } from '../../../errors.ts'
import { makeDirectory } from '../../../language/directories.ts'
import { backupsFolder, type Storage, type StorageServices } from '../../files/storage/storage.ts'
import type { Pieces } from './format.ts'

/** A backup while it is written: nothing has its name before `keep`. */
type BackupDraft = {
  write(piece: Uint8Array): Promise<void>
  /** Everything is on the disk. */
  finish(): Promise<void>
  /** Undefined where it cannot be read again. */
  readonly readAgain: (() => Promise<Pieces>) | undefined
  /** Gives it its name, in the place of another one that has it. */
  keep(): Promise<void>
  /** Leaves nothing behind. */
  discard(): Promise<void>
}

/** `name://key` */
function storedPlace({ storages }: StorageServices, place: string): { storage: Storage; key: string } | undefined {
  const match = /^([\w-]+):\/\/(.+)$/s.exec(place)
  return match === null ? undefined : { storage: storages.named(match[1]!), key: match[2]! }
}

/** 400 or 409 where no backup may be. */
export async function openDraft(deps: StorageServices, place: string): Promise<BackupDraft> {
  if (place === '-') return streamed()
  const stored = storedPlace(deps, place)
  if (stored === undefined) return inFile(await replaceable(resolve(place)))
  const { storage, key } = stored
  // Elsewhere it would count as content of files that no row names, which is removed.
  if (!key.startsWith(backupsFolder))
    throw new AppError(
      400,
      `The key of a backup in a storage service begins with ${backupsFolder}: ${storage.name}://${backupsFolder}${basename(key)}`,
    )
  return inStorage(storage, key)
}

/** The path that a backup may take: that of a regular file, to which links may lead, or of nothing yet. */
async function replaceable(path: string): Promise<string> {
  const [own, target] = await Promise.all([found(lstat(path)), found(stat(path))])
  if (own === undefined) return path
  if (target === undefined) throw new AppError(409, `${path} is a link to nothing: name the file itself`)
  if (target.isDirectory()) throw new AppError(409, `${path} is a directory: name a file in it`)
  if (!target.isFile())
    throw new AppError(409, `${path} is no regular file, and would be replaced: - writes to standard output`)
  return realpath(path)
}

/** Undefined where there is nothing. */
const found = (stats: Promise<Stats>): Promise<Stats | undefined> =>
  stats.catch((error: NodeJS.ErrnoException) => {
    if (!['ENOENT', 'ENOTDIR'].includes(error.code ?? '')) throw error
    return undefined
  })

/** 404 where there is nothing, 400 for a directory. */
export async function readPlace(deps: StorageServices, place: string): Promise<Readable> {
  if (place === '-') return process.stdin
  const stored = storedPlace(deps, place)
  if (stored === undefined) return readFile(resolve(place))
  const content = await stored.storage.read(stored.key)
  if (content === undefined) throw new AppError(404, `There is no backup at ${place}`)
  return content
}

const atOnce = 256 * 1024

async function readFile(path: string): Promise<Readable> {
  const handle = await open(path).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'ENOENT') throw error
    throw new AppError(404, `There is no backup at ${path}`)
  })
  if (!(await handle.stat()).isDirectory()) return handle.createReadStream({ highWaterMark: atOnce })
  await handle.close()
  throw new AppError(400, `${path} is a directory: name the file of a backup`)
}

/** The trailer shows the reader of a stream whether it is complete. */
function streamed(): BackupDraft {
  // The write that failed is told; the event without a listener would end the process.
  process.stdout.on('error', () => undefined)
  return {
    write: (piece) =>
      new Promise((go, fail) => {
        process.stdout.write(piece, (error) => (error ? fail(unwritten('standard output', error)) : go()))
      }),
    finish: async () => undefined,
    readAgain: undefined,
    keep: async () => undefined,
    discard: async () => undefined,
  }
}

/** Written beside its name and renamed: until then the file that has the name is the one from before. */
async function inFile(path: string): Promise<BackupDraft> {
  const [folder, name] = [dirname(path), basename(path)]
  await removeLeftovers(folder, name)
  const beside = join(folder, `.${name}.${process.pid}.partial`)
  const handle = await open(beside, 'wx', 0o600)
  return {
    write: (piece) => writeWhole(handle, piece).catch((error) => refuse(path, error)),
    finish: async () => {
      await handle.sync().catch((error) => refuse(path, error))
      await handle.close()
    },
    readAgain: () => readFile(beside),
    keep: async () => {
      await rename(beside, path)
      await syncFolder(folder)
    },
    discard: async () => {
      await handle.close().catch(() => undefined)
      await rm(beside, { force: true })
    },
  }
}

/** A directory while it is filled: it has its name, and can be found by it, after `keep`. */
export type FolderDraft = {
  /** Makes a file of it, and the folders above that; names are the caller's own, never a client's input. */
  write(file: string, content: Pieces | Iterable<Uint8Array>): Promise<Written>
  /** 409 where something has taken the name meanwhile. */
  keep(): Promise<void>
  /** Leaves nothing behind. */
  discard(): Promise<void>
}

export type Written = { readonly bytes: number; readonly sha256: string }

/** Readable by the owner alone. 404 where nothing can be made, 409 where something has the name. */
export async function openFolder(path: string): Promise<FolderDraft> {
  const whole = resolve(path)
  const [above, name] = [dirname(whole), basename(whole)]
  const taken = () => new AppError(409, `There is something at ${path} already`, { code: 'EXPORT_EXISTS' })
  await removeLeftovers(above, name)
  if (await isThere(whole)) throw taken()
  const beside = join(above, `.${name}.${process.pid}.partial`)
  await mkdir(beside, { mode: 0o700 })
  const folders = new Set([beside])
  return {
    write: async (file, content) => {
      const target = join(beside, file)
      if (!folders.has(dirname(target))) await makeDirectory(dirname(target), 0o700)
      folders.add(dirname(target))
      return writeFile(target, content)
    },
    keep: async () => {
      for (const folder of folders) await syncFolder(folder)
      await rename(beside, whole).catch((error: NodeJS.ErrnoException) => {
        throw ['ENOTEMPTY', 'EEXIST', 'ENOTDIR'].includes(error.code ?? '') ? taken() : error
      })
      await syncFolder(above)
    },
    discard: () => rm(beside, { recursive: true, force: true }),
  }
}

async function writeFile(path: string, content: Pieces | Iterable<Uint8Array>): Promise<Written> {
  const handle = await open(path, 'wx', 0o600)
  const hash = createHash('sha256')
  let bytes = 0
  try {
    for await (const piece of content) {
      hash.update(piece)
      bytes += piece.length
      await writeWhole(handle, piece).catch((error) => refuse(path, error))
    }
    await handle.sync().catch((error) => refuse(path, error))
  } finally {
    await handle.close()
  }
  return { bytes, sha256: hash.digest('hex') }
}

const isThere = async (path: string): Promise<boolean> => (await found(lstat(path))) !== undefined

async function syncFolder(path: string): Promise<void> {
  const folder = await open(path)
  await folder.sync().finally(() => folder.close())
}

/** Of processes that were killed. */
async function removeLeftovers(folder: string, name: string): Promise<void> {
  for (const file of await filesIn(folder)) {
    const pid = file.startsWith(`.${name}.`) ? /\.(\d+)\.partial$/.exec(file)?.[1] : undefined
    if (pid !== undefined && !isRunning(Number(pid))) await rm(join(folder, file), { recursive: true, force: true })
  }
}

async function filesIn(folder: string): Promise<readonly string[]> {
  try {
    return await readdir(folder)
  } catch (error) {
    if (!['ENOENT', 'ENOTDIR'].includes((error as NodeJS.ErrnoException).code ?? '')) throw error
    throw new AppError(404, `There is no directory ${folder}`)
  }
}

function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM'
  }
}

const full = ['ENOSPC', 'EDQUOT', 'EFBIG']

/** The system does not say which file it is, where an open one cannot be written to. */
function unwritten(place: string, error: unknown): AppError {
  const { code = '', message } = error as NodeJS.ErrnoException
  return new AppError(full.includes(code) ? 507 : 503, `${place} cannot be written to: ${message}`, { cause: error })
}

function refuse(place: string, error: unknown): never {
  throw unwritten(place, error)
}

async function writeWhole(handle: FileHandle, piece: Uint8Array): Promise<void> {
  for (let written = 0; written < piece.length; )
    written += (await handle.write(piece, written, piece.length - written)).bytesWritten
}

/**
 * S3 shows an object when all of it has arrived. A directory shows a file from its first byte, so there it is written under
 * another name.
 */
async function inStorage(storage: Storage, key: string): Promise<BackupDraft> {
  if ((await storage.stat(key)) !== undefined)
    throw new AppError(409, `There is a backup at ${storage.name}://${key} already`, { code: 'BACKUP_EXISTS' })
  const isShownLate = storage.driver === 'S3'
  const name = isShownLate ? key : `${key}.${process.pid}.partial`
  if (!isShownLate) await storage.delete(name)
  const content = new PassThrough({ highWaterMark: atOnce })
  const written = storage.write(name, content)
  // The next write reports it.
  let failure: unknown
  written.catch((error: unknown) => {
    failure = error
    content.destroy()
  })
  return {
    write: async (piece) => {
      if (failure !== undefined) throw failure
      if (!content.write(piece))
        await new Promise<void>((go) => {
          const done = () => {
            content.off('drain', done).off('close', done)
            go()
          }
          content.once('drain', done).once('close', done)
        })
    },
    finish: async () => {
      content.end()
      await written
    },
    readAgain: async () => {
      const again = await storage.read(name)
      if (again === undefined) throw new AppError(503, `Storage service ${storage.name} has lost the written content`)
      return again
    },
    keep: async () => {
      if (isShownLate) return
      await storage.copy(name, key)
      await storage.delete(name)
    },
    discard: async () => {
      content.destroy(new Error('the backup was given up'))
      await written.catch(() => undefined)
      await storage.delete(name)
    },
  }
}
