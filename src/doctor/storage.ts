import { randomUUID } from 'node:crypto'
import { constants } from 'node:fs'
import { access, mkdtemp, rmdir, stat } from 'node:fs/promises'
import { dirname, join, resolve } from 'node:path'
import { text } from 'node:stream/consumers'
import type { Config } from '../config/config.ts'
import { variablePrefix } from '../config/families.ts'
import { openStorages, type Storage } from '../features/files/storage/storage.ts'
import { type Finding, ok, problem, reasonOf, warning } from './finding.ts'

/** Every storage service, the directories of uploads and images in progress, and the one that migrations are read from. */
export async function checkStorage(config: Config): Promise<Finding[]> {
  const { storage, assets, migrations } = config
  const temp = storage.tempPath === undefined ? [] : [await checkWritable('STORAGE_TEMP_PATH', storage.tempPath)]
  const images = await checkWritable('ASSET_TEMP_DIR', assets.tempDir)
  return [...(await checkServices(config)), ...temp, images, await checkReadable('MIGRATIONS_DIR', migrations.dir)]
}

/** Each writes a probe, reads it and deletes it. */
async function checkServices(config: Config): Promise<Finding[]> {
  const storages = openStorages(config)
  try {
    if (storages.all.length === 0)
      return [warning('storage', 'no service is configured: uploads answer 503', 'set STORAGE_SERVICES_ENABLED')]
    return await Promise.all(storages.all.map((storage) => checkService(storage)))
  } finally {
    storages.close()
  }
}

async function checkService(storage: Storage): Promise<Finding> {
  const key = `daybook-doctor-${randomUUID()}`
  try {
    await storage.write(key, probe())
    const content = await storage.read(key)
    const found = content === undefined ? 'nothing' : await text(content)
    await storage.delete(key)
    if (found !== probeText) throw new Error(`what was written was not read again: ${found.slice(0, 100)}`)
    return ok('storage', `${storage.name}: content can be written, read and deleted`)
  } catch (error) {
    const reason = (error as Error).cause ?? error
    return problem('storage', `${storage.name}: ${reasonOf(reason)}`, remedyOf(storage, reason))
  }
}

const probeText = 'a probe'

async function* probe(): AsyncGenerator<Uint8Array> {
  yield Buffer.from(probeText)
}

const remedies: Readonly<Record<string, string>> = {
  NoSuchBucket: 'make the bucket, or correct _STORAGE_BUCKET',
  InvalidAccessKeyId: 'correct _STORAGE_ACCESS_KEY_ID',
  SignatureDoesNotMatch: 'correct _STORAGE_SECRET_ACCESS_KEY',
  AccessDenied: 'allow the key to get, put, list and delete objects of the bucket',
  PermanentRedirect: 'correct _STORAGE_REGION',
  AuthorizationHeaderMalformed: 'correct _STORAGE_REGION',
}

function remedyOf({ name, driver }: Storage, reason: unknown): string {
  const prefix = variablePrefix(name)
  if (driver === 'LOCAL') return `let this user write to the directory, or correct ${prefix}_STORAGE_PATH`
  const { name: kind = '' } = reason as { name?: string }
  const remedy = remedies[kind] ?? 'see that the server of _STORAGE_ENDPOINT or _STORAGE_REGION can be reached'
  return remedy.replaceAll(/(?<= )(?=_STORAGE)/g, prefix)
}

/** By making a directory in it, or where it will be made. */
async function checkWritable(what: string, path: string): Promise<Finding> {
  const directory = resolve(path)
  try {
    const place = await nearestExisting(directory)
    if (!(await stat(place)).isDirectory()) throw new Error(`${place} is no directory`)
    await rmdir(await mkdtemp(join(place, '.daybook-doctor-')))
    return ok('storage', `${what}: ${directory} can be written to`)
  } catch (error) {
    return problem(
      'storage',
      `${what}: ${directory} cannot be written to: ${reasonOf(error)}`,
      `make the directory, and let the user that runs Daybook write to it`,
    )
  }
}

async function nearestExisting(path: string): Promise<string> {
  try {
    await access(path)
    return path
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT' || dirname(path) === path) throw error
    return nearestExisting(dirname(path))
  }
}

async function checkReadable(what: string, path: string): Promise<Finding> {
  const directory = resolve(path)
  try {
    await access(directory, constants.R_OK | constants.X_OK)
    return ok('storage', `${what}: ${directory} can be read`)
  } catch (error) {
    return problem('storage', `${what}: ${reasonOf(error)}`, `make ${directory}, or correct ${what}`)
  }
}
