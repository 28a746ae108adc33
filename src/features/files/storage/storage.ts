import { openBucket } from '../../../adapters/s3.ts'
import type { Config } from '../../../config/config.ts'
import { type StorageServiceConfig, variablePrefix } from '../../../config/families.ts'
import { AppError } from '../../../errors.ts'
import { badPath, type Driver, type Listed, openDirectory, type Storage } from './local.ts'

export type { ByteRange } from '../../../adapters/s3.ts'
export { openDirectory, type Storage } from './local.ts'

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
